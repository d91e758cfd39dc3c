"""Running the pipeline: the journal is followed, a batch at a time, and each batch becomes rows of every table.

A batch is a contiguous range of the journal. It is written in full and then committed, with the offsets up to which
the journal has been read, and the next one begins there: see :mod:`mewstream.pipeline.committing`. There is no other
record of how far the pipeline is.
"""

from __future__ import annotations

import contextlib
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

from pyspark.sql import SparkSession

from mewstream.journal.retention import commit_consumer
from mewstream.pipeline.alerting import Alerts, Tell
from mewstream.pipeline.arrow_work import unchanged
from mewstream.pipeline.batch import Counted, derive
from mewstream.pipeline.batch_writer import BatchWriter, Sessions
from mewstream.pipeline.bronze import Bronze, Ranges, portions
from mewstream.pipeline.committing import Tables
from mewstream.pipeline.erasing import is_interrupted
from mewstream.pipeline.errors import PipelineError, WarehouseError, own_words
from mewstream.pipeline.maintenance import Retention, after_batch, before_batch, retain
from mewstream.pipeline.open_rows import OpenRows
from mewstream.pipeline.position import Position
from mewstream.pipeline.ranges import RangeReader
from mewstream.pipeline.refresh import Draft, KnownBronze, bronze_of
from mewstream.pipeline.session import spark_session
from mewstream.pipeline.source import StreamReader, read_slice
from mewstream.pipeline.source_options import SourceOptions, absolute, open_journal
from mewstream.pipeline.storage import Store, locked, store_at
from mewstream.pipeline.tables import AUDIT, PUBLIC, RECORDS
from mewstream.pipeline.warehouse import refuse_old_kind, refuse_other_version
from mewstream.protocol.errors import MewError

log = logging.getLogger("mewstream.pipeline")

#: How long a batch may go on after a stop was asked for, in seconds.
STOP_GRACE = 60.0
_POLL_SECONDS = 1
_RETAIN_EVERY = 86_400.0
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
    master: str | None = None
    max_records: int = 5_000_000
    """In one batch."""
    max_bytes: int = 2 << 30
    """In one batch, as they are in the journal."""
    interval: float = 1.0
    """Seconds between the beginnings of two batches, where there is that little to do."""
    retention: Retention = field(default_factory=dict)
    """Drop what is older, when a run begins and once a day."""
    on_finding: Tell | None = None
    """Is called with new findings of the audit."""


@dataclass(frozen=True, slots=True)
class Progress:
    """After a batch. ``lag`` is how many records are in the journal and not in the tables."""

    batch: int
    records: int
    seconds: float
    lag: int
    total: int
    """Records in the tables."""
    findings: int = 0
    """Findings of the audit in the tables."""
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


def plan(settings: Settings) -> Plan:
    """For ``--dry-run``: reads a few small files, writes nothing and needs no Spark."""
    journal = open_journal(settings.data)
    identity = journal.identity()
    bronze = _known_bronze(settings, identity.id)
    waiting = {}
    for number in range(identity.partitions):
        begin, end = journal.bounds(number)
        waiting[number] = (bronze.end.offsets.get(number, begin) if bronze else begin, end)
    refreshed = sum(file.rows for file in bronze.files) if bronze and settings.full_refresh else 0
    return Plan(identity.id, bronze is None, waiting, refreshed)


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
    store = store_at(settings.warehouse)
    stop = stop or threading.Event()
    with locked(store), _session(settings, spark) as session:
        _known_bronze(settings, journal.identity().id)
        started = time.monotonic()
        pipeline = _Pipeline(settings, session, journal, store, progress or (lambda _: None), stop)
        with _abandoning(session, stop) as abandoned:
            try:
                pipeline.run()
            except Exception as error:
                # What was broken off because it was to stop is no failure.
                if not abandoned.is_set():
                    raise _explained(error) from None
        result = pipeline.result
        result.seconds, result.stopped = time.monotonic() - started, stop.is_set()
        result.rows = {table.name: result.rows.get(table.name, 0) for table in PUBLIC}
        return result


@contextlib.contextmanager
def _abandoning(spark: SparkSession, stop: threading.Event) -> Iterator[threading.Event]:
    """After a stop was asked for, the batch at work may finish; one that takes too long is abandoned."""
    done, abandoned = threading.Event(), threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_SECONDS):
            if stop.is_set() and not done.wait(STOP_GRACE):
                abandoned.set()
                spark.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=watch, name="stop", daemon=True)
    thread.start()
    try:
        yield abandoned
    finally:
        done.set()
        thread.join()


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
    session = spark_session(settings.master, is_short=is_short, config=config)
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
        store: Store,
        progress: Report,
        stop: threading.Event,
    ) -> None:
        self._settings = settings
        self._sessions = Sessions(spark)
        self._journal = journal
        self._store = store
        self._progress = progress
        self._stop = stop
        self._open_rows = OpenRows(store)
        self._partitions = journal.identity().partitions
        self._reader = StreamReader(
            SourceOptions(path=absolute(settings.data), max_records=settings.max_records, max_bytes=settings.max_bytes),
            advice="To go on with what is there, give another --warehouse",
        )
        self._alerts: Alerts | None = None
        self.result = Result()

    def run(self) -> None:
        if self._settings.full_refresh or Draft.is_begun(self._store):
            self._refresh()
        if not self._stop.is_set():
            self._tables = Tables(self._store, self._beginning)
            if is_interrupted(self._tables):
                raise WarehouseError(
                    f"an erase of a space from {self._store} was interrupted: complete it with `mewstream erase`, then "
                    "run the pipeline"
                )
            self.result.rows = self._tables.rows
            self._follow()

    def _beginning(self) -> Position:
        return Position.from_json(self._reader.initialOffset())

    # -- following the journal --------------------------------------------------------------------

    def _follow(self) -> None:
        """One batch after the other, from where the tables end."""
        if self._settings.on_finding is not None:
            self._alerts = Alerts(self._tables, self._settings.on_finding)
        self._finish_batch()
        retained = -_RETAIN_EVERY
        if not self._settings.continuous:
            self._reader.prepareForTriggerAvailableNow()
        while not self._stop.is_set():
            began = time.monotonic()
            if self._settings.retention and began - retained > _RETAIN_EVERY:
                retain(self._tables, self._settings.retention)
                retained = began
            before = self._tables.newest.position
            after = self._next(before)
            if after != before:
                before_batch(self._tables)
                self._read(before, after)
                after_batch(self._tables)
            elif not self._settings.continuous:
                return
            self._acknowledge()
            if self._settings.continuous:
                self._stop.wait(max(0.0, began + self._settings.interval - time.monotonic()))

    def _next(self, before: Position) -> Position:
        limit = self._reader.getDefaultReadLimit()
        return Position.from_json(self._reader.latestOffset(before.to_json(), limit))

    def _read(self, before: Position, after: Position) -> None:
        """Read a range of the journal into bronze, and make everything else from that."""
        began = time.monotonic()
        slices = self._reader.partitions(before.to_json(), after.to_json())
        ranges = {
            number: (start, after.offsets[number])
            for number, start in before.offsets.items()
            if start < after.offsets[number]
        }
        batch = BatchWriter(self._sessions, self._tables, sum(end - start for start, end in ranges.values()))
        path = absolute(self._settings.data)
        batch.append_made(RECORDS, [partial(read_slice, path, each) for each in slices])
        counted = self._derive(batch, Bronze(batch.added(RECORDS), self._store, batch.files_added(RECORDS)))
        if counted.ranges != ranges:
            raise WarehouseError(f"{ranges} of the journal were to be written, and {counted.ranges} are there")
        self._commit(batch, after, counted, began)

    def _finish_batch(self) -> None:
        """A run was killed while it committed a batch: its bronze is there, and the rest is made again."""
        unfinished = self._tables.unfinished()
        if unfinished is not None:
            began = time.monotonic()
            batch = BatchWriter(self._sessions, self._tables, sum(file.rows for file in unfinished.bronze))
            batch.adopt(unfinished.bronze)
            counted = self._derive(batch, Bronze(batch.added(RECORDS), self._store, unfinished.bronze))
            self._commit(batch, unfinished.position, counted, began)

    def _commit(self, batch: BatchWriter, position: Position, counted: Counted, began: float) -> None:
        batch.commit(position, records=counted.records)
        self._report(counted, began, self._lag(), batch.number)
        if self._alerts is not None and (findings := batch.files_added(AUDIT)):
            self._alerts.found(findings, batch.number)

    def _derive(self, batch: BatchWriter, bronze: Bronze) -> Counted:
        return derive(batch, bronze, self._partitions, self._open_rows)

    def _acknowledge(self) -> None:
        """Pruning the journal waits for us, where the journal is one that a gateway prunes."""
        if "://" in self._settings.data:
            return
        try:
            commit_consumer(Path(self._journal.root), consumer_name(self._store), self._tables.newest.offsets)
        except OSError as error:
            log.warning("cannot tell the journal in %s how far it was read: %s", self._journal.root, error)

    # -- making the tables anew -------------------------------------------------------------------

    def _refresh(self) -> None:
        """From bronze, portion by portion. What was begun is gone on with, and published when it is complete."""
        draft = Draft(self._store)
        if not draft.is_usable():
            draft.discard()
            draft = Draft(self._store)
        if draft.published_as is None:
            if not self._settings.full_refresh:
                return
            bronze = bronze_of(self._store)
            if bronze is None:
                return
            reached = draft.position.offsets if draft.position else {}
            for ranges in portions(reached, bronze.end.offsets, self._settings.max_records):
                if self._stop.is_set():
                    return
                self._refresh_portion(draft, bronze, ranges)
            draft.complete(bronze.end, bronze.next_batch)
        position = draft.position
        assert position is not None
        draft.publish(Tables(self._store, lambda: position))

    def _refresh_portion(self, draft: Draft, whole: KnownBronze, ranges: Ranges) -> None:
        began = time.monotonic()
        batch = BatchWriter(self._sessions, draft, ranges.records)
        rows = batch.read(RECORDS, whole.files).where(ranges.condition())
        bronze = Bronze(rows, self._store, whole.files, ranges)
        if whole.is_old_kind:
            batch.append_made(RECORDS, bronze.changed(tuple(RECORDS.names), unchanged))
            bronze = Bronze(batch.added(RECORDS), self._store, batch.files_added(RECORDS))
        counted = self._derive(batch, bronze)
        reached = {number: until for number, (_, until) in ranges.offsets.items()}
        batch.commit(Position(whole.end.journal, reached, {}), records=counted.records)
        left = sum(whole.end.offsets[number] - until for number, until in reached.items())
        self._report(counted, began, left, batch.number, refreshing=True)

    # -- how far it is ----------------------------------------------------------------------------

    def _lag(self) -> int:
        offsets = self._tables.newest.offsets
        ends = {number: self._journal.bounds(number)[1] for number in offsets}
        return sum(max(0, ends[number] - offset) for number, offset in offsets.items())

    def _report(self, counted: Counted, began: float, lag: int, batch: int, *, refreshing: bool = False) -> None:
        if not refreshing:
            self.result.batches += 1
            self.result.records += counted.records
        total, findings = (self.result.rows.get(table.name, 0) for table in (RECORDS, AUDIT))
        seconds = time.monotonic() - began
        self._progress(Progress(batch, counted.records, seconds, lag, total, findings, refreshing))


def consumer_name(store: Store) -> str:
    """The name under which the journal knows how far the tables of this warehouse are."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(store.root).name)[:32]
    return f"pipeline-{readable}-{zlib.crc32(store.root.encode()):08x}"


def _known_bronze(settings: Settings, journal: str) -> KnownBronze | None:
    """None for a new warehouse. Raises where the one that is there does not fit."""
    store = store_at(settings.warehouse)
    bronze = bronze_of(store)
    if bronze is None:
        return None
    if bronze.end.journal != journal:
        raise WarehouseError(
            f"{store} holds the tables of another journal ({bronze.end.journal}) than the one in {settings.data} "
            f"({journal}): give this one another --warehouse"
        )
    if not settings.full_refresh:
        refuse_old_kind(store)
        refuse_other_version(store, bronze.schema_version)
    return bronze


def _explained(error: Exception) -> Exception:
    """An error of the source or of a worker comes back from Spark as text: say what it said, and no more."""
    if isinstance(error, MewError):
        return error
    said = own_words(error)
    return PipelineError(said) if said is not None else error
