"""Dispatches what the gateway sends. It runs while a message is being read, so nothing here waits or calls code of
the user."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mewstream.client import events, messages, untrusted
from mewstream.client.calls import Calls
from mewstream.client.confirmations import SMALL_BYTES
from mewstream.client.confirmed import Confirmed
from mewstream.client.errors import AnswerLost, ConnectionClosed
from mewstream.client.interest import Interest
from mewstream.client.mcp import PROGRESS
from mewstream.client.messages import Message
from mewstream.client.notifications import Notifications
from mewstream.client.pages import Pages
from mewstream.client.proposals import Proposals
from mewstream.client.routes import Routes
from mewstream.protocol import kinds
from mewstream.protocol.close_codes import NORMAL, CloseReason
from mewstream.protocol.errors import LimitExceeded, PeerError

if TYPE_CHECKING:
    from mewstream.client.acknowledgements import Acknowledgements
    from mewstream.client.controlled import Controlled
    from mewstream.client.link import Link
    from mewstream.client.mcp_server import McpServer
    from mewstream.client.view import View

#: How many requests are remembered for streams that nobody waits for any longer; the oldest are forgotten.
_MAX_ABANDONED = 100
_SUBSCRIPTIONS = frozenset({kinds.STREAM_SUBSCRIBED, kinds.STREAM_UNSUBSCRIBED})
_PAGES = frozenset({kinds.STREAM_LISTED, kinds.PARTICIPANT_LISTED})


class Inbox:
    """Passes each message to the view, pending calls, subscriptions, what we serve and the acknowledgements."""

    link: Link

    def __init__(
        self, view: View, server: McpServer, controlled: Controlled, acknowledgements: Acknowledgements
    ) -> None:
        self.view = view
        self.calls = Calls()
        self.confirmed = Confirmed()
        self.proposals = Proposals()
        self.notifications = Notifications(self.calls.next_id, self._post_if_room)
        self.pages = Pages(view, self.post)
        self.routes = Routes()
        self.interest = Interest(self.routes.wanted, self.post)
        self.routes.on_change = self.interest.update
        self._server = server
        self._controlled = controlled
        self._acknowledgements = acknowledgements
        self._knows_what_was_too_large = False
        """Whether the gateway has refused a message for its size, before it closes the connection for that."""
        self._epoch: str | None = None
        """The run of the gateway that we were connected with last."""
        self._abandoned: OrderedDict[str, None] = OrderedDict()
        """Requests for streams that nobody waits for any longer."""

    def post(
        self, kind: str, payload: Any, *, to: list[str] | None = None, correlation_id: list[str] | None = None
    ) -> str:
        """Send an envelope if there is a connection, and wait for nothing. Returns its id."""
        id = self.calls.next_id()
        self.link.post(messages.encode(kind, payload, id=id, to=to, correlation_id=correlation_id))
        return id

    def _post_if_room(self, body: bytes) -> bool:
        """Send an envelope if there is a connection that keeps up. Returns whether there is."""
        if not self.link.has_room:
            return False
        self.link.post(body)
        return True

    def abandon(self, request: str) -> None:
        """Close the stream that this request opens, if it still opens one."""
        self._abandoned[request] = None
        if len(self._abandoned) > _MAX_ABANDONED:
            self._abandoned.popitem(last=False)

    def envelope(self, message: Message) -> None:
        """Dispatch an envelope."""
        if message.kind == kinds.STREAM_DATA:
            self.routes.data(message)
            self.calls.received(message)
        elif message.kind in _SUBSCRIPTIONS and message.is_from_gateway:
            pass  # nobody waits for it: what we want is told with every connection
        elif message.kind in _PAGES and message.is_from_gateway:
            self._page(message)
        elif message.kind == kinds.WELCOME and message.is_from_gateway:
            self._publish(self.view.welcome(message))
            self.pages.welcomed(message, has_events=True)
            self.notifications.capabilities_changed()
            self._publish([events.CapabilitiesChanged(self.view.capabilities, message=message)])
        elif message.kind == kinds.INVITE_ACK or (self.link.has_seen(message) and self.calls.answers_repeated(message)):
            # An invitation holds a token, and a repeated answer has had its event: both are for the caller alone.
            self.calls.received(message)
        else:
            self._message(message)

    def _message(self, message: Message) -> None:
        event = self.view.apply(message)
        answered = self.calls.received(message)
        answered |= self.confirmed.received(message)
        self.proposals.received(message)
        if message.kind == kinds.CAPABILITY_GRANT:
            self._acknowledgements.received(message)
        if isinstance(event, events.Refused):
            if self.notifications.refused(message):
                return
            if not answered and _is_about_size(event.error):
                answered = self._fail_largest(event.error)
            if answered:
                return  # the caller gets the refusal as an exception
        if event is not None:
            self._publish([event])

    def _page(self, page: Message) -> None:
        found = self.pages.received(page)
        for stream in untrusted.objects(page.payload.get("streams")):
            if id := untrusted.text(stream.get("stream_id")):
                self.routes.stream_opened(id, untrusted.text(stream.get("alias")))
        self._publish(found)

    def _fail_largest(self, error: PeerError) -> bool:
        """Fail the largest message that is not answered yet. A gateway does not read a message that is too large, so
        its refusal does not say which one that is. Returns whether it was a request, whose caller gets the refusal."""
        self._knows_what_was_too_large = True
        stream = max(self.view.streams.values(), key=lambda each: each._tally.largest, default=None)
        largest = stream._tally.largest if stream is not None else 0
        if self.calls.fail_largest(error, larger_than=max(largest, SMALL_BYTES)):
            return True
        if stream is not None and largest:
            stream._refusal = error
        return False

    def welcomed(self, welcome: Message, resumed: events.Resumed | None) -> None:
        """Begin with the state in a welcome. ``resumed`` is None for the first one of a link."""
        is_replay_due = resumed is not None and resumed.recovered
        self.routes.end_run()
        found = self.view.welcome(welcome, is_replay_due=is_replay_due)
        for stream in self.view.streams.values():
            self.routes.stream_opened(stream.id, stream.alias)
        self.interest.welcomed(welcome)
        self.pages.welcomed(welcome, has_events=resumed is not None and not is_replay_due)
        if resumed is None:
            self._epoch = self.link.epoch
            return
        is_same_run = self.link.epoch == self._epoch
        self._epoch = self.link.epoch
        if not resumed.recovered:
            if is_same_run:
                self.calls.missed()
            self.routes.frames_lost()
            self._publish([events.Gap(None, None, resumed.reason or "")])
        self._publish([*found, resumed])
        if self.link.epoch is None:
            # This gateway would take a repetition for a new request.
            self.calls.fail(lambda: AnswerLost("the connection was lost before the gateway answered"))
        for body in self.calls.repeat():
            self.link.post(body)

    def connection_lost(self, code: int) -> None:
        """Fail whatever may have been too large for the gateway: it must not be sent again."""
        if code == CloseReason.TOO_BIG.value.code and not self._knows_what_was_too_large:
            self.calls.fail(_too_large, larger_than=SMALL_BYTES)
            for stream in self.view.streams.values():
                if stream._tally.largest:
                    stream._refusal = _too_large()
        self._knows_what_was_too_large = False

    def disconnected(self, reason: str) -> None:
        """Report that the connection was lost and that the link is reconnecting."""
        self._publish([events.Disconnected(reason)])

    def ended(self, error: ConnectionClosed) -> None:
        """Fail everything that waits for the link, which has ended."""
        self.calls.fail(error.again)
        self.proposals.fail(error)
        self._server.end()
        self._controlled.end()
        self._acknowledgements.cancel()
        self.pages.end()
        self.routes.end(None if error.code == NORMAL else error)

    def _publish(self, found: Sequence[events.Event]) -> None:
        for event in found:
            self._follow(event)
        self.routes.publish(found)

    def _follow(self, event: events.Event) -> None:
        """Do what an event means for subscriptions, for streams that we write, and for requests from us and to us."""
        match event:
            case events.StreamOpened(stream=id, handle=stream):
                self.routes.stream_opened(id, stream.alias)
                if self._abandoned and event.message is not None:
                    self._close_abandoned(id, event.message)
            case events.StreamClosed(stream=id):
                self.routes.stream_ended(id)
            case events.Refused(error=error):
                refused = self.view.streams.get(untrusted.text(error.details.get("stream_id")) or "")
                if refused is not None:
                    refused._refusal = error
            case events.Gap(stream=id, count=count, message=notice) if id is not None and notice is not None:
                first = untrusted.number(notice.payload.get("first_seq"))
                self.routes.frames_dropped(id, count or 1, first or 0)
            case events.TokenExpiring(message=notice) if notice is not None and notice.is_from_gateway:
                self.link.renew_token()
            case events.Requested():
                self._server.received(event)
            case events.Notified(method=method, sender=sender, params=params):
                if method == PROGRESS:
                    self.calls.progressed(sender, params)
                self._server.notified(event)
            case events.Instructed():
                self._controlled.received(event)
            case events.Left(participant=participant):
                self.calls.left(participant)
                self.proposals.left(participant)
                self._server.left(participant)

    def _close_abandoned(self, stream: str, opened: Message) -> None:
        for request in opened.correlation_id:
            if request in self._abandoned and opened.is_from_gateway:
                del self._abandoned[request]
                self.post(kinds.STREAM_CLOSE, {"stream_id": stream})


def _is_about_size(error: PeerError) -> bool:
    """Return whether a whole message was too large, so that the gateway has not read it."""
    return (
        isinstance(error, LimitExceeded)
        and error.details.get("limit") == "message_bytes"
        and "stream_id" not in error.details
    )


def _too_large() -> LimitExceeded:
    return LimitExceeded("the message is larger than the gateway takes", limit="message_bytes")
