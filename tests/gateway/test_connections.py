"""Who gets a connection: counted in all, by address, and against the descriptors of the process."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from http_socket import Answer, HttpSocket, request
from raw_socket import upgrade_head

from mewstream.gateway.config import GatewayConfig, load_config
from mewstream.gateway.connections import Connections, connection_limits
from mewstream.gateway.listening import Listening
from mewstream.gateway.proxies import Proxies
from support import TIMEOUT, running_gateway, space_config


def config(directory: Path, **gateway: object) -> GatewayConfig:
    file = directory / "space.yaml"
    file.write_text(yaml.safe_dump(space_config("alice", gateway=gateway)))
    return load_config([file], environ={}, cwd=directory)


class TestSeats:
    def test_are_limited_and_come_free(self) -> None:
        refused: list[str] = []
        connections = Connections(most=5, most_per_address=3, refused=refused.append)
        mine = [connections.admit(("10.0.0.1", port)) for port in range(3)]
        assert all(mine)
        assert connections.admit(("10.0.0.1", 9)) is None
        assert connections.admit(("10.0.0.2", 1)) is not None
        assert connections.admit(("10.0.0.2", 2)) is not None
        assert connections.admit(("10.0.0.3", 1)) is None
        assert refused == ["connections_per_address", "connections"]
        assert mine[0] is not None
        mine[0].leave()
        mine[0].leave()
        assert len(connections) == 4
        assert connections.admit(("10.0.0.1", 10)) is not None

    @pytest.mark.parametrize(
        ("first", "second", "are_one"),
        [
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
            ("::ffff:10.0.0.1", "10.0.0.1", True),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
            ("fe80::1%eth0", "fe80::2%eth0", True),
            ("10.0.0.1", "10.0.0.2", False),
        ],
    )
    def test_an_address_of_ipv6_is_its_network(self, first: str, second: str, are_one: bool) -> None:
        connections = Connections(most=10, most_per_address=1, refused=lambda _: None)
        assert connections.admit((first, 1)) is not None
        assert (connections.admit((second, 1)) is None) is are_one


class TestProxies:
    PROXIES = Proxies([ip_network("10.0.0.0/8"), ip_network("::1")])

    @pytest.mark.parametrize(
        ("lines", "client"),
        [
            ([b"203.0.113.7"], "203.0.113.7"),
            ([b"198.51.100.1, 203.0.113.7"], "203.0.113.7"),
            ([b"203.0.113.7, 10.1.2.3"], "203.0.113.7"),
            ([b"198.51.100.1", b"203.0.113.7,10.9.9.9"], "203.0.113.7"),
            ([b"203.0.113.7:5000"], "203.0.113.7"),
            ([b"2001:db8::1"], "2001:db8::1"),
            ([b"[2001:db8::1]:5000"], "2001:db8::1"),
            ([b"[2001:db8::1]"], "2001:db8::1"),
            ([b"::ffff:203.0.113.7"], "203.0.113.7"),
            ([b"fe80::1%eth0"], "fe80::1"),
            ([], None),
            ([b""], None),
            ([b"unknown"], None),
            ([b"203.0.113.7, _hidden"], None),
            ([b"203.0.113.7, \xff"], None),
            ([b"10.0.0.1, ::1"], None),
        ],
    )
    def test_say_for_whom_they_stand(self, lines: list[bytes], client: str | None) -> None:
        found = self.PROXIES.client_of(lines)
        assert (None if found is None else str(found)) == client

    def test_count_for_no_address_and_their_clients_do(self) -> None:
        refused: list[str] = []
        connections = Connections(most=8, most_per_address=2, refused=refused.append, proxies=self.PROXIES)
        seats = [connections.admit(("10.0.0.1", port)) for port in range(6)]
        assert refused == []
        claims = [
            seat is not None and seat.claim([client])
            for seat, client in zip(seats, [b"203.0.113.7"] * 3 + [b"203.0.113.8"] + [b""] * 2, strict=True)
        ]
        assert claims == [True, True, False, True, True, True]
        assert refused == ["connections_per_address"]
        direct = connections.admit(("203.0.113.7", 1))
        assert direct is None, "one address, whichever way it comes"
        for seat in seats:
            assert seat is not None
            seat.leave()
        assert len(connections) == 0
        assert connections.admit(("203.0.113.7", 1)) is not None

    def test_anybody_else_is_not_believed(self) -> None:
        connections = Connections(most=10, most_per_address=1, refused=lambda _: None, proxies=self.PROXIES)
        seat = connections.admit(("203.0.113.7", 1))
        assert seat is not None
        assert seat.claim([b"198.51.100.1"])
        assert connections.admit(("203.0.113.7", 2)) is None

    async def test_behind_one(self) -> None:
        settings = {"connections_per_address": 2, "trusted_proxies": ["127.0.0.1"], "drain_seconds": 0}
        with running_gateway(space_config("alice", gateway=settings)) as gateway:

            async def upgrade(forwarded: str) -> tuple[HttpSocket, Answer]:
                raw = await HttpSocket.connected(gateway.port)
                assert (await raw.ask(request())).status == 200  # requests count for nobody
                return raw, await raw.ask(upgrade_head(X_Forwarded_For=forwarded))

            opened = [await upgrade("203.0.113.7"), await upgrade("198.51.100.1, 203.0.113.7")]
            assert [answer.status for _, answer in opened] == [101, 101]
            raw, refused = await upgrade("203.0.113.7")
            assert (refused.status, refused.error, refused.headers["retry-after"]) == (503, "limit_exceeded", "5")
            assert refused.json["payload"]["limit"] == "connections_per_address"
            raw.sock.close()
            opened.append(await upgrade("203.0.113.8"))
            assert opened[-1][1].status == 101
            opened[0][0].sock.close()
            async with asyncio.timeout(3 * TIMEOUT):
                while True:
                    raw, answer = await upgrade("203.0.113.7")
                    raw.sock.close()
                    if answer.status == 101:
                        break
            for raw, _ in opened:
                raw.sock.close()


class TestAccepting:
    @pytest.mark.parametrize("number", [errno.EPROTO, errno.EHOSTUNREACH, errno.ECONNABORTED, errno.EMFILE, errno.EIO])
    async def test_a_connection_that_failed_keeps_no_other_out(
        self, number: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Linux reports what happened to a connection before it was accepted when it is accepted."""

        class Failing(socket.socket):
            failures = 3

            def accept(self) -> tuple[socket.socket, Any]:
                if self.failures:
                    self.failures -= 1
                    raise OSError(number, os.strerror(number))
                return super().accept()

        served = asyncio.Event()

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                transport.close()
                served.set()

        listening_socket = Failing()
        listening_socket.bind(("127.0.0.1", 0))
        listening_socket.listen()
        listening_socket.setblocking(False)
        listening = Listening([listening_socket])
        listening.start(
            Connections(most=10, most_per_address=10, refused=lambda _: None),
            lambda seat: Protocol(),
            tls=None,
            handshake_timeout=1,
            spawn=asyncio.ensure_future,
        )
        _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        await asyncio.wait_for(served.wait(), TIMEOUT)
        writer.close()
        listening.close()
        is_ours = number in (errno.EMFILE, errno.EIO)
        assert [record.levelname for record in caplog.records] == ["ERROR"] * is_ours
        assert all(record.exc_info is None for record in caplog.records)


class TestLimits:
    def test_leave_descriptors_for_the_journal(self, tmp_path: Path) -> None:
        most, per_address = connection_limits(config(tmp_path), 1024)
        assert 900 < most < 1024 - 64
        assert per_address == most * 3 // 4
        with_journal, _ = connection_limits(config(tmp_path, data="data"), 1024)
        with_many, _ = connection_limits(config(tmp_path, data="data", journal={"partitions": 16}), 1024)
        assert most > with_journal > with_many

    def test_can_be_set(self, tmp_path: Path) -> None:
        assert connection_limits(config(tmp_path, connections=100), 1024) == (100, 75)
        assert connection_limits(config(tmp_path, connections=100, connections_per_address=100), 1024) == (100, 100)
        assert connection_limits(config(tmp_path, connections=100, connections_per_address=500), 1024) == (100, 100)

    def test_never_promise_what_the_system_does_not_give(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        most, _ = connection_limits(config(tmp_path, connections=5_000), 1024)
        assert most < 1024
        assert "ulimit -n" in caplog.text

    def test_are_never_none_at_all(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        assert connection_limits(config(tmp_path), 70)[0] == 16
        assert "ulimit -n" in caplog.text


@pytest.mark.parametrize("mode", ["plain", "tls"])
def test_nothing_is_left_of_connections_that_have_ended(mode: str, tmp_path: Path) -> None:
    """Only the collector of cycles would find it, which comes by seldom: until then strangers could fill the memory
    with connections that they have closed. With TLS each kept a quarter of a MiB."""
    command = [sys.executable, str(Path(__file__).with_name("leftovers.py")), mode, str(tmp_path)]
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    environment = {**os.environ, "PYTHONPATH": paths}
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    left = json.loads(result.stdout)
    assert max(left.values()) <= 2, left  # the last one that was read, and a rate
