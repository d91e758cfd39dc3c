"""The source ``mew`` under a real Spark: everything once and in order, whatever the steps, and never a silent skip."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import live_writer
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
import pytest
from journals import (
    START,
    Play,
    append,
    lively,
    opened,
    prune_before,
    rows_of,
    seal_segments,
    write_journal,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable
from s3_server import BUCKET, KEY, SECRET, s3_server, upload

from mewstream.journal.errors import PositionGone
from mewstream.journal.reader import JournalReader, partition_of
from mewstream.journal.retention import commit_consumer
from mewstream.journal.schema import SCHEMA
from mewstream.journal.segments import ENTRY_BYTES
from mewstream.pipeline import arrow_work
from mewstream.pipeline.errors import own_words
from mewstream.pipeline.source import MewDataSource
from mewstream.pipeline.source_options import parse_options
from mewstream.protocol.records import Frame
from mewstream.protocol.times import rfc3339

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.streaming import StreamingQuery

JournalOf = Callable[..., Path]
COLUMNS = SCHEMA.names
SEGMENTS = {"segment_bytes": 30_000}


def several(records: int = 400, seed: int = 0) -> list[Play]:
    """Spaces in all four partitions, one of which two of them share."""
    return live_writer.logs_of(records, seed)


def read(spark: SparkSession, data: Path | str, **options: Any) -> pa.Table:
    return in_order(spark.read.format("mew").options(**options).load(str(data)).toArrow())


def in_order(rows: pa.Table) -> pa.Table:
    """By partition and offset, with the number of the partition in front."""
    numbers = [partition_of(space, 4) for space in rows["space"].to_pylist()]
    rows = rows.add_column(0, "partition", pa.array(numbers, pa.int32()))
    return rows.sort_by([("partition", "ascending"), ("offset", "ascending")])


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Every column of every row."""
    assert found.column_names == expected.column_names
    assert found.num_rows == expected.num_rows
    for name in found.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name


class Sink:
    """Keeps what a streaming query gave, batch by batch."""

    def __init__(self, then: Callable[[int, pa.Table], None] = lambda number, rows: None) -> None:
        self.batches: dict[int, pa.Table] = {}
        self.then = then

    def __call__(self, rows: DataFrame, number: int) -> None:
        table = rows.toArrow()
        self.then(number, table)
        self.batches[number] = table

    @property
    def rows(self) -> pa.Table:
        return pa.concat_tables(self.batches[number] for number in sorted(self.batches))


def stream(
    spark: SparkSession, data: Path | str, checkpoint: Path, sink: Sink, *, now: bool = True, **options: Any
) -> StreamingQuery:
    frame = spark.readStream.format("mew").options(**options).load(str(data))
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if now else writer.trigger(processingTime="50 milliseconds")).start()


def run(spark: SparkSession, data: Path | str, checkpoint: Path, sink: Sink, **options: Any) -> StreamingQuery:
    """All that is there now, in as many batches as the options make of it."""
    query = stream(spark, data, checkpoint, sink, **options)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def assert_exactly_once(batches: list[pa.Table], expected: pa.Table) -> None:
    """All rows once, in order; and each batch is a contiguous range of each partition that follows the one before."""
    reached: dict[int, int] = {}
    for batch in batches:
        numbers = [partition_of(space, 4) for space in batch["space"].to_pylist()]
        for number, offset in zip(numbers, batch["offset"].to_pylist(), strict=True):
            assert offset == reached.get(number, 0)
            reached[number] = offset + 1
    assert_same(in_order(pa.concat_tables(batches)), expected)


def error_of(action: Callable[[], Any]) -> str:
    """Our own line, out of what Spark raises."""
    with pytest.raises(Exception) as caught:
        action()
    said = own_words(caught.value)
    assert said is not None, caught.value
    assert "\n" not in said
    return said


# -- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seal", [False, True], ids=["as written", "sealed"])
def test_a_batch_has_every_record_as_it_was(spark: SparkSession, journal_of: JournalOf, seal: bool) -> None:
    play = lively(300)
    play.plant_unknown("moved", x=1)
    data = journal_of(play, *several(), seal=seal, **SEGMENTS)
    assert_same(read(spark, data), rows_of(data))


def test_the_columns_are_those_of_the_journal(spark: SparkSession, journal_of: JournalOf) -> None:
    frame = spark.read.format("mew").load(str(journal_of()))
    assert frame.columns == COLUMNS
    assert [field.nullable for field in frame.schema] == [field.nullable for field in SCHEMA]
    types = dict(frame.dtypes)
    assert (types["ts"], types["opcode"], types["recipients"], types["data"]) == (
        "timestamp",
        "tinyint",
        "int",
        "binary",
    )


@pytest.mark.parametrize("records", [0, 1])
def test_small_journals(spark: SparkSession, journal_of: JournalOf, tmp_path: Path, records: int) -> None:
    data = journal_of(*[Play()] * records)
    assert read(spark, data).num_rows == records
    sink = Sink()
    run(spark, data, tmp_path / "checkpoint", sink)
    assert sum(batch.num_rows for batch in sink.batches.values()) == records


def test_the_journal_directory_itself_will_do(spark: SparkSession, journal_of: JournalOf) -> None:
    data = journal_of(*several())
    assert_same(read(spark, data / "journal"), rows_of(data))
    assert_same(read(spark, f"{data}/"), rows_of(data))


def test_a_large_segment_is_cut_so_that_every_core_has_work(spark: SparkSession, tmp_path: Path) -> None:
    data, count = tmp_path / "data", 300_000
    with opened(data, partitions=1) as journal:
        partition = journal.partitions[0]
        for number in range(1, count + 1):
            partition.append("demo", "e-1", Frame(number, START + number, None, "stream-1", "ann", number, 2, 1, b"x"))
            if number % 20_000 == 0:
                partition.flush()
        partition.roll()
        seal_segments(journal)
        assert len(journal.reader.segments(0)) == 2
    frame = spark.read.format("mew").load(str(data))
    parts = frame.groupBy(F.spark_partition_id()).agg(F.count("*"), F.max("offset") - F.min("offset") + 1).collect()
    assert len(parts) >= 3
    assert all(rows == width <= 131_072 for _, rows, width in parts)
    assert sum(rows for _, rows, _ in parts) == count


def test_after_one_call_any_session_knows_it(spark: SparkSession, journal_of: JournalOf) -> None:
    import mewstream.pipeline

    other = spark.newSession()
    data = journal_of(Play())
    mewstream.pipeline.register(other)
    mewstream.pipeline.register(other)
    assert other.read.format("mew").load(str(data)).count() == 1


# -- options --------------------------------------------------------------------------------------


def only(rows: pa.Table, column: str, *names: str) -> pa.Table:
    return rows.filter(pc.is_in(rows[column], pa.array(names, pa.string())))


@pytest.mark.parametrize(
    ("option", "names"),
    [
        ("demo", ["demo"]),
        ("demo, second,demo", ["demo", "second"]),
        ('["with, comma", "lobby"]', ["with, comma", "lobby"]),
        ("nobody", []),
    ],
)
def test_spaces_are_chosen(spark: SparkSession, journal_of: JournalOf, option: str, names: list[str]) -> None:
    data = journal_of(*several(), lively(60, space="with, comma"), seal=True, **SEGMENTS)
    assert_same(read(spark, data, space=option), only(rows_of(data), "space", *names))


def test_other_partitions_are_not_even_looked_at(spark: SparkSession, journal_of: JournalOf) -> None:
    data = journal_of(*several())
    expected = only(rows_of(data), "space", "demo")
    for number in (1, 2, 3):
        shutil.rmtree(data / f"journal/p{number}")
    assert_same(read(spark, data, space="demo"), expected)


def test_kinds_are_chosen(spark: SparkSession, journal_of: JournalOf) -> None:
    data = journal_of(*several())
    found = read(spark, data, kinds="frame,stream/data", space="other,lobby")
    assert_same(found, only(only(rows_of(data), "kind", "frame", "stream/data"), "space", "other", "lobby"))
    assert found.num_rows > 10


def test_a_batch_begins_where_it_is_told(spark: SparkSession, journal_of: JournalOf) -> None:
    data = journal_of(*several(), seal=True, **SEGMENTS)
    rows = rows_of(data)
    offsets, numbers = rows["offset"], rows["partition"]
    assert_same(read(spark, data, start="earliest"), rows)
    some = read(spark, data, start='{"0": 20, "2": 7}')
    first = pc.if_else(pc.equal(numbers, 0), 20, pc.if_else(pc.equal(numbers, 2), 7, 0))
    assert_same(some, rows.filter(pc.greater_equal(offsets, first)))
    identity = JournalReader(data / "journal").identity()
    whole = json.dumps({"journal": identity.id, "offsets": {"0": 3, "1": 4, "2": 5, "3": 6}})
    assert_same(read(spark, data, start=whole), rows.filter(pc.greater_equal(offsets, pc.add(numbers, 3))))


def test_a_batch_begins_at_a_time(spark: SparkSession, journal_of: JournalOf) -> None:
    data = journal_of(*several(), seal=True, **SEGMENTS)
    rows = rows_of(data)
    times = rows["ts"].cast(pa.int64())
    at = times[rows.num_rows // 2].as_py()
    assert_same(read(spark, data, start=rfc3339(at)), rows.filter(pc.greater_equal(times, at)))
    assert read(spark, data, start="2099-01-01T00:00:00Z").num_rows == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"spaces": "demo"}, "spaces is no option of the source mew: did you mean space?"),
        ({"wholly": "x"}, "expected one of path, space, kinds, start, maxRecordsPerTrigger, maxBytesPerTrigger"),
        ({"space": " , "}, "the option space is ' , ': expected names, separated by commas"),
        ({"kinds": "[1]"}, "the option kinds is '[1]': expected names, separated by commas"),
        ({"start": "yesterday"}, "the option start is 'yesterday': expected earliest, latest, a time such as"),
        ({"start": '{"0": -1}'}, "expected earliest, latest, a time such as"),
        ({"start": '{"9": 1}'}, "the option start names partition 9: the journal in "),
        ({"start": '{"journal": "x", "offsets": {}}'}, "is no position in a journal"),
        ({"start": "latest"}, "the option start is 'latest', and a batch ends there"),
        ({"maxRecordsPerTrigger": "5"}, "maxRecordsPerTrigger is for readStream: a batch has no triggers"),
        ({"maxBytesPerTrigger": "much"}, "the option maxBytesPerTrigger is 'much': expected a number above 0"),
        ({"maxRecordsPerTrigger": "0"}, "the option maxRecordsPerTrigger is '0': expected a number above 0"),
    ],
)
def test_a_wrong_option_is_one_line(
    spark: SparkSession, journal_of: JournalOf, options: dict[str, str], said: str
) -> None:
    data = journal_of(Play())
    assert said in error_of(lambda: read(spark, data, **options))


def test_no_directory_several_and_one_without_a_journal(spark: SparkSession, tmp_path: Path) -> None:
    assert "needs the directory of a journal" in error_of(lambda: spark.read.format("mew").load())
    assert f"there is no journal in {tmp_path}" in error_of(lambda: read(spark, tmp_path))
    assert "takes one journal" in error_of(lambda: spark.read.format("mew").load([str(tmp_path), "/x"]))


def test_another_schema_is_refused(spark: SparkSession, journal_of: JournalOf) -> None:
    data = journal_of(Play())
    frame = spark.read.format("mew").schema("space string").load(str(data))
    assert "leave out .schema()" in error_of(frame.count)


# -- file systems ---------------------------------------------------------------------------------


def test_a_uri_of_local_files(spark: SparkSession, journal_of: JournalOf) -> None:
    data = journal_of(*several())
    assert_same(read(spark, data.as_uri()), rows_of(data))


def test_object_storage(spark: SparkSession, journal_of: JournalOf, tmp_path: Path) -> None:
    """In batches and as a stream, by way of the S3 client of pyarrow."""
    plays = several()
    data = journal_of(*plays, seal=True, **SEGMENTS)
    with s3_server(tmp_path / "s3.log") as server:
        upload(server, data, data.name)
        where = quote(server.removeprefix("http://"), safe="")
        uri = f"s3://{KEY}:{SECRET}@{BUCKET}/{data.name}?scheme=http&region=us-east-1&endpoint_override={where}"
        assert_same(read(spark, uri), rows_of(data))
        sink = Sink()
        run(spark, uri, tmp_path / "checkpoint", sink, maxRecordsPerTrigger=150)
        assert len(sink.batches) >= 3
        assert_exactly_once(list(sink.batches.values()), rows_of(data))
        said = error_of(lambda: read(spark, uri.replace(data.name, "elsewhere")))
        assert said.startswith(f"there is no journal in s3://{BUCKET}/elsewhere: expected")
        assert SECRET not in said


@pytest.mark.parametrize("uri", ["nowhere://user:secret@host/data", "s3://user:secret@bucket/x?nonsense=1"])
def test_a_uri_that_cannot_be_resolved_is_one_line_without_its_keys(spark: SparkSession, uri: str) -> None:
    said = error_of(lambda: read(spark, uri))
    assert "Expected a directory, or a URI that pyarrow.fs can open" in said
    assert "secret" not in said


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_whatever_the_steps_everything_comes_once_and_in_order(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Many runs on one checkpoint, each with limits of its own, while the journal grows, is sealed and restarted."""
    chance = random.Random(seed)
    plays = several(900, seed)
    logs = [list(play.records) for play in plays]
    batches: list[pa.Table] = []
    done = 0
    while done < max(map(len, logs)):
        done += chance.randrange(20, 80)
        with opened(tmp_path / "data", **SEGMENTS) as journal:
            for play, log in zip(plays, logs, strict=True):
                play.records = log[:done]
            append(journal, *plays, per_batch=chance.randrange(1, 60))
            if chance.random() < 0.5:
                seal_segments(journal)
        limits: dict[str, Any] = {}
        if chance.random() < 0.7:
            limits["maxRecordsPerTrigger"] = chance.randrange(20, 200)
        if chance.random() < 0.5:
            limits["maxBytesPerTrigger"] = chance.randrange(20_000, 80_000)
        sink = Sink()
        run(spark, tmp_path / "data", tmp_path / "checkpoint", sink, **limits)
        most = limits.get("maxRecordsPerTrigger", sys.maxsize)
        assert all(batch.num_rows <= most for batch in sink.batches.values())
        batches += [sink.batches[number] for number in sorted(sink.batches)]
        assert_exactly_once(batches, rows_of(tmp_path / "data"))
    assert len(batches) > 5


def test_records_are_limited_exactly(spark: SparkSession, journal_of: JournalOf, tmp_path: Path) -> None:
    data = journal_of(*several(), seal=True, **SEGMENTS)
    total = rows_of(data).num_rows
    sink = Sink()
    run(spark, data, tmp_path / "checkpoint", sink, maxRecordsPerTrigger=90)
    sizes = [sink.batches[number].num_rows for number in sorted(sink.batches)]
    assert sizes == [90] * (total // 90) + ([total % 90] if total % 90 else [])


def test_bytes_are_limited(spark: SparkSession, tmp_path: Path) -> None:
    """Frames of 10,000 bytes, each a batch of its own: no more than six of them in 64 KiB."""
    play = Play(begin=True)
    stream_id = play.open("ann")
    for _ in range(30):
        play.frame("ann", stream_id, bytes(10_000))
    data = write_journal(tmp_path / "data", play, per_batch=1)
    sink = Sink()
    run(spark, data, tmp_path / "checkpoint", sink, maxBytesPerTrigger="64k")
    frames = [pc.sum(pc.equal(batch["record"], "frame")).as_py() for batch in sink.batches.values()]
    assert max(frames) <= 6
    assert sum(frames) == 30
    assert_exactly_once(list(sink.batches.values()), rows_of(data))


def test_available_now_ends_where_the_journal_ended_when_it_began(spark: SparkSession, tmp_path: Path) -> None:
    play = lively(300)
    later = lively(600)
    later.written = len(play.records)
    assert later.records[: later.written] == play.records
    with opened(tmp_path / "data") as journal:
        append(journal, play)
        before = rows_of(tmp_path / "data")
        sink = Sink(then=lambda number, rows: append(journal, later) and None)
        run(spark, tmp_path / "data", tmp_path / "checkpoint", sink, maxRecordsPerTrigger=100)
        assert_exactly_once(list(sink.batches.values()), before)
        run(spark, tmp_path / "data", tmp_path / "checkpoint", sink)
        assert_exactly_once(list(sink.batches.values()), rows_of(tmp_path / "data"))


def test_a_batch_that_failed_is_the_same_when_it_is_repeated(spark: SparkSession, tmp_path: Path) -> None:
    play = lively(500)
    log = list(play.records)
    play.records = log[:300]
    data = write_journal(tmp_path / "data", play, **SEGMENTS)
    seen: list[pa.Table] = []

    def fail_once(number: int, rows: pa.Table) -> None:
        if number == 1:
            seen.append(rows)
            if len(seen) == 1:
                raise RuntimeError("the sink is out of order")

    sink = Sink(then=fail_once)
    with pytest.raises(Exception, match="the sink is out of order"):
        run(spark, data, tmp_path / "checkpoint", sink, maxRecordsPerTrigger=100)
    play.records = log
    with opened(data, **SEGMENTS) as journal:
        append(journal, play)
        seal_segments(journal)
    run(spark, data, tmp_path / "checkpoint", sink, maxRecordsPerTrigger=37)
    assert_same(seen[1], seen[0])
    assert_exactly_once([sink.batches[number] for number in sorted(sink.batches)], rows_of(data))


def test_a_batch_is_contiguous_behind_its_filters(spark: SparkSession, journal_of: JournalOf, tmp_path: Path) -> None:
    data = journal_of(*several(800), **SEGMENTS)
    sink = Sink()
    query = run(spark, data, tmp_path / "checkpoint", sink, space="other", kinds="frame", maxRecordsPerTrigger=50)
    rows = rows_of(data)
    assert_same(in_order(sink.rows), only(only(rows, "space", "other"), "kind", "frame"))
    ends = [each["endOffset"]["offsets"] for each in progress(query)]
    # Both spaces of the partition count, and no other partition does.
    length = only(rows, "space", "demo", "other").num_rows
    assert ends[:2] == [{"0": 50}, {"0": 100}]
    assert ends[-1] == {"0": length}


def progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """What Spark reports of the source, batch by batch."""
    return [json.loads(each.json)["sources"][0] for each in query.recentProgress]


@pytest.mark.parametrize("start", ["latest", "time", "offsets"])
def test_a_stream_begins_where_it_is_told_and_only_once(spark: SparkSession, tmp_path: Path, start: str) -> None:
    play = lively(400)
    log = list(play.records)
    play.records = log[:200]
    data = write_journal(tmp_path / "data", play)
    times = rows_of(data)["ts"].cast(pa.int64()).to_pylist()
    first, option = {
        "latest": (200, "latest"),
        "time": (times.index(times[120]), rfc3339(times[120])),
        "offsets": (77, '{"0": 77}'),
    }[start]
    sink = Sink()
    run(spark, data, tmp_path / "checkpoint", sink, start=option)
    play.records = log
    with opened(data) as journal:
        append(journal, play)
    run(spark, data, tmp_path / "checkpoint", sink, start=option)
    assert sink.rows["offset"].to_pylist() == list(range(first, len(log)))


def test_progress_tells_how_far_the_journal_is_ahead(
    spark: SparkSession, journal_of: JournalOf, tmp_path: Path
) -> None:
    data = journal_of(lively(300))
    query = run(spark, data, tmp_path / "checkpoint", Sink(), maxRecordsPerTrigger=100)
    first, *_, last = progress(query)
    length = rows_of(data).num_rows
    assert first["endOffset"]["offsets"]["0"] == 100
    assert {each["latestOffset"]["offsets"]["0"] for each in (first, last)} == {length}
    assert list(first["endOffset"]) == ["journal", "offsets", "epochs"]
    assert first["endOffset"]["journal"] == JournalReader(data / "journal").identity().id


# -- a gateway beside it --------------------------------------------------------------------------


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, live_writer.__file__, str(tmp_path / "data"), "4000", "7"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_a_journal_that_is_written_sealed_and_pruned_meanwhile(
    spark: SparkSession, tmp_path: Path, writer: subprocess.Popen[str]
) -> None:
    root = tmp_path / "data/journal"
    reached = dict.fromkeys(range(4), 0)
    commit_consumer(root, "tests", reached)

    def commit(number: int, rows: pa.Table) -> None:
        for space, offset in zip(rows["space"].to_pylist(), rows["offset"].to_pylist(), strict=True):
            reached[partition_of(space, 4)] = offset + 1
        commit_consumer(root, "tests", reached)

    logs = live_writer.logs_of(4000, 7)
    total = sum(len(log.records) for log in logs)
    sink = Sink(then=commit)
    query = stream(spark, tmp_path / "data", tmp_path / "checkpoint", sink, now=False, maxRecordsPerTrigger=400)
    try:
        assert writer.stdin is not None
        print("go", file=writer.stdin, flush=True)
        while sum(reached.values()) < total:
            assert not query.awaitTermination(1)
        assert writer.wait(60) == 0
    finally:
        query.stop()
    identity = JournalReader(root).identity()
    assert sum(identity.pruned.values()) > total / 4
    assert len(sink.batches) > 5
    found = in_order(sink.rows)
    for log in logs:
        mine = only(found, "space", log.space)
        assert mine["seq"].to_pylist() == [record.seq for record in log.records]
        assert mine["ts"].cast(pa.int64()).to_pylist() == [record.ts for record in log.records]


def test_a_restarted_gateway_goes_on_in_the_same_journal(spark: SparkSession, tmp_path: Path) -> None:
    play, sink = lively(200), Sink()
    data = write_journal(tmp_path / "data", play)
    run(spark, data, tmp_path / "checkpoint", sink)
    before = JournalReader(data / "journal").identity()
    play.restart()
    play.join("ann")
    with opened(data) as journal:
        append(journal, play)
        assert journal.identity.epoch != before.epoch
    run(spark, data, tmp_path / "checkpoint", sink)
    assert len(set(sink.rows["epoch"].to_pylist())) >= 2
    assert_exactly_once(list(sink.batches.values()), rows_of(data))


# -- what is lost is an error ---------------------------------------------------------------------


@pytest.fixture
def consumed(spark: SparkSession, tmp_path: Path) -> tuple[Path, Play, Callable[[], Any]]:
    """A journal of which half was read, the play that goes on, and a run that would read the rest."""
    play = lively(1200)
    log = list(play.records)
    play.records = log[:600]
    data = write_journal(tmp_path / "data", play, **SEGMENTS)
    run(spark, data, tmp_path / "checkpoint", Sink())
    play.records = log
    return data, play, lambda: run(spark, data, tmp_path / "checkpoint", Sink())


def test_a_journal_that_was_pruned_past_the_position(consumed: tuple[Path, Play, Callable[[], Any]]) -> None:
    data, play, go_on = consumed
    with opened(data, **SEGMENTS) as journal:
        append(journal, play)
        begin = prune_before(journal, 0, 900)
        assert begin > 600
    said = error_of(go_on)
    assert f"records 600 to {begin - 1} of partition 0 were pruned before they were read" in said
    assert "new checkpoint location" in said


def test_pruning_up_to_the_position_loses_nothing(
    spark: SparkSession, tmp_path: Path, consumed: tuple[Path, Play, Callable[[], Any]]
) -> None:
    data, play, _ = consumed
    with opened(data, **SEGMENTS) as journal:
        journal.partitions[0].roll()
        append(journal, play)
        assert prune_before(journal, 0, 600) == 600
    sink = Sink()
    run(spark, data, tmp_path / "checkpoint", sink)
    assert sink.rows["offset"].to_pylist() == list(range(600, len(play.records)))
    assert read(spark, data)["offset"].to_pylist() == list(range(600, len(play.records)))


def test_a_journal_that_was_made_anew(consumed: tuple[Path, Play, Callable[[], Any]]) -> None:
    data, play, go_on = consumed
    old = JournalReader(data / "journal").identity().id
    shutil.rmtree(data)
    play.written = 0
    write_journal(data, play)
    said = error_of(go_on)
    assert f"holds another journal ({JournalReader(data / 'journal').identity().id})" in said
    assert old in said
    assert "new checkpoint location" in said


def test_a_journal_that_lost_its_end(consumed: tuple[Path, Play, Callable[[], Any]]) -> None:
    data, _, go_on = consumed
    index = sorted((data / "journal/p0").glob("*.index"))[-1]
    index.write_bytes(index.read_bytes()[: -2 * ENTRY_BYTES])
    said = error_of(go_on)
    assert "partition 0 ends at offset 590, and more was read of it, up to 600" in said


def test_a_journal_that_lost_its_end_and_went_on_differently(consumed: tuple[Path, Play, Callable[[], Any]]) -> None:
    """As after a loss of power: other records have the offsets that were read."""
    data, play, go_on = consumed
    index = sorted((data / "journal/p0").glob("*.index"))[-1]
    index.write_bytes(index.read_bytes()[: -2 * ENTRY_BYTES])
    play.records, play.written = play.records[:590], 590
    play.restart()
    while len(play.records) < 900:
        play.step()
    with opened(data, **SEGMENTS) as journal:
        append(journal, play)
    said = error_of(go_on)
    assert "record 599 of partition 0 was of run " in said
    assert "lost its end" in said


def test_a_query_cannot_change_its_spaces(spark: SparkSession, journal_of: JournalOf, tmp_path: Path) -> None:
    data = journal_of(*several())
    run(spark, data, tmp_path / "checkpoint", Sink(), space="demo")
    said = error_of(lambda: run(spark, data, tmp_path / "checkpoint", Sink(), space="demo,lobby"))
    assert "the position is of partitions [0], and the option space asks for [0, 3]" in said


def test_a_damaged_batch_is_named_with_segment_and_offset(spark: SparkSession, journal_of: JournalOf) -> None:
    data = journal_of(lively(300), **SEGMENTS)
    [first, *_] = JournalReader(data / "journal").segments(0)
    entry = first.batches[3]
    file = Path(first.data_path)
    content = bytearray(file.read_bytes())
    content[entry.position + entry.length // 2] ^= 1
    file.write_bytes(content)
    said = error_of(lambda: read(spark, data))
    assert said == f"{file}: offset {entry.first_offset}: the checksum of this batch is wrong"


# -- ranges instead of records --------------------------------------------------------------------


# -- without a session ----------------------------------------------------------------------------


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_everything_travels(journal_of: JournalOf) -> None:
    """Each part goes through pickle, as on its way from the driver to a worker elsewhere."""
    data = journal_of(*several(), seal=True, **SEGMENTS)
    made = pickled(MewDataSource({"path": str(data), "space": "demo,lobby", "kinds": "frame"}))
    rows: list[pa.RecordBatch] = []
    reader = pickled(made.reader(made.schema()))
    for piece in reader.partitions():
        rows += pickled(reader).read(pickled(piece))
    expected = only(only(rows_of(data), "space", "demo", "lobby"), "kind", "frame")
    assert_same(in_order(pa.Table.from_batches(rows)), expected)
    stream_reader = pickled(made.streamReader(made.schema()))
    start = stream_reader.initialOffset()
    end = stream_reader.latestOffset(start, ReadAllAvailable())
    rows = [batch for piece in stream_reader.partitions(start, end) for batch in pickled(stream_reader).read(piece)]
    assert sum(batch.num_rows for batch in rows) == expected.num_rows > 10


def test_a_segment_that_is_sealed_between_planning_and_reading(tmp_path: Path) -> None:
    with opened(tmp_path / "data", **SEGMENTS) as journal:
        append(journal, *several())
        reader = planned(tmp_path / "data")
        pieces = reader.partitions()
        assert seal_segments(journal) > 2
        rows = [batch for piece in pieces for batch in reader.read(piece)]
        assert_same(in_order(pa.Table.from_batches(rows)), rows_of(tmp_path / "data"))


def test_a_segment_that_is_pruned_between_planning_and_reading(tmp_path: Path) -> None:
    with opened(tmp_path / "data", **SEGMENTS) as journal:
        append(journal, lively(600))
        reader = planned(tmp_path / "data")
        [piece] = reader.partitions()
        begin = prune_before(journal, 0, 500)
        with pytest.raises(PositionGone, match=f"partition 0: offset 0 was pruned, the journal begins at {begin}"):
            list(reader.read(piece))


def test_a_worker_that_finds_another_journal_there(tmp_path: Path) -> None:
    data = write_journal(tmp_path / "data", lively(100))
    reader = planned(data)
    [piece] = reader.partitions()
    shutil.rmtree(data)
    write_journal(data, lively(100))
    with pytest.raises(PositionGone, match=r"is not the same journal in the worker on .*: it must be on storage that"):
        list(reader.read(piece))


def planned(data: Path) -> DataSourceReader:
    made = MewDataSource({"path": str(data)})
    return made.reader(made.schema())


def test_what_is_handed_to_spark_is_neither_small_nor_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_work, "OUTPUT_ROWS", 100)
    monkeypatch.setattr(arrow_work, "OUTPUT_BYTES", 50_000)
    play = lively(1000)
    stream_id = play.open("ann")
    for _ in range(20):
        play.frame("ann", stream_id, bytes(20_000))
    data = write_journal(tmp_path / "data", play, per_batch=3)
    reader = planned(data)
    batches = [batch for piece in reader.partitions() for batch in reader.read(piece)]
    assert_same(in_order(pa.Table.from_batches(batches)), rows_of(data))
    assert all(batch.num_rows <= 100 and batch.nbytes <= 3 * 50_000 for batch in batches)
    assert len(batches) < len(play.records) / 20


def test_a_relative_path_is_made_absolute_for_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_options({"path": "data"}).path == str(tmp_path / "data")
    assert parse_options({"PATH": "s3://bucket/data", "MaxBytesPerTrigger": "2G"}).max_bytes == 2 << 30


def test_importing_the_package_imports_no_spark() -> None:
    script = "import sys, mewstream.pipeline; print(sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
