"""What the log says of a space: who is here, which streams are open, who has which right, what falls due."""

from __future__ import annotations

import hashlib
import heapq
from typing import Any

import msgspec

from mewstream.audit.records import Expected, Unjudged

SECOND = 1_000_000
Timer = tuple[str, str, str]
"""The rule by which something falls due, the stream or participant, and the writer whose right it is."""
Index = dict[str, dict[str, None]]
_DOCUMENTED: dict[str, dict[str, Any]] = {
    "policies": {
        "on_owner_leave": "keep",
        "owner_leave_grace": 10.0,
        "on_slow": "drop-oldest",
        "validate": "off",
        "reconnect_grace": 0.0,
        "suspend_for": 30.0,
        "start_timeout": 60.0,
        "idle_timeout": 0.0,
        "invites": "ordinary",
    },
    "limits": {
        "id_bytes": 128,
        "control_bytes": 64 << 10,
        "stream_metadata_bytes": 64 << 10,
        "capability_list_bytes": 8192,
        **dict.fromkeys(("participants_per_space", "streams_per_space", "writers_per_stream"), 10_000),
        **dict.fromkeys(("readers_per_stream", "invitations", "proposals_per_space"), 10_000),
        "admissions": 20_000,
        "write_requests_per_stream": 64,
        "bans": 10_000,
        "streams_per_participant": 256,
        "auto_grants_per_stream": 128,
        "capability_grants": 1024,
        "proposals_per_participant": 128,
        "refused_excerpt_bytes": 256,
    },
}
"""What holds for a space whose configuration does not say otherwise."""


class Right(msgspec.Struct, array_like=True):
    since: int
    expires_at: int | None = None
    max_frames: int | None = None
    conditions: dict[str, Any] | None = None
    used: int = 0
    """How many frames were written under it, up to the seq ``counted``."""
    counted: int = 0


class Stream(msgspec.Struct, array_like=True):
    """``names``: the ids of the request and of the answer. ``disputed``: of whom it is not certain whether they may
    write, because a record about them is missing. ``delegated``: rights on it may depend on others, which
    is not judged."""

    id: str
    owner: str
    status: str
    names: list[str]
    on_owner_leave: str
    grace: float
    alias: str | None
    auto: dict[str, None]
    writers: dict[str, Right] = {}
    readers: dict[str, None] | None = None
    disputed: dict[str, None] = {}
    formats: list[str] = []
    enforced: bool = False
    requests: dict[str, None] = {}
    idle: float = 0.0
    touched: int = 0
    delegated: bool = False

    def listed(self) -> list[str]:
        return [self.owner, *(each for each in self.writers if each != self.owner)]


class Space(msgspec.Struct, array_like=True):
    """What is carried from batch to batch. ``people``: whether each is connected; ``extended``: whose clients know more
    than v0.4. ``whole``: the log was seen from its beginning, so that what is not known
    does not exist. ``passed``: timers that were due when something else was decided.
    ``excused``: records that were not right, or not judged, so that what follows from them is not judged either.
    ``doubtful``: since the last welcome that was right there was a finding."""

    id: str
    whole: bool = True
    epoch: str = ""
    seq: int = 0
    ts: int = 0
    changed: int = 0
    config: dict[str, Any] | None = None
    roster: dict[str, list[Any]] = {}
    invited: dict[str, list[Any]] = {}
    admitted: dict[str, list[Any]] = {}
    banned: dict[str, int] = {}
    grants: dict[str, dict[str, list[Any]]] = {}
    granters: dict[str, str] = {}
    people: dict[str, bool] = {}
    extended: dict[str, None] = {}
    gone: dict[str, None] = {}
    paused: dict[str, tuple[int | None, str | None]] = {}
    shut_down: dict[str, None] = {}
    streams: dict[str, Stream] = {}
    opened: int = 0
    proposals: dict[str, str] = {}
    due: dict[Timer, int] = {}
    passed: dict[Timer, None] = {}
    expected: list[Expected] = []
    excused: dict[int, None] = {}
    to_suspend: dict[str, None] = {}
    told: bytes = bytes(16)
    tells: bool = False
    doubtful: bool = False

    def setting(self, group: str, name: str) -> Any:
        if self.config is None:
            raise Unjudged(BEGINS_LATER)
        return self.config.get(group, {}).get(name, _DOCUMENTED[group][name])

    def has(self, holds: bool) -> bool:
        """Whether something is so, where the whole log must be known to deny it."""
        if not holds and not self.whole:
            raise Unjudged(BEGINS_LATER)
        return holds

    def enrol(self, *participants: str) -> None:
        """What they may do: by a signed token, by the configuration, or by an invitation."""
        configured = (self.config or {}).get("participants", {})
        for each in participants:
            given = self.admitted.get(each) or configured.get(each, {}).get("capabilities", self.invited.get(each))
            self.roster.pop(each, None)
            if given is not None:
                self.roster[each] = given

    def is_present(self, participant: str) -> bool:
        return participant not in self.gone and self.has(participant in self.people)

    def patterns(self, participant: str) -> list[Any]:
        """Its capabilities, without those that mirror rights."""
        granted = self.grants.get(participant, {}).values()
        return [*self.roster.get(participant, ()), *(pattern for each in granted for pattern in each)]


BEGINS_LATER = "the log begins in the middle"


class Ledger:
    """A space with what follows from its state: indexes, the earliest deadline, the digest of the welcome."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.owns: Index = {}
        self.writes: Index = {}
        self.reads: Index = {}
        self.standing: Index = {}
        self.asks: Index = {}
        self.named: Index = {}
        self.proposed: Index = {}
        self.aliases: dict[str, str] = {}
        self._told = int.from_bytes(space.told, "big")
        self._heap = [(at, timer) for timer, at in space.due.items()]
        heapq.heapify(self._heap)
        for stream in space.streams.values():
            self._index(stream)
            for index, some in (
                (self.writes, stream.writers),
                (self.reads, stream.readers or {}),
                (self.asks, stream.requests),
            ):
                for each in some:
                    _add(index, each, stream.id)
        for id, proposer in space.proposals.items():
            _add(self.proposed, proposer, id)

    def encode(self) -> bytes:
        self.space.told = self._told.to_bytes(16, "big")
        return msgspec.msgpack.encode(self.space)

    @property
    def welcome_digest(self) -> str:
        """See "The digest of a welcome" in docs/journal.md."""
        return f"{self._told:032x}"

    @welcome_digest.setter
    def welcome_digest(self, digest: str) -> None:
        self._told = int(digest, 16)

    def _tell(self, sign: int, *fact: Any) -> None:
        hashed = hashlib.blake2b(msgspec.json.encode(fact, order="sorted"), digest_size=16).digest()
        self._told = (self._told + sign * int.from_bytes(hashed, "big")) % (1 << 128)

    # -- deadlines -----------------------------------------------------------------------------

    def set_timer(self, timer: Timer, at: int | None) -> None:
        self.space.passed.pop(timer, None)
        self.space.due.pop(timer, None)
        if at is not None:
            self.space.due[timer] = at
            heapq.heappush(self._heap, (at, timer))

    def overdue(self, ts: int) -> list[Timer]:
        """What has fallen due by then, the earliest first."""
        found: dict[Timer, int] = {}
        while self._heap and self._heap[0][0] <= ts:
            at, timer = heapq.heappop(self._heap)
            if self.space.due.get(timer) == at:
                found[timer] = at
        for timer, at in found.items():
            heapq.heappush(self._heap, (at, timer))
        return list(found)

    # -- participants and proposals ------------------------------------------------------------

    def enter(self, participant: str, *, extended: bool) -> None:
        if participant not in self.space.people:
            self._tell(1, "participant", participant)
        self.space.people[participant] = True
        if extended:
            self.space.extended[participant] = None
        else:
            self.space.extended.pop(participant, None)
        for some in (self.space.gone, self.space.shut_down, self.space.to_suspend):
            some.pop(participant, None)
        self.set_timer(("rejoin", participant, ""), None)
        for stream in self.owns.get(participant, ()):
            self.set_timer(("owner_left", stream, ""), None)

    def leave(self, participant: str, ts: int) -> None:
        if self.space.people.pop(participant, None) is not None:
            self._tell(-1, "participant", participant)
        if not self.space.whole:
            self.space.gone[participant] = None
        for stream in self.asks.pop(participant, ()):
            self.space.streams[stream].requests.pop(participant, None)
        self.space.to_suspend.pop(participant, None)
        self.set_timer(("rejoin", participant, ""), None)
        for stream in self.owns.get(participant, ()):
            self.await_owner(self.space.streams[stream], ts)

    def await_owner(self, stream: Stream, ts: int) -> None:
        if stream.on_owner_leave != "keep":
            self.set_timer(("owner_left", stream.id, ""), ts + round(stream.grace * SECOND))

    def propose(self, id: str, proposer: str) -> None:
        """The newest proposals of each participant, and of all, are remembered."""
        proposals = self.space.proposals
        if proposals.setdefault(id, proposer) == proposer:
            _add(self.proposed, proposer, id)
            if len(self.proposed[proposer]) > self.space.setting("limits", "proposals_per_participant"):
                self._forget(next(iter(self.proposed[proposer])))
            while len(proposals) > self.space.setting("limits", "proposals_per_space"):
                self._forget(next(iter(proposals)))

    def _forget(self, id: str) -> None:
        _drop(self.proposed, self.space.proposals.pop(id), id)

    # -- streams -------------------------------------------------------------------------------

    def find(self, reference: str) -> Stream | None:
        return self.space.streams.get(self.aliases.get(reference, reference))

    def _index(self, stream: Stream) -> None:
        _add(self.owns, stream.owner, stream.id)
        for index, some in ((self.standing, stream.auto), (self.named, stream.names)):
            for each in some:
                _add(index, each, stream.id)
        if stream.alias is not None:
            self.aliases[stream.alias] = stream.id

    def open(self, stream: Stream, seq: int, readers: list[str] | None, writers: list[str]) -> None:
        self.space.streams[stream.id] = stream
        self._index(stream)
        self._tell(1, "stream", stream.id, stream.owner, stream.status)
        for writer in writers:
            self.give(stream, writer, Right(seq))
        self.set_readers(stream, readers)

    def end(self, stream: Stream) -> None:
        self._tell(-1, "stream", stream.id, stream.owner, stream.status)
        for writer in list(stream.writers):
            self.take(stream, writer)
        self.set_readers(stream, None)
        _drop(self.owns, stream.owner, stream.id)
        for index, some in ((self.standing, stream.auto), (self.named, stream.names), (self.asks, stream.requests)):
            for each in some:
                _drop(index, each, stream.id)
        if stream.alias is not None:
            self.aliases.pop(stream.alias, None)
        for what in ("start_timeout", "owner_left"):
            self.set_timer((what, stream.id, ""), None)
        del self.space.streams[stream.id]

    def change(self, stream: Stream, *, owner: str | None = None, status: str | None = None) -> None:
        self._tell(-1, "stream", stream.id, stream.owner, stream.status)
        _drop(self.owns, stream.owner, stream.id)
        stream.owner, stream.status = owner or stream.owner, status or stream.status
        _add(self.owns, stream.owner, stream.id)
        self._tell(1, "stream", stream.id, stream.owner, stream.status)

    def give(self, stream: Stream, writer: str, right: Right) -> None:
        if (held := stream.writers.get(writer)) is not None:
            right.since = held.since
            self._tell(-1, "writer", stream.id, writer, held.conditions)
        stream.writers[writer] = right
        self.answer(stream, writer)
        _add(self.writes, writer, stream.id)
        self._tell(1, "writer", stream.id, writer, right.conditions)
        self.set_timer(("expiry", stream.id, writer), right.expires_at)

    def take(self, stream: Stream, writer: str) -> None:
        if (held := stream.writers.pop(writer, None)) is not None:
            self._tell(-1, "writer", stream.id, writer, held.conditions)
            _drop(self.writes, writer, stream.id)
            self.set_timer(("expiry", stream.id, writer), None)

    def ask(self, stream: Stream, participant: str) -> None:
        stream.requests[participant] = None
        _add(self.asks, participant, stream.id)

    def answer(self, stream: Stream, participant: str) -> None:
        stream.requests.pop(participant, None)
        _drop(self.asks, participant, stream.id)

    def end_standing(self, stream: Stream, participant: str) -> None:
        if participant in stream.auto:
            del stream.auto[participant]
            _drop(self.standing, participant, stream.id)

    def settle(self, stream: Stream, listed: list[str], seq: int) -> None:
        """Everyone was told this list of writers: it says what was disputed, and what differs is disputed now."""
        told = set(listed)
        for writer in stream.disputed:
            if writer in told and writer not in stream.writers:
                self.give(stream, writer, Right(seq))
            elif writer not in told:
                self.take(stream, writer)
        if list(stream.writers) != listed:
            stream.disputed = dict.fromkeys(set(stream.writers).symmetric_difference(listed))
            order = dict.fromkeys((*listed, *stream.writers))
            stream.writers = {each: stream.writers[each] for each in order if each in stream.writers}

    def set_readers(self, stream: Stream, readers: list[str] | None) -> None:
        before, after = stream.readers, None if readers is None else dict.fromkeys(readers)
        for sign, some, others in ((-1, before, after), (1, after, before)):
            if some is not None and others is None:
                self._tell(sign, "readers", stream.id)
            for reader in some or ():
                if reader not in (others or ()):
                    self._tell(sign, "reader", stream.id, reader)
                    (_add if sign > 0 else _drop)(self.reads, reader, stream.id)
        stream.readers = after


def _add(index: Index, key: str, value: str) -> None:
    index.setdefault(key, {})[value] = None


def _drop(index: Index, key: str, value: str) -> None:
    if (values := index.get(key)) is not None:
        values.pop(value, None)
        if not values:
            del index[key]
