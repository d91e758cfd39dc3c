"""A space that a participant has joined: the main object of the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from mewstream.client import messages, untrusted
from mewstream.client.acknowledgements import Acknowledgements
from mewstream.client.awaitable import AwaitableContext
from mewstream.client.backoff import Backoff
from mewstream.client.errors import ConnectionClosed, McpError, RequestTimeout, refusal
from mewstream.client.events import Event, Proposed, Requested
from mewstream.client.format import Format
from mewstream.client.inbox import Inbox
from mewstream.client.joining import Joiner
from mewstream.client.link import Link
from mewstream.client.mcp import Handler, Tools, result_of
from mewstream.client.messages import Message, without_none
from mewstream.client.proposals import Proposal
from mewstream.client.queue import BoundedQueue, FrameQueue, OnSlow
from mewstream.client.schema_checks import require_schema_checks
from mewstream.client.state import State
from mewstream.client.stream import Stream
from mewstream.client.subscription import Events, Subscription
from mewstream.client.view import Participants, Streams, View
from mewstream.protocol import kinds
from mewstream.protocol.close_codes import NORMAL
from mewstream.protocol.errors import AlreadyExists, InvalidOperation, MewError
from mewstream.protocol.position import Position

if TYPE_CHECKING:
    from types import TracebackType

MAX_PENDING_FRAMES = 10_000
MAX_PENDING_EVENTS = 10_000
REQUEST_SECONDS = 30.0


class Invitation(msgspec.Struct, frozen=True):
    """What an invited participant needs to join. The token is given here once, and nowhere else."""

    participant: str
    token: str
    url: str | None

    def __repr__(self) -> str:
        return f"Invitation(participant={self.participant!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("participant", self.participant)]


class Opening(AwaitableContext[Stream]):
    """A stream being opened: ``await`` it, or use it with ``async with``, which closes the stream at the end."""


class Space(AbstractAsyncContextManager["Space"]):
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
        self._tools = Tools(self)
        view = View(joiner.participant or "", lambda described: Stream(self, described))
        self._inbox = Inbox(view, self._tools, Acknowledgements(self))
        self._link = self._inbox.link = Link(joiner, self._inbox, reconnect=reconnect, timeout=request_timeout)
        self._view = self._inbox.view
        self._calls = self._inbox.calls

    # -- the state of the space ---------------------------------------------------------------------

    @property
    def participant(self) -> str:
        """Our own id."""
        return self._view.me

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
    ) -> Opening:
        """Open a stream to which frames can be sent immediately.

        ``target`` names its readers (default: everyone), ``auto_grant`` its writers. ``validate`` checks what we send
        against the stream's format before it is sent; ``enforce_formats`` makes the gateway refuse whatever anybody
        sends that is not of its format. Any other field is kept with the stream and shown to everyone.

        Returns the :class:`Stream` when awaited, or with ``async with``, which closes it at the end if we still own
        it. Raises :class:`CapabilityViolation`, :class:`TargetNotFound`, what every request raises, and
        :class:`ConfigError` if ``validate`` needs the extra ``schemas``, which is not installed.
        """
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
            enforce_formats=enforce_formats,
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
        enforce_formats: bool = False,
        **fields: Any,
    ) -> Opening:
        """Open a stream by the handshake of announce, ready and start: frames can be sent after ``start()``.
        ``desired_id`` becomes its alias if that is free; the other options are those of :meth:`open_stream`. Returns
        and raises as that does."""
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
            enforce_formats=enforce_formats,
            **fields,
        )

    def _opening(self, kind: str, validate: bool, *, enforce_formats: bool, **fields: Any) -> Opening:
        if validate:
            require_schema_checks()
        if (formats := fields.get("formats")) is not None:
            fields["formats"] = [each.as_dict() if isinstance(each, Format) else each for each in formats]
        payload = without_none(validate="enforce" if enforce_formats else None, **fields)
        return Opening(lambda: self._open_stream(kind, payload, validate))

    async def _open_stream(self, kind: str, payload: Mapping[str, Any], validate: bool) -> Stream:
        id = self._calls.next_id()
        try:
            answer_kind = kinds.STREAM_OPEN if kind == kinds.STREAM_REQUEST else kinds.STREAM_READY
            answer = await self._call(kind, payload, answer=answer_kind, id=id)
        except (asyncio.CancelledError, RequestTimeout):
            self._inbox.abandon(id)  # the stream may still be opened, and nobody would close it
            raise
        described = untrusted.as_object(answer.payload.get("stream", answer.payload))
        stream_id = untrusted.text(described.get("stream_id"))
        if stream_id is None:
            raise MewError("the gateway answered without the id of the stream: it speaks another protocol")
        # The view has it already, unless it was ended in the meantime.
        stream = self.streams.get(stream_id) or Stream(self, described)
        stream._validates = validate
        return stream

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

        Returns a :class:`Subscription`, which has ended already if the stream or the space has. Raises ValueError
        for an unknown ``on_slow`` or a queue of less than 1.
        """
        if max_pending is None:
            max_pending = 1 if on_slow == "latest" else MAX_PENDING_FRAMES
        queue = FrameQueue(max_pending, on_slow, hold=self._link.hold, release=self._link.release)
        if self.is_closed or (isinstance(stream, Stream) and not stream.is_open):
            queue.end(self.error)
            return Subscription(queue, lambda: None)
        name = stream.id if isinstance(stream, Stream) else stream
        known = self.streams.get(name) if name is not None else None
        detach = self._inbox.routes.add(queue, known.id if known is not None else name, is_known=known is not None)
        return Subscription(queue, detach)

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
        return await self._call(
            kind, {} if payload is None else payload, to=to, correlation_id=correlation_id, context=context
        )

    def has_sent(self, id: str) -> bool:
        """Return whether this object sent the message with this id, and not another program with the same name."""
        return self._calls.is_own(id)

    async def chat(self, text: str, *, to: str | Sequence[str] | None = None) -> Message:
        """Send a chat message. Returns and raises as :meth:`send` does."""
        return await self._call(kinds.CHAT, {"text": text}, to=to)

    async def request(
        self, method: str, params: Any = None, *, to: str | Sequence[str], timeout: float | None = None
    ) -> Any:
        """Send an MCP request to another participant, or to several of whom the first answer counts. Returns the
        result. Raises :class:`McpError` if the answer is an error, :class:`RequestTimeout` if none comes within
        ``timeout`` seconds, and what every request raises."""
        payload = without_none(method=method, params=params)
        answer = await self._call(kinds.MCP_REQUEST, payload, to=to, answer=kinds.MCP_RESPONSE, timeout=timeout)
        return result_of(answer)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, to: str, timeout: float | None = None
    ) -> Any:
        """Call a tool that another participant serves. Returns and raises as :meth:`request` does."""
        return await self.request("tools/call", {"name": name, "arguments": arguments or {}}, to=to, timeout=timeout)

    async def respond(self, request: Requested, result: Any = None, *, error: McpError | None = None) -> None:
        """Answer an MCP request that came as an event, by its result or an error. Raises what every request raises."""
        assert request.message is not None
        payload: dict[str, Any] = {"result": result}
        if error is not None:
            payload = {"error": without_none(code=error.code, message=error.message, data=error.data)}
        await self._call(kinds.MCP_RESPONSE, payload, to=request.sender, correlation_id=request.message.id)

    def tool(
        self, name: str, handler: Handler, schema: dict[str, Any] | None = None, *, description: str | None = None
    ) -> None:
        """Serve an MCP tool to the space. The handler is called with the arguments by name: an async function in a
        task, a plain one in a thread. Arguments that do not match ``schema`` never reach it. Raises TypeError if
        the handler is no function, and :class:`ConfigError` if a ``schema`` needs the extra ``schemas``."""
        self._tools.add(name, handler, schema, description)

    # -- proposals ----------------------------------------------------------------------------------

    async def propose(self, method: str, params: Any = None, *, to: str | Sequence[str] | None = None) -> Proposal:
        """Propose a request that we may not make ourselves. Returns a :class:`Proposal`, whose result can be awaited.
        Raises what every request raises."""
        payload = without_none(method=method, params=params)
        id = self._calls.next_id()
        proposal = self._inbox.proposals.add(id, self, messages.names(to) or ())
        await self._call(kinds.MCP_PROPOSAL, payload, to=to, id=id)
        return proposal

    async def fulfil(
        self, proposal: Proposed, *, to: str | Sequence[str] | None = None, timeout: float | None = None
    ) -> Any:
        """Make the request that another participant has proposed. Returns and raises as :meth:`request` does; raises
        ValueError if neither ``to`` nor the proposal names a participant who is to carry it out."""
        target = to or proposal.to
        if not target:
            raise ValueError("the proposal does not say who is to carry it out: give to=")
        answer = await self._call(
            kinds.MCP_REQUEST,
            without_none(method=proposal.method, params=proposal.params),
            to=target,
            correlation_id=proposal.proposal,
            answer=kinds.MCP_RESPONSE,
            timeout=timeout,
        )
        return result_of(answer)

    async def reject(self, proposal: Proposed | str, *, reason: str | None = None) -> None:
        """Reject a proposal of another participant, by its event or id. Raises what every request raises."""
        await self._about(kinds.MCP_REJECT, proposal if isinstance(proposal, str) else proposal.proposal, reason)

    async def _about(self, kind: str, proposal: str, reason: str | None) -> None:
        await self._call(kind, {"reason": reason} if reason else {}, correlation_id=proposal)

    # -- participants -------------------------------------------------------------------------------

    async def invite(self, participant: str, *, capabilities: Sequence[Any] | None = None) -> Invitation:
        """Invite a new participant. Returns an :class:`Invitation` with the token, which is sent to nobody else. Raises
        :class:`AlreadyExists` if the name is taken, and what every request raises."""
        payload = without_none(participant_id=participant, capabilities=capabilities)
        answer = (await self._call(kinds.INVITE, payload, answer=kinds.INVITE_ACK)).payload
        status = answer.get("status")
        if status in (AlreadyExists.code, "error"):  # some gateways send no system/error beside it
            code = AlreadyExists.code if status == AlreadyExists.code else InvalidOperation.code
            raise refusal({"message": f"{participant} could not be invited", "error": code, **answer})
        token = untrusted.text(answer.get("token"))
        if not token:
            raise AlreadyExists(f"{participant} was invited before and has joined: its token is not given again")
        id = untrusted.text(answer.get("participant_id")) or participant
        return Invitation(id, token, untrusted.text(answer.get("connection_url")))

    async def kick(self, participant: str, *, reason: str | None = None) -> None:
        """Remove a participant from the space. Raises :class:`ParticipantNotFound`, and what every request raises."""
        await self._call(kinds.KICK, without_none(participant_id=participant, reason=reason))

    async def grant_capabilities(
        self, participant: str, capabilities: Sequence[Any], *, reason: str | None = None
    ) -> str:
        """Grant capabilities that we hold ourselves. Returns the id of the grant, for :meth:`revoke_capabilities`.
        Raises :class:`CapabilityViolation`, and what every request raises."""
        payload = without_none(recipient=participant, capabilities=capabilities, reason=reason)
        return (await self._call(kinds.CAPABILITY_GRANT, payload, to=participant)).id

    async def revoke_capabilities(
        self,
        participant: str,
        *,
        grant_id: str | None = None,
        capabilities: Sequence[Any] | None = None,
        reason: str | None = None,
    ) -> None:
        """Revoke granted capabilities, by the id of the grant or by patterns. Raises what every request raises."""
        payload = without_none(recipient=participant, grant_id=grant_id, capabilities=capabilities, reason=reason)
        await self._call(kinds.CAPABILITY_REVOKE, payload, to=participant)

    # -- requests -----------------------------------------------------------------------------------

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
        """Send an envelope and wait for the message that answers it: one of the kind ``answer``, or our own message
        as the gateway relays it. Returns that message."""
        id = id or self._calls.next_id()
        addressed = messages.names(to)
        body = messages.encode(
            kind, payload, id=id, to=addressed, correlation_id=messages.names(correlation_id), context=context
        )
        seconds = self._request_timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                connection = await self._link.ready()
                future = self._calls.begin(id, body, answer, self._answerers(answer, addressed))
                connection.send(body, is_text=True)
                return await future
        except TimeoutError:
            raise RequestTimeout(f"{kind} was not answered within {seconds:g} seconds") from None
        finally:
            self._calls.forget(id)

    def _answerers(self, answer: str | None, addressed: list[str] | None) -> Sequence[str]:
        if answer is None:
            return (self.participant,)
        return addressed or () if answer == kinds.MCP_RESPONSE else (kinds.GATEWAY,)

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

    # -- the end ------------------------------------------------------------------------------------

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
