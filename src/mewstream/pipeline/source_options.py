"""The options of the source ``mew``, checked when it is made: a misspelt option is an error, not a silent default."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
from pyarrow import fs

from mewstream.journal.reader import IDENTITY_FILE
from mewstream.pipeline.errors import SourceError
from mewstream.pipeline.position import Position
from mewstream.pipeline.ranges import RangeReader
from mewstream.protocol.times import parse_rfc3339

OPTIONS = ("path", "space", "kinds", "start", "maxRecordsPerTrigger", "maxBytesPerTrigger")
EARLIEST = "earliest"
LATEST = "latest"
Start = str | int | Position | dict[int, int]
"""``earliest`` or ``latest``, a time in microseconds, a whole position, or offsets of some partitions."""
_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?\Z", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30}
_AZURE = ("abfs", "abfss")
#: What Azure allows as the name of a container, which a key or a password seldom is.
_CONTAINER = re.compile(r"[a-z0-9$-]{3,63}")


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """A directory, absolute, or a URI."""
    spaces: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    start: Start = EARLIEST
    max_records: int | None = None
    max_bytes: int | None = None


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    known = {name.lower(): name for name in OPTIONS}
    given: dict[str, str] = {}
    for name, value in options.items():
        if name.lower() == "paths":
            raise SourceError("load() takes one journal: read each with its own load() and union them")
        if name.lower() not in known:
            close = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean {known[close[0]]}?" if close else f"expected one of {', '.join(OPTIONS)}"
            raise SourceError(f"{name} is no option of the source mew: {hint}")
        given[known[name.lower()]] = value
    if not given.get("path"):
        raise SourceError('the source mew needs the directory of a journal: spark.read.format("mew").load(DIR)')
    return SourceOptions(
        path=absolute(given["path"]),
        spaces=_names(given, "space"),
        kinds=_names(given, "kinds"),
        start=_start(given.get("start", "earliest").strip()),
        max_records=_positive(given, "maxRecordsPerTrigger"),
        max_bytes=_positive(given, "maxBytesPerTrigger"),
    )


def absolute(path: str) -> str:
    """Workers need not run in the directory in which the driver does."""
    return path if "://" in path else str(Path(path).expanduser().absolute())


def _names(given: Mapping[str, str], option: str) -> tuple[str, ...] | None:
    """Separated by commas, or a JSON array, for names with a comma in them."""
    if option not in given:
        return None
    text = given[option].strip()
    names: Any = [name.strip() for name in text.split(",")]
    if text.startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = []
    if not names or not all(isinstance(name, str) and name for name in names):
        raise SourceError(f"the option {option} is {given[option]!r}: expected names, separated by commas")
    return tuple(dict.fromkeys(names))


def _positive(given: Mapping[str, str], option: str) -> int | None:
    if option not in given:
        return None
    match = _SIZE.match(given[option].strip())
    number = int(match[1]) << _UNITS[match[2].lower()] if match else 0
    if number <= 0:
        raise SourceError(f"the option {option} is {given[option]!r}: expected a number above 0, such as 10000 or 64m")
    return number


def _start(text: str) -> Start:
    if text in (EARLIEST, LATEST):
        return text
    if (micros := parse_rfc3339(text)) is not None:
        return micros
    try:
        value = json.loads(text)
        if "offsets" in value:
            return Position.from_json(value)
        offsets = {int(number): offset for number, offset in value.items()}
        if offsets and all(type(offset) is int and offset >= 0 for offset in offsets.values()):
            return offsets
    except (ValueError, TypeError, AttributeError):
        pass
    raise SourceError(
        f"the option start is {text!r}: expected earliest, latest, a time such as 2026-01-31T12:00:00Z, "
        'offsets of partitions such as {"0": 11, "1": 0}, or a position from a checkpoint'
    )


def without_secrets(path: str) -> str:
    """Return a path as it may be shown: URIs can carry keys before the host and after the question mark.

    In a URI of Azure, the container stands where other URIs have a user. It is shown, because without it nobody can
    tell one warehouse of an account from another. A password after it is not.
    """
    if "://" not in path:
        return path
    parts = urlsplit(path)
    user, _, host = parts.netloc.rpartition("@")
    container = user.partition(":")[0]
    if parts.scheme in _AZURE and _CONTAINER.fullmatch(container):
        host = f"{container}@{host}"
    return f"{parts.scheme}://{host}{parts.path}"


@functools.lru_cache(maxsize=8)
def open_journal(path: str) -> RangeReader:
    """The journal in a directory: that of a gateway's data, or the journal itself. A process keeps its connections to
    far storage."""
    shown = without_secrets(path)
    filesystem, root = fs.LocalFileSystem(), path
    try:
        if "://" in path:
            filesystem, root = fs.FileSystem.from_uri(path)
        root = root.rstrip("/")
        candidates = [f"{root}/journal", root]
        found = filesystem.get_file_info([f"{each}/{IDENTITY_FILE}" for each in candidates])
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0].replace(path, shown)
        raise SourceError(f"{shown}: {reason}. Expected a directory, or a URI that pyarrow.fs can open") from None
    for candidate, info in zip(candidates, found, strict=True):
        if info.type == fs.FileType.File:
            return RangeReader(filesystem, candidate)
    raise SourceError(
        f"there is no journal in {shown}: expected journal/{IDENTITY_FILE} or {IDENTITY_FILE} in it, "
        "as in the directory that a gateway was given with --data"
    )
