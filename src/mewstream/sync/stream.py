"""Streams without ``async``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from mewstream.client import space as client
from mewstream.client.format import Format
from mewstream.client.history import Since
from mewstream.client.queue import OnSlow
from mewstream.client.stream import Stream as AsyncStream
from mewstream.sync.event_loop import EventLoop, documented_as
from mewstream.sync.feeds import Subscription, begun

if TYPE_CHECKING:
    from types import TracebackType


@documented_as(AsyncStream)
class Stream:
    """A stream, as :class:`mewstream.client.stream.Stream`."""

    def __init__(self, loop: EventLoop, stream: AsyncStream) -> None:
        self._loop = loop
        self._stream = stream

    @property
    def id(self) -> str:
        return self._stream.id

    @property
    def owner(self) -> str:
        return self._stream.owner

    @property
    def authorized_writers(self) -> list[str]:
        return self._stream.authorized_writers

    @property
    def authorized_readers(self) -> list[str] | None:
        return self._stream.authorized_readers

    @property
    def owner_connected(self) -> bool:
        return self._stream.owner_connected

    @property
    def created(self) -> str | None:
        return self._stream.created

    @property
    def is_announced(self) -> bool:
        return self._stream.is_announced

    @property
    def status(self) -> str:
        return self._stream.status

    @property
    def is_open(self) -> bool:
        return self._stream.is_open

    @property
    def is_mine(self) -> bool:
        return self._stream.is_mine

    @property
    def alias(self) -> str | None:
        return self._stream.alias

    @property
    def reused(self) -> bool:
        return self._stream.reused

    @property
    def alias_taken_by(self) -> str | None:
        return self._stream.alias_taken_by

    @property
    def namespace(self) -> str | None:
        return self._stream.namespace

    @property
    def description(self) -> str | None:
        return self._stream.description

    @property
    def content_type(self) -> str | None:
        return self._stream.content_type

    @property
    def formats(self) -> list[Format]:
        return self._stream.formats

    @property
    def pending_writers(self) -> list[str]:
        return self._stream.pending_writers

    @property
    def conditions(self) -> dict[str, Any]:
        return self._stream.conditions

    @property
    def delegations(self) -> list[dict[str, Any]]:
        return self._stream.delegations

    @property
    def write_requests(self) -> dict[str, str | None]:
        return self._stream.write_requests

    @property
    def metadata(self) -> dict[str, Any]:
        return self._stream.metadata

    def __repr__(self) -> str:
        return repr(self._stream)

    def send(
        self, data: Any, *, format: str | None = None, numbered: bool | None = None, confirm: bool = False
    ) -> None:
        self._loop.run(self._stream.send(data, format=format, numbered=numbered, confirm=confirm))

    def try_send(self, data: Any, *, format: str | None = None, numbered: bool | None = None) -> bool:
        return self._loop.call(lambda: self._stream.try_send(data, format=format, numbered=numbered))

    def flush(self) -> None:
        self._loop.run(self._stream.flush())

    def subscribe(
        self,
        *,
        since: Since | None = None,
        last: int | None = None,
        on_slow: OnSlow | None = None,
        max_pending: int | None = None,
    ) -> Subscription:
        subscribe = self._stream.subscribe
        return Subscription(
            self._loop,
            self._loop.run(begun(lambda: subscribe(since=since, last=last, on_slow=on_slow, max_pending=max_pending))),
        )

    def grant(
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
        self._loop.run(
            self._stream.grant(
                participant,
                reason=reason,
                expires_at=expires_at,
                max_frames=max_frames,
                replaces=replaces,
                delegate=delegate,
                max_writers=max_writers,
                on_disconnect=on_disconnect,
                when_absent=when_absent,
            )
        )

    def hand_over(self, to: str, *, reason: str | None = None) -> None:
        self._loop.run(self._stream.hand_over(to, reason=reason))

    def ask(self, *, reason: str | None = None) -> None:
        self._loop.run(self._stream.ask(reason=reason))

    def deny(self, participant: str, *, reason: str | None = None) -> None:
        self._loop.run(self._stream.deny(participant, reason=reason))

    def revoke(self, participant: str, *, reason: str | None = None) -> None:
        self._loop.run(self._stream.revoke(participant, reason=reason))

    def grant_read(self, participant: str, *, reason: str | None = None) -> None:
        self._loop.run(self._stream.grant_read(participant, reason=reason))

    def revoke_read(self, participant: str, *, reason: str | None = None) -> None:
        self._loop.run(self._stream.revoke_read(participant, reason=reason))

    def transfer(self, new_owner: str, *, reason: str | None = None, retain_write: bool = False) -> None:
        self._loop.run(self._stream.transfer(new_owner, reason=reason, retain_write=retain_write))

    def start(self) -> None:
        self._loop.run(self._stream.start())

    def complete(self) -> None:
        self._loop.run(self._stream.complete())

    def fail(self, code: str, message: str) -> None:
        self._loop.run(self._stream.fail(code, message))

    def close(self, *, reason: str | None = None) -> None:
        self._loop.run(self._stream.close(reason=reason))

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run(self._stream.__aexit__(kind, error, traceback))


class Streams(Mapping[str, Stream]):
    """The open streams, by id or alias."""

    def __init__(self, loop: EventLoop, space: client.Space) -> None:
        self._loop = loop
        self._space = space

    def __getitem__(self, name: str) -> Stream:
        return Stream(self._loop, self._space.streams[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._space.streams)

    def __len__(self) -> int:
        return len(self._space.streams)

    def __repr__(self) -> str:
        return repr(self._space.streams)
