"""Lists in pages: those that we answer with, and those that we collect from others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from mewstream.client import untrusted
from mewstream.client.errors import McpError
from mewstream.client.mcp import INVALID_PARAMS, quoted

#: A page has at most this many entries and about this many bytes, so that every gateway takes it.
PAGE_ENTRIES = 100
PAGE_BYTES = 128 << 10
#: What is collected from another participant, who might never come to an end.
MAX_PAGES = 100
MAX_ENTRIES = 10_000


def page(key: str, entries: Sequence[dict[str, Any]], params: dict[str, Any]) -> dict[str, Any]:
    """Return a page of the entries as the value of ``key``, beginning at the ``cursor`` of ``params``. Raises
    :class:`McpError` if that is no cursor of ours."""
    cursor = params.get("cursor")
    start = 0
    if cursor is not None:
        if not (isinstance(cursor, str) and cursor.isascii() and cursor.isdecimal() and len(cursor) < 10):
            raise McpError(f"{quoted(cursor)} is no cursor of this list", code=INVALID_PARAMS)
        start = int(cursor)
        if not 0 < start < len(entries):
            raise McpError(f"{quoted(cursor)} is no cursor of this list", code=INVALID_PARAMS)
    chosen: list[dict[str, Any]] = []
    size = 0
    for each in entries[start : start + PAGE_ENTRIES]:
        size += len(msgspec.json.encode(each))
        if chosen and size > PAGE_BYTES:
            break
        chosen.append(each)
    end = start + len(chosen)
    return {key: chosen, "nextCursor": str(end)} if end < len(entries) else {key: chosen}


async def collect(key: str, request: Callable[[dict[str, Any]], Awaitable[Any]]) -> list[dict[str, Any]]:
    """Return all entries of a list of another participant: ``request`` asks for a page with the parameters that it
    gets. Raises what ``request`` raises, and :class:`McpError` if the list does not end."""
    found: list[dict[str, Any]] = []
    params: dict[str, Any] = {}
    for _ in range(MAX_PAGES):
        answer = untrusted.as_object(await request(params))
        found += untrusted.objects(answer.get(key))
        cursor = untrusted.text(answer.get("nextCursor"))
        if not cursor or len(found) > MAX_ENTRIES:
            return found[:MAX_ENTRIES]
        params = {"cursor": cursor}
    raise McpError(f"the list of {key} does not end: there are more than {MAX_PAGES} pages")
