"""``mewstream tail``: print what happens in a stream or a space."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import click

from mewstream.cli.daemon_thread import DaemonThread, write_all
from mewstream.cli.identity import Identity, participant_options
from mewstream.cli.name_suggestions import suggest_streams
from mewstream.cli.output import complain, printable, quietly
from mewstream.cli.runner import connection_reports, run
from mewstream.cli.values import time_span
from mewstream.protocol.errors import MewError

if TYPE_CHECKING:
    from mewstream.client import Events, Frame, Subscription
    from mewstream.client.events import Event

Form = Literal["text", "json", "raw"]
#: Lines that are written at once, if they arrive faster than they can be written.
BATCH = 1000


@click.command()
@click.argument("stream", required=False, shell_complete=suggest_streams)
@click.option("--json", "form", flag_value="json", help="One JSON object per line.")
@click.option("--raw", "form", flag_value="raw", help="Only the data: text with a line end, bytes as they are.")
@click.option(
    "--all",
    "shows_all",
    is_flag=True,
    help="Print every message, including requests whose answer is printed anyway, and acknowledgements.",
)
@click.option("--count", "-n", type=click.IntRange(1), help="Stop after this number of lines; with --raw, of frames.")
@click.option(
    "--for", "seconds", metavar="TIME", callback=time_span(), help="Stop after this time: 30 (seconds), 15m, 12h."
)
@participant_options
@quietly
def tail(
    identity: Identity, stream: str | None, form: Form | None, shows_all: bool, count: int | None, seconds: float | None
) -> None:
    """Print the frames of STREAM (an id or an alias) as they arrive; without STREAM, all frames and events.

    It ends when STREAM ends. It connects by WebSocket, which replaces any other connection of the same
    participant, so use a participant that is not connected elsewhere. A lost connection is restored
    automatically; messages on stderr report this and any missing frames. It never slows down the space: if
    its output is read too slowly, it drops frames and says how many.

    Each operation is printed once: opening a stream is printed as stream-opened, without the request for it.

    Exit code 0: the stream has ended, --count or --for is reached, or the reader of the output is gone.
    3: the connection is lost for good. 130: Ctrl-C.

    \b
    Examples:
      mewstream tail --as viewer
      mewstream tail --as viewer movement --json | jq -r .data
      mewstream tail --as viewer stream-1 --raw --count 1
      mewstream tail --as viewer --json --for 10m > what-happened.jsonl
    """
    if form == "raw" and stream is None:
        raise click.UsageError("--raw is for the data of one stream: name it")
    if shows_all and stream is not None:
        raise click.UsageError("--all is for the whole space: a stream has frames only")
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    run(_tail(identity, stream, Printer(form or "text", count, colours, shows_all), seconds))


@dataclass(slots=True)
class Printer:
    """Writes lines to stdout, several at once if they arrive faster than they can be written."""

    form: Form
    left: int | None
    """How many lines are still to be printed; None for no limit."""
    colours: bool
    shows_all: bool
    """Whether to print events that repeat another one."""
    _lines: list[bytes] = field(default_factory=list)
    _thread: DaemonThread = field(default_factory=DaemonThread)

    @property
    def pending(self) -> int:
        return len(self._lines)

    @property
    def is_done(self) -> bool:
        return self.left == 0

    def frame(self, frame: Frame) -> None:
        from mewstream.cli import event_format

        if frame.gap:
            before = f" before seq {frame.seq}" if frame.seq is not None else ""
            complain(f"{printable(frame.stream)}: {frame.gap} frames are missing{before}")
        if self.form == "json":
            self._add(event_format.frame_json(frame) + b"\n")
        elif self.form == "raw":
            self._add(frame.data + b"\n" if frame.is_text else frame.data)
        else:
            self._add(event_format.frame_text(frame, colours=self.colours).encode() + b"\n")

    def event(self, event: Event) -> None:
        from mewstream.cli import event_format
        from mewstream.cli.duplicates import is_duplicate

        if is_duplicate(event) and not self.shows_all:
            return
        if self.form == "json":
            self._add(event_format.event_json(event) + b"\n")
        else:
            self._add(event_format.event_text(event, colours=self.colours).encode() + b"\n")

    def _add(self, line: bytes) -> None:
        if not self.is_done:
            self._lines.append(line)
            if self.left is not None:
                self.left -= 1

    async def flush(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            await self._thread.call(write_all, sys.stdout.fileno(), b"".join(lines))


async def _tail(identity: Identity, stream: str | None, printer: Printer, seconds: float | None) -> None:
    async with identity.connect() as space, connection_reports(space):
        try:
            async with asyncio.timeout(seconds) as limit:
                if stream is None:
                    feeds = await space.subscribe(), space.events()
                    complain(f"listening to the space as {printable(space.participant)}")
                    await _everything(*feeds, printer)
                else:
                    known = "listening to" if stream in space.streams else "waiting for"
                    frames = await space.subscribe(stream)
                    complain(f"{known} {printable(stream)} as {printable(space.participant)}")
                    await _frames(frames, printer)
        except (TimeoutError, MewError) as end:
            await printer.flush()
            if not (isinstance(end, TimeoutError) and limit.expired()):
                raise


async def _frames(frames: Subscription, printer: Printer) -> None:
    async for frame in frames:
        printer.frame(frame)
        if printer.is_done:
            break
        if not frames.pending or printer.pending >= BATCH:
            await printer.flush()
    await printer.flush()


async def _everything(frames: Subscription, events: Events, printer: Printer) -> None:
    """Print frames and events in the order of the space.

    They arrive in two queues. Together, both queues hold everything up to some position of the space, so what is taken
    from them is sorted by position before it is printed."""
    feeds: dict[asyncio.Task[Any], tuple[Any, Callable[[Any], None]]] = {}

    def listen(feed: Any, show: Callable[[Any], None]) -> None:
        feeds[asyncio.create_task(_next(feed))] = (feed, show)

    listen(frames, printer.frame)
    listen(events, printer.event)
    taken: list[tuple[int, Callable[[Any], None], Any]] = []
    last = 0
    try:
        while feeds and not printer.is_done:
            done, _ = await asyncio.wait(feeds, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                feed, show = feeds.pop(task)
                if (entry := task.result()) is None:
                    continue
                last = entry.seq if entry.seq is not None else last
                taken.append((last, show, entry))
                listen(feed, show)
            if len(taken) >= BATCH or not (frames.pending or events.pending):
                _show(taken)
                await printer.flush()
    finally:
        _show(taken)
        for task in feeds:
            task.cancel()
    await printer.flush()


async def _next(feed: Any) -> Any:
    """Return the next entry; None at the end."""
    return await anext(feed, None)


def _show(taken: list[tuple[int, Callable[[Any], None], Any]]) -> None:
    for _, show, entry in sorted(taken, key=lambda each: each[0]):
        show(entry)
    taken.clear()
