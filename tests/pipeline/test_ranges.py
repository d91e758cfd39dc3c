"""Ranges of offsets, read while the journal changes; and how they are cut into batches and pieces. Without Spark."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from journals import append, lively, opened, prune_before, rows_of, seal_segments, write_journal
from pyarrow import fs

from mewstream.journal.errors import CorruptJournal, PositionGone
from mewstream.journal.reader import JournalReader
from mewstream.journal.schema import SCHEMA
from mewstream.journal.segments import ENTRY_BYTES
from mewstream.pipeline import admission, ranges
from mewstream.pipeline.admission import admit, cut
from mewstream.pipeline.ranges import RangeReader, Span

SMALL = {"partitions": 1, "segment_bytes": 20_000}


def reader_of(data: Path) -> RangeReader:
    return RangeReader(fs.LocalFileSystem(), str(data / "journal"))


def table(reader: RangeReader, start: int, end: int) -> pa.Table:
    return pa.Table.from_batches(reader.rows(0, start, end), SCHEMA)


def expected(data: Path) -> pa.Table:
    return rows_of(data).drop_columns("partition")


def files_of(data: Path) -> list[str]:
    return sorted(file.name for file in (data / "journal/p0").iterdir())


# -- any range ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seal", [False, True], ids=["as written", "sealed"])
@pytest.mark.parametrize("window", [1, 5_000, ranges.WINDOW_BYTES])
def test_any_range_is_exact(
    journal_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, seal: bool, window: int
) -> None:
    monkeypatch.setattr(ranges, "WINDOW_BYTES", window)
    data = journal_of(lively(1500), seal=seal, **SMALL)
    reader, whole = reader_of(data), expected(data)
    assert reader.bounds(0) == (0, whole.num_rows)
    chance = random.Random(window)
    for _ in range(60):
        start = chance.randrange(whole.num_rows)
        end = chance.randrange(start, whole.num_rows + 1)
        assert table(reader, start, end).equals(whole.slice(start, end - start))
        spans = reader.spans(0, start, end)
        assert [row for span in spans for row in range(span.start, span.end)] == list(range(start, end))
        assert reader.epoch_at(0, start) == whole["epoch"][start].as_py()


def test_spans_tell_the_bytes_in_the_files(journal_of: Callable[..., Path]) -> None:
    data = journal_of(lively(300), **SMALL)
    segments = JournalReader(data / "journal").segments(0)
    [_, end] = reader_of(data).bounds(0)
    spans = reader_of(data).spans(0, 0, end)
    assert sum(span.bytes for span in spans) == sum(entry.length for each in segments for entry in each.batches)
    first = spans[0]
    [half] = reader_of(data).spans(0, 1, 3)
    assert half == Span(1, 3, -(-first.bytes * 2 // first.rows))


def test_only_the_indexes_of_a_range_are_read(journal_of: Callable[..., Path]) -> None:
    data = journal_of(lively(1500), seal=True, **SMALL)
    whole, reader = expected(data), reader_of(data)
    segments = JournalReader(data / "journal").segments(0)
    assert len(segments) > 10
    wanted = segments[5]
    for segment in segments:
        if segment not in (wanted, segments[-1]):
            Path(segment.data_path).with_suffix(".index").write_bytes(b"\xff" * ENTRY_BYTES)
    first, end = wanted.name.first_offset, wanted.next_offset
    assert table(reader, first, end).equals(whole.slice(first, end - first))
    assert reader.bounds(0) == (0, whole.num_rows)
    with pytest.raises(CorruptJournal, match="entry 0 of the index has a wrong checksum"):
        table(reader, first, end + 1)


@pytest.mark.parametrize("seal", [False, True], ids=["as written", "sealed"])
def test_an_offset_is_found_by_time(journal_of: Callable[..., Path], seal: bool) -> None:
    data = journal_of(lively(800), seal=seal, **SMALL)
    reader = reader_of(data)
    times = expected(data)["ts"].cast(pa.int64()).to_pylist()
    chance = random.Random(1)
    for micros in [0, times[0], *chance.sample(times, 40), times[-1], times[-1] + 1]:
        found = next((place for place, ts in enumerate(times) if ts >= micros), len(times))
        assert reader.offset_at(0, micros) == found


def test_a_journal_in_which_nothing_is_yet(tmp_path: Path) -> None:
    reader = reader_of(write_journal(tmp_path / "data"))
    assert reader.bounds(3) == (0, 0)
    assert reader.spans(3, 0, 0) == []
    assert list(reader.rows(3, 0, 0)) == []
    assert reader.offset_at(3, 0) == 0


# -- while it changes -----------------------------------------------------------------------------


def test_a_segment_that_is_sealed_between_two_batches_is_read_on(tmp_path: Path) -> None:
    play = lively(600)
    with opened(tmp_path / "data", **SMALL) as journal:
        append(journal, play)
        reader, whole = reader_of(tmp_path / "data"), expected(tmp_path / "data")
        rows = reader.rows(0, 0, whole.num_rows)
        got = [next(rows)]
        assert seal_segments(journal) > 3
        assert "00000000000000000000.index" not in files_of(tmp_path / "data")
        got += rows
        assert pa.Table.from_batches(got, SCHEMA).equals(whole)


def test_what_is_pruned_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    with opened(tmp_path / "data", **SMALL) as journal:
        append(journal, lively(600))
        reader = reader_of(tmp_path / "data")
        end = reader.bounds(0)[1]
        rows = reader.rows(0, 0, end)
        next(rows)
        begin = prune_before(journal, 0, end)
        assert begin > 200
        with pytest.raises(PositionGone, match=f"was pruned, the journal begins at {begin}"):
            list(rows)
        assert reader.bounds(0) == (begin, end)
        with pytest.raises(PositionGone):
            reader.spans(0, begin - 1, end)
        assert table(reader, begin, end).num_rows == end - begin


def test_what_is_being_written_is_not_there_yet(tmp_path: Path) -> None:
    with opened(tmp_path / "data", **SMALL) as journal:
        append(journal, lively(100))
        reader, whole = reader_of(tmp_path / "data"), expected(tmp_path / "data")
        index = sorted((tmp_path / "data/journal/p0").glob("*.index"))[-1]
        content = index.read_bytes()
        for tail in (content[:ENTRY_BYTES][:20], bytes(ENTRY_BYTES), bytes(ENTRY_BYTES + 7)):
            index.write_bytes(content + tail)
            assert reader.bounds(0) == (0, whole.num_rows)
            assert table(reader, 0, whole.num_rows).equals(whole)
        index.write_bytes(content)


def test_a_lost_segment_and_a_damaged_batch_are_never_passed_over(journal_of: Callable[..., Path]) -> None:
    data = journal_of(lively(600), **SMALL)
    segments = JournalReader(data / "journal").segments(0)
    end = segments[-1].next_offset
    damaged = Path(segments[1].data_path)
    content = bytearray(damaged.read_bytes())
    content[segments[1].batches[0].position + 40] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(CorruptJournal, match="checksum of this batch is wrong"):
        table(reader_of(data), 0, end)
    damaged.unlink()
    damaged.with_suffix(".index").unlink()
    with pytest.raises(CorruptJournal, match=f"records {segments[1].name.first_offset} to .* are missing"):
        table(reader_of(data), 0, end)
    shutil.rmtree(data / "journal/p0")
    with pytest.raises(CorruptJournal, match="every segment is missing"):
        reader_of(data).bounds(0)


# -- how much, and in which pieces ----------------------------------------------------------------


def spans_of(rows_per_batch: int, row_bytes: int) -> Callable[[int, int, int], list[Span]]:
    def spans(number: int, start: int, end: int) -> list[Span]:
        edges = sorted({start, end, *range(start - start % rows_per_batch + rows_per_batch, end, rows_per_batch)})
        return [Span(a, b, (b - a) * row_bytes) for a, b in itertools.pairwise(edges) if b > a]

    return spans


def test_without_limits_everything_is_admitted() -> None:
    assert admit({0: (5, 9), 1: (0, 0)}, None, None, spans_of(4, 1)) == {0: 9, 1: 0}


@pytest.mark.parametrize("seed", range(5))
def test_a_limit_of_records_is_kept_and_used_up(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        available = {}
        for number in range(chance.randrange(1, 6)):
            start = chance.randrange(100)
            available[number] = (start, start + chance.choice([0, 1, 5, 1000]))
        limit = chance.randrange(1, 1500)
        ends = admit(available, limit, None, spans_of(7, 1))
        total = sum(end - start for start, end in available.values())
        assert sum(ends[number] - start for number, (start, _) in available.items()) == min(limit, total)
        assert all(start <= ends[number] <= end for number, (start, end) in available.items())


def test_no_partition_waits_for_the_others() -> None:
    assert admit({0: (0, 1_000_000), 1: (0, 3), 2: (0, 500)}, 30, None, spans_of(100, 1)) == {0: 14, 1: 3, 2: 13}


@pytest.mark.parametrize("row_bytes", [1, 10, 1000])
def test_a_limit_of_bytes_is_kept(row_bytes: int) -> None:
    available = {0: (0, 100_000), 1: (50, 250_000), 2: (7, 7)}
    ends = admit(available, None, 64_000, spans_of(977, row_bytes))
    admitted = sum(ends[number] - start for number, (start, _) in available.items())
    assert 0.9 * 64_000 <= admitted * row_bytes <= 64_000
    assert ends[0] > 0
    assert ends[1] > 50


def test_both_limits_hold_together() -> None:
    assert admit({0: (0, 1000)}, 10, 1_000_000, spans_of(100, 5)) == {0: 10}
    assert admit({0: (0, 1000)}, 900, 50, spans_of(100, 5)) == {0: 10}


def test_one_record_goes_on_even_where_it_is_larger_than_the_limit() -> None:
    assert admit({0: (0, 2), 1: (0, 90)}, None, 10, spans_of(1, 5_000)) == {0: 0, 1: 1}
    assert admit({0: (3, 3)}, None, 10, spans_of(1, 5_000)) == {0: 3}


def test_pieces_cover_everything_once_and_end_at_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission.os, "cpu_count", lambda: 2)
    pieces = list(cut({0: (10, 4_000_000), 1: (5, 6), 2: (7, 7)}, spans_of(65_536, 40)))
    assert [piece for piece in pieces if piece[0] != 0] == [(1, 5, 6)]
    mine = [piece[1:] for piece in pieces if piece[0] == 0]
    assert mine[0][0] == 10
    assert mine[-1][1] == 4_000_000
    assert all(before[1] == after[0] and after[0] % 65_536 == 0 for before, after in itertools.pairwise(mine))
    assert 8 <= len(mine) <= 12
    assert max(end - start for start, end in mine) <= admission.LARGE_SLICE_ROWS + 65_536


def test_pieces_of_a_partition_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission.os, "cpu_count", lambda: 2)
    spans = spans_of(2_000, 40)
    for rows in (300_000, 800_000, 1_000_000, 5_000_000):
        pieces = list(cut({0: (0, rows), 1: (0, rows)}, spans))
        sizes = [end - start for _, start, end in pieces]
        assert len(sizes) >= 4
        assert max(sizes) - min(sizes) <= 2 * 2_000, (rows, sizes)


def test_a_piece_after_a_huge_batch_is_not_crumbled() -> None:
    small = [Span(1 + 10 * number, 11 + 10 * number, 1_000) for number in range(200)]
    pieces = list(cut({0: (0, 2_001)}, lambda *_: [Span(0, 1, 6 * admission.LARGE_SLICE_BYTES), *small]))
    assert pieces == [(0, 0, 1), (0, 1, 2_001)]


def test_little_work_is_not_cut_and_large_records_make_small_pieces() -> None:
    assert list(cut({0: (0, 1000)}, spans_of(10, 100))) == [(0, 0, 1000)]
    pieces = list(cut({0: (0, 1000)}, spans_of(10, 1 << 20)))
    assert len(pieces) >= 1000 * (1 << 20) // admission.LARGE_SLICE_BYTES
