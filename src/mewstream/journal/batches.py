"""Regrouping record batches: small ones are put together and large ones are cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def gathered(batches: Iterable[pa.RecordBatch], *, most_rows: int, most_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield the same rows in the same order, in lists of batches. A list has at most ``most_rows`` rows and about
    ``most_bytes`` bytes."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        own_size = _size(batch, most_bytes)
        step = max(1, min(most_rows, batch.num_rows * most_bytes // own_size))
        for part in _cut(batch, step):
            part_size = own_size * part.num_rows // batch.num_rows
            if waiting and (rows + part.num_rows > most_rows or size + part_size > most_bytes):
                yield waiting
                waiting, rows, size = [], 0, 0
            waiting.append(part)
            rows, size = rows + part.num_rows, size + part_size
    if waiting:
        yield waiting


def _cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows <= rows:
        yield batch
    else:
        yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _size(batch: pa.RecordBatch, enough: int) -> int:
    """Return the bytes of a batch: the exact number takes long to find, so it is only computed for a large batch."""
    rough = int(batch.get_total_buffer_size())
    return max(1, rough if rough <= enough else int(batch.nbytes))
