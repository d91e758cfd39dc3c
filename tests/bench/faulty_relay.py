"""A relay before a real gateway that spoils what one client gets, or changes its form without harm.

    python faulty_relay.py GATEWAY_PORT FAULT

Faults: lose, repeat, swap, change (a frame); welcome, presence (what a joiner is told).
Harmless: fragment (messages in pieces), noise (pings and presence in between), binary (text as binary).
"""

from __future__ import annotations

import asyncio
import json
import sys

from mewstream.bench import wire

#: The frame of a connection that is spoilt; the first is the one with which a run begins.
SPOILT = 20


class Relay:
    def __init__(self, port: int, fault: str) -> None:
        self.port = port
        self.fault = fault
        self.connections = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", self.port)
        self.connections += 1
        spoils = self.connections == 2 or self.fault in ("fragment", "noise", "binary")
        back = asyncio.ensure_future(self._back(upstream, writer, spoils))
        try:
            while data := await reader.read(1 << 16):
                downstream.write(data)
                await downstream.drain()
        except ConnectionError:
            pass
        finally:
            back.cancel()
            downstream.close()
            writer.close()

    async def _back(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, spoils: bool) -> None:
        writer.write(await upstream.readuntil(b"\r\n\r\n"))
        messages = wire.Messages()
        spoiler = Spoiler(self.fault) if spoils else Spoiler("none")
        while data := await upstream.read(1 << 16):
            messages.feed(data)
            for opcode, payload in messages.take():
                writer.write(spoiler.pass_on(opcode, payload))
            await writer.drain()
        writer.close()


class Spoiler:
    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.frames = 0
        self.presences = 0
        self.held = b""
        self.stream = b""

    def pass_on(self, opcode: int, payload: bytes) -> bytes:
        if payload[:1] == b"#":
            self.frames += 1
            if self.fault == "binary":
                return message(wire.BINARY, payload)
            if self.fault == "fragment":
                return fragments(opcode, payload)
            if self.fault == "noise" and self.frames % 7 == 0:
                return message(wire.PING, b"?") + message(opcode, payload) + message(wire.TEXT, b'{"kind":"chat"}')
            if self.frames == SPOILT:
                return self._spoil(opcode, payload)
            # After the next of the same stream: the streams of several writers may be mixed in any way.
            held = self.held if payload.startswith(self.stream) else b""
            self.held = b"" if held else self.held
            return message(opcode, payload) + held
        if self.fault == "welcome" and b"system/welcome" in payload:
            envelope = json.loads(payload)
            envelope["payload"]["active_streams"][0]["authorized_writers"] = ["somebody-else"]
            payload = json.dumps(envelope).encode()
        if self.fault == "presence" and b"system/presence" in payload:
            self.presences += 1
            if self.presences == 2:
                return b""
        return message(opcode, payload)

    def _spoil(self, opcode: int, payload: bytes) -> bytes:
        whole = message(opcode, payload)
        match self.fault:
            case "lose":
                return b""
            case "repeat":
                return whole + whole
            case "swap":
                self.held = whole
                self.stream = payload[: payload.index(b"#", 1) + 1]
                return b""
            case "change":
                return message(opcode, payload.replace(b"x", b"y", 1))
        return whole


def message(opcode: int, payload: bytes) -> bytes:
    return wire.server_header(opcode, len(payload)) + payload


def fragments(opcode: int, payload: bytes) -> bytes:
    """The same message in three WebSocket frames."""
    third = len(payload) // 3
    parts = [payload[:third], payload[third : 2 * third], payload[2 * third :]]
    return b"".join(bytes((first, len(part))) + part for first, part in zip((opcode, 0, 0x80), parts, strict=True))


async def main() -> None:
    relay = Relay(int(sys.argv[1]), sys.argv[2])
    server = await asyncio.start_server(relay.connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
