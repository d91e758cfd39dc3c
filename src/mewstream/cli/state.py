"""``mewstream state``: a space as it was at a point of its log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mewstream.cli.output import print_table, quietly
from mewstream.cli.values import moment
from mewstream.extras import require, require_journal
from mewstream.protocol.times import rfc3339

if TYPE_CHECKING:
    from mewstream.protocol.state import SpaceState


def seq_or_moment(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int | None, int | None]:
    """A seq, or a time in microseconds; neither where nothing is given."""
    if value is not None and value.strip().isdecimal():
        return int(value), None
    return None, moment(context, parameter, value)


@click.command()
@click.option(
    "--space",
    "-s",
    envvar="MEW_SPACE",
    show_envvar=True,
    help="The space; not needed where there is only one.",
)
@click.option(
    "--at",
    metavar="SEQ|TIME",
    callback=seq_or_moment,
    help="After the record of this seq, or after everything up to a time: RFC 3339, a day (UTC), 15m (ago), or now.  "
    "[default: the end of the log]",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The data directory of the gateway, which may be running.",
)
@click.option(
    "--warehouse",
    metavar="DIR|URL",
    help="Or the tables of the pipeline, which reach back to what the journal has pruned.",
)
@click.option("--as", "participant", metavar="PARTICIPANT", help="The whole welcome that this participant would get.")
@click.option("--json", "as_json", is_flag=True, help="The payload of the welcome, as JSON.")
@quietly
def state(
    space: str | None,
    at: tuple[int | None, int | None],
    data: Path | None,
    warehouse: str | None,
    participant: str | None,
    as_json: bool,
) -> None:
    """Tell who was here, which streams were open, and who owned and could write them, at any point.

    It is what somebody who joined at that point was told.

    \b
    Examples:
      mewstream state --data ./data
      mewstream state --space demo --data ./data --at 1200
      mewstream state --space demo --warehouse ./warehouse --at 2026-01-31T12:00:00Z --json
    """
    if (data is None) == (warehouse is None):
        raise click.UsageError("say where to look: --data of a gateway, or --warehouse of a pipeline")
    if data is not None:
        require_journal()
    else:
        require("query")
    from mewstream.query.asof import Point, state_in_journal, state_in_records, welcome

    point = Point(*at)
    if data is not None:
        from mewstream.cli.journal_reading import open_reader, spaces_in

        found = state_in_journal(data, space or _only(spaces_in(open_reader(data)), data), point)
    else:
        from mewstream.cli.warehouses import open_tables

        assert warehouse is not None
        with open_tables(warehouse, "folding the log") as database:
            spaces = [] if space else [row["space"] for row in database.rows("SELECT space FROM space_summary")]
            found = state_in_records(database, space or _only(sorted(spaces), warehouse), point)
    told = welcome(found, participant)
    if as_json:
        click.echo(msgspec.json.encode(told))
    else:
        _print(found, told)


def _only(spaces: list[str], where: Path | str) -> str:
    """Return the space that is meant where none is named."""
    if len(spaces) == 1:
        return spaces[0]
    from mewstream.cli.journal_reading import listed
    from mewstream.query.asof import NoSuchState

    if not spaces:
        raise NoSuchState(f"nothing is recorded in {where} yet")
    raise click.UsageError(f"there are several spaces in {where}: say which by --space. There are {listed(spaces)}")


def _print(state: SpaceState, told: dict[str, Any]) -> None:
    click.echo(f"{state.id} at seq {state.seq}, {rfc3339(state.ts)}, run {state.epoch or '-'}\n")
    here = [told["you"], *told["participants"]] if "you" in told else told["participants"]
    print_table(
        "Participants",
        ["participant", "connected", "may"],
        [[each["id"], _yes(state.is_connected(each["id"])), _kinds(each["capabilities"])] for each in here],
    )
    print_table(
        "Streams",
        ["stream", "alias", "status", "owner", "owner here", "writers", "readers", "last seq", "description"],
        [
            [
                each["stream_id"],
                each.get("alias"),
                each["status"],
                each["owner"],
                _yes(each["owner_connected"]),
                ", ".join(_writer(name, each) for name in each["authorized_writers"]),
                ", ".join(each["authorized_readers"]) if "authorized_readers" in each else "everyone",
                each["last_seq"],
                each.get("description"),
            ]
            for each in told["active_streams"]
        ],
    )


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _kinds(capabilities: list[dict[str, Any]]) -> str:
    return ", ".join(str(each.get("kind", "?")) for each in capabilities)


def _writer(name: str, stream: dict[str, Any]) -> str:
    """With what is left of a right that is bounded."""
    conditions = stream.get("conditions", {}).get(name)
    if not conditions:
        return name
    bounds = []
    if "frames_left" in conditions:
        bounds.append(f"{conditions['frames_left']} frames left")
    if "expires_at" in conditions:
        bounds.append(f"until {conditions['expires_at']}")
    return f"{name} ({', '.join(bounds)})"
