"""A person at a real pseudo-terminal, who runs ``mewstream join``."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pyte
from plain_gateway import PlainGateway

from support import TIMEOUT, GatewayProcess, token_of

JOIN = ["-m", "mewstream.cli.main", "join"]
ROWS, COLUMNS = 40, 250
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Person:
    """Types, and sees what a terminal would show, without colours and cursor movements."""

    def __init__(
        self,
        gateway: GatewayProcess | PlainGateway,
        name: str,
        home: Path,
        *options: str,
        directory: Path | None = None,
    ) -> None:
        """With ``directory`` the token is found in the space.yaml there."""
        self.name = name
        environment = {
            **os.environ,
            **({} if directory else {"MEW_TOKEN": token_of(name.replace(" ", "-"))}),
            "TERM": "xterm-256color",
            "XDG_STATE_HOME": str(home),
            "TZ": "UTC",
        }
        self.child: pexpect.spawn[str] = pexpect.spawn(
            sys.executable,
            [*JOIN, "--url", gateway.ws_url, "--as", name, *options],
            env=environment,
            cwd=None if directory is None else str(directory),
            encoding="utf-8",
            codec_errors="replace",
            dimensions=(ROWS, COLUMNS),
            timeout=TIMEOUT,
        )
        # Typing is not what is slow here.
        self.child.delaybeforesend = None
        self.raw = ""
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._feed = pyte.Stream(self._screen).feed
        self._seen = 0
        self.modes_before = self.modes()

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.child.child_fd)

    @property
    def shown(self) -> str:
        return _ESCAPES.sub("", self.raw)

    @property
    def screen(self) -> list[str]:
        """What stands on the terminal now, line by line, as a person sees it."""
        lines = [line.rstrip() for line in self._screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def sees_screen(self, is_so: Callable[[list[str]], bool]) -> None:
        """Wait until the terminal shows something."""
        deadline = time.monotonic() + TIMEOUT
        while not is_so(self.screen):
            assert time.monotonic() < deadline, "\n".join([f"{self.name} sees:", *self.screen])
            self._read()

    def type(self, text: str) -> None:
        self.child.send(text)

    def enter(self, line: str) -> None:
        self.type(line + "\r")

    def see(self, text: str) -> str:
        """Wait until a text is shown, after all that was seen before; the line up to and with it."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            shown = self.shown
            place = shown.find(text, self._seen)
            if place >= 0:
                self._seen = place + len(text)
                return shown[shown.rfind("\n", 0, place) + 1 : self._seen]
            assert time.monotonic() < deadline, f"{self.name} does not see {text!r}; shown is:\n{shown[-3000:]}"
            self._read()

    def press_until(self, key: str, text: str) -> None:
        """Press a key now and then until a text is shown."""
        deadline = time.monotonic() + TIMEOUT
        while self.shown.find(text, self._seen) < 0:
            assert time.monotonic() < deadline, f"{self.name} does not see {text!r}; shown is:\n{self.shown[-3000:]}"
            self.type(key)
            for _ in range(3):
                self._read()
        self.see(text)

    async def sees(self, text: str) -> str:
        """As :meth:`see`, while other participants of the test are awake."""
        return await asyncio.to_thread(self.see, text)

    def _read(self) -> None:
        try:
            self._heard(self.child.read_nonblocking(4096, timeout=0.2))
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            raise AssertionError(f"{self.name} has left; shown is:\n{self.shown[-3000:]}") from None

    def _heard(self, text: str) -> None:
        self.raw += text
        self._feed(text)

    def left(self) -> int | None:
        """Wait until the command has ended; its exit code. The terminal must be as it was."""
        # The pty belongs to us too, so that its modes outlive the command.
        self._heard(self.child.read() or "")
        assert "Traceback" not in self.shown, self.shown
        self.child.wait()
        code: int | None = self.child.exitstatus
        return code

    def close(self) -> None:
        try:
            self.child.close(force=True)
        except pexpect.ExceptionPexpect:
            os.waitpid(self.child.pid, 0)  # it was killed, and a busy machine takes a while
