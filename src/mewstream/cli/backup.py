"""``mewstream backup`` and ``mewstream restore``: copies of the data directory of a gateway."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mewstream.cli.journal_options import data_option
from mewstream.cli.output import quietly
from mewstream.cli.status_line import megabytes, progress
from mewstream.extras import require_journal


@click.command()
@data_option
@click.option(
    "--to", required=True, type=click.Path(path_type=Path, file_okay=False), help="A new directory for the copy."
)
@quietly
def backup(data: Path, to: Path) -> None:
    """Copy the journal and the tokens of invited participants, also while the gateway runs.

    The copy has every record that was committed when its partition was reached, and is whole: it is a
    data directory that a gateway can be started with. The directory appears when it is complete. The
    configuration and its tokens are not part of it.

    \b
    Examples:
      mewstream backup --data ./data --to /backups/$(date +%F)
      mewstream backup --data ./data --to ./copy && mewstream journal verify --data ./copy
    """
    require_journal()
    from mewstream.journal.backup import copy_data

    with progress("copying", _size(data)) as advance:
        copied = copy_data(data, to, advance=advance)
    click.echo(f"{to}: {copied.records} records in {copied.segments} segments, {megabytes(copied.bytes)}")


@click.command()
@click.option(
    "--from",
    "source",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="What `mewstream backup` has made.",
)
@data_option
@quietly
def restore(source: Path, data: Path) -> None:
    """Put a backup in the place of a data directory.

    The backup is verified first. The data directory must be empty or not exist: move away what is
    there. Start the gateway afterwards.

    \b
    Examples:
      mewstream restore --from /backups/2026-11-18 --data ./data
    """
    require_journal()
    from mewstream.journal.backup import copy_data
    from mewstream.journal.verify import Verification

    with progress("verifying", _size(source)) as advance:
        problems = [each for each in Verification(source / "journal", advance=advance).run() if not each.is_note]
    if problems:
        for problem in problems:
            click.echo(str(problem))
        click.echo(f"{source} is damaged and was not restored: use another backup", err=True)
        sys.exit(1)
    with progress("copying", _size(source)) as advance:
        copied = copy_data(source, data, advance=advance)
    click.echo(f"{data}: {copied.records} records in {copied.segments} segments, {megabytes(copied.bytes)}")


def _size(data: Path) -> int:
    return sum(file.stat().st_size for file in (data / "journal").glob("p*/*.arrow"))
