"""The connection to a space over its whole life: made, kept, lost, made again, and ended."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple, Protocol

from mewstream.client import loose, messages
from mewstream.client.backoff import Backoff
from mewstream.client.confirming import Confirmations, Tally
from mewstream.client.connection import ABNORMAL, Connection, Receiver
from mewstream.client.errors import ConnectError, ConnectionClosed, JoinRefused, RequestTimeout
from mewstream.client.frame import seq_of
from mewstream.client.joining import Door, may_reconnect
from mewstream.client.messages import Message
from mewstream.client.routes import Routes

logger = logging.getLogger("mewstream.client")

#: A connection that lasted for so many seconds was good: the next delay is short again.
_GOOD_SECONDS = 5.0
#: Sending never waits while the gateway keeps up; so many frames may go out before others get a turn.
_FRAMES_PER_TURN = 64


class Return(NamedTuple):
    """How we have come back."""

    recovered: bool
    """What was missed comes now."""
    reason: str | None
    """Why not."""
    unconfirmed: int


class Owner(Protocol):
    """Hears what comes. Nothing here may wait."""

    @property
    def routes(self) -> Routes:
        """Who gets the frames; asked for once."""

    def envelope(self, message: Message) -> None: ...

    def welcomed(self, welcome: Message, returned: Return | None) -> None: ...

    def connection_lost(self, code: int) -> None: ...

    def disconnected(self, reason: str) -> None: ...

    def ended(self, error: ConnectionClosed) -> None: ...


class Link:
    """Sends, confirms, and keeps a position to resume from."""

    def __init__(self, door: Door, owner: Owner, *, reconnect: Backoff | None, timeout: float) -> None:
        self._door = door
        self._owner = owner
        self._routes = owner.routes
        self._reconnect = reconnect
        self._timeout = timeout
        self._connection: Connection | None = None
        self._connected = asyncio.Event()
        """Set while there is a connection, and when there will be none any more."""
        self._lost: asyncio.Future[tuple[int, str]] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._holders: set[object] = set()
        self._confirmations = Confirmations()
        self._unreported = 0
        """Frames that were unconfirmed when the connection was lost, until we are back."""
        self._turn = 0
        self._last_frame = b""
        self._last_seq = 0
        self._over = asyncio.Event()
        self.epoch: str | None = None
        self.has_positions = False
        self.is_draining = False
        self.error: ConnectionClosed | None = None
        """Why it has ended for good."""

    @property
    def is_connected(self) -> bool:
        return self.error is None and self._connected.is_set()

    @property
    def position(self) -> tuple[str, int] | None:
        """Epoch and seq of the newest message that has come, where the gateway tells."""
        if not self.has_positions or self.epoch is None:
            return None
        return self.epoch, max(self._last_seq, seq_of(self._last_frame))

    # -- sending ------------------------------------------------------------------------------------

    async def ready(self) -> Connection:
        """A connection that takes what we send."""
        while True:
            if self.error is not None:
                raise self.error.again()
            if self.is_draining:
                raise ConnectionClosed("this space is being drained: nothing more can be sent", code=1000)
            connection = self._connection
            if connection is None:
                await self._connected.wait()
            elif connection.is_full:
                await connection.writable()
            else:
                return connection

    def post(self, body: bytes) -> None:
        """Send without waiting, if there is a connection."""
        if self._connection is not None:
            self._connection.send(body, is_text=True)

    async def send_frame(self, message: bytes, tally: Tally, *, is_text: bool) -> None:
        self._turn += 1
        if self._turn >= _FRAMES_PER_TURN:
            self._turn = 0
            await asyncio.sleep(0)
        connection = self._connection
        if connection is None or connection.is_full or self.is_draining:
            connection = await self.ready()
        self._confirmations.sent(tally, len(message))
        connection.send(message, is_text=is_text)

    async def round_trip(self, tally: Tally | None = None) -> None:
        """Wait until the gateway has recorded all that was sent so far, over as many connections as it
        takes; but where frames of ``tally`` were lost sight of with one, it raises."""
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    if tally is not None:
                        tally.report()
                    if await self._ping(await self.ready()) and (tally is None or not tally.unsure):
                        return
        except TimeoutError:
            raise self._unconfirmed() from None

    def _unconfirmed(self) -> RequestTimeout:
        why = ": reading is paused, for a subscription with on_slow='pause' is full" if self._holders else ""
        return RequestTimeout(f"the gateway confirmed nothing within {self._timeout:g} seconds{why}")

    async def flush(self) -> None:
        await self.round_trip(self._confirmations.total)

    async def _ping(self, connection: Connection) -> bool:
        done = self._confirmations.begin()
        connection.ping(self._confirmations.ping)
        try:
            return await done
        finally:
            self._confirmations.forget(done)

    # -- holding up the gateway -----------------------------------------------------------------------

    def hold(self, why: object) -> None:
        """Stop reading until everyone who asked for it has released."""
        self._holders.add(why)
        if self._connection is not None:
            self._connection.hold_reading()

    def release(self, why: object) -> None:
        self._holders.discard(why)
        if not self._holders and self._connection is not None:
            self._connection.release_reading()

    # -- as receiver of a connection ------------------------------------------------------------------

    def message_received(self, message: bytes, is_text: bool) -> None:
        routes = self._routes
        if message.startswith(routes.hot_head):
            self._last_frame = message
            for queue in routes.hot_queues:
                queue.put(message if is_text else (message,))
            return
        if message.startswith(b"#"):
            self._last_frame = message
            routes.frame(message, is_text, self.has_positions)
            return
        parsed = messages.parse(message)
        if parsed is None:
            logger.debug("a message that is no envelope was passed over")
            return
        try:
            self._owner.envelope(parsed)
        except Exception:
            # One message of a strange gateway must not end the connection, and then the next one.
            logger.exception("a message of the kind %r could not be understood", parsed.kind)
        if parsed.seq is not None and parsed.seq > self._last_seq:
            self._last_seq = parsed.seq

    def is_past(self, message: Message) -> bool:
        """Its position was passed already."""
        return message.seq is not None and message.seq <= max(self._last_seq, seq_of(self._last_frame))

    def pong_received(self, payload: bytes) -> None:
        if payload:
            self._confirmations.pong(payload)
        elif self._confirmations.is_waited_for and self._connection is not None:
            # A gateway that was behind owes us one pong only: the last, perhaps not the one we wait for.
            self._connection.ping(self._confirmations.ping)

    def connection_lost(self, connection: Connection, code: int, reason: str) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._connected.clear()
        self._owner.connection_lost(code)
        self._unreported += self._confirmations.lost(reason or f"the gateway closed it ({code})")
        if self._lost is not None and not self._lost.done():
            self._lost.set_result((code, reason))

    # -- connecting, and connecting again -------------------------------------------------------------

    async def open(self) -> None:
        await self._door.enter(self._welcomed, None)
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise(), name="mewstream-client")

    def _welcomed(self, connection: Connection, welcome: Message) -> Receiver:
        """Called in the very moment of the welcome, before anything that follows it is read."""
        payload = welcome.payload
        resumed = loose.as_object(payload.get("resume"))
        missed_from = loose.number(resumed.get("from_seq"))
        recovered = resumed.get("recovered") is True and missed_from is not None
        seq = loose.number(payload.get("seq")) or welcome.seq or 0
        self.epoch = loose.text(payload.get("epoch"))
        self.has_positions = welcome.seq is not None
        self._last_frame = b""
        # What was missed comes now, with lower positions than that of the welcome.
        self._last_seq = missed_from - 1 if recovered and missed_from is not None else seq
        self._connection = connection
        self._lost = asyncio.get_running_loop().create_future()
        self._connected.set()
        if self._holders:
            connection.hold_reading()
        returned = None
        if self._supervisor is not None:
            unconfirmed, self._unreported = self._unreported, 0
            reason = loose.text(resumed.get("reason")) or "this gateway cannot resume"
            returned = Return(recovered, None if recovered else reason, unconfirmed)
        try:
            self._owner.welcomed(welcome, returned)
        except Exception:
            logger.exception("a welcome could not be understood")
        return self

    async def _supervise(self) -> None:
        """Keep a connection until there shall be none."""
        error = ConnectionClosed("this space ended by a fault of its own: the log has it", code=1006)
        loop = asyncio.get_running_loop()
        attempt = 0
        try:
            while True:
                since = loop.time()
                assert self._lost is not None
                code, reason = await self._lost
                if self._reconnect is None or not may_reconnect(code):
                    how = "the connection was lost" if code == ABNORMAL else "the gateway closed the connection"
                    error = ConnectionClosed(f"{how}: {reason or code}", code=code)
                    return
                self._owner.disconnected(reason or f"the gateway closed the connection ({code})")
                if loop.time() - since > _GOOD_SECONDS:
                    attempt = 0
                try:
                    attempt = await self._enter_again(self._reconnect, attempt)
                except ConnectError as failure:
                    error = ConnectionClosed(f"the connection could not be made again: {failure}", code=code)
                    return
        except asyncio.CancelledError:
            error = closed_here()
        except Exception:
            logger.exception("the connection cannot be kept")
        finally:
            self._end(error)

    async def _enter_again(self, backoff: Backoff, attempt: int) -> int:
        """Until it succeeds; the answer is how many attempts there were in a row."""
        failures = 0
        while True:
            await asyncio.sleep(backoff.delay(attempt))
            attempt += 1
            position = self.position
            resume = {"epoch": position[0], "seq": position[1]} if position is not None else None
            try:
                await self._door.enter(self._welcomed, resume)
                return attempt
            except JoinRefused:
                raise
            except Exception as failure:
                # Whatever the token's function raises may be better next time.
                if not isinstance(failure, ConnectError):
                    logger.warning("no token for a new connection: the function raised %s", type(failure).__name__)
                failures += 1
                if backoff.is_over(failures):
                    raise _as_connect_error(failure) from None

    # -- the end ------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Send nothing more, wait until what was sent is recorded, and leave."""
        if self.error is not None:
            return
        if self.is_draining:
            await self._over.wait()
            return
        self.is_draining = True
        total = self._confirmations.total
        try:
            connection = self._connection
            if connection is None:
                total.unsure = self._unreported
                total.report()
            elif total.sent > total.confirmed:
                total.unsure = 0  # of these a Resumed has told
                async with asyncio.timeout(self._timeout):
                    await connection.writable()
                    await self._ping(connection)
                total.report()
        except TimeoutError:
            raise self._unconfirmed() from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Leave at once."""
        supervisor = self._supervisor
        self._end(closed_here())
        try:
            if supervisor is not None:
                supervisor.cancel()
                await asyncio.wait([supervisor])
            if self._connection is not None:
                await self._connection.close()
        finally:
            if self._connection is not None:
                self._connection.abort()

    def _end(self, error: ConnectionClosed) -> None:
        if self.error is not None:
            return
        self.error = error
        self._connected.set()  # whoever waits for a connection learns that there will be none
        self._confirmations.lost(str(error))
        self._holders.clear()
        self._owner.ended(error)
        self._over.set()

    async def wait_closed(self) -> None:
        await self._over.wait()


def closed_here() -> ConnectionClosed:
    return ConnectionClosed("this space was closed here", code=1000)


def _as_connect_error(failure: Exception) -> ConnectError:
    if isinstance(failure, ConnectError):
        return failure
    return ConnectError(f"the function for the token raised {type(failure).__name__}")
