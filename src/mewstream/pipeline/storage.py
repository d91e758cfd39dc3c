"""Where a warehouse is: a directory, or a URL of an object store.

For a URL everything goes through delta-rs, in the driver and in the workers alike, so that there is one place for
credentials: the environment, by the names that the store's own tools use (``AWS_ACCESS_KEY_ID``, ...).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from mewstream.io import lock_file
from mewstream.journal.files import Files
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.source_options import without_secrets

LOCK = "_lock"
#: What delta-rs replaces in a path, as if it were in a URL.
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\")


class Store(NamedTuple):
    """It is pickled: the workers write to the same place."""

    root: str
    """An absolute path, or a URL, without a slash at its end."""

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    def __str__(self) -> str:
        return without_secrets(self.root)

    def uri(self, name: str) -> str:
        return f"{self.root}/{name}"

    def filesystem(self, name: str) -> fs.FileSystem:
        """With the directory of a table as its root."""
        return _filesystem(self.uri(name))

    def has(self, name: str) -> bool:
        """Whether there is a file of this name, or anything below it."""
        if self.is_local:
            return Path(self.uri(name)).exists()
        selector = fs.FileSelector("", allow_not_found=True, recursive=True)
        return bool(self.filesystem(name).get_file_info(selector))

    def remove(self, name: str) -> None:
        """A directory with all that is in it, where it is there."""
        if self.has(name):
            _filesystem(self.root).delete_dir(name)

    def sync(self, name: str, file: str) -> None:
        """Make a file survive a power failure. What an object store has taken does so by itself."""
        if self.is_local:
            files, path = Files(), Path(self.uri(name), file)
            handle = files.open(path)
            try:
                files.sync(handle)
            finally:
                files.close(handle)
            files.sync_directory(path.parent)


@functools.lru_cache(maxsize=64)
def _filesystem(uri: str) -> fs.FileSystem:
    if "://" not in uri:
        return fs.SubTreeFileSystem(uri, fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    class Handler(DeltaStorageHandler):
        def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
            return pa.PythonFile(_BytesOnly(self._handler.open_output_stream(path, metadata)), mode="w")

    return fs.PyFileSystem(Handler(uri))


class _BytesOnly:
    """A file of delta-rs, which takes nothing but bytes, for Arrow, which gives buffers."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        return int(self._file.write(bytes(data)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def store_at(path: str | Path) -> Store:
    text = str(path).removeprefix("file://")
    if "://" in text:
        return Store(text.rstrip("/"))
    root = str(Path(text).expanduser().absolute())
    if found := _ESCAPE.search(root):
        raise WarehouseError(
            f"{root} cannot be a warehouse: delta-rs takes {found[0]} in a path for another character. Use a directory "
            "without it in its path"
        )
    return Store(root)


@contextlib.contextmanager
def locked(store: Store) -> Iterator[None]:
    """One writer at a time. In a directory a second one is refused at once; in an object store, which has no locks,
    the first to commit continues, and Delta refuses the other's commit."""
    if not store.is_local:
        yield
        return
    try:
        handle = lock_file.acquire(Path(store.root, LOCK))
    except lock_file.LockHeld as held:
        by = f" (process {held.holder})" if held.holder else ""
        raise WarehouseError(
            f"{store} is being written by another pipeline{by}: wait for it, or give this one another --warehouse"
        ) from None
    except OSError as error:
        raise WarehouseError(f"cannot use {store} as a warehouse: {error.strerror or error}") from None
    try:
        yield
    finally:
        os.close(handle)


#: What storage raises, through pyarrow or delta-rs.
STORAGE_ERRORS = (OSError, pa.ArrowException)
