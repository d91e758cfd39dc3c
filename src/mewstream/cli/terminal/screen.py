"""Output and input: a terminal with an input line, or plain pipes and files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mewstream.cli.terminal.lines import STYLES, Line, clean, plain

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import FormattedText

_CHUNK_BYTES = 65_536


class Screen(Protocol):
    is_terminal: bool

    def show(self, *lines: Line) -> None:
        """Show lines. Control characters in them are escaped."""

    async def read(self) -> str | None:
        """The next line of input; None at the end."""

    async def finish(self) -> None:
        """Wait until everything is shown."""


class Pipes:
    """Plain input and output, line by line, for scripts."""

    is_terminal = False

    def __init__(self) -> None:
        self._unread = b""
        self._ended = False

    def show(self, *lines: Line) -> None:
        for line in lines:
            sys.stdout.write(plain(clean(line)) + "\n")
        sys.stdout.flush()

    async def read(self) -> str | None:
        while b"\n" not in self._unread and not self._ended:
            chunk = await _read_some(sys.stdin.fileno())
            self._ended = not chunk
            self._unread += chunk
        line, found, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace") if found or line else None

    async def finish(self) -> None:
        sys.stdout.flush()


async def _read_some(descriptor: int) -> bytes:
    """Read what is available. This uses no thread, which would still wait for input at exit."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except OSError:
        return os.read(descriptor, _CHUNK_BYTES)  # a regular file is always readable, and cannot be polled
    try:
        await readable.wait()
        return os.read(descriptor, _CHUNK_BYTES)
    finally:
        loop.remove_reader(descriptor)


class Terminal:
    """An input line at the bottom of the screen, with history and completion. Output scrolls above it."""

    is_terminal = True

    def __init__(self, *, prompt: Callable[[], Line], on_interrupt: Callable[[], None], history: Path | None) -> None:
        # Imported here, because scripts do not need it.
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, DynamicCompleter
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.input.vt100 import Vt100Input
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
        from prompt_toolkit.output.vt100 import Vt100_Output
        from prompt_toolkit.shortcuts import CompleteStyle
        from prompt_toolkit.styles import Style

        self.completer: Completer | None = None
        self._style = Style.from_dict(STYLES)
        # Do not ask the terminal for the cursor's position: some never answer, and remote ones answer late.
        self._output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
        self._output.enable_cpr = False

        class QuietInput(Vt100Input):
            def cooked_mode(self) -> contextlib.nullcontext[None]:
                """Stay in raw mode while lines are printed, so that the terminal does not echo what is typed."""
                return contextlib.nullcontext()

        keys = KeyBindings()

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                on_interrupt()

        self._session: PromptSession[str] = PromptSession(
            lambda: _fragments(clean(prompt())),
            style=self._style,
            input=QuietInput(sys.stdin),
            output=self._output,
            key_bindings=keys,
            completer=DynamicCompleter(lambda: self.completer),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            history=FileHistory(str(history)) if history is not None else InMemoryHistory(),
            erase_when_done=True,
        )
        self._waiting: list[Line] = []
        self._printing: asyncio.Task[None] | None = None
        self._on_interrupt = on_interrupt
        # The input line would handle the signal only while it is shown, and between two lines it would end the program.
        self._handler_before = signal.getsignal(signal.SIGINT)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupted)

    def _interrupted(self) -> None:
        application = self._session.app
        if application.is_running:
            application.key_processor.send_sigint()
        else:
            self._on_interrupt()

    def show(self, *lines: Line) -> None:
        self._waiting += map(clean, lines)
        if self._waiting and (self._printing is None or self._printing.done()):
            self._printing = asyncio.get_running_loop().create_task(self._print())

    async def _print(self) -> None:
        """Print all waiting lines at once, so that the input line is redrawn only once."""
        from prompt_toolkit.application import in_terminal
        from prompt_toolkit.renderer import print_formatted_text

        while self._waiting:
            async with in_terminal():
                lines, self._waiting = self._waiting, []
                for line in lines:
                    print_formatted_text(self._output, _fragments([*line, ("plain", "\n")]), self._style)
                self._output.flush()

    async def read(self) -> str | None:
        try:
            line: str = await self._session.prompt_async(set_exception_handler=False, handle_sigint=False)
        except EOFError:
            return None
        return line

    async def finish(self) -> None:
        if self._printing is not None:
            await self._printing
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, self._handler_before)


def _fragments(line: Line) -> FormattedText:
    from prompt_toolkit.formatted_text import FormattedText

    return FormattedText((f"class:{style}", text) for style, text in line)


@contextlib.contextmanager
def restored_terminal() -> Iterator[None]:
    """Restore the settings of the terminal after this block."""
    try:
        before = termios.tcgetattr(sys.stdin.fileno())
    except (termios.error, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)
