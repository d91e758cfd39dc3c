"""One connection that speaks HTTP: its requests one after another, each within the same limits.

The next request is not looked at before the answer to the last one has left our buffers, and nothing is read meanwhile:
whoever does not take answers gets no more of them. An upgrade to WebSocket may come at any request.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from enum import Enum
from typing import Any, cast

from mewstream.gateway import upgrade
from mewstream.gateway.config import GatewayConfig
from mewstream.gateway.connections import Seat, let_go
from mewstream.gateway.gateway import Gateway
from mewstream.gateway.http_chunks import BodyTooLarge
from mewstream.gateway.http_encoding import decode, encoding_of
from mewstream.gateway.http_message import BadRequest, HttpError, Request, Response, error_answer, too_large
from mewstream.gateway.http_parser import RequestParser
from mewstream.gateway.http_routes import Route, Routes
from mewstream.gateway.inbound import Turns
from mewstream.gateway.unsent_answers import UnsentAnswers
from mewstream.io.reading import Reading
from mewstream.protocol.errors import InvalidRequest, PeerError, ValidationFailed

log = logging.getLogger("mewstream.gateway")

#: One reading of a connection that has not upgraded.
READ_BYTES = 32 << 10
#: An answer is handed over in pieces of this size: over TLS it would be copied as a whole.
WRITE_BYTES = 64 << 10
#: So much may wait to be decrypted before nothing more is read: the library's default is four times as much.
TLS_READ_BYTES = 64 << 10
#: Whoever sends or takes something has more time for the rest: a large body or answer may be on a slow line.
SLOWEST_BYTES_PER_SECOND = 64 << 10
#: How long a peer that is refused may go on sending before the connection is cut. Were it cut at once, the system
#: would throw the answer away together with what was not read.
LINGER_SECONDS = 2.0
#: So much is read of a body that nobody asked for.
_PASSED_OVER = 64 << 10

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Phase(Enum):
    """What a connection is doing. Each phase but HANDLING has a time at which it is over."""

    IDLE = "idle"
    """Nothing of a request is here."""
    HEAD = "head"
    BODY = "body"
    HANDLING = "handling"
    ANSWERING = "answering"
    """An answer waits for its peer."""
    LINGERING = "lingering"
    """The last answer has left; what the peer still sends is thrown away."""
    CLOSED = "closed"
    """Closed by us, lost, or handed over."""


_READING = (Phase.IDLE, Phase.HEAD, Phase.BODY)
_BUSY = (Phase.HANDLING, Phase.ANSWERING)


class Front:
    """What all connections share."""

    def __init__(self, gateway: Gateway, routes: Routes, unsent: UnsentAnswers) -> None:
        self.gateway = gateway
        self.loop = gateway.loop
        self.config: GatewayConfig = gateway.config
        self.routes = routes
        self.unsent = unsent
        self.turns = Turns(gateway.loop)
        self.received = bytearray(READ_BYTES)
        """Where every connection is read into, to be copied from at once."""
        self.buffer = memoryview(self.received)
        self.open: set[HttpConnection] = set()
        """The connections that have not upgraded."""
        self._all_gone = asyncio.Event()
        shortest = min(
            self.config.head_timeout, self.config.idle_timeout, self.config.body_timeout, self.config.write_timeout
        )
        self._tick = min(1.0, shortest / 4)
        self._timer = self.loop.call_later(self._tick, self._expire)

    def connection(self, seat: Seat) -> HttpConnection:
        return HttpConnection(self, seat)

    def _expire(self) -> None:
        """One timer for all: a request would otherwise set and cancel several."""
        self._timer = self.loop.call_later(self._tick, self._expire)
        now = self.loop.time()
        for connection in [each for each in self.open if each.deadline <= now]:
            connection.expire()

    def gone(self, connection: HttpConnection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._all_gone.set()

    async def close(self, seconds: float) -> None:
        """End every connection: those that are answering may finish within so many seconds."""
        for connection in list(self.open):
            connection.close()
        if self.open:
            self._all_gone.clear()
            try:
                await asyncio.wait_for(self._all_gone.wait(), seconds)
            except TimeoutError:
                for connection in list(self.open):
                    connection.abort()
        self._timer.cancel()


class HttpConnection(asyncio.BufferedProtocol):
    """The phases of one connection, until it ends or is handed over. ``_advance`` moves it on: bytes have come,
    an answer has left, or it is its turn."""

    def __init__(self, front: Front, seat: Seat) -> None:
        self._front = front
        self._seat = seat
        self._parser = RequestParser()
        self._phase = Phase.IDLE
        self.deadline = math.inf
        self._request: Request | None = None
        self._route: Route | None = None
        self._encoding: str | None = None
        self._body_limit = 0
        self._rest: memoryview | None = None
        """What is left of an answer."""
        self._small_size = 0
        self._is_last = False
        """The connection ends with the answer that is on its way."""
        self._is_unread = False
        """And the peer may still be sending."""
        self._is_paused = False
        self._has_ended = False
        """The peer sends nothing more."""
        self._is_advancing = False
        self._awaits_turn = False
        """There is more to do already, and others come first."""
        self._transport: asyncio.Transport
        self._reading: Reading

    # -- callbacks of the transport ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A transport of uvloop is none of asyncio's classes, only of their shape.
        self._transport = cast(asyncio.Transport, transport)
        self._reading = Reading(self._front.loop, self._transport)
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        # So that we are told when everything has left, and at once when not.
        self._transport.set_write_buffer_limits(high=1, low=0)
        if self._is_tls:
            transport.set_read_buffer_limits(high=TLS_READ_BYTES)  # type: ignore[attr-defined]
        self._front.open.add(self)
        self._wait(Phase.IDLE, self._front.config.head_timeout)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._front.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._phase in _READING:
            if self._phase is Phase.BODY:
                self._has_moved(nbytes, self._front.config.body_timeout)
            self._parser.feed(self._front.received[:nbytes])
            self._advance()
        elif self._phase in _BUSY:
            # A further request came before this one is answered: it waits, and nothing is read beyond it.
            self._parser.feed(self._front.received[:nbytes])
            self._reading.hold(self)

    def eof_received(self) -> bool:
        self._has_ended = True
        # A peer that has said all may still wait for its answer. TLS has no such thing.
        return self._phase in _BUSY and not self._is_tls

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._phase is Phase.ANSWERING:
            self._write_more()
            self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        was_handling = self._phase is Phase.HANDLING
        self._phase = Phase.CLOSED
        self._front.gone(self)
        self._seat.leave()
        self._reading.release(self)
        let_go(self._transport)
        if not was_handling:  # else the handler still works for it
            self._end_request()

    # -- coming and going -------------------------------------------------------------------------

    def expire(self) -> None:
        """The time of this phase is over."""
        phase = self._phase
        self._front.gateway.metrics.http_timeouts.labels(phase.value).inc()
        if phase is Phase.IDLE:
            self.close()
        elif phase in _READING:
            self._refuse(BadRequest(f"the {phase.value} of the request did not come to its end in time", status=408))
        else:
            self.abort()

    def close(self) -> None:
        """When the answer that is on its way has left; now if there is none."""
        if self._phase in _BUSY:
            self._is_last = True
        elif self._phase is not Phase.CLOSED:
            # A peer that does not take the end of a connection is cut off.
            self._wait(Phase.CLOSED, LINGER_SECONDS)
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _wait(self, phase: Phase, seconds: float) -> None:
        self._phase = phase
        self.deadline = self._front.loop.time() + seconds

    def _has_moved(self, size: int, seconds: float) -> None:
        """Never beyond the time that the phase had at its beginning: what a buffer of the system takes at once is no
        sign of life."""
        longer = self.deadline + size / SLOWEST_BYTES_PER_SECOND
        self.deadline = min(longer, self._front.loop.time() + seconds)

    # -- requests ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Go on as far as what is here allows."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._phase in _READING and not self._awaits_turn and self._step():
                pass
        except BadRequest as flaw:
            self._refuse(flaw)
        finally:
            self._is_advancing = False

    def _await_turn(self) -> None:
        """A connection has one request answered in a turn of the loop, however many it has sent together."""
        self._awaits_turn = True
        self._reading.hold(self)
        self._front.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._awaits_turn = False
        self._advance()

    def _step(self) -> bool:
        """One request, or a part of it. False: more must come first."""
        if self._phase is Phase.BODY:
            return self._read_body()
        request = None if self._parser.is_empty else self._parser.next_request()
        if request is not None:
            self._request = request
            self._begin(request)
            return True
        if self._has_ended:
            self.close()
            return False
        if self._phase is Phase.IDLE and not self._parser.is_empty:
            self._wait(Phase.HEAD, self._front.config.head_timeout)
        self._reading.release(self)
        return False

    def _begin(self, request: Request) -> None:
        """The head of a request is here: it is judged before anything of a body is read."""
        if upgrade.is_wanted(request):
            self._upgrade(request)
            return
        try:
            self._route = route = self._front.routes.find(request)
            self._front.unsent.require_room(route.patience)
            expectation = request.tokens(b"expect")
            if expectation not in ([], [b"100-continue"]):
                raise HttpError(417, ValidationFailed("the Expect header is not known, expected 100-continue"))
            self._body_limit = _PASSED_OVER
            self._encoding = None
            if route.body_limit is not None:
                self._body_limit = route.body_limit(request)
                self._encoding = encoding_of(request)
        except Exception as error:
            # If its body is not here, nobody knows where the next request would begin.
            self._answer(self._failure(error), is_unread=not self._pass_over_body())
            return
        if not request.has_body:
            self._handle(route, request)
            return
        self._wait(Phase.BODY, self._front.config.body_timeout)
        if expectation and request.is_http_1_1 and (request.content_length or 0) <= self._body_limit:
            self._transport.write(_CONTINUE)

    def _pass_over_body(self) -> bool:
        """The body of a request that is refused: whether it is here, and the next request can follow."""
        try:
            return self._parser.body(_PASSED_OVER) is not None
        except (BadRequest, BodyTooLarge):
            return False

    def _read_body(self) -> bool:
        request, route = self._request, self._route
        assert request is not None
        assert route is not None
        try:
            body = self._parser.body(self._body_limit)
            if body is None:
                if self._parser.has_more:
                    self._await_turn()
                elif self._has_ended:
                    self.close()
                else:
                    self._reading.release(self)
                return False
            request.body = decode(body, self._encoding, self._body_limit)
        except BodyTooLarge:
            self._answer(too_large(self._body_limit).answer(), is_unread=True)
        except HttpError as error:
            self._answer(error.answer())
        else:
            self._handle(route, request)
        return True

    def _handle(self, route: Route, request: Request) -> None:
        try:
            result = route.handler(request)
        except Exception as error:
            self._answer(self._failure(error))
            return
        if isinstance(result, Response):
            self._answer(result)
        else:
            self._wait(Phase.HANDLING, math.inf)
            self._front.gateway.spawn(self._answer_later(result))

    async def _answer_later(self, result: Coroutine[Any, Any, Response]) -> None:
        try:
            response = await result
        except Exception as error:
            response = self._failure(error)
        if self._phase is Phase.CLOSED:
            self._end_request()
        else:
            self._answer(response)
            self._advance()

    def _failure(self, error: Exception) -> Response:
        """Every error has the body that a socket would have been sent."""
        if isinstance(error, HttpError):
            return error.answer()
        if isinstance(error, PeerError):
            return error_answer(error.http_status, error)
        where = "/".join(("", *self._route.segments)) if self._route is not None else "a request"
        log.error("an error of our own in %s", where, exc_info=error)
        return error_answer(500, InvalidRequest("an error of the gateway's own: it is in its log"))

    # -- answers ----------------------------------------------------------------------------------

    def _refuse(self, flaw: BadRequest) -> None:
        """There is no way back into step: nobody knows where the next request would begin."""
        self._request = None
        self._answer(flaw.answer(), is_unread=True)

    def _answer(self, response: Response, *, is_unread: bool = False) -> None:
        request = self._request
        if self._transport.is_closing():  # it has failed, and we are told in a moment
            self._phase = Phase.CLOSED
            self._end_request()
            return
        self._is_last = (
            self._is_last or is_unread or request is None or request.wants_close or self._front.gateway.draining
        )
        self._is_unread = is_unread
        head = response.head(close=self._is_last)
        body = b"" if request is not None and request.method == "HEAD" else response.body
        if request is not None and request.promise is not None:
            request.promise.resize(len(body))
        else:
            self._small_size = len(body)
            self._front.unsent.add(len(body))
        self._wait(Phase.ANSWERING, self._front.config.write_timeout)
        if len(body) <= WRITE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._rest = memoryview(body)
        self._write_more()

    def _write_more(self) -> None:
        while self._rest is not None and not self._is_paused:
            piece, rest = self._rest[:WRITE_BYTES], self._rest[WRITE_BYTES:]
            self._rest = rest if len(rest) else None
            self._transport.write(piece)
            self._has_moved(len(piece), self._front.config.write_timeout)
        if self._rest is None and not self._is_paused:
            self._answered()

    def _answered(self) -> None:
        """The answer has left."""
        self._end_request()
        if not self._is_last:
            self._wait(Phase.IDLE, self._front.config.idle_timeout)
            if not self._parser.is_empty:
                self._await_turn()
        elif self._is_unread and not self._has_ended:
            self._wait(Phase.LINGERING, LINGER_SECONDS)
            if self._transport.can_write_eof():
                self._transport.write_eof()
            self._reading.release(self)
        else:
            self._wait(Phase.CLOSED, LINGER_SECONDS)
            self._transport.close()

    def _end_request(self) -> None:
        request, self._request = self._request, None
        self._rest = None
        self._front.unsent.remove(self._small_size)
        self._small_size = 0
        if request is not None and request.promise is not None:
            request.promise.kept()

    # -- upgrades ---------------------------------------------------------------------------------

    def _upgrade(self, request: Request) -> None:
        try:
            accepted = upgrade.judge(self._front.gateway, request, self._seat)
        except HttpError as error:
            self._answer(error.answer(), is_unread=True)
            return
        self._phase = Phase.CLOSED
        self._front.gone(self)
        self._transport.set_write_buffer_limits()  # the default: it is for others to say now
        self._reading.release(self)
        upgrade.hand_over(
            self._front.gateway, self._front.turns, self._transport, accepted, self._parser.take_rest(), self._seat
        )
