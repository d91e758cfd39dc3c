"""Server pings: who answers stays, who does not is let go."""

from __future__ import annotations

from raw_socket import PING, PONG, RawSocket, ws_frame

from mewstream.protocol.close_codes import CloseReason
from support import joined, running_gateway, space_config

CONFIG = space_config("alice", "mallory", gateway={"ping_interval": 0.3})


async def test_who_does_not_answer_is_let_go() -> None:
    with running_gateway(CONFIG) as gateway:
        async with joined(gateway, "alice") as (alice,), await RawSocket.joined(gateway.port, "mallory") as raw:
            frames, code = await raw.read_to_close()
            assert PING in [frame.opcode for frame in frames], "it was asked first"
            assert code == CloseReason.PING_TIMEOUT.value.code
            await alice.receive("system/presence", event="leave")
            await alice.settle()  # a library answers by itself: alice is still here


async def test_who_answers_stays() -> None:
    with running_gateway(CONFIG) as gateway:
        async with await RawSocket.joined(gateway.port, "mallory") as raw:
            for _ in range(4):
                await raw.read_until(lambda frame: frame.opcode == PING)
                await raw.send(ws_frame(PONG, b""))
