"""What comes from the gateway, and whom it concerns. All of it runs in the moment of reading: nothing
here waits, and nothing of the user's is called."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mewstream.client import events as told
from mewstream.client import loose, messages
from mewstream.client.calls import Calls
from mewstream.client.confirming import SMALL_BYTES
from mewstream.client.errors import AnswerLost, ConnectionClosed
from mewstream.client.messages import Message
from mewstream.client.pages import Pages
from mewstream.client.proposals import Proposals
from mewstream.client.routes import Routes
from mewstream.protocol import kinds
from mewstream.protocol.errors import LimitExceeded, PeerError

if TYPE_CHECKING:
    from mewstream.client.acknowledging import Acknowledgements
    from mewstream.client.link import Link, Return
    from mewstream.client.mcp import Tools
    from mewstream.client.view import View

_MAX_ABANDONED = 100
_LISTED = frozenset({kinds.STREAM_LISTED, kinds.PARTICIPANT_LISTED})
#: The close code of the standard for a message that is too large.
_TOO_BIG = 1009


class Inbox:
    """The view, those who wait for answers, those who read, our tools, and what we acknowledge."""

    link: Link

    def __init__(self, view: View, tools: Tools, acknowledgements: Acknowledgements) -> None:
        self.view = view
        self.calls = Calls()
        self.proposals = Proposals()
        self.pages = Pages(view, self.post)
        self.routes = Routes()
        self._tools = tools
        self._acknowledgements = acknowledgements
        self._was_told_too_large = False
        """The gateway has said which message was too large, before it closed the connection for that."""
        self._abandoned: OrderedDict[str, None] = OrderedDict()
        """Requests for streams that nobody waits for any more."""

    def post(self, kind: str, payload: Any) -> str:
        """Send, if that is possible now, and do not wait for an answer. Returns the id of the message."""
        id = self.calls.next_id()
        self.link.post(messages.encode(kind, payload, id=id))
        return id

    def abandon(self, request: str) -> None:
        """If this request still opens a stream, that is closed at once."""
        self._abandoned[request] = None
        if len(self._abandoned) > _MAX_ABANDONED:
            self._abandoned.popitem(last=False)

    def envelope(self, message: Message) -> None:
        if message.kind == kinds.STREAM_DATA:
            self.routes.data(message)
            self.calls.received(message)
            return
        if message.kind in _LISTED and message.is_from_gateway:
            self._list(message)
            return
        if message.kind == kinds.WELCOME and message.is_from_gateway:
            self._tell(self.view.welcome(message))
            self.pages.welcomed(message, is_news=True)
            self._tell([told.CapabilitiesChanged(self.view.capabilities, message=message)])
            return
        if message.kind == kinds.INVITE_ACK:
            # It holds a token: for whoever invited, and for no event.
            self.calls.received(message)
            return
        if self.link.is_past(message) and self.calls.is_about_repeated(message):
            self.calls.received(message)
            return
        event = self.view.apply(message)
        answered = self.calls.received(message)
        self.proposals.received(message)
        if message.kind == kinds.CAPABILITY_GRANT:
            self._acknowledgements.received(message)
        if isinstance(event, told.Refused) and not answered and _is_about_size(event.error):
            answered = self._blame_largest(event.error)
        if event is not None and not (answered and isinstance(event, told.Refused)):
            self._tell([event])  # whoever waits for a refusal gets it as an exception

    def _list(self, page: Message) -> None:
        found = self.pages.received(page)
        for stream in loose.objects(page.payload.get("streams")):
            if id := loose.text(stream.get("stream_id")):
                self.routes.opened(id, loose.text(stream.get("alias")))
        self._tell(found)

    def _blame_largest(self, error: PeerError) -> bool:
        """A message that is too large is not read, so its refusal names none: it is the largest one that has not been
        answered. Whether that was a request, which then gets the refusal."""
        self._was_told_too_large = True
        stream = max(self.view.streams.values(), key=lambda each: each._tally.largest, default=None)
        largest = stream._tally.largest if stream is not None else 0
        if self.calls.fail_largest(error, larger_than=max(largest, SMALL_BYTES)):
            return True
        if stream is not None and largest:
            stream._refused(error)
        return False

    def welcomed(self, welcome: Message, returned: Return | None) -> None:
        self.routes.forget_run()
        found = self.view.welcome(welcome, is_told_more=returned is not None and returned.recovered)
        for stream in self.view.streams.values():
            self.routes.opened(stream.id, stream.alias)
        self.pages.welcomed(welcome, is_news=returned is not None and not returned.recovered)
        if returned is None:
            return
        if not returned.recovered:
            self.routes.lost_track()
            self._tell([told.Gap(None, None, returned.reason or "")])
        self._tell([*found, told.Resumed(returned.recovered, returned.reason, returned.unconfirmed)])
        self._ask_again()

    def _ask_again(self) -> None:
        """Requests whose answer was lost. Only where the gateway knows a repeated id from a new request."""
        if self.link.epoch is None:
            self.calls.fail(lambda: AnswerLost("the connection was lost before the gateway answered"))
        for body in self.calls.repeat():
            self.link.post(body)

    def connection_lost(self, code: int) -> None:
        """Whatever is too large is not sent again, and whoever sent it is told."""
        if code == _TOO_BIG and not self._was_told_too_large:
            self.calls.fail(_too_large, larger_than=SMALL_BYTES)
            for stream in self.view.streams.values():
                if stream._tally.largest:
                    stream._refused(_too_large())
        self._was_told_too_large = False

    def disconnected(self, reason: str) -> None:
        self._tell([told.Disconnected(reason)])

    def ended(self, error: ConnectionClosed) -> None:
        self.calls.fail(error.again)
        self.proposals.fail(error)
        self._tools.cancel()
        self._acknowledgements.cancel()
        self.pages.end()
        self.routes.end(None if error.code == 1000 else error)

    def _tell(self, events: Sequence[told.Event]) -> None:
        for event in events:
            self._follow(event)
        self.routes.publish(events)

    def _follow(self, event: told.Event) -> None:
        """What an event means for those who read and write streams, and for our tools."""
        match event:
            case told.StreamOpened(stream=id, handle=stream):
                self.routes.opened(id, stream.alias)
                if self._abandoned and event.message is not None:
                    self._close_abandoned(id, event.message)
            case told.StreamClosed(stream=id):
                self.routes.ended(id)
            case told.Refused(error=error):
                refused = self.view.streams.get(loose.text(error.details.get("stream_id")) or "")
                if refused is not None:
                    refused._refused(error)
            case told.Gap(stream=id, count=count, message=notice) if id is not None and notice is not None:
                first = loose.number(notice.payload.get("first_seq"))
                self.routes.dropped(id, count or 1, first or 0)
            case told.Requested():
                self._tools.received(event)

    def _close_abandoned(self, stream: str, opened: Message) -> None:
        for request in opened.correlation_id:
            if request in self._abandoned and opened.is_from_gateway:
                del self._abandoned[request]
                self.post(kinds.STREAM_CLOSE, {"stream_id": stream})


def _is_about_size(error: PeerError) -> bool:
    """Of a message as a whole, which the gateway has not read."""
    return (
        isinstance(error, LimitExceeded)
        and error.details.get("limit") == "message_bytes"
        and "stream_id" not in error.details
    )


def _too_large() -> LimitExceeded:
    return LimitExceeded("the message is larger than the gateway takes", limit="message_bytes")
