"""A participant in a space: the one object that the SDK is about."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mewstream.client import events as told
from mewstream.client import loose, messages
from mewstream.client.acknowledging import Acknowledgements
from mewstream.client.backoff import Backoff
from mewstream.client.errors import ConnectionClosed, McpError, RequestTimeout, refusal
from mewstream.client.format import Format
from mewstream.client.inbox import Inbox
from mewstream.client.joining import Door
from mewstream.client.link import Link
from mewstream.client.mcp import Handler, Tools, result_of
from mewstream.client.messages import Message
from mewstream.client.proposals import Proposal
from mewstream.client.queue import BoundedQueue, FrameQueue, OnSlow
from mewstream.client.stream import Opening, Stream
from mewstream.client.subscription import Events, Subscription
from mewstream.client.view import Participants, Streams, View
from mewstream.protocol import kinds
from mewstream.protocol.errors import AlreadyExists, InvalidOperation, MewError

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

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("participant", self.participant)]


class Space:
    """Made by :func:`connect`. Everything that reads is a live view or an ``async for``; everything
    that acts waits until the gateway has said yes, and raises what it said otherwise."""

    def __init__(self, door: Door, *, reconnect: Backoff | None, request_timeout: float) -> None:
        self._name = door.space
        self._request_timeout = request_timeout
        self._tools = Tools(self)
        view = View(door.participant or "", lambda described: Stream(self, described))
        self._inbox = Inbox(view, self._tools, Acknowledgements(self))
        self._link = self._inbox.link = Link(door, self._inbox, reconnect=reconnect, timeout=request_timeout)
        self._view = self._inbox.view
        self._calls = self._inbox.calls

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
        if self._link.has_positions:
            found |= {"positions", "resume"}
        return frozenset(found)

    @property
    def position(self) -> tuple[str, int] | None:
        """Epoch and seq of the newest message seen, where the gateway tells."""
        return self._link.position

    @property
    def is_connected(self) -> bool:
        return self._link.is_connected

    @property
    def is_closed(self) -> bool:
        """It has ended for good."""
        return self._link.error is not None

    @property
    def error(self) -> ConnectionClosed | None:
        """Why it has ended, where we did not end it ourselves."""
        error = self._link.error
        return None if error is None or error.code == 1000 else error

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
        """Open a stream that is live at once: ``await`` it, or use it with ``async with``, which closes it
        at the end if we still own it. ``target`` names its readers (default: everyone), ``auto_grant``
        its writers. ``validate`` checks what we send against its format before it is sent;
        ``enforce_formats`` lets the gateway refuse what anybody sends and is not of its format. Any
        other field is kept with the stream and shown to everyone."""
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
            enforce_formats=enforce_formats,
            **fields,
        )

    def _opening(self, kind: str, validate: bool, *, enforce_formats: bool, **fields: Any) -> Opening:
        if (formats := fields.get("formats")) is not None:
            fields["formats"] = [each.as_dict() if isinstance(each, Format) else each for each in formats]
        payload = _some(validate="enforce" if enforce_formats else None, **fields)
        return Opening(self, kind, payload, validate=validate)

    async def stream(self, name: str, *, timeout: float | None = None) -> Stream:
        """The stream of this id or alias; waits until somebody opens it."""
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
        self,
        stream: Stream | str | None = None,
        *,
        on_slow: OnSlow = "drop-oldest",
        max_pending: int | None = None,
    ) -> Subscription:
        """The frames of a stream (by object, id or alias) from now on; of all streams without one.

        Frames wait in a queue of ``max_pending`` (default: 10000). When the reader is too slow for that,
        ``drop-oldest`` forgets the oldest, and ``pause`` stops reading from the gateway, which holds up
        everything else of this connection too. ``latest`` forgets all but the newest (for positions in
        a game) when there are more than ``max_pending`` (default: 1)."""
        if max_pending is None:
            max_pending = 1 if on_slow == "latest" else MAX_PENDING_FRAMES
        queue = FrameQueue(max_pending, on_slow, hold=self._link.hold, release=self._link.release)
        if self._link.error is not None:
            queue.end(self.error)
            return Subscription(queue, lambda: None)
        if isinstance(stream, Stream) and not stream.is_open:
            queue.end()
            return Subscription(queue, lambda: None)
        name = stream.id if isinstance(stream, Stream) else stream
        known = self.streams.get(name) if name is not None else None
        detach = self._inbox.routes.add(queue, known.id if known is not None else name, is_known=known is not None)
        return Subscription(queue, detach)

    def events(self, *, max_pending: int = MAX_PENDING_EVENTS) -> Events:
        """Everything but frames, from now on, as typed events; see :mod:`mewstream.client.events`. The
        oldest are forgotten where more than ``max_pending`` wait."""
        queue: BoundedQueue[told.Event] = BoundedQueue(max_pending)
        if self._link.error is not None:
            queue.end(self.error)
            return Events(queue, lambda: None)
        return Events(queue, self._inbox.routes.add_feed(queue))

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
        """Send an envelope of any kind, and wait until the gateway has relayed it. Returns it as relayed."""
        return await self._call(
            kind, {} if payload is None else payload, to=to, correlation_id=correlation_id, context=context
        )

    def has_sent(self, id: str) -> bool:
        """Whether the message of this id was sent here, and not by another program under the same name."""
        return self._calls.has_made(id)

    async def chat(self, text: str, *, to: str | Sequence[str] | None = None) -> Message:
        return await self._call(kinds.CHAT, {"text": text}, to=to)

    async def request(
        self, method: str, params: Any = None, *, to: str | Sequence[str], timeout: float | None = None
    ) -> Any:
        """Ask another participant by MCP and wait for its answer; of several, for the first. Raises
        :class:`McpError` if that is an error."""
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
        id = self._calls.next_id()
        proposal = self._inbox.proposals.add(id, self, messages.names(to) or ())
        await self._call(kinds.MCP_PROPOSAL, payload, to=to, id=id)
        return proposal

    async def fulfil(
        self, proposal: told.Proposed, *, to: str | Sequence[str] | None = None, timeout: float | None = None
    ) -> Any:
        """Carry out what another has proposed: the same request, in our name, that names the proposal. Returns its
        result."""
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
        """Let somebody new in. The token comes back to us alone. Raises :class:`AlreadyExists` where somebody has
        that name."""
        payload: dict[str, Any] = {"participant_id": participant}
        if capabilities is not None:
            payload["capabilities"] = list(capabilities)
        answer = (await self._call(kinds.INVITE, payload, answer=kinds.INVITE_ACK)).payload
        status = answer.get("status")
        if status in (AlreadyExists.code, "error"):  # of gateways that say no error beside it
            code = AlreadyExists.code if status == AlreadyExists.code else InvalidOperation.code
            raise refusal({"message": f"{participant} could not be invited", "error": code, **answer})
        token = loose.text(answer.get("token"))
        if not token:
            raise AlreadyExists(f"{participant} was invited before and has come: its token is not told again")
        id = loose.text(answer.get("participant_id")) or participant
        return Invitation(id, token, loose.text(answer.get("connection_url")))

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

    # -- asking the gateway ---------------------------------------------------------------------------

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
        """Send an envelope and wait for what answers it: our own message, relayed, or another kind."""
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

    def _opened(self, answer: Message) -> Stream:
        """The stream that answers a request: known already, unless somebody was quick to end it."""
        described = loose.as_object(answer.payload.get("stream", answer.payload))
        id = loose.text(described.get("stream_id"))
        if id is None:
            raise MewError("the gateway answered without the id of the stream: it speaks another protocol")
        return self.streams.get(id) or Stream(self, described)

    async def _know_everything(self) -> None:
        """Until the pages have come of what a welcome had no room for; usually there are none."""
        try:
            async with asyncio.timeout(self._request_timeout):
                await self._inbox.pages.wait()
        except TimeoutError:
            raise RequestTimeout(
                f"the gateway did not list all streams and participants within {self._request_timeout:g} seconds"
            ) from None
        if self._link.error is not None:
            raise self._link.error.again()

    # -- the end ------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until every frame sent so far is recorded by the gateway, as safe as its durability says.
        Raises :class:`FramesUnconfirmed` where a connection was lost before that was known of some."""
        await self._link.flush()

    async def drain(self) -> None:
        """Send nothing more, wait until what was sent is recorded, and leave. What has been received can
        still be taken from subscriptions. Raises :class:`FramesUnconfirmed` like :meth:`flush`."""
        await self._link.drain()

    async def close(self) -> None:
        """Leave at once."""
        await self._link.close()

    async def wait_closed(self) -> None:
        """Wait until the connection has ended for good; :attr:`error` says why."""
        await self._link.wait_closed()

    async def __aenter__(self) -> Space:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.drain()
        else:
            await self.close()


def _some(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
