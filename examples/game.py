"""A game at 30 frames a second: four players take turns to drive one hero, and an AI drives when none of them does.

mewstream serve --config examples/game.yaml --data data     # the gateway
python examples/game.py server                              # stop it and start it again whenever you like
python examples/game.py ai
python examples/game.py player1                             # and player2 to player4
"""

import asyncio
import os
import sys
from contextlib import suppress

import mewstream
from mewstream import (
    InvalidOperation,
    Joined,
    ParticipantNotFound,
    UnauthorizedStreamWrite,
    WriteGranted,
    WriteRequested,
    WriteRevoked,
)

AI, TURN, FRAME = "ai", 30, 1 / 30


async def serve(space):
    """Own the stream, give a turn to whoever asks first, and the time between to the AI."""
    hero = await space.open_stream(name="hero", if_exists="reuse", description="where the hero is")
    events = space.events()
    await choose_driver(space, hero)  # whatever has happened while we were away
    async for event in events:
        if isinstance(event, WriteRequested | WriteRevoked | Joined):
            await choose_driver(space, hero)


async def choose_driver(space, hero):
    drivers = [each for each in hero.authorized_writers if each != hero.owner]
    asking = next(iter(hero.write_requests), None)
    with suppress(InvalidOperation, ParticipantNotFound):  # somebody has just left, and there is an event of that
        if asking and drivers in ([], [AI]):
            await hero.grant(asking, max_frames=TURN, replaces=AI if drivers else None)
        elif not drivers and AI in space.participants:
            await hero.grant(AI)


async def play(space, turns):
    """Ask for a turn, drive for as long as it lasts, and ask again. The AI takes what it is given."""
    hero, events = await space.stream("hero", timeout=60), space.events()
    for turn in range(turns):
        if space.participant != AI:
            await hero.ask(reason=f"turn {turn + 1} of {turns}")
        while space.participant not in hero.authorized_writers:
            async for event in events:
                if isinstance(event, WriteGranted) and event.participant == space.participant:
                    break
        await drive(space, hero, turn)


async def drive(space, hero, turn):
    step = 0
    while space.participant in hero.authorized_writers:
        with suppress(UnauthorizedStreamWrite):  # the turn was over before this frame was there
            await hero.send({"driver": space.participant, "turn": turn, "step": step})
        step += 1
        await asyncio.sleep(FRAME)


async def main(name, turns="1000000"):
    url = os.environ.get("MEW_URL", "ws://127.0.0.1:8080")
    async with mewstream.connect(url, space="game", participant=name, token=f"dev-{name}") as space:
        await (serve(space) if name == "server" else play(space, int(turns)))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
