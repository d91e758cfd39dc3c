"""The session, played slowly and again and again, for somebody who watches it in the console."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from pathlib import Path

import click

from mewstream.demo.gateway import DemoGateway
from mewstream.demo.play import Say, perform
from mewstream.protocol.errors import MewError

WATCHER = "you"
#: How much slower than for the report.
PACE = 3.0


def play_live(directory: Path, say: Say) -> None:
    """Play until Ctrl-C."""
    with DemoGateway(directory, guests=[WATCHER]) as gateway:
        click.echo(f"The console is at {click.style(gateway.console, bold=True)}. Sign in there:")
        click.echo(f"  participant  {WATCHER}")
        click.echo(f"  token        {gateway.tokens[WATCHER]}")
        click.echo("You may grant, approve and chat as you like. Ctrl-C ends it.\n")
        if _has_screen():
            webbrowser.open(gateway.console)
        try:
            while True:
                _once(gateway, say)
        except KeyboardInterrupt:
            click.echo("\nThat was it.")


def _once(gateway: DemoGateway, say: Say) -> None:
    try:
        asyncio.run(perform(gateway, say, pace=PACE))
    except MewError as error:
        # Whoever watches may have taken a right away, or kicked somebody.
        say("everyone", f"is out of step: {error}")
    say("everyone", "begins again")


def _has_screen() -> bool:
    """Whether a browser would open a window, and not take over the terminal."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
