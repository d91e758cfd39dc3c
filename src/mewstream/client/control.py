"""Participant control (spec 3.9): telling others to pause, report, forget or end, and what we do when we are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from mewstream.client.controlled import Controlled
from mewstream.client.events import Instructed
from mewstream.client.messages import without_none
from mewstream.client.requests import Requests
from mewstream.client.status import Compacted, Status, compacted_of, status_of
from mewstream.protocol import kinds

F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Callable[[Instructed], Any])
S = TypeVar("S", bound=Callable[[Instructed], Status | Mapping[str, Any] | Awaitable[Any] | None])
C = TypeVar("C", bound=Callable[[Instructed], Compacted | Mapping[str, Any] | Awaitable[Any] | None])


class Control(Requests):
    """The part of a :class:`Space` that is about controlling participants."""

    _controlled: Controlled

    @property
    def is_paused(self) -> bool:
        """Whether somebody has paused us since we joined: until the pause ends, the gateway takes only answers,
        acknowledgements and cancellations from us."""
        return self._controlled.is_paused

    # -- telling others -----------------------------------------------------------------------------

    async def pause(self, participant: str, *, seconds: float | None = None, reason: str | None = None) -> None:
        """Pause a participant, for some ``seconds`` or until somebody resumes it. Raises
        :class:`ParticipantNotFound`, and what every request raises."""
        await self._call(kinds.PAUSE, without_none(timeout_seconds=seconds, reason=reason), to=participant)

    async def resume(self, participant: str, *, reason: str | None = None) -> None:
        """End the pause of a participant. Raises :class:`ParticipantNotFound`, and what every request raises."""
        pause = self._controlled.pauses.get(participant)
        await self._call(kinds.RESUME, without_none(reason=reason), to=participant, correlation_id=pause)

    async def request_status(
        self, participant: str, *, fields: Sequence[str] | None = None, timeout: float | None = None
    ) -> Status:
        """Ask a participant for its :class:`Status`; ``fields`` names the figures that we want. Raises
        :class:`ParticipantNotFound` if it is not present or leaves, :class:`RequestTimeout` if it does not answer
        within ``timeout`` seconds, and what every request raises."""
        payload = without_none(fields=list(fields) if fields is not None else None)
        answer = await self._ask(
            kinds.REQUEST_STATUS, payload, to=participant, answers=(kinds.STATUS,), timeout=timeout
        )
        return status_of(answer.payload)

    async def forget(
        self,
        participant: str,
        *,
        direction: Literal["oldest", "newest"] = "oldest",
        entries: int | None = None,
        timeout: float | None = None,
    ) -> Status:
        """Tell a participant to forget the oldest or newest part of its context. Returns its :class:`Status` after
        that; it is empty if the participant only acknowledges. Raises as :meth:`request_status` does."""
        payload = without_none(direction=direction, entries=entries)
        answers = (kinds.STATUS, kinds.CHAT_ACKNOWLEDGE)
        answer = await self._ask(kinds.FORGET, payload, to=participant, answers=answers, timeout=timeout)
        return status_of(answer.payload if answer.kind == kinds.STATUS else {})

    async def clear(self, participant: str, *, reason: str | None = None, timeout: float | None = None) -> Status:
        """Tell a participant to forget its whole context. Returns its :class:`Status` after that. Raises as
        :meth:`request_status` does."""
        payload = without_none(reason=reason)
        answer = await self._ask(kinds.CLEAR, payload, to=participant, answers=(kinds.STATUS,), timeout=timeout)
        return status_of(answer.payload)

    async def compact(
        self,
        participant: str,
        *,
        target_tokens: int | None = None,
        reason: str | None = None,
        timeout: float | None = None,
    ) -> Compacted:
        """Tell a participant to compact its memory, if possible to ``target_tokens``. Returns what it has freed, as
        :class:`Compacted`. Raises as :meth:`request_status` does."""
        payload = without_none(target_tokens=target_tokens, reason=reason)
        answer = await self._ask(kinds.COMPACT, payload, to=participant, answers=(kinds.COMPACT_DONE,), timeout=timeout)
        return compacted_of(answer.payload)

    async def restart(self, participant: str, *, reason: str | None = None) -> None:
        """Tell a participant to begin again. It need not answer. Raises what every request raises."""
        await self._call(kinds.RESTART, without_none(reason=reason), to=participant)

    async def shutdown(self, participant: str, *, reason: str | None = None) -> None:
        """Tell a participant to end; from now on the gateway takes nothing from it until it joins again. Raises
        :class:`ParticipantNotFound`, and what every request raises."""
        await self._call(kinds.SHUTDOWN, without_none(reason=reason), to=participant)

    async def report_status(self, status: Status | Mapping[str, Any], *, to: str | Sequence[str] | None = None) -> None:
        """Tell everyone how we are, without being asked. Raises what every request raises."""
        payload = status.as_dict() if isinstance(status, Status) else {"messages_in_context": 0, **status}
        await self._call(kinds.STATUS, payload, to=to)

    # -- being told ---------------------------------------------------------------------------------

    def on_pause(self, function: H) -> H:
        """Call a function, as a decorator, when somebody pauses us. It gets the :class:`Instructed` event."""
        return self._on(kinds.PAUSE, function)

    def on_resume(self, function: H) -> H:
        """Call a function, as a decorator, when our pause ends: somebody resumed us, or its time is over."""
        return self._on(kinds.RESUME, function)

    def on_status(self, function: S) -> S:
        """Answer requests for our status, as a decorator: the function returns a :class:`Status` or a mapping. It is
        also asked after we were told to forget or to clear."""
        return self._on(kinds.REQUEST_STATUS, function)

    def on_forget(self, function: H) -> H:
        """Call a function, as a decorator, when we are told to forget: its event has ``direction`` and ``entries``. Our
        status is reported when it returns."""
        return self._on(kinds.FORGET, function)

    def on_clear(self, function: H) -> H:
        """Call a function, as a decorator, when we are told to forget everything. Our status is reported when it
        returns."""
        return self._on(kinds.CLEAR, function)

    def on_compact(self, function: C) -> C:
        """Call a function, as a decorator, when we are told to compact our memory: its event has ``target_tokens``. It
        returns a :class:`Compacted` or a mapping, which the sender is told. Without it, we say that we have nothing
        to compact."""
        return self._on(kinds.COMPACT, function)

    def on_restart(self, function: H) -> H:
        """Call a function, as a decorator, when we are told to begin again. Before that, the calls that we are
        answering are ended with an error, and the streams that we own are closed; our status is reported when it
        returns. Without it, the instruction has no effect."""
        return self._on(kinds.RESTART, function)

    def on_shutdown(self, function: H) -> H:
        """Call a function, as a decorator, when we are told to end. When it returns, or after ten seconds, the
        instruction is acknowledged and we leave the space; so we do without it."""
        return self._on(kinds.SHUTDOWN, function)

    def _on(self, kind: str, function: F) -> F:
        if not callable(function):
            raise TypeError(f"the function for {kind} is of the type {type(function).__name__}, not a function")
        self._controlled.hooks[kind] = function
        return function
