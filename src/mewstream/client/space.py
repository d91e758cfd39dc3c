"""A participant in a space: the one object that the SDK is about."""

from __future__ import annotations

import asyncio
import contextlib
import ssl as ssl_module
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mewstream.client import events as told
from mewstream.client import messages
from mewstream.client.backoff import Backoff
from mewstream.client.calls import Calls
from mewstream.client.connection import Connection, Receiver, websocket_url
from mewstream.client.errors import (
    ConnectError,
    ConnectionClosed,
    FramesUnconfirmed,
    JoinRefused,
    McpError,
    RequestTimeout,
)
from mewstream.client.joining import Door, Token, may_reconnect
from mewstream.client.mcp import Handler, Tools
from mewstream.client.messages import Message
from mewstream.client.proposals import Proposal, Proposals
from mewstream.client.queue import BoundedQueue, OnSlow
from mewstream.client.stream import Format, Opening, Stream
from mewstream.client.subscription import Entry, Events, Subscription
from mewstream.client.view import Participants, Streams, View
from mewstream.protocol import frames, kinds

if TYPE_CHECKING:
    from types import TracebackType

MAX_PENDING_FRAMES = 10_000
MAX_PENDING_EVENTS = 10_000
REQUEST_SECONDS = 30.0

#: No message begins so.
_NEVER = b"\x00"


class Invitation(msgspec.Struct, frozen=True):
    """What an invited participant needs. The token is shown here once, and nowhere else."""

    participant: str
    token: str
    url: str | None

    def __repr__(self) -> str:
        return f"Invitation(participant={self.participant!r})"


class Space:
    """Made by :func:`connect`. Everything that reads is a live view or an ``async for``; everything
    that acts waits until the gateway has said yes, and raises what it said otherwise."""

    def __init__(self, door: Door, *, reconnect: Backoff | None, request_timeout: float) -> None:
        self._door = door
        self._reconnect = reconnect
        self._request_timeout = request_timeout
        self._view = View(door.participant or "", lambda described: Stream(self, described))
        self._calls = Calls()
        self._tools = Tools(self)
        self._proposals = Proposals()
        self._connection: Connection | None = None
        self._connected = asyncio.Event()
        self._lost: asyncio.Future[tuple[int, str]] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._closed: ConnectionClosed | None = None
        self._is_draining = False
        self._has_positions = False
        self._routes: dict[bytes, list[BoundedQueue[Entry]]] = {}
        self._everything: list[BoundedQueue[Entry]] = []
        self._awaited: dict[str, list[BoundedQueue[Entry]]] = {}
        """Subscriptions by a name that may turn out to be an alias."""
        self._feeds: list[BoundedQueue[told.Event]] = []
        self._hot_head = _NEVER
        self._hot_queues: tuple[BoundedQueue[Entry], ...] = ()
        self._last_frame = b""
        self._last_seq = 0
        self._sent = self._confirmed = 0
        self._pings = 0
        self._flushes: dict[int, tuple[asyncio.Future[None], int]] = {}

    # -- who and what is here -----------------------------------------------------------------------

    @property
    def participant(self) -> str:
        """Who we are."""
        return self._view.me

    @property
    def capabilities(self) -> list[Any]:
        """What we may do."""
        return self._view.capabilities

    @property
    def participants(self) -> Participants:
        """The others who are here."""
        return self._view.participants

    @property
    def streams(self) -> Streams:
        """The streams that are open, those of before we came included."""
        return self._view.streams

    @property
    def features(self) -> frozenset[str]:
        """What this gateway can do beyond plain v0.4: ``active_streams``, ``positions``, ``resume``."""
        found = {"active_streams"} if self._view.tells_streams else set()
        if self._has_positions:
            found |= {"positions", "resume"}
        return frozenset(found)

    @property
    def position(self) -> tuple[str, int] | None:
        """Epoch and seq of the newest message seen, where the gateway tells."""
        if not self._has_positions or self._view.epoch is None:
            return None
        return self._view.epoch, max(self._last_seq, _seq_of(self._last_frame), self._view.seq or 0)

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "connected" if self.is_connected else "reconnecting"
        return f"Space({self._door.space or '?'}, {self.participant!r}, {state})"

    # -- streams ------------------------------------------------------------------------------------

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
        **fields: Any,
    ) -> Opening:
        """Open a stream that is live at once: ``await`` it, or use it with ``async with``, which closes it
        at the end if we still own it. ``target`` names its readers (default: everyone), ``auto_grant``
        its writers. ``validate`` checks what we send against its format before it is sent. Any other
        field is kept with the stream and shown to everyone."""
        return self._opening(
            kinds.STREAM_REQUEST,
            validate,
            description=description,
            content_type=content_type,
            direction=direction,
            target=target,
            metadata=metadata,
            formats=formats,
            auto_grant=auto_grant,
            **fields,
        )

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
        **fields: Any,
    ) -> Opening:
        """Open a stream by handshake: it is ready when this returns, and live after ``start()``.
        ``desired_id`` becomes its alias, if it is free."""
        return self._opening(
            kinds.STREAM_ANNOUNCE,
            validate,
            formats=formats,
            desired_id=desired_id,
            intent=intent,
            description=description,
            scope=scope,
            target=target,
            metadata=metadata,
            auto_grant=auto_grant,
            **fields,
        )

    def _opening(self, kind: str, validate: bool, **fields: Any) -> Opening:
        payload = {key: value for key, value in fields.items() if value is not None}
        return Opening(self, kind, payload, validate=validate)

    async def stream(self, name: str, *, timeout: float | None = None) -> Stream:
        """The stream of this id or alias; waits until somebody opens it."""
        with self.events() as news:
            if name in self.streams:
                return self.streams[name]
            async with asyncio.timeout(timeout):
                async for _ in news:
                    if name in self.streams:
                        return self.streams[name]
        assert self._closed is not None
        raise self._closed

    def subscribe(
        self,
        stream: Stream | str | None = None,
        *,
        on_slow: OnSlow = "drop-oldest",
        max_pending: int | None = None,
    ) -> Subscription:
        """The frames of a stream (by object, id or alias) from now on; of all streams without one.

        Frames wait in a queue of ``max_pending``. When the reader is too slow for that, ``drop-oldest``
        forgets the oldest, ``latest`` all but the newest (for positions in a game), and ``pause``
        stops reading from the gateway, which holds up everything else of this connection too."""
        connection_of: Callable[[], Connection | None] = lambda: self._connection  # noqa: E731
        queue: BoundedQueue[Entry] = BoundedQueue(
            (1 if on_slow == "latest" else MAX_PENDING_FRAMES) if max_pending is None else max_pending,
            on_slow,
            hold=lambda why: _on(connection_of(), Connection.hold_reading, why),
            release=lambda why: _on(connection_of(), Connection.release_reading, why),
        )
        if self._closed is not None:
            queue.end(self._closed)
            return Subscription(queue, lambda: None)
        if stream is None:
            self._everything.append(queue)
            self._cool()
            return Subscription(queue, lambda: self._unsubscribe(queue))
        self._cool()
        name = stream if isinstance(stream, str) else stream.id
        known = self.streams.get(name)
        if isinstance(stream, Stream) and not stream.is_open:
            queue.end()
        elif known is not None:
            self._routes.setdefault(known.id.encode(), []).append(queue)
        else:
            self._routes.setdefault(name.encode(), []).append(queue)
            self._awaited.setdefault(name, []).append(queue)
        return Subscription(queue, lambda: self._unsubscribe(queue))

    def _unsubscribe(self, queue: BoundedQueue[Entry]) -> None:
        self._cool()
        _discard(self._everything, queue)
        for key, queues in list(self._routes.items()):
            if queue in queues:
                _discard(queues, queue)
                if not queues:
                    del self._routes[key]
        for name, queues in list(self._awaited.items()):
            _discard(queues, queue)
            if not queues:
                del self._awaited[name]
        queue.end()

    def events(self, *, max_pending: int = MAX_PENDING_EVENTS) -> Events:
        """Everything but frames, from now on, as typed events; see :mod:`mewstream.client.events`."""
        queue: BoundedQueue[told.Event] = BoundedQueue(max_pending)
        if self._closed is not None:
            queue.end(self._closed)
        else:
            self._feeds.append(queue)
        return Events(queue, lambda: _discard(self._feeds, queue))

    # -- messages -----------------------------------------------------------------------------------

    async def send(
        self,
        kind: str,
        payload: Any = None,
        *,
        to: str | Sequence[str] | None = None,
        correlation_id: str | Sequence[str] | None = None,
        context: Any = None,
    ) -> Message:
        """Send an envelope of any kind, and wait until the gateway has relayed it. Returns it as relayed."""
        return await self._call(kind, payload or {}, to=to, correlation_id=correlation_id, context=context)

    async def chat(self, text: str, *, to: str | Sequence[str] | None = None) -> Message:
        return await self._call(kinds.CHAT, {"text": text}, to=to)

    async def request(
        self, method: str, params: Any = None, *, to: str | Sequence[str], timeout: float | None = None
    ) -> Any:
        """Ask another participant by MCP and wait for its answer. Raises :class:`McpError` if that is one."""
        payload = {"method": method} if params is None else {"method": method, "params": params}
        answer = await self._call(kinds.MCP_REQUEST, payload, to=to, answer=kinds.MCP_RESPONSE, timeout=timeout)
        return result_of(answer)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, to: str, timeout: float | None = None
    ) -> Any:
        """Call a tool that another participant serves."""
        return await self.request("tools/call", {"name": name, "arguments": arguments or {}}, to=to, timeout=timeout)

    async def respond(self, request: told.Requested, result: Any = None, *, error: McpError | None = None) -> None:
        """Answer a request that came as an event."""
        assert request.message is not None
        if error is None:
            payload: dict[str, Any] = {"result": result}
        else:
            described = {"code": error.code, "message": error.message, "data": error.data}
            payload = {"error": {key: value for key, value in described.items() if value is not None}}
        await self._call(kinds.MCP_RESPONSE, payload, to=request.sender, correlation_id=request.message.id)

    def tool(
        self,
        name: str,
        handler: Handler,
        schema: dict[str, Any] | None = None,
        *,
        description: str | None = None,
    ) -> None:
        """Serve an MCP tool to the space. The handler is called with the arguments by name, in a task or,
        if it is a plain function, in a thread. Arguments that are not of ``schema`` never reach it."""
        self._tools.add(name, handler, schema, description)

    # -- proposals ----------------------------------------------------------------------------------

    async def propose(self, method: str, params: Any = None, *, to: str | Sequence[str] | None = None) -> Proposal:
        """Propose a request that we may not make ourselves. The result comes by ``await proposal.result()``."""
        payload = {"method": method} if params is None else {"method": method, "params": params}
        id = self._next_id()
        proposal = self._proposals.add(id, self)
        try:
            await self._call(kinds.MCP_PROPOSAL, payload, to=to, id=id)
        except BaseException:
            self._proposals.forget(id)
            raise
        return proposal

    async def fulfil(
        self, proposal: told.Proposed, *, to: str | Sequence[str] | None = None, timeout: float | None = None
    ) -> Any:
        """Carry out what another has proposed: the same request, in our name. Returns its result."""
        target = to or proposal.to
        if not target:
            raise ValueError("the proposal names nobody who shall do it: say to=")
        payload = {"method": proposal.method}
        if proposal.params is not None:
            payload["params"] = proposal.params
        answer = await self._call(
            kinds.MCP_REQUEST,
            payload,
            to=target,
            correlation_id=proposal.proposal,
            answer=kinds.MCP_RESPONSE,
            timeout=timeout,
        )
        return result_of(answer)

    async def reject(self, proposal: told.Proposed | str, *, reason: str | None = None) -> None:
        await self._about(kinds.MCP_REJECT, proposal if isinstance(proposal, str) else proposal.proposal, reason)

    async def _about(self, kind: str, proposal: str, reason: str | None) -> None:
        await self._call(kind, {"reason": reason} if reason else {}, correlation_id=proposal)

    # -- people -------------------------------------------------------------------------------------

    async def invite(self, participant: str, *, capabilities: Sequence[Any] | None = None) -> Invitation:
        """Let somebody new in. The token comes back to us alone."""
        payload: dict[str, Any] = {"participant_id": participant}
        if capabilities is not None:
            payload["capabilities"] = list(capabilities)
        answer = await self._call(kinds.INVITE, payload, answer=kinds.INVITE_ACK)
        payload = answer.payload
        id = str(payload.get("participant_id", participant))
        return Invitation(id, str(payload["token"]), payload.get("connection_url"))

    async def kick(self, participant: str, *, reason: str | None = None) -> None:
        await self._call(kinds.KICK, _some(participant_id=participant, reason=reason))

    async def grant_capabilities(
        self, participant: str, capabilities: Sequence[Any], *, reason: str | None = None
    ) -> str:
        """Give what we hold ourselves. Returns the id by which it can be revoked."""
        payload = _some(recipient=participant, capabilities=list(capabilities), reason=reason)
        return (await self._call(kinds.CAPABILITY_GRANT, payload, to=participant)).id

    async def revoke_capabilities(
        self,
        participant: str,
        *,
        grant_id: str | None = None,
        capabilities: Sequence[Any] | None = None,
        reason: str | None = None,
    ) -> None:
        payload = _some(
            recipient=participant,
            grant_id=grant_id,
            capabilities=None if capabilities is None else list(capabilities),
            reason=reason,
        )
        await self._call(kinds.CAPABILITY_REVOKE, payload, to=participant)

    # -- sending ------------------------------------------------------------------------------------

    def _next_id(self) -> str:
        return self._calls.next_id()

    async def _call(
        self,
        kind: str,
        payload: Any,
        *,
        answer: str | None = None,
        to: str | Sequence[str] | None = None,
        correlation_id: str | Sequence[str] | None = None,
        context: Any = None,
        timeout: float | None = None,
        id: str | None = None,
    ) -> Message:
        """Send an envelope and wait for what answers it: our own message, relayed, or another kind."""
        id = id or self._next_id()
        body = messages.encode(
            kind,
            payload,
            id=id,
            to=messages.names(to),
            correlation_id=messages.names(correlation_id),
            context=context,
        )
        seconds = self._request_timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                connection = await self._ready()
                future = self._calls.begin(id, body, answer)
                connection.send(body, is_text=True)
                return await future
        except TimeoutError:
            raise RequestTimeout(f"{kind} was not answered within {seconds:g} seconds") from None
        finally:
            self._calls.forget(id)

    async def _send_frame(self, message: bytes, *, is_text: bool) -> None:
        connection = self._connection
        if connection is None or not self._connected.is_set() or connection.is_full or self._is_draining:
            connection = await self._ready()
        self._sent += 1
        connection.send(message, is_text=is_text)

    async def _ready(self) -> Connection:
        """A connection that takes what we send."""
        while True:
            if self._closed is not None:
                raise self._closed
            if self._is_draining:
                raise ConnectionClosed("this space is being drained: nothing more can be sent", code=1000)
            if not self._connected.is_set():
                await self._connected.wait()
                continue
            assert self._connection is not None
            if not self._connection.is_full:
                return self._connection
            await self._connection.writable()

    async def flush(self) -> None:
        """Wait until everything sent so far is recorded by the gateway, as safe as its durability says.
        Raises :class:`FramesUnconfirmed` when the connection is lost before that is known."""
        connection = await self._ready()
        await self._flush(connection)

    async def _flush(self, connection: Connection) -> None:
        self._pings += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes[self._pings] = (done, self._sent)
        connection.ping(frames.RECORDED_PING + b"%d" % self._pings)
        async with asyncio.timeout(self._request_timeout):
            await done

    # -- as receiver of a connection ------------------------------------------------------------------

    def message_received(self, message: bytes, is_text: bool) -> None:
        # The hot path. Frames of one stream come in long runs: its name is looked up once for each.
        if not message.startswith(self._hot_head):
            if not message.startswith(b"#"):
                parsed = messages.parse(message)
                if parsed is not None:
                    self._envelope(parsed)
                return
            self._warm(message)
        self._last_frame = message
        for queue in self._hot_queues:
            queue.put(message if is_text else (message,))

    def _warm(self, message: bytes) -> None:
        end = message.find(b"|" if self._has_positions else b"#", 1)
        self._hot_head = message[: end + 1]
        self._hot_queues = (*self._routes.get(message[1:end], ()), *self._everything)

    def _cool(self) -> None:
        """Who reads what has changed."""
        self._hot_head = _NEVER
        self._hot_queues = ()

    def pong_received(self, payload: bytes) -> None:
        if not payload.startswith(frames.RECORDED_PING):
            return
        number = int(payload[len(frames.RECORDED_PING) :])
        # The gateway may answer the last of several alone.
        for waiting in [each for each in self._flushes if each <= number]:
            done, sent = self._flushes.pop(waiting)
            self._confirmed = max(self._confirmed, sent)
            if not done.done():
                done.set_result(None)

    def connection_lost(self, code: int, reason: str) -> None:
        self._connected.clear()
        self._connection = None
        unconfirmed = self._sent - self._confirmed
        for done, _ in self._flushes.values():
            if not done.done():
                done.set_exception(FramesUnconfirmed(unconfirmed))
        self._flushes.clear()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result((code, reason))

    def _envelope(self, message: Message) -> None:
        if message.seq is not None:
            self._last_seq = message.seq
        if message.kind == kinds.STREAM_DATA:
            self._data(message)
            return
        if message.kind == kinds.WELCOME and message.is_from_gateway:
            self._publish(self._view.welcome(message))
            self._publish([told.CapabilitiesChanged(self.capabilities, message=message)])
            return
        if message.kind == kinds.INVITE_ACK:
            # It holds a token: for whoever invited, and for no event.
            self._calls.received(message)
            return
        event = self._view.apply(message)
        answered = self._calls.received(message)
        self._proposals.received(message)
        if event is None or (answered and isinstance(event, told.Refused)):
            return  # whoever waits for it gets the refusal as an exception
        self._follow(event)
        self._publish([event])

    def _data(self, message: Message) -> None:
        stream = message.stream_id
        for queue in (*self._routes.get(stream.encode(), ()), *self._everything):
            queue.put(message)

    def _follow(self, event: told.Event) -> None:
        """What an event means for those who read and write streams, and for our tools."""
        match event:
            case told.StreamOpened(handle=stream):
                self._bind_alias(stream)
            case told.StreamClosed(stream=id):
                self._end_subscriptions(id)
            case told.Refused(error=error):
                refused = self.streams.get(str(error.details.get("stream_id", "")))
                if refused is not None:
                    refused._refused(error)
            case told.Gap(stream=id, count=count) if id is not None:
                for queue in (*self._routes.get(id.encode(), ()), *self._everything):
                    queue.put_missed(count or 1)
            case told.Requested():
                self._tools.received(event)

    def _bind_alias(self, stream: Stream) -> None:
        self._cool()
        for name in {stream.id, stream.alias}:
            queues = self._awaited.pop(name, None) if name is not None else None
            if queues and name != stream.id and name is not None:
                self._routes.pop(name.encode(), None)
                self._routes.setdefault(stream.id.encode(), []).extend(queues)

    def _end_subscriptions(self, id: str) -> None:
        self._cool()
        for queue in self._routes.pop(id.encode(), ()):
            queue.end()

    def _publish(self, found: Sequence[told.Event]) -> None:
        for event in found:
            if isinstance(event, told.StreamClosed) and event.how == "lost":
                self._end_subscriptions(event.stream)
            for feed in self._feeds:
                feed.put(event)

    def _stream(self, id: str, described: dict[str, Any]) -> Stream:
        """One that was just opened: known already, unless somebody was quick to end it."""
        return self.streams.get(id) or Stream(self, described)

    # -- connecting, and connecting again -------------------------------------------------------------

    async def _open(self) -> None:
        self._connection = await self._door.enter(self._welcomed, None)
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise(), name="mewstream-client")

    def _welcomed(self, connection: Connection, welcome: Message) -> Receiver:
        """Called in the very moment of the welcome, before anything that follows it is read."""
        is_first = self._supervisor is None
        unconfirmed = self._sent - self._confirmed
        self._sent = self._confirmed = 0
        self._has_positions = welcome.seq is not None
        self._last_frame = b""
        self._cool()
        resumed = welcome.payload.get("resume")
        recovered = isinstance(resumed, dict) and bool(resumed.get("recovered"))
        reason = str(resumed.get("reason")) if isinstance(resumed, dict) and not recovered else None
        ended = self._view.welcome(welcome)
        # What was missed comes now, with lower positions than that of the welcome.
        self._last_seq = int(resumed["from_seq"]) - 1 if recovered and resumed else self._view.seq or 0
        self._connection = connection
        self._lost = asyncio.get_running_loop().create_future()
        self._connected.set()
        if not is_first:
            if not recovered:
                self._lost_track(reason or "this gateway cannot resume")
            self._publish(ended)
            self._publish([told.Resumed(recovered, reason, unconfirmed)])
            self._ask_again(connection)
        for stream in self.streams.values():
            self._bind_alias(stream)
        return self

    def _lost_track(self, reason: str) -> None:
        for queues in (*self._routes.values(), self._everything):
            for queue in queues:
                queue.put_missed(1)
        self._publish([told.Gap(None, None, reason)])

    def _ask_again(self, connection: Connection) -> None:
        """Requests whose answer was lost. Only where the gateway knows a repeated id from a new request."""
        if self._view.epoch is None:
            self._calls.fail(
                ConnectionClosed("the connection was lost before the gateway answered: nobody knows what it did")
            )
            return
        for body in self._calls.unanswered():
            connection.send(body, is_text=True)

    async def _supervise(self) -> None:
        """Keep a connection until there shall be none."""
        error: ConnectionClosed
        try:
            while True:
                assert self._lost is not None
                code, reason = await self._lost
                if self._reconnect is None or not may_reconnect(code):
                    error = ConnectionClosed(f"the gateway closed the connection: {reason or code}", code=code)
                    break
                self._publish([told.Disconnected(reason)])
                try:
                    await self._enter_again(self._reconnect)
                except ConnectError as failure:
                    error = ConnectionClosed(f"the connection could not be made again: {failure}", code=code)
                    break
        except asyncio.CancelledError:
            return
        self._end(error)

    async def _enter_again(self, backoff: Backoff) -> None:
        attempt = 0
        while True:
            await asyncio.sleep(backoff.delay(attempt))
            position = self.position
            resume = {"epoch": position[0], "seq": position[1]} if position is not None else None
            try:
                await self._door.enter(self._welcomed, resume)
                return
            except JoinRefused:
                raise
            except ConnectError:
                attempt += 1
                if backoff.is_over(attempt):
                    raise

    # -- the end ------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Send nothing more, wait until what was sent is recorded, and leave. What has been received can
        still be taken from subscriptions."""
        connection = self._connection
        if self._is_draining or self._closed is not None:
            return
        self._is_draining = True
        if connection is not None and self._sent > self._confirmed:
            with contextlib.suppress(FramesUnconfirmed, TimeoutError):
                await connection.writable()
                await self._flush(connection)
        await self.close()

    async def close(self) -> None:
        """Leave at once."""
        if self._supervisor is not None:
            self._supervisor.cancel()
        connection = self._connection
        self._end(ConnectionClosed("this space was closed here", code=1000))
        if connection is not None:
            await connection.close()

    def _end(self, error: ConnectionClosed) -> None:
        if self._closed is not None:
            return
        self._closed = error
        self._connected.set()  # whoever waits for a connection learns that there will be none
        self._calls.fail(error)
        self._tools.cancel()
        self._proposals.fail(error)
        failure = None if error.code == 1000 else error
        for queues in (*self._routes.values(), self._everything):
            for queue in queues:
                queue.end(failure)
        for feed in self._feeds:
            feed.end(failure)
        self._cool()
        self._routes.clear()
        self._everything.clear()
        self._feeds.clear()

    async def wait_closed(self) -> None:
        """Wait until the connection has ended for good."""
        if self._supervisor is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._supervisor)

    async def __aenter__(self) -> Space:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.drain()
        else:
            await self.close()


class Connecting:
    """A space being joined: ``await`` it, or use it with ``async with``."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Space]]) -> None:
        self.make = make
        self._space: Space | None = None

    def __await__(self) -> Generator[Any, None, Space]:
        return self.make().__await__()

    async def __aenter__(self) -> Space:
        self._space = await self.make()
        return self._space

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._space is not None
        await self._space.__aexit__(kind, error, traceback)


def connect(
    url: str = "ws://127.0.0.1:8080",
    *,
    space: str | None = None,
    participant: str | None = None,
    token: Token | None = None,
    reconnect: Backoff | bool = True,
    ssl: ssl_module.SSLContext | None = None,
    connect_timeout: float = 10.0,
    request_timeout: float = REQUEST_SECONDS,
) -> Connecting:
    """Join a space.

        async with mewstream.connect("ws://127.0.0.1:8080", space="demo", participant="ai", token=token) as space:
            ...

    ``space`` may be left out where the gateway serves one only, ``participant`` where the token says it.
    ``token`` may be a function, or an async one, that is called for every connection. A lost connection
    is made again with growing, random delays, and goes on where it was: see
    :class:`mewstream.told.Resumed`. ``reconnect=False`` ends the space instead.

    Leaving the block drains: what was sent is recorded before we go.
    """
    address = websocket_url(url)
    backoff = (Backoff() if reconnect else None) if isinstance(reconnect, bool) else reconnect

    async def make() -> Space:
        door = Door(
            address,
            space=space,
            participant=participant,
            token=token,
            ssl_context=ssl,
            timeout=connect_timeout,
        )
        made = Space(door, reconnect=backoff, request_timeout=request_timeout)
        await made._open()
        return made

    return Connecting(make)


def result_of(response: Message) -> Any:
    """The result in an ``mcp/response``, or the error in it as an exception."""
    payload = response.payload
    error = payload.get("error")
    if error is not None:
        if not isinstance(error, dict):
            raise McpError(str(error))
        raise McpError(
            str(error.get("message", "the request failed")), code=error.get("code", -32000), data=error.get("data")
        )
    return payload.get("result", payload)


def _seq_of(frame: bytes) -> int:
    """The position in a raw frame that has one."""
    parts = frame[: frame.find(b"#", 1)].split(b"|", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0


def _on(connection: Connection | None, method: Callable[[Connection, object], None], why: object) -> None:
    if connection is not None:
        method(connection, why)


def _discard(queues: list[Any], queue: Any) -> None:
    with contextlib.suppress(ValueError):
        queues.remove(queue)


def _some(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
