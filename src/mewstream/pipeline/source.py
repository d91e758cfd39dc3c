"""The journal as a data source of Spark: ``spark.read.format("mew")`` and ``spark.readStream.format("mew")``.

    mewstream.pipeline.register(spark)
    spark.read.format("mew").option("space", "demo").load("data")

The columns are those of the journal. A streaming read has an exact offset for each partition of the journal, and a
micro-batch is a contiguous range of each; only what is committed is read, up to the live tail.

Everything here is pickled: options and positions travel to the workers, open files never do.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mewstream.journal.errors import PositionGone
from mewstream.journal.reader import partition_of
from mewstream.journal.schema import SCHEMA
from mewstream.pipeline.admission import admit, cut
from mewstream.pipeline.arrow_work import for_spark, spare_the_collector
from mewstream.pipeline.errors import SourceError
from mewstream.pipeline.position import Position
from mewstream.pipeline.source_options import (
    EARLIEST,
    LATEST,
    SourceOptions,
    Start,
    open_journal,
    parse_options,
    without_secrets,
)

_START_ANEW = "To go on with what is there, start a query with a new checkpoint location"
_LOST_END = "The journal lost its end with the power, or was put back from an older copy."


def register(spark: SparkSession) -> None:
    """Make the source known to a session. Doing it again changes nothing."""
    # Spark looks in the active session whether it is known there already, and this makes that the right one.
    spark.createDataFrame([], "nothing int")
    try:
        spark.dataSource.register(MewDataSource)
    except AnalysisException as flaw:
        if flaw.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


class MewDataSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(options)
        open_journal(self._parsed.path).identity()

    @classmethod
    def name(cls) -> str:
        return "mew"

    def schema(self) -> StructType:
        return spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        _refuse_other_schema(schema)
        return _BatchReader(self._parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        _refuse_other_schema(schema)
        return StreamReader(self._parsed)


def spark_schema() -> StructType:
    """The columns of the journal in the types of Spark."""
    return from_arrow_schema(SCHEMA)


def _refuse_other_schema(schema: StructType) -> None:
    if schema != spark_schema():
        raise SourceError(
            "the source mew has the columns of the journal and takes no other schema: leave out .schema()"
        )


class JournalSlice(InputPartition):
    """What one task reads: a range of offsets of a partition of the journal."""

    def __init__(self, journal: str, number: int, start: int, end: int) -> None:
        super().__init__((journal, number, start, end))
        self.journal = journal
        self.number = number
        self.start = start
        self.end = end


class _Look:
    """The journal at one moment: asked once for each call of Spark."""

    def __init__(self, options: SourceOptions, advice: str = _START_ANEW) -> None:
        self.advice = advice
        self.shown = without_secrets(options.path)
        self.journal = open_journal(options.path)
        self.identity = self.journal.identity()
        count = self.identity.partitions
        wanted = range(count) if options.spaces is None else {partition_of(each, count) for each in options.spaces}
        # The partitions in which the wanted spaces are; others are not even looked at.
        self.bounds = {number: self.journal.bounds(number) for number in sorted(wanted)}

    def beginning(self, start: Start) -> Position:
        """Where the option ``start`` says."""
        if isinstance(start, Position):
            return start
        if isinstance(start, dict):
            if unknown := [number for number in start if number >= self.identity.partitions]:
                raise SourceError(
                    f"the option start names partition {unknown[0]}: the journal in {self.shown} has 0 to "
                    f"{self.identity.partitions - 1}"
                )
            return self.position({number: start.get(number, begin) for number, (begin, _) in self.bounds.items()})
        if isinstance(start, int):
            return self.position({number: self.journal.offset_at(number, start) for number in self.bounds})
        if start == EARLIEST:
            return self.position({number: begin for number, (begin, _) in self.bounds.items()})
        return self.end()

    def end(self) -> Position:
        return self.position({number: end for number, (_, end) in self.bounds.items()})

    def position(self, offsets: dict[int, int], epochs: dict[int, str] | None = None) -> Position:
        return Position(self.identity.id, offsets, epochs or {})

    def refuse_lost(self, position: Position) -> None:
        """Raise where a position is of another journal, or anything after it is gone: nothing is skipped silently."""
        if position.journal != self.identity.id:
            raise PositionGone(
                f"{self.shown} holds another journal ({self.identity.id}) than the one that was read "
                f"({position.journal}): it was made anew, or this is another directory. {self.advice}"
            )
        if position.offsets.keys() != self.bounds.keys():
            raise SourceError(
                f"the position is of partitions {sorted(position.offsets)}, and the option space asks for "
                f"{list(self.bounds)}: a query cannot change its spaces. Use a new checkpoint location, or the spaces "
                "that it was begun with"
            )
        for number, offset in position.offsets.items():
            begin, end = self.bounds[number]
            if offset < begin:
                raise PositionGone(
                    f"{self.shown}: records {offset} to {begin - 1} of partition {number} were pruned before they were "
                    f"read. {self.advice}; a named consumer keeps it from happening again"
                )
            if offset > end:
                raise PositionGone(
                    f"{self.shown}: partition {number} ends at offset {end}, and more was read of it, up to {offset}. "
                    f"{_LOST_END} {self.advice}"
                )

    def slices(self, start: Position, end: Position) -> list[JournalSlice]:
        ranges = {number: (offset, end.offsets[number]) for number, offset in start.offsets.items()}
        return [JournalSlice(self.identity.id, *each) for each in cut(ranges, self.journal.spans)]


def read_slice(path: str, part: JournalSlice) -> Iterator[pa.RecordBatch]:
    """The records of a part of the journal."""
    journal = open_journal(path)
    if journal.identity().id != part.journal:
        raise PositionGone(
            f"{without_secrets(path)} is not the same journal in the worker on {socket.gethostname()} as in the "
            "driver: it must be on storage that all of them share"
        )
    yield from journal.rows(part.number, part.start, part.end)


class _Reader:
    """The part of reading that happens in the workers."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        spare_the_collector()
        # Spark asks for one even where there is nothing.
        if isinstance(partition, JournalSlice):
            yield from for_spark(self._wanted(batch) for batch in read_slice(self._options.path, partition))

    def _wanted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for column, names in (("space", self._options.spaces), ("kind", self._options.kinds)):
            if names is not None:
                rows = rows.filter(pc.is_in(rows.column(column), pa.array(names, pa.string())))
        return rows


class _BatchReader(_Reader, DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        for name, limit in (("maxRecordsPerTrigger", options.max_records), ("maxBytesPerTrigger", options.max_bytes)):
            if limit is not None:
                raise SourceError(f"the option {name} is for readStream: a batch has no triggers")
        if options.start == LATEST:
            raise SourceError("the option start is 'latest', and a batch ends there: nothing would be read")

    def partitions(self) -> Sequence[InputPartition]:
        look = _Look(self._options)
        start = look.beginning(self._options.start)
        look.refuse_lost(start)
        return look.slices(start, look.end())


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a journal: for Spark's streams, and for the pipeline, which asks it the same questions."""

    def __init__(self, options: SourceOptions, advice: str = _START_ANEW) -> None:
        """``advice`` is what to do where the position is gone."""
        super().__init__(options)
        self._advice = advice
        self._target: Position | None = None
        self._run = ""
        self._trusted: set[tuple[int, int]] = set()
        """(partition, offset) of positions that were compared with the journal in this run of the gateway."""

    def initialOffset(self) -> dict[str, Any]:
        return _Look(self._options, self._advice).beginning(self._options.start).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows one limit at a time, and hands it back; :meth:`latestOffset` keeps both."""
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _Look(self._options, self._advice).end()

    def reportLatestOffset(self) -> dict[str, Any]:
        return _Look(self._options, self._advice).end().to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        look = _Look(self._options, self._advice)
        position = self._checked(look, start)
        target = self._target or look.end()
        available = {
            number: (offset, max(offset, min(look.bounds[number][1], target.offsets[number])))
            for number, offset in position.offsets.items()
        }
        limited = not isinstance(limit, ReadAllAvailable)
        ends = admit(
            available,
            self._options.max_records if limited else None,
            self._options.max_bytes if limited else None,
            look.journal.spans,
        )
        epochs = dict(position.epochs)
        for number, end in ends.items():
            if end > position.offsets[number]:
                epochs[number] = look.journal.epoch_at(number, end - 1)
                self._trusted.add((number, end))
        return look.position(ends, epochs).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[JournalSlice]:
        look = _Look(self._options, self._advice)
        return look.slices(self._checked(look, start), self._checked(look, end))

    def _checked(self, look: _Look, value: dict[str, Any]) -> Position:
        """A position of this journal, and of the history that it has now."""
        position = Position.from_json(value)
        look.refuse_lost(position)
        if self._run != look.identity.epoch:
            self._run = look.identity.epoch
            self._trusted.clear()
        for number, epoch in position.epochs.items():
            offset = position.offsets[number]
            # Of a record that was pruned nothing can be said; all after it is there.
            if (number, offset) in self._trusted or offset <= look.bounds[number][0]:
                continue
            found = look.journal.epoch_at(number, offset - 1)
            if found != epoch:
                raise PositionGone(
                    f"{look.shown}: record {offset - 1} of partition {number} was of run {epoch} when it was read, and "
                    f"is of run {found} now. {_LOST_END} {look.advice}"
                )
            self._trusted.add((number, offset))
        return position
