"""Selecting records of a journal, and writing them as JSON lines, as an envelope history or as Parquet.

Everything here holds one batch in memory at a time, however long the journal is.
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
#: How many rows are converted to Python objects at a time, because a sealed batch is large.
_ROWS_AT_A_TIME = 1024

_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A filter of records. Every given condition must hold, with any one of its values. A value of ``kinds`` that ends
    in ``*`` matches every kind with that prefix."""

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
        """Return for each row whether it is selected."""
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
        for column, compare, bound in (
            (seq, pc.greater_equal, self.from_seq),
            (seq, pc.less_equal, self.to_seq),
            (ts, pc.greater_equal, self.since),
            (ts, pc.less, self.until),
        ):
            if bound is not None:
                mask = pc.and_(mask, compare(column, bound))
        return mask

    def _mask_of_kinds(self, column: pa.StringArray) -> pa.BooleanArray:
        exact = [kind for kind in self.kinds if not kind.endswith("*")]
        mask = pc.is_in(column, pa.array(exact, pa.string()))
        for kind in self.kinds:
            if kind.endswith("*"):
                mask = pc.or_(mask, pc.fill_null(pc.starts_with(column, kind[:-1]), False))
        return mask


class Chosen(NamedTuple):
    """A batch, and which of its rows are selected."""

    partition: int
    batch: pa.RecordBatch
    mask: pa.BooleanArray

    @property
    def rows(self) -> pa.RecordBatch:
        return self.batch.filter(self.mask)


class Scan:
    """Reads a journal by partition and offset, so that the records of one space are in the order of their seq. Each
    call of :meth:`read` continues where the last one ended, so that a live tail can be followed."""

    def __init__(self, reader: JournalReader, selection: Selection) -> None:
        self._reader = reader
        self._selection = selection
        count = reader.identity().partitions
        numbers = {partition_of(space, count) for space in selection.spaces} or range(count)
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
            # Damaged, or sealed meanwhile: reading from the beginning shows which.
            return 0

    def read(self) -> Iterator[Chosen]:
        for number, start in list(self.positions.items()):
            for batch in self._reader.batches(number, start):
                self.positions[number] = batch.entry.last_offset + 1
                yield Chosen(number, batch.rows, self._selection.mask(batch.rows))
                if self._is_beyond(batch.rows):
                    del self.positions[number]
                    break

    @property
    def is_over(self) -> bool:
        """Whether no record that may still be written can be selected."""
        return not self.positions

    def _is_beyond(self, batch: pa.RecordBatch) -> bool:
        """Return whether no later batch can have selected records. Within one space, seq and time never decrease."""
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
    """Yield one object for each record, without nulls: ``ts`` in RFC 3339, ``data`` as text if it is UTF-8 and as
    ``data_base64`` otherwise, ``detail`` as JSON. With ``sets``, a frame with a reader set has the names of its
    readers."""
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
    """Return the readers of a frame, or None if everyone could read it."""
    if row["readers_seq"] is not None:
        return sets.made_by(row["space"], row["stream_id"], row["readers_seq"])
    # The frame itself has a set that no record in the journal is known to have made.
    inline: Sequence[str] | None = _decode_json(row["detail"]).get("readers") if row["detail"] is not None else None
    return inline


def json_lines(scanned: Iterable[Chosen], sets: ReaderSets | None = None) -> Iterator[bytes]:
    """Yield one line of JSON for each object of :func:`as_objects`."""
    for chosen in scanned:
        for found in as_objects(chosen, sets):
            yield _encode_json(found) + b"\n"


# -- envelope history of the reference gateway ----------------------------------------------------


def history_lines(scanned: Iterable[Chosen]) -> Iterator[bytes]:
    """Yield the envelope history of the reference gateway: what was accepted (``received``) or refused (``rejected``).
    Deliveries are not in the journal, and frames are in no such history.

    ``transport`` is how the sender had joined, or null if that was before the first record that is read.
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
            elif is_wanted and (
                isinstance(record, EnvelopeAccepted) or (isinstance(record, Refused) and record.kind != "frame")
            ):
                transport = transports.get((entry.space, record.sender))
                yield _history_line(entry.space, record, transport)


def _history_line(space: str, record: EnvelopeAccepted | Refused, transport: str | None) -> bytes:
    metadata: dict[str, Any] = {"seq": record.seq}
    if isinstance(record, Refused):
        metadata |= {"reason": record.code, "error": record.code, "message": record.message, "kind": record.kind}
    entry = {
        "timestamp": rfc3339(record.ts),
        "event": "rejected" if isinstance(record, Refused) else "received",
        "id": record.id,
        "envelope": msgspec.Raw(record.data) if isinstance(record, EnvelopeAccepted) else None,
        "participant": record.sender,
        "space_id": space,
        "direction": "inbound",
        "transport": transport,
        "metadata": metadata,
    }
    return _encode_json(entry) + b"\n"


# -- Parquet --------------------------------------------------------------------------------------


def write_parquet(sink: BinaryIO, scanned: Iterable[Chosen]) -> None:
    """Write all columns of the journal, one row group after the other."""
    import pyarrow.parquet as pq  # most commands do without it

    with pq.ParquetWriter(sink, SCHEMA, compression="zstd") as writer:
        found = (chosen.rows for chosen in scanned)
        for batches in gathered(found, most_rows=ROW_GROUP_ROWS, most_bytes=ROW_GROUP_BYTES):
            writer.write_table(pa.Table.from_batches(batches))
