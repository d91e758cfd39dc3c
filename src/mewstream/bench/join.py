"""A storm of joins into a space with active streams. Every welcome and every presence message is checked."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from mewstream.bench import wire
from mewstream.bench.errors import CheckFailed, Refused
from mewstream.bench.metrics import Figures
from mewstream.bench.peer import PATIENCE, Peer, describe_close, join_message, open_socket, refuse_errors
from mewstream.bench.resource_usage import cpu_seconds, need_files, own_cpu_seconds
from mewstream.bench.roster import Needs, Participant
from mewstream.bench.setup import joined, settle
from mewstream.bench.target import Live
from mewstream.protocol.errors import ConfigError

_BUFFER = 1 << 18
#: Gateways limit the number of streams of one owner, usually to a few hundred.
_STREAMS_OF_ONE = 100
#: While many connect, pings of the connected ones are answered after each of this many.
_ATTEND_EVERY = 100


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """``participants`` join at once, and ``concurrency`` of them wait for their welcome at any time.

    Bystanders and listeners are both in every welcome, but only listeners are told about every join. So the difference
    between the two is the cost of telling them."""

    participants: int = 500
    streams: int = 50
    concurrency: int = 50
    bystanders: int = 0
    """Participants that are in the space without a connection. They make every welcome longer."""
    listeners: int = 0
    """Participants that have joined before, with a connection, and are told about every join."""
    waves: int = 1
    """The participants join in this many waves. A wave begins when everyone has been told about the one before, so that
    the number of presence messages in one write does not depend on the speed of the load generator."""

    @property
    def owners(self) -> int:
        return max(1, -(-self.streams // _STREAMS_OF_ONE))

    @property
    def needs(self) -> Needs:
        return Needs(participants=self.owners + self.listeners + self.participants, bystanders=self.bystanders)

    def measure(self, live: Live) -> Figures:
        with self.prepared(live) as storm:
            return storm()

    @contextlib.contextmanager
    def prepared(self, live: Live) -> Iterator[Callable[[], Figures]]:
        """Prepare the space, and yield a function that measures one storm of joins. It can be called again: the
        participants of the last storm leave first."""
        owners, others = live.people[: self.owners], live.people[self.owners :]
        listeners, joiners = others[: self.listeners], others[self.listeners :]
        bystanders = live.roster.bystanders(live.needs)
        if not all(each.is_present for each in bystanders):
            raise ConfigError("join needs bystanders that are present by themselves (auto_connect), or none")
        need_files(len(live.people))
        with joined(live, owners) as hosts:
            streams: dict[str, str] = {}
            for number in range(self.streams):
                owner = hosts[number // _STREAMS_OF_ONE]
                streams[owner.open_stream()] = owner.id
            settle(hosts[0], next(iter(streams)), hosts)
            with contextlib.closing(_Storm(hosts, streams, [each.id for each in bystanders])) as storm:
                storm.run(listeners, _open_sockets(live, len(listeners)), self.concurrency)
                storm.check_welcomes()

                def again() -> Figures:
                    storm.leave(joiners)
                    return self._storm(live, storm, joiners)

                yield again

    def _storm(self, live: Live, storm: _Storm, joiners: Sequence[Participant]) -> Figures:
        sockets = _open_sockets(live, len(joiners))
        used = cpu_seconds(live.pid) if live.pid is not None else 0.0
        own, started = own_cpu_seconds(), time.monotonic()
        told = _Told([], 0, 0)
        size = -(-len(joiners) // self.waves)
        for start in range(0, len(joiners), size):
            wave = slice(start, start + size)
            told = told.and_then(storm.run(joiners[wave], sockets[wave], self.concurrency))
        seconds, own = time.monotonic() - started, own_cpu_seconds() - own
        used = cpu_seconds(live.pid) - used if live.pid is not None else 0.0
        storm.check_welcomes()
        waits = sorted(told.waits)
        figures = {
            "joins_per_second": len(joiners) / seconds,
            "welcome_p50_ms": waits[len(waits) // 2] / 1e6,
            "welcome_p99_ms": waits[min(len(waits) - 1, len(waits) * 99 // 100)] / 1e6,
            "welcome_megabytes": told.welcome_bytes / 1e6,
            "presences": float(told.presences),
            "generator_cpu": own / seconds,
        }
        if live.pid is not None:
            figures |= {
                "gateway_cpu": used / seconds,
                "cpu_seconds": used,
                "cpu_us_per_join": used / len(joiners) * 1e6,
                "cpu_ns_per_presence": used / max(1, told.presences) * 1e9,
                "cpu_ns_per_welcome_byte": used / max(1, told.welcome_bytes) * 1e9,
            }
        return figures


class _Told(NamedTuple):
    """The messages of a storm, or of one wave of it."""

    waits: list[int]
    """How long each participant waited for its welcome, in nanoseconds."""
    welcome_bytes: int
    presences: int

    def and_then(self, more: _Told) -> _Told:
        return _Told(self.waits + more.waits, self.welcome_bytes + more.welcome_bytes, self.presences + more.presences)


class _Joiner:
    """One connection, which gets its welcome first and then the presence messages of later joins."""

    __slots__ = ("asked_at", "log_at", "messages", "participant", "socket", "welcome", "welcomed_before")

    def __init__(self, participant: Participant, connection: socket.socket) -> None:
        self.participant = participant
        self.socket = connection
        self.messages: wire.Messages = wire.Messages()
        self.asked_at = 0
        self.welcome: bytes | None = None
        self.welcomed_before = 0
        """How many had their welcome when this one asked to join. These must be in its own welcome."""
        self.log_at: int | None = None
        """Its position in the log of the host, once that is known."""


class _Storm:
    """A storm of joins. The first host is present from the start. All other connections are compared with what it
    receives."""

    def __init__(self, hosts: Sequence[Peer], streams: dict[str, str], bystanders: list[str]) -> None:
        self._streams = streams
        self._bystanders = bystanders
        self._hosts = [host.id for host in hosts]
        self._joiners: list[_Joiner] = []
        self._places: dict[int, _Joiner] = {}
        self._poll = select.epoll()
        self._buffer = bytearray(_BUFFER)
        self._host = hosts[0]
        self._host.socket.setblocking(False)
        self._poll.register(self._host.socket.fileno(), select.EPOLLIN)
        self._others = {host.socket.fileno(): (host, wire.Messages(host.unread())) for host in hosts[1:]}
        for place, (host, _) in self._others.items():
            host.socket.setblocking(False)
            self._poll.register(place, select.EPOLLIN)
        self._host_messages = wire.Messages(self._host.unread())
        self._log = bytearray()
        """The presence messages of the host, as received."""
        self._after: dict[str, int] = {}
        """Participant -> end of its join in the log, in the order of the joins."""
        self._told: list[tuple[str, str]] = []
        """The event and the participant of each message in the log."""
        self._ends = [0]
        """The ends of these messages: ``_told[n]`` ends at ``_ends[n + 1]``."""
        self._welcomed: list[str] = []
        self._waits: list[int] = []
        self._welcome_bytes = 0

    def run(self, people: Sequence[Participant], sockets: Sequence[socket.socket], concurrency: int) -> _Told:
        """Run until everyone has its welcome and was told about all later joins. This includes earlier participants."""
        joiners = [_Joiner(*each) for each in zip(people, sockets, strict=True)]
        heard_by = len(self._hosts) + len(self._joiners)
        self._joiners += joiners
        for each in joiners:
            each.socket.setblocking(False)
            self._places[each.socket.fileno()] = each
            self._poll.register(each.socket.fileno(), select.EPOLLIN)
        self._waits, self._welcome_bytes = [], 0
        waiting_to_ask = iter(joiners)
        for first in itertools.islice(waiting_to_ask, concurrency):
            self._ask(first)
        while len(self._welcomed) < len(self._joiners) or not self._is_complete():
            for following in itertools.islice(waiting_to_ask, self._read()):
                self._ask(following)
        count = len(joiners)
        return _Told(self._waits, self._welcome_bytes, count * heard_by + count * (count - 1) // 2)

    def leave(self, people: Sequence[Participant]) -> None:
        """Disconnect participants, and wait until all others were told."""
        gone = {each.id for each in people}
        for joiner in self._joiners:
            if joiner.participant.id in gone:
                del self._places[joiner.socket.fileno()]
                joiner.socket.close()
        self._joiners = [each for each in self._joiners if each.participant.id not in gone]
        self._welcomed = [each for each in self._welcomed if each not in gone]
        while not gone.isdisjoint(self._after) or not self._is_complete():
            self._read()

    def close(self) -> None:
        for joiner in self._joiners:
            joiner.socket.close()
        self._poll.close()

    def _read(self) -> int:
        """Wait for messages and process them. Returns the number of new welcomes."""
        events = self._poll.poll(PATIENCE)
        if not events:
            raise CheckFailed(
                f"{len(self._welcomed)} of {len(self._joiners)} were welcomed, the host heard of "
                f"{len(self._after)}, and nothing more came in {PATIENCE:g} seconds"
            )
        welcomed = 0
        for place, _ in events:
            if (joiner := self._places.get(place)) is None:
                self._read_host(place)
                continue
            size = joiner.socket.recv_into(self._buffer)
            if not size:
                raise CheckFailed(f"{joiner.participant.id} was disconnected")
            welcomed += self._take(joiner, memoryview(self._buffer)[:size])
        return welcomed

    def _is_complete(self) -> bool:
        """Whether the log is complete, and every connection has received all of it."""
        if len(self._after) < len(self._joiners):
            return False
        for joiner in self._joiners:
            if joiner.messages.unread:
                self._compare(joiner, memoryview(b""))
            if self._position(joiner) != len(self._log):
                return False
        return True

    def _ask(self, joiner: _Joiner) -> None:
        joiner.welcomed_before = len(self._welcomed)
        joiner.asked_at = time.monotonic_ns()
        joiner.socket.send(join_message(joiner.participant))

    def _read_host(self, place: int) -> None:
        host, messages = self._others.get(place, (self._host, self._host_messages))
        messages.feed(host.socket.recv(_BUFFER))
        for opcode, payload in messages.take():
            if opcode == wire.PING:
                host.socket.send(wire.client_message(wire.PONG, payload))
            elif opcode == wire.CLOSE:
                raise CheckFailed(f"{host.id} was disconnected: {describe_close(payload)}")
            elif host is self._host and opcode in (wire.TEXT, wire.BINARY):
                if (told := _presence_in(payload)) is None:
                    continue
                self._log += wire.server_header(opcode, len(payload)) + payload
                self._told.append(told)
                self._ends.append(len(self._log))
                event, id = told
                if event == "leave":
                    self._after.pop(id, None)
                elif id in self._after:
                    raise CheckFailed(f"the presence of {id} was told twice")
                else:
                    self._after[id] = len(self._log)

    def _take(self, joiner: _Joiner, data: memoryview) -> bool:
        """Process received bytes. Returns True when they complete the welcome."""
        if joiner.welcome is not None:
            self._compare(joiner, data)
            return False
        joiner.messages.feed(data)
        id = joiner.participant.id
        while True:
            if not (taken := joiner.messages.take(1)):
                return False
            opcode, payload = taken[0]
            if opcode != wire.PING:
                break
            joiner.socket.send(wire.client_message(wire.PONG, payload))
        if opcode == wire.CLOSE:
            raise Refused(f"the gateway refused the join of {id}: {describe_close(payload)}")
        if b"system/welcome" not in payload[:400]:
            if payload[:1] == b"{":
                refuse_errors(id, msgspec.json.decode(payload))
            raise CheckFailed(f"the first message to {id} is no welcome: {payload[:100]!r}")
        self._waits.append(time.monotonic_ns() - joiner.asked_at)
        joiner.welcome = payload
        self._welcome_bytes += len(payload)
        self._welcomed.append(id)
        self._compare(joiner, memoryview(b""))
        return True

    def _position(self, joiner: _Joiner) -> int | None:
        if joiner.log_at is None:
            joiner.log_at = self._after.get(joiner.participant.id)
        return joiner.log_at

    def _compare(self, joiner: _Joiner, data: memoryview) -> None:
        """Check that the bytes after a welcome are those that the host received after the same join."""
        messages = joiner.messages
        messages.feed(data)
        while (position := self._position(joiner)) is not None:
            unread = messages.unread
            known = min(len(unread), len(self._log) - position)
            if self._log.startswith(unread[:known], position):
                # Only whole messages, because an incomplete one may turn out to be something else.
                end = self._ends[bisect_right(self._ends, position + known) - 1]
                if end > position:
                    joiner.messages = wire.Messages(unread[end - position :])
                    joiner.log_at = end
                return
            if not (taken := messages.take(1)):
                return
            self._look_closely(joiner, position, *taken[0])

    def _look_closely(self, joiner: _Joiner, position: int, opcode: int, payload: bytes) -> None:
        """Check one message that differs from the bytes of the host."""
        id = joiner.participant.id
        if opcode == wire.PING:
            joiner.socket.send(wire.client_message(wire.PONG, payload))
            return
        if opcode == wire.CLOSE:
            raise CheckFailed(f"{id} was disconnected: {describe_close(payload)}")
        place = bisect_right(self._ends, position)
        event, other = _presence_in(payload) or ("", "nobody")
        if place >= len(self._ends) or (event, other) != self._told[place - 1]:
            raise CheckFailed(f"{id} was told that {other} {event}s, where the first participant heard something else")
        joiner.log_at = self._ends[place]

    def check_welcomes(self) -> None:
        """Check that each welcome lists exactly those who joined before it, and every stream with its rights."""
        order = [*self._hosts, *self._after]
        places = {id: place for place, id in enumerate(order)}
        for joiner in self._joiners:
            if joiner.welcome == b"":  # after an earlier storm
                continue
            id = joiner.participant.id
            assert joiner.welcome is not None
            payload = msgspec.json.decode(joiner.welcome)["payload"]
            if payload["you"]["id"] != id:
                raise CheckFailed(f"the welcome of {id} is for {payload['you']['id']}")
            shown = [each["id"] for each in payload["participants"]]
            before = {*self._bystanders, *order[: places[id]]}
            if len(shown) != len(before) or set(shown) != before:
                raise CheckFailed(f"the welcome of {id} shows {len(shown)} others, {len(before)} were there")
            if not before.issuperset(self._welcomed[: joiner.welcomed_before]):
                raise CheckFailed(f"{id} was let in before some who had their welcome when it asked")
            active = {each["stream_id"]: each for each in payload["active_streams"]}
            if len(active) != len(payload["active_streams"]) or active.keys() != self._streams.keys():
                raise CheckFailed(f"the welcome of {id} shows {len(active)} streams, {len(self._streams)} are open")
            for stream, owner in self._streams.items():
                if active[stream]["owner"] != owner or active[stream]["authorized_writers"] != [owner]:
                    raise CheckFailed(f"the welcome of {id} has the wrong owner or writers for {stream}")
            joiner.welcome = b""


def _open_sockets(live: Live, count: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for number in range(count):
            sockets.append(open_socket(live.address))
            if number % _ATTEND_EVERY == 0:
                _answer_pings(sockets)
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


def _answer_pings(sockets: Sequence[socket.socket]) -> None:
    """Answer pings. Nothing else arrives on a connection that has not joined yet."""
    poll = select.poll()
    places = {each.fileno(): each for each in sockets}
    for place in places:
        poll.register(place, select.POLLIN)
    for place, _ in poll.poll(0):
        for opcode, payload in wire.Messages(places[place].recv(_BUFFER)).take():
            if opcode == wire.CLOSE:
                raise Refused(f"the gateway closed a connection before its join: {describe_close(payload)}")
            places[place].send(wire.client_message(wire.PONG, payload))


def _presence_in(message: bytes) -> tuple[str, str] | None:
    """The event and the participant of a presence message; None for any other message."""
    envelope = msgspec.json.decode(message)
    payload = envelope.get("payload") or {}
    if envelope.get("kind") != "system/presence" or payload.get("event") not in ("join", "leave"):
        return None
    return payload["event"], str(payload["participant"]["id"])
