"""Sending an envelope and waiting for its answer, which everything that a space does comes down to."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from mewstream.client import messages
from mewstream.client.errors import RequestTimeout
from mewstream.client.messages import Message
from mewstream.protocol import kinds
from mewstream.protocol.errors import ParticipantNotFound

if TYPE_CHECKING:
    from mewstream.client.calls import OnProgress
    from mewstream.client.inbox import Inbox
    from mewstream.client.link import Link


class Requests:
    """What the parts of a :class:`Space` have in common: a link, and the calls that wait for answers over it."""

    _link: Link
    _inbox: Inbox
    _request_timeout: float

    @property
    def participant(self) -> str:
        """Our own id."""
        return self._inbox.view.me

    async def _call(
        self,
        kind: str,
        payload: Any,
        *,
        answer: str | None = None,
        to: str | Sequence[str] | None = None,
        correlation_id: str | Sequence[str] | None = None,
        context: str | None = None,
        timeout: float | None = None,
        id: str | None = None,
    ) -> Message:
        """Send an envelope and wait until the gateway answers it: with a message of the kind ``answer``, or by relaying
        it. Returns that message."""
        id = id or self._inbox.calls.next_id()
        body = messages.encode(
            kind,
            payload,
            id=id,
            to=messages.names(to),
            correlation_id=messages.names(correlation_id),
            context=context,
        )
        answerer = self.participant if answer is None else kinds.GATEWAY
        return await self._send_and_wait(
            id, kind, body, () if answer is None else (answer,), (answerer,), self._seconds(timeout)
        )

    async def _ask(
        self,
        kind: str,
        payload: Any,
        *,
        to: str | Sequence[str],
        answers: Collection[str],
        correlation_id: str | Sequence[str] | None = None,
        timeout: float | None = None,
        id: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Message:
        """Send an envelope to participants and wait until one of them answers, with a message of one of the kinds
        ``answers``. Returns that message. Raises :class:`ParticipantNotFound` at once if none of them is present,
        and as soon as the last of them has left."""
        id = id or self._inbox.calls.next_id()
        addressed = messages.names(to) or []
        body = messages.encode(kind, payload, id=id, to=addressed, correlation_id=messages.names(correlation_id))
        return await self._send_and_wait(
            id, kind, body, answers, addressed, self._seconds(timeout), on_progress, are_participants=True
        )

    async def _send_and_wait(
        self,
        id: str,
        kind: str,
        body: bytes,
        answers: Collection[str],
        answerers: Collection[str],
        seconds: float,
        on_progress: OnProgress | None = None,
        *,
        are_participants: bool = False,
    ) -> Message:
        try:
            async with asyncio.timeout(seconds):
                if are_participants:
                    answerers = await self._present(answerers)
                connection = await self._link.ready()
                future = self._inbox.calls.begin(id, body, answers, answerers, on_progress)
                connection.send(body, is_text=True)
                return await future
        except TimeoutError:
            raise RequestTimeout(f"{kind} was not answered within {seconds:g} seconds") from None
        finally:
            self._inbox.calls.forget(id)

    def _seconds(self, timeout: float | None) -> float:
        return self._request_timeout if timeout is None else timeout

    async def _present(self, participants: Collection[str]) -> Collection[str]:
        """Return those participants who are here. Raises :class:`ParticipantNotFound` if nobody is.

        Whoever joined a moment ago may not have been announced to us yet. The gateway announces in order, so after it
        has answered us, everyone is known who was there when we asked."""
        await self._link.ready()
        present = self._known(participants)
        if len(present) < len(participants) and self._link.epoch is not None:
            await self._call(kinds.STREAM_SYNC, {}, answer=kinds.STREAM_SYNCED)
            present = self._known(participants)
        if not present:
            who = " and ".join(participants) or "nobody"
            raise ParticipantNotFound(f"{who} {'is' if len(participants) < 2 else 'are'} not in the space")
        return present

    def _known(self, participants: Collection[str]) -> Collection[str]:
        """Return those participants who are here as far as we know."""
        view = self._inbox.view
        if view.lacks_participants:
            return participants  # the list of them is not complete yet
        return [each for each in participants if each == view.me or each in view.participants]
