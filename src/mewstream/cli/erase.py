"""``mewstream erase``: a space out of the journal and out of the tables made from it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from mewstream.cli.output import print_table, quietly
from mewstream.cli.status_line import working
from mewstream.extras import require
from mewstream.pipeline.errors import PipelineError


@click.command()
@click.option("--space", required=True, help="The space that is erased.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The data directory of the gateway, which must not run. Without it, only the tables are changed.",
)
@click.option("--warehouse", required=True, metavar="DIR|URL", help="The tables, which no pipeline may be writing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@quietly
def erase(space: str, data: Path | None, warehouse: str, yes: bool) -> None:
    """Erase what was said and done in a space, from the journal and from every table. This cannot be undone.

    Neither its name nor anything of its messages stays in any file of the two: files that hold it are rewritten, old
    versions of the tables are removed at once with what the logs of Delta say of them, and a hash marks the range that
    was erased. So versions of before cannot be read any more, and somebody who is reading just now may fail.

    Without --data the journal stays as it is: for tables of a journal from which the space was erased before. The space
    may be served again there, and a pipeline goes on only when the tables have nothing of what it was.

    Copies are not reached: exports, reports, the files of gateway_logging and output_log, backups. Should it be
    interrupted, neither gateway nor pipeline runs before it was erased again.

    \b
    Examples:
      mewstream erase --space demo --data ./data --warehouse ./warehouse
      mewstream erase --space demo --data ./data --warehouse s3://bucket/warehouse --yes
    """
    require("query")
    from mewstream.cli.journal_erasing import confirm_erasing, erasing
    from mewstream.pipeline import erasing as in_tables
    from mewstream.pipeline.committing import Tables
    from mewstream.pipeline.storage import locked, store_at
    from mewstream.pipeline.warehouse import open_warehouse

    with contextlib.ExitStack() as stack:
        opened = open_warehouse(warehouse)
        stack.enter_context(locked(store_at(warehouse)))
        tables = Tables(opened.store, lambda: opened.commit.position)
        in_journal = data and stack.enter_context(erasing(data, space, may_be_empty=True))
        if in_journal and in_journal.journal.identity.id != tables.newest.journal:
            raise PipelineError(f"the tables in {opened.store} are of another journal than the one in {data}")
        found = in_tables.survey(tables, space)
        is_in_journal = in_journal and not in_journal.is_empty
        if not is_in_journal and not found and not in_tables.is_interrupted(tables):
            raise PipelineError(
                f"there is nothing of space {space!r} in {f'{data} and in ' if data else ''}{opened.store}"
            )
        rows = sum(count for files in found.values() for _, count in files)
        what = f"{f'{in_journal.what}, and ' if in_journal else ''}{rows} rows in {len(found)} tables"
        confirm_erasing(f"Erase space {space!r}: {what}? This cannot be undone.", yes=yes)
        if in_journal and is_in_journal:
            in_journal.erase()
        with working("erasing from the tables"):
            erased = in_tables.erase_space(tables, space)
    print_table("Erased", ["table", "rows"], sorted(erased.rows.items()))
    click.echo(f"erased space {space!r}: {what}; {erased.files} old files removed")
