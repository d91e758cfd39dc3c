"""What a journal consists of: its segments, spaces, snapshots and consumers, as ``journal ls`` prints them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from mewstream.cli.journal_reading import open_reader
from mewstream.cli.output import complain, print_table
from mewstream.cli.status_line import progress
from mewstream.journal.erase import ERASED
from mewstream.journal.errors import CorruptJournal
from mewstream.journal.listing import open_segment
from mewstream.journal.local import snapshot_files
from mewstream.journal.retention import consumers
from mewstream.journal.segments import Segment, read_batch, schema_of
from mewstream.protocol.times import rfc3339


@dataclass(slots=True)
class _SpaceSummary:
    partition: int
    records: int = 0
    erased: int = 0
    first_seq: int = 0
    last_seq: int = 0
    first_ts: int = 0
    last_ts: int = 0
    epochs: dict[str, None] = field(default_factory=dict)


def print_listing(data: Path) -> None:
    """Print the tables. Everything is read once; a batch that cannot be read is named, and the exit code is 1."""
    reader = open_reader(data)
    root = data / "journal"
    identity = reader.identity()
    spaces: dict[str, _SpaceSummary] = {}
    rows: list[list[object]] = []
    flaws: list[CorruptJournal] = []
    total = sum(file.stat().st_size for file in root.glob("p*/*.arrow"))
    ends: dict[int, int] = {}
    with progress("reading", total) as advance:
        for number in range(identity.partitions):
            for segment in reader.segments(number):
                ends[number] = segment.next_offset
                first_ts = last_ts = 0
                for batch in _readable(segment, flaws):
                    advance(batch.nbytes)
                    earliest, latest = _add(spaces, number, batch)
                    first_ts, last_ts = min(first_ts or earliest, earliest), max(last_ts, latest)
                count = segment.next_offset - segment.name.first_offset
                state = "sealed" if segment.name.sealed else "open"
                first, last = segment.name.first_offset, segment.next_offset - 1
                reach: list[object] = [first, last] if count else [None, None]
                name = f"{segment.name.first_offset:020d}"
                size = segment.committed_bytes
                rows.append([number, name, state, count, size, *reach, _time(first_ts), _time(last_ts)])
    print_table(
        f"Journal {identity.id}, {identity.partitions} partitions, {identity.runs} runs, segments",
        ["partition", "segment", "state", "records", "bytes", "first offset", "last offset", "from", "to"],
        rows,
    )
    print_table(
        "Spaces",
        ["space", "partition", "records", "erased", "first seq", "last seq", "from", "to", "epochs"],
        [
            [
                *(space, each.partition, each.records, each.erased, each.first_seq, each.last_seq),
                *(_time(each.first_ts), _time(each.last_ts), ", ".join(each.epochs)),
            ]
            for space, each in sorted(spaces.items())
        ],
    )
    print_table("Snapshots", ["partition", "offset", "bytes", "records after it"], list(_snapshots(root, ends)))
    print_table("Consumers", ["consumer", "partition", "offset", "behind"], list(_consumers(root, ends)))
    for flaw in flaws:
        complain(flaw)
    if flaws:
        sys.exit(1)


def _readable(segment: Segment, flaws: list[CorruptJournal]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a segment that can be read. One that is gone was sealed or pruned meanwhile."""
    if segment.flaw is not None and not segment.is_torn:
        flaws.append(segment.damage())
    if not segment.batches:
        return
    opened = open_segment(fs.LocalFileSystem(), segment)
    if opened is None:
        what = "the segment is missing, its index is there"
        flaws.append(CorruptJournal(segment.data_path, segment.name.first_offset, what))
        return
    segment, source = opened
    with source:
        try:
            schema = schema_of(source, segment, segment.batches[0])
        except CorruptJournal as flaw:
            flaws.append(flaw)
            return
        for entry in segment.batches:
            try:
                yield read_batch(source, segment, entry, schema)
            except CorruptJournal as flaw:
                flaws.append(flaw)


def _add(spaces: dict[str, _SpaceSummary], partition: int, batch: pa.RecordBatch) -> tuple[int, int]:
    """Count the rows of a batch; the earliest and the latest time in it."""
    table = pa.table(
        {
            "space": batch.column("space"),
            "epoch": batch.column("epoch"),
            "seq": batch.column("seq"),
            "ts": batch.column("ts").cast(pa.int64()),
            "erased": pc.equal(batch.column("record"), ERASED).cast(pa.int64()),
        }
    )
    wanted = [("seq", "count"), ("seq", "min"), ("seq", "max"), ("ts", "min"), ("ts", "max"), ("erased", "sum")]
    groups = table.group_by(["space", "epoch"], use_threads=False).aggregate(wanted).to_pylist()
    for group in groups:
        found = spaces.setdefault(group["space"], _SpaceSummary(partition))
        found.records += group["seq_count"]
        found.erased += group["erased_sum"]
        found.first_seq = min(found.first_seq or group["seq_min"], group["seq_min"])
        found.last_seq = max(found.last_seq, group["seq_max"])
        found.first_ts = min(found.first_ts or group["ts_min"], group["ts_min"])
        found.last_ts = max(found.last_ts, group["ts_max"])
        found.epochs[group["epoch"]] = None
    return min(group["ts_min"] for group in groups), max(group["ts_max"] for group in groups)


def _snapshots(root: Path, ends: dict[int, int]) -> Iterator[list[object]]:
    for number, end in ends.items():
        for file in snapshot_files(root / f"p{number}"):
            offset = int(file.stem.removeprefix("snapshot-"))
            yield [number, offset, file.stat().st_size, max(0, end - offset)]


def _consumers(root: Path, ends: dict[int, int]) -> Iterator[list[object]]:
    for name, consumer in consumers(root).items():
        for number, offset in sorted(consumer.offsets.items()):
            yield [name, number, offset, max(0, ends.get(number, 0) - offset)]


def _time(micros: int) -> str | None:
    return rfc3339(micros) if micros else None
