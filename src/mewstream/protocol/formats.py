"""Format descriptors, by which the creator of a stream says what it contains (seed 003, decision 15).

:func:`parse_formats` checks the descriptors at announce; a :class:`FormatChecker` checks content against one.
What makes a peer's JSON Schema safe to run is in :mod:`.schemas`.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import msgspec

from mewstream.protocol.errors import LimitExceeded, ValidationFailed
from mewstream.protocol.identifiers import describe
from mewstream.protocol.policy import Limits
from mewstream.protocol.schemas import MAX_PROBLEMS, Effort, Profile, check_schema, compile_schema, measure
from mewstream.protocol.utf8 import is_utf8

#: The number of compiled schemas that are kept, and their bytes of JSON, each of which takes some forty when compiled.
_CACHED = 256
_CACHED_BYTES = 1 << 20
#: Profiles that are kept. They are small, and save most of the time when a schema is compiled again.
_PROFILES = 10_000
_NDJSON = frozenset({"x-ndjson", "ndjson", "jsonl", "x-jsonl", "jsonlines", "x-jsonlines"})


def check_descriptors(value: Any, *, limits: Limits) -> list[dict[str, Any]]:
    """Check the shape of ``payload.formats``, but not its schemas. This is cheap, so it comes before rights."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValidationFailed(f"formats is {describe(value)}; expected an array of format descriptors")
    if len(value) > limits.formats_per_stream:
        raise LimitExceeded(
            f"formats has {len(value)} entries; at most {limits.formats_per_stream} are allowed",
            limit="formats_per_stream",
        )
    seen: dict[str, int] = {}
    for index, entry in enumerate(value):
        where = f"formats[{index}]"
        if not isinstance(entry, dict):
            raise ValidationFailed(f"{where} is {describe(entry)}; expected an object with an id")
        name = entry.get("id")
        if not isinstance(name, str) or not name:
            raise ValidationFailed(f"{where}.id is {describe(name)}; expected a non-empty string")
        if len(name.encode("utf-8", "surrogatepass")) > limits.id_bytes:
            raise ValidationFailed(f"{where}.id is too long; expected at most {limits.id_bytes} bytes")
        if name in seen:
            raise ValidationFailed(f"{where}.id repeats that of formats[{seen[name]}]; expected unique ids")
        seen[name] = index
        for key in ("description", "mime_type"):
            if not isinstance(entry.get(key), str | None):
                raise ValidationFailed(f"{where}.{key} is {describe(entry[key])}; expected a string")
    return value


def parse_formats(value: Any, *, limits: Limits) -> list[dict[str, Any]]:
    """Check ``payload.formats`` and return its descriptors, with ``schema_hash`` if there is a schema. Schemas are
    analysed and compiled, which takes a while, so rights must be checked before.

    All other fields are kept as they came; a ``schema_hash`` sent by the client is not. Raises
    :class:`ValidationFailed` or :class:`LimitExceeded` that name the entry.
    """
    parsed = []
    effort = Effort()
    for index, entry in enumerate(check_descriptors(value, limits=limits)):
        descriptor = {key: item for key, item in entry.items() if key != "schema_hash"}
        if entry.get("schema") is not None:
            checked = check_schema(entry["schema"], limits=limits, where=f"formats[{index}].schema", effort=effort)
            descriptor["schema_hash"] = checked.hash
            _remember(checked.hash, checked.profile)
        parsed.append(descriptor)
    return parsed


class FormatChecker:
    """Says what is wrong with content of one format. Build it with :func:`checker_for`, which caches.

    The answers are at most ``MAX_PROBLEMS`` short texts; they never quote the content, and nothing that
    a peer sends makes a method raise.
    """

    def __init__(self, descriptor: dict[str, Any]) -> None:
        schema = descriptor.get("schema")
        mime, _, options = (descriptor.get("mime_type") or "").lower().partition(";")
        main, _, sub = mime.strip().partition("/")
        charset = options.partition("charset=")[2].split(";")[0].strip(' "')
        self._lines = main == "application" and sub in _NDJSON
        self._json = self._lines or sub == "json" or sub.endswith("+json") or (not main and schema is not None)
        self._utf8 = main == "text" and charset in ("", "utf-8", "utf8", "us-ascii")
        known = _profiles.get(descriptor.get("schema_hash") or "")
        self._schema = compile_schema(schema, known=known) if schema is not None and self._json else None
        self.size = len(msgspec.json.encode(schema)) if self._schema is not None else 0
        """Bytes of the schema that was compiled for it."""

    def problems(self, content: Any) -> list[str]:
        """Problems of decoded content, as in ``payload.content`` of a ``stream/data``."""
        return self._schema.problems(content, measure(content)) if self._schema else []

    def problems_in(self, data: bytes, *, text: bool) -> list[str]:
        """Problems of a raw frame. ``text``: it came as a text message, so it is UTF-8 whatever its format."""
        if (text or self._utf8) and not is_utf8(data):
            return ["not UTF-8; expected text in UTF-8"]
        if self._lines:
            return self._problems_in_lines(data)
        if not self._json:
            return []
        value, problem = _decode(data)
        if problem:
            return [problem]
        return self._schema.problems(value, self._schema.extent(data, value)) if self._schema else []

    def _problems_in_lines(self, data: bytes) -> list[str]:
        found: list[str] = []
        total = 0  # the budget is for the message, not for each line
        for number, line in enumerate(data.split(b"\n"), 1):
            if not line.strip():
                continue
            value, problem = _decode(line)
            if problem:
                found.append(f"line {number}: {problem}")
            elif self._schema:
                extent = self._schema.extent(line, value)
                total += extent.size
                here = self._schema.problems(value, extent._replace(size=total), MAX_PROBLEMS - len(found))
                found += [f"line {number}: {each}" for each in here]
            if len(found) >= MAX_PROBLEMS:
                break
        return found


_cache: dict[tuple[str | None, str], FormatChecker] = {}
_cache_lock = Lock()
_profiles: dict[str, Profile] = {}
"""By the hash of a schema."""


def _remember(schema_hash: str, profile: Profile) -> None:
    with _cache_lock:
        _profiles[schema_hash] = profile
        if len(_profiles) > _PROFILES:
            del _profiles[next(iter(_profiles))]


def checker_for(descriptor: dict[str, Any]) -> FormatChecker:
    """The checker of a descriptor that :func:`parse_formats` returned; the last 256 in use are kept.

    Only for those: the key is their ``schema_hash``, which a descriptor from elsewhere could forge.
    """
    key = (descriptor.get("schema_hash"), descriptor.get("mime_type") or "")
    if key[0] is None and descriptor.get("schema") is not None:
        return FormatChecker(descriptor)
    with _cache_lock:
        checker = _cache.pop(key, None)
        if checker is None:
            checker = FormatChecker(descriptor)
            size = checker.size + sum(each.size for each in _cache.values())
            while len(_cache) >= _CACHED or (_cache and size > _CACHED_BYTES):
                size -= _cache.pop(next(iter(_cache))).size
        _cache[key] = checker  # now the most recently used: dicts keep the order of insertion
    return checker


def _decode(data: bytes) -> tuple[Any, str]:
    try:
        return msgspec.json.decode(data), ""
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return None, f"not valid JSON: {error}"
