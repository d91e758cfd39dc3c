"""From the records of a batch to the rows of the tables, space by space: in the workers, or here where there is little.

All records of a space are in one partition of the journal, so that a partition is a piece of work: nothing is shuffled.
What a space has left of the batches before it comes along, and what it leaves to the next one is written beside the
other tables.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mewstream.audit import Finding, SpaceAuditor
from mewstream.history.flow import Counted
from mewstream.history.fold import KNOWN, SpaceHistory
from mewstream.history.reading import SpaceRecords, by_space
from mewstream.history.state import Announced
from mewstream.journal.erase import ERASED
from mewstream.journal.reader import partition_of
from mewstream.pipeline.arrow_work import Batches
from mewstream.pipeline.column_types import arrow_type
from mewstream.pipeline.files import DATA_FILES, TOLD, DataFile, OpenFiles, read_file
from mewstream.pipeline.storage import Store
from mewstream.pipeline.tables import AUDIT, BY_NAME, IS_OPEN, SPACES, Table

#: So many rows of a table are made before they are written.
_TOGETHER = 20_000
_MOST_FILES = 64
TOLD_SPACES = f"{DATA_FILES}, spaces binary"
"""What a worker tells: the files that it has written, and in one more row what the driver must know of the spaces."""


class Life(msgspec.Struct, array_like=True):
    """Of a stream with formats, within a batch."""

    stream_id: str
    ready_seq: int
    ended_seq: int | None
    formats: list[Announced]


class Space(msgspec.Struct, array_like=True):
    """What the driver must know of a space in a batch."""

    space: str
    kinds: dict[str, int]
    """How many records there are of each kind."""
    offsets: tuple[int, int]
    """The first and the last."""
    seqs: tuple[int, int]
    times: tuple[int, int]
    formatted: int
    """Frames with a format."""
    sums: dict[str, int]
    """What the batch adds to columns of ``space_summary``."""
    current: dict[str, int]
    """Columns of it that are counted anew."""
    lives: list[Life]
    unjudged: list[tuple[str, str, int]]
    """What the audit could not judge, why, and how much of it."""


_spaces = msgspec.msgpack.Decoder(list[Space])


def folded(store: Store, states: Sequence[DataFile], _: int, rows: Batches) -> Batches:
    """Write the rows that follow from narrow rows of ``records``, and tell of them. ``states`` are the files with what
    the spaces have left."""
    batches = [each for each in rows if each.num_rows]
    told: list[Space] = []
    with OpenFiles(store, most=_MOST_FILES) as files:
        writing = _Writing(files)
        if batches:
            whole = pa.Table.from_batches(batches)
            before = _carried(store, states, pc.unique(whole.column("space")))
            for each in by_space(whole):
                one = fold(each, before.get(each.space, Carried()))
                for name, made in one.rows.items():
                    writing.add(BY_NAME[name], made)
                writing.add(SPACES, [{"space": each.space, **one.carried._asdict()}])
                told.append(one.told)
        writing.flush()
        written = files.finish()
    rest = pa.RecordBatch.from_pylist([msgspec.structs.asdict(each) for each in written], TOLD)
    last = pa.RecordBatch.from_pylist([{"table": ""}], TOLD)
    yield _with_spaces(rest, None)
    yield _with_spaces(last, msgspec.msgpack.encode(told))


def _with_spaces(rows: pa.RecordBatch, value: bytes | None) -> pa.RecordBatch:
    spaces = pa.repeat(pa.scalar(value, pa.binary()), rows.num_rows)
    return pa.RecordBatch.from_arrays([*rows.columns, spaces], [*rows.schema.names, "spaces"])


def understood(rows: Sequence[dict[str, Any]]) -> tuple[list[DataFile], list[Space]]:
    """What the workers have told."""
    files, spaces = [], []
    for row in rows:
        told = row.pop("spaces")
        if told is None:
            files.append(DataFile(**row))
        else:
            spaces += _spaces.decode(told)
    return files, spaces


def of_partition(number: int, count: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Keeps the rows of the spaces of one partition of the journal."""
    return functools.partial(_of_partition, number=number, count=count)


def _of_partition(rows: pa.RecordBatch, *, number: int, count: int) -> pa.RecordBatch:
    column = rows.column("space")
    spaces = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    own = pa.array([partition_of(space, count) == number for space in spaces.dictionary.to_pylist()], pa.bool_())
    return rows.filter(own.take(spaces.indices))


# -- one space ------------------------------------------------------------------------------------


class Carried(NamedTuple):
    """What a space leaves to the next batch."""

    history: bytes | None = None
    audit: bytes | None = None


class Folded(NamedTuple):
    rows: dict[str, list[dict[str, Any]]]
    """By the name of the table."""
    told: Space
    carried: Carried


def fold(records: SpaceRecords, carried: Carried) -> Folded:
    """What follows from the records of a space in a batch, and from those before it."""
    space, frames = records.space, records.frames
    seqs = [each.seq for each in records.control] + frames.seq[:1].tolist()
    history = SpaceHistory(space, carried.history, min(seqs))
    auditor = SpaceAuditor(space, carried.audit, Counted(frames))
    for each in records.control:
        history.see(each)
        # What was erased says nothing. The summary counts it, and an erase leaves nothing else of a space.
        if each.record != ERASED:
            auditor.see(each)
    history.place(frames, records.offsets)
    rows = history.rows()
    found = [*map(_finding, auditor.findings), *(each._asdict() for each in history.all_findings())]
    rows[AUDIT.name] = [{"space": space, **each} for each in found]
    told = _told(records, history)
    _judged(told, history, auditor, len(found))
    return Folded(rows, told, Carried(history.carried(), auditor.carried()))


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "seq": found.seq,
        "ts": found.ts,
        "rule": found.rule,
        "severity": "breach",
        "stream_id": found.stream_id,
        "participant": found.participant,
        "reason": found.reason,
        "evidence_seq": found.cause_seq,
    }


#: What the auditor counts, by the columns of ``space_summary`` that show it.
_SHOWN = {"change": "changes", "envelope": "changes", "refusal": "refusals", "welcome": "welcomes"}


def _judged(told: Space, history: SpaceHistory, auditor: SpaceAuditor, findings: int) -> None:
    unjudged = Counter(auditor.unjudged)
    if history.frames_not_judged:
        unjudged["frame", "the log does not have the opening of its stream"] += history.frames_not_judged
    sums = Counter({"findings": findings, "frames_judged": told.sums["frames"] - history.frames_not_judged})
    sums["frames_not_judged"] = history.frames_not_judged
    for counts, suffix in ((auditor.judged, "judged"), (auditor.unjudged, "not_judged")):
        for (what, _), count in counts.items():
            if what in _SHOWN:
                sums[f"{_SHOWN[what]}_{suffix}"] += count
    told.sums |= sums
    told.unjudged = [(what, reason, count) for (what, reason), count in sorted(unjudged.items())]


def _told(records: SpaceRecords, history: SpaceHistory) -> Space:
    frames = records.frames
    kinds = Counter(each.record for each in records.control)
    kinds["frame"] += frames.number
    offsets, seqs, times = (
        ([*few], many)
        for few, many in (
            (records.offsets, frames.offset),
            ((each.seq for each in records.control), frames.seq),
            ((each.ts for each in records.control), frames.ts),
        )
    )
    return Space(
        space=records.space,
        kinds={kind: count for kind, count in kinds.items() if count},
        offsets=_ends(*offsets),
        seqs=_ends(*seqs),
        times=_ends(*times),
        formatted=int(frames.formatted.sum()),
        sums={
            "records": sum(kinds.values()),
            "unknown_records": sum(count for kind, count in kinds.items() if kind not in KNOWN),
            "envelopes": kinds["envelope"],
            "frames": frames.number,
            "bytes": int(frames.size.sum()),
            "refusals": history.refusals,
            "drops": history.drops,
            "joins": history.sessions.begun,
            "streams": kinds["stream-opened"],
        },
        current={
            "participants": len(history.sessions.joined),
            "present": len(history.sessions.open),
            "open_streams": len(history.streams.open),
        },
        lives=[
            Life(life.stream_id, life.ready_seq, life.ended_seq, life.formats)
            for lives in history.streams.lives.values()
            for life in lives
            if life.formats
        ],
        unjudged=[],
    )


def _ends(few: list[int], many: Any) -> tuple[int, int]:
    values = [*few, *((int(many.min()), int(many.max())) if len(many) else ())]
    return min(values), max(values)


# -- what spaces have left ------------------------------------------------------------------------


def _carried(store: Store, files: Sequence[DataFile], spaces: pa.Array) -> dict[str, Carried]:
    wanted = spaces.cast(pa.string())
    found: dict[str, Carried] = {}
    for file in files:
        for rows in read_file(store, file, SPACES.names):
            mine = rows.filter(pc.is_in(rows.column("space"), value_set=wanted))
            for row in mine.to_pylist():
                found[row["space"]] = Carried(row["history"], row["audit"])
    return found


# -- writing --------------------------------------------------------------------------------------


class _Writing:
    def __init__(self, files: OpenFiles) -> None:
        self._files = files
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def add(self, table: Table, rows: list[dict[str, Any]]) -> None:
        waiting = self._rows[table.name]
        waiting += rows
        if len(waiting) >= _TOGETHER:
            self._write(table)

    def flush(self) -> None:
        for name in list(self._rows):
            self._write(BY_NAME[name])

    def _write(self, table: Table) -> None:
        if rows := self._rows.pop(table.name, []):
            self._files.write(table, arrow_table(table, rows))


def arrow_table(table: Table, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as they are written: times are microseconds, and what a row does not have is null."""
    columns = [*table.columns, *([IS_OPEN] if table.partition is IS_OPEN else [])]
    arrays = [pa.array([row.get(column.name) for row in rows], arrow_type(column.type)) for column in columns]
    return pa.Table.from_arrays(arrays, [column.name for column in columns])
