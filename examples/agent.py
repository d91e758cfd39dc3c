"""An agent that streams its answer token by token, and a reader that comes late and still gets it from the start.

    mewstream serve --config examples/space.yaml
    python examples/agent.py answer --as agent "What is a stream?"
    python examples/agent.py read --as human

The address and the token are found as the commands find them: see docs/sdk.md, Connecting.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator

import mewstream

ANSWER = "A stream is an ordered log of frames that one participant writes and all others may read."


async def tokens(question: str) -> AsyncIterator[str]:
    """Stands for a language model: replace this by the stream of your own."""
    for token in ANSWER.split(" "):
        yield token + " "
        await asyncio.sleep(0.02)


async def answer(participant: str, question: str, readers: int) -> None:
    """Stream an answer, and wait until the readers that were expected have said that they have it."""
    async with mewstream.connect(participant=participant) as space:
        done = space.events()
        opening = space.open_stream(
            name="answer",
            if_exists="replace",
            content_type="text/plain",
            description=question,
            history="all",  # also for those who were not here yet
        )
        async with opening as stream:
            async for token in tokens(question):
                await stream.send(token)
            await stream.send("", confirm=True)  # an empty token ends the answer
            print(f"answered on {stream.id}", flush=True)
            async for event in done:
                readers -= isinstance(event, mewstream.Chat) and event.text == "read"
                if readers <= 0:
                    break


async def read(participant: str) -> None:
    """Print an answer from its first token, however late we come."""
    async with mewstream.connect(participant=participant) as space:
        await space.stream("answer")
        async for token in space.subscribe("answer", since="start"):
            if not len(token):
                break
            print(token.text, end="", flush=True)
        print()
        await space.chat("read")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=["answer", "read"])
    parser.add_argument("question", nargs="?", default="What is a stream?")
    parser.add_argument("--as", dest="participant", required=True)
    parser.add_argument("--readers", type=int, default=1, help="how many are waited for (default: 1)")
    options = parser.parse_args()
    if options.role == "answer":
        asyncio.run(answer(options.participant, options.question, options.readers))
    else:
        asyncio.run(read(options.participant))


if __name__ == "__main__":
    main()
