"""``mewstream join``: take part in a space from a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mewstream.cli.identity import Identity, participant_options
from mewstream.cli.output import complain, quietly
from mewstream.cli.runner import run

if TYPE_CHECKING:
    from mewstream.cli.terminal.lines import Line
    from mewstream.client.space import Space


@click.command()
@participant_options
@click.option(
    "--history",
    metavar="FILE",
    envvar="MEW_HISTORY",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file of typed lines for the arrow keys; /dev/null for none.  "
    "[default: mewstream/history in $XDG_STATE_HOME or ~/.local/state]",
)
@click.option(
    "--all",
    "shows_all",
    is_flag=True,
    help="Show every message, including requests whose answer is shown anyway, and acknowledgements.",
)
@quietly
def join(identity: Identity, history: Path | None, shows_all: bool) -> None:
    """Take part in a space: chat, see what happens, and act with slash commands.

    What you type is said to everyone. A line that begins with a slash is a command; /help lists them. Tab
    completes commands, streams and names. Ctrl-C clears the line or, if it is empty, stops waiting for
    answers. Ctrl-D or /quit leaves. A lost connection is restored automatically.

    Without a terminal, input is processed line by line, and the command leaves at its end. The exit code is
    then 1 if a line failed.

    \b
    Examples:
      mewstream join --as ann
      mewstream join --url wss://mew.example.org --space demo --as ann --token-file ann.token
      echo "the build is done" | mewstream join --as ci
      printf '/open log\\n/write stream-1 hello\\n' | mewstream join --as ci
    """
    from mewstream.cli.terminal.screen import restored_terminal

    with restored_terminal():
        has_failed = run(_join(identity, history, shows_all))
    if has_failed:
        sys.exit(1)


async def _join(identity: Identity, history: Path | None, shows_all: bool) -> bool:
    """Take part until the end, and return whether a line of a script failed. On a terminal, the user has seen it."""
    from mewstream.cli.terminal.conversation import Conversation
    from mewstream.cli.terminal.line_completer import LineCompleter
    from mewstream.cli.terminal.screen import Pipes, Terminal
    from mewstream.cli.terminal.session import Session

    async with identity.connect() as space:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            conversation = Conversation(Session(space, Pipes(), shows_all=shows_all))
            await conversation.run()
            return conversation.has_failed
        terminal = Terminal(
            prompt=lambda: _prompt(space, identity.space),
            on_interrupt=lambda: conversation.interrupt(),
            history=_private(history or _default_history()),
        )
        session = Session(space, terminal, shows_all=shows_all)
        terminal.completer = LineCompleter(session)
        conversation = Conversation(session)
        await conversation.run()
        return False


def _prompt(space: Space, name: str | None) -> Line:
    where = f"@{name}" if name else ""
    state: Line = [] if space.is_connected else [("bad", " (no connection)")]
    return [("me", space.participant), ("dim", where), *state, ("plain", "> ")]


def _default_history() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "mewstream" / "history"


def _private(file: Path) -> Path | None:
    """Create the file if needed, readable only by its owner. None, with a message, if it cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError as error:
        complain(f"what you type is not kept for later: {file}: {error.strerror}")
        return None
    return file
