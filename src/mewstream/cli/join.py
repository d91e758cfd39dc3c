"""``mewstream join``: a person takes part in a space, from a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mewstream.cli.connecting import Who, participant_options, run
from mewstream.cli.output import complain, quietly

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
    help="Where typed lines are kept for the arrow keys; /dev/null keeps none.  "
    "[default: mewstream/history in $XDG_STATE_HOME or ~/.local/state]",
)
@click.option(
    "--all",
    "shows_all",
    is_flag=True,
    help="A line for every message: also requests that the gateway answers to everyone, and acknowledgements.",
)
@quietly
def join(who: Who, history: Path | None, shows_all: bool) -> None:
    """Take part in a space: chat, see what happens, and act by slash commands.

    What you type is said to everyone; what begins with a slash is a command: /help lists them. Tab
    completes commands, streams and names. Ctrl-C clears the line, and on an empty one stops waiting
    for answers; Ctrl-D or /quit leaves. A lost connection is made again by itself.

    Without a terminal it works line by line: what is read is carried out in order, what happens is
    printed, and at the end of the input you leave. The exit code is then 1 if a line could not be
    carried out.

    \b
    Examples:
      mewstream join --as ann
      mewstream join --url wss://mew.example.org --space demo --as ann --token-file ann.token
      echo "the build is done" | mewstream join --as ci
      printf '/open log\\n/write stream-1 hello\\n' | mewstream join --as ci
    """
    from mewstream.cli.terminal.screen import restored_terminal

    with restored_terminal():
        has_failed = run(_join(who, history, shows_all))
    if has_failed:
        sys.exit(1)


async def _join(who: Who, history: Path | None, shows_all: bool) -> bool:
    """Whether a line of a script failed. On a terminal the person has seen it."""
    from mewstream.cli.terminal.completion import LineCompleter
    from mewstream.cli.terminal.conversation import Conversation
    from mewstream.cli.terminal.screen import Pipes, Terminal
    from mewstream.cli.terminal.session import Session

    async with who.connect() as space:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            conversation = Conversation(Session(space, Pipes(), shows_all=shows_all))
            await conversation.run()
            return conversation.has_failed
        terminal = Terminal(
            prompt=lambda: _prompt(space, who.space),
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
    """The file, for its owner's eyes only; None, and a word on it, where it cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError as error:
        complain(f"what you type is not kept for later: {file}: {error.strerror}")
        return None
    return file
