"""What the commands of ``mewstream journal`` share."""

from __future__ import annotations

from pathlib import Path

import click

from mewstream.journal.reader import JournalReader

data_option = click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The data directory of the gateway; the journal is in its directory 'journal'.",
)


def open_reader(data: Path) -> JournalReader:
    """The journal of a data directory, or an error that says that there is none."""
    reader = JournalReader(data / "journal")
    reader.identity()
    return reader
