"""``mewstream journal``: look at a journal, check it, and keep it small."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from mewstream.cli.journal_output import data_option, open_reader
from mewstream.cli.journal_records import cat, export
from mewstream.cli.output import complain, print_table, progress, quietly
from mewstream.cli.values import size_in_bytes, time_span
from mewstream.gateway.identity import InvitedTokens
from mewstream.journal.erase import ERASED, Survey, erase, refuse_damaged, remove_strays, survey
from mewstream.journal.errors import CorruptJournal, JournalError, JournalInUse
from mewstream.journal.listing import open_segment
from mewstream.journal.local import LocalJournal, snapshot_files
from mewstream.journal.reader import JournalReader
from mewstream.journal.retention import PrunePlan, Retention, consumers, plan_pruning
from mewstream.journal.segments import Segment, read_batch, schema_of
from mewstream.journal.verify import Verification, sound_snapshots
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import rfc3339


@click.group()
def journal() -> None:
    """Look at the journal of a gateway, check it, export it, and keep it small.

    ls, cat, export and verify may be used while the gateway runs; prune and erase may not.
    """


# -- ls -------------------------------------------------------------------------------------------


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


@journal.command()
@data_option
@quietly
def ls(data: Path) -> None:
    """List segments, spaces, snapshots and consumers.

    Everything is read once, to count the records of each space. A batch that cannot be read is
    named on stderr, and the exit code is 1.

    \b
    Examples:
      mewstream journal ls --data ./data
      mewstream journal ls --data ./data | grep demo
    """
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


# -- verify ---------------------------------------------------------------------------------------


@journal.command()
@data_option
@quietly
def verify(data: Path) -> None:
    """Check everything, and tell every problem: one line each.

    Checksums; that seq is gap-free and time never runs back within each space; that index and data
    agree; missing and repeated segments; snapshots and consumers. What a crash may leave, and the
    next start mends by itself, is a note on stderr and no problem.

    Exit code 0: the journal is sound. 1: it is not.

    \b
    Examples:
      mewstream journal verify --data ./data
      mewstream journal verify --data ./data > problems.txt || mail -s 'journal' admin < problems.txt
    """
    found = 0
    root = data / "journal"
    with progress("verifying", sum(file.stat().st_size for file in root.glob("p*/*.arrow"))) as advance:
        verification = Verification(root, advance=advance)
        for problem in verification.run():
            if problem.is_note:
                click.echo(f"note: {problem}", err=True)
                continue
            found += 1
            click.echo(str(problem))
    what = (
        f"{verification.records} records of {len(verification.spaces)} spaces in {verification.segments} segments "
        f"of {verification.partitions} partitions, {verification.snapshots} snapshots"
    )
    if verification.erased:
        what += f"; {verification.erased} records are erased"
    click.echo(f"{f'{found} problems' if found != 1 else '1 problem'}: {what}" if found else f"sound: {what}")
    if found:
        sys.exit(1)


# -- prune ----------------------------------------------------------------------------------------


@journal.command()
@data_option
@click.option(
    "--max-age", metavar="AGE", callback=time_span(needs_unit=True), help="Remove what is older: 12h, 7d, 2w."
)
@click.option(
    "--max-bytes",
    metavar="SIZE",
    callback=size_in_bytes(),
    help="Remove the oldest until so much is left: 500MB, 10GiB.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would go. May be used while the gateway runs.")
@quietly
def prune(data: Path, max_age: float | None, max_bytes: int | None, dry_run: bool) -> None:
    """Remove old segments.

    Whole segments only, the oldest first; never the last one of a partition, never what the next
    start needs, and never what a consumer has not read (up to a cap). A running gateway prunes by
    itself, see gateway.journal.retention in space.yaml; this refuses to do it beside one.

    \b
    Examples:
      mewstream journal prune --data ./data --max-age 7d --dry-run
      mewstream journal prune --data ./data --max-age 7d --max-bytes 10GB
    """
    if not max_age and not max_bytes:
        raise click.UsageError("say what may go: --max-age, --max-bytes, or both")
    retention = Retention(max_age=max_age or 0.0, max_bytes=max_bytes or 0)
    reader = open_reader(data)
    if dry_run:
        _report(_plan(data, reader, retention), "would be removed")
        return
    with _locked(data, reader, "prune") as local:
        plan = _plan(data, reader, retention)
        if plan.segments:
            local.prune(plan)
    _report(plan, "removed")


def _plan(data: Path, reader: JournalReader, retention: Retention) -> PrunePlan:
    identity = reader.identity()
    root = data / "journal"
    return plan_pruning(
        root,
        retention,
        now=time.time_ns() // 1000,
        partitions=identity.partitions,
        snapshots=sound_snapshots(root, identity),
    )


def _report(plan: PrunePlan, verb: str) -> None:
    for segment in plan.segments:
        last = segment.next_offset - 1
        click.echo(f"{segment.data_path}: offset {segment.name.first_offset} to {last}, to {rfc3339(segment.last_ts)}")
    for alarm in plan.alarms:
        complain(alarm)
    click.echo(f"{len(plan.segments)} segments, {plan.bytes} bytes {verb}")


# -- erase ----------------------------------------------------------------------------------------


@journal.command("erase")
@data_option
@click.option("--space", required=True, help="The space whose records are erased.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@quietly
def erase_space(data: Path, space: str, yes: bool) -> None:
    """Erase what was said and done in a space. This cannot be undone.

    Its records become tombstones, which keep nothing but offset, seq, epoch and time, and a hash in
    place of the space, so that the range stays marked as erased. Its state leaves the snapshots, the
    tokens of its invited participants are removed. If the space is served again it begins anew, as if
    it had never been.

    Copies are not reached: exports, the files of gateway_logging and output_log, backups; for the
    tables of a pipeline there is `mewstream erase`. Should it be interrupted, no gateway
    starts before it was erased again.

    \b
    Examples:
      mewstream journal erase --data ./data --space demo
      mewstream journal erase --data ./data --space demo --yes
    """
    with erasing(data, space) as prepared:
        confirm_erasing(f"Erase space {space!r}: {prepared.what}? This cannot be undone.", yes=yes)
        prepared.erase()
    click.echo(f"erased space {space!r}: {prepared.what}")


@dataclass
class PreparedErase:
    """What an erase would reach, in a journal that nobody else has."""

    journal: LocalJournal
    states: dict[str, SpaceState]
    invited: InvitedTokens
    found: Survey

    @property
    def what(self) -> str:
        tokens = len(self.invited.for_space(self.found.space))
        return f"{self.found.records} records in {len(self.found.segments)} segments and {tokens} invited participants"

    @property
    def is_empty(self) -> bool:
        return self.found.is_empty and not self.invited.for_space(self.found.space)

    def erase(self) -> None:
        space = self.found.space
        with progress("erasing", sum(segment.committed_bytes for segment in self.found.segments)) as advance:
            erase(self.journal, space, self.states, progress=lambda segment: advance(segment.committed_bytes))
        for participant in self.invited.for_space(space):
            self.invited.remove(space, participant)
        for file in self.found.set_aside:
            complain(f"{file} holds bytes of a damaged batch, perhaps of this space: remove it if you need it no more")


@contextmanager
def erasing(data: Path, space: str, *, may_be_empty: bool = False) -> Iterator[PreparedErase]:
    """The journal for us alone, and what there is of a space in it."""
    reader = open_reader(data)
    invited = InvitedTokens(data / "invited.json")
    with _locked(data, reader, "erase") as local:
        states = local.recover()
        prepared = PreparedErase(local, states, invited, survey(local, space, states))
        if prepared.is_empty:
            # Nothing counts any more; an erase that was interrupted at its end may have left bytes that never did.
            remove_strays(local, prepared.found.partition)
            if not may_be_empty:
                raise JournalError(f"there is nothing of space {space!r} in {data}")
        yield prepared


def confirm_erasing(question: str, *, yes: bool) -> None:
    if not yes and not _confirmed(question):
        click.echo("nothing is erased", err=True)
        sys.exit(1)


def _confirmed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("nobody is there to confirm: give --yes") from None


@contextmanager
def _locked(data: Path, reader: JournalReader, verb: str) -> Iterator[LocalJournal]:
    """The journal for us alone. What a start would cut off of a damaged index is left for `verify`."""
    try:
        refuse_damaged(reader)
        local = LocalJournal(data)
    except JournalInUse as taken:
        by = f" (process {taken.holder})" if taken.holder else ""
        raise JournalInUse(f"{data} is in use by a running gateway{by}: stop it, then {verb}", taken.holder) from None
    try:
        yield local
    finally:
        local.close()


journal.add_command(cat)
journal.add_command(export)
