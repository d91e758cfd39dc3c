"""Records for people and other programs: chosen, and written as JSON lines, history or Parquet.

Everything here holds one batch at a time, however long the journal is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mewstream.journal.batches import gathered
from mewstream.journal.errors import CorruptJournal
from mewstream.journal.reader import JournalReader, partition_of
from mewstream.journal.reader_sets import ReaderSets
from mewstream.journal.schema import SCHEMA, decode
from mewstream.protocol.records import EnvelopeAccepted, Joined, Left, Refused
from mewstream.protocol.times import rfc3339

#: A row group of Parquet ends at whichever comes first.
ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 32 << 20

_TS = SCHEMA.get_field_index("ts")
#: Rows that are Python objects at a time: a sealed batch is large.
_ROWS_AT_A_TIME = 1024

_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records. Every condition that is given must hold; of several values one must fit. A
    value of ``kinds`` that ends in ``*`` stands for all that begin so."""

    spaces: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    from_seq: int | None = None
    to_seq: int | None = None
    since: int | None = None
    """Microseconds, included."""
    until: int | None = None
    """Microseconds, not included."""

    @property
    def only_space(self) -> str | None:
        return self.spaces[0] if len(self.spaces) == 1 else None

    def mask(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """For each row whether it is chosen."""
        mask = pc.is_valid(rows.column("offset"))
        for name, values in (
            ("space", self.spaces),
            ("stream_id", self.streams),
            ("sender", self.senders),
            ("record", self.records),
        ):
            if values:
                mask = pc.and_(mask, pc.is_in(rows.column(name), pa.array(values, pa.string())))
        if self.kinds:
            mask = pc.and_(mask, self._mask_of_kinds(rows.column("kind")))
        seq, ts = rows.column("seq"), rows.column("ts").cast(pa.int64())
        if self.from_seq is not None:
            mask = pc.and_(mask, pc.greater_equal(seq, self.from_seq))
        if self.to_seq is not None:
            mask = pc.and_(mask, pc.less_equal(seq, self.to_seq))
        if self.since is not None:
            mask = pc.and_(mask, pc.greater_equal(ts, self.since))
        if self.until is not None:
            mask = pc.and_(mask, pc.less(ts, self.until))
        return mask

    def _mask_of_kinds(self, column: pa.StringArray) -> pa.BooleanArray:
        exact = [kind for kind in self.kinds if not kind.endswith("*")]
        mask = pc.is_in(column, pa.array(exact, pa.string()))
        for kind in self.kinds:
            if kind.endswith("*"):
                mask = pc.or_(mask, pc.fill_null(pc.starts_with(column, kind[:-1]), False))
        return mask


class Chosen(NamedTuple):
    """A batch, and which of its rows were asked for."""

    partition: int
    batch: pa.RecordBatch
    mask: pa.BooleanArray

    @property
    def rows(self) -> pa.RecordBatch:
        return self.batch.filter(self.mask)


class Scan:
    """Walks through a journal, by partition and offset; those of one space are then in the order
    of their seq. :meth:`read` goes on where the last one ended, so that a live tail can be followed."""

    def __init__(self, reader: JournalReader, selection: Selection) -> None:
        self._reader = reader
        self._selection = selection
        self._partitions = reader.identity().partitions
        spaces = selection.spaces
        numbers = {partition_of(space, self._partitions) for space in spaces} if spaces else range(self._partitions)
        self.positions = dict.fromkeys(sorted(numbers), 0)
        """The next offset of each partition that is read."""
        if selection.only_space is not None:
            for number in self.positions:
                self.positions[number] = self._beginning(selection.only_space)

    def _beginning(self, space: str) -> int:
        after = max(0, (self._selection.from_seq or 1) - 1)
        try:
            if self._selection.since is not None:
                after = max(after, self._reader.seq_before(space, self._selection.since))
            return self._reader.start_of(space, after)
        except (CorruptJournal, FileNotFoundError):
            # Damaged, or sealed while we looked: reading from the beginning tells which.
            return 0

    def read(self) -> Iterator[Chosen]:
        for number in list(self.positions):
            for batch in self._batches(number):
                yield Chosen(number, batch, self._selection.mask(batch))
                if self._is_past(batch):
                    del self.positions[number]
                    break

    @property
    def is_over(self) -> bool:
        """Nothing that may still be written can be asked for."""
        return not self.positions

    def _batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """Like the reader's, and undisturbed by a gateway that seals a segment meanwhile: what is
        missing at the second look too is missing."""
        failed_at = None
        while True:
            start = self.positions[number]
            try:
                for batch in self._reader.batches(number, start):
                    rows = batch.rows.slice(max(0, self.positions[number] - batch.entry.first_offset))
                    self.positions[number] = batch.entry.last_offset + 1
                    yield rows
                self._check_end(number)
                return
            except (CorruptJournal, FileNotFoundError):
                if failed_at == self.positions[number]:
                    raise
                failed_at = self.positions[number]

    def _check_end(self, number: int) -> None:
        """A damaged index ends the last segment too early, which must not look like the end."""
        for last in self._reader.segments(number)[-1:]:
            if last.flaw is not None and not last.is_torn:
                raise last.damage()

    def _is_past(self, batch: pa.RecordBatch) -> bool:
        """Seq and time never run back within a space, so for one space there is an end."""
        chosen = self._selection
        if chosen.only_space is None or (chosen.to_seq is None and chosen.until is None):
            return False
        own = batch.filter(pc.equal(batch.column("space"), chosen.only_space))
        if not own.num_rows:
            return False
        if chosen.to_seq is not None and own.column("seq")[-1].as_py() >= chosen.to_seq:
            return True
        return chosen.until is not None and own.column("ts").cast(pa.int64())[-1].as_py() >= chosen.until


# -- rows as objects ------------------------------------------------------------------------------


def as_objects(chosen: Chosen, sets: ReaderSets | None = None) -> Iterator[dict[str, Any]]:
    """One object for each record, without nulls: ``ts`` in RFC 3339, ``data`` as text where it is
    UTF-8 and as ``data_base64`` otherwise, ``detail`` as JSON. With ``sets``, a frame for some has their names as
    ``readers``."""
    rows = chosen.rows
    rows = rows.set_column(_TS, "ts", rows.column(_TS).cast(pa.int64()))
    for start in range(0, rows.num_rows, _ROWS_AT_A_TIME):
        for row in rows.slice(start, _ROWS_AT_A_TIME).to_pylist():
            yield _as_object(chosen.partition, row, sets)


def _as_object(partition: int, row: dict[str, Any], sets: ReaderSets | None) -> dict[str, Any]:
    readers = _readers(row, sets) if sets is not None and row["record"] == "frame" else None
    detail, data, offset = row.pop("detail"), row.pop("data"), row.pop("offset")
    row["ts"] = rfc3339(row["ts"])
    found = {key: value for key, value in row.items() if value is not None}
    found["partition"] = partition
    found["offset"] = offset
    if detail is not None:
        try:
            _decode_json(detail)
            found["detail"] = msgspec.Raw(detail.encode())
        except msgspec.MsgspecError:
            found["detail"] = detail
    if data is not None:
        try:
            found["data"] = data.decode()
        except UnicodeDecodeError:
            found["data_base64"] = data  # msgspec writes bytes so
    if readers is not None:
        found["readers"] = readers
    return found


def _readers(row: dict[str, Any], sets: ReaderSets) -> Sequence[str] | None:
    """Whom a frame was for; None: everyone."""
    if row["readers_seq"] is not None:
        return sets.made_by(row["space"], row["stream_id"], row["readers_seq"])
    # A set that no record in the journal is known to have made stands in the frame itself.
    inline: Sequence[str] | None = _decode_json(row["detail"]).get("readers") if row["detail"] is not None else None
    return inline


def json_lines(scanned: Iterable[Chosen], sets: ReaderSets | None = None) -> Iterator[bytes]:
    """One JSON object a line, as :func:`as_objects` makes them."""
    for chosen in scanned:
        for found in as_objects(chosen, sets):
            yield _encode_json(found) + b"\n"


# -- the history of the reference -----------------------------------------------------------------


def history_lines(scanned: Iterable[Chosen]) -> Iterator[bytes]:
    """The envelope history of the reference gateway: what came in and was accepted (``received``) or
    refused (``rejected``). Who got it is not in the journal, and frames are in no such history.

    ``transport`` is how the sender had joined, null where that lies before what is read.
    """
    transports: dict[tuple[str, str], str] = {}
    for chosen in scanned:
        needed = pc.or_(chosen.mask, pc.is_in(chosen.batch.column("record"), pa.array(["joined", "left"])))
        wanted = chosen.mask.filter(needed).to_pylist()
        for entry, is_wanted in zip(decode(chosen.batch.filter(needed)), wanted, strict=True):
            record = entry.record
            if isinstance(record, Joined):
                transports[entry.space, record.participant] = record.transport
            elif isinstance(record, Left):
                transports.pop((entry.space, record.participant), None)
            elif is_wanted and isinstance(record, EnvelopeAccepted):
                transport = transports.get((entry.space, record.sender))
                yield _history_line(entry.space, "received", record, record.data, transport, {"seq": record.seq})
            elif is_wanted and isinstance(record, Refused) and record.kind != "frame":
                transport = transports.get((entry.space, record.sender))
                metadata = {"seq": record.seq, "reason": record.code, "error": record.code}
                metadata |= {"message": record.message, "kind": record.kind}
                yield _history_line(entry.space, "rejected", record, None, transport, metadata)


def _history_line(
    space: str,
    event: str,
    record: EnvelopeAccepted | Refused,
    envelope: bytes | None,
    transport: str | None,
    metadata: dict[str, Any],
) -> bytes:
    entry = {
        "timestamp": rfc3339(record.ts),
        "event": event,
        "id": record.id,
        "envelope": msgspec.Raw(envelope) if envelope is not None else None,
        "participant": record.sender,
        "space_id": space,
        "direction": "inbound",
        "transport": transport,
        "metadata": metadata,
    }
    return _encode_json(entry) + b"\n"


# -- Parquet --------------------------------------------------------------------------------------


def write_parquet(sink: BinaryIO, scanned: Iterable[Chosen]) -> int:
    """All columns of the journal, one row group after the other. Returns how many rows."""
    import pyarrow.parquet as pq  # most commands do without it

    total = 0
    with pq.ParquetWriter(_Forward(sink), SCHEMA, compression="zstd") as writer:
        found = (chosen.rows for chosen in scanned)
        for batches in gathered(found, most_rows=ROW_GROUP_ROWS, most_bytes=ROW_GROUP_BYTES):
            group = pa.Table.from_batches(batches)
            writer.write_table(group)
            total += group.num_rows
    return total


class _Forward:
    """A sink that is only ever written to its end, as a pipe is: it knows by itself how far it is."""

    closed = False

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._position = 0

    def write(self, data: bytes) -> int:
        self._sink.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        """Whoever opened the sink closes it."""
