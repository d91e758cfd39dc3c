"""Lock files: one process at a time uses a directory, and the others are told which one does."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class LockHeld(Exception):
    """Another process holds the lock. ``holder`` is its process id as text, empty where it has not said so yet."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"the lock is held by process {holder}" if holder else "the lock is held by another process")
        self.holder = holder


def acquire(path: Path) -> int:
    """Lock the file, creating it and its directory if need be, and write our process id into it.

    Returns the open file: closing it gives the lock back, and so does the end of the process, however it ends. Raises
    :class:`LockHeld` where another process has the lock, and OSError where the file cannot be used.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = os.read(handle, 32).decode("ascii", "replace").strip()
        os.close(handle)
        raise LockHeld(holder) from None
    except BaseException:
        os.close(handle)
        raise
    return handle
