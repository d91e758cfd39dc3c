"""What those who poll the past cost one who comes back: a resume alone, and beside 40 requests for all there was.

python benchmarks/history_reads.py [records]
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import aiohttp
import psutil

from support import Client, GatewayProcess, space_config, token_of

RECORDS = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
#: What one who comes back has missed: more than is kept in memory lies after it.
MISSED = 5_000
POLLERS = [f"poller-{number}" for number in range(10)]
#: Of each of them; more at a time are refused.
AT_A_TIME = 4
ROUNDS = 5


async def write(gateway: GatewayProcess) -> tuple[dict[str, object], int]:
    """A long log. Where a reader was that has missed ``MISSED`` of it, some way before the end."""
    writer = await gateway.join("writer", extensions=["positions"])
    reader = await gateway.join("reader", extensions=["positions"])
    epoch = writer.welcome["payload"]["epoch"]
    stream = await writer.open_stream()
    await reader.close()
    seq = 0
    for start in range(0, RECORDS, 1000):
        await asyncio.gather(*(writer.frame(stream, f"{number:>100}") for number in range(start, start + 1000)))
        await writer.settle()
        writer.got.clear()
    _, answer = await gateway.http("GET", "/streams", "writer")
    seq = answer["seq"]
    await writer.close()
    return {"epoch": epoch, "seq": seq - MISSED}, seq


async def resumed(gateway: GatewayProcess, position: dict[str, object]) -> float:
    """Seconds until everything that was missed is here."""
    began = time.perf_counter()
    client = await Client.connect(f"{gateway.ws_url}/ws")
    join = {"type": "join", "participantId": "reader", "token": token_of("reader"), "extensions": ["positions"]}
    await client.send_raw(json.dumps({**join, "resume": position}))
    welcome = await client.receive("system/welcome", timeout=300)
    assert welcome["payload"]["resume"]["recovered"], welcome["payload"]["resume"]
    await client.settle()
    took = time.perf_counter() - began
    assert len(client.got) > MISSED
    await client.close()
    return took


async def poll(session: aiohttp.ClientSession, gateway: GatewayProcess, who: str, counts: dict[int, int]) -> None:
    url = f"{gateway.url}/participants/{who}/messages?since=1"
    headers = {"Authorization": f"Bearer {token_of(who)}"}
    while True:
        async with session.get(url, headers=headers) as response:
            await response.read()
            counts[response.status] = counts.get(response.status, 0) + 1


async def main() -> None:
    config = space_config(
        "writer",
        "reader",
        always_here=POLLERS,
        gateway={"drain_seconds": 0},
        mewstream={"limits": {"resume_records": 2 * MISSED}},
    )
    with tempfile.TemporaryDirectory() as directory:
        options = ("--data", f"{directory}/data")
        gateway = GatewayProcess(Path(directory), config, options=options).start()
        position, _ = await write(gateway)
        # From the journal, not from memory: a start has nothing in memory.
        gateway.stop()
        gateway.start()
        process = psutil.Process(gateway.pid)
        before = process.memory_info().rss
        alone = [await resumed(gateway, position) for _ in range(ROUNDS)]
        counts: dict[int, int] = {}
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            polling = [
                asyncio.create_task(poll(session, gateway, who, counts)) for who in POLLERS for _ in range(AT_A_TIME)
            ]
            await asyncio.sleep(1)
            beside, most = [], 0
            for _ in range(ROUNDS):
                beside.append(await resumed(gateway, position))
                most = max(most, process.memory_info().rss)
            for task in polling:
                task.cancel()
            await asyncio.gather(*polling, return_exceptions=True)
        gateway.stop()
    one, other = statistics.median(alone), statistics.median(beside)
    print(f"a log of {RECORDS:,} frames, {MISSED:,} of them missed; {len(POLLERS) * AT_A_TIME} requests for since=1")
    print(f"resume alone        {one:8.2f} s")
    print(f"resume beside them  {other:8.2f} s   ratio {other / one:.1f}")
    print(f"memory beside them  {(most - before) / 2**20:+8.0f} MiB   answers {counts}")


if __name__ == "__main__":
    asyncio.run(main())
