"""The ``mewstream`` command."""

from __future__ import annotations

import sys

import click

import mewstream
from mewstream.cli.journal import journal
from mewstream.cli.serve import serve
from mewstream.protocol.errors import MewError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(mewstream.__version__, prog_name="mewstream")
def cli() -> None:
    """MEW Protocol streams: a gateway for humans, agents and game servers in one space."""


cli.add_command(serve)
cli.add_command(journal)


def main() -> None:
    """Run the command. A user's mistake is one line and exit code 2, never a traceback."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as mistake:
        click.echo(f"mewstream: {mistake.format_message()}", err=True)
        sys.exit(2)
    except MewError as mistake:
        click.echo(f"mewstream: {mistake}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
