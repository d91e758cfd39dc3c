"""``mewstream doctor``: check whether this machine can run mewstream."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from mewstream.cli.output import print_json, printable, quietly

_COLOURS = {"ok": "green", "warn": "yellow", "missing": "red"}


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the gateway would listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port that it needs.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data"),
    show_default=True,
    help="Where its journal would be. Nothing is left there.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON list: what, level, found, remedy.")
@quietly
def doctor(host: str, port: int, data: Path, as_json: bool) -> None:
    """Check whether this machine can run mewstream, with a line for each check: ok, warn or missing.

    With 'missing', the gateway cannot run. With 'warn', it can, but the pipeline may not, or there is little room.

    Exit code 0: the gateway can run. 1: it cannot.

    \b
    Examples:
      mewstream doctor
      mewstream doctor --port 9000 --data /var/lib/mewstream
      mewstream doctor --json | jq '.[] | select(.level != "ok")'
    """
    from mewstream.cli.checks import examine

    findings = []
    for finding in examine(host, port, data):
        findings.append(finding)
        if not as_json:
            level = click.style(f"{finding.level:7}", fg=_COLOURS[finding.level])
            remedy = f": {finding.remedy}" if finding.remedy else ""
            click.echo(f"{level} {finding.what:15} {printable(finding.found)}{printable(remedy)}")
    if as_json:
        print_json([asdict(finding) for finding in findings])
    if any(finding.level == "missing" for finding in findings):
        sys.exit(1)
