"""``mewstream journal``: look at a journal, check it, and keep it small."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mewstream.cli.journal_options import data_option
from mewstream.cli.journal_records import cat, export
from mewstream.cli.output import quietly
from mewstream.cli.status_line import progress
from mewstream.cli.values import size_in_bytes, time_span
from mewstream.extras import require_journal


@click.group()
def journal() -> None:
    """Look at the journal of a gateway, check it, export it, and keep it small.

    ls, cat, export and verify may be used while the gateway runs; prune and erase may not.
    """


@journal.command()
@data_option
@quietly
def ls(data: Path) -> None:
    """List segments, spaces, snapshots and consumers.

    Everything is read once, to count the records of each space. A batch that cannot be read is
    named on stderr, and the exit code is 1.

    \b
    Examples:
      mewstream journal ls --data ./data
      mewstream journal ls --data ./data | grep demo
    """
    require_journal()
    from mewstream.cli.journal_listing import print_listing

    print_listing(data)


@journal.command()
@data_option
@quietly
def verify(data: Path) -> None:
    """Check everything, and tell every problem: one line each.

    Checksums; that seq is gap-free and time never runs back within each space; that index and data
    agree; missing and repeated segments; snapshots and consumers. What a crash may leave, and the
    next start mends by itself, is a note on stderr and no problem.

    Exit code 0: the journal is sound. 1: it is not.

    \b
    Examples:
      mewstream journal verify --data ./data
      mewstream journal verify --data ./data > problems.txt || mail -s 'journal' admin < problems.txt
    """
    require_journal()
    from mewstream.journal.verify import Verification

    found = 0
    root = data / "journal"
    with progress("verifying", sum(file.stat().st_size for file in root.glob("p*/*.arrow"))) as advance:
        verification = Verification(root, advance=advance)
        for problem in verification.run():
            if problem.is_note:
                click.echo(f"note: {problem}", err=True)
                continue
            found += 1
            click.echo(str(problem))
    what = (
        f"{verification.records} records of {len(verification.spaces)} spaces in {verification.segments} segments "
        f"of {verification.partitions} partitions, {verification.snapshots} snapshots"
    )
    if verification.erased:
        what += f"; {verification.erased} records are erased"
    click.echo(f"{f'{found} problems' if found != 1 else '1 problem'}: {what}" if found else f"sound: {what}")
    if found:
        sys.exit(1)


@journal.command()
@data_option
@click.option(
    "--max-age", metavar="AGE", callback=time_span(needs_unit=True), help="Remove what is older: 12h, 7d, 2w."
)
@click.option(
    "--max-bytes",
    metavar="SIZE",
    callback=size_in_bytes(),
    help="Remove the oldest until so much is left: 500MB, 10GiB.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would go. May be used while the gateway runs.")
@quietly
def prune(data: Path, max_age: float | None, max_bytes: int | None, dry_run: bool) -> None:
    """Remove old segments.

    Whole segments only, the oldest first; never the last one of a partition, never what the next
    start needs, and never what a consumer has not read (up to a cap). A running gateway prunes by
    itself, see gateway.journal.retention in space.yaml; this refuses to do it beside one.

    \b
    Examples:
      mewstream journal prune --data ./data --max-age 7d --dry-run
      mewstream journal prune --data ./data --max-age 7d --max-bytes 10GB
    """
    if not max_age and not max_bytes:
        raise click.UsageError("say what may go: --max-age, --max-bytes, or both")
    require_journal()
    from mewstream.cli.journal_pruning import prune_journal
    from mewstream.journal.retention import Retention

    prune_journal(data, Retention(max_age=max_age or 0.0, max_bytes=max_bytes or 0), dry_run=dry_run)


@journal.command("erase")
@data_option
@click.option("--space", required=True, help="The space whose records are erased.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@quietly
def erase_space(data: Path, space: str, yes: bool) -> None:
    """Erase what was said and done in a space. This cannot be undone.

    Its records become tombstones, which keep nothing but offset, seq, epoch and time, and a hash in
    place of the space, so that the range stays marked as erased. Its state leaves the snapshots, the
    tokens of its invited participants are removed. If the space is served again it begins anew, as if
    it had never been.

    Copies are not reached: exports, the files of gateway_logging and output_log, backups; for the
    tables of a pipeline there is `mewstream erase`. Should it be interrupted, no gateway
    starts before it was erased again.

    \b
    Examples:
      mewstream journal erase --data ./data --space demo
      mewstream journal erase --data ./data --space demo --yes
    """
    require_journal()
    from mewstream.cli.journal_erasing import confirm_erasing, erasing

    with erasing(data, space) as prepared:
        confirm_erasing(f"Erase space {space!r}: {prepared.what}? This cannot be undone.", yes=yes)
        prepared.erase()
    click.echo(f"erased space {space!r}: {prepared.what}")


journal.add_command(cat)
journal.add_command(export)
