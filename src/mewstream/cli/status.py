"""``mewstream status``: show the state of a gateway."""

from __future__ import annotations

import sys
from typing import Any

import click

from mewstream.cli.identity import Identity, participant_options
from mewstream.cli.output import print_json, print_table, quietly
from mewstream.cli.runner import run
from mewstream.cli.streams import print_streams


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object: health, participants, streams.")
@participant_options
@quietly
def status(identity: Identity, as_json: bool) -> None:
    """Show the state of the gateway; with --as, also who may join, who is connected and which streams are open.

    Exit code 0: the gateway is well. 1: it is running, but draining or unable to record. 3: it cannot be reached.

    \b
    Examples:
      mewstream status
      mewstream status --as alice --url wss://mew.example.org
      mewstream status --json | jq .health.clients
    """
    found = run(_fetch(identity))
    health = found["health"]
    if as_json:
        print_json(found)
    else:
        shown = ["status", "version", "uptime", "spaces", "clients"]
        print_table(f"Gateway {identity.http_url}", shown, [[health.get(key) for key in shown]])
        if "participants" in found:
            print_table(
                "Participants",
                ["participant", "connected", "capabilities"],
                [[each.get("id"), _yes(each.get("connected")), _kinds(each)] for each in found["participants"]],
            )
            print_streams(found["streams"])
    if health.get("status") != "ok":
        sys.exit(1)


async def _fetch(identity: Identity) -> dict[str, Any]:
    from mewstream.cli import http_api

    found: dict[str, Any] = {"health": await http_api.health(identity)}
    if identity.is_known:
        found["participants"] = await http_api.participants(identity)
        found["streams"] = await http_api.streams(identity)
    return found


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _kinds(participant: dict[str, Any]) -> str:
    """Return the kinds without the payload patterns, which --json shows."""
    patterns = participant.get("capabilities")
    kinds = [str(each.get("kind")) for each in patterns or () if isinstance(each, dict)]
    return ", ".join(dict.fromkeys(kinds))
