"""Gateways that start at once: what they need is imported once, by the process that they are forked from.

process = ForkedCommand(["serve", "--port", "0"], directory, log)   # a process of its own, as subprocess.Popen has it
process.stdout.readline()
process.send_signal(signal.SIGTERM)
assert process.wait(timeout=30) == 0
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
#: pyarrow imports pandas, where there is one, when it is first given a list: with the first record of a journal.
_CONTEXT.set_forkserver_preload(["mewstream.cli.main", "mewstream.cli.serve", "pandas"])


class ForkedCommand:
    """``mewstream`` with these arguments. ``stdout`` is ours to read, and what it says of errors goes to a file."""

    def __init__(
        self, arguments: list[str], directory: Path, log: Path, *, prepare: Callable[[], None] | None = None
    ) -> None:
        """``prepare`` is called in the new process, before anything else."""
        reading, writing = _CONTEXT.Pipe(duplex=False)
        place = str(directory), dict(os.environ)
        # A daemon ends with us, should a test that fails forget it.
        self._process = _CONTEXT.Process(target=_run, args=(arguments, *place, str(log), writing, prepare), daemon=True)
        self._process.start()
        writing.close()
        self.stdout = os.fdopen(os.dup(reading.fileno()), encoding="utf-8")
        reading.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("mewstream", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and we have not been told yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(
    arguments: list[str],
    directory: str,
    environment: dict[str, str],
    log: str,
    output: Connection,
    prepare: Callable[[], None] | None,
) -> None:
    from mewstream.cli.main import main

    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    with Path(log).open("ab") as errors:
        os.dup2(errors.fileno(), 2)
    os.dup2(output.fileno(), 1)
    output.close()
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, encoding="utf-8") for number in (1, 2))
    sys.argv = ["mewstream", *arguments]
    if prepare is not None:
        prepare()
    main()
