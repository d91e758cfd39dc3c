"""The gateway: its spaces, its connections, and the participant that each connection belongs to."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from mewstream.gateway.claims import TokenFlaw, TokenRefused
from mewstream.gateway.clock import WATCH_SECONDS, MachineClock
from mewstream.gateway.config import GatewayConfig
from mewstream.gateway.fair_queue import FairQueue
from mewstream.gateway.fanout import push_past_outbox
from mewstream.gateway.identities import Identities, Identity
from mewstream.gateway.joining import JoinRefused, JoinRequest
from mewstream.gateway.journal_usage import JournalUsage
from mewstream.gateway.metrics import Metrics
from mewstream.gateway.output_log import OutputLog
from mewstream.gateway.pings import Pings
from mewstream.gateway.recorder import JournalRecorder, Recorder
from mewstream.gateway.reference_logs import ReferenceLogs
from mewstream.gateway.refused_visitors import RefusedVisitors
from mewstream.gateway.replay_threads import ReplayThreads
from mewstream.gateway.space import Space
from mewstream.gateway.websocket import WebSocketMember
from mewstream.journal.interface import Journal
from mewstream.journal.opening import open_journal
from mewstream.protocol import kinds
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.errors import PeerError, ValidationFailed
from mewstream.protocol.render import gateway_envelope
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import SECOND
from mewstream.settings.tokens import new_token

T = TypeVar("T")

log = logging.getLogger("mewstream.gateway")

#: Seconds that a drain waits for connections to end after the last of them was closed.
DRAIN_TIMEOUT = 3.0


class Gateway:
    """Everything but the listening sockets, which belong to :mod:`mewstream.gateway.server`."""

    def __init__(self, config: GatewayConfig, *, base_url: str) -> None:
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.metrics = Metrics()
        self.started = time.monotonic()
        self.draining = False
        self._all_gone = asyncio.Event()
        self._connection_numbers = itertools.count(1)
        self.peers: dict[WebSocketMember, float] = {}
        """Every open WebSocket, with the time at which it was last pinged."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.work = FairQueue(self.loop)
        self._clock = MachineClock()
        journal, recovered = _open_journal(config)
        self.recorder: Recorder = Recorder()
        if journal is not None:
            self.recorder = JournalRecorder(
                journal, config.journal, loop=self.loop, metrics=self.metrics, states=self._states
            )
        self.journal_usage = JournalUsage(self.recorder)
        self.metrics.watch_journal(self.journal_usage)
        self._dormant = {id: state for id, state in recovered.items() if id not in config.spaces}
        self.identities = Identities(config, recovered)
        self.spaces: dict[str, Space] = {}
        self.reference_logs = ReferenceLogs()
        self.refused_visitors = RefusedVisitors()
        self._replay_threads = ReplayThreads(self.loop)
        self.largest_message = max(space.limits.message_bytes for space in config.spaces.values())
        for id, space in config.spaces.items():
            self.spaces[id] = Space(
                space,
                loop=self.loop,
                recorder=self.recorder,
                recovered=recovered.get(id),
                metrics=self.metrics.space(id),
                logs=self.reference_logs.for_space(space),
                threads=self._replay_threads,
                mint_token=partial(self.identities.mint, id),
                forget_token=partial(self.identities.forget, id),
                connection_url=f"{config.public_url or base_url}/ws?{urlencode({'space': id})}",
                work=self.work,
                clock=self._clock,
            )
        self._logs = {
            (id, each.id): OutputLog(each.id, each.output_log)
            for id, space in config.spaces.items()
            for each in space.participants.values()
            if each.output_log is not None or each.auto_connect
        }
        self._join_output_logs()
        self._pings = Pings(self.loop, config.ping_interval, self.peers)
        self._upkeep_timer = self.loop.call_later(config.ping_interval, self._upkeep)
        self._clock_timer = self.loop.call_later(WATCH_SECONDS, self._watch_clock)

    @property
    def status(self) -> str:
        if self.draining:
            return "draining"
        return "journal_unavailable" if self.recorder.failing else "ok"

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task, and keep a reference to it until it is done."""
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _states(self) -> dict[str, SpaceState]:
        """The states of all spaces in the journal, including those that are not configured any more."""
        return self._dormant | {id: space.state for id, space in self.spaces.items()}

    # -- identity ---------------------------------------------------------------------------------

    def find_space(self, name: str | None) -> Space | None:
        """Find a space by its name, which may be left out if the gateway serves only one space."""
        if name is None:
            return next(iter(self.spaces.values())) if len(self.spaces) == 1 else None
        return self.spaces.get(name)

    def identify(
        self, request: JoinRequest, *, named_space: str | None, header_token: str | None
    ) -> tuple[Space, Identity]:
        """Find the space and the participant of a join. The token decides, and everything else must agree with it
        (decision 20). Raises :class:`JoinRefused`."""
        if request.space is not None and named_space is not None and request.space != named_space:
            raise _no_such_space("the join and the URL name different spaces")
        name = request.space if request.space is not None else named_space
        space = self.find_space(name)
        if space is None:
            # The name is not quoted: somebody may have put a token there.
            what = "name a space: this gateway serves several" if name is None else "there is no space of that name"
            raise _no_such_space(what)
        tokens = {token for token in (header_token, request.token) if token is not None}
        try:
            named = [self.identities.identify(space.id, token) for token in tokens]
        except TokenRefused as refused:
            raise token_refused(refused) from None
        if len({each.participant for each in named}) != 1:
            raise _bad_token()
        identity = max(named, key=lambda each: each.claims is not None)
        if request.participant is not None and request.participant != identity.participant:
            raise _bad_token()
        return space, identity

    def confirm(self, request: JoinRequest, space: Space, participant: str) -> Identity | None:
        """Check a further join on a connection that has joined: it must not contradict the first. Returns who its
        token names, if it has one.

        Raises :class:`JoinRefused`."""
        if request.space is not None and request.space != space.id:
            raise _no_such_space(f"this connection has joined {space.id!r} already")
        identity = None
        if request.token is not None:
            try:
                identity = self.identities.identify(space.id, request.token)
            except TokenRefused as refused:
                raise token_refused(refused) from None
        claimed = {request.participant, None if identity is None else identity.participant}
        if claimed - {participant, None}:
            raise _bad_token()
        return identity

    def number_connection(self) -> int:
        """Return the number of a new WebSocket, by which the log names it."""
        return next(self._connection_numbers)

    def log_wrong_token(
        self, space_name: str | None, participant: str | None, address: str, connection: int | None = None
    ) -> None:
        """Log a token that was refused. The names are what the peer has claimed."""
        space = self.find_space(space_name)
        is_known = space is not None and participant in space.state.roster
        self.refused_visitors.token(
            address,
            space=None if space is None else space.id,
            participant=participant if is_known else None,
            connection=connection,
        )

    # -- connections ------------------------------------------------------------------------------

    def connected(self, peer: WebSocketMember) -> None:
        self.peers[peer] = 0.0
        self.metrics.connections.set(len(self.peers))

    def disconnected(self, peer: WebSocketMember) -> None:
        self.peers.pop(peer, None)
        if self.draining and not self.peers:
            self._all_gone.set()
        self.metrics.connections.set(len(self.peers))

    def tell_stranger(self, peer: WebSocketMember, flaw: PeerError) -> None:
        """Send an error to a peer that has not joined. It is not recorded, because nobody knows who it was."""
        body = gateway_envelope(
            kinds.ERROR, flaw.payload, id=f"gw-{new_token()[:12]}", ts=time.time_ns() // 1000, to=[]
        )
        push_past_outbox(peer, body)

    def output_log(self, space: Space, participant: str) -> OutputLog | None:
        return self._logs.get((space.id, participant))

    def heir_of(self, space: Space, participant: str) -> OutputLog | None:
        """The output log that replaces a lost socket, for a participant that is always present."""
        configured = space.config.participants.get(participant)
        if self.draining or configured is None or not configured.auto_connect:
            return None
        return self._logs[space.id, participant]

    # -- keeping up -------------------------------------------------------------------------------

    def publish_metrics(self) -> None:
        """Bring the metrics up to date, before they are read."""
        for space in self.spaces.values():
            space.metrics.publish(len(space.state.streams), ahead=space.clock.ahead / SECOND)

    def _upkeep(self) -> None:
        self._upkeep_timer = self.loop.call_later(self.config.ping_interval, self._upkeep)
        self.metrics.unsent.set(sum(peer.outbound.unsent_bytes for peer in self.peers))
        self._join_output_logs()

    def _watch_clock(self) -> None:
        self._clock_timer = self.loop.call_later(WATCH_SECONDS, self._watch_clock)
        jumped = self._clock.jumped
        self._clock.check()
        if self._clock.jumped != jumped:
            self.metrics.clock_jumps.inc()
        for space in self.spaces.values():
            space.follow_clock()
            space.clock.make_up(round(WATCH_SECONDS * SECOND))

    def _join_output_logs(self) -> None:
        """Join the participants with ``auto_connect`` that are not connected, for instance because the journal could
        not record it before."""
        for (id, participant), output_log in self._logs.items():
            space = self.spaces[id]
            if space.config.participants[participant].auto_connect and not space.state.is_connected(participant):
                space.join(output_log)

    # -- going away -------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Close all connections, spread over time, so that clients reconnect. They keep their rights for a while."""
        self.draining = True
        self._pings.stop()
        self._upkeep_timer.cancel()
        self._clock_timer.cancel()
        peers = list(self.peers)
        random.shuffle(peers)
        for place, peer in enumerate(peers):
            if place:
                await asyncio.sleep(self.config.drain_seconds / len(peers))
            if peer.space is not None:
                peer.space.suspend(peer, "drain")
            peer.close(CloseReason.DRAINING)
        if self.peers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), DRAIN_TIMEOUT)

    def close(self) -> None:
        """Write everything to the journal and close it. Nothing more can happen afterwards."""
        for space in self.spaces.values():
            space.stop()
        self.identities.close()
        self._replay_threads.close()
        self.reference_logs.close()
        self.recorder.close()


def _open_journal(config: GatewayConfig) -> tuple[Journal | None, dict[str, SpaceState]]:
    """The journal of the data directory, and the state of every space in it."""
    if config.data is None:
        return None, {}
    journal = open_journal(config.data, config.journal)
    try:
        return journal, journal.recover()
    except BaseException:
        journal.close()
        raise


def _bad_token() -> JoinRefused:
    return token_refused(TokenRefused(TokenFlaw.UNKNOWN))


def token_refused(refused: TokenRefused) -> JoinRefused:
    return JoinRefused(refused.error, CloseReason.BAD_TOKEN)


def _no_such_space(text: str) -> JoinRefused:
    return JoinRefused(ValidationFailed(text, field="space"), CloseReason.UNKNOWN_SPACE)
