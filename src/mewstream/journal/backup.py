"""Copying a data directory while a gateway writes to it.

Nothing is locked, and only committed records are copied, in an order in which no file can be ahead of another: the
identity and the snapshots first, then for each segment the batches that its index had when the segments were listed,
and last the tokens of invited participants, which are stored before the invitation is recorded. If the identity is
another at the end, because the journal was pruned or the gateway was started again, the copy is begun anew.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pyarrow import fs

from mewstream.io.atomic_file import sync_directory
from mewstream.journal.erase import refuse_half_erased
from mewstream.journal.errors import JournalError
from mewstream.journal.identity import IDENTITY_FILE, Identity, parse_identity
from mewstream.journal.listing import list_segments, open_segment
from mewstream.journal.local import snapshot_files
from mewstream.journal.segments import Segment

INVITED_FILE = "invited.json"
#: How often a copy is begun anew, and how long each attempt waits for a start or a pruning to be over.
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.5
_CHUNK = 1 << 20

_LOCAL = fs.LocalFileSystem()


class Copied(NamedTuple):
    """What a copy consists of."""

    bytes: int
    segments: int
    records: int


class _HasChangedError(Exception):
    """The journal was pruned, or a gateway has begun another run."""


def copy_data(data: Path, to: Path, *, advance: Callable[[int], None] = lambda size: None) -> Copied:
    """Copy the journal and the tokens in a data directory into ``to``, which must be empty or not exist. ``advance`` is
    called with the bytes that were copied. Raises :class:`JournalError`; then ``to`` is as it was."""
    root = data / "journal"
    _identity(root)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise JournalError(f"{to} is there already, and not empty: name another directory")
    unfinished = to.with_name(f".{to.name}.{os.getpid()}.unfinished")
    for attempt in range(_ATTEMPTS):
        time.sleep(_PAUSE_SECONDS if attempt else 0)
        try:
            with _removed_on_error(unfinished):
                copied = _Copy(root, unfinished / "journal", advance).run()
                _copy_invited(data, unfinished)
                to.parent.mkdir(parents=True, exist_ok=True)
                unfinished.replace(to)
                sync_directory(to.parent)
                return copied
        except _HasChangedError:
            continue
        except OSError as error:
            raise JournalError(f"{data} cannot be copied to {to}: {error.strerror or error}") from None
    raise JournalError(f"{root} was pruned or begun anew each time that it was copied: try again later")


class _Copy:
    """One attempt."""

    def __init__(self, root: Path, to: Path, advance: Callable[[int], None]) -> None:
        self._root = root
        self._to = to
        self._advance = advance
        self._bytes = self._segments = self._records = 0

    def run(self) -> Copied:
        """Raises :class:`_HasChangedError` if the journal has changed meanwhile."""
        refuse_half_erased(self._root)
        content = (self._root / IDENTITY_FILE).read_bytes()
        identity = _identity(self._root)
        self._to.mkdir(mode=0o700, parents=True)
        for file in sorted((self._root / "consumers").glob("*.json")):
            self._file(file)
        for number in range(identity.partitions):
            self._partition(self._root / f"p{number}", identity.pruned.get(number, 0))
        if (self._root / IDENTITY_FILE).read_bytes() != content:
            raise _HasChangedError
        with self._made(IDENTITY_FILE) as copy:
            copy.write(content)
        refuse_half_erased(self._root)
        for directory in (*filter(Path.is_dir, self._to.iterdir()), self._to):
            sync_directory(directory)
        return Copied(self._bytes, self._segments, self._records)

    def _partition(self, directory: Path, begins_at: int) -> None:
        (self._to / directory.name).mkdir()
        for file in (*snapshot_files(directory), *directory.glob("readers-*.json"), *directory.glob("*.bad")):
            with contextlib.suppress(FileNotFoundError):  # an older snapshot, which a newer one replaces
                self._file(file)
        segments = list_segments(_LOCAL, str(directory), lambda: begins_at)
        for segment in segments:
            self._segment(segment, is_last=segment is segments[-1])

    def _segment(self, segment: Segment, *, is_last: bool) -> None:
        if segment.flaw is not None and not (is_last and segment.is_torn):
            raise segment.damage()
        opened = open_segment(_LOCAL, segment)
        if opened is None:
            raise _HasChangedError
        segment, data = opened
        directory = Path(segment.directory)
        end = segment.batches[-1].position + segment.batches[-1].length if segment.batches else data.size()
        with data, self._made(f"{directory.name}/{segment.name.data_file}") as file:
            left = end
            while left and (chunk := data.read(min(left, _CHUNK))):
                file.write(chunk)
                left -= len(chunk)
                self._count(len(chunk))
            if left:
                raise JournalError(f"{segment.data_path} is shorter than its index says: run mewstream journal verify")
        with self._made(f"{directory.name}/{segment.name.stem}.index") as file:
            file.write(b"".join(entry.encode() for entry in segment.batches))
        if segment.name.sealed:
            with contextlib.suppress(FileNotFoundError):  # older versions made none
                self._file(directory / f"{segment.name.stem}.spaces")
        self._segments += 1
        self._records += sum(entry.last_offset - entry.first_offset + 1 for entry in segment.batches)

    def _file(self, file: Path) -> None:
        """Copy a file that is only ever replaced as a whole."""
        content = file.read_bytes()
        with self._made(str(file.relative_to(self._root))) as copy:
            copy.write(content)
        self._count(len(content))

    def _count(self, size: int) -> None:
        self._bytes += size
        self._advance(size)

    @contextlib.contextmanager
    def _made(self, name: str) -> Iterator[BinaryIO]:
        with _made(self._to / name) as file:
            yield file


def _identity(root: Path) -> Identity:
    file = root / IDENTITY_FILE
    try:
        return parse_identity(file.read_bytes(), str(file))
    except FileNotFoundError:
        raise JournalError(f"there is no journal in {root.parent}: {file} is missing") from None


def _copy_invited(data: Path, to: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # nobody was invited
        content = (data / INVITED_FILE).read_bytes()
        with _made(to / INVITED_FILE) as file:
            file.write(content)
    sync_directory(to)


@contextlib.contextmanager
def _made(path: Path) -> Iterator[BinaryIO]:
    """A new file that only its owner can read. It is on the disk at the end of the block."""
    path.parent.mkdir(exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _removed_on_error(directory: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
