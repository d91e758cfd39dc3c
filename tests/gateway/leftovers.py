"""A gateway within this process, without the collector of cycles: what is left of connections that have ended.

    python leftovers.py plain|tls DIRECTORY

prints how many objects there are after many connections that have all ended, as JSON by class.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import json
import socket
import struct
import sys
import threading
from pathlib import Path

import uvloop
import yaml
from http_socket import chat, request
from raw_socket import CLOSE, RawSocket, join_message, text, upgrade_head, ws_frame
from tls_socket import TlsSocket, issue_certificates

from mewstream.gateway.config import GatewayConfig, load_config
from mewstream.gateway.server import serve
from support import space_config

CLASSES = {
    *("HttpConnection", "RequestParser", "Request", "Seat", "Reading", "Throttle", "RefusalFlood"),
    *("WebSocketMember", "_WebSocket", "Outbound", "WSTransport", "TCPTransport", "SSLProtocol"),
}
EACH = 10
#: A connection is given up after two seconds; on a busy machine it takes longer until all of them are.
PATIENCE = 60.0
#: The last connection that was read, and the rate of a participant that has posted, are kept.
KEPT = 2

JOIN = upgrade_head() + text(join_message("mallory"))
CLOSING = ws_frame(CLOSE, b"\x03\xe8")
#: What a peer sends before it goes.
SENT = {
    "nothing": b"",
    "a request": request(),
    "several requests": request() * 5,
    "half a head": request()[:-2],
    "half a body": request("GET", "/health", "Content-Length: 60000") + b"x" * 30_000,
    "messages": chat("alice") * 3,
    "what is no request": b"x y\r\n\r\n" + b"x" * 10_000,
    "a request of another version": request().replace(b"HTTP/1.1", b"HTTP/3.0"),
    "a header that is none": request("GET", "/health", "X Y: z"),
    "a request for nothing": request("GET", "/nowhere"),
    "a request without a token": request("GET", "/participants"),
    "a message that is too large": request("POST", "/participants/alice/messages", "Content-Length: 9999999"),
    "a message that is none": request("POST", "/participants/alice/messages", participant="alice", body=b"{"),
    "an upgrade that is refused": upgrade_head(Sec_WebSocket_Version="8"),
    "an upgrade": upgrade_head(),
    "nonsense instead of a join": upgrade_head() + text("nonsense"),
    "a join with a wrong token": upgrade_head() + text(join_message("alice", token="wrong")),
    "a join": JOIN,
    "a join and half a frame": JOIN + ws_frame(1, b"x" * 100_000)[:50_000],
    "a join and frames for nobody": JOIN + text("#nowhere#x") * 5,
    "a join and a close": JOIN + CLOSING,
    "a join and a broken frame": JOIN + ws_frame(3),
    "a join and reserved bits": JOIN + ws_frame(1, b"x", rsv=1),
    "a join and too much": JOIN + ws_frame(1, b"x", claim=1 << 40),
}


def count() -> collections.Counter[str]:
    return collections.Counter(type(each).__name__ for each in gc.get_objects() if type(each).__name__ in CLASSES)


def start(config: GatewayConfig) -> int:
    """Serve in a thread, until the process ends; the port."""
    ready = threading.Event()
    lines: list[str] = []

    def announce(line: str) -> None:
        lines.append(line)
        ready.set()

    threading.Thread(target=lambda: uvloop.run(serve(config, announce=announce)), daemon=True).start()
    ready.wait()
    return int(lines[0].rsplit(":", 1)[1])


async def main(mode: str, directory: Path) -> None:
    certificates = issue_certificates(directory)
    settings: dict[str, object] = {"port": 0, "drain_seconds": 0}
    if mode == "tls":
        settings["tls"] = {"cert": str(certificates.cert), "key": str(certificates.key)}
    file = directory / "space.yaml"
    file.write_text(yaml.safe_dump(space_config("alice", "mallory", gateway=settings)))
    port = start(load_config([file], environ={}, cwd=directory))
    gc.disable()
    gc.unfreeze()

    async def visit(sent: bytes, *, is_reset: bool) -> None:
        raw = await (TlsSocket.secured(port, certificates.trust) if mode == "tls" else RawSocket.open(port))
        await raw.send(sent)
        await asyncio.sleep(0.005)
        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", is_reset, 0))
        raw.sock.close()

    for sent in SENT.values():
        for number in range(EACH):
            await visit(sent, is_reset=number % 2 == 0)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while max(count().values(), default=0) > KEPT:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
    print(json.dumps(count()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
