"""The gateway to be measured: a running one, or one that is started for each round."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from mewstream.bench.errors import Unreachable
from mewstream.bench.peer import Address
from mewstream.bench.resource_usage import check_process
from mewstream.bench.roster import Needs, Participant, Roster, generated
from mewstream.protocol.errors import ConfigError

#: Seconds within which a started gateway must accept connections.
START_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Live:
    """A gateway that accepts connections."""

    address: Address
    roster: Roster
    needs: Needs
    pid: int | None

    @property
    def people(self) -> list[Participant]:
        """The participants of the first space."""
        return self.roster.spaces(self.needs)[0]


class Target(Protocol):
    @property
    def name(self) -> str: ...

    def running(self, needs: Needs) -> contextlib.AbstractContextManager[Live]: ...


class Remote:
    """A gateway that is already running."""

    def __init__(self, url: str, roster: Callable[[Needs], Roster], *, pid: int | None = None) -> None:
        self._address = Address.parse(url)
        self._roster = roster
        self._pid = pid
        self.name = f"{self._address.host}:{self._address.port}"

    @contextlib.contextmanager
    def running(self, needs: Needs) -> Iterator[Live]:
        if self._pid is not None:
            check_process(self._pid)
        yield Live(self._address, self._roster(needs), needs, self._pid)


class Spawned:
    """A gateway that is started for each round, with a generated space.yaml.

    ``command`` contains the placeholders ``{config}``, ``{port}`` and ``{data}``."""

    def __init__(self, name: str, command: str) -> None:
        self.name = name
        self._command = shlex.split(command)
        if not any("{port}" in word for word in self._command):
            raise ConfigError("the command of a gateway needs a place for its port, for instance --port {port}")

    @contextlib.contextmanager
    def running(self, needs: Needs) -> Iterator[Live]:
        roster, config = generated(needs)
        directory = Path(tempfile.mkdtemp(prefix="mewstream-bench-"))
        try:
            file = directory / "space.yaml"
            # JSON is valid YAML, and fast to write.
            file.write_bytes(msgspec.json.encode(config))
            port = _free_port()
            places = {"{config}": str(file), "{port}": str(port), "{data}": str(directory / "data")}
            words = [_filled(word, places) for word in self._command]
            log = directory / "gateway.log"
            with log.open("wb") as output:
                try:
                    process = subprocess.Popen(words, cwd=directory, stdout=output, stderr=output)  # noqa: S603
                except OSError as error:
                    raise ConfigError(f"{self.name}: {words[0]} cannot be started: {error.strerror}") from None
            try:
                _wait_until_ready(self.name, process, port, log)
                yield Live(Address("127.0.0.1", port, "/ws"), roster, needs, process.pid)
                if process.poll() is not None:
                    raise Unreachable(f"{self.name} ended during the run:\n{_tail(log)}")
            finally:
                _stop(process)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def our_gateway(*, durability: str = "flush", journal: bool = True) -> Spawned:
    """``mewstream serve`` of this installation."""
    command = [sys.executable, "-m", "mewstream.cli.main", "serve", "--config", "{config}", "--port", "{port}"]
    if journal:
        command += ["--data", "{data}", "--durability", durability]
    return Spawned("mewstream", shlex.join([*command, "--log-level", "warning"]))


def _filled(word: str, places: dict[str, str]) -> str:
    for place, value in places.items():
        word = word.replace(place, value)
    return word


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(name: str, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ConfigError(f"{name} did not start (exit code {process.returncode}):\n{_tail(log)}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Unreachable(f"{name} took no connection on port {port} within {START_PATIENCE:g} seconds:\n{_tail(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-10:])
