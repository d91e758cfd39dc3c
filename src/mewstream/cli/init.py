"""``mewstream init``: write a first space.yaml."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from mewstream.cli.output import quietly
from mewstream.cli.secret_files import secret_file
from mewstream.protocol.errors import ConfigError
from mewstream.protocol.identifiers import flaw_in_id, flaw_in_participant_id
from mewstream.settings.space_file import SPACE_FILE_VARIABLE
from mewstream.settings.tokens import new_token

DEFAULT_PARTICIPANTS = ("server", "alice", "bob")
_MAX_ID_BYTES = 128

_HEAD = """\
# A space for mewstream, made by `mewstream init`. An unknown key is an error that names it.
#
# THIS FILE HOLDS TOKENS: whoever has one is that participant. Keep it out of version control. A token may also
# stand in a variable (MEW_TOKEN_ALICE) or in a file of its own (.mew/tokens/alice.token); `mewstream token new`
# makes another.

space:
  id: {space}
  name: {space}
#  description: What this space is for

participants:
"""

_HOST = """\
  # Runs the space: opens streams and hands them over, manages those of others, invites, kicks, serves tools.
  {name}:
    tokens: [{token}]
    capabilities:
      - kind: chat
      - kind: "mcp/*"
      - kind: "stream/*"
      - kind: "space/*"
      - kind: "capability/*"

"""

_GUEST = """\
  {name}:
    tokens: [{token}]

"""

_TAIL = """\
# For participants without "capabilities" of their own, and for those who are invited. To write to a stream of
# another they need none: whoever is granted write can write.
defaults:
  capabilities:
    - kind: chat
    - kind: mcp/request
    - kind: mcp/proposal
    - kind: mcp/withdraw
    - kind: mcp/reject
    - kind: stream/request     # may open streams
    - kind: stream/manage      # may announce streams, and start them later

# The whole gateway; options of `mewstream serve` override it. The values are the defaults.
#gateway:
#  host: 127.0.0.1             # 0.0.0.0: reachable from elsewhere. Then think of TLS too
#  port: 8080
#  data: data                  # where the journal is; no default: without it nothing outlives the gateway

# Limits, policies and the delivery to slow readers: see docs/operations.md.
#mewstream:
#  policies:
#    on_owner_leave: keep      # or transfer, or close
"""


@click.command()
@click.option("--space", "-s", default="demo", show_default=True, help="The id of the space.")
@click.option(
    "--participant",
    "-p",
    "participants",
    multiple=True,
    metavar="NAME",
    default=DEFAULT_PARTICIPANTS,
    show_default=", ".join(DEFAULT_PARTICIPANTS),
    help="Who takes part; may be repeated. The first may do everything.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("space.yaml"),
    show_default=True,
    help="The file to write. Only you can read it.",
)
@click.option("--force", is_flag=True, help="Replace an existing file. Its tokens are lost.")
@quietly
def init(space: str, participants: tuple[str, ...], output: Path, force: bool) -> None:
    """Write a space.yaml with new tokens, and print what to do next.

    The other commands find the tokens in it if they are run in the same directory.

    \b
    Examples:
      mewstream init
      mewstream init --space arena --participant referee --participant red --participant blue
      mewstream init --output arena/space.yaml
    """
    _check(space, participants)
    if output.exists() and not force:
        raise ConfigError(f"{output} exists already: give --output FILE, or --force to replace it and its tokens")
    with secret_file(output, replace=force) as file:
        file.write(_content(space, participants))
    click.echo(f"{output}: space {space!r} with {', '.join(participants)}, each with a token that is in the file.")
    click.echo(_next_steps(output, participants))


def _check(space: str, participants: tuple[str, ...]) -> None:
    flaw = "contains '/'" if "/" in space else flaw_in_id(space, max_bytes=_MAX_ID_BYTES)
    if flaw:
        raise click.BadParameter(f"{space!r} {flaw}", param_hint="--space")
    for name in participants:
        if flaw := flaw_in_participant_id(name, max_bytes=_MAX_ID_BYTES):
            raise click.BadParameter(f"{name!r} {flaw}", param_hint="--participant")
    if len(set(participants)) < len(participants):
        raise click.BadParameter("a name is given twice", param_hint="--participant")


def _content(space: str, participants: tuple[str, ...]) -> str:
    """Return the file. Names and tokens are written as JSON strings, which are valid YAML whatever they contain."""
    host, *guests = participants
    content = _HEAD.format(space=json.dumps(space))
    content += _HOST.format(name=json.dumps(host), token=json.dumps(new_token()))
    for guest in guests:
        content += _GUEST.format(name=json.dumps(guest), token=json.dumps(new_token()))
    return content + _TAIL


def _next_steps(output: Path, participants: tuple[str, ...]) -> str:
    host, reader = shlex.quote(participants[0]), shlex.quote(participants[-1])
    beside = output.absolute() == Path("space.yaml").absolute()
    find = "" if beside else f"  export {SPACE_FILE_VARIABLE}={shlex.quote(str(output.absolute()))}\n"
    config = "" if beside else f" --config {shlex.quote(str(output))}"
    return f"""
Start the gateway:
  mewstream serve{config} --data data

Then, in a second terminal{" in this directory" if beside else ""}:
{find}  mewstream status --as {host}
  mewstream tail --as {reader}

And in a third:
{find}  mewstream send --as {host} 'hello'
  date | mewstream publish --as {host} --description 'what time it is'"""
