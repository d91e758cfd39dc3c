"""How much goes into one micro-batch, and how it is cut into pieces of work."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping

from mewstream.pipeline.ranges import Span

#: What one task reads at most, give or take a batch; and what is not divided further.
LARGE_SLICE_ROWS = 524_288
LARGE_SLICE_BYTES = 64 << 20
SMALL_SLICE_ROWS = 65_536
SMALL_SLICE_BYTES = 8 << 20
_FIRST_LOOK_ROWS = 65_536

Range = tuple[int, int]
"""Offsets of a partition: from, up to (not included)."""
FindSpans = Callable[[int, int, int], list[Span]]


def admit(
    available: Mapping[int, Range], max_records: int | None, max_bytes: int | None, spans: FindSpans
) -> dict[int, int]:
    """Up to where each partition may go. Records are counted exactly; bytes are those in the files, and within a batch
    its records are taken to be of one size. Whatever the limits, something goes on where there is something."""
    if max_records is None and max_bytes is None:
        return {number: end for number, (_, end) in available.items()}
    records_left = sys.maxsize if max_records is None else max_records
    bytes_left = sys.maxsize if max_bytes is None else max_bytes
    ends = {number: start for number, (start, _) in available.items()}
    # The shortest first, each an equal share of what is left: none starves, and the longest gets what others leave.
    order = sorted(available, key=lambda number: available[number][1] - available[number][0])
    for place, number in enumerate(order):
        start, end = available[number]
        sharing = len(order) - place
        end = min(end, start + records_left // sharing)
        if max_bytes is not None:
            end, used = _within_bytes(number, start, end, bytes_left // sharing, spans)
            bytes_left -= used
        records_left -= end - start
        ends[number] = end
    longest = order[-1] if order else None
    if longest is not None and all(ends[number] == available[number][0] for number in order):
        start, end = available[longest]
        ends[longest] = min(end, start + 1)
    return ends


def _within_bytes(number: int, start: int, end: int, budget: int, spans: FindSpans) -> tuple[int, int]:
    """How far a budget of bytes reaches, and what of it is used. What lies beyond is not looked at: it may be long."""
    used, look = 0, _FIRST_LOOK_ROWS
    while start < end:
        until = min(end, start + look)
        for span in spans(number, start, until):
            if used + span.bytes > budget:
                rows = span.rows * (budget - used) // span.bytes
                return span.start + rows, used + span.bytes * rows // span.rows
            used += span.bytes
        start, look = until, look * 2
    return end, used


def cut(ranges: Mapping[int, Range], spans: FindSpans) -> Iterator[tuple[int, int, int]]:
    """Neighbouring batches as pieces of work, (partition, from, up to): several for each core where there is enough,
    none too small, for every task costs something, none too large, and those of a partition alike: what is left over
    in the end, one core does alone."""
    found = {number: spans(number, *offsets) for number, offsets in ranges.items()}
    pieces = 4 * (os.cpu_count() or 1)
    total_rows = sum(span.rows for each in found.values() for span in each)
    total_bytes = sum(span.bytes for each in found.values() for span in each)
    most_rows = min(max(total_rows // pieces, SMALL_SLICE_ROWS), LARGE_SLICE_ROWS)
    most_bytes = min(max(total_bytes // pieces, SMALL_SLICE_BYTES), LARGE_SLICE_BYTES)
    for number, each in found.items():
        shares = [max(span.rows / most_rows, span.bytes / most_bytes) for span in each]
        piece = sum(shares) / max(math.ceil(sum(shares)), 1)
        first, until, done = 0, piece, 0.0
        for place, share in enumerate(shares):
            if place > first and done + share / 2 > until:
                yield number, each[first].start, each[place].start
                first, until = place, max(until, done) + piece
            done += share
        if each:
            yield number, each[first].start, each[-1].end
