"""Reading a journal: what the commands have in common that do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from mewstream.cli.output import complain, printable
from mewstream.journal.erase import ERASED, refuse_damaged
from mewstream.journal.errors import JournalInUse
from mewstream.journal.export import Scan, Selection
from mewstream.journal.local import LocalJournal, read_snapshot, snapshot_files
from mewstream.journal.reader import JournalReader

#: How many names a message lists.
_NAMED = 20


def open_reader(data: Path) -> JournalReader:
    """Return the reader of the journal in a data directory. Raises JournalError if there is none."""
    reader = JournalReader(data / "journal")
    reader.identity()
    return reader


@contextmanager
def locked_journal(data: Path, reader: JournalReader, verb: str) -> Iterator[LocalJournal]:
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


def spaces_in(reader: JournalReader) -> list[str]:
    """Return the spaces of a journal: those in the newest snapshot of each partition, and in the records after it."""
    identity = reader.identity()
    found: set[str] = set()
    for number in range(identity.partitions):
        start = 0
        for file in reversed(snapshot_files(Path(reader.directory(number)))):
            try:
                start, states = read_snapshot(file, identity.id)
            except (OSError, ValueError):
                continue  # without a usable snapshot, all records are read
            found.update(states)
            break
        for batch in reader.batches(number, start):
            kept = batch.rows.filter(pc.not_equal(batch.rows.column("record"), ERASED))
            found.update(pc.unique(kept.column("space")).to_pylist())
    return sorted(found)


def report_unknown_names(
    reader: JournalReader,
    *,
    spaces: tuple[str, ...],
    streams: tuple[str, ...],
    kinds: tuple[str, ...],
    senders: tuple[str, ...],
    **others: Any,
) -> None:
    """Print to stderr which of these names do not occur in the journal, and which do. Used when nothing was found.

    This is not an error, because a space, a stream or a sender may appear later."""
    asked = {"space": spaces, "stream_id": streams, "kind": kinds, "sender": senders}
    asked = {column: names for column, names in asked.items() if names}
    known: dict[str, set[str]] = {column: set() for column in asked}
    if not asked:
        return
    for chosen in Scan(reader, Selection()).read():
        for column, had in known.items():
            had.update(filter(None, pc.unique(chosen.batch.column(column)).to_pylist()))
    for column, names in asked.items():
        had = known[column]
        for name in names:
            is_known = any(each.startswith(name[:-1]) for each in had) if name.endswith("*") else name in had
            if not is_known:
                what = column.removesuffix("_id")
                complain(f"there is no record of the {what} {printable(name)!r}: there are {listed(had)}")


def listed(names: Iterable[str]) -> str:
    found = sorted(map(printable, names))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return (", ".join(found[:_NAMED]) or "none") + more
