"""``mewstream token``: create tokens."""

from __future__ import annotations

from pathlib import Path

import click

from mewstream.cli.output import printable, quietly
from mewstream.cli.secret_files import secret_file
from mewstream.protocol.errors import ConfigError
from mewstream.protocol.identifiers import flaw_in_participant_id
from mewstream.settings.tokens import new_token, token_file


@click.group()
def token() -> None:
    """Create tokens, which identify participants."""


@token.command()
@click.argument("name", required=False)
@click.option("--force", is_flag=True, help="Replace an existing token of NAME.")
@quietly
def new(name: str | None, force: bool) -> None:
    """Create a token of 256 random bits.

    Without NAME, it is printed. With NAME, it is written to .mew/tokens/NAME.token, which only you can read,
    and where the gateway and the other commands look for it. The gateway accepts it after a restart.

    No command takes a token as an argument, because everyone on the machine can see the arguments. Use
    --token-file, a variable, or the file that this command writes.

    \b
    Examples:
      mewstream token new
      mewstream token new alice
      mewstream token new > /run/secrets/alice.token
    """
    if name is None:
        click.echo(new_token())
        return
    if flaw := flaw_in_participant_id(name, max_bytes=128):
        raise click.BadParameter(f"{name!r} {flaw}", param_hint="NAME")
    file = token_file(Path(), name)
    assert file is not None, "no id of a participant leads out of the directory"
    if file.exists() and not force:
        raise ConfigError(f"{file} exists already: give --force to replace it")
    with secret_file(file, replace=force) as opened:
        opened.write(f"{new_token()}\n")
    click.echo(f"the token of {printable(name)} is in {file}: restart the gateway if {printable(name)} is in its space")
