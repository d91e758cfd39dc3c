"""Replacing whole files: a reader sees the old content or the new, never a part of it, and so does a restart."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, sync: Callable[[int], None] | None = None) -> Iterator[int]:
    """Open a file to write to. It takes the place of ``path`` at the end of the block, or is removed after an error.

    The new name is safe only after :func:`sync_directory`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        try:
            yield handle
            (sync or os.fsync)(handle)
        finally:
            os.close(handle)
        temporary.replace(path)
    except (Exception, KeyboardInterrupt, SystemExit):
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace(path: Path, data: bytes) -> None:
    with replacing(path) as handle, os.fdopen(handle, "wb", closefd=False) as file:
        file.write(data)
    sync_directory(path.parent)
