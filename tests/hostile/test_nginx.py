"""Behind a real nginx that keeps its connections to the gateway alive, and behind a client's own pool: an upgrade comes
on a connection that has carried HTTP requests before."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import http_cases
import psutil
import pytest
from raw_socket import RawSocket

from support import TIMEOUT, Client, GatewayProcess, running_gateway, space_config, token_of

PEOPLE = tuple(f"person-{number}" for number in range(8))
ODD = "a{b} c%d"
MESSAGE_BYTES = 100_000
#: How often another port is tried, where the one that was free is not any more.
ATTEMPTS = 5

CONFIGURATION = """
{user}
worker_processes 1;
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log {directory}/access.log;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    upstream gateway {{ server 127.0.0.1:{gateway}; keepalive {keepalive}; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://gateway;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_bind {address};
        }}
    }}
}}
"""


class Nginx:
    """A proxy in front of a gateway, with so many idle connections to it in its pool."""

    def __init__(self, gateway: GatewayProcess, directory: Path, *, keepalive: int, address: str = "127.0.0.1") -> None:
        program = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
        if program is None:
            pytest.fail("nginx is not installed, and this must be tested: apt-get install nginx-light")
        self.gateway = gateway
        self._log = directory / "error.log"
        file = directory / "nginx.conf"
        for _ in range(ATTEMPTS):
            self.port = _free_port()
            file.write_text(
                CONFIGURATION.format(
                    # As root it would give its workers away to somebody who may not enter this directory.
                    user="user root;" if psutil.Process().uids().effective == 0 else "",
                    directory=directory,
                    gateway=gateway.port,
                    port=self.port,
                    keepalive=keepalive,
                    address=address,
                )
            )
            command = [program, "-p", str(directory), "-c", str(file)]
            self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            if self._listens():
                return
            self.stop()
        pytest.fail(f"nginx did not start: {self._log.read_text()}")

    def _listens(self) -> bool:
        """False: it has ended, perhaps because somebody else has taken the port meanwhile."""
        deadline = time.monotonic() + 3 * TIMEOUT
        while self._process.poll() is None and time.monotonic() < deadline:
            # The port may be another's: that our own process listens on it is what counts.
            listening = psutil.Process(self._process.pid).net_connections("tcp")
            if any(each.status == psutil.CONN_LISTEN and each.laddr.port == self.port for each in listening):
                return True
            time.sleep(0.02)
        return False

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def to_gateway(self) -> set[int]:
        """Its own ports of the connections that it has to the gateway now."""
        return {
            each.laddr.port
            for worker in psutil.Process(self._process.pid).children()
            for each in worker.net_connections("tcp")
            if each.status == psutil.CONN_ESTABLISHED and each.raddr and each.raddr.port == self.gateway.port
        }

    async def connection(self) -> int:
        """Its port of the one connection that it has to the gateway, when others that have ended are gone."""
        async with asyncio.timeout(3 * TIMEOUT):
            while len(ports := self.to_gateway()) != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return ports.pop()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    config = space_config(*PEOPLE, gateway={"drain_seconds": 0}, mewstream={"limits": {"message_bytes": MESSAGE_BYTES}})
    config["participants"][ODD] = {"tokens": ["odd"], "capabilities": [{"kind": "*"}], "auto_connect": True}
    with running_gateway(config) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def nginx(gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    nginx = Nginx(gateway, tmp_path_factory.mktemp("nginx"), keepalive=1)
    yield nginx
    nginx.stop()


@pytest.fixture(scope="module")
def pooling(gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    nginx = Nginx(gateway, tmp_path_factory.mktemp("pooling"), keepalive=16)
    yield nginx
    nginx.stop()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client with one connection, which it keeps."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        yield session


def bearer(participant: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of(participant)}"}


async def ask(session: aiohttp.ClientSession, method: str, url: str, **options: Any) -> tuple[int, Any]:
    async with session.request(method, url, **options) as response:
        text = await response.text()
        return response.status, json.loads(text) if text.startswith("{") else text


async def chat(session: aiohttp.ClientSession, url: str, participant: str, text: str) -> None:
    path = f"{url}/participants/{participant}/messages"
    message = {"kind": "chat", "payload": {"text": text}}
    status, answer = await ask(session, "POST", path, json=message, headers=bearer(participant))
    assert (status, answer["status"]) == (200, "accepted"), answer


async def enter(url: str, participant: str) -> Client:
    client = await Client.connect(f"{url}/ws")
    client.participant = participant
    await client.send_raw(json.dumps({"type": "join", "participantId": participant, "token": token_of(participant)}))
    client.welcome = await client.receive("system/welcome")
    return client


class TestOneConnection:
    """nginx keeps one connection in its pool: whatever comes next uses it."""

    @pytest.mark.parametrize("requests", [1, 2, 7])
    async def test_an_upgrade_on_one_that_carried_requests(
        self, nginx: Nginx, session: aiohttp.ClientSession, requests: int
    ) -> None:
        for number in range(requests):
            if number % 2:
                await chat(session, nginx.url, PEOPLE[0], "over HTTP")
            else:
                assert (await ask(session, "GET", f"{nginx.url}/health"))[0] == 200
        port = await nginx.connection()
        client = await enter(nginx.ws_url, PEOPLE[1])
        assert nginx.to_gateway() == {port}, "the upgrade came on the connection of the requests"
        stream = await client.open_stream()
        await client.frame(stream, "x" * 50_000)
        assert await client.receive_frame(stream) == "x" * 50_000
        await client.close()

    async def test_round_after_round(self, nginx: Nginx, session: aiohttp.ClientSession) -> None:
        """A WebSocket takes its connection with it; the next request opens another, which the next upgrade gets."""
        ports = []
        for number in range(10):
            await chat(session, nginx.url, PEOPLE[0], f"round {number}")
            port = await nginx.connection()
            client = await enter(nginx.ws_url, PEOPLE[1])
            assert nginx.to_gateway() == {port}
            ports.append(port)
            await client.send("chat", {"text": "over the socket"})
            await client.receive("chat", text="over the socket")
            await client.close()
        assert len(set(ports)) == 10

    async def test_a_refused_upgrade_and_then_another(self, nginx: Nginx, session: aiohttp.ClientSession) -> None:
        for _ in range(3):
            assert (await ask(session, "GET", f"{nginx.url}/health"))[0] == 200
            with pytest.raises(Exception, match="401"):
                await Client.connect(nginx.ws_url, additional_headers={"Authorization": "Basic x"})
            client = await enter(nginx.ws_url, PEOPLE[1])
            await client.close()


class TestThroughNginx:
    async def test_requests_of_every_kind(self, nginx: Nginx, session: aiohttp.ClientSession) -> None:
        path = f"{nginx.url}/participants/{PEOPLE[0]}/messages"
        assert (await ask(session, "HEAD", f"{nginx.url}/health"))[0] == 200
        assert (await ask(session, "GET", f"{nginx.url}/nowhere"))[0] == 404
        assert (await ask(session, "GET", f"{nginx.url}/participants"))[0] == 401
        large = json.dumps({"kind": "chat", "payload": {"text": "x" * (MESSAGE_BYTES + 1)}})
        status, answer = await ask(session, "POST", path, data=large, headers=bearer(PEOPLE[0]))
        assert (status, answer["payload"]["limit"]) == (413, "message_bytes")

        async def pieces() -> AsyncIterator[bytes]:
            for piece in ('{"kind":"chat",', '"payload":{"text":', '"in pieces"}}'):
                yield piece.encode()

        status, answer = await ask(session, "POST", path, data=pieces(), headers=bearer(PEOPLE[0]))
        assert (status, answer["status"]) == (200, "accepted")
        odd = f"{nginx.url}/participants/{quote(ODD, safe='')}/messages"
        status, answer = await ask(session, "GET", odd, headers={"Authorization": "Bearer odd"})
        assert status == 200, answer

    async def test_many_at_once(self, pooling: Nginx) -> None:
        """Requests, joins, leaves and frames of several people, on connections that nginx hands out as it likes."""
        reader = await enter(pooling.ws_url, PEOPLE[0])

        async def person(name: str) -> None:
            async with aiohttp.ClientSession() as session:
                for number in range(8):
                    await chat(session, pooling.url, name, f"{name} {number} by HTTP")
                    client = await enter(pooling.ws_url, name)
                    await client.send("chat", {"text": f"{name} {number} by socket"})
                    await client.settle()
                    await client.close()
                    assert (await ask(session, "GET", f"{pooling.url}/health"))[0] == 200

        await asyncio.gather(*(person(name) for name in PEOPLE[1:]))
        await reader.settle()
        texts = [
            each["payload"]["text"] for each in reader.got if isinstance(each, dict) and each.get("kind") == "chat"
        ]
        for name in PEOPLE[1:]:
            expected = [f"{name} {number} by {way}" for number in range(8) for way in ("HTTP", "socket")]
            assert [text for text in texts if text.startswith(f"{name} ")] == expected
        await reader.close()


class TestStrangersBehindIt:
    async def test_nobody_gets_anothers_answer(self, pooling: Nginx) -> None:
        """Hostile requests, on connections to the gateway that nginx shares among all: were one of them understood
        differently by the two, the next answer would be somebody else's."""
        is_over = asyncio.Event()

        async def bystander(name: str) -> int:
            async with aiohttp.ClientSession() as session:
                for number in itertools.count():
                    message = {"id": f"{name}-hostile-{number}", "kind": "chat", "payload": {"text": "mine"}}
                    url = f"{pooling.url}/participants/{name}/messages"
                    status, answer = await ask(session, "POST", url, json=message, headers=bearer(name))
                    assert (status, answer["id"]) == (200, message["id"])
                    if is_over.is_set():
                        return number
            raise AssertionError

        async def attack(sent: bytes) -> None:
            async with await RawSocket.open(pooling.port) as raw:
                with contextlib.suppress(ConnectionError):
                    await raw.send(sent)
                    raw.sock.shutdown(socket.SHUT_WR)
                await raw.read_all()

        bystanders = [asyncio.create_task(bystander(name)) for name in PEOPLE[2:5]]
        for case in http_cases.CASES:
            if not case.waits:
                await attack(case.sent)
        is_over.set()
        assert min(await asyncio.gather(*bystanders)) > 10

    async def test_count_by_their_own_address(self, tmp_path: Path) -> None:
        """nginx has an address of its own here, so that the gateway can tell it from its clients."""
        settings = {"connections_per_address": 3, "trusted_proxies": ["127.0.0.9"], "drain_seconds": 0}
        with running_gateway(space_config(*PEOPLE, gateway=settings)) as gateway:
            nginx = Nginx(gateway, tmp_path, keepalive=8, address="127.0.0.9")
            try:
                async with aiohttp.ClientSession() as session:
                    asked = (ask(session, "GET", f"{nginx.url}/health") for _ in range(20))
                    assert {status for status, _ in await asyncio.gather(*asked)} == {200}
                clients = [await enter(nginx.ws_url, name) for name in PEOPLE[:3]]
                with pytest.raises(Exception, match="503"):
                    await Client.connect(nginx.ws_url)
                # What a client claims stands before what nginx knows.
                with pytest.raises(Exception, match="503"):
                    await Client.connect(nginx.ws_url, additional_headers={"X-Forwarded-For": "203.0.113.7"})
                for client in clients:
                    await client.settle()
                    await client.close()
            finally:
                nginx.stop()


class TestOwnPool:
    """aiohttp's session keeps its connections too, and upgrades one of them."""

    @pytest.mark.parametrize("way", ["directly", "through nginx"])
    async def test_http_and_then_a_socket(self, gateway: GatewayProcess, nginx: Nginx, way: str) -> None:
        url = gateway.url if way == "directly" else nginx.url
        connections: list[str] = []

        async def opened(*_: object) -> None:
            connections.append("opened")

        async def reused(*_: object) -> None:
            connections.append("reused")

        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(opened)
        trace.on_connection_reuseconn.append(reused)
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(connector=connector, trace_configs=[trace]) as session:
            for number in range(3):
                assert (await ask(session, "GET", f"{url}/health"))[0] == 200
                await chat(session, url, PEOPLE[0], f"then a socket, {number}")
                async with session.ws_connect(f"{url}/ws", headers=bearer(PEOPLE[1])) as ws:
                    assert (await ws.receive_json())["kind"] == "system/welcome"
        # Each socket was opened on the connection of the two requests before it, and took that with it.
        assert connections == ["opened", "reused", "reused"] * 3
