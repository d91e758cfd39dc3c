"""The link to a space: a connection that is made again whenever it is lost, until the link is closed."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import msgspec

from mewstream.client import messages, untrusted
from mewstream.client.backoff import Backoff
from mewstream.client.confirmations import Confirmations, Tally
from mewstream.client.connection import Connection, Receiver
from mewstream.client.errors import ConnectError, ConnectionClosed, JoinRefused, RequestTimeout
from mewstream.client.events import Resumed
from mewstream.client.interest import Interest
from mewstream.client.joining import Joiner
from mewstream.client.messages import Message
from mewstream.client.routes import Routes
from mewstream.client.state import State
from mewstream.protocol.close_codes import ABNORMAL, NORMAL
from mewstream.protocol.errors import LimitExceeded
from mewstream.protocol.frames import seq_of
from mewstream.protocol.position import Position

logger = logging.getLogger("mewstream.client")

#: After a connection that lasted longer than this, the delays before reconnecting start again with the shortest.
_GOOD_SECONDS = 5.0
#: Sending never waits while the gateway keeps up, so other tasks get a turn after this many frames.
_FRAMES_PER_TURN = 64


class Owner(Protocol):
    """Gets what a link receives. None of these methods may block."""

    @property
    def routes(self) -> Routes:
        """Where raw frames go. It is asked for once."""

    @property
    def interest(self) -> Interest:
        """Which streams are wanted. It is asked for once."""

    def envelope(self, message: Message) -> None: ...

    def welcomed(self, welcome: Message, resumed: Resumed | None) -> None: ...

    def connection_lost(self, code: int) -> None: ...

    def disconnected(self, reason: str) -> None: ...

    def ended(self, error: ConnectionClosed) -> None: ...


class Link:
    """Keeps one connection after another, and with them the position to resume from and what is unconfirmed."""

    def __init__(self, joiner: Joiner, owner: Owner, *, reconnect: Backoff | None, timeout: float) -> None:
        self.state = State.NEW
        self.error: ConnectionClosed | None = None
        """Why the link is GONE."""
        self.epoch: str | None = None
        self.has_positions = False
        self.max_message_bytes: int | None = None
        """The largest message that the gateway takes, if it says so."""
        self._joiner = joiner
        self._owner = owner
        self._routes = owner.routes
        self._interest = owner.interest
        self._reconnect = reconnect
        self._timeout = timeout
        self._connection: Connection | None = None
        self._state_changed = asyncio.Event()
        """Set when the state changes, and replaced by a new one."""
        self._lost: asyncio.Future[tuple[int, str]] | None = None
        """The code and the reason with which the present connection ends."""
        self._supervisor: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        """Gets a newer token."""
        self._holders: set[object] = set()
        self._confirmations = Confirmations()
        self._unreported = 0
        """Frames that were unconfirmed when the connection was lost, until a resume reports them."""
        self._frames_in_turn = 0
        self._last_frame = b""
        self._last_seq = 0

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, even one that is being drained."""
        return self.state is not State.GONE and self._connection is not None

    @property
    def position(self) -> Position | None:
        """The position of the newest message received; None if the gateway sends no positions."""
        if not self.has_positions or self.epoch is None:
            return None
        return Position(self.epoch, self._newest_seq)

    @property
    def _newest_seq(self) -> int:
        return max(self._last_seq, seq_of(self._last_frame))

    def has_seen(self, message: Message) -> bool:
        """Return whether a message with this position, or with a later one, was received before."""
        return message.seq is not None and message.seq <= self._newest_seq

    def _enter(self, state: State) -> None:
        self.state = state
        self._state_changed.set()
        self._state_changed = asyncio.Event()

    # -- sending ------------------------------------------------------------------------------------

    async def ready(self) -> Connection:
        """Wait for a connection with room for what is to be sent. Raises :class:`ConnectionClosed` if there will
        be none."""
        while True:
            if self.error is not None:
                raise self.error.again()
            if self.state is State.CLOSING:
                raise ConnectionClosed("this space is being drained: nothing more can be sent", code=NORMAL)
            connection = self._connection
            if connection is None:
                await self._state_changed.wait()
            elif connection.is_full:
                await connection.writable()
            else:
                return connection

    @property
    def has_room(self) -> bool:
        """Whether there is a connection, and it keeps up with what is sent."""
        return self._connection is not None and not self._connection.is_full

    def renew_token(self) -> None:
        """Send the gateway a newer token, because the one we joined with is about to expire."""
        if self._renewing is None and callable(self._joiner.token):
            self._renewing = asyncio.get_running_loop().create_task(self._renew_token())

    async def _renew_token(self) -> None:
        try:
            token = await self._joiner.current_token()
            self.post(msgspec.json.encode({"type": "join", "token": token}))
        except Exception as failure:
            logger.warning("no newer token: the function for it raised %s", type(failure).__name__)
        finally:
            self._renewing = None

    def post(self, body: bytes) -> None:
        """Send an envelope without waiting, if there is a connection; otherwise it is not sent at all."""
        if self._connection is not None:
            self._connection.send(body, is_text=True)

    async def send_frame(self, message: bytes, tally: Tally, *, is_text: bool) -> None:
        """Send a frame and count it in ``tally``. Waits and raises as :meth:`ready` does. Raises :class:`LimitExceeded`
        for a frame that is larger than the gateway takes."""
        self.check_size(message)
        self._frames_in_turn += 1
        if self._frames_in_turn >= _FRAMES_PER_TURN:
            self._frames_in_turn = 0
            await asyncio.sleep(0)
        connection = self._connection
        if connection is None or connection.is_full or self.state is not State.JOINED:
            connection = await self.ready()
        self._confirmations.sent(tally, len(message))
        connection.send(message, is_text=is_text)

    def try_send_frame(self, message: bytes, tally: Tally, *, is_text: bool) -> bool:
        """Send a frame if that is possible without waiting. Returns whether it was sent."""
        self.check_size(message)
        connection = self._connection
        if connection is None or connection.is_full or self.state is not State.JOINED:
            return False
        self._confirmations.sent(tally, len(message))
        connection.send(message, is_text=is_text)
        return True

    def check_size(self, message: bytes) -> None:
        """Raise :class:`LimitExceeded` if the gateway has said that it does not take so much."""
        most = self.max_message_bytes
        if most is not None and len(message) > most:
            text = f"the frame has {len(message)} bytes with its head, and the gateway takes at most {most}"
            raise LimitExceeded(f"{text}: it was not sent", limit="message_bytes")

    async def round_trip(self, tally: Tally | None = None) -> None:
        """Wait until the gateway has recorded everything sent so far, over as many connections as it takes. Raises
        :class:`FramesUnconfirmed` if frames of ``tally`` were unconfirmed when a connection was lost,
        :class:`RequestTimeout` if the gateway does not answer in time, and :class:`ConnectionClosed`."""
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
        """Do a :meth:`round_trip` for the frames of all streams."""
        await self.round_trip(self._confirmations.total)

    async def _ping(self, connection: Connection) -> bool:
        """Return whether the gateway confirmed what was sent before the connection was lost."""
        done = self._confirmations.begin()
        connection.ping(self._confirmations.ping)
        try:
            return await done
        finally:
            self._confirmations.forget(done)

    # -- back-pressure --------------------------------------------------------------------------------

    def hold(self, why: object) -> None:
        """Pause reading from the gateway, on this connection and the next, until every reason is released."""
        self._holders.add(why)
        if self._connection is not None:
            self._connection.hold_reading()

    def release(self, why: object) -> None:
        self._holders.discard(why)
        if not self._holders and self._connection is not None:
            self._connection.release_reading()

    # -- as the receiver of a connection --------------------------------------------------------------

    def message_received(self, message: bytes, is_text: bool) -> None:
        routes = self._routes
        if message.startswith(routes.run_prefix):
            self._last_frame = message
            for queue in routes.run_queues:
                queue.put(message if is_text else (message,))
            return
        if message.startswith(b"#"):
            self._last_frame = message
            routes.frame(message, is_text, self.has_positions)
            return
        parsed = messages.parse(message)
        if parsed is None:
            logger.debug("a message that is no envelope was ignored")
            return
        try:
            self._owner.envelope(parsed)
        except Exception:
            # One message of a strange gateway must not end this connection, and then the next one and so on.
            logger.exception("a message of the kind %r could not be understood", parsed.kind)
        if parsed.seq is not None and parsed.seq > self._last_seq:
            self._last_seq = parsed.seq

    def pong_received(self, payload: bytes) -> None:
        if payload:
            self._confirmations.pong(payload)
        elif self._confirmations.is_waited_for and self._connection is not None:
            # A gateway that is behind may answer only the last of several pings, which was not ours: ask again.
            self._connection.ping(self._confirmations.ping)

    def connection_lost(self, connection: Connection, code: int, reason: str) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        if self.state is State.JOINED:
            self._enter(State.JOINING)
        self._owner.connection_lost(code)
        self._unreported += self._confirmations.lost(reason or f"the gateway closed it ({code})")
        if self._lost is not None and not self._lost.done():
            self._lost.set_result((code, reason))

    # -- connecting and reconnecting ------------------------------------------------------------------

    async def open(self) -> None:
        """Join the space, and keep a connection to it from now on. Raises :class:`ConnectError`, or whatever the
        function for the token raises."""
        self._enter(State.JOINING)
        await self._joiner.join(self._welcomed, None, self._interest.for_join())
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise(), name="mewstream-client")

    def _welcomed(self, connection: Connection, welcome: Message) -> Receiver:
        """Take over a connection. This is called before anything that follows the welcome is read."""
        payload = welcome.payload
        answer = untrusted.as_object(payload.get("resume"))
        replay_from = untrusted.number(answer.get("from_seq"))
        recovered = answer.get("recovered") is True and replay_from is not None
        seq = untrusted.number(payload.get("seq")) or welcome.seq or 0
        self.epoch = untrusted.text(payload.get("epoch"))
        self.has_positions = welcome.seq is not None
        self.max_message_bytes = untrusted.number(untrusted.as_object(payload.get("limits")).get("message_bytes"))
        self._last_frame = b""
        # What is replayed after the welcome has lower positions than the welcome.
        self._last_seq = replay_from - 1 if recovered and replay_from is not None else seq
        self._connection = connection
        self._lost = asyncio.get_running_loop().create_future()
        if self.state is State.JOINING:
            self._enter(State.JOINED)
        if self._holders:
            connection.hold_reading()
        resumed = None
        if self._supervisor is not None:
            unconfirmed, self._unreported = self._unreported, 0
            reason = untrusted.text(answer.get("reason")) or "this gateway cannot resume"
            resumed = Resumed(recovered, None if recovered else reason, unconfirmed)
        try:
            self._owner.welcomed(welcome, resumed)
        except Exception:
            logger.exception("a welcome could not be understood")
        return self

    async def _supervise(self) -> None:
        """Replace each lost connection by a new one, until the link has ended."""
        error = ConnectionClosed("the SDK itself failed: its log says how", code=ABNORMAL)
        loop = asyncio.get_running_loop()
        attempt = 0
        try:
            while True:
                since = loop.time()
                assert self._lost is not None
                code, reason = await self._lost
                if self._reconnect is None or not self._joiner.may_join_again(code):
                    how = "the connection was lost" if code == ABNORMAL else "the gateway closed the connection"
                    error = ConnectionClosed(f"{how}: {reason or code}", code=code)
                    return
                self._owner.disconnected(reason or f"the gateway closed the connection ({code})")
                if loop.time() - since > _GOOD_SECONDS:
                    attempt = 0
                try:
                    attempt = await self._join_again(self._reconnect, attempt)
                except ConnectError as failure:
                    error = ConnectionClosed(f"the connection could not be made again: {failure}", code=code)
                    return
        except asyncio.CancelledError:
            error = closed_here()
        except Exception:
            logger.exception("the connection cannot be kept")
        finally:
            self._end(error)

    async def _join_again(self, backoff: Backoff, attempt: int) -> int:
        """Try until it succeeds. Returns the number of the next attempt. Raises :class:`ConnectError` if the
        gateway refuses us, or as many attempts have failed as ``backoff`` allows."""
        failures = 0
        while True:
            await asyncio.sleep(backoff.delay(attempt))
            attempt += 1
            try:
                await self._joiner.join(self._welcomed, self.position, self._interest.for_join())
                return attempt
            except JoinRefused:
                raise
            except ConnectError as failure:
                error = failure
            except Exception as failure:
                # The function for the token may succeed next time, whatever it raised.
                error = ConnectError(f"the function for the token raised {type(failure).__name__}")
                logger.warning("no token for a new connection: %s", error)
            failures += 1
            if backoff.is_over(failures):
                raise error from None

    # -- the end ------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Send nothing more, wait until everything sent is recorded, and leave. Raises as :meth:`round_trip` does."""
        if self.state in (State.CLOSING, State.GONE):
            await self.wait_closed()
            return
        self._enter(State.CLOSING)
        total = self._confirmations.total
        try:
            connection = self._connection
            if connection is None:
                total.unsure = self._unreported
                total.report()
            elif total.sent > total.confirmed:
                total.unsure = 0  # a Resumed event has reported these
                async with asyncio.timeout(self._timeout):
                    await connection.writable()
                    await self._ping(connection)
                total.report()
        except TimeoutError:
            raise self._unconfirmed() from None
        finally:
            await self.close()

    async def close(self, error: ConnectionClosed | None = None) -> None:
        """Leave without waiting for anything. ``error`` is what those get who still wait for something."""
        supervisor = self._supervisor
        self._end(error or closed_here())
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
        if self.state is State.GONE:
            return
        self.error = error
        self._enter(State.GONE)
        if self._renewing is not None:
            self._renewing.cancel()
        self._confirmations.lost(str(error))
        self._holders.clear()
        self._owner.ended(error)

    async def wait_closed(self) -> None:
        """Wait until the link has ended for good."""
        while self.state is not State.GONE:
            await self._state_changed.wait()


def closed_here() -> ConnectionClosed:
    """Return the exception for everyone who still waits for something when we leave."""
    return ConnectionClosed("this space was closed here", code=NORMAL)
