"""Whole files are replaced, or stay as they are."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from mewstream.io import atomic_file


def test_the_new_content_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (b"old", b"new" * 100_000):
        atomic_file.replace(path, data)
        assert path.read_bytes() == data and list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), ValueError(), KeyboardInterrupt()])
def test_after_an_error_the_old_content_stays_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(type(error)), atomic_file.replacing(path) as handle:
        os.write(handle, b"half")
        raise error
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_content_that_cannot_be_synced_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(handle: int) -> None:
        raise OSError(errno.EIO, "broken disk")

    with pytest.raises(OSError, match="broken disk"), atomic_file.replacing(path, sync=fail) as handle:
        os.write(handle, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
