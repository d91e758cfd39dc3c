"""``mewstream audit``: was everything that happened allowed?"""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from mewstream.cli.output import complain, print_table, quietly
from mewstream.cli.warehouses import open_tables, refuse_unknown, spaces_option, warehouse_option

_SHOWN = 50
_WHAT = ("frames", "changes", "refusals", "welcomes")
_JUDGED = (
    *("space", "verdict", "findings"),
    *(f"{what}_{how}" for what in _WHAT for how in ("judged", "not_judged")),
    *("first_seq", "last_seq"),
)


@click.command()
@warehouse_option
@spaces_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object a line: each space, what of it could not be judged, and each finding.",
)
@quietly
def audit(warehouse: str, spaces: tuple[str, ...], as_json: bool) -> None:
    """Tell whether everything that happened was allowed: every frame, change and refusal, and what joiners were told.

    The pipeline judges while it runs, from what the log says of rights, policies and capabilities, and without the
    code of the gateway; this shows its verdict on each space and what it found. docs/pipeline.md has the rules.

    The exit code is 0 where all is sound and 1 where anything was found.

    \b
    Examples:
      mewstream audit --warehouse ./warehouse
      mewstream audit --warehouse ./warehouse --space demo --json
    """
    with open_tables(warehouse, "reading the verdict") as database:
        from mewstream.query.database import plain

        refuse_unknown(database, spaces, warehouse)
        chosen = "WHERE space IN (SELECT unnest($spaces))" if spaces else ""
        given = {"spaces": list(spaces)} if spaces else {}
        verdicts = database.rows(f"SELECT {', '.join(_JUDGED)} FROM space_summary {chosen} ORDER BY space", **given)
        is_sound = all(row["verdict"] == "sound" for row in verdicts)
        unjudged = database.rows(f"SELECT * FROM audit_unjudged {chosen} ORDER BY space, what, reason", **given)
        found = f"SELECT * FROM audit {chosen} ORDER BY space, seq, rule"
        if as_json:
            findings = [] if is_sound else database.rows(found, **given)
            for row in (*verdicts, *unjudged, *findings):
                click.echo(msgspec.json.encode(plain(row)))
        else:
            _print(verdicts, unjudged, [] if is_sound else database.rows(f"{found} LIMIT {_SHOWN}", **given))
    if not is_sound:
        sys.exit(1)


def _print(verdicts: list[dict[str, Any]], unjudged: list[dict[str, Any]], findings: list[dict[str, Any]]) -> None:
    if not verdicts:
        click.echo("nothing is recorded yet, so there is nothing to judge")
        return
    columns = ["space", "verdict", "findings", *(f"{what} judged" for what in _WHAT), "seq"]
    print_table(
        "Audit",
        columns,
        [
            [
                *(row[name] for name in ("space", "verdict", "findings")),
                *(row[f"{what}_judged"] for what in _WHAT),
                f"{row['first_seq']} to {row['last_seq']}",
            ]
            for row in verdicts
        ],
    )
    if unjudged:
        shown = ("space", "what", "count", "reason")
        print_table("Not judged", list(shown), [[row[name] for name in shown] for row in unjudged])
    if findings:
        names = ("space", "seq", "rule", "stream_id", "participant", "reason")
        columns = ["space", "seq", "rule", "stream", "participant", "what was found"]
        print_table("Findings", columns, [[row[name] for name in names] for row in findings])
    total = sum(row["findings"] for row in verdicts)
    if total > len(findings):
        complain(f"only the first {len(findings)} of {total} findings are shown: give --json for all")
    judged = [f"{sum(row[f'{what}_judged'] for row in verdicts)} {what}" for what in _WHAT]
    verdict = "sound" if not total else f"flawed, {total} {'finding' if total == 1 else 'findings'}"
    click.echo(f"{verdict}: {', '.join(judged[:-1])} and {judged[-1]} were judged")
