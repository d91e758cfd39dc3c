"""From the records of one batch to the rows of every table: which transform gets what, and what is written where.

The transforms are pure functions in modules of their own. Here are the order, and what is left alone
because nothing in the batch concerns it: ``counts`` says how many records of each kind there are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from mewstream.pipeline import audit, content, gaps, handoffs, metrics, sessions, silver, streams, summary
from mewstream.pipeline import tables as t
from mewstream.pipeline.activity import activity
from mewstream.pipeline.batch_writer import BatchWriter
from mewstream.pipeline.bronze import Bronze
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.events import RIGHT_RECORDS, SESSION_RECORDS, STREAM_RECORDS, control_records
from mewstream.pipeline.frames import COLUMNS, frames
from mewstream.pipeline.intervals import authorizations
from mewstream.pipeline.sql import query, same, settled

#: So much goes on at the same time: the long passes fill the cores, and small tables take little but waiting.
_WRITERS = 6


@dataclass(slots=True)
class Counted:
    """What is in a batch, as far as the driver needs to know it."""

    records: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    numbered: int = 0
    """Frames with a sequence number."""
    formatted: int = 0
    """Frames with a format."""
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    """For each partition of the journal the offsets, the last one not included."""
    has_beginning: bool = False
    """A space begins in it."""

    def any(self, kinds: frozenset[str] | set[str]) -> bool:
        return not kinds.isdisjoint(self.kinds)


_STATISTICS = """
SELECT space, record, count(*) AS count, count(sequence) AS numbered,
    count(IF(record = 'frame', format_id, NULL)) AS formatted,
    min(offset) AS first_offset, max(offset) AS last_offset,
    min(seq) AS first_seq, max(seq) AS last_seq, min(ts) AS first_ts, max(ts) AS last_ts
FROM {records}
GROUP BY space, record
"""
_COUNTS = """
SELECT CAST(pmod(crc32(CAST(space AS BINARY)), {partitions}) AS INT) AS partition, record,
    sum(count) AS count, sum(numbered) AS numbered, sum(formatted) AS formatted,
    min(first_offset) AS first, max(last_offset) AS last, min(first_seq) AS first_seq
FROM {statistics}
GROUP BY partition, record
"""


def statistics(records: DataFrame) -> DataFrame:
    """A row for each space and kind of record."""
    return settled(query(_STATISTICS, records=records))


def count(statistics: DataFrame, partitions: int, *, is_whole: bool = True) -> Counted:
    """Raises where the offsets of a partition are not one unbroken range: then records are missing, or there twice.
    What is not whole may miss some."""
    rows = query(_COUNTS, partitions=str(partitions), statistics=statistics).collect()
    counted = Counted()
    found: dict[int, int] = {}
    for row in rows:
        number, records = row["partition"], row["count"]
        counted.records += records
        counted.kinds[row["record"]] = counted.kinds.get(row["record"], 0) + records
        counted.numbered += row["numbered"]
        counted.formatted += row["formatted"]
        counted.has_beginning |= row["first_seq"] == 1
        first, end = counted.ranges.get(number, (row["first"], row["last"] + 1))
        counted.ranges[number] = min(first, row["first"]), max(end, row["last"] + 1)
        found[number] = found.get(number, 0) + records
    for number, (first, end) in counted.ranges.items():
        if found[number] > end - first or (is_whole and found[number] < end - first):
            raise WarehouseError(
                f"the batch has {found[number]} records of partition {number} for the offsets {first} to {end - 1}: "
                "expected each once. Verify the journal with `mewstream journal verify`"
            )
    return counted


class Schemas:
    """The JSON Schemas of the formats that are in use, by their hash. They are metadata: the driver knows them, and
    sends them with the work."""

    def __init__(self) -> None:
        self.by_hash: dict[str, str] = {}
        self.unchecked = False
        """There are formats without a schema."""
        self._looked = False

    def look(self, formats: DataFrame, *, changed: bool) -> None:
        if changed or not self._looked:
            for row in content.schemas_of(formats).collect():
                if row.schema_hash is None:
                    self.unchecked = True
                else:
                    self.by_hash[row.schema_hash] = row.schema
            self._looked = True


def derive(batch: BatchWriter, bronze: Bronze, stats: DataFrame, counted: Counted, schemas: Schemas) -> None:
    """Write the rows of every table but bronze."""
    if counted.has_beginning:
        _refuse_second_beginning(batch, stats)
    context = batch.spark.sparkContext
    # Or Spark would take a stack trace for each step of each plan, to tell where in its code that comes from.
    for form in ("short", "long"):
        context.setLocalProperty(f"callSite.{form}", f"batch {batch.number}")
    context.setLocalProperty(_POOL, "first")
    with _at_work(batch.spark) as work:
        _Derivation(batch, bronze, stats, counted, schemas, work).run()


def _refuse_second_beginning(batch: BatchWriter, stats: DataFrame) -> None:
    """Its numbers would mean two things, and what is carried over of it would be taken for what it is now."""
    again = query(_BEGUN_AGAIN, stats=stats, carried=batch.carried(t.SPACE_SUMMARY)).collect()
    for row in again:
        raise WarehouseError(
            f"space {row.space!r} begins with seq 1 again in the journal, and the tables have it up to seq "
            f"{row.last_seq}: it was erased from the journal alone. Erase it from the tables, `mewstream erase --space "
            f"{row.space} --warehouse ...`, then run the pipeline"
        )


#: Which tasks go first: see fairscheduler.xml.
_POOL = "spark.scheduler.pool"


class _Derivation:
    def __init__(
        self,
        batch: BatchWriter,
        bronze: Bronze,
        stats: DataFrame,
        counted: Counted,
        schemas: Schemas,
        work: _Work,
    ) -> None:
        self.batch = batch
        self.bronze = bronze
        self.records = bronze.rows
        self.counted = counted
        self.schemas = schemas
        self.work = work
        # The longest table, which needs nothing but the records, is written while the others are planned.
        self.written = work.start(self._frames)
        self.additions = [summary.of_records(stats)]
        self.spaces = settled(query(_SPACES, stats=stats))
        self.others = settled(self.records.where("record <> 'frame'"))
        self.control = settled(control_records(self.others))
        self.lives = query(_LIVING, carried=batch.carried(t.STREAMS))
        if counted.any(STREAM_RECORDS):
            self.lives = settled(streams.lives(self.control, batch.carried(t.STREAMS)))
        self.rights = batch.carried(t.AUTHORIZATIONS)
        if counted.any(RIGHT_RECORDS):
            self.rights = settled(authorizations(self.control, self.rights))

    def run(self) -> None:
        for independent in (self._audit, self._content, self._facts, self._sessions):
            self.work.start(independent)
        self.written.result()
        self.frames = self.batch.added(t.FRAMES)
        self.activity = settled(activity(self.frames, self.lives, self.rights, self.spaces))
        self.additions.append(summary.total(self.activity, "bytes", "bytes"))
        self._streams()
        self._rights()
        self._metrics()
        self._gaps()
        self.work.finish()
        self._summary()

    def _frames(self) -> None:
        if "frame" in self.counted.kinds:
            self.batch.append_made(t.FRAMES, self.bronze.changed(COLUMNS, frames))
        found, expected = self.batch.rows_added(t.FRAMES), self.counted.kinds.get("frame", 0)
        if found != expected:
            raise WarehouseError(f"{found} frames were written of {expected}: are all workers of the same mewstream?")

    def _audit(self) -> None:
        kinds = self.counted.kinds
        judged = audit.judge(
            self.records,
            self.batch.carried(t.AUDIT_FACTS),
            control=self.others,
            frames=kinds.get("frame", 0),
            kinds=kinds.keys(),
        )
        marks = settled(judged.marks)
        self.batch.append(t.AUDIT, audit.findings(marks))
        self.batch.replace(t.AUDIT_FACTS, judged.carried)
        self.additions.append(audit.counts(marks))

    def _facts(self) -> None:
        kinds = self.counted.kinds
        if "envelope" in kinds:
            self.work.start(self.batch.append, t.ENVELOPES, silver.envelopes(self.control))
        if "refused" in kinds:
            self.work.start(self.batch.append, t.REFUSALS, silver.refusals(self.control))
            self.additions.append(summary.total(self.control, "refusals", summary.REFUSED))
        if "frames-dropped" in kinds:
            self.additions.append(summary.total(self.control, "drops", summary.DROPPED))

    def _sessions(self) -> None:
        before = self.batch.carried(t.SESSIONS)
        if self.counted.any(SESSION_RECORDS):
            after = settled(sessions.sessions(self.control, before))
            self.work.start(self.batch.split, t.SESSIONS, after.selectExpr("*", "left_seq IS NULL AS is_open"))
            self.additions.append(query(_JOINS, sessions=after, spaces=self.spaces))
        else:
            after = before
        self.additions.append(summary.total(after.where("left_seq IS NULL"), "present"))
        participants = self.batch.carried(t.PARTICIPANTS)
        if "joined" in self.counted.kinds:
            participants = settled(sessions.participants(self.control, participants))
            self.work.start(self.batch.replace, t.PARTICIPANTS, participants)
        self.additions.append(summary.total(participants, "participants"))

    def _content(self) -> None:
        opened, ended = "stream-opened" in self.counted.kinds, "stream-ended" in self.counted.kinds
        formats = self.batch.carried(t.LIVE_FORMATS)
        if opened:
            new = silver.formats(self.control)
            self.work.start(self.batch.append, t.FORMATS, new)
            formats = settled(formats.unionByName(new))
        if opened or (ended and self.batch.has_carried(t.LIVE_FORMATS)):
            self.work.start(self.batch.replace, t.LIVE_FORMATS, content.still_live(formats, self.lives))
        if self.counted.formatted:
            self.schemas.look(formats, changed=opened)
            # The longest pass that nothing waits for: it takes the cores that the others leave.
            self.records.sparkSession.sparkContext.setLocalProperty(_POOL, "default")
            rows = content.decoded(
                self.records, formats, self.lives, self.schemas.by_hash, unchecked=self.schemas.unchecked
            )
            self.batch.distribute(t.CONTENT, t.QUARANTINE, rows, "is_quarantined")
            for table, name in ((t.CONTENT, "content"), (t.QUARANTINE, "quarantined")):
                self.additions.append(summary.total(self.batch.added(table), name))

    def _streams(self) -> None:
        after = settled(streams.streams(self.control, self.batch.carried(t.STREAMS), self.activity))
        self.work.start(self.batch.split, t.STREAMS, after.selectExpr("*", "ended_seq IS NULL AS is_open"))
        self.additions.append(summary.total(after.where("ended_seq IS NULL"), "open_streams"))

    def _rights(self) -> None:
        rows = query(_USED, unchanged=_RIGHTS_AFTER, rights=self.rights, activity=self.activity)
        self.work.start(self.batch.split, t.AUTHORIZATIONS, rows)
        if not self.counted.any(RIGHT_RECORDS) and not self.batch.has_carried(t.HANDOFFS):
            return
        begun = settled(
            handoffs.begun(self.control, self.rights, spaces=self.spaces, carried=self.batch.carried(t.HANDOFFS))
        )
        found = settled(handoffs.first_frames(begun, self.rights, self.activity))
        silences = handoffs.silences(found, self.frames, self.lives)
        self.work.start(self.batch.split, t.HANDOFFS, handoffs.handoffs(begun, found, silences))

    def _metrics(self) -> None:
        flowing = self.counted.any({"frame", "frames-dropped"})
        if not flowing and not self.batch.has_carried(t.OPEN_WINDOWS):
            return
        windows = settled(
            metrics.windows(
                self.control,
                self.activity,
                lives=self.lives,
                spaces=self.spaces,
                carried=self.batch.carried(t.OPEN_WINDOWS),
            )
        )
        self.work.start(self.batch.split, t.STREAM_METRICS, metrics.metrics(windows))
        self.work.start(self.batch.replace, t.OPEN_WINDOWS, windows.where("is_open"))

    def _gaps(self) -> None:
        numbered = gaps.numbered(self.frames, self.lives, self.batch.carried(t.WRITER_SEQUENCES))
        if self.counted.numbered:
            numbered = settled(numbered)
        if self.counted.numbered or self.batch.has_carried(t.SEQUENCE_GAPS):
            rows = gaps.gaps(
                numbered,
                self.control,
                participants=self.batch.carried(t.PARTICIPANTS),
                lives=self.lives,
                spaces=self.spaces,
                carried=self.batch.carried(t.SEQUENCE_GAPS),
            )
            self.work.start(self.batch.split, t.SEQUENCE_GAPS, rows)
        ended = self.counted.any(STREAM_RECORDS) and self.batch.has_carried(t.WRITER_SEQUENCES)
        if self.counted.numbered or ended:
            self.work.start(self.batch.replace, t.WRITER_SEQUENCES, gaps.writer_sequences(numbered, self.lives))

    def _summary(self) -> None:
        self.batch.replace(t.SPACE_SUMMARY, summary.summary(self.batch.carried(t.SPACE_SUMMARY), *self.additions))


_BEGUN_AGAIN = """
SELECT carried.space, carried.last_seq
FROM {stats} AS stats JOIN {carried} AS carried ON stats.space = carried.space
WHERE stats.first_seq = 1
"""
_SPACES = """
SELECT space, min(first_seq) AS first_seq, max(last_seq) AS last_seq, max(last_ts) AS last_ts
FROM {stats}
GROUP BY space
"""
#: Streams, as lives, where none began or ended.
_LIVING = """
SELECT space, stream_id, ready_seq, CAST(NULL AS BIGINT) AS ended_seq, last_frame_ts FROM {carried}
"""
_JOINS = """
SELECT sessions.space, count(*) AS joins
FROM {sessions} AS sessions JOIN {spaces} AS spaces ON sessions.space = spaces.space AND joined_seq >= first_seq
GROUP BY sessions.space
"""
_USED = """
WITH used AS (
    SELECT space, stream_id, sender AS participant, from_seq, sum(frames) AS used
    FROM {activity}
    WHERE from_seq IS NOT NULL
    GROUP BY space, stream_id, sender, from_seq
)
SELECT {unchanged}, until_seq IS NULL AS is_open
FROM (
    SELECT rights.*, used
    FROM {rights} AS rights
    LEFT JOIN used
        ON right = 'write' AND rights.space = used.space AND rights.stream_id = used.stream_id
        AND rights.participant = used.participant AND rights.from_seq = used.from_seq
)
"""
_RIGHTS_AFTER = same(t.AUTHORIZATIONS, frames_used="frames_used + coalesce(used, 0)")


class _Work:
    """What goes on side by side."""

    def __init__(self, spark: SparkSession, pool: ThreadPoolExecutor) -> None:
        self._spark = spark
        self._pool = pool
        self._running: list[Future[None]] = []

    def start(self, work: Callable[..., None], *arguments: Any) -> Future[None]:
        # With the properties of this thread, so that stopping the query stops these jobs too.
        started = self._pool.submit(inheritable_thread_target(self._spark)(work), *arguments)
        self._running.append(started)
        return started

    def finish(self) -> None:
        """All of it, and what it has started itself: the list grows meanwhile."""
        for each in self._running:
            each.result()


@contextlib.contextmanager
def _at_work(spark: SparkSession) -> Iterator[_Work]:
    with ThreadPoolExecutor(_WRITERS, thread_name_prefix="tables") as pool:
        yield _Work(spark, pool)
