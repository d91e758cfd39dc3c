"""A stream: what is known of it, and what its owner and its writers can do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from mewstream.client import messages, untrusted
from mewstream.client.confirmations import Tally
from mewstream.client.errors import FramesUnconfirmed, RequestTimeout
from mewstream.client.format import Format, format_of
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
from mewstream.protocol.formats import FormatChecker

if TYPE_CHECKING:
    from types import TracebackType

    from mewstream.client.queue import OnSlow
    from mewstream.client.space import Space

#: What the gateway says of a stream; everything else in its description came with the request.
_OF_THE_GATEWAY = frozenset(
    {
        *("stream_id", "namespace", "owner", "owner_connected", "authorized_writers", "authorized_readers"),
        *("created", "status", "encoding", "last_seq", "alias", "formats", "conditions", "capabilities"),
    }
)
READY, LIVE = "ready", "live"


class Stream:
    """A live view: its attributes follow what the gateway tells. Get one from :attr:`Space.streams`,
    :meth:`Space.open_stream` or :meth:`Space.announce`."""

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
        """Ids of the messages that opened it, by which a close may name it."""
        self._wire_id = frames.frame(self._id, b"")

    # -- what is known ----------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._id

    @property
    def owner(self) -> str:
        return untrusted.text(self._described.get("owner")) or ""

    @property
    def authorized_writers(self) -> list[str]:
        return untrusted.texts(self._described.get("authorized_writers"))

    @property
    def authorized_readers(self) -> list[str] | None:
        """None: everyone reads."""
        readers = self._described.get("authorized_readers")
        return None if readers is None else untrusted.texts(readers)

    @property
    def owner_connected(self) -> bool:
        return bool(self._described.get("owner_connected", True))

    @property
    def status(self) -> str:
        """``ready``, ``live``, or how it ended: ``closed``, ``completed``, ``failed``, ``lost``."""
        return self._status

    @property
    def is_open(self) -> bool:
        return self._status in (READY, LIVE)

    @property
    def is_mine(self) -> bool:
        return self.owner == self._space.participant

    @property
    def alias(self) -> str | None:
        return untrusted.text(self._described.get("alias"))

    @property
    def namespace(self) -> str | None:
        return untrusted.text(self._described.get("namespace"))

    @property
    def created(self) -> str | None:
        return untrusted.text(self._described.get("created"))

    @property
    def formats(self) -> list[Format]:
        """What its frames may be; empty where it does not say."""
        return [format_of(each) for each in untrusted.objects(self._described.get("formats"))]

    @property
    def conditions(self) -> dict[str, Any]:
        """Of the writers whose right is conditional."""
        return dict(untrusted.as_object(self._described.get("conditions")))

    @property
    def is_announced(self) -> bool:
        """Opened by a handshake, so that its data are numbered ``stream/data`` envelopes."""
        return "capabilities" in self._described

    @property
    def description(self) -> str | None:
        return untrusted.text(self._described.get("description"))

    @property
    def content_type(self) -> str | None:
        return untrusted.text(self._described.get("content_type"))

    @property
    def metadata(self) -> dict[str, Any]:
        """Everything that its request said; the entries of the request's own ``metadata`` are among them."""
        fields = {key: value for key, value in self._described.items() if key not in _OF_THE_GATEWAY}
        inner = fields.get("metadata")
        return {**fields, **inner} if isinstance(inner, dict) else fields

    def __repr__(self) -> str:
        return f"Stream({self.id!r}, owner={self.owner!r}, status={self._status!r})"

    # -- writing ----------------------------------------------------------------------------------

    async def send(self, data: Any, *, format: str | None = None, numbered: bool | None = None) -> None:
        """Send a frame: bytes as they are, text as text, anything else as JSON. Waits while the
        gateway is behind, and while a lost connection is being made again.

        ``numbered`` sends a ``stream/data`` envelope with the next sequence number, so that readers
        notice what is missing; that is the default for an announced stream, but for bytes. ``format``
        says which of several formats it is.

        Raises what the gateway said of an earlier frame, if it refused that."""
        await self._check_writable()
        is_binary = isinstance(data, bytes | bytearray | memoryview)
        if numbered is None:
            numbered = self.is_announced and not is_binary
        if numbered:
            if is_binary:
                raise TypeError("bytes cannot stand in stream/data, which is JSON: send them with numbered=False")
            await self._send_numbered(data, format)
            return
        if format is not None:
            raise TypeError("a raw frame cannot say its format: send it with numbered=True")
        body = _encoded(data)
        if self._validates and self.formats:
            name = self._format(None)
            self._raise_problems(name, self._checkers[name].problems_in(body, text=not is_binary))
        await self._space._link.send_frame(self._wire_id + body, self._tally, is_text=not is_binary)

    async def _send_numbered(self, content: Any, format: str | None) -> None:
        if self._validates and self.formats:
            name = self._format(format)
            self._raise_problems(name, self._checkers[name].problems(msgspec.to_builtins(content)))
        self._sequence += 1
        payload: dict[str, Any] = {
            "stream": {"stream_id": self.id},
            "sequence": self._sequence,
            "content": content,
        }
        if format is not None:
            payload["format_id"] = format
        body = messages.encode(kinds.STREAM_DATA, payload, id=self._space._calls.next_id())
        await self._space._link.send_frame(body, self._tally, is_text=True)

    def _format(self, format: str | None) -> str:
        """Which format is meant; there is a checker for it then."""
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
            self._checkers[format] = FormatChecker(known[format].as_dict())
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
            # The news that we may is perhaps on its way: after a round trip we know all that was told before.
            await self._space._link.round_trip()
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
        """A gateway that does not tell who may write judges that itself."""
        return self._status == LIVE and (self._writers is None or self._space.participant in self._writers)

    async def flush(self) -> None:
        """Wait until the gateway has recorded every frame sent so far. Raises what it refused, and
        :class:`FramesUnconfirmed` where a connection was lost before it had confirmed some of them."""
        try:
            await self._space._link.round_trip(self._tally)
        except FramesUnconfirmed:
            self._raise_refusal()  # what was refused is why the connection was lost
            raise
        self._raise_refusal()

    def _raise_refusal(self) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def subscribe(self, *, on_slow: OnSlow = "drop-oldest", max_pending: int | None = None) -> Subscription:
        """Its frames from now on; see :meth:`Space.subscribe`."""
        return self._space.subscribe(self, on_slow=on_slow, max_pending=max_pending)

    # -- rights -----------------------------------------------------------------------------------

    async def grant(
        self,
        participant: str,
        *,
        reason: str | None = None,
        expires_at: datetime | str | None = None,
        max_frames: int | None = None,
    ) -> None:
        """Let another write too; until a time, or for so many frames, if you say so."""
        conditions: dict[str, Any] = {}
        if expires_at is not None:
            conditions["expires_at"] = _rfc3339(expires_at)
        if max_frames is not None:
            conditions["max_frames"] = max_frames
        await self._change(kinds.GRANT_WRITE, participant, reason, conditions=conditions or None)

    async def revoke(self, participant: str, *, reason: str | None = None) -> None:
        """Take the right to write away: no frame of that writer comes after this."""
        await self._change(kinds.REVOKE_WRITE, participant, reason)

    async def grant_read(self, participant: str, *, reason: str | None = None) -> None:
        await self._change(kinds.GRANT_READ, participant, reason)

    async def revoke_read(self, participant: str, *, reason: str | None = None) -> None:
        await self._change(kinds.REVOKE_READ, participant, reason)

    async def transfer(self, new_owner: str, *, reason: str | None = None, retain_write: bool = False) -> None:
        """Hand the stream over. You lose the right to write, unless you retain it."""
        payload: dict[str, Any] = {"stream_id": self.id, "new_owner": new_owner}
        if reason is not None:
            payload["reason"] = reason
        if retain_write:
            payload["retain_write"] = True
        await self._space._call(kinds.TRANSFER_OWNERSHIP, payload, answer=kinds.OWNERSHIP_TRANSFERRED)

    async def _change(self, kind: str, participant: str, reason: str | None, **more: Any) -> None:
        payload = {"stream_id": self.id, "participant_id": participant}
        payload.update({key: value for key, value in {"reason": reason, **more}.items() if value is not None})
        await self._space._call(kind, payload, answer=_ANSWERS[kind])

    # -- the life of a stream -----------------------------------------------------------------------

    async def start(self) -> None:
        """An announced stream goes live."""
        await self._space._call(kinds.STREAM_START, self._named())

    async def complete(self) -> None:
        """An orderly end."""
        await self._space._call(kinds.STREAM_COMPLETE, self._named())

    async def fail(self, code: str, message: str) -> None:
        """An end by failure."""
        await self._space._call(kinds.STREAM_ERROR, {**self._named(), "code": code, "message": message})

    async def close(self, *, reason: str | None = None) -> None:
        await self._space._call(kinds.STREAM_CLOSE, self._closing(reason))

    def _closing(self, reason: str | None = None) -> dict[str, Any]:
        return {"stream_id": self.id} if reason is None else {"stream_id": self.id, "reason": reason}

    def _named(self) -> dict[str, Any]:
        return {"stream": {"stream_id": self.id}}

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it, if it is still ours; an announced one that went live is completed. Raises what the
        gateway refused of the frames that were sent."""
        if self.is_open and self.is_mine and not self._space.is_closed:
            if error is not None and not isinstance(error, Exception):
                self._space._inbox.post(kinds.STREAM_CLOSE, self._closing())  # cancelled: there is no time to wait
                return
            try:
                if self.is_announced and self._status == LIVE and error is None:
                    await self.complete()
                else:
                    await self.close()
            except (StreamNotFound, Unauthorized):
                pass  # somebody was faster
            except MewError:
                if error is None:
                    raise
        if error is None:
            self._raise_refusal()

    # -- following what the gateway tells -----------------------------------------------------------

    def _update(self, **fields: Any) -> None:
        self._described = {**self._described, **fields}
        writers = self._described.get("authorized_writers")
        self._writers = None if writers is None else frozenset(untrusted.texts(writers))

    def _describe_again(self, described: dict[str, Any]) -> None:
        self._described = described
        self._update()
        self._status = READY if described.get("status") == READY else LIVE

    def _started(self) -> None:
        self._status = LIVE
        self._update(status=LIVE)

    def _ended(self, how: str) -> None:
        self._status = how

    def _refused(self, refusal: PeerError) -> None:
        self._refusal = refusal


_ANSWERS = {
    kinds.GRANT_WRITE: kinds.WRITE_GRANTED,
    kinds.REVOKE_WRITE: kinds.WRITE_REVOKED,
    kinds.GRANT_READ: kinds.READ_GRANTED,
    kinds.REVOKE_READ: kinds.READ_REVOKED,
}


class Opening:
    """A stream being opened: ``await`` it, or use it with ``async with``."""

    def __init__(self, space: Space, kind: str, payload: Mapping[str, Any], *, validate: bool) -> None:
        self._space = space
        self._kind = kind
        self._payload = payload
        self._validate = validate
        self._stream: Stream | None = None

    def __await__(self) -> Generator[Any, None, Stream]:
        return self._open().__await__()

    async def _open(self) -> Stream:
        id = self._space._calls.next_id()
        try:
            answer_kind = kinds.STREAM_OPEN if self._kind == kinds.STREAM_REQUEST else kinds.STREAM_READY
            answer = await self._space._call(self._kind, self._payload, answer=answer_kind, id=id)
        except (asyncio.CancelledError, RequestTimeout):
            # Nobody has the stream that may still be opened.
            self._space._inbox.abandon(id)
            raise
        stream = self._space._opened(answer)
        stream._validates = self._validate
        return stream

    async def __aenter__(self) -> Stream:
        self._stream = await self._open()
        return self._stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._stream is not None
        await self._stream.__aexit__(kind, error, traceback)


def _rfc3339(time: datetime | str) -> str:
    if isinstance(time, str):
        return time
    if time.tzinfo is None:
        raise ValueError("expires_at has no time zone: use datetime.now(UTC) + timedelta(...)")
    return time.isoformat()


def _encoded(data: Any) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    return data.encode() if isinstance(data, str) else msgspec.json.encode(data)
