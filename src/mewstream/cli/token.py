"""``mewstream token``: make tokens."""

from __future__ import annotations

from pathlib import Path

import click

from mewstream.cli.output import printable, quietly
from mewstream.cli.tokens import secret_file
from mewstream.gateway import identity
from mewstream.protocol.errors import ConfigError
from mewstream.protocol.identifiers import flaw_in_participant_id


@click.group()
def token() -> None:
    """Make tokens, by which participants show who they are."""


@token.command()
@click.argument("name", required=False)
@click.option("--force", is_flag=True, help="Replace the token that NAME has in .mew/tokens.")
@quietly
def new(name: str | None, force: bool) -> None:
    """Make a fresh token of 256 random bits.

    Without NAME it is printed. With NAME it is written to .mew/tokens/NAME.token, which only you can read,
    and where both the gateway and the other commands look for it; restart the gateway to let it in.

    No command takes a token as an argument: everyone on the machine can see those. Use --token-file, a
    variable, or the file that this makes.

    \b
    Examples:
      mewstream token new
      mewstream token new alice
      mewstream token new > /run/secrets/alice.token
    """
    if name is None:
        click.echo(identity.new_token())
        return
    if flaw := flaw_in_participant_id(name, max_bytes=128):
        raise click.BadParameter(f"{name!r} {flaw}", param_hint="NAME")
    file = identity.token_file(Path(), name)
    assert file is not None, "no id of a participant leads out of the directory"
    if file.exists() and not force:
        raise ConfigError(f"{file} exists already: give --force to replace it")
    with secret_file(file, replace=force) as opened:
        opened.write(f"{identity.new_token()}\n")
    click.echo(f"the token of {printable(name)} is in {file}: restart the gateway if {printable(name)} is in its space")
