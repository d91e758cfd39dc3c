"""The state of a terminal in a space: what the commands work on, and which events are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from mewstream.cli.terminal.arguments import InvalidInput
from mewstream.cli.terminal.lines import Line, listed
from mewstream.cli.terminal.narrator import Narrator, stamped
from mewstream.cli.terminal.proposals import Proposals
from mewstream.cli.terminal.screen import Screen
from mewstream.client import events
from mewstream.client.space import Space
from mewstream.client.stream import Stream
from mewstream.client.subscription import Events, Subscription
from mewstream.protocol.errors import MewError

#: A terminal shows at most this many frames of one stream at a time, with this many seconds between them.
FRAMES_AT_A_TIME = 50
FRAMES_EVERY = 0.05


class Session:
    def __init__(self, space: Space, screen: Screen, *, shows_all: bool = False) -> None:
        self.space = space
        self.screen = screen
        self.narrator = Narrator(space.participant, has_asked=space.has_sent, shows_all=shows_all)
        self.proposals = Proposals()
        self.tools: dict[str, list[str]] = {}
        """The tools of each participant that was asked for them, by participant."""
        self.leaving = asyncio.Event()
        self.crash: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets the exception of a background task."""
        self._watches: dict[str, asyncio.Task[None]] = {}

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a background task. An exception in it ends the session."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.crash.done():
            self.crash.set_exception(error)

    # -- what commands ask for --------------------------------------------------------------------

    def show(self, *lines: Line) -> None:
        self.screen.show(*lines)

    def stream(self, name: str) -> Stream:
        found = self.space.streams.get(name)
        if found is None:
            raise InvalidInput(f"there is no open stream {name!r}: open are {', '.join(self.stream_names()) or 'none'}")
        return found

    def stream_names(self) -> Iterable[str]:
        """The ids and aliases of all open streams."""
        for stream in self.space.streams.values():
            yield stream.id
            if stream.alias is not None:
                yield stream.alias

    def people(self) -> Iterable[str]:
        """The other participants."""
        return self.space.participants

    # -- watching streams -------------------------------------------------------------------------

    @property
    def watched(self) -> tuple[str, ...]:
        return tuple(self._watches)

    def watch(self, name: str) -> None:
        """Show the frames of a stream, now or when it is opened."""
        key = self._key(name)
        if key in self._watches:
            raise InvalidInput(f"{key} is watched already: /unwatch {key} ends that")
        self._watches[key] = self.start(self._show_frames(key, self.space.subscribe(key)))

    def unwatch(self, name: str) -> None:
        key = self._key(name)
        task = self._watches.pop(key if key in self._watches else name, None)
        if task is None:
            raise InvalidInput(f"{name} is not watched: watched are {', '.join(self._watches) or 'none'}")
        task.cancel()

    def _key(self, name: str) -> str:
        known = self.space.streams.get(name)
        return known.id if known is not None else name

    async def _show_frames(self, key: str, subscription: Subscription) -> None:
        """Show the frames of a subscription. A terminal skips frames that arrive faster than people can read."""
        skipped = 0
        try:
            async for frame in subscription:
                if self.screen.is_terminal and subscription.pending >= FRAMES_AT_A_TIME:
                    skipped += 1
                    continue
                self.show(self.narrator.frame(frame, skipped=skipped))
                skipped = 0
                if self.screen.is_terminal and not subscription.pending:
                    await asyncio.sleep(FRAMES_EVERY)
        except MewError:
            pass  # the connection has ended, which is shown as an event
        finally:
            subscription.close()
            if self._watches.get(key) is asyncio.current_task():
                del self._watches[key]

    async def finish_watching(self) -> None:
        """Wait until the last frames of ended streams are shown."""
        tasks = list(self._watches.values())
        if tasks:
            await asyncio.wait(tasks)

    def stop_watching(self) -> None:
        for task in list(self._watches.values()):
            task.cancel()

    # -- what happens -----------------------------------------------------------------------------

    def greet(self) -> None:
        here, streams = listed(self.people()), ", ".join(self.space.streams) or "none"
        self.show(
            stamped(
                *(("good", "joined as "), self.narrator.who(self.space.participant)),
                *(("plain", f"; here: {here}; streams: {streams}"), ("dim", "; /help says what you can type")),
            )
        )

    async def narrate(self, news: Events) -> None:
        async for event in news:
            line = self._line(event)
            if line is not None:
                self.show(line)

    def _line(self, event: events.Event) -> Line | None:
        if isinstance(event, events.ProposalWithdrawn):
            number = self.proposals.number_of_another(event.proposal, than=event.by)
            if number is not None:
                return self.narrator.withdrawn_by_another(event.by, number)
        return self.narrator.line(event, number=self._number_of(event))

    def _number_of(self, event: events.Event) -> int | None:
        match event:
            case events.Proposed(sender=sender) if sender != self.space.participant:
                return self.proposals.add(event)
            case events.ProposalWithdrawn(proposal=id, by=by):
                return self.proposals.withdrawn(id, by)
            case events.ProposalDeclined(proposal=id):
                return self.proposals.settle(id)
            case events.Requested(message=message) if message is not None:
                for id in message.correlation_id:
                    self.proposals.requested(event, id)
        return None
