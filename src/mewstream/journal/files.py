"""The few operations that the journal needs of a file system. Tests replace them with a file system that is full,
that fails, or that forgets what was not synced."""

from __future__ import annotations

import os
from pathlib import Path

from mewstream.io import atomic_file

FileIdentity = tuple[int, int]
"""Tells whether two names lead to the same file. No other file has this identity while the file is open."""


class Files:
    """Files of the operating system."""

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def close(self, handle: int) -> None:
        os.close(handle)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def identity(self, handle: int) -> FileIdentity:
        """Return the identity of an open file, even if it was moved or removed."""
        found = os.fstat(handle)
        return found.st_dev, found.st_ino

    def identity_at(self, path: Path) -> FileIdentity:
        """Return the identity of the file that has this name now."""
        found = path.stat()
        return found.st_dev, found.st_ino

    def write_at(self, handle: int, data: bytes | memoryview, position: int) -> None:
        """Write all of the data. After an :class:`OSError`, the content beyond ``position`` is undefined."""
        view = memoryview(data)
        while view:
            written = os.pwrite(handle, view, position)
            position += written
            view = view[written:]

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def sync_directory(self, path: Path) -> None:
        atomic_file.sync_directory(path)

    def replace(self, path: Path, data: bytes) -> None:
        """Replace a whole file atomically: a reader sees the old content or the new, never a part of it."""
        with atomic_file.replacing(path, sync=self.sync) as handle:
            self.write_at(handle, data, 0)
        self.sync_directory(path.parent)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
