"""One HTTP connection: it answers requests one after another, until it ends or is upgraded to WebSocket.

The next request is parsed when the last answer has left the gateway's buffers, and nothing is read meanwhile. So a peer
that does not read its answers gets no more of them. Every request may ask for an upgrade.
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
from mewstream.gateway.http_encoding import decode, encoding_of
from mewstream.gateway.http_message import BadRequest, HttpError, Request, Response, error_answer
from mewstream.gateway.http_parser import RequestParser
from mewstream.gateway.http_routes import Route, Routes
from mewstream.gateway.inbound import Turns
from mewstream.gateway.origins import Origins, is_preflight, preflight_answer
from mewstream.gateway.unsent_answers import Reservation, UnsentAnswers
from mewstream.io.log_lines import event
from mewstream.io.reading import Reading
from mewstream.protocol.errors import InvalidRequest, PeerError, ValidationFailed

log = logging.getLogger("mewstream.gateway")

#: Bytes of one read.
READ_BYTES = 32 << 10
#: Bytes of one write: TLS would copy a large answer as a whole.
WRITE_BYTES = 64 << 10
#: Bytes that may wait to be decrypted before reading pauses. The default of the library is four times as much.
TLS_READ_BYTES = 64 << 10
#: A peer that sends or reads this much has another second for the rest, because its line may be slow.
SLOWEST_BYTES_PER_SECOND = 64 << 10
#: Seconds for which a peer may continue to send after its request was refused. If the connection were closed at once,
#: the system would discard the answer together with the data that was not read.
LINGER_SECONDS = 2.0
#: Bytes that are read of a body that its route does not take.
_IGNORED_BODY_BYTES = 64 << 10

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Phase(Enum):
    """What a connection is doing. Each phase but HANDLING has a deadline."""

    IDLE = "idle"
    """It waits for the first byte of a request."""
    HEAD = "head"
    BODY = "body"
    HANDLING = "handling"
    ANSWERING = "answering"
    """An answer waits until the peer reads it."""
    LINGERING = "lingering"
    """The last answer has left, and what the peer still sends is discarded."""
    CLOSED = "closed"
    """It is closed, lost, or handed over to WebSocket."""


_READING = (Phase.IDLE, Phase.HEAD, Phase.BODY)
_BUSY = (Phase.HANDLING, Phase.ANSWERING)


class Front:
    """What all HTTP connections of a gateway share."""

    def __init__(self, gateway: Gateway, routes: Routes, unsent: UnsentAnswers, origins: Origins) -> None:
        self.gateway = gateway
        self.loop = gateway.loop
        self.config: GatewayConfig = gateway.config
        self.routes = routes
        self.unsent = unsent
        self.origins = origins
        self.turns = Turns(gateway.loop)
        self.received = bytearray(READ_BYTES)
        """The buffer that every connection reads into. What arrives is copied out of it at once."""
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
        """End the phases whose time is over. One timer for all connections saves each request several."""
        self._timer = self.loop.call_later(self._tick, self._expire)
        now = self.loop.time()
        for connection in [each for each in self.open if each.deadline <= now]:
            connection.expire()

    def gone(self, connection: HttpConnection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._all_gone.set()

    async def close(self, seconds: float) -> None:
        """End every connection. Those that are answering may finish within ``seconds``."""
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
    """One connection. ``_advance`` continues it when data has arrived, when an answer has left, and in its next turn of
    the event loop."""

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
        """The part of an answer that was not written yet."""
        self._shared_headers: tuple[tuple[str, str], ...] = ()
        """Headers by which a page of another origin may read the next answer."""
        self._reservation: Reservation | None = None
        """The room of the answer that is on its way."""
        self._is_last = False
        """The connection ends after the answer that is on its way."""
        self._is_unread = False
        """The peer may still be sending the request that was answered last."""
        self._is_paused = False
        self._has_ended = False
        """The peer has sent everything (EOF)."""
        self._is_advancing = False
        self._awaits_turn = False
        """There is more to do, but other connections come first."""
        self._transport: asyncio.Transport
        self._reading: Reading

    # -- callbacks of the transport ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface of asyncio's classes, but do not inherit from them.
        self._transport = cast(asyncio.Transport, transport)
        self._reading = Reading(self._front.loop, self._transport)
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        # So pause_writing() is called if something could not be sent at once, and resume_writing() if everything was.
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
                self._extend(nbytes, self._front.config.body_timeout)
            self._parser.feed(self._front.received[:nbytes])
            self._advance()
        elif self._phase in _BUSY:
            # The next request arrives before this one is answered: it waits, and reading pauses.
            self._parser.feed(self._front.received[:nbytes])
            self._reading.hold(self)

    def eof_received(self) -> bool:
        self._has_ended = True
        # The peer may still wait for its answer. TLS connections cannot be half closed.
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
        if not was_handling:  # otherwise _answer_later ends it, when the handler returns
            self._end_request()

    # -- deadlines and ends -----------------------------------------------------------------------

    def expire(self) -> None:
        """End the phase, because its deadline has passed."""
        phase = self._phase
        self._front.gateway.metrics.http_timeouts.labels(phase.value).inc()
        if phase is Phase.IDLE:
            self.close()
        elif phase in _READING:
            self._refuse(BadRequest(f"the {phase.value} of the request did not come to its end in time", status=408))
        else:
            self.abort()

    def close(self) -> None:
        """Close the connection, after the answer that is on its way."""
        if self._phase in _BUSY:
            self._is_last = True
        elif self._phase is not Phase.CLOSED:
            self._close_transport()

    def abort(self) -> None:
        self._transport.abort()

    def _wait(self, phase: Phase, seconds: float) -> None:
        self._phase = phase
        self.deadline = self._front.loop.time() + seconds

    def _close_transport(self) -> None:
        """Close the connection, and abort it in a while if the peer does not take what was written."""
        self._wait(Phase.CLOSED, LINGER_SECONDS)
        self._transport.close()

    def _extend(self, size: int, seconds: float) -> None:
        """Move the deadline, because ``size`` bytes were transferred, but never further than ``seconds`` from now: what
        a system buffer takes at once is no sign that the peer is alive."""
        longer = self.deadline + size / SLOWEST_BYTES_PER_SECOND
        self.deadline = min(longer, self._front.loop.time() + seconds)

    # -- requests ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Do everything that is possible with the data that has arrived."""
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
        """Continue in the next turn of the event loop. One request is answered in a turn, however many the peer has
        sent together."""
        self._awaits_turn = True
        self._reading.hold(self)
        self._front.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._awaits_turn = False
        self._advance()

    def _step(self) -> bool:
        """Parse the next part of a request, and answer it if it is complete. Returns False if more data must arrive."""
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
        """Check a request whose head is complete, before anything of its body is read."""
        if upgrade.is_wanted(request):
            self._upgrade(request)
            return
        request.address = self._seat.address
        try:
            self._check_origin(request)
            if is_preflight(request):
                methods = self._front.routes.methods(request.path)
                self._answer(preflight_answer(methods), is_unread=not self._skip_body())
                return
            self._route = route = self._front.routes.find(request)
            self._front.unsent.require_room(route.patience)
            expectation = request.tokens(b"expect")
            if expectation not in ([], [b"100-continue"]):
                raise HttpError(417, ValidationFailed("the Expect header is not known, expected 100-continue"))
            self._body_limit = _IGNORED_BODY_BYTES
            self._encoding = None
            if route.body_limit is not None:
                self._body_limit = route.body_limit(request)
                self._encoding = encoding_of(request)
        except Exception as error:
            # If the body has not arrived, nobody knows where the next request begins.
            self._answer(self._failure(error), is_unread=not self._skip_body())
            return
        if not request.has_body:
            self._handle(route, request)
            return
        self._wait(Phase.BODY, self._front.config.body_timeout)
        if expectation and request.is_http_1_1 and (request.content_length or 0) <= self._body_limit:
            self._transport.write(_CONTINUE)

    def _check_origin(self, request: Request) -> None:
        try:
            self._front.origins.check(request, is_proxied=self._seat.is_proxied)
        except HttpError as error:
            if error.status == 403:
                origin = request.values(b"origin")[0].decode("latin-1")
                self._front.gateway.refused_visitors.page(origin, self._seat.address)
            raise
        self._shared_headers = self._front.origins.headers(request)

    def _skip_body(self) -> bool:
        """Ignore the body of a request that is refused. Returns whether all of it has arrived."""
        try:
            return self._parser.body(_IGNORED_BODY_BYTES) is not None
        except BadRequest:
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
        except BadRequest:
            raise
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
        """The response for an error that a handler has raised."""
        if isinstance(error, HttpError):
            return error.answer()
        if isinstance(error, PeerError):
            return error_answer(error.http_status, error)
        log.error(
            "internal error in %s",
            self._route.path if self._route else "a request",
            exc_info=error,
            extra=event("internal_error"),
        )
        return error_answer(500, InvalidRequest("an internal error of the gateway: its log says more"))

    # -- answers ----------------------------------------------------------------------------------

    def _refuse(self, flaw: BadRequest) -> None:
        """Answer a request whose end cannot be found. The connection ends with it."""
        self._request = None
        self._answer(flaw.answer(), is_unread=True)

    def _answer(self, response: Response, *, is_unread: bool = False) -> None:
        request = self._request
        if self._transport.is_closing():  # it has failed, and connection_lost() will be called
            self._phase = Phase.CLOSED
            self._end_request()
            return
        self._is_last = (
            self._is_last or is_unread or request is None or request.wants_close or self._front.gateway.draining
        )
        self._is_unread = is_unread
        if self._shared_headers:
            response.headers += self._shared_headers
            self._shared_headers = ()
        head = response.head(close=self._is_last)
        body = b"" if request is not None and request.method == "HEAD" else response.body
        self._reservation = request.reservation if request is not None else None
        if self._reservation is not None:
            self._reservation.resize(len(body))
        else:
            self._reservation = self._front.unsent.reserve(len(body))
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
            self._extend(len(piece), self._front.config.write_timeout)
        if self._rest is None and not self._is_paused:
            self._answered()

    def _answered(self) -> None:
        """Continue after an answer has left."""
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
            self._close_transport()

    def _end_request(self) -> None:
        request, self._request = self._request, None
        reservation, self._reservation = self._reservation, None
        self._rest = None
        if reservation is None and request is not None:
            reservation = request.reservation  # it was never answered
        if reservation is not None:
            reservation.release()

    # -- upgrades ---------------------------------------------------------------------------------

    def _upgrade(self, request: Request) -> None:
        try:
            accepted = upgrade.judge(self._front.gateway, self._front.origins, request, self._seat)
        except HttpError as error:
            self._answer(error.answer(), is_unread=True)
            return
        self._phase = Phase.CLOSED
        self._front.gone(self)
        self._transport.set_write_buffer_limits()  # back to the default
        self._reading.release(self)
        upgrade.hand_over(
            self._front.gateway, self._front.turns, self._transport, accepted, self._parser.take_rest(), self._seat
        )
