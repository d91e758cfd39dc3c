"""The agent of ``examples``, as users run it: in processes of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from support import GatewayProcess, joined, running_gateway, space_config, token_of

PROGRAM = Path(__file__).parents[2] / "examples" / "agent.py"


async def run(gateway: GatewayProcess, *arguments: str) -> asyncio.subprocess.Process:
    participant = arguments[arguments.index("--as") + 1]
    connection = {"MEW_URL": gateway.ws_url, "MEW_SPACE": "demo", "MEW_TOKEN": token_of(participant)}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), *arguments), env=os.environ | connection, stdout=asyncio.subprocess.PIPE
    )


async def test_who_comes_late_reads_from_the_first_token(tmp_path: Path) -> None:
    assert len(PROGRAM.read_text().splitlines()) <= 80
    with running_gateway(space_config("agent", "early", "late"), options=("--data", str(tmp_path / "data"))) as gateway:
        async with joined(gateway, "early"):
            writer = await run(gateway, "answer", "--as", "agent", "--readers", "1")
            assert writer.stdout is not None
            assert b"answered on stream-1" in await asyncio.wait_for(writer.stdout.readline(), 60)
            # The whole answer was there before the reader has joined for the first time.
            reader = await run(gateway, "read", "--as", "late")
            printed, _ = await asyncio.wait_for(reader.communicate(), 60)
            assert printed.decode().strip() == (
                "A stream is an ordered log of frames that one participant writes and all others may read."
            )
            assert reader.returncode == 0
            assert await asyncio.wait_for(writer.wait(), 60) == 0
