"""Options of the commands that read a journal. They need nothing that only the extra ``gateway`` has."""

from __future__ import annotations

from pathlib import Path

import click

from mewstream.protocol import records

data_option = click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The data directory of the gateway; the journal is in its directory 'journal'.",
)


def record_names() -> list[str]:
    """Return the names of all records that a journal may contain."""
    # "erased" is the tombstone of any of them: mewstream.journal.erase.
    return sorted({"erased", *(str(each.__struct_config__.tag) for each in records.AnyRecord.__args__)})
