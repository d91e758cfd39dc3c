"""``examples/game.py``, as its users run it: a gateway, a server, an AI and four players, each a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mewstream
from mewstream import Frame, Joined, Left, Subscription, WriteGranted, WriteRevoked
from support import GatewayProcess

EXAMPLES = Path(__file__).parents[2] / "examples"
GAME = EXAMPLES / "game.py"
PLAYERS = ("player1", "player2", "player3", "player4")
TURN = 30
PATIENCE = 120.0


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    options = ("--config", str(EXAMPLES / "game.yaml"), "--data", "data")
    gateway = GatewayProcess(tmp_path, options=options).start()
    yield gateway
    gateway.stop()


class Actors:
    """Processes of the game, by the names of their participants."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *arguments: str) -> None:
        self._running[name] = subprocess.Popen(
            [sys.executable, str(GAME), name, *arguments],
            env={**os.environ, "MEW_URL": self._gateway.ws_url},
            stderr=subprocess.PIPE,
            text=True,
        )

    async def interrupt(self, name: str) -> None:
        """As somebody does with Ctrl-C."""
        self._running[name].send_signal(signal.SIGINT)
        await self.end(name)

    async def end(self, name: str) -> None:
        actor = self._running.pop(name)
        _, complaints = await asyncio.to_thread(actor.communicate, timeout=PATIENCE)
        assert (actor.returncode, complaints) == (0, "")

    def close(self) -> None:
        for actor in self._running.values():
            actor.kill()
            actor.communicate()


async def frame_of(hero: Subscription, driver: str, *, after: int = 0) -> Frame:
    """The next frame of a driver, behind a position."""
    async with asyncio.timeout(PATIENCE):
        async for frame in hero:
            assert json.loads(frame.data)["driver"] == frame.writer
            if frame.writer == driver and frame.seq is not None and frame.seq > after:
                return frame
    raise AssertionError(f"no frame of {driver}")


async def event_of(events: mewstream.Events, kind: type[Any], *names: str) -> Any:
    """The next event of a kind about one of these participants."""
    async with asyncio.timeout(PATIENCE):
        async for event in events:
            if isinstance(event, kind) and event.participant in names:
                return event
    raise AssertionError(f"no {kind} {names}")


async def test_the_game(gateway: GatewayProcess) -> None:
    with contextlib.closing(Actors(gateway)) as actors:
        async with mewstream.connect(gateway.ws_url, participant="viewer", token="dev-viewer") as viewer:
            everything, rights = viewer.events(), viewer.events()
            actors.start("server")
            actors.start("ai")
            stream = await viewer.stream("hero", timeout=PATIENCE)
            hero = stream.subscribe(max_pending=1_000_000)
            await frame_of(hero, "ai")

            # Each of four players gets a turn of its own, and the AI the time after the last.
            for player in PLAYERS:
                actors.start(player, "1")
            drove = {(await event_of(rights, WriteGranted, *PLAYERS)).participant for _ in PLAYERS}
            assert drove == set(PLAYERS)
            for player in PLAYERS:
                await actors.end(player)
            await event_of(rights, WriteGranted, "ai")

            # A player that quits while it drives is followed by the AI.
            actors.start("player1")
            taken = await event_of(rights, WriteGranted, "player1")
            await frame_of(hero, "player1", after=taken.seq)
            await actors.interrupt("player1")
            await event_of(rights, WriteRevoked, "player1")
            taken = await event_of(rights, WriteGranted, "ai")
            await frame_of(hero, "ai", after=taken.seq)

            # The server is started again: whoever drives goes on, and the next turn is given by the new one.
            news = viewer.events()
            await actors.interrupt("server")
            left = await event_of(news, Left, "server")
            await frame_of(hero, "ai", after=left.seq)
            actors.start("player2", "2")
            await event_of(news, Joined, "player2")
            actors.start("server")
            await event_of(news, Joined, "server")
            for _ in range(2):
                await event_of(news, WriteGranted, "player2")
            await actors.end("player2")
            taken = await event_of(news, WriteGranted, "ai")
            await frame_of(hero, "ai", after=taken.seq)
            assert stream.owner == "server"
            assert list(viewer.streams) == [stream.id], "the stream is the same as before"
            for name in ("ai", "server"):
                await actors.interrupt(name)
    async with asyncio.timeout(PATIENCE):
        await check_drivers(everything)


def test_it_is_short() -> None:
    assert len(GAME.read_text().splitlines()) <= 80


async def check_drivers(everything: mewstream.Events) -> None:
    """At every moment there was one driver, or none."""
    drivers: set[str] = set()
    turns = 0
    async for event in everything:
        if isinstance(event, WriteGranted):
            drivers.add(event.participant)
            turns += 1
        elif isinstance(event, WriteRevoked):
            drivers.discard(event.participant)
        assert len(drivers) <= 1, event
    assert turns >= 10
