"""A stream: its state, and what its owner and its writers can do with it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from mewstream.client import messages, untrusted
from mewstream.client.confirmations import Tally
from mewstream.client.errors import FramesUnconfirmed
from mewstream.client.format import Format, format_of
from mewstream.client.schema_checks import checker_of
from mewstream.client.subscription import Subscription
from mewstream.protocol import frames, kinds
from mewstream.protocol.errors import (
    FormatRequired,
    FormatViolation,
    InvalidOperation,
    MewError,
    PeerError,
    StreamNotFound,
    Unauthorized,
    UnauthorizedStreamWrite,
)

if TYPE_CHECKING:
    from types import TracebackType

    from mewstream.client.history import Since
    from mewstream.client.queue import OnSlow
    from mewstream.client.space import Space
    from mewstream.protocol.formats import FormatChecker

#: Fields of a description that the gateway sets; all others came with the request.
_GATEWAY_FIELDS = frozenset(
    {
        *("stream_id", "namespace", "owner", "owner_connected", "authorized_writers", "authorized_readers"),
        *("created", "status", "encoding", "last_seq", "alias", "formats", "conditions", "capabilities"),
        *("reused", "alias_taken_by", "pending_writers", "delegations", "write_requests"),
    }
)
READY, LIVE = "ready", "live"


class _Outgoing(NamedTuple):
    """A frame as it is sent. Its sequence number counts only once it is sent."""

    message: bytes
    is_text: bool
    id: str | None
    sequence: int | None = None


class Stream(AbstractAsyncContextManager["Stream"]):
    """A stream of a space, as :attr:`Space.streams`, :meth:`Space.open_stream` and :meth:`Space.announce` give it.

    Its attributes are a live view. Its methods wait for the gateway, and raise what every request to it raises (see
    :class:`Space`): :class:`StreamNotFound` if the stream has ended, :class:`Unauthorized` if we have no right.
    """

    def __init__(self, space: Space, described: dict[str, Any]) -> None:
        self._space = space
        self._id = str(described["stream_id"])
        self._described: dict[str, Any] = {}
        self._describe_again(described)
        self._sequence = 0
        self._tally = Tally()
        self._validates = False
        self._checkers: dict[str, FormatChecker] = {}
        self._refusal: PeerError | None = None
        self._opened_by: set[str] = set()
        """The ids of the messages that opened it, by which a close may name it."""
        self._frame_prefix = frames.frame(self._id, b"")

    # -- state ------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id that the gateway has given it, such as ``stream-1``."""
        return self._id

    @property
    def owner(self) -> str:
        """The participant who may grant, revoke, transfer and close."""
        return untrusted.text(self._described.get("owner")) or ""

    @property
    def authorized_writers(self) -> list[str]:
        """The participants who may write, the owner among them."""
        return untrusted.texts(self._described.get("authorized_writers"))

    @property
    def authorized_readers(self) -> list[str] | None:
        """The participants who may read; None if everyone may."""
        readers = self._described.get("authorized_readers")
        return None if readers is None else untrusted.texts(readers)

    @property
    def owner_connected(self) -> bool:
        """Whether the owner is in the space now."""
        return bool(self._described.get("owner_connected", True))

    @property
    def status(self) -> str:
        """``ready``, ``live``, or how it ended: ``closed``, ``completed``, ``failed``, ``lost``."""
        return self._status

    @property
    def is_open(self) -> bool:
        """Whether it is ``ready`` or ``live``."""
        return self._status in (READY, LIVE)

    @property
    def is_mine(self) -> bool:
        """Whether we own it."""
        return self.owner == self._space.participant

    @property
    def alias(self) -> str | None:
        """The name that was asked for when it was opened, if that was free; it finds the stream as its id does."""
        return untrusted.text(self._described.get("alias"))

    @property
    def reused(self) -> bool:
        """Whether it was open already when we asked for its name with ``if_exists="reuse"``."""
        return self._described.get("reused") is True

    @property
    def alias_taken_by(self) -> str | None:
        """The id of the stream that has the name that was asked for, if we were told."""
        return untrusted.text(self._described.get("alias_taken_by"))

    @property
    def namespace(self) -> str | None:
        """``<space>/<id>``, the ``context`` of envelopes about it."""
        return untrusted.text(self._described.get("namespace"))

    @property
    def created(self) -> str | None:
        """When it was opened, in the form of RFC 3339."""
        return untrusted.text(self._described.get("created"))

    @property
    def formats(self) -> list[Format]:
        """The formats that its frames may have; empty if it declares none."""
        return [format_of(each) for each in untrusted.objects(self._described.get("formats"))]

    @property
    def pending_writers(self) -> list[str]:
        """The participants who may write as soon as they join."""
        return untrusted.texts(self._described.get("pending_writers"))

    @property
    def conditions(self) -> dict[str, Any]:
        """The conditions of writers whose right is conditional, by participant."""
        return dict(untrusted.as_object(self._described.get("conditions")))

    @property
    def delegations(self) -> list[dict[str, Any]]:
        """The writers that may grant the right in turn, and those who hold it from them: ``participant_id``, ``by`` and
        ``depth``, which is 0 at the end of a chain."""
        return untrusted.objects(self._described.get("delegations"))

    @property
    def write_requests(self) -> dict[str, str | None]:
        """The participants that ask for the right to write and have no answer yet, in the order in which they asked,
        with their reasons."""
        requests = untrusted.objects(self._described.get("write_requests"))
        return {str(each.get("participant_id")): untrusted.text(each.get("reason")) for each in requests}

    @property
    def is_announced(self) -> bool:
        """Whether it was opened by a handshake, so that its data are numbered ``stream/data`` envelopes."""
        return "capabilities" in self._described

    @property
    def description(self) -> str | None:
        """The description in its request."""
        return untrusted.text(self._described.get("description"))

    @property
    def content_type(self) -> str | None:
        """The content type in its request."""
        return untrusted.text(self._described.get("content_type"))

    @property
    def metadata(self) -> dict[str, Any]:
        """All fields of its request, and the entries of the request's own ``metadata`` among them."""
        fields = {key: value for key, value in self._described.items() if key not in _GATEWAY_FIELDS}
        inner = fields.get("metadata")
        return {**fields, **inner} if isinstance(inner, dict) else fields

    def __repr__(self) -> str:
        return f"Stream({self.id!r}, owner={self.owner!r}, status={self._status!r})"

    # -- writing ----------------------------------------------------------------------------------

    async def send(
        self, data: Any, *, format: str | None = None, numbered: bool | None = None, confirm: bool = False
    ) -> None:
        """Send a frame: bytes as they are, text as text, anything else as JSON. Waits while the gateway is behind, and
        while a lost connection is being made again; :meth:`flush` waits until it is recorded.

        ``numbered`` sends a ``stream/data`` envelope with the next sequence number, so that readers notice what is
        missing; that is the default for an announced stream, but not for bytes. ``format`` says which of several
        formats the frame has. ``confirm`` waits until this frame is recorded, and raises the very error with which it
        was refused, and :class:`FramesUnconfirmed` if the connection was lost before the gateway could say.

        Raises :class:`UnauthorizedStreamWrite`, :class:`StreamNotFound` or :class:`InvalidOperation` if we may not
        write now, :class:`LimitExceeded` for a frame that is larger than the gateway takes, :class:`FormatViolation`
        or :class:`FormatRequired` if the stream was opened with ``validate``, :class:`ConnectionClosed`, TypeError for
        options that do not go together, and any :class:`PeerError` with which the gateway has refused an earlier frame.
        """
        await self._check_writable()
        outgoing = self._outgoing(data, format, numbered, id=self._space._calls.next_id() if confirm else None)
        link = self._space._link
        if outgoing.sequence is not None:
            link.check_size(outgoing.message)
            self._sequence = outgoing.sequence
        if confirm:
            await self._send_confirmed(outgoing)
        else:
            await link.send_frame(outgoing.message, self._tally, is_text=outgoing.is_text)

    def try_send(self, data: Any, *, format: str | None = None, numbered: bool | None = None) -> bool:
        """Send a frame if that is possible without waiting, and return whether it was: False while the gateway is
        behind or there is no connection. For data that is worth nothing later, such as a position in a game. The
        options are those of :meth:`send`, which raises the same."""
        self._require_writable()
        outgoing = self._outgoing(data, format, numbered)
        is_sent = self._space._link.try_send_frame(outgoing.message, self._tally, is_text=outgoing.is_text)
        if is_sent and outgoing.sequence is not None:
            self._sequence = outgoing.sequence
        return is_sent

    def _outgoing(self, data: Any, format: str | None, numbered: bool | None, *, id: str | None = None) -> _Outgoing:
        """Encode and check a frame. ``id`` is for a refusal to refer to."""
        is_binary = isinstance(data, bytes | bytearray | memoryview)
        if numbered is None:
            numbered = self.is_announced and not is_binary
        if numbered:
            if is_binary:
                raise TypeError("bytes cannot stand in stream/data, which is JSON: send them with numbered=False")
            return self._numbered(data, format, id)
        if format is not None:
            raise TypeError("a raw frame cannot say its format: send it with numbered=True")
        body = _encoded(data)
        if self._validates and self.formats:
            name = self._format(None)
            self._raise_problems(name, self._checkers[name].problems_in(body, text=not is_binary))
        if id is not None and self._space._link.has_positions:
            return _Outgoing(frames.frame_with_id(self.id, id, body), not is_binary, id)
        return _Outgoing(self._frame_prefix + body, not is_binary, id)

    def _numbered(self, content: Any, format: str | None, id: str | None) -> _Outgoing:
        if self._validates and self.formats:
            name = self._format(format)
            self._raise_problems(name, self._checkers[name].problems(msgspec.to_builtins(content)))
        sequence = self._sequence + 1
        payload: dict[str, Any] = {
            "stream": {"stream_id": self.id},
            "sequence": sequence,
            "content": content,
        }
        if format is not None:
            payload["format_id"] = format
        id = id or self._space._calls.next_id()
        return _Outgoing(messages.encode(kinds.STREAM_DATA, payload, id=id), True, id, sequence)

    async def _send_confirmed(self, outgoing: _Outgoing) -> None:
        """Send a frame, and wait until the gateway has answered for it. Its refusal comes before the answer to the
        ping that follows it."""
        assert outgoing.id is not None
        link, confirmed = self._space._link, self._space._inbox.confirmed
        tally = Tally()  # of this frame alone
        refused = confirmed.expect(outgoing.id)
        try:
            await link.send_frame(outgoing.message, tally, is_text=outgoing.is_text)
            try:
                await link.round_trip(tally)
            except FramesUnconfirmed:
                refused.raise_if_refused()
                raise
            refused.raise_if_refused()
        finally:
            confirmed.forget(outgoing.id)
        if not link.has_positions:
            self._raise_refusal()  # of a gateway that does not know ids of frames

    def _format(self, format: str | None) -> str:
        """Return the id of the format to use, after making a checker for it. Raises if the stream does not have it."""
        known = {each.id: each for each in self.formats}
        if format is None:
            if len(known) > 1:
                raise FormatRequired(
                    f"{self.id} has the formats {', '.join(known)}: say which by format=", stream_id=self.id
                )
            format = next(iter(known))
        if format not in known:
            raise FormatViolation(f"{format!r} is no format of {self.id}: it has {', '.join(known)}", stream_id=self.id)
        if format not in self._checkers:
            self._checkers[format] = checker_of(known[format].as_dict())
        return format

    def _raise_problems(self, format: str, problems: list[str]) -> None:
        if problems:
            text = f"the content is not {format}: {problems[0]}"
            raise FormatViolation(text, stream_id=self.id, format_id=format, problems=problems)

    async def _check_writable(self) -> None:
        if self._refusal is not None:
            self._raise_refusal()
        if self._is_writable:
            return
        if self.is_open:
            # A grant is perhaps on its way: after a round trip we have received everything sent before it.
            await self._space._link.round_trip()
        self._require_writable()

    def _require_writable(self) -> None:
        """Raise if we may not write, as far as we know."""
        self._raise_refusal()
        if not self.is_open:
            raise StreamNotFound(f"{self.id} has ended ({self._status})", stream_id=self.id)
        if self._status == READY:
            raise InvalidOperation(f"{self.id} is announced and not started: call start() first", stream_id=self.id)
        if not self._is_writable:
            raise UnauthorizedStreamWrite(
                f"{self._space.participant} may not write to {self.id}: ask {self.owner} for it", stream_id=self.id
            )

    @property
    def _is_writable(self) -> bool:
        """Whether we may write. If the gateway does not list the writers, it has to decide by itself."""
        return self._status == LIVE and (self._writers is None or self._space.participant in self._writers)

    async def flush(self) -> None:
        """Wait until the gateway has recorded every frame sent so far. Raises any :class:`PeerError` with which it has
        refused one, :class:`FramesUnconfirmed` if a connection was lost before it confirmed some of them,
        :class:`RequestTimeout` and :class:`ConnectionClosed`."""
        try:
            await self._space._link.round_trip(self._tally)
        except FramesUnconfirmed:
            self._raise_refusal()  # a refused frame may be why the connection was lost
            raise
        self._raise_refusal()

    def _raise_refusal(self) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def subscribe(
        self,
        *,
        since: Since | None = None,
        last: int | None = None,
        on_slow: OnSlow | None = None,
        max_pending: int | None = None,
    ) -> Subscription:
        """Receive its frames from now on, or from earlier on. The options are those of :meth:`Space.subscribe`, which
        returns and raises the same."""
        return self._space.subscribe(self, since=since, last=last, on_slow=on_slow, max_pending=max_pending)

    # -- rights -----------------------------------------------------------------------------------

    async def grant(
        self,
        participant: str,
        *,
        reason: str | None = None,
        expires_at: datetime | str | None = None,
        max_frames: int | None = None,
        replaces: str | None = None,
        delegate: int | None = None,
        max_writers: int | None = None,
        on_disconnect: Literal["revoke", "keep"] | float | None = None,
        when_absent: bool = False,
    ) -> None:
        """Let another participant write: until it is revoked, until the time ``expires_at``, or for ``max_frames``
        frames. ``replaces`` is a writer that loses the right at the same moment, so that both are never writers.

        ``delegate`` lets the participant grant the right in turn, never more than it has: 1 to writers that cannot,
        2 to writers that can give it to such, and so on. ``max_writers`` is how many there may be in all. What it has
        granted ends with its own right.

        ``on_disconnect`` says what becomes of the right when the connection of that participant is lost: it is revoked
        at once, is kept, or ends after that many seconds. With ``when_absent``, a participant that is not here is
        granted the right when it joins.

        Raises :class:`ParticipantNotFound`, :class:`InvalidOperation` if the one to be replaced is no writer or owns
        the stream, or if a delegate grants more than it has, :class:`LimitExceeded` for more than ``max_writers``, and
        ValueError for a time without a time zone."""
        if max_writers is not None and delegate is None:
            raise ValueError("max_writers bounds what a delegate grants: say its depth too, by delegate=1")
        conditions = messages.without_none(expires_at=_rfc3339(expires_at), max_frames=max_frames)
        delegation = messages.without_none(depth=delegate, max_writers=max_writers)
        await self._change(
            *(kinds.GRANT_WRITE, participant, reason),
            conditions=conditions or None,
            replaces=replaces,
            delegate=delegation or None,
            on_disconnect=on_disconnect,
            when_absent=when_absent or None,
        )

    async def hand_over(self, to: str, *, reason: str | None = None) -> None:
        """Let another participant write in the place of the one who writes now, beside the owner; if there is none, it
        is simply granted the right. Nobody writes in between, and nobody beside it.

        Raises as :meth:`grant` does, and ValueError if several could be replaced: say which by ``grant(replaces=)``.
        If somebody else was faster, it raises :class:`InvalidOperation` and changes nothing."""
        writers = [each for each in self.authorized_writers if each not in (self.owner, to)]
        if len(writers) > 1:
            raise ValueError(
                f"{self.id} has the writers {', '.join(writers)}: say by grant(replaces=) whose place it is"
            )
        await self.grant(to, reason=reason, replaces=next(iter(writers), None))

    async def ask(self, *, reason: str | None = None) -> None:
        """Ask for the right to write. The owner and everyone else is told; the answer is a :class:`WriteGranted` or
        :class:`WriteDenied` event. Asking again replaces the reason. Raises :class:`InvalidOperation` if we may write
        already, :class:`LimitExceeded` if too many ask."""
        await self._space._call(kinds.REQUEST_WRITE, messages.without_none(stream_id=self.id, reason=reason))

    async def deny(self, participant: str, *, reason: str | None = None) -> None:
        """Answer a participant that asks for the right to write with no. Raises :class:`InvalidOperation` if it does
        not ask."""
        await self._change(kinds.DENY_WRITE, participant, reason)

    async def revoke(self, participant: str, *, reason: str | None = None) -> None:
        """Revoke the right to write. When this returns, no further frame of that writer is accepted."""
        await self._change(kinds.REVOKE_WRITE, participant, reason)

    async def grant_read(self, participant: str, *, reason: str | None = None) -> None:
        """Let another participant read a stream that not everyone may read. Raises :class:`ParticipantNotFound`."""
        await self._change(kinds.GRANT_READ, participant, reason)

    async def revoke_read(self, participant: str, *, reason: str | None = None) -> None:
        """Revoke the right to read."""
        await self._change(kinds.REVOKE_READ, participant, reason)

    async def transfer(self, new_owner: str, *, reason: str | None = None, retain_write: bool = False) -> None:
        """Make another participant the owner. The previous owner loses the right to write, unless ``retain_write``.
        Raises :class:`ParticipantNotFound`."""
        payload = messages.without_none(
            stream_id=self.id, new_owner=new_owner, reason=reason, retain_write=retain_write or None
        )
        await self._space._call(kinds.TRANSFER_OWNERSHIP, payload, answer=kinds.OWNERSHIP_TRANSFERRED)

    async def _change(self, kind: str, participant: str, reason: str | None, **more: Any) -> None:
        payload = messages.without_none(stream_id=self.id, participant_id=participant, reason=reason, **more)
        await self._space._call(kind, payload, answer=_ANSWERS[kind])

    # -- lifecycle ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make an announced stream live. Raises :class:`InvalidOperation` if it is live already."""
        await self._space._call(kinds.STREAM_START, self._named())

    async def complete(self) -> None:
        """End an announced stream in order."""
        await self._space._call(kinds.STREAM_COMPLETE, self._named())

    async def fail(self, code: str, message: str) -> None:
        """End an announced stream by an error, which every participant is sent."""
        await self._space._call(kinds.STREAM_ERROR, {**self._named(), "code": code, "message": message})

    async def close(self, *, reason: str | None = None) -> None:
        """End the stream."""
        await self._space._call(kinds.STREAM_CLOSE, messages.without_none(stream_id=self.id, reason=reason))

    def _named(self) -> dict[str, Any]:
        return {"stream": {"stream_id": self.id}}

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the stream if we still own it; complete it if it was announced and is live. Raises what the gateway
        has refused of the frames that we sent."""
        if self.is_open and self.is_mine and not self._space.is_closed:
            if error is not None and not isinstance(error, Exception):
                self._space._inbox.post(
                    kinds.STREAM_CLOSE, {"stream_id": self.id}
                )  # we are cancelled and must not wait
                return
            try:
                if self.is_announced and self._status == LIVE and error is None:
                    await self.complete()
                else:
                    await self.close()
            except (StreamNotFound, Unauthorized):
                pass  # it was ended or transferred by another participant
            except MewError:
                if error is None:
                    raise
        if error is None:
            self._raise_refusal()

    # -- changes, by the view -----------------------------------------------------------------------

    def _update(self, **fields: Any) -> None:
        self._described = {**self._described, **fields}
        writers = self._described.get("authorized_writers")
        self._writers = None if writers is None else frozenset(untrusted.texts(writers))

    def _describe_again(self, described: dict[str, Any]) -> None:
        self._described = described
        self._update()
        self._status = READY if described.get("status") == READY else LIVE

    def _asked(self, participant: str, reason: str | None, ts: str) -> None:
        asked = {"participant_id": participant, "reason": reason, "ts": ts}
        requests = untrusted.objects(self._described.get("write_requests"))
        for place, each in enumerate(requests):
            if each.get("participant_id") == participant:
                requests[place] = {**each, "reason": reason}
                break
        else:
            requests = [*requests, asked]
        self._update(write_requests=requests)

    def _answered(self, participant: str) -> None:
        """A participant asks no more for the right to write."""
        requests = untrusted.objects(self._described.get("write_requests"))
        if any(each.get("participant_id") == participant for each in requests):
            self._update(write_requests=[each for each in requests if each.get("participant_id") != participant])

    def _started(self) -> None:
        self._status = LIVE
        self._update(status=LIVE)


_ANSWERS = {
    kinds.GRANT_WRITE: kinds.WRITE_GRANTED,
    kinds.REVOKE_WRITE: kinds.WRITE_REVOKED,
    kinds.DENY_WRITE: kinds.WRITE_DENIED,
    kinds.GRANT_READ: kinds.READ_GRANTED,
    kinds.REVOKE_READ: kinds.READ_REVOKED,
}


def _rfc3339(time: datetime | str | None) -> str | None:
    if time is None or isinstance(time, str):
        return time
    if time.tzinfo is None:
        raise ValueError("expires_at has no time zone: use datetime.now(UTC) + timedelta(...)")
    return time.isoformat()


def _encoded(data: Any) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    return data.encode() if isinstance(data, str) else msgspec.json.encode(data)
