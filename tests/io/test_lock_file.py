"""Lock files, between processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mewstream.io.lock_file import LockHeld, acquire


def test_the_file_names_its_holder(tmp_path: Path) -> None:
    handle = acquire(tmp_path / "deep" / "lock")
    assert (tmp_path / "deep" / "lock").read_text() == f"{os.getpid()}\n"
    os.close(handle)


def test_another_process_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = f"""
from pathlib import Path
from mewstream.io.lock_file import acquire
acquire(Path({str(path)!r}))
print("locked", flush=True)
input()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(LockHeld) as held:
            acquire(path)
        assert held.value.holder == str(other.pid)
        other.kill()
    os.close(acquire(path))  # a holder that was killed holds nothing


def test_closing_gives_it_back(tmp_path: Path) -> None:
    os.close(acquire(tmp_path / "lock"))
    os.close(acquire(tmp_path / "lock"))


def test_a_path_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        acquire(tmp_path / "file" / "lock")
