"""Running the pipeline: one streaming query over the journal, whose batches become rows of every table.

A batch is written in full and then committed, at once and last, with the offsets up to which the journal
has been read. The commit is what makes it happen exactly once: a batch that Spark repeats is known by
its offsets, and one that was not committed left nothing that counts.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mewstream.journal.retention import commit_consumer
from mewstream.pipeline import manifest as commits
from mewstream.pipeline import tables
from mewstream.pipeline.batch import Counted, Schemas, count, derive, statistics
from mewstream.pipeline.errors import PipelineError, WarehouseError, own_words
from mewstream.pipeline.manifest import Manifest
from mewstream.pipeline.ranges import RangeReader
from mewstream.pipeline.session import TableFormat, spark_session
from mewstream.pipeline.source import JournalSlice, SliceSource, read_slice
from mewstream.pipeline.source_options import absolute, open_journal
from mewstream.pipeline.warehouse import CHECKPOINT, Writer, local_path, locked, refuse_other_version
from mewstream.protocol.errors import MewError

log = logging.getLogger("mewstream.pipeline")

#: How long a batch may go on after a stop was asked for, in seconds.
STOP_GRACE = 60.0
_POLL_SECONDS = 1
#: A run over at most so many records is short.
SHORT_RUN = 500_000
#: For Spark in this process; on a cluster the driver holds little.
DRIVER_MEMORY = "3g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    data: str
    """The gateway's data directory, or a URI of a journal."""
    warehouse: str | Path
    continuous: bool = False
    """Go on with what is written from now on, until stopped."""
    full_refresh: bool = False
    """Make every table but bronze anew, from bronze, before anything else."""
    table_format: TableFormat = "parquet"
    master: str | None = None
    max_records: int = 5_000_000
    """In one batch."""
    max_bytes: int = 2 << 30
    """In one batch, as they are in the journal."""
    interval: float = 1.0
    """Seconds between the beginnings of two batches, where there is that little to do."""


@dataclass(frozen=True, slots=True)
class Progress:
    """After a batch. ``lag`` is how many records are in the journal and not in the tables."""

    batch: int
    records: int
    seconds: float
    lag: int
    total: int
    """Records in the tables."""
    refreshing: bool = False

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do."""

    journal: str
    is_new: bool
    """There is no warehouse yet."""
    waiting: dict[int, tuple[int, int]]
    """For each partition of the journal the offsets to read, the last one not included."""
    refreshed: int = 0
    """Records of bronze from which the tables are made anew."""

    @property
    def records(self) -> int:
        return sum(end - start for start, end in self.waiting.values())


@dataclass(slots=True)
class Result:
    batches: int = 0
    records: int = 0
    seconds: float = 0.0
    stopped: bool = False
    rows: dict[str, int] = field(default_factory=dict)
    """Of each table, after the run."""


Report = Callable[[Progress], None]


class _Stopped(Exception):
    """A batch was not begun, for a stop was asked for."""


def plan(settings: Settings) -> Plan:
    """For ``--dry-run``: reads a few small files, writes nothing and needs no Spark."""
    journal = open_journal(settings.data)
    root = local_path(settings.warehouse)
    manifest = commits.newest(root)
    identity = journal.identity()
    if manifest is not None:
        _refuse_mismatch(root, manifest, identity.id, settings)
    offsets = manifest.offsets if manifest else {}
    waiting = {}
    for number in range(identity.partitions):
        begin, end = journal.bounds(number)
        waiting[number] = (max(offsets.get(number, begin), 0), end)
    refreshed = manifest.rows(tables.RECORDS.name) if manifest and settings.full_refresh else 0
    return Plan(identity.id, manifest is None, waiting, refreshed)


def is_short_run(settings: Settings, planned: Plan) -> bool:
    """Whether it is over before the thorough compiler of Java pays."""
    return not settings.continuous and planned.records + planned.refreshed <= SHORT_RUN


def run(
    settings: Settings,
    progress: Report | None = None,
    *,
    stop: threading.Event | None = None,
    spark: SparkSession | None = None,
) -> Result:
    """Bring the tables up to date, and with ``continuous`` keep them so until ``stop`` is set. Without a ``spark`` it
    makes a session of its own and ends it."""
    journal = open_journal(settings.data)
    root = local_path(settings.warehouse)
    with locked(root), _session(settings, spark) as session:
        started = time.monotonic()
        pipeline = _Pipeline(settings, session, journal, root, progress or (lambda _: None), stop or threading.Event())
        pipeline.run()
        pipeline.result.seconds = time.monotonic() - started
        manifest = pipeline.writer.manifest
        pipeline.result.rows = {table.name: manifest.rows(table.name) for table in tables.PUBLIC}
        return pipeline.result


@contextlib.contextmanager
def stopping_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, for ``run(stop=...)``."""
    event = threading.Event()
    before = {each: signal.signal(each, lambda *_: event.set()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def _session(settings: Settings, given: SparkSession | None) -> Iterator[SparkSession]:
    if given is not None:
        yield given
        return
    config = {"spark.driver.memory": DRIVER_MEMORY}
    is_short = is_short_run(settings, plan(settings))
    session = spark_session(settings.master, settings.table_format, is_short=is_short, config=config)
    try:
        yield session
    finally:
        session.stop()


class _Pipeline:
    def __init__(
        self,
        settings: Settings,
        spark: SparkSession,
        journal: RangeReader,
        root: Path,
        progress: Report,
        stop: threading.Event,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._journal = journal
        self._root = root
        self._progress = progress
        self._stop = stop
        self._schemas = Schemas()
        self._failure: Exception | None = None
        self._identity = journal.identity()
        self.result = Result()
        self.writer = Writer(spark, root, self._manifest())
        self.writer.sweep()

    def run(self) -> None:
        if self._settings.full_refresh:
            self._refresh()
        if not self._stop.is_set():
            self._stream()
        self.result.stopped = self._stop.is_set()

    # -- the warehouse ----------------------------------------------------------------------------

    def _manifest(self) -> Manifest:
        """The newest commit; in a new warehouse the first one, of empty tables."""
        manifest = commits.newest(self._root)
        if manifest is not None:
            _refuse_mismatch(self._root, manifest, self._identity.id, self._settings)
            return manifest
        offsets = {number: self._journal.bounds(number)[0] for number in range(self._identity.partitions)}
        first = Manifest(
            number=0,
            batch=0,
            journal=self._identity.id,
            offsets=offsets,
            table_format=self._settings.table_format,
        )
        return commits.commit(self._root, first, None)

    def _refresh(self) -> None:
        """Everything but bronze anew, as a draft that replaces the tables at once when it is complete."""
        draft = self.writer.refreshed()
        bronze = draft.manifest.tables[tables.RECORDS.name]
        lag = sum(piece.rows for piece in bronze)
        for records in draft.format.portions(self._spark, tables.RECORDS, bronze, self._settings.max_records):
            if self._stop.is_set():
                return
            began = time.monotonic()
            batch = draft.begin()
            stats = statistics(records)
            counted = count(stats, self._identity.partitions)
            derive(batch, records, stats, counted, self._schemas)
            batch.commit(draft.manifest.offsets)
            lag -= counted.records
            self._report(counted, began, lag, batch.number, refreshing=True)
        self.writer.publish(draft)

    # -- the query --------------------------------------------------------------------------------

    def _stream(self) -> None:
        start = {str(number): offset for number, offset in sorted(self.writer.manifest.offsets.items())}
        source = (
            self._spark.readStream.format(SliceSource.name())
            .option("start", json.dumps(start))
            .option("maxRecordsPerTrigger", str(self._settings.max_records))
            .option("maxBytesPerTrigger", str(self._settings.max_bytes))
            .load(self._settings.data)
        )
        writer = source.writeStream.foreachBatch(self._batch).option("checkpointLocation", str(self._root / CHECKPOINT))
        if self._settings.continuous:
            writer = writer.trigger(processingTime=f"{self._settings.interval} seconds")
        else:
            writer = writer.trigger(availableNow=True)
        try:
            self._wait(writer.start())
        except StreamingQueryException as error:
            if self._failure is not None or not self._stop.is_set():
                raise _explained(self._failure or error) from None

    def _wait(self, query: StreamingQuery) -> None:
        try:
            while not query.awaitTermination(_POLL_SECONDS):
                if self._stop.is_set():
                    self._end(query)
                    return
        finally:
            if query.isActive:
                query.stop()

    def _end(self, query: StreamingQuery) -> None:
        """The batch that is at work may finish; the next one is not begun, and one that takes too long is abandoned."""
        deadline = time.monotonic() + STOP_GRACE
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            with contextlib.suppress(StreamingQueryException):
                query.awaitTermination(_POLL_SECONDS)

    def _batch(self, slices: DataFrame, _: int) -> None:
        if self._stop.is_set():
            raise _Stopped
        try:
            self._process([JournalSlice(*row) for row in slices.collect()])
        except Exception as error:
            # Spark would tell of it as text. What a stop broke off is no failure.
            if not self._stop.is_set():
                self._failure = error
            raise

    def _process(self, slices: list[JournalSlice]) -> None:
        if not slices:
            return
        ranges = _ranges(slices)
        if self._is_new(ranges):
            began = time.monotonic()
            batch = self.writer.begin()
            batch.expect(sum(end - start for start, end in ranges.values()))
            path = absolute(self._settings.data)
            batch.append_made(tables.RECORDS, [partial(read_slice, path, each) for each in slices])
            records = batch.added(tables.RECORDS)
            stats = statistics(records)
            counted = count(stats, self._identity.partitions)
            if counted.ranges != ranges:
                raise WarehouseError(f"{ranges} of the journal were to be written, and {counted.ranges} are there")
            derive(batch, records, stats, counted, self._schemas)
            batch.commit(counted.next_offsets(self.writer.manifest.offsets))
            self._report(counted, began, self._lag(), batch.number)
        self._acknowledge()
        self.writer.compact()

    def _is_new(self, ranges: dict[int, tuple[int, int]]) -> bool:
        """Whether a batch follows on what is committed. False: it was committed before, and Spark did not know."""
        offsets = self.writer.manifest.offsets
        if all(end <= offsets.get(number, 0) for number, (_, end) in ranges.items()):
            return False
        for number, (first, _) in ranges.items():
            if first != offsets.get(number, 0):
                raise WarehouseError(
                    f"the tables in {self._root} have partition {number} up to offset {offsets.get(number, 0)}, and "
                    f"the next batch begins at {first}: the checkpoint is not theirs. Remove {self._root / CHECKPOINT}"
                )
        return True

    def _acknowledge(self) -> None:
        """Pruning the journal waits for us, where the journal is one that a gateway prunes."""
        root = Path(self._journal.root)
        if "://" in self._settings.data:
            return
        try:
            commit_consumer(root, consumer_name(self._root), self.writer.manifest.offsets)
        except OSError as error:
            log.warning("cannot tell the journal in %s how far it was read: %s", root, error)

    # -- how far it is ----------------------------------------------------------------------------

    def _lag(self) -> int:
        offsets = self.writer.manifest.offsets
        ends = {number: self._journal.bounds(number)[1] for number in offsets}
        return sum(max(0, ends[number] - offset) for number, offset in offsets.items())

    def _report(self, counted: Counted, began: float, lag: int, batch: int, *, refreshing: bool = False) -> None:
        if not refreshing:
            self.result.batches += 1
            self.result.records += counted.records
        total = self.writer.manifest.rows(tables.RECORDS.name)
        self._progress(Progress(batch, counted.records, time.monotonic() - began, lag, total, refreshing))


def consumer_name(warehouse: Path) -> str:
    """The name under which the journal knows how far the tables in this directory are."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", warehouse.name)[:32]
    return f"pipeline-{readable}-{zlib.crc32(str(warehouse).encode()):08x}"


def _refuse_mismatch(root: Path, manifest: Manifest, journal: str, settings: Settings) -> None:
    if manifest.journal != journal:
        raise WarehouseError(
            f"{root} holds the tables of another journal ({manifest.journal}) than the one in {settings.data} "
            f"({journal}): give this one another --warehouse"
        )
    if manifest.table_format != settings.table_format:
        raise WarehouseError(
            f"the tables in {root} are {manifest.table_format}: run with --table-format {manifest.table_format}, or "
            "give another --warehouse"
        )
    if not settings.full_refresh:
        refuse_other_version(root, manifest)


def _ranges(slices: list[JournalSlice]) -> dict[int, tuple[int, int]]:
    """For each partition of the journal the offsets, the last one not included."""
    found: dict[int, tuple[int, int]] = {}
    for each in slices:
        start, end = found.get(each.number, (each.start, each.end))
        found[each.number] = min(start, each.start), max(end, each.end)
    return found


def _explained(error: Exception) -> Exception:
    """An error of the source or of a worker comes back from Spark as text: say what it said, and no more."""
    if isinstance(error, MewError):
        return error
    said = own_words(error)
    return PipelineError(said) if said is not None else error
