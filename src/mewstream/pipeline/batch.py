"""From the records of one batch to the rows of every table: which transform gets what, and what is written where.

The transforms are pure functions in modules of their own. Here are the order, and what is left alone
because nothing in the batch concerns it: ``counts`` says how many records of each kind there are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mewstream.pipeline import audit, content, gaps, handoffs, metrics, sessions, silver, streams, summary
from mewstream.pipeline import tables as t
from mewstream.pipeline.activity import activity
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.events import RIGHT_RECORDS, SESSION_RECORDS, STREAM_RECORDS, events
from mewstream.pipeline.intervals import authorizations
from mewstream.pipeline.warehouse import BatchWriter

#: Small tables are written at the same time: each takes little but waiting.
_WRITERS = 4


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

    def any(self, kinds: frozenset[str] | set[str]) -> bool:
        return not kinds.isdisjoint(self.kinds)

    def next_offsets(self, before: Mapping[int, int]) -> dict[int, int]:
        return {**before, **{number: end for number, (_, end) in self.ranges.items()}}


def statistics(records: DataFrame) -> DataFrame:
    """A row for each space and kind of record."""
    return records.groupBy("space", "record").agg(
        F.count(F.lit(1)).alias("count"),
        F.count("sequence").alias("numbered"),
        F.count(F.when(F.col("record") == "frame", F.col("format_id"))).alias("formatted"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.min("ts").alias("first_ts"),
        F.max("ts").alias("last_ts"),
    )


def count(statistics: DataFrame, partitions: int) -> Counted:
    """Raises where the offsets of a partition are not one unbroken range: then records are missing, or there twice."""
    partition = F.pmod(F.crc32(F.col("space").cast("binary")), F.lit(partitions)).cast("int")
    rows = (
        statistics.groupBy(partition.alias("partition"), "record")
        .agg(
            *(F.sum(name).alias(name) for name in ("count", "numbered", "formatted")),
            F.min("first_offset").alias("first"),
            F.max("last_offset").alias("last"),
        )
        .collect()
    )
    counted = Counted()
    found: dict[int, int] = {}
    for row in rows:
        number, records = row["partition"], row["count"]
        counted.records += records
        counted.kinds[row["record"]] = counted.kinds.get(row["record"], 0) + records
        counted.numbered += row["numbered"]
        counted.formatted += row["formatted"]
        first, end = counted.ranges.get(number, (row["first"], row["last"] + 1))
        counted.ranges[number] = min(first, row["first"]), max(end, row["last"] + 1)
        found[number] = found.get(number, 0) + records
    for number, (first, end) in counted.ranges.items():
        if found[number] != end - first:
            raise WarehouseError(
                f"the batch has {found[number]} records of partition {number} for the offsets {first} to {end - 1}: "
                "expected each once. Verify the journal with `mewstream journal verify`"
            )
    return counted


class Schemas:
    """The JSON Schemas of the formats that are in use, by their hash. They are metadata: the driver knows them, and
    sends them with the work."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._asked = False

    def of(self, formats: DataFrame, *, changed: bool) -> dict[str, str]:
        if changed or not self._asked:
            new = content.schemas_of(formats).where(~F.col("schema_hash").isin(list(self._known)))
            self._known |= {row.schema_hash: row.schema for row in new.collect()}
            self._asked = True
        return dict(self._known)


def derive(batch: BatchWriter, records: DataFrame, stats: DataFrame, counted: Counted, schemas: Schemas) -> None:
    """Write the rows of every table but bronze. ``records`` are the bronze rows of this batch."""
    with _at_work(records.sparkSession) as work:
        _Derivation(batch, records, stats, counted, schemas, work).run()


class _Derivation:
    def __init__(
        self,
        batch: BatchWriter,
        records: DataFrame,
        stats: DataFrame,
        counted: Counted,
        schemas: Schemas,
        work: _Work,
    ) -> None:
        self.batch = batch
        self.records = records
        self.stats = stats
        self.counted = counted
        self.schemas = schemas
        self.work = work
        self.control = work.keep(records.where(F.col("record") != "frame"))
        self.spaces = work.keep(
            stats.groupBy("space").agg(
                F.min("first_seq").alias("first_seq"),
                F.max("last_seq").alias("last_seq"),
                F.max("last_ts").alias("last_ts"),
            )
        )
        self.lives = batch.carried(t.STREAMS).select(
            "space", "stream_id", "ready_seq", F.lit(None).cast("bigint").alias("ended_seq"), "last_frame_ts"
        )
        if counted.any(STREAM_RECORDS):
            self.lives = work.keep(streams.lives(self.control, batch.carried(t.STREAMS)))
        self.rights = batch.carried(t.AUTHORIZATIONS)
        if counted.any(RIGHT_RECORDS):
            self.rights = work.keep(authorizations(self.control, self.rights))
        self.additions = [summary.of_records(stats)]

    def run(self) -> None:
        self._facts()
        self.batch.append(t.FRAMES, silver.frames(self.records))
        self.frames = self.batch.added(t.FRAMES)
        self.activity = self.work.keep(activity(self.frames, self.lives, self.rights, self.spaces))
        self.additions.append(summary.total(self.activity, "bytes", "bytes"))
        self._audit()
        self._sessions()
        self._content()
        self._streams_and_rights()
        self._metrics()
        self._gaps()
        self.work.finish()
        self._summary()

    def _facts(self) -> None:
        kinds = self.counted.kinds
        if "envelope" in kinds:
            self.work.start(self.batch.append, t.ENVELOPES, silver.envelopes(self.control))
        if "refused" in kinds:
            refused = silver.refusals(self.control)
            self.work.start(self.batch.append, t.REFUSALS, refused)
            self.additions.append(summary.total(refused, "refusals", "count"))
        if "frames-dropped" in kinds:
            self.additions.append(summary.total(events(self.control, "frames-dropped"), "drops", "count"))

    def _sessions(self) -> None:
        participants = self.batch.carried(t.PARTICIPANTS)
        after = self.batch.carried(t.SESSIONS)
        if self.counted.any(SESSION_RECORDS):
            after = self.work.keep(sessions.sessions(self.control, after))
            rows = after.withColumn("is_open", F.col("left_seq").isNull())
            self.work.start(self.batch.split, t.SESSIONS, rows)
            begun = after.join(F.broadcast(self.spaces), "space").where(F.col("joined_seq") >= F.col("first_seq"))
            self.additions.append(summary.total(begun, "joins"))
        if "joined" in self.counted.kinds:
            participants = self.work.keep(sessions.participants(self.control, participants))
            self.work.start(self.batch.replace, t.PARTICIPANTS, participants)
        self.additions.append(summary.total(after.where(F.col("left_seq").isNull()), "present"))
        self.additions.append(summary.total(participants, "participants"))

    def _content(self) -> None:
        opened, ended = "stream-opened" in self.counted.kinds, "stream-ended" in self.counted.kinds
        formats = self.batch.carried(t.LIVE_FORMATS)
        if opened:
            new = silver.formats(self.control)
            self.work.start(self.batch.append, t.FORMATS, new)
            formats = self.work.keep(formats.unionByName(new))
        if opened or (ended and self.batch.has_carried(t.LIVE_FORMATS)):
            self.work.start(self.batch.replace, t.LIVE_FORMATS, content.still_live(formats, self.lives))
        if self.counted.formatted:
            schemas = self.schemas.of(formats, changed=opened)
            rows = content.decoded(self.records, formats, self.lives, schemas)
            self.batch.distribute(t.CONTENT, t.QUARANTINE, rows, "is_quarantined")
            for table, name in ((t.CONTENT, "content"), (t.QUARANTINE, "quarantined")):
                self.additions.append(summary.total(self.batch.added(table).select("space"), name))

    def _streams_and_rights(self) -> None:
        after = self.work.keep(streams.streams(self.control, self.batch.carried(t.STREAMS), self.activity))
        rows = after.withColumn("is_open", F.col("ended_seq").isNull())
        self.work.start(self.batch.split, t.STREAMS, rows)
        self.additions.append(summary.total(after.where(F.col("ended_seq").isNull()), "open_streams"))
        used = (
            self.activity.where(F.col("from_seq").isNotNull())
            .groupBy("space", "stream_id", F.col("sender").alias("participant"), "from_seq")
            .agg(F.sum("frames").alias("used"))
            .withColumn("right", F.lit("write"))
        )
        held = self.rights.join(used, ["space", "stream_id", "participant", "right", "from_seq"], "left")
        held = held.withColumn("frames_used", F.col("frames_used") + F.coalesce("used", F.lit(0)))
        self.work.start(self.batch.split, t.AUTHORIZATIONS, held.withColumn("is_open", F.col("until_seq").isNull()))
        if self.counted.any(RIGHT_RECORDS) or self.batch.has_carried(t.HANDOFFS):
            rows = handoffs.handoffs(
                self.control,
                self.rights,
                self.activity,
                frames=self.frames,
                lives=self.lives,
                spaces=self.spaces,
                carried=self.batch.carried(t.HANDOFFS),
            )
            self.work.start(self.batch.split, t.HANDOFFS, rows)

    def _metrics(self) -> None:
        flowing = self.counted.any({"frame", "frames-dropped"})
        if not flowing and not self.batch.has_carried(t.OPEN_WINDOWS):
            return
        windows = self.work.keep(
            metrics.windows(self.control, self.activity, self.lives, self.batch.carried(t.OPEN_WINDOWS))
        )
        found = metrics.metrics(windows, self.spaces)
        self.work.start(self.batch.split, t.STREAM_METRICS, found.rows)
        self.work.start(self.batch.replace, t.OPEN_WINDOWS, found.open_windows)

    def _gaps(self) -> None:
        numbered = gaps.numbered(self.frames, self.lives, self.batch.carried(t.WRITER_SEQUENCES))
        if self.counted.numbered:
            numbered = self.work.keep(numbered)
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

    def _audit(self) -> None:
        judged = audit.judge(self.records, self.batch.carried(t.AUDIT_FACTS))
        self.work.release_later(*judged.shared)
        marks = self.work.keep(judged.marks)
        self.work.start(self.batch.append, t.AUDIT, audit.findings(marks))
        self.work.start(self.batch.replace, t.AUDIT_FACTS, judged.carried)
        self.additions.append(audit.counts(marks))

    def _summary(self) -> None:
        self.batch.replace(t.SPACE_SUMMARY, summary.summary(self.batch.carried(t.SPACE_SUMMARY), *self.additions))


class _Work:
    """Writes that go on side by side, and frames that are kept in memory until all is done."""

    def __init__(self, spark: SparkSession, pool: ThreadPoolExecutor) -> None:
        self._spark = spark
        self._pool = pool
        self._kept: list[DataFrame] = []
        self._running: list[Future[None]] = []

    def keep(self, rows: DataFrame) -> DataFrame:
        """It is used more than once."""
        self._kept.append(rows.persist())
        return rows

    def release_later(self, *kept: DataFrame) -> None:
        self._kept += kept

    def start(self, write: Callable[[t.Table, DataFrame], None], table: t.Table, rows: DataFrame) -> None:
        # With the properties of this thread, so that stopping the query stops these jobs too.
        self._running.append(self._pool.submit(inheritable_thread_target(self._spark)(write), table, rows))

    def finish(self) -> None:
        running, self._running = self._running, []
        for each in running:
            each.result()

    def release(self) -> None:
        for rows in self._kept:
            rows.unpersist()


@contextlib.contextmanager
def _at_work(spark: SparkSession) -> Iterator[_Work]:
    with ThreadPoolExecutor(_WRITERS, thread_name_prefix="tables") as pool:
        work = _Work(spark, pool)
        try:
            yield work
        finally:
            work.release()
