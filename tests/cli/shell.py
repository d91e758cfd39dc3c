"""A user at a shell: real ``mewstream`` processes, with pipes and signals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from support import GatewayProcess, token_of

MEWSTREAM = [sys.executable, "-m", "mewstream.cli.main"]
#: For a process that must end: long, for the machine may be busy, and never waited for in full.
TIMEOUT = 60


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Commands are run in ``directory``. They find the gateway and the tokens in their environment."""

    def __init__(self, directory: Path, gateway: GatewayProcess | None = None, *participants: str) -> None:
        self.directory = directory
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("MEW_")}
        self.environment = {**inherited, "PYTHONWARNINGS": "error", "TERM": "xterm"}
        if gateway is not None:
            self.environment["MEW_URL"] = gateway.ws_url
        for name in participants:
            variable = re.sub("[^A-Z0-9]", "_", name.upper())
            self.environment[f"MEW_TOKEN_{variable}"] = token_of(name)

    def run(self, *arguments: str, code: int = 0, input: str | bytes = b"", **environment: str) -> Done:
        """Run to the end. Whatever the code, there is no traceback."""
        process = self.start(*arguments, **environment)
        given = input.encode() if isinstance(input, str) else input
        out, err = process.communicate(given, timeout=TIMEOUT)
        done = Done(process.returncode, out.decode(), err.decode())
        assert "Traceback" not in done.err, done.err
        assert done.code == code, (arguments, done)
        return done

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*MEWSTREAM, *arguments],
            cwd=self.directory,
            env=self.environment | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


class Running:
    """A command that goes on: what it says is kept as it comes, and can be waited for."""

    def __init__(self, process: subprocess.Popen[bytes], *, reads_stdout: bool = True) -> None:
        self.process = process
        self.out: list[str] = []
        self.err: list[str] = []
        self._changed = threading.Condition()
        assert process.stdout is not None and process.stderr is not None and process.stdin is not None
        self.stdin = process.stdin
        self.stdout = process.stdout
        self._readers = [threading.Thread(target=self._read, args=(process.stderr, self.err))]
        if reads_stdout:
            self._readers.append(threading.Thread(target=self._read, args=(process.stdout, self.out)))
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            with self._changed:
                lines.append(line.decode().rstrip("\n"))
                self._changed.notify_all()

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, TIMEOUT), (self.out, self.err)

    def says(self, text: str) -> None:
        """Wait until stderr has it."""
        self.wait_until(lambda: any(text in line for line in self.err))

    def prints(self, count: int) -> list[str]:
        """Wait until stdout has so many lines."""
        self.wait_until(lambda: len(self.out) >= count)
        return self.out

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ends(self, code: int) -> None:
        found = self.process.wait(TIMEOUT)
        for reader in self._readers:
            reader.join(TIMEOUT)
        assert found == code, (found, self.out, self.err)
        assert "Traceback" not in "\n".join(self.err), self.err

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.out]


@contextmanager
def running(shell: Shell, *arguments: str, reads_stdout: bool = True, **environment: str) -> Iterator[Running]:
    command = Running(shell.start(*arguments, **environment), reads_stdout=reads_stdout)
    try:
        yield command
    finally:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait(TIMEOUT)
        for stream in (command.stdin, command.stdout, command.process.stderr):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass  # what was written and never read
