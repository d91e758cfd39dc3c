"""Running the typed lines, while events are shown."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from mewstream.cli.terminal.commands import ParsedLine, parse_line
from mewstream.cli.terminal.narrator import stamped
from mewstream.cli.terminal.session import Session
from mewstream.protocol.errors import MewError

#: Seconds to finish what was typed last, when the user leaves.
GRACE_SECONDS = 2.0


class Conversation:
    """Reads lines and runs them.

    On a terminal, the input line never blocks: commands run one after the other in the background, and those that wait
    for another participant run alongside them. The lines of a script run strictly one after the other."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._turn = asyncio.Lock()
        self._running: dict[asyncio.Task[None], str] = {}
        self.has_failed = False
        """Whether any typed line failed."""

    async def run(self) -> None:
        """Run until the user leaves. Raises ConnectionClosed if the connection ends for good."""
        session = self._session
        narrating = asyncio.create_task(session.narrate(session.space.events()))
        typing = asyncio.create_task(self._take_lines())
        leaving = asyncio.create_task(session.leaving.wait())
        session.greet()
        try:
            ends: list[asyncio.Future[Any]] = [session.crash, typing, narrating, leaving]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            # End the input line first, so that the last output is not mixed with it.
            await _end(typing)
            for ended in ends:
                if ended.done() and not ended.cancelled():
                    ended.result()
            if self._running:
                await asyncio.wait(list(self._running), timeout=GRACE_SECONDS)
            self.interrupt()
            await session.space.drain()
            await asyncio.gather(narrating, session.finish_watching())
        finally:
            session.stop_watching()
            for task in (typing, narrating, leaving, *self._running):
                await _end(task)
            await session.screen.finish()

    def interrupt(self) -> None:
        """Stop waiting for the commands that are running."""
        for task, line in list(self._running.items()):
            if task.cancel():
                self._session.show(stamped(("warn", f"no longer waiting for {line!r}: it may still be carried out")))

    async def _take_lines(self) -> None:
        screen = self._session.screen
        while not self._session.leaving.is_set() and (line := await screen.read()) is not None:
            line = line.strip()
            if not line:
                continue
            if screen.is_terminal and line.startswith("/"):
                self._session.show([("dim", f"> {line}")])
            task = self._begin(line)
            if not screen.is_terminal and task is not None:
                await task

    def _begin(self, line: str) -> asyncio.Task[None] | None:
        try:
            parsed = parse_line(line)
        except MewError as mistake:
            self._failed(mistake)
            return None
        task = self._session.start(self._run_command(parsed))
        self._running[task] = line
        task.add_done_callback(lambda done: self._running.pop(done, None))
        return task

    async def _run_command(self, parsed: ParsedLine) -> None:
        turn: Any = contextlib.nullcontext() if parsed.command.asks_others else self._turn
        try:
            async with turn:
                await parsed.command.run(self._session, *parsed.values)
        except MewError as error:
            self._failed(error)

    def _failed(self, error: MewError) -> None:
        self.has_failed = True
        self._session.show(stamped(("bad", str(error))))


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended, without raising its exception."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
