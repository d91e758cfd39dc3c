"""The state of a space as it was at a point of its log: what a joiner would have been told there.

The state is a fold over the log (:mod:`mewstream.protocol.fold`), so the past is the same fold that ends earlier. From
the journal every record is folded, from the newest snapshot before the point on. From the bronze table ``records`` only
what changes rights and presence is; what frames add to a welcome (where a stream stands, and what is left of a bounded
right) is counted in SQL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from mewstream.journal.errors import PositionGone
from mewstream.journal.interface import Entry
from mewstream.journal.local import read_snapshot, snapshot_files
from mewstream.journal.reader import JournalReader, partition_of
from mewstream.journal.schema import SCHEMA, decode
from mewstream.pipeline.errors import PipelineError
from mewstream.protocol.fold import apply
from mewstream.protocol.records import Record, WriteGranted
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import rfc3339

if TYPE_CHECKING:
    from mewstream.query.database import WarehouseDatabase

#: Records that change nobody's presence or rights, and are by far the most.
_FLOW = ("frame", "envelope", "refused", "frames-dropped")
_BOUNDS = "SELECT min(seq) AS first, max(seq) AS seq, epoch_us(max(ts)) AS ts FROM records WHERE {condition}"
_CONTROL = f"SELECT * FROM records WHERE {{condition}} AND record NOT IN {_FLOW} ORDER BY seq"
_NEWEST = "SELECT stream_id, max(seq) AS seq FROM records WHERE {condition} AND record = 'frame' GROUP BY stream_id"
#: How many frames came under each of some rights.
_USED = """
SELECT stream_id, sender, count(*) AS used
FROM records JOIN (SELECT unnest($bounded, recursive := true)) AS rights USING (stream_id, sender)
WHERE {condition} AND record = 'frame' AND seq > granted
GROUP BY stream_id, sender
"""


class NoSuchState(PipelineError):
    """There is no such state: the space does not exist, or its log does not reach the point."""


class Point(NamedTuple):
    """A point of a log: after the record ``seq``, or after everything up to a time; neither: its end."""

    seq: int | None = None
    micros: int | None = None

    def __str__(self) -> str:
        if self.seq is not None:
            return f"seq {self.seq}"
        return "its end" if self.micros is None else rfc3339(self.micros)


def welcome(state: SpaceState, participant: str | None = None) -> dict[str, Any]:
    """Return the welcome payload. For a ``participant`` it is the whole one; without, there is no ``you``, and
    everyone who is present is among the participants."""
    payload = state.welcome(participant or "")
    if participant is None:
        del payload["you"]
    return payload


# -- from the journal -----------------------------------------------------------------------------


def state_in_journal(data: Path, space: str, point: Point) -> SpaceState:
    """Fold the journal of a gateway, which may be running. Raises :class:`NoSuchState`, or what is wrong with
    the journal."""
    reader = JournalReader(data / "journal")
    begin = _latest_snapshot(reader, space, point) or SpaceState(space)
    try:
        state = _fold(begin, (entry.record for entry in _from_beginning(reader, space, begin.seq)), point)
    except PositionGone as gone:
        raise NoSuchState(
            f"{gone}; no snapshot is old enough to tell the state at {point}: ask a warehouse that has read it before "
            "(--warehouse), or for a later point"
        ) from None
    return _checked(state, point, f"in {data}")


def _from_beginning(reader: JournalReader, space: str, after: int) -> Iterator[Entry]:
    """Records above a position. Those above 0 begin with the first, or there is no beginning to fold from."""
    for place, entry in enumerate(reader.read(space, after)):
        if place == after == 0 and entry.record.seq > 1:
            raise PositionGone(f"what was before seq {entry.record.seq} of {space!r} was pruned")
        yield entry


def _latest_snapshot(reader: JournalReader, space: str, point: Point) -> SpaceState | None:
    """The newest state before the point that a start of the gateway would trust too."""
    identity = reader.identity()
    number = partition_of(space, identity.partitions)
    end = reader.next_offset(number)
    for file in reversed(snapshot_files(Path(reader.directory(number)))):
        # Snapshots help and are no more than that: one that is gone or damaged is passed over.
        with contextlib.suppress(OSError, ValueError):
            offset, states = read_snapshot(file, identity.id)
            state = states.get(space)
            if state is not None and offset <= end and _is_before(state.seq, state.ts, point):
                return state
    return None


# -- from the warehouse ---------------------------------------------------------------------------


def state_in_records(database: WarehouseDatabase, space: str, point: Point) -> SpaceState:
    """Fold the bronze table ``records``. Raises :class:`NoSuchState`."""
    condition = "space = $space"
    parameters: dict[str, Any] = {"space": space}
    if point.seq is not None:
        condition += " AND seq <= $seq"
        parameters["seq"] = point.seq
    if point.micros is not None:
        condition += " AND ts <= make_timestamptz($micros)"
        parameters["micros"] = point.micros
    [bounds] = database.rows(_BOUNDS.format(condition=condition), **parameters)
    if bounds["seq"] is None:
        return _checked(SpaceState(space), point, "in the warehouse")
    if bounds["first"] > 1:
        raise NoSuchState(
            f"the warehouse has what happened in {space!r} from seq {bounds['first']} on: what came before was pruned "
            "from the journal before the pipeline read it, or is no longer kept, so no state can be told"
        )
    granted: dict[tuple[str, str], int] = {}
    control = database.batches(_CONTROL.format(condition=condition), **parameters)
    state = _fold(SpaceState(space), _noting_grants(_decoded(control), granted), Point())
    _count_frames(database, condition, parameters, state, granted)
    state.seq, state.ts = bounds["seq"], bounds["ts"]
    return _checked(state, point, "in the warehouse")


def _decoded(batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
    """Records that change something, in order, a few at a time."""
    for batch in batches:
        columns = [batch.column(field.name).cast(field.type) for field in SCHEMA]
        for entry in decode(pa.RecordBatch.from_arrays(columns, schema=SCHEMA)):
            yield entry.record


def _noting_grants(records: Iterable[Record], granted: dict[tuple[str, str], int]) -> Iterator[Record]:
    for record in records:
        if isinstance(record, WriteGranted):
            granted[record.stream_id, record.participant] = record.seq
        yield record


def _count_frames(
    database: WarehouseDatabase,
    condition: str,
    parameters: dict[str, Any],
    state: SpaceState,
    granted: dict[tuple[str, str], int],
) -> None:
    """What the frames have changed of the streams that are open: the newest seq, and how much is left of a right."""
    for row in database.rows(_NEWEST.format(condition=condition), **parameters):
        if (stream := state.streams.get(row["stream_id"])) is not None:
            stream.last_seq = max(stream.last_seq, row["seq"])
    bounded = [
        {"stream_id": stream.id, "sender": writer, "granted": granted[stream.id, writer]}
        for stream in state.streams.values()
        for writer, right in stream.writers.items()
        if right.frames_left is not None
    ]
    if not bounded:
        return
    for row in database.rows(_USED.format(condition=condition), **parameters, bounded=bounded):
        right = state.streams[row["stream_id"]].writers[row["sender"]]
        assert right.frames_left is not None
        right.frames_left -= row["used"]


# -- both -----------------------------------------------------------------------------------------


def _fold(state: SpaceState, records: Iterable[Record], point: Point) -> SpaceState:
    for record in records:
        if not _is_before(record.seq, record.ts, point):
            break
        try:
            apply(state, record)
        except (KeyError, msgspec.ValidationError) as flaw:
            raise NoSuchState(
                f"seq {record.seq} of {state.id!r} does not follow from what is before it ({flaw!r}): "
                "run mewstream journal verify, or mewstream audit"
            ) from None
    return state


def _is_before(seq: int, ts: int, point: Point) -> bool:
    """Whether a record has happened at the point."""
    return (point.seq is None or seq <= point.seq) and (point.micros is None or ts <= point.micros)


def _checked(state: SpaceState, point: Point, where: str) -> SpaceState:
    if state.seq == 0:
        if point.micros is not None:
            raise NoSuchState(f"there is nothing of space {state.id!r} {where} up to {point}")
        raise NoSuchState(f"there is nothing of space {state.id!r} {where}")
    if point.seq is not None and state.seq < point.seq:
        raise NoSuchState(f"the log of {state.id!r} {where} ends at seq {state.seq}: there is no {point} yet")
    return state
