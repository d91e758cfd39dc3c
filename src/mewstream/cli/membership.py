"""``mewstream invite``, ``uninvite``, ``kick``, ``ban`` and ``unban``: who may be in a space."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click
import msgspec

from mewstream.cli.identity import Identity, participant_options
from mewstream.cli.output import complain, print_json, printable, quietly
from mewstream.cli.runner import run
from mewstream.cli.secret_files import secret_file
from mewstream.cli.streams import json_option, participant_argument, reason_option
from mewstream.cli.values import time_span
from mewstream.protocol import kinds


def _capability(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[Any] | None:
    """Parse capabilities, each a kind such as ``stream/*`` or a pattern as a JSON object."""
    patterns: list[Any] = []
    for value in values:
        if not value.startswith("{"):
            patterns.append({"kind": value})
            continue
        try:
            patterns.append(msgspec.json.decode(value, type=dict[str, Any]))
        except msgspec.DecodeError as error:
            raise click.BadParameter(f"expected a kind such as 'stream/*', or a JSON object: {error}") from None
    return patterns or None


@click.command()
@click.argument("name")
@click.option(
    "--capability",
    "-c",
    "capabilities",
    multiple=True,
    metavar="KIND|JSON",
    callback=_capability,
    help="A capability: a kind such as 'stream/*', or a pattern as JSON; may be repeated.  "
    "[default: the defaults of the space]",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A new file for the token, which only you can read, instead of stdout.",
)
@click.option(
    "--expires",
    callback=time_span(least=1.0),
    metavar="TIME",
    help="How long the invitation waits for NAME to join, such as 1d.  [default: for ever]",
)
@json_option
@participant_options
@quietly
def invite(
    identity: Identity,
    name: str,
    capabilities: list[Any] | None,
    output: Path | None,
    expires: float | None,
    as_json: bool,
) -> None:
    """Invite a new participant, NAME, and get its token.

    The token is shown only this once: alone on stdout or, with --output, only in the file.

    \b
    Examples:
      mewstream invite --as server guest --capability chat --output .mew/tokens/guest.token
      mewstream invite --as server bot -c 'stream/*' -c '{"kind": "mcp/request", "payload": {"method": "tools/*"}}'
      mewstream invite --as server guest --expires 1d --json | jq -r .token
    """
    from mewstream.cli import http_api
    from mewstream.client.errors import ConnectError

    payload: dict[str, Any] = {"participant_id": name}
    if capabilities is not None:
        payload["capabilities"] = capabilities
    if expires is not None:
        payload["expires_in"] = expires
    # The file is created first, so that no token is issued that could not be stored.
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(secret_file(output)) if output is not None else None
        answer = run(http_api.post(identity, kinds.INVITE, payload))
        if not answer.get("token"):
            raise ConnectError(f"{identity.http_url} has accepted the invitation but returned no token")
        if file is not None:
            file.write(f"{answer.pop('token')}\n")
    if as_json:
        print_json(answer)
        return
    if output is None:
        click.echo(printable(str(answer.get("token"))))
        complain(f"{printable(name)} is invited; its token, on stdout, is not shown again")
    else:
        click.echo(f"{printable(name)} is invited; its token is in {output}")


@click.command()
@participant_argument
@reason_option
@json_option
@participant_options
@quietly
def kick(identity: Identity, participant_id: str, reason: str | None, as_json: bool) -> None:
    """Remove PARTICIPANT from the space. Its token stays valid, so it may join again, unless you ban it.

    \b
    Examples:
      mewstream kick --as server player1
      mewstream kick --as server player1 --reason 'flooding the chat'
    """
    _ask(identity, kinds.KICK, participant_id, "is removed", as_json, reason=reason)


@click.command()
@participant_argument
@click.option(
    "--for",
    "seconds",
    required=True,
    callback=time_span(least=1.0),
    metavar="TIME",
    help="How long, such as 30m or 7d.",
)
@reason_option
@json_option
@participant_options
@quietly
def ban(identity: Identity, participant_id: str, seconds: float, reason: str | None, as_json: bool) -> None:
    """Remove PARTICIPANT from the space if it is there, and do not let it in for a while.

    \b
    Examples:
      mewstream ban --as server player1 --for 1h --reason 'flooding the chat'
    """
    _ask(identity, kinds.KICK, participant_id, "is banned", as_json, reason=reason, ban=seconds)


@click.command()
@participant_argument
@json_option
@participant_options
@quietly
def unban(identity: Identity, participant_id: str, as_json: bool) -> None:
    """End the ban of PARTICIPANT before its time.

    \b
    Examples:
      mewstream unban --as server player1
    """
    _ask(identity, kinds.UNBAN, participant_id, "may join again", as_json)


@click.command()
@participant_argument
@reason_option
@json_option
@participant_options
@quietly
def uninvite(identity: Identity, participant_id: str, reason: str | None, as_json: bool) -> None:
    """Take back the invitation of PARTICIPANT. Its token is not valid any more, and it is removed if it has joined.

    \b
    Examples:
      mewstream uninvite --as server guest
    """
    _ask(identity, kinds.UNINVITE, participant_id, "is not invited any more", as_json, reason=reason)


def _ask(identity: Identity, kind: str, participant: str, outcome: str, as_json: bool, **fields: Any) -> None:
    """Ask for something to be done to a participant. Fields that are None are left out."""
    from mewstream.cli import http_api

    payload = {"participant_id": participant} | {key: value for key, value in fields.items() if value is not None}
    answer = run(http_api.post(identity, kind, payload))
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{printable(participant)} {outcome}")
