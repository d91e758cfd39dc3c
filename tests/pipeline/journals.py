"""Journals made by hand, for tests of the pipeline.

A :class:`Play` is a space without a gateway: commands go through ``decide`` and ``apply``, so that its log is what a
gateway would have written. :meth:`Play.plant` puts in what the core would never write.

    play = Play(policies={"on_owner_leave": "transfer"}, begin=True)   # ann, bob, cy and dee are here
    stream = play.open("ann", direction="upload")                      # 'stream-1'
    play.send("ann", "stream/grant-write", stream_id=stream, participant_id="bob")
    play.frame("bob", stream, b"x=1")
    play.data("ann", stream, {"x": 1}, sequence=7)
    play.wait(30)                                                      # what falls due meanwhile happens
    play.plant(Frame, **frame_fields(play, stream, "cy"))              # an unauthorized frame, delivered
    write_journal(tmp_path / "data", play, lively(500, space="other", seed=1), per_batch=7)

``tmp_path / "data"`` is then what a gateway's ``--data`` is. With a small ``segment_bytes`` and ``seal=True`` it
has many segments, all but the last of each partition sealed. To go on writing, :func:`opened` gives a journal that is
closed at the end, :func:`append` writes what is new in a play, :func:`seal_segments` and :func:`prune_before` do what a
gateway does beside its loop. :func:`rows_of` reads a journal back without Spark, to compare with.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from mewstream.journal import schema
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader
from mewstream.journal.retention import PrunePlan
from mewstream.protocol import commands, kinds
from mewstream.protocol.decide import decide
from mewstream.protocol.envelope import parse_envelope
from mewstream.protocol.fold import apply
from mewstream.protocol.records import Frame, Record, SpaceStarted, StreamOpened
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import SECOND, rfc3339

START = 1_700_000_000_000_000
PEOPLE = ("ann", "bob", "cy", "dee")
POSITION_SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "label": {"type": "string"}},
    "required": ["x"],
}
POSITION_FORMAT = {"id": "position", "mime_type": "application/json", "schema": POSITION_SCHEMA}


class Play:
    """What happens in one space. ``records`` is its log; ``now`` is the clock, in microseconds."""

    def __init__(
        self,
        space: str = "demo",
        *,
        people: Iterable[str] = PEOPLE,
        capabilities: dict[str, list[dict[str, Any]]] | None = None,
        policies: dict[str, Any] | None = None,
        limits: dict[str, Any] | None = None,
        seed: int = 0,
        start: int = START,
        begin: bool = False,
    ) -> None:
        """Everyone may do everything, but for those that ``capabilities`` names. ``begin``: they have joined."""
        self.space = space
        self.people = tuple(people)
        self.state = SpaceState(space)
        self.records: list[Record] = []
        self.written = 0
        """How many of them :func:`append` has put into a journal."""
        self.now = start
        self.random = random.Random(seed)
        self._ids = 0
        self._runs = 0
        self._sequences: dict[tuple[str, str], int] = {}
        given = {each: [{"kind": "*"}] for each in self.people} | (capabilities or {})
        self.config = {
            "participants": {id: {"capabilities": patterns} for id, patterns in given.items()},
            "policies": policies or {},
            "limits": limits or {},
        }
        self.restart()
        if begin:
            for each in self.people:
                self.join(each)

    # -- commands ---------------------------------------------------------------------------------

    def do(self, command: commands.Command, *, after: float = 0.001) -> list[Record]:
        """Carry out a command ``after`` so many seconds: what is due by then comes first."""
        self.wait(after)
        return self._decide(command)

    def _decide(self, command: commands.Command) -> list[Record]:
        made = decide(self.state, self.now, command).records
        for record in made:
            apply(self.state, record)
        self.records += made
        return made

    def wait(self, seconds: float) -> list[Record]:
        """Time passes, and what falls due happens at its time."""
        until = self.now + round(seconds * SECOND)
        made = []
        while (due := self.state.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            made += self._decide(commands.Tick())
        self.now = until
        return made

    def restart(self, *, after: float = 0.0) -> None:
        """A run of the gateway begins. Whoever was here is suspended, as after ``kill -9``."""
        self.now += round(after * SECOND)
        self._runs += 1
        self._decide(commands.Start(f"play-{self._runs}", self.config))
        for participant in list(self.state.participants):
            self._decide(commands.Suspend(participant, "restart"))

    def join(self, participant: str, *, continues: bool = False) -> list[Record]:
        return self.do(commands.Join(participant, "websocket", continues))

    def leave(self, participant: str, reason: str = "disconnected") -> list[Record]:
        session = self.state.participants[participant].session
        return self.do(commands.Disconnect(participant, session, reason))

    def suspend(self, participant: str, reason: str = "drain") -> list[Record]:
        return self.do(commands.Suspend(participant, reason))

    def send(self, sender: str, kind: str, *, envelope: dict[str, Any] | None = None, **payload: Any) -> list[Record]:
        """An envelope with this payload; ``envelope`` holds other fields of it (``to``, ``id``, ``correlation_id``)."""
        self._ids += 1
        fields = {"id": f"{sender}-{self._ids}", "kind": kind, "payload": payload} | (envelope or {})
        return self.do(commands.Send(sender, parse_envelope(json.dumps(fields).encode(), max_id_bytes=128)))

    def open(self, owner: str, **payload: Any) -> str:
        """``stream/request``, accepted: the stream is live."""
        return self._opened(self.send(owner, kinds.STREAM_REQUEST, **payload))

    def announce(self, owner: str, *, start: bool = True, **payload: Any) -> str:
        """``stream/announce``, accepted, and ``stream/start`` unless told otherwise."""
        stream = self._opened(self.send(owner, kinds.STREAM_ANNOUNCE, **payload))
        if start:
            self.send(owner, kinds.STREAM_START, stream_id=stream)
        return stream

    @staticmethod
    def _opened(made: list[Record]) -> str:
        [opened] = [each for each in made if isinstance(each, StreamOpened)]
        return opened.stream_id

    def frame(self, sender: str, stream: str, data: bytes = b"x", *, opcode: int = 2) -> list[Record]:
        return self.do(commands.SendFrame(sender, stream, data, opcode))

    def data(
        self, sender: str, stream: str, content: Any, *, sequence: int | None = None, **payload: Any
    ) -> list[Record]:
        """``stream/data``. Without a ``sequence`` it is the next one of this writer."""
        if sequence is None:
            sequence = self._sequences.get((sender, stream), -1) + 1
        self._sequences[sender, stream] = sequence
        return self.send(sender, kinds.STREAM_DATA, stream_id=stream, sequence=sequence, content=content, **payload)

    # -- what the core would never write ----------------------------------------------------------

    def plant(self, record: type[Record], *, fold: bool = False, cause_seq: int | None = None, **fields: Any) -> int:
        """Put a record of any kind into the log, right or wrong, and return its seq. The state knows nothing of it
        unless ``fold``; numbers of records and of frames go on after it all the same."""
        self.now += 1000
        planted = record(self.state.seq + 1, max(self.now, self.state.ts), cause_seq, **fields)
        if fold:
            apply(self.state, planted)
        elif isinstance(planted, Frame) and (stream := self.state.streams.get(planted.stream_id)) is not None:
            stream.frames = max(stream.frames, planted.stream_seq)
        self.state.seq, self.state.ts = planted.seq, planted.ts
        self.records.append(planted)
        return planted.seq

    def plant_unknown(self, name: str = "moved", **detail: Any) -> int:
        """A record of a newer version, which this one does not know."""
        return self.plant(_newer_record(name), content=detail)

    # -- whatever happens -------------------------------------------------------------------------

    def begin(self) -> Play:
        """Everyone is here, and there are streams of every sort."""
        for each in self.people:
            self.join(each)
        first, second, *_ = self.people
        self.open(first, direction="upload", desired_id="main")
        self.announce(second, formats=[POSITION_FORMAT], intent="positions")
        self.send(first, "stream/grant-write", stream_id="stream-1", participant_id=second)
        self.announce(first, start=False)
        return self

    def step(self) -> list[Record]:
        """Something happens: mostly what is allowed, and sometimes not."""
        chance = self.random
        absent = [each for each in self.people if not self.state.is_present(each)]
        if absent and chance.random() < 0.3:
            return self.join(chance.choice(absent), continues=chance.random() < 0.5)
        stream = chance.choice([*self.state.streams, "stream-1"])
        who, other = self._somebody(stream), chance.choice(self.people)
        match chance.randrange(40):
            case 0 | 1:
                return self._about(stream, who, "stream/grant-write", participant_id=other, reason="a turn")
            case 2:
                return self._about(stream, who, "stream/revoke-write", participant_id=other)
            case 3:
                keep = chance.random() < 0.5
                return self._about(stream, who, "stream/transfer-ownership", new_owner=other, retain_write=keep)
            case 4:
                target = {"target": sorted({who, other})} if chance.random() < 0.5 else {}
                return self.send(who, "stream/request", description="by chance", **target)
            case 5:
                formats = [POSITION_FORMAT] if chance.random() < 0.7 else []
                return self.send(who, "stream/announce", formats=formats, validate=chance.choice(["off", "enforce"]))
            case 6 | 7:
                return self._about(stream, who, "stream/start")
            case 8 if len(self.state.streams) > 3:
                return self._about(stream, who, chance.choice(["stream/close", "stream/complete"]))
            case 9:
                kind = chance.choice(["stream/grant-read", "stream/revoke-read"])
                return self._about(stream, who, kind, participant_id=other)
            case 10:
                return self.join(who)
            case 11 if self.state.is_present(who):
                return self.leave(who)
            case 12:
                return self.suspend(who)
            case 13:
                return self.send(who, "chat", text="x" * chance.randrange(200))
            case 14 | 15:
                conditions: dict[str, Any] = {"max_frames": chance.randrange(1, 5)}
                if chance.random() < 0.5:
                    conditions = {"expires_at": rfc3339(self.now + chance.randrange(1, 5 * SECOND))}
                return self._about(stream, who, "stream/grant-write", participant_id=other, conditions=conditions)
            case 16:
                return self.wait(chance.random() * 10)
            case 17:
                capabilities = [{"kind": f"chat/{self._ids}"}]
                return self.send(who, "capability/grant", recipient=other, capabilities=capabilities)
            case 18:
                return self.do(commands.ReportDrop(other, stream, chance.randrange(1, 9), 1, self.state.seq, "latest"))
            case 19 if chance.random() < 0.2:
                self.restart(after=1.0)
                return []
            case 20 | 21 | 22 | 23 | 24:
                content = chance.choice([{"x": chance.random()}, {"x": "no number"}, {"x": 1, "label": "é"}, "text"])
                sequence = self._sequences.get((who, stream), -1) + chance.choice([1, 1, 1, 3, 0])
                return self.data(who, stream, content, sequence=max(sequence, 0))
            case _ if not self.state.is_connected(who):
                # Raw frames come by a connection.
                return self.join(who, continues=chance.random() < 0.5)
            case _:
                data = b'{"x":%d}' % chance.randrange(99) if chance.random() < 0.5 else chance.randbytes(20)
                return self.frame(who, stream, data, opcode=1 if data.isascii() else 2)

    def _somebody(self, stream: str) -> str:
        """Mostly one who may do something with a stream."""
        known = self.state.streams.get(stream)
        if known is None or self.random.random() < 0.15:
            return self.random.choice(self.people)
        return known.owner if self.random.random() < 0.6 else self.random.choice(known.authorized_writers())

    def _about(self, stream: str, who: str, kind: str, **payload: Any) -> list[Record]:
        return self.send(who, kind, stream_id=stream, **payload)


def lively(count: int, *, space: str = "demo", seed: int = 0, **options: Any) -> Play:
    """A space in which at least so many records were written. The same arguments give the same log."""
    play = Play(space, seed=seed, **options).begin()
    while len(play.records) < count:
        play.step()
    return play


def frame_fields(play: Play, stream: str, sender: str, data: bytes = b"x", **fields: Any) -> dict[str, Any]:
    """What a planted raw frame needs, in line with the numbers of its stream."""
    known = play.state.streams.get(stream)
    sent = [each.stream_seq for each in play.records if isinstance(each, Frame) and each.stream_id == stream]
    return {
        "stream_id": stream,
        "sender": sender,
        "stream_seq": (known.frames if known is not None else max(sent, default=0)) + 1,
        "opcode": 2,
        "recipients": play.state.connected,
        "data": data,
    } | fields


def _newer_record(name: str) -> type[Record]:
    """A type of record that only a newer version would have; the writing end is told of it, no reader is."""
    made: type[Record] = msgspec.defstruct(name, [("content", dict)], bases=(Record,), tag=name)  # type: ignore[assignment]
    schema._DESCRIBE[made] = lambda record: schema.Described(sender=kinds.GATEWAY)
    return made


# -- journals -------------------------------------------------------------------------------------


def write_journal(
    data: Path, *plays: Play, per_batch: int = 5, seal: bool = False, partitions: int = 4, **options: Any
) -> Path:
    """A closed journal that holds these plays, as they went on side by side. Returns ``data``."""
    with opened(data, partitions=partitions, **options) as journal:
        append(journal, *plays, per_batch=per_batch)
        if seal:
            seal_segments(journal)
    return data


@contextlib.contextmanager
def opened(data: Path, **options: Any) -> Iterator[LocalJournal]:
    journal = LocalJournal(data, **options)
    try:
        yield journal
    finally:
        journal.close()


def append(journal: LocalJournal, *plays: Play, per_batch: int = 5) -> int:
    """Write what is new in these plays, in the order of time, one batch of a partition for every so many records.
    Returns how many records that were."""
    written = 0
    for space, epoch, record in heapq.merge(*map(_rows, plays), key=lambda row: row[2].ts):
        partition = journal.partition(space)
        partition.append(space, epoch, record)
        written += 1
        if partition.pending >= per_batch:
            partition.flush()
    for partition in journal.partitions:
        partition.flush()
    return written


def _rows(play: Play) -> Iterator[tuple[str, str, Record]]:
    """What is new since the last time, with the run of the gateway that each record is of."""
    epoch = ""
    for place, record in enumerate(play.records, 1):
        if isinstance(record, SpaceStarted):
            epoch = record.epoch
        if place > play.written:
            play.written = place
            yield play.space, epoch, record


def seal_segments(journal: LocalJournal) -> int:
    """Rewrite every full segment, as a gateway does beside its loop."""
    waiting = journal.segments_to_seal()
    for partition, name in waiting:
        partition.seal(name)
    return len(waiting)


def prune_before(journal: LocalJournal, number: int, offset: int) -> int:
    """Forget whole segments of a partition that lie below an offset. Returns where it begins now."""
    gone = [each for each in journal.reader.segments(number)[:-1] if each.next_offset <= offset]
    if gone:
        journal.prune(PrunePlan(segments=gone, begins_at={number: gone[-1].next_offset}))
    return journal.identity.pruned.get(number, 0)


def rows_of(data: Path) -> pa.Table:
    """Everything in a journal, by partition and offset, with the number of the partition in front. Without Spark."""
    reader = JournalReader(data / "journal")
    tables = []
    for number in range(reader.identity().partitions):
        batches = [batch.rows for batch in reader.batches(number)]
        table = pa.Table.from_batches(batches, schema.SCHEMA)
        tables.append(table.add_column(0, "partition", pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)))
    return pa.concat_tables(tables)
