"""However a connection ends, it is gone soon: its participant leaves, and neither memory nor descriptor is kept."""

from __future__ import annotations

import asyncio
import resource
import struct

import pytest
from raw_socket import CLOSE, TEXT, RawSocket, text, ws_frame

from support import TIMEOUT, GatewayProcess, joined, running_gateway, space_config

#: What a peer sends last, and then neither reads nor goes.
LAST_WORDS = {
    "a broken frame": ws_frame(3),
    "an unmasked frame": ws_frame(TEXT, "x", masked=False),
    "a length that is too much": ws_frame(TEXT, "x", claim=1 << 40),
    "reserved bits": ws_frame(TEXT, "{}", rsv=4),
    "what is not text": ws_frame(TEXT, b"\xff"),
    "a close": ws_frame(CLOSE, struct.pack("!H", 1000)),
    "a bad close": ws_frame(CLOSE, struct.pack("!H", 1005)),
    "a close and a broken frame": ws_frame(CLOSE, struct.pack("!H", 1000)) + ws_frame(3),
}


async def connections(gateway: GatewayProcess) -> float:
    """Open WebSockets, as the gateway counts them."""
    _, exposition = await gateway.http("GET", "/metrics")
    (line,) = [line for line in exposition.splitlines() if line.startswith("mewstream_connections ")]
    return float(line.split()[1])


async def test_of_those_that_do_not_read() -> None:
    """Much waits for them, and nobody takes it: whatever they said last, they are cut off."""
    config = space_config(
        "alice",
        *LAST_WORDS,
        gateway={"drain_seconds": 0},
        mewstream={"delivery": {"write_buffer_bytes": 65_536, "queue_bytes": 1 << 20, "soft_queue_bytes": 1 << 19}},
    )
    for name in LAST_WORDS:
        config["participants"][name]["tokens"] = [name.replace(" ", "-")]
    with running_gateway(config) as gateway:
        async with joined(gateway, "alice") as (alice,):
            deaf = [
                await RawSocket.joined(gateway.port, name, token=name.replace(" ", "-"), receive_buffer=4096)
                for name in LAST_WORDS
            ]
            stream = await alice.open_stream(on_slow="drop-oldest")
            for _ in range(200):
                await alice.frame(stream, "x" * 50_000)
                await alice.receive_frame(stream)
            for raw, last in zip(deaf, LAST_WORDS.values(), strict=True):
                await raw.send(last)
            gone = {
                (await alice.receive("system/presence", event="leave"))["payload"]["participant"]["id"] for _ in deaf
            }
            assert gone == set(LAST_WORDS)
            async with asyncio.timeout(3 * TIMEOUT):
                while await connections(gateway) > 1:
                    pass
            for raw in deaf:
                raw.sock.close()


@pytest.mark.parametrize(
    ("last", "code"),
    [(ws_frame(CLOSE, struct.pack("!H", 1000)), 1000), (ws_frame(TEXT, "{}", rsv=4), 1002), (ws_frame(3), 1002)],
    ids=["a close", "reserved bits", "a broken frame"],
)
async def test_while_the_journal_cannot_be_written(last: bytes, code: int) -> None:
    """What was told before waits for the disk; an end does not wait for ever behind it."""
    config = space_config("alice", "mallory", gateway={"drain_seconds": 0, "data": "data"})
    with running_gateway(config, clean_log=False) as gateway:
        async with await RawSocket.joined(gateway.port, "mallory") as raw:
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
            await raw.send(text({"kind": "chat", "payload": {"text": "nobody hears this"}}))
            async with asyncio.timeout(3 * TIMEOUT):
                while (await gateway.http("GET", "/health"))[1]["status"] != "journal_unavailable":
                    pass
            await raw.send(last)
            assert (await raw.read_to_close())[1] == code
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
