"""What the commands that read a journal have in common."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import pyarrow.compute as pc

from mewstream.cli.output import complain, printable
from mewstream.journal.erase import ERASED
from mewstream.journal.export import Scan, Selection
from mewstream.journal.local import read_snapshot, snapshot_files
from mewstream.journal.reader import JournalReader
from mewstream.protocol import records

#: How many names a message lists.
_NAMED = 20

data_option = click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The data directory of the gateway; the journal is in its directory 'journal'.",
)


def open_reader(data: Path) -> JournalReader:
    """The reader of the journal in a data directory. Raises JournalError if there is none."""
    reader = JournalReader(data / "journal")
    reader.identity()
    return reader


def record_names() -> list[str]:
    """The names of all records that a journal may contain."""
    return sorted({ERASED, *(str(each.__struct_config__.tag) for each in records.AnyRecord.__args__)})


def spaces_in(reader: JournalReader) -> list[str]:
    """The spaces of a journal: those in the newest snapshot of each partition, and in the records after it."""
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
