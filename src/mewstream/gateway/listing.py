"""Pages of streams and participants: for clients that have not joined, and for the rest of a long welcome.

The entries and bytes of a page are bounded. Where there is more, ``next`` is what the next page comes after. The answer
to ``stream/sync``, which is no page, is made here too.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from mewstream.protocol import kinds
from mewstream.protocol.envelope import Envelope, encode_json
from mewstream.protocol.errors import InvalidOperation, Unauthorized, ValidationFailed
from mewstream.protocol.render import gateway_envelope
from mewstream.protocol.state import SpaceState, Stream
from mewstream.protocol.stream_rules import capability_violation

MAX_ENTRIES = 1_000
#: Of a page over HTTP, where an answer is taken as fast as its reader likes.
HTTP_PAGE_BYTES = 1 << 20
#: Of a page over a socket, between all that is told there.
SOCKET_PAGE_BYTES = 256 << 10


class Page(NamedTuple):
    entries: list[bytes]
    next: str | None


def entry_limit(value: Any) -> int:
    """``limit`` as it was asked for, as a number or as the text of one."""
    if value is None:
        return MAX_ENTRIES
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise ValidationFailed(f"limit is {text[:40]!r}, expected a whole number of at least 1", field="limit")
    return min(int(text), MAX_ENTRIES)


def stream_page(state: SpaceState, after: Any, limit: int, max_bytes: int, describe: Callable[[Stream], bytes]) -> Page:
    """In the order in which they were opened. ``after`` may be the id of one that has ended since."""
    number = stream_number(after)
    ids = list(state.streams)
    ids = ids[bisect.bisect_right(ids, number, key=stream_number) :]
    return _page(ids, (describe(state.streams[id]) for id in ids[:limit]), max_bytes)


def participant_page(
    ids: Iterable[str], after: Any, limit: int, max_bytes: int, describe: Callable[[str], bytes]
) -> Page:
    """By name, so that a page begins where the last one ended, whoever came and went between."""
    if not isinstance(after, str | None):
        raise ValidationFailed("after must be the id of a participant", field="after")
    ordered = sorted(id for id in ids if after is None or id > after)
    return _page(ordered, map(describe, ordered[:limit]), max_bytes)


def stream_number(id: Any) -> int:
    """Streams are numbered in the order in which they were opened, and no number comes again."""
    if id is None:
        return 0
    number = id.removeprefix("stream-") if isinstance(id, str) else ""
    if not (number.isascii() and number.isdecimal() and len(number) < 19):
        shown = repr(id[:40]) if isinstance(id, str) else "no text"
        raise ValidationFailed(f"after is {shown}, expected the id of a stream, such as stream-7", field="after")
    return int(number)


def _page(ids: list[str], described: Iterable[bytes], max_bytes: int) -> Page:
    """At least one entry, however large."""
    entries: list[bytes] = []
    size = 0
    for entry in described:
        if entries and size + len(entry) > max_bytes:
            break
        entries.append(entry)
        size += len(entry) + 1
    return Page(entries, ids[len(entries) - 1] if len(entries) < len(ids) else None)


# -- questions over a socket ----------------------------------------------------------------------


def answer_question(
    state: SpaceState, sender: str, envelope: Envelope, *, describe_stream: Callable[[Stream], bytes], id: str
) -> bytes:
    """The answer to ``stream/list``, ``participant/list`` or ``stream/sync``, which is for the asker alone."""
    if envelope.sender not in (None, sender):
        raise Unauthorized(f"from is not {sender!r}: leave it out or use that", expected_from=sender)
    if sender in state.shut_down:
        raise InvalidOperation("you were shut down: nothing is answered until you join again", shut_down=True)
    if state.capabilities(sender).denies(envelope.kind, envelope.payload):
        raise capability_violation(state, sender, envelope.kind)
    if envelope.kind == kinds.STREAM_SYNC:
        # Like every message but frames, this one is sent when everything before it is recorded.
        synced = {"epoch": state.epoch, "seq": state.seq}
        return gateway_envelope(
            kinds.STREAM_SYNCED, synced, id=id, ts=state.ts, to=[sender], correlation_id=envelope.id
        )
    after, limit = envelope.payload.get("after"), entry_limit(envelope.payload.get("limit"))
    if envelope.kind == kinds.STREAM_LIST:
        page = stream_page(state, after, limit, SOCKET_PAGE_BYTES, describe_stream)
        kind, name, total = kinds.STREAM_LISTED, "streams", len(state.streams)
    else:
        others = [each for each in state.participants if each != sender]
        page = participant_page(
            others, after, limit, SOCKET_PAGE_BYTES, lambda id: encode_json(state.describe_participant(id))
        )
        kind, name, total = kinds.PARTICIPANT_LISTED, "participants", len(others)
    entries = [msgspec.Raw(b",".join(page.entries))] if page.entries else []
    answer: dict[str, Any] = {name: entries, "total": total, "epoch": state.epoch, "seq": state.seq}
    if page.next is not None:
        answer["next"] = page.next
    return gateway_envelope(kind, answer, id=id, ts=state.ts, to=[sender], correlation_id=envelope.id)
