"""Who gets a connection: counted in all, by address, and against the descriptors of the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mewstream.gateway.config import GatewayConfig, load_config
from mewstream.gateway.connections import Connections, connection_limits
from support import space_config


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
    """Only the collector of cycles would find it, which comes by seldom: until then strangers could fill the memory with
    connections that they have closed. With TLS each kept a quarter of a MiB."""
    command = [sys.executable, str(Path(__file__).with_name("leftovers.py")), mode, str(tmp_path)]
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    environment = {**os.environ, "PYTHONPATH": paths}
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    left = json.loads(result.stdout)
    assert all(number <= 2 for number in left.values()), left  # the last one that was read, and a rate
