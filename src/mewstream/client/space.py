"""A space that a participant has joined: the main object of the SDK."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from mewstream.client import untrusted
from mewstream.client.acknowledgements import Acknowledgements
from mewstream.client.backoff import Backoff
from mewstream.client.calling import Calling
from mewstream.client.control import Control
from mewstream.client.controlled import Controlled
from mewstream.client.errors import ConnectionClosed, RequestTimeout
from mewstream.client.events import Event
from mewstream.client.inbox import Inbox
from mewstream.client.joining import Joiner
from mewstream.client.link import Link
from mewstream.client.mcp_server import McpServer
from mewstream.client.membership import Membership
from mewstream.client.messages import Message
from mewstream.client.offering import Offering
from mewstream.client.opening import StreamOpening
from mewstream.client.queue import BoundedQueue, FrameQueue, OnSlow
from mewstream.client.state import State
from mewstream.client.stream import Stream
from mewstream.client.subscription import Events, Subscription
from mewstream.client.view import Participants, Streams, View
from mewstream.protocol import kinds
from mewstream.protocol.close_codes import NORMAL
from mewstream.protocol.position import Position

if TYPE_CHECKING:
    from types import TracebackType

MAX_PENDING_FRAMES = 10_000
MAX_PENDING_EVENTS = 10_000
REQUEST_SECONDS = 30.0


class Space(StreamOpening, Calling, Offering, Control, Membership, AbstractAsyncContextManager["Space"]):
    """A space that we have joined, made by :func:`connect`.

    Everything that reads is a live view or an ``async for``. Everything that acts waits until the gateway has carried
    it out, and raises

    - a :class:`PeerError`, one class for each of the protocol's error codes, if the gateway refuses;
    - :class:`RequestTimeout` if nobody answers in time: it is not known whether the request was carried out;
    - :class:`ConnectionClosed` if the space has ended, or is being drained;
    - :class:`AnswerLost` if the connection was lost and a foreign gateway cannot be asked again.
    """

    def __init__(self, joiner: Joiner, *, reconnect: Backoff | None, request_timeout: float) -> None:
        self._name = joiner.space
        self._request_timeout = request_timeout
        self._server = McpServer(self)
        view = View(joiner.participant or "", lambda described: Stream(self, described))
        self._controlled = Controlled(self)
        self._inbox = Inbox(view, self._server, self._controlled, Acknowledgements(self))
        self._link = self._inbox.link = Link(joiner, self._inbox, reconnect=reconnect, timeout=request_timeout)
        self._view = self._inbox.view
        self._calls = self._inbox.calls

    # -- the state of the space ---------------------------------------------------------------------

    @property
    def capabilities(self) -> list[Any]:
        """The capabilities that we hold now."""
        return self._view.capabilities

    @property
    def participants(self) -> Participants:
        """The other participants, by id: a live view."""
        return self._view.participants

    @property
    def streams(self) -> Streams:
        """The open streams, by id or alias: a live view."""
        return self._view.streams

    @property
    def features(self) -> frozenset[str]:
        """What the gateway can do beyond plain v0.4: ``active_streams``, ``positions``, ``resume``."""
        found = {"active_streams"} if self._view.lists_streams else set()
        if self._link.has_positions:
            found |= {"positions", "resume"}
        return frozenset(found)

    @property
    def position(self) -> Position | None:
        """The position of the newest message received; None if the gateway sends no positions."""
        return self._link.position

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._link.is_connected

    @property
    def is_closed(self) -> bool:
        """Whether the space has ended and will not reconnect."""
        return self._link.state is State.GONE

    @property
    def error(self) -> ConnectionClosed | None:
        """Why the space has ended, if we did not end it ourselves."""
        error = self._link.error
        return None if error is None or error.code == NORMAL else error

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "connected" if self.is_connected else "reconnecting"
        name = f"{self._name!r}, " if self._name is not None else ""
        return f"Space({name}participant={self.participant!r}, {state})"

    # -- streams ------------------------------------------------------------------------------------

    async def stream(self, name: str, *, timeout: float | None = None) -> Stream:
        """Wait until a stream of this id or alias is open. Returns it. Raises :class:`RequestTimeout` if that takes
        longer than ``timeout`` seconds, and :class:`ConnectionClosed` if the space ends first."""
        with self.events() as news:
            try:
                async with asyncio.timeout(timeout):
                    while name not in self.streams:
                        if self._link.error is not None:
                            raise self._link.error.again()
                        await anext(news, None)
            except TimeoutError:
                raise RequestTimeout(f"nobody opened {name} within {timeout:g} seconds") from None
        return self.streams[name]

    def subscribe(
        self, stream: Stream | str | None = None, *, on_slow: OnSlow = "drop-oldest", max_pending: int | None = None
    ) -> Subscription:
        """Receive the frames of a stream (by object, id or alias) from now on, or of all streams.

        Frames wait in a queue of ``max_pending`` (default: 10000). When that is full because the reader is too slow,
        ``drop-oldest`` drops the oldest frame, and ``pause`` stops reading from the gateway, which delays everything
        else on this connection too. ``latest`` drops all but the newest frame (for positions in a game) when there
        are more than ``max_pending`` (default: 1).

        The gateway sends us the frames of no other stream. ``await`` the subscription to know that it has begun there.

        Returns a :class:`Subscription`, which has ended already if the stream or the space has. Raises ValueError
        for an unknown ``on_slow`` or a queue of less than 1.
        """
        if max_pending is None:
            max_pending = 1 if on_slow == "latest" else MAX_PENDING_FRAMES
        queue = FrameQueue(max_pending, on_slow, hold=self._link.hold, release=self._link.release)
        if self.is_closed or (isinstance(stream, Stream) and not stream.is_open):
            queue.end(self.error)
            return Subscription(queue, lambda: None, self._begun)
        name = stream.id if isinstance(stream, Stream) else stream
        known = self.streams.get(name) if name is not None else None
        detach = self._inbox.routes.add(queue, known.id if known is not None else name, is_known=known is not None)
        return Subscription(queue, detach, self._begun)

    async def _begun(self) -> None:
        """Wait until the gateway knows what we are subscribed to."""
        if not self.is_closed:
            await self._link.round_trip()

    def events(self, *, max_pending: int = MAX_PENDING_EVENTS) -> Events:
        """Receive everything but frames from now on, as the types in :mod:`mewstream.client.events`. Returns
        :class:`Events`, which drops the oldest event if more than ``max_pending`` wait."""
        queue: BoundedQueue[Event] = BoundedQueue(max_pending)
        if self.is_closed:
            queue.end(self.error)
            return Events(queue, lambda: None)
        return Events(queue, self._inbox.routes.add_events(queue))

    # -- messages -----------------------------------------------------------------------------------

    async def send(
        self,
        kind: str,
        payload: Any = None,
        *,
        to: str | Sequence[str] | None = None,
        correlation_id: str | Sequence[str] | None = None,
        context: str | None = None,
    ) -> Message:
        """Send an envelope of any kind to everyone; ``to`` only says for whom it is meant. Returns the envelope as the
        gateway relayed it. Raises what every request raises."""
        payload = {} if payload is None else payload
        # Data of a stream are relayed to those who are interested in it.
        stream = _stream_of(payload) if kind == kinds.STREAM_DATA else None
        with self.subscribe(stream) if stream is not None else contextlib.nullcontext():
            return await self._call(kind, payload, to=to, correlation_id=correlation_id, context=context)

    def has_sent(self, id: str) -> bool:
        """Return whether this object sent the message with this id, and not another program with the same name."""
        return self._calls.is_own(id)

    async def chat(self, text: str, *, to: str | Sequence[str] | None = None) -> Message:
        """Send a chat message. Returns and raises as :meth:`send` does."""
        return await self._call(kinds.CHAT, {"text": text}, to=to)

    # -- the beginning and the end --------------------------------------------------------------------

    async def _open(self) -> None:
        """Join, and wait for the pages of what the welcome had no room for; usually there are none."""
        await self._link.open()
        try:
            async with asyncio.timeout(self._request_timeout):
                await self._inbox.pages.wait()
        except BaseException as failure:
            await self.close()
            if isinstance(failure, TimeoutError):
                text = f"the gateway did not list everything within {self._request_timeout:g} seconds"
                raise RequestTimeout(text) from None
            raise
        if self._link.error is not None:
            raise self._link.error.again()
        # The program gets its space now. Whatever it offers before it waits for anything is there for the first caller.
        asyncio.get_running_loop().call_soon(self._server.start)

    async def flush(self) -> None:
        """Wait until the gateway has recorded every frame sent so far, as safely as its durability promises. Raises
        :class:`FramesUnconfirmed` if a connection was lost before it confirmed some of them,
        :class:`RequestTimeout` if the gateway does not answer, and :class:`ConnectionClosed`."""
        await self._link.flush()

    async def drain(self) -> None:
        """Send nothing more, wait until what was sent is recorded, and leave. What has been received can still be
        taken from subscriptions. Raises :class:`FramesUnconfirmed` and :class:`RequestTimeout` as :meth:`flush` does,
        when we have left."""
        await self._link.drain()

    async def close(self) -> None:
        """Leave without waiting for anything. What has been received can still be taken from subscriptions."""
        await self._link.close()

    async def wait_closed(self) -> None:
        """Wait until the space has ended and will not reconnect. Then :attr:`error` says why."""
        await self._link.wait_closed()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.drain()
        else:
            await self.close()


def _stream_of(payload: Any) -> str | None:
    """Return the name of the stream that the payload of a ``stream/data`` envelope is for."""
    fields = untrusted.as_object(payload)
    return untrusted.text(fields.get("stream_id")) or untrusted.text(
        untrusted.as_object(fields.get("stream")).get("stream_id")
    )
