"""The character server of seed 001, written with the Python SDK. It prints what it sees, one JSON line each."""

import asyncio
import json
import sys

import mewstream


def say(*what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def read(stream: mewstream.Stream) -> None:
    async for frame in stream.subscribe():
        say("frame", frame.writer, frame.json() if frame.is_text else frame.data.hex(), frame.gap)


async def main(url: str, token: str) -> None:
    async with mewstream.connect(url, participant="character-server", token=token) as space:
        events = space.events()
        stream = await space.announce(name="position", target=["character-server", "player1", "player2", "ai-agent"])
        await stream.start()

        @space.tool
        async def claim_control(call: mewstream.Call, character: int) -> dict[str, bool]:
            """Take control of a character."""
            if call.sender == "ai-agent":
                await stream.transfer("ai-agent", reason="AI takes over")
            else:
                await stream.grant(call.sender, reason="claimed control")
            return {"granted": True}

        reading = asyncio.create_task(read(stream))
        say("ready", stream.id)
        async for event in events:
            match event:
                case mewstream.Left(participant="player1"):
                    await stream.revoke("player1", reason="player disconnected")
                case mewstream.WriteGranted() | mewstream.WriteRevoked():
                    say(type(event).__name__, event.participant, event.reason)
                case mewstream.OwnershipTransferred(new_owner=new_owner):
                    say("OwnershipTransferred", new_owner)
                case mewstream.Chat(sender=sender, text=text):
                    say("Chat", sender, text)
                case mewstream.StreamClosed(how=how):
                    say("StreamClosed", how)
                    break
        await reading


asyncio.run(main(*sys.argv[1:]))
