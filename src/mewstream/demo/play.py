"""The session itself: a game in which the control of a character passes from one to another.

Every act is a function, so that the order of :func:`perform` reads as the story does.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import mewstream
from mewstream import Format, Space, Stream
from mewstream.demo.gateway import SPACE, DemoGateway
from mewstream.demo.proxy import CuttableNetwork
from mewstream.demo.rogue import raw_client
from mewstream.protocol import kinds

Say = Callable[[str, str], None]
"""Tells the user: who does it, and what."""

FRAMES_PER_SECOND = 20
TELEMETRY = Format(
    id="telemetry",
    mime_type="application/json",
    schema={
        "type": "object",
        "properties": {
            "health": {"type": "number", "minimum": 0, "maximum": 100},
            "place": {"type": "string"},
            "sent_at": {"type": "string"},
        },
        "required": ["health", "place"],
        "additionalProperties": False,
    },
)


class Cast:
    """Who can be asked to join, and what everyone must know of the game."""

    def __init__(self, gateway: DemoGateway, say: Say, pace: float) -> None:
        self.gateway = gateway
        self.say = say
        self.pace = pace

    @contextlib.asynccontextmanager
    async def joined(self, participant: str, url: str | None = None) -> AsyncIterator[Space]:
        token = self.gateway.tokens[participant]
        backoff = mewstream.Backoff(first=0.1, most=0.5)
        address = url or self.gateway.url
        async with mewstream.connect(
            address, space=SPACE, participant=participant, token=token, reconnect=backoff
        ) as space:
            yield space

    async def steer(self, stream: Stream, seconds: float, *, speed: float = 1.0) -> int:
        """Write positions in time, each with the moment it was made. Returns how many were written."""
        count = round(seconds * self.pace * FRAMES_PER_SECOND)
        begin = asyncio.get_running_loop().time()
        for place in range(count):
            angle = speed * place / 10
            position = {"x": round(math.cos(angle), 3), "y": round(math.sin(angle), 3), "sent_at": _now()}
            try:
                await stream.send(position)
            except mewstream.UnauthorizedStreamWrite:
                return place
            await asyncio.sleep(max(0.0, begin + (place + 1) / FRAMES_PER_SECOND - asyncio.get_running_loop().time()))
        await stream.flush()
        return count

    async def breathe(self) -> None:
        """Give those who watch a moment, where it is played slowly."""
        await asyncio.sleep(2 * (self.pace - 1))


async def perform(gateway: DemoGateway, say: Say, *, pace: float = 1.0) -> None:
    """Play it, in about half a minute, or slower by ``pace``."""
    cast = Cast(gateway, say, pace)
    async with cast.joined("character-server") as server:
        hero = await server.open_stream(
            description="the hero: who may write steers it", content_type="application/json", on_slow="latest"
        )
        say("character-server", f"opens {hero.id}, the hero, and steers it until players come")
        _serve_tools(server, hero, say)
        telemetry = asyncio.create_task(_telemetry(cast, server))
        await cast.steer(hero, 2)
        async with cast.joined("alice") as alice, CuttableNetwork(gateway.port) as network:
            await _alice_asks_for_control(cast, alice, hero)
            await cast.breathe()
            async with cast.joined("bob") as bob:
                async with cast.joined("scout-ai", network.url) as scout:
                    await _bob_gets_a_few_frames(cast, bob, hero)
                    await cast.breathe()
                    await _scout_gets_some_time(cast, scout, server, hero)
                    await cast.breathe()
                    _, thoughts, _, _ = await asyncio.gather(
                        _ownership_moves_on(cast, server, alice, bob, hero),
                        _network_is_cut(cast, network, scout, bob),
                        _mallory_tries(cast, hero),
                        _sensor_skips_numbers(cast, server),
                    )
                await _one_reads_too_slowly(cast, server)
                await _agent_has_left_its_stream(cast, bob, thoughts)
                await _one_comes_late(cast)
            await cast.steer(alice.streams[hero.id], 1.5)
            await telemetry
            await alice.streams[hero.id].close(reason="the game is over")
            await server.chat("thank you for playing")
    say("everyone", "leaves")


def _serve_tools(server: Space, hero: Stream, say: Say) -> None:
    async def request_control() -> str:
        [player] = [each for each in ("alice",) if each in server.participants]
        await hero.grant(player, reason="asked for it by a tool call")
        say("character-server", f"grants {player} the hero")
        return "the hero is yours"

    server.tool("request_control", request_control, {"type": "object"}, description="Ask for the hero.")


# -- the acts -------------------------------------------------------------------------------------


async def _telemetry(cast: Cast, server: Space) -> None:
    """An announced stream with a JSON Schema, in which not everything fits."""
    async with server.announce(formats=[TELEMETRY], name="telemetry", intent="health and place of the hero") as stream:
        cast.say("character-server", f"announces {stream.id} with a JSON Schema, and starts it")
        await stream.start()
        for number in range(1, 95):
            content: dict[str, Any] = {"health": 100 - number % 60, "place": "tower", "sent_at": _now()}
            if number % 30 == 0:
                content = {"health": 250, "place": "nowhere"} if number % 60 else {"mood": "odd"}
            await stream.send(content)
            await asyncio.sleep(0.2 * cast.pace)
    cast.say("character-server", "completes the telemetry")


async def _alice_asks_for_control(cast: Cast, alice: Space, hero: Stream) -> None:
    cast.say("alice", f"joins, sees {_streams_in_words(alice)}, and asks for control by a tool")
    await alice.call_tool("request_control", to="character-server")
    await cast.steer(alice.streams[hero.id], 3, speed=2)
    await hero.revoke("alice", reason="the turn is over")
    cast.say("character-server", "revokes alice: no frame of hers comes after that")


async def _bob_gets_a_few_frames(cast: Cast, bob: Space, hero: Stream) -> None:
    await hero.grant("bob", max_frames=40, reason="forty frames and no more")
    cast.say("character-server", "grants bob, who came later, forty frames")
    await bob.stream(hero.id)
    written = await cast.steer(bob.streams[hero.id], 3, speed=-1)
    cast.say("bob", f"writes {written} frames, until the right is spent")


async def _scout_gets_some_time(cast: Cast, scout: Space, server: Space, hero: Stream) -> None:
    proposal = await scout.propose("tools/call", {"name": "request_control", "arguments": {}}, to="character-server")
    cast.say("scout-ai", "proposes to steer, as an agent should")
    await cast.breathe()
    until = datetime.now(UTC) + timedelta(seconds=2.5 * cast.pace)
    await hero.grant("scout-ai", expires_at=until, reason="the agent may try for a moment")
    await proposal.withdraw(reason="granted already")
    cast.say("character-server", f"grants the agent {2.5 * cast.pace:g} seconds")
    written = await cast.steer(scout.streams[hero.id], 4, speed=3)
    cast.say("scout-ai", f"writes {written} frames, until time has revoked it")
    await server.chat("well steered")


async def _ownership_moves_on(cast: Cast, server: Space, alice: Space, bob: Space, hero: Stream) -> None:
    await hero.transfer("alice", reason="alice knows the hero best", retain_write=True)
    cast.say("character-server", "makes alice the owner, and keeps the right to write")
    hers = alice.streams[hero.id]
    await hers.flush()
    await hers.grant("bob", reason="together")
    cast.say("alice", "as the owner now, lets bob write too")
    await asyncio.gather(
        cast.steer(hers, 3), cast.steer(bob.streams[hero.id], 3, speed=-2), cast.steer(server.streams[hero.id], 1)
    )
    await hers.revoke("character-server", reason="the players take over")


async def _network_is_cut(cast: Cast, network: CuttableNetwork, scout: Space, bob: Space) -> Stream:
    """The agent's own stream, a torn connection in the middle, and nothing lost."""
    thoughts = await scout.open_stream(description="what the agent sees", on_owner_leave="transfer")
    await thoughts.grant("bob", reason="in case I go")
    with scout.events() as news:
        await cast.steer(thoughts, 1)
        network.cut()
        cast.say("scout-ai", "loses its network in the middle of a stream")
        await asyncio.sleep(1.2)
        network.mend()
        async for event in news:
            if isinstance(event, mewstream.Resumed):
                how = "with nothing lost" if event.recovered else f"anew: {event.reason}"
                cast.say("scout-ai", f"is back within the grace, {how}")
                break
    await cast.steer(thoughts, 1)
    return bob.streams[thoughts.id]


async def _sensor_skips_numbers(cast: Cast, server: Space) -> None:
    """Numbers that are skipped are a gap, until they come later after all."""
    telemetry = server.streams["telemetry"]
    token = cast.gateway.tokens["old-sensor"]
    for numbers in (range(1, 6), range(9, 15)), (range(6, 8),):
        async with raw_client(cast.gateway.url, SPACE, "old-sensor", token) as sensor:
            await telemetry.grant("old-sensor", reason="it measures health too")
            for number in [each for several in numbers for each in several]:
                content = {"health": number, "place": "pit"}
                await sensor.send(kinds.STREAM_DATA, stream_id=telemetry.id, sequence=number, content=content)
            await sensor.listen(0.4)
        await asyncio.sleep(0.4)
    cast.say("old-sensor", "skips three sequence numbers, and brings two of them later")


async def _agent_has_left_its_stream(cast: Cast, bob: Space, thoughts: Stream) -> None:
    """Policy: a stream that is left behind goes to the writer of longest standing."""
    with bob.events() as news:
        async with asyncio.timeout(20):
            while not thoughts.is_mine:
                await anext(news)
    cast.say("gateway", f"makes bob the owner of {thoughts.id}, which the agent has left: that is its policy")
    await cast.steer(thoughts, 1)


async def _mallory_tries(cast: Cast, hero: Stream) -> None:
    async with raw_client(cast.gateway.url, SPACE, "mallory", cast.gateway.tokens["mallory"]) as mallory:
        for place in range(12):
            await mallory.frame(hero.id, f'{{"x":{place},"y":-1}}')
        await mallory.frame("stream-99", "is anybody there?")
        await mallory.send(kinds.WRITE_GRANTED, stream_id=hero.id, participant_id="mallory")
        await mallory.send(kinds.GRANT_WRITE, stream_id=hero.id, participant_id="mallory")
        await mallory.send(kinds.TRANSFER_OWNERSHIP, stream_id=hero.id, new_owner="mallory")
        await mallory.send(kinds.STREAM_REQUEST, direction="upload", description="mine")
        await mallory.send(kinds.STREAM_CLOSE, stream_id=hero.id)
        await mallory.listen(1.5)
        cast.say("mallory", f"writes, forges, grants and closes: {', '.join(sorted(set(mallory.refused)))}")
        await mallory.frame(hero.id, "still here")
        await mallory.listen(0.5)


async def _one_reads_too_slowly(cast: Cast, server: Space) -> None:
    token = cast.gateway.tokens["slow-screen"]
    async with raw_client(cast.gateway.url, SPACE, "slow-screen", token, narrow=True):
        picture = os.urandom(48 << 10)
        async with server.open_stream(
            description="pictures, too many for some", content_type="image/raw", on_slow="drop-oldest"
        ) as pictures:
            for _ in range(220):
                await pictures.send(picture)
                await asyncio.sleep(0.004)
            await pictures.flush()
            await asyncio.sleep(0.5)
        cast.say("slow-screen", "reads nothing at all: it misses frames, everybody else gets all")


async def _one_comes_late(cast: Cast) -> None:
    async with cast.joined("commentator") as commentator:
        cast.say("commentator", f"joins late and sees at once {_streams_in_words(commentator)}")
        await commentator.chat("what a game")


def _streams_in_words(space: Space) -> str:
    seen = [f"{stream.id} of {stream.owner}" for stream in space.streams.values()]
    return f"{len(seen)} {'stream' if len(seen) == 1 else 'streams'}: {', '.join(seen)}" if seen else "no stream"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
