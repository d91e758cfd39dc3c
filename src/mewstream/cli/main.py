"""The ``mewstream`` command."""

from __future__ import annotations

import sys

import click

import mewstream
from mewstream.cli.commands import COMMANDS, LazyGroup
from mewstream.protocol.errors import MewError, PeerError

OK, REFUSED, WRONG_USAGE, NO_CONNECTION, INTERRUPTED = 0, 1, 2, 3, 130

_EPILOG = """\b
Exit codes:
  0    done
  1    refused: by the gateway, or by another participant
  2    wrong usage or configuration
  3    no connection, or it was lost
  130  interrupted by Ctrl-C
  143  ended by SIGTERM
"""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(mewstream.__version__, prog_name="mewstream")
def cli() -> None:
    """MEW Protocol streams: a gateway for humans, agents and game servers in one space."""


def main() -> None:
    """Run the command. A user's mistake gives one line and exit code 2, never a traceback."""
    try:
        cli.main(standalone_mode=False)
    except click.Abort:
        sys.exit(INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as mistake:
        click.echo(mistake.format_message(), err=True)
        sys.exit(WRONG_USAGE)
    except click.ClickException as mistake:
        click.echo(f"mewstream: {mistake.format_message()}", err=True)
        sys.exit(WRONG_USAGE)
    except MewError as error:
        click.echo(f"mewstream: {error}", err=True)
        sys.exit(exit_code(error))


def exit_code(error: MewError) -> int:
    """The exit code for an error, as ``mewstream --help`` lists them."""
    if isinstance(error, PeerError):
        return REFUSED
    errors = sys.modules.get("mewstream.client.errors")
    if errors is None:
        return WRONG_USAGE  # the client was not imported, so it is not one of its errors
    if isinstance(error, errors.JoinRefused | errors.McpError | errors.ProposalRejected):
        return REFUSED
    lost = (errors.ConnectError, errors.ConnectionClosed, errors.FramesUnconfirmed)
    if isinstance(error, (*lost, errors.AnswerLost, errors.RequestTimeout)):
        return NO_CONNECTION
    return WRONG_USAGE


if __name__ == "__main__":
    main()
