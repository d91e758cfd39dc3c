"""What a received frame costs: the SDK's subscribe() against the websockets library's bare `async for`.

Both read the same stream from the same gateway at the same time, each in a process of its own, and count frames.
What is compared is the CPU time of the two processes from the first frame to the last.

make bench-sdk
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from saturate import SIZE, drain, join, masked, read_message

from support import GatewayProcess, space_config, token_of

FRAMES = 200_000
FRAMES_PER_SECOND = 25_000
ROUNDS = 5


async def with_sdk(url: str, count: int) -> float:
    import mewstream

    async with mewstream.connect(url, participant="sdk", token=token_of("sdk")) as space:
        frames = space.subscribe(await space.stream("stream-1"), max_pending=count)
        print("ready", flush=True)
        left = count
        started = 0.0
        async for frame in frames:
            assert not frame.gap
            if left == count:
                started = time.process_time()
            left -= 1
            if not left:
                break
        return time.process_time() - started


async def with_websockets(url: str, count: int) -> float:
    from websockets.asyncio.client import connect

    async with connect(f"{url}/ws", compression=None) as connection:
        await connection.send(json.dumps({"type": "join", "participantId": "plain", "token": token_of("plain")}))
        await connection.recv()
        print("ready", flush=True)
        left = count
        started = 0.0
        async for _ in connection:
            if left == count:
                started = time.process_time()
            left -= 1
            if not left:
                break
        return time.process_time() - started


READERS = {"sdk": with_sdk, "websockets": with_websockets}


def measure(gateway: GatewayProcess) -> dict[str, float]:
    """CPU seconds of each reader for the same frames."""
    sender = join(gateway.port, "writer", token_of("writer"))
    sender.sendall(masked(b'{"kind":"stream/request","payload":{"target":["sdk","plain"]}}'))
    while json.loads(read_message(sender))["kind"] != "stream/open":
        pass
    command = [sys.executable, __file__]
    readers = {
        name: subprocess.Popen([*command, name, gateway.ws_url], stdout=subprocess.PIPE, text=True) for name in READERS
    }
    for reader in readers.values():
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    time.sleep(0.5)  # joins and their presence messages are over
    drain([sender])
    frame = masked(b"#stream-1#" + b"x" * SIZE) * 100
    started = time.perf_counter()
    for number in range(FRAMES // 100):
        # Not faster than the slower of the two can read, or the gateway would drop frames for it.
        time.sleep(max(0.0, started + number * 100 / FRAMES_PER_SECOND - time.perf_counter()))
        sender.sendall(frame)
    seconds = {}
    for name, reader in readers.items():
        assert reader.stdout is not None
        seconds[name] = float(reader.stdout.readline())
        assert reader.wait() == 0
    sender.close()
    return seconds


def main() -> None:
    config = space_config("writer", "sdk", "plain")
    ratios = []
    for number in range(ROUNDS):
        with tempfile.TemporaryDirectory() as directory:
            gateway = GatewayProcess(Path(directory), config).start()
            try:
                seconds = measure(gateway)
            finally:
                gateway.stop()
        ratios.append(seconds["sdk"] / seconds["websockets"])
        each = ", ".join(f"{name} {value / FRAMES * 1e6:.2f} us" for name, value in seconds.items())
        print(f"round {number + 1}: CPU per frame of {SIZE} bytes: {each}; ratio {ratios[-1]:.3f}")
    print(f"median ratio {statistics.median(ratios):.3f} (aim: at most 0.333)")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(asyncio.run(READERS[sys.argv[1]](sys.argv[2], FRAMES)))
    else:
        main()
