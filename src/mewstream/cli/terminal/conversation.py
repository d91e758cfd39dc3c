"""Taking typed lines and carrying them out, while everything that happens is shown."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from mewstream.cli.terminal.commands import ParsedLine, parse_line
from mewstream.cli.terminal.narrator import stamped
from mewstream.cli.terminal.session import Session
from mewstream.protocol.errors import MewError

#: For what was typed last, when the person leaves.
LAST_SECONDS = 2.0


class Conversation:
    """On a terminal the input line never waits: what takes long is carried out meanwhile, the rest one
    after the other. A script's lines are carried out one after the other."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._turn = asyncio.Lock()
        self._running: dict[asyncio.Task[None], str] = {}
        self.has_failed = False
        """Whether anything that was typed could not be carried out."""

    async def run(self) -> None:
        """Until the person leaves; raises when the connection ends for good."""
        session = self._session
        narrating = asyncio.create_task(session.narrate(session.space.events()))
        typing = asyncio.create_task(self._take_lines())
        leaving = asyncio.create_task(session.leaving.wait())
        session.greet()
        try:
            ends: list[asyncio.Future[Any]] = [session.crash, typing, narrating, leaving]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            # Typing ends first: what is still to be said then finds the terminal whole.
            await _end(typing)
            for ended in ends:
                if ended.done() and not ended.cancelled():
                    ended.result()
            if self._running:
                await asyncio.wait(list(self._running), timeout=LAST_SECONDS)
            self.interrupt()
            await session.space.drain()
            await asyncio.gather(narrating, session.finish_watching())
        finally:
            session.stop_watching()
            for task in (typing, narrating, leaving, *self._running):
                await _end(task)
            await session.screen.finish()

    def interrupt(self) -> None:
        """Wait no longer for what is being carried out."""
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
            doing = parse_line(line)
        except MewError as mistake:
            self._failed(mistake)
            return None
        task = self._session.start(self._carry_out(doing))
        self._running[task] = line
        task.add_done_callback(lambda done: self._running.pop(done, None))
        return task

    async def _carry_out(self, doing: ParsedLine) -> None:
        turn: Any = contextlib.nullcontext() if doing.command.asks_others else self._turn
        try:
            async with turn:
                await doing.command.run(self._session, *doing.values)
        except MewError as error:
            self._failed(error)

    def _failed(self, error: MewError) -> None:
        self.has_failed = True
        self._session.show(stamped(("bad", str(error))))


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it is over; what it raised is for others to see."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
