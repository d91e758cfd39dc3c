"""Every request of a connection, first or hundredth: one parser, one set of limits, and an upgrade at any of them."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import aiohttp
import psutil
import pytest
from http_socket import Answer, HttpSocket, chat, request
from raw_socket import (
    BINARY,
    CONTINUATION,
    PING,
    TEXT,
    Frame,
    RawSocket,
    join_message,
    text,
    upgrade_head,
    ws_frame,
)

from support import AT_ONCE, TIMEOUT, GatewayProcess, joined, running_gateway, space_config, token_of

MESSAGE_BYTES = 200_000
ODD_NAMES = ("a{b}", "{id}", "mit Leerzeichen", "naïve-❄", "100%", "a+b", "a?b&c=d", "semi;colon")
#: How many requests the connection has carried before: none, one, some.
BEFORE = pytest.mark.parametrize("before", [0, 1, 5])


def odd_token(name: str) -> str:
    """Tokens are plainer than names."""
    return f"odd-{ODD_NAMES.index(name)}"


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    config = space_config(
        "alice",
        "bob",
        gateway={"drain_seconds": 0},
        mewstream={"limits": {"message_bytes": MESSAGE_BYTES, "envelopes_per_second": 0.0}, **AT_ONCE},
    )
    for name in ODD_NAMES:
        everything = [{"kind": "*"}]
        config["participants"][name] = {"tokens": [odd_token(name)], "capabilities": everything, "auto_connect": True}
    with running_gateway(config) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def impatient() -> Iterator[GatewayProcess]:
    """Its patience is short, in each phase of a connection."""
    settings = {"head_timeout": 0.4, "idle_timeout": 0.4, "body_timeout": 0.4, "write_timeout": 0.4}
    config = space_config("bob", always_here=("alice",), gateway={"drain_seconds": 0, **settings})
    with running_gateway(config) as gateway:
        yield gateway


async def used(gateway: GatewayProcess, before: int) -> HttpSocket:
    """A connection that has carried so many requests."""
    raw = await HttpSocket.connected(gateway.port)
    for _ in range(before):
        assert (await raw.ask(request())).status == 200
    return raw


async def metric(gateway: GatewayProcess, sample: str) -> float:
    """One sample of /metrics, with its labels; 0 where there is none yet."""
    _, exposition = await gateway.http("GET", "/metrics")
    return sum(float(line.rsplit(" ", 1)[1]) for line in exposition.splitlines() if line.startswith(f"{sample} "))


async def eventually(question: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so. Each question is answered by the gateway, which works meanwhile."""
    async with asyncio.timeout(6 * TIMEOUT):
        while not await question():
            pass


class TestUpgrade:
    @BEFORE
    async def test_at_any_request_of_a_connection(self, gateway: GatewayProcess, before: int) -> None:
        async with await used(gateway, before) as raw:
            await raw.send(upgrade_head() + text(join_message("alice")))
            assert (await raw.answer()).status == 101
            welcome = await raw.read_frame()
            assert welcome is not None
            assert welcome.json["kind"] == "system/welcome"

    async def test_behind_requests_of_the_same_segment(self, gateway: GatewayProcess) -> None:
        async with await HttpSocket.connected(gateway.port) as raw:
            await raw.send(request() + chat("alice") + request() + upgrade_head() + text(join_message("bob")))
            assert [(await raw.answer()).status for _ in range(4)] == [200, 200, 200, 101]
            welcome = await raw.read_frame()
            assert welcome is not None
            assert welcome.json["payload"]["you"]["id"] == "bob"

    @pytest.mark.parametrize(
        "lines",
        [
            ["Connection: keep-alive", "Connection: Upgrade", "Upgrade: websocket"],
            ["Connection: Upgrade", "Connection: keep-alive", "Upgrade: websocket"],
            ["Connection: keep-alive, Upgrade", "Upgrade: websocket, h2c"],
            ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c, WebSocket"],
            ["Connection: upgrade", "Upgrade: h2c", "Upgrade: websocket"],
            ["CONNECTION:\tUPGRADE  ", "UPGRADE:\tWEBSOCKET\t"],
        ],
    )
    @pytest.mark.parametrize("before", [0, 2])
    async def test_lists_and_repeated_lines(self, gateway: GatewayProcess, before: int, lines: list[str]) -> None:
        async with await used(gateway, before) as raw:
            head = upgrade_head(connection="", Upgrade="")[:-2] + "\r\n".join([*lines, "", ""]).encode()
            await raw.send(head + text(join_message("alice")))
            answer = await raw.answer()
            assert answer.status == 101, answer
            welcome = await raw.read_frame()
            assert welcome is not None
            assert welcome.json["kind"] == "system/welcome"

    @pytest.mark.parametrize("version", ["", "0", "7", "8", "12", "14", "99", "x", "13, 8", "8, 13", "013"])
    async def test_another_version_is_told_the_right_one(self, gateway: GatewayProcess, version: str) -> None:
        async with await used(gateway, 1) as raw:
            answer = await raw.ask(upgrade_head(Sec_WebSocket_Version=version))
            assert answer.status == 426
            assert answer.headers["sec-websocket-version"] == "13"
            assert answer.error == "validation_error"
            assert await raw.is_ended()

    @pytest.mark.parametrize(
        ("head", "status"),
        [
            (upgrade_head(Sec_WebSocket_Key=""), 400),
            (upgrade_head(Sec_WebSocket_Key="c2hvcnQ="), 400),
            (upgrade_head(X="y").replace(b"X: y", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), 400),
            (upgrade_head(connection="keep-alive"), 400),
            (upgrade_head(Content_Length="5") + b"hello", 400),
            (upgrade_head().replace(b"GET", b"POST"), 405),
            (upgrade_head().replace(b"HTTP/1.1", b"HTTP/1.0"), 400),
            (upgrade_head(Authorization="Basic x"), 401),
        ],
        ids=["no key", "short key", "two keys", "Connection", "body", "POST", "HTTP/1.0", "Basic"],
    )
    async def test_what_is_refused_is_told_why(self, gateway: GatewayProcess, head: bytes, status: int) -> None:
        async with await used(gateway, 1) as raw:
            answer = await raw.ask(head)
            assert answer.status == status, answer
            assert answer.error in ("validation_error", "unauthorized")
            assert await raw.is_ended()

    async def test_another_protocol_is_passed_over(self, gateway: GatewayProcess) -> None:
        """As curl --http2 asks: RFC 9110 (7.8) lets a server answer in the old one."""
        async with await HttpSocket.connected(gateway.port) as raw:
            offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
            for _ in range(2):
                assert (await raw.ask(request("GET", "/health", *offer))).json["status"] == "ok"
            assert (await raw.ask(upgrade_head())).status == 101


class TestEachRequest:
    """The limits of a head hold for the second request as for the first."""

    @BEFORE
    @pytest.mark.parametrize("size", [17_000, 960_000])
    async def test_a_large_head(self, gateway: GatewayProcess, before: int, size: int) -> None:
        async with await used(gateway, before) as raw:
            head = request(
                "GET", "/health", *(f"X-{n}: {'y' * 4_000}" for n in range(size // 4_000)), f"Y: {'z' * 4_000}"
            )
            try:
                await raw.send(head)
            except ConnectionError:
                pass
            assert (await raw.answer()).status == 431

    @BEFORE
    async def test_many_headers(self, gateway: GatewayProcess, before: int) -> None:
        async with await used(gateway, before) as raw:
            assert (await raw.ask(request("GET", "/health", *(f"X{n}: y" for n in range(60))))).status == 200
            assert (await raw.ask(request("GET", "/health", *(f"X{n}: y" for n in range(101))))).status == 431

    @BEFORE
    async def test_what_cannot_be_understood(self, gateway: GatewayProcess, before: int) -> None:
        async with await used(gateway, before) as raw:
            answer = await raw.ask(request("GET", "/health", "X: a\n b") + request())
            assert (answer.status, answer.error) == (400, "validation_error")
            assert await raw.is_ended(), "nobody knows where the next request would begin"

    async def test_pipelined_requests_are_answered_in_order(self, gateway: GatewayProcess) -> None:
        async with await HttpSocket.connected(gateway.port) as raw:
            asked = []
            for number in range(200):
                asked.append(chat("alice", id=f"pipelined-{number}"))
                asked.append(request("GET", "/nowhere"))
            sending = asyncio.create_task(raw.send(b"".join(asked)))
            for number in range(200):
                assert (await raw.answer()).json["id"] == f"pipelined-{number}"
                assert (await raw.answer()).status == 404
            await sending

    async def test_head_is_get_without_the_body(self, gateway: GatewayProcess) -> None:
        async with await HttpSocket.connected(gateway.port) as raw:
            await raw.send(request("HEAD", "/metrics"))
            head = await raw.answer(has_body=False)
            assert head.status == 200
            assert int(head.headers["content-length"]) > 1_000
            assert head.headers["content-type"].startswith("text/plain")
            assert (await raw.ask(request())).status == 200, "nothing of a body is in the way"
            await raw.send(request("HEAD", "/nowhere"))
            assert (await raw.answer(has_body=False)).status == 404
            assert (await raw.ask(request())).status == 200

    async def test_a_method_that_is_not_allowed_is_told_which_are(self, gateway: GatewayProcess) -> None:
        async with await HttpSocket.connected(gateway.port) as raw:
            assert (await raw.ask(request("PUT", "/health"))).headers["allow"] == "GET, HEAD"
            answer = await raw.ask(request("PATCH", "/participants/alice/messages", participant="alice"))
            assert (answer.status, answer.headers["allow"]) == (405, "POST, GET, HEAD")

    async def test_http_1_0_is_answered_and_closed(self, gateway: GatewayProcess) -> None:
        async with await HttpSocket.connected(gateway.port) as raw:
            answer = await raw.ask(b"GET /health HTTP/1.0\r\n\r\n")
            assert answer.json["status"] == "ok"
            assert answer.is_last
            assert await raw.is_ended()

    async def test_a_peer_that_has_said_all_gets_its_answers(self, gateway: GatewayProcess) -> None:
        async with await HttpSocket.connected(gateway.port) as raw:
            await raw.send(chat("alice") + request())
            raw.sock.shutdown(socket.SHUT_WR)
            assert [(await raw.answer()).status for _ in range(2)] == [200, 200]
            assert await raw.is_ended()


class TestPatience:
    """Who does nothing is given up, at whichever request."""

    @BEFORE
    async def test_nothing_comes(self, impatient: GatewayProcess, before: int) -> None:
        async with await used(impatient, before) as raw:
            assert await raw.is_ended()

    @BEFORE
    async def test_half_a_head(self, impatient: GatewayProcess, before: int) -> None:
        async with await used(impatient, before) as raw:
            answer = await raw.ask(request()[:-2])
            assert (answer.status, answer.is_last) == (408, True)
            assert await raw.is_ended()

    @BEFORE
    async def test_a_head_in_drops(self, impatient: GatewayProcess, before: int) -> None:
        """Each byte must not buy more time."""
        async with await used(impatient, before) as raw:
            answered = asyncio.create_task(raw.answer())
            await raw.send(request()[:-2])
            while not answered.done():
                try:
                    await raw.send(b"X: y\r\n")
                except ConnectionError:
                    break
                await asyncio.wait([answered], timeout=0.05)
            assert (await answered).status in (408, 0)

    @BEFORE
    async def test_half_a_body(self, impatient: GatewayProcess, before: int) -> None:
        async with await used(impatient, before) as raw:
            answer = await raw.ask(chat("alice")[:-5])
            assert (answer.status, answer.is_last) == (408, True)
            assert await raw.is_ended()

    async def test_an_answer_that_is_not_taken(self, impatient: GatewayProcess) -> None:
        async with joined(impatient, "bob") as (bob,):
            stream = await bob.open_stream()
            for _ in range(6):
                await bob.frame(stream, "x" * 900_000)
            await bob.settle()
        sample = 'mewstream_http_timeouts_total{phase="answering"}'
        before = await metric(impatient, sample)
        raw = await HttpSocket.connected(impatient.port, receive_buffer=4096)
        await raw.send(request("GET", "/participants/alice/messages", participant="alice"))

        async def is_given_up() -> bool:
            return await metric(impatient, sample) > before

        await eventually(is_given_up)
        assert await metric(impatient, "mewstream_http_unsent_bytes") == 0
        raw.sock.close()

    async def test_who_goes_on_is_not_given_up(self, impatient: GatewayProcess) -> None:
        async with await HttpSocket.connected(impatient.port) as raw:
            for _ in range(10):
                assert (await raw.ask(request())).status == 200
                await asyncio.sleep(0.1)


class TestBodies:
    async def post(self, gateway: GatewayProcess, body: bytes, *lines: str) -> Answer:
        async with await HttpSocket.connected(gateway.port) as raw:
            return await raw.ask(
                request("POST", "/participants/alice/messages", *lines, participant="alice", body=body)
            )

    @pytest.mark.parametrize(
        "encoding", ["gzip", "x-gzip", "GZIP", "deflate", "raw deflate", "identity", "identity, gzip"]
    )
    async def test_compressed(self, gateway: GatewayProcess, encoding: str) -> None:
        message = json.dumps({"kind": "chat", "payload": {"text": "x" * 10_000}}).encode()
        body = {
            "deflate": zlib.compress(message),
            "raw deflate": zlib.compress(message, wbits=-15),
            "identity": message,
        }.get(encoding, gzip.compress(message))
        answer = await self.post(gateway, body, f"Content-Encoding: {encoding.removeprefix('raw ')}")
        assert answer.json["status"] == "accepted", answer

    @pytest.mark.parametrize("size", [MESSAGE_BYTES + 1, 200 << 20])
    @pytest.mark.parametrize("encoding", ["gzip", "deflate"])
    async def test_a_bomb(self, gateway: GatewayProcess, encoding: str, size: int) -> None:
        memory = psutil.Process(gateway.pid).memory_info().rss
        packer = zlib.compressobj(9, wbits=31 if encoding == "gzip" else 15)
        step = 1 << 20
        body = b"".join(packer.compress(b" " * min(step, size - done)) for done in range(0, size, step))
        body += packer.flush()
        if len(body) > MESSAGE_BYTES:
            body = body[:MESSAGE_BYTES]
        answer = await self.post(gateway, body, f"Content-Encoding: {encoding}")
        assert (answer.status, answer.error) == (413, "limit_exceeded")
        assert psutil.Process(gateway.pid).memory_info().rss - memory < 50 << 20

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"not compressed at all",
            gzip.compress(b'{"kind":"chat"}')[:-1],
            gzip.compress(b'{"kind":"chat"}')[:10],
            gzip.compress(b'{"kind":"chat"}')[:-8] + bytes(8),
            gzip.compress(b'{"kind":"chat"}') + b"more",
            b"\x1f\x8b" + bytes(50),
        ],
        ids=["nothing", "plain", "cut", "cut early", "wrong checksum", "more behind it", "zeros"],
    )
    @pytest.mark.parametrize("encoding", ["gzip", "deflate"])
    async def test_badly_compressed(self, gateway: GatewayProcess, encoding: str, body: bytes) -> None:
        log = gateway.log.read_text()
        answer = await self.post(gateway, body, f"Content-Encoding: {encoding}")
        assert (answer.status, answer.error) == (400, "validation_error"), answer
        assert gateway.log.read_text() == log

    @pytest.mark.parametrize("lines", [["br"], ["gzip, gzip"], ["gzip", "deflate"], ["zstd"], ["chunked"]])
    async def test_another_encoding(self, gateway: GatewayProcess, lines: list[str]) -> None:
        answer = await self.post(gateway, b"{}", *(f"Content-Encoding: {each}" for each in lines))
        assert (answer.status, answer.headers["accept-encoding"]) == (415, "gzip, deflate")

    @pytest.mark.parametrize("reset", [True, False])
    @pytest.mark.parametrize(
        "cut",
        [
            chat("alice")[:-5],
            chat("alice").replace(b"Content-Length: 45", b"Transfer-Encoding: chunked")[:-45] + b"20\r\n{",
            chat("alice").replace(b"POST", b"POST", 1)[:-45],
            chat("alice").replace(b"Host", b"Content-Encoding: gzip\r\nHost", 1)[:-5],
        ],
        ids=["in the middle", "in a chunk", "before it", "compressed"],
    )
    async def test_an_aborted_body_is_the_peers_affair(self, gateway: GatewayProcess, cut: bytes, reset: bool) -> None:
        log = gateway.log.read_text()
        raw = await HttpSocket.connected(gateway.port)
        await raw.send(cut)
        assert (await gateway.http("GET", "/health"))[0] == 200  # so it has been read
        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", reset, 0))
        raw.sock.close()
        assert (await gateway.http("GET", "/health"))[0] == 200
        assert gateway.log.read_text() == log

    @pytest.mark.parametrize("size", [1, 7, 1_000])
    async def test_in_chunks(self, gateway: GatewayProcess, size: int) -> None:
        body = json.dumps({"kind": "chat", "payload": {"text": "chunks"}}).encode().ljust(5_000)
        chunks = [b"%x;ext=1\r\n%b\r\n" % (len(each), each) for each in _cut(body, size)]
        head = request("POST", "/participants/alice/messages", "Transfer-Encoding: chunked", participant="alice")
        async with await HttpSocket.connected(gateway.port) as raw:
            for _ in range(2):
                answer = await raw.ask(head + b"".join(chunks) + b"0\r\nTrailer: x\r\n\r\n")
                assert answer.json["status"] == "accepted"
            assert (await raw.ask(request())).status == 200

    async def test_too_many_chunks(self, gateway: GatewayProcess) -> None:
        head = request("POST", "/participants/alice/messages", "Transfer-Encoding: chunked", participant="alice")
        async with await HttpSocket.connected(gateway.port) as raw:
            sending = asyncio.create_task(raw.send(head + b"1\r\n \r\n" * 20_000 + b"0\r\n\r\n"))
            assert (await raw.answer()).status == 400
            await asyncio.gather(sending, return_exceptions=True)

    async def test_chunks_that_are_too_much(self, gateway: GatewayProcess) -> None:
        head = request("POST", "/participants/alice/messages", "Transfer-Encoding: chunked", participant="alice")
        async with await HttpSocket.connected(gateway.port) as raw:
            sending = asyncio.create_task(raw.send(head + (b"2710\r\n" + b" " * 10_000 + b"\r\n") * 25))
            answer = await raw.answer()
            assert (answer.status, answer.error) == (413, "limit_exceeded")
            await asyncio.gather(sending, return_exceptions=True)

    async def test_asked_for_before_it_is_sent(self, gateway: GatewayProcess) -> None:
        whole = chat("alice").replace(b"Host", b"Expect: 100-continue\r\nHost", 1)
        end = whole.index(b"\r\n\r\n") + 4
        async with await HttpSocket.connected(gateway.port) as raw:
            for _ in range(2):
                await raw.send(whole[:end])
                assert (await raw.read_head())[0] == 100
                assert (await raw.ask(whole[end:])).status == 200

    @pytest.mark.parametrize(
        ("lines", "status"),
        [
            (["Expect: 100-continue", f"Content-Length: {MESSAGE_BYTES + 1}"], 413),
            (["Expect: 100-continue", "Content-Length: 5", "Content-Encoding: br"], 415),
            (["Expect: a-miracle", "Content-Length: 5"], 417),
        ],
    )
    async def test_not_asked_for(self, gateway: GatewayProcess, lines: list[str], status: int) -> None:
        """Who asks first need not send what would be refused."""
        async with await HttpSocket.connected(gateway.port) as raw:
            await raw.send(request("POST", "/participants/alice/messages", *lines, participant="alice"))
            assert (await raw.read_head())[0] == status

    async def test_a_stranger_need_not_send_it(self, gateway: GatewayProcess) -> None:
        """Whoever has no token is answered before the body has come."""
        async with await HttpSocket.connected(gateway.port) as raw:
            answer = await raw.ask(request("POST", "/participants/alice/messages", "Content-Length: 100000"))
            assert (answer.status, answer.is_last) == (401, True)
            await raw.send(b"x" * 100_000)
            assert await raw.is_ended()

    async def test_a_refused_request_does_not_end_the_connection(self, gateway: GatewayProcess) -> None:
        """Where the body is here, it is known where the next request begins."""
        async with await HttpSocket.connected(gateway.port) as raw:
            refused = chat("alice").replace(token_of("alice").encode(), b"wrong")
            for _ in range(3):
                answer = await raw.ask(refused)
                assert (answer.status, answer.is_last) == (403, False)
            assert (await raw.ask(chat("alice"))).status == 200

    async def test_of_a_route_that_takes_none(self, gateway: GatewayProcess) -> None:
        async with await HttpSocket.connected(gateway.port) as raw:
            assert (await raw.ask(request("GET", "/health", body=b"x" * 100))).status == 200
            assert (await raw.ask(request())).status == 200
            assert (await raw.ask(request("GET", "/health", "Content-Length: 1000000"))).status == 413


def _cut(body: bytes, size: int) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)]


class TestNames:
    @pytest.mark.parametrize("name", ODD_NAMES)
    async def test_of_participants_in_a_path(self, gateway: GatewayProcess, name: str) -> None:
        path = f"/participants/{quote(name, safe='')}/messages"
        async with await HttpSocket.connected(gateway.port) as raw:
            body = json.dumps({"kind": "chat", "payload": {"text": "odd"}}).encode()
            token = f"Authorization: Bearer {odd_token(name)}"
            posted = await raw.ask(request("POST", path, token, body=body))
            assert posted.json["status"] == "accepted", posted
            read = await raw.ask(request("GET", path, token))
            assert read.json["messages"][-1]["from"] == name

    async def test_braces_as_they_are(self, gateway: GatewayProcess) -> None:
        async with await HttpSocket.connected(gateway.port) as raw:
            for name in ("a{b}", "{id}"):
                token = f"Authorization: Bearer {odd_token(name)}"
                answer = await raw.ask(request("GET", f"/participants/{name}/messages", token))
                assert answer.status == 200, answer

    @pytest.mark.parametrize("name", ["a%2Fb", "%2e%2e", "%00", "%0D%0A", "%F0%9F%98%80"])
    async def test_any_character_reaches_the_handler(self, gateway: GatewayProcess, name: str) -> None:
        """A slash that is escaped separates nothing: this is the wrong participant, or no good name of one, and not a
        wrong path."""
        async with await HttpSocket.connected(gateway.port) as raw:
            answer = await raw.ask(request("GET", f"/participants/{name}/messages", participant="alice"))
            assert answer.status in (400, 403)
            assert answer.error in ("unauthorized", "validation_error")

    @pytest.mark.parametrize("name", ["%", "%4", "%zz", "%ff", "%c3%28", "%u0041"])
    async def test_bad_escapes(self, gateway: GatewayProcess, name: str) -> None:
        async with await HttpSocket.connected(gateway.port) as raw:
            answer = await raw.ask(request("GET", f"/participants/{name}/messages", participant="alice"))
            assert answer.status == 400


@pytest.fixture(scope="module")
def crowded() -> Iterator[GatewayProcess]:
    """2,500 participants, of whom three come."""
    names = [f"guest-{number:04}" for number in range(2_500)]
    config = space_config("alice", "bob", *names, gateway={"drain_seconds": 0})
    config["mewstream"] = {"limits": {"streams_per_participant": 5_000, "envelopes_per_second": 0.0}}
    with running_gateway(config) as gateway:
        yield gateway


class TestPages:
    async def pages(self, gateway: GatewayProcess, path: str, name: str, **params: Any) -> list[dict[str, Any]]:
        found = []
        while True:
            status, answer = await gateway.http("GET", path, "alice", params=params)
            assert status == 200, answer
            found.append(answer)
            if "next" not in answer:
                return found
            params["after"] = answer["next"]

    async def test_of_participants(self, crowded: GatewayProcess) -> None:
        pages = await self.pages(crowded, "/participants", "participants")
        assert [len(page["participants"]) for page in pages] == [1000, 1000, 502]
        ids = [each["id"] for page in pages for each in page["participants"]]
        assert ids == sorted({"alice", "bob", *(f"guest-{number:04}" for number in range(2_500))})
        few = await self.pages(crowded, "/participants", "participants", limit=7, after="guest-2480")
        assert [len(page["participants"]) for page in few] == [7, 7, 5]

    async def test_of_streams(self, crowded: GatewayProcess) -> None:
        async with joined(crowded, "alice") as (alice,):
            for _ in range(1_200):
                await alice.send("stream/request", {"direction": "upload"})
            last = await alice.open_stream()
            pages = await self.pages(crowded, "/streams", "streams")
            assert [len(page["streams"]) for page in pages] == [1000, 201]
            ids = [each["stream_id"] for page in pages for each in page["streams"]]
            assert ids == sorted(set(ids), key=lambda id: int(id.removeprefix("stream-")))
            assert ids[-1] == last
            assert all(list(page)[:3] == ["epoch", "seq", "streams"] for page in pages)
            # A stream that has ended since is a place in the order all the same.
            await alice.send("stream/close", {"stream_id": ids[9]})
            await alice.settle()
            (answer,) = (await self.pages(crowded, "/streams", "streams", after=ids[9], limit=3))[:1]
            assert [each["stream_id"] for each in answer["streams"]] == ids[10:13]
            assert answer["next"] == ids[12]

    async def test_no_page_is_much_larger_than_a_mebibyte(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice") as (alice,):
            opened = [await alice.open_stream(padding="x" * 60_000) for _ in range(60)]
            pages = await self.pages(gateway, "/streams", "streams")
            assert len(pages) > 3
            assert all(len(json.dumps(page)) < 1.2 * (1 << 20) for page in pages)
            ids = [each["stream_id"] for page in pages for each in page["streams"]]
            assert [id for id in ids if id in opened] == opened
            for stream in opened:
                await alice.send("stream/close", {"stream_id": stream})
            await alice.settle()

    @pytest.mark.parametrize(
        ("path", "params"),
        [
            *[("/streams", {"limit": bad}) for bad in ("0", "-1", "x", "", "1.5", "9" * 20)],
            *[("/participants", {"limit": bad}) for bad in ("0", "٣")],
            *[("/streams", {"after": bad}) for bad in ("", "x", "stream-", "stream-x", "stream-" + "9" * 30)],
        ],
    )
    async def test_what_is_malformed(self, gateway: GatewayProcess, path: str, params: dict[str, str]) -> None:
        status, answer = await gateway.http("GET", path, "alice", params=params)
        assert (status, answer["payload"]["error"]) == (400, "validation_error")
        assert answer["payload"]["field"] == next(iter(params))


class TestAnswersThatWait:
    """Whoever asks and does not take the answers costs a bounded amount of memory, and only its own requests."""

    BOUND = 32 << 20
    PEOPLE = tuple(f"reader-{number}" for number in range(20))
    LATE = "late"

    @pytest.fixture
    def bound(self) -> int:
        return self.BOUND

    @pytest.fixture
    def full(self, bound: int) -> Iterator[GatewayProcess]:
        settings = {"drain_seconds": 0, "unsent_http_bytes": bound}
        people = (*self.PEOPLE, self.LATE)
        with running_gateway(space_config("alice", always_here=people, gateway=settings)) as gateway:
            yield gateway

    async def fill(self, gateway: GatewayProcess) -> None:
        """As much as a page of history may hold."""
        async with joined(gateway, "alice") as (alice,):
            stream = await alice.open_stream()
            for _ in range(8):
                await alice.frame(stream, "x" * 900_000)
            await alice.settle()

    def ask(self, participant: str) -> bytes:
        return request("GET", f"/participants/{participant}/messages", participant=participant)

    async def test_memory_is_bounded(self, full: GatewayProcess) -> None:
        await self.fill(full)
        process = psutil.Process(full.pid)
        before = most = process.memory_info().rss
        sockets = []
        for number in range(60):
            raw = await HttpSocket.connected(full.port, receive_buffer=4096)
            await raw.send(self.ask(self.PEOPLE[number % len(self.PEOPLE)]) * 20)
            sockets.append(raw)
            # Answered behind it: so it has been begun.
            assert (await full.http("GET", "/health"))[0] == 200
            most = max(most, process.memory_info().rss)
        status, _ = await full.http("GET", "/metrics")
        assert status == 200, "whoever watches the gateway sees what is happening"

        async def is_full() -> bool:
            status, answer = await full.http("GET", f"/participants/{self.LATE}/messages", self.LATE)
            return status == 503 and answer["payload"]["limit"] == "unsent_http_bytes"

        await eventually(is_full)
        for _ in range(20):
            assert (await full.post(self.LATE, {"kind": "chat", "payload": {"text": "x"}}))[0] == 200
        most = max(most, process.memory_info().rss)
        # Twice: what is being made is there in pieces and as a whole. Without a bound it was half a gigabyte.
        assert most - before < 2 * self.BOUND + (64 << 20), f"{(most - before) >> 20} MiB"
        for raw in sockets:
            raw.sock.close()

        async def has_room() -> bool:
            return (await full.http("GET", f"/participants/{self.LATE}/messages", self.LATE))[0] == 200

        await eventually(has_room)
        assert await metric(full, "mewstream_http_unsent_bytes") < 100_000

    @pytest.mark.parametrize("bound", [64 << 20])
    async def test_a_few_who_do_not_read_are_in_nobodys_way(self, full: GatewayProcess) -> None:
        """Five of them took all the room there was, and everyone else was answered 503."""
        await self.fill(full)
        sockets = []
        for participant in self.PEOPLE[:5] * 4:
            raw = await HttpSocket.connected(full.port, receive_buffer=4096)
            await raw.send(self.ask(participant))
            sockets.append(raw)
            assert (await full.post("alice", {"kind": "chat", "payload": {"text": "x"}}))[0] == 200
        refused = await sockets[-1].read_head()
        assert refused[0] == 429
        assert await metric(full, "mewstream_http_unsent_bytes") < 48 << 20
        for _ in range(20):
            assert (await full.post("alice", {"kind": "chat", "payload": {"text": "x"}}))[0] == 200
            assert (await full.http("GET", "/streams", "alice"))[0] == 200
            assert (await full.http("GET", f"/participants/{self.LATE}/messages", self.LATE))[0] == 200
        for raw in sockets:
            raw.sock.close()

    async def test_of_one_participant_a_share(self, full: GatewayProcess) -> None:
        await self.fill(full)
        first, second = [await HttpSocket.connected(full.port, receive_buffer=4096) for _ in range(2)]
        await first.send(self.ask("reader-1"))
        assert (await first.read_head())[0] == 200, "one is possible, however small the share is"
        refused = await second.ask(self.ask("reader-1"))
        assert (refused.status, refused.error, refused.headers["retry-after"]) == (429, "limit_exceeded", "1")
        assert b"unsent_http_bytes" in refused.body
        assert (await second.ask(chat("reader-1"))).status == 200, "what is small is not concerned"
        assert (await second.ask(request("GET", "/streams", participant="reader-2"))).status == 200
        first.sock.close()

        async def has_room() -> bool:
            return (await second.ask(self.ask("reader-1"))).status == 200

        await eventually(has_room)
        second.sock.close()

    @pytest.mark.parametrize("bound", [65_536])
    async def test_a_bound_below_one_large_answer(self, full: GatewayProcess) -> None:
        """One at a time is possible, and in the way of nothing that is small."""
        await self.fill(full)
        raw = await HttpSocket.connected(full.port, receive_buffer=4096)
        await raw.send(self.ask("reader-1"))
        assert (await raw.read_head())[0] == 200
        assert (await full.post("alice", {"kind": "chat", "payload": {"text": "x"}}))[0] == 200
        assert (await full.http("GET", f"/participants/{self.LATE}/messages", self.LATE))[0] == 503
        raw.sock.close()

    @pytest.mark.parametrize("bound", [256 << 20])
    async def test_of_one_participant_a_few_at_a_time(self, full: GatewayProcess) -> None:
        await self.fill(full)
        sockets = [await HttpSocket.connected(full.port, receive_buffer=4096) for _ in range(5)]
        for raw in sockets[:4]:
            await raw.send(self.ask("reader-1"))
            assert (await raw.read_head())[0] == 200
        refused = await sockets[4].ask(self.ask("reader-1"))
        assert (refused.status, refused.error, refused.headers["retry-after"]) == (429, "limit_exceeded", "1")
        assert (await sockets[4].ask(request("GET", "/streams", participant="reader-1"))).status == 429
        assert (await sockets[4].ask(chat("reader-1"))).status == 200, "what is small is not concerned"
        assert (await sockets[4].ask(request("GET", "/streams", participant="reader-2"))).status == 200
        for raw in sockets[:4]:
            raw.sock.close()

        async def may_ask_again() -> bool:
            return (await sockets[4].ask(request("GET", "/streams", participant="reader-1"))).status == 200

        await eventually(may_ask_again)
        sockets[4].sock.close()

    async def test_who_takes_them_gets_them_all(self, full: GatewayProcess) -> None:
        await self.fill(full)
        async with await HttpSocket.connected(full.port) as raw:
            sending = asyncio.create_task(raw.send(self.ask("reader-1") * 10))
            sizes = [len((await raw.answer()).body) for _ in range(10)]
            await sending
            assert len(set(sizes)) == 1
            assert sizes[0] > 4 << 20


async def drown(raw: RawSocket, flood: bytes) -> list[Frame]:
    """Send all of it, whatever the gateway says meanwhile; its frames until it ends the connection."""
    sending = asyncio.create_task(raw.send(flood))
    frames = []
    while (frame := await raw.read_frame()) is not None:
        frames.append(frame)
    await asyncio.gather(sending, return_exceptions=True)
    return frames


class TestStrangers:
    """Who has not joined may send a join, and little else."""

    COUNT = 60
    FLOODS: ClassVar = {
        "one frame": ws_frame(BINARY, b"x" * 1_900_000, claim=2 * MESSAGE_BYTES),
        "fragments": ws_frame(TEXT, b"x" * 1_000, fin=False) + ws_frame(CONTINUATION, b"x" * 1_000, fin=False) * 1_900,
        "small fragments": ws_frame(TEXT, b"x", fin=False) + ws_frame(CONTINUATION, b"x", fin=False) * 50_000,
        "pings": ws_frame(PING, b"x" * 100) * 3_000,
    }

    @pytest.mark.parametrize("before", [0, 1])
    @pytest.mark.parametrize("way", FLOODS)
    async def test_they_may_not_send_much(self, gateway: GatewayProcess, way: str, before: int) -> None:
        process = psutil.Process(gateway.pid)
        memory = process.memory_info().rss

        async def attack() -> int | None:
            async with await used(gateway, before) as raw:
                assert (await raw.ask(upgrade_head())).status == 101
                frames = await drown(raw, self.FLOODS[way])
                grown.append(process.memory_info().rss - memory)
                return frames[-1].close_code

        grown: list[int] = []
        codes = await asyncio.gather(*(attack() for _ in range(self.COUNT)))
        assert codes == [1009] * self.COUNT
        assert max(grown) < self.COUNT * (256 << 10), f"{max(grown) >> 10} KiB for {self.COUNT} strangers"

    async def test_a_space_has_its_own_limit_and_not_the_largest_of_all(self) -> None:
        small = space_config("alice", space="small", mewstream={"limits": {"message_bytes": 10_000}})
        large = space_config("alice", space="large", mewstream={"limits": {"message_bytes": 50 << 20}})
        with running_gateway(small, large) as gateway:
            process = psutil.Process(gateway.pid)
            async with await RawSocket.upgraded(gateway.port) as raw:
                await raw.send(text(join_message("alice", space="small")))
                await raw.read_frame()
                memory = process.memory_info().rss
                *frames, close = await drown(raw, ws_frame(BINARY, b"x" * (40 << 20), claim=90 << 20))
                assert process.memory_info().rss - memory < 10 << 20
                assert close.close_code == 1009
                assert frames[-1].json["payload"]["limit"] == "message_bytes"


class TestConnections:
    async def test_in_all(self) -> None:
        config = space_config("alice", gateway={"connections": 10, "connections_per_address": 10, "drain_seconds": 0})
        with running_gateway(config) as gateway:
            await self.check(gateway, 10, "connections")

    async def test_of_one_address(self) -> None:
        with running_gateway(space_config("alice", gateway={"connections": 12, "drain_seconds": 0})) as gateway:
            await self.check(gateway, 9, "connections_per_address")

    async def check(self, gateway: GatewayProcess, most: int, limit: str) -> None:
        """HTTP and WebSocket count together, and a connection that has ended makes room."""
        first = await HttpSocket.connected(gateway.port)
        assert (await first.ask(request())).status == 200
        others = [await RawSocket.upgraded(gateway.port) for _ in range(most - 1)]
        refused = await HttpSocket.connected(gateway.port)
        answer = await refused.answer()
        assert (answer.status, answer.is_last) in ((503, True), (0, False))
        assert await refused.is_ended()
        exposition = (await first.ask(request("GET", "/metrics"))).body.decode()
        assert f'mewstream_connections_refused_total{{limit="{limit}"}} 1.0' in exposition
        assert "mewstream_http_connections 1.0" in exposition
        others.pop().sock.close()

        async def there_is_room() -> bool:
            async with await HttpSocket.connected(gateway.port) as again:
                try:
                    await again.send(request())
                except ConnectionError:
                    return False
                return (await again.answer()).status == 200

        await eventually(there_is_room)
        for raw in (first, refused, *others):
            raw.sock.close()

    async def test_descriptors_are_kept_back_for_the_journal(self, tmp_path: Path) -> None:
        """Strangers take every connection they can get; the journal goes on, and opens new segments."""
        config = space_config(
            "alice",
            gateway={"drain_seconds": 0, "data": "data", "journal": {"segment_bytes": 100_000, "partitions": 1}},
        )
        gateway = LimitedGateway(tmp_path, config, descriptors=200).start()
        try:
            async with joined(gateway, "alice") as (alice,):
                stream = await alice.open_stream()
                strangers = []
                for _ in range(400):
                    raw = await RawSocket.open(gateway.port)
                    strangers.append(raw)
                assert psutil.Process(gateway.pid).num_fds() < 200
                segments = _count_segments(tmp_path)
                for _ in range(60):
                    await alice.frame(stream, "x" * 20_000)
                    await alice.settle()
                assert _count_segments(tmp_path) >= segments + 5
                for raw in strangers:
                    raw.sock.close()

                async def is_well() -> bool:
                    return await _health(gateway) == "ok"

                await eventually(is_well)
        finally:
            log = gateway.stop()
        assert "cannot be written" not in log
        assert "cannot be accepted" not in log


def _count_segments(directory: Path) -> int:
    return len(list(directory.glob("data/**/*.arrow")))


async def _health(gateway: GatewayProcess) -> str | None:
    """None while there is no room for us."""
    try:
        status, health = await gateway.http("GET", "/health")
    except (aiohttp.ClientError, OSError):
        return None
    return str(health["status"]) if status == 200 else None


class LimitedGateway(GatewayProcess):
    """A gateway that may have few descriptors."""

    def __init__(self, directory: Path, config: dict[str, Any], *, descriptors: int) -> None:
        super().__init__(directory, config)
        self._descriptors = descriptors

    def start(self) -> LimitedGateway:
        serve = [sys.executable, "-m", "mewstream.cli.main", "serve", "--port", "0", "--config", str(self.files[0])]
        command = ["sh", "-c", f'ulimit -n {self._descriptors} && exec "$0" "$@"', *serve]
        with self.log.open("ab") as errors:
            process = subprocess.Popen(command, cwd=self.directory, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.process = process  # type: ignore[assignment]
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "listening on http" in line, self.log.read_text()
        self.port = int(line.rsplit(":", 1)[1])
        return self
