"""The SDK without ``async``, for notebooks and scripts.

    with mewstream.sync.connect("ws://127.0.0.1:8080", space="demo", participant="me", token=token) as space:
        with space.open_stream(description="positions") as stream:
            stream.send({"x": 1})
        for frame in space.subscribe("stream-1"):
            ...

It has the names, attributes and exceptions of :mod:`mewstream.client`; its functions block instead of being awaited,
and have the same documentation. A thread of its own serves the connection, so that it stays alive while your code
computes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from mewstream.client import connecting
from mewstream.client import space as client
from mewstream.client.errors import ConnectionClosed, McpError, SubscriptionEnded
from mewstream.client.events import Event, Proposed, Requested
from mewstream.client.format import Format
from mewstream.client.frame import Frame
from mewstream.client.link import closed_here
from mewstream.client.mcp import Handler
from mewstream.client.messages import Message
from mewstream.client.proposals import Proposal as AsyncProposal
from mewstream.client.queue import OnSlow
from mewstream.client.space import Invitation
from mewstream.client.stream import Stream as AsyncStream
from mewstream.client.subscription import Feed as AsyncFeed
from mewstream.client.view import Participants
from mewstream.protocol.close_codes import NORMAL
from mewstream.protocol.position import Position

if TYPE_CHECKING:
    import ssl as ssl_module
    from types import TracebackType
    from typing import Self

    from mewstream.client.backoff import Backoff
    from mewstream.client.joining import Token

T = TypeVar("T")
C = TypeVar("C", bound=type)


def _documented_as(original: type) -> Callable[[C], C]:
    """Give the members of a class the documentation of those with the same name in ``original``."""

    def document(twin: C) -> C:
        for name, member in vars(twin).items():
            if not name.startswith("_") and member.__doc__ is None:
                member.__doc__ = getattr(original, name).__doc__
        return twin

    return document


class _Loop:
    """An event loop in a thread, for as long as a space is open."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._serve, name="mewstream-sync", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            # Nobody in another thread may be left waiting for ever.
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread and wait for its result. An interrupt cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this would wait for itself: in async code use mewstream.connect, not mewstream.sync")
        with self._lock:
            if self._is_stopping:
                work.close()
                raise closed_here()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise closed_here() from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        async def work() -> T:
            return function()

        return self.run(work())

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def stop(self) -> None:
        with self._lock:
            if not self._is_stopping:
                self._is_stopping = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


@_documented_as(AsyncStream)
class Stream:
    """A stream, as :class:`mewstream.client.stream.Stream`."""

    def __init__(self, loop: _Loop, stream: AsyncStream) -> None:
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
    def conditions(self) -> dict[str, Any]:
        return self._stream.conditions

    @property
    def metadata(self) -> dict[str, Any]:
        return self._stream.metadata

    def __repr__(self) -> str:
        return repr(self._stream)

    def send(self, data: Any, *, format: str | None = None, numbered: bool | None = None) -> None:
        self._loop.run(self._stream.send(data, format=format, numbered=numbered))

    def flush(self) -> None:
        self._loop.run(self._stream.flush())

    def subscribe(self, *, on_slow: OnSlow = "drop-oldest", max_pending: int | None = None) -> Subscription:
        return Subscription(
            self._loop, self._loop.call(lambda: self._stream.subscribe(on_slow=on_slow, max_pending=max_pending))
        )

    def grant(
        self,
        participant: str,
        *,
        reason: str | None = None,
        expires_at: datetime | str | None = None,
        max_frames: int | None = None,
    ) -> None:
        self._loop.run(self._stream.grant(participant, reason=reason, expires_at=expires_at, max_frames=max_frames))

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

    def __init__(self, loop: _Loop, space: client.Space) -> None:
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


@_documented_as(AsyncFeed)
class _Feed(Iterator[T]):
    def __init__(self, loop: _Loop, feed: AsyncFeed[Any, T]) -> None:
        self._loop = loop
        self._feed = feed

    @property
    def pending(self) -> int:
        return self._feed.pending

    @property
    def dropped(self) -> int:
        return self._feed.dropped

    def __next__(self) -> T:
        try:
            return self._loop.run(self._feed.receive())
        except SubscriptionEnded:
            raise StopIteration from None
        except ConnectionClosed as error:
            if error.code == NORMAL:
                raise StopIteration from None
            raise

    def receive(self, timeout: float | None = None) -> T:
        return self._loop.run(self._feed.receive(timeout))

    def close(self) -> None:
        with contextlib.suppress(ConnectionClosed):  # then it has ended
            self._loop.call(self._feed.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Subscription(_Feed[Frame]):
    """The frames of one stream, or of all, to iterate over with ``for``."""


class Events(_Feed[Event]):
    """The events of a space, to iterate over with ``for``."""


@_documented_as(AsyncProposal)
class Proposal:
    """A proposal, as :class:`mewstream.client.proposals.Proposal`."""

    def __init__(self, loop: _Loop, proposal: AsyncProposal) -> None:
        self._loop = loop
        self._proposal = proposal
        self.id = proposal.id

    @property
    def is_settled(self) -> bool:
        return self._proposal.is_settled

    def result(self, *, timeout: float | None = None) -> Any:
        return self._loop.run(self._proposal.result(timeout=timeout))

    def withdraw(self, *, reason: str | None = None) -> None:
        self._loop.run(self._proposal.withdraw(reason=reason))


@_documented_as(client.Space)
class Space:
    """A space, as :class:`mewstream.client.space.Space`."""

    def __init__(self, loop: _Loop, space: client.Space) -> None:
        self._loop = loop
        self._space = space

    @property
    def participant(self) -> str:
        return self._space.participant

    @property
    def capabilities(self) -> list[Any]:
        return self._space.capabilities

    @property
    def participants(self) -> Participants:
        return self._space.participants

    @property
    def streams(self) -> Streams:
        return Streams(self._loop, self._space)

    @property
    def features(self) -> frozenset[str]:
        return self._space.features

    @property
    def position(self) -> Position | None:
        return self._space.position

    @property
    def is_connected(self) -> bool:
        return self._space.is_connected

    @property
    def is_closed(self) -> bool:
        return self._space.is_closed

    @property
    def error(self) -> ConnectionClosed | None:
        return self._space.error

    def __repr__(self) -> str:
        return repr(self._space)

    def open_stream(
        self,
        *,
        description: str | None = None,
        content_type: str | None = None,
        direction: str = "upload",
        target: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        formats: Sequence[Format | Mapping[str, Any]] | None = None,
        auto_grant: Sequence[str] | None = None,
        validate: bool = False,
        enforce_formats: bool = False,
        **fields: Any,
    ) -> Stream:
        opening = self._space.open_stream(
            description=description,
            content_type=content_type,
            direction=direction,
            target=target,
            metadata=metadata,
            formats=formats,
            auto_grant=auto_grant,
            validate=validate,
            enforce_formats=enforce_formats,
            **fields,
        )
        return Stream(self._loop, self._loop.run(opening.make()))

    def announce(
        self,
        *,
        formats: Sequence[Format | Mapping[str, Any]] | None = None,
        desired_id: str | None = None,
        intent: str | None = None,
        description: str | None = None,
        scope: Sequence[str] | None = None,
        target: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        auto_grant: Sequence[str] | None = None,
        validate: bool = False,
        enforce_formats: bool = False,
        **fields: Any,
    ) -> Stream:
        opening = self._space.announce(
            formats=formats,
            desired_id=desired_id,
            intent=intent,
            description=description,
            scope=scope,
            target=target,
            metadata=metadata,
            auto_grant=auto_grant,
            validate=validate,
            enforce_formats=enforce_formats,
            **fields,
        )
        return Stream(self._loop, self._loop.run(opening.make()))

    def stream(self, name: str, *, timeout: float | None = None) -> Stream:
        return Stream(self._loop, self._loop.run(self._space.stream(name, timeout=timeout)))

    def subscribe(
        self, stream: Stream | str | None = None, *, on_slow: OnSlow = "drop-oldest", max_pending: int | None = None
    ) -> Subscription:
        name = stream._stream if isinstance(stream, Stream) else stream
        return Subscription(
            self._loop,
            self._loop.call(lambda: self._space.subscribe(name, on_slow=on_slow, max_pending=max_pending)),
        )

    def events(self, *, max_pending: int = client.MAX_PENDING_EVENTS) -> Events:
        return Events(self._loop, self._loop.call(lambda: self._space.events(max_pending=max_pending)))

    def send(
        self,
        kind: str,
        payload: Any = None,
        *,
        to: str | Sequence[str] | None = None,
        correlation_id: str | Sequence[str] | None = None,
        context: str | None = None,
    ) -> Message:
        return self._loop.run(self._space.send(kind, payload, to=to, correlation_id=correlation_id, context=context))

    def has_sent(self, id: str) -> bool:
        return self._space.has_sent(id)

    def chat(self, text: str, *, to: str | Sequence[str] | None = None) -> Message:
        return self._loop.run(self._space.chat(text, to=to))

    def request(self, method: str, params: Any = None, *, to: str | Sequence[str], timeout: float | None = None) -> Any:
        return self._loop.run(self._space.request(method, params, to=to, timeout=timeout))

    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, to: str, timeout: float | None = None
    ) -> Any:
        return self._loop.run(self._space.call_tool(name, arguments, to=to, timeout=timeout))

    def tool(
        self, name: str, handler: Handler, schema: dict[str, Any] | None = None, *, description: str | None = None
    ) -> None:
        self._loop.call(lambda: self._space.tool(name, handler, schema, description=description))

    def propose(self, method: str, params: Any = None, *, to: str | Sequence[str] | None = None) -> Proposal:
        return Proposal(self._loop, self._loop.run(self._space.propose(method, params, to=to)))

    def fulfil(self, proposal: Proposed, *, to: str | Sequence[str] | None = None, timeout: float | None = None) -> Any:
        return self._loop.run(self._space.fulfil(proposal, to=to, timeout=timeout))

    def reject(self, proposal: Proposed | str, *, reason: str | None = None) -> None:
        self._loop.run(self._space.reject(proposal, reason=reason))

    def respond(self, request: Requested, result: Any = None, *, error: McpError | None = None) -> None:
        self._loop.run(self._space.respond(request, result, error=error))

    def invite(self, participant: str, *, capabilities: Sequence[Any] | None = None) -> Invitation:
        return self._loop.run(self._space.invite(participant, capabilities=capabilities))

    def kick(self, participant: str, *, reason: str | None = None) -> None:
        self._loop.run(self._space.kick(participant, reason=reason))

    def grant_capabilities(self, participant: str, capabilities: Sequence[Any], *, reason: str | None = None) -> str:
        return self._loop.run(self._space.grant_capabilities(participant, capabilities, reason=reason))

    def revoke_capabilities(
        self,
        participant: str,
        *,
        grant_id: str | None = None,
        capabilities: Sequence[Any] | None = None,
        reason: str | None = None,
    ) -> None:
        self._loop.run(
            self._space.revoke_capabilities(participant, grant_id=grant_id, capabilities=capabilities, reason=reason)
        )

    def flush(self) -> None:
        self._loop.run(self._space.flush())

    def wait_closed(self) -> None:
        with contextlib.suppress(ConnectionClosed):  # closed here, by another thread
            self._loop.run(self._space.wait_closed())

    def drain(self) -> None:
        self._finish(self._space.drain)

    def close(self) -> None:
        with contextlib.suppress(ConnectionClosed):  # another thread has closed it
            self._finish(self._space.close)

    def _finish(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            if not self._loop.is_stopping:
                self._loop.run(work())
        finally:
            self._loop.stop()

    def __enter__(self) -> Space:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.drain()
        else:
            self.close()


def connect(
    url: str | None = None,
    *,
    space: str | None = None,
    participant: str | None = None,
    token: Token | None = None,
    profile: str | None = None,
    reconnect: Backoff | bool = True,
    ssl: ssl_module.SSLContext | None = None,
    connect_timeout: float = 10.0,
    request_timeout: float = client.REQUEST_SECONDS,
) -> Space:
    """Join a space, with the options of :func:`mewstream.connect`. Returns the :class:`Space`: use it with ``with``,
    or call ``drain()`` at the end. Raises what joining raises there."""
    joining = connecting.connect(
        url,
        space=space,
        participant=participant,
        token=token,
        profile=profile,
        reconnect=reconnect,
        ssl=ssl,
        connect_timeout=connect_timeout,
        request_timeout=request_timeout,
    )
    loop = _Loop()
    try:
        return Space(loop, loop.run(joining.make()))
    except BaseException:
        loop.stop()
        raise
