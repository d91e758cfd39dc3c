"""An envelope and the state that it meets: what its payload says, and what its sender must be allowed to do.

Each method raises :class:`~mewstream.audit.records.Refusal` with the code that must follow if something is missing.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from mewstream.audit.capabilities import MAX_PATTERNS, Held
from mewstream.audit.records import Expected, Refusal, Unjudged, need
from mewstream.audit.state import Ledger, Stream
from mewstream.protocol import kinds

WEEK = 7 * 86_400
_MIRRORS = (kinds.WRITE_PROJECTION, kinds.READ_PROJECTION)
DELEGATION = "rights that are passed on are not judged"
ROOM = 4096
"""How many bytes longer a payload may become when the gateway fills in names."""


class Case:
    """One envelope and the state that it meets. ``fields`` are its other fields, which are not recorded of one that was
    refused."""

    def __init__(
        self, ledger: Ledger, ts: int, seq: int, sender: str, kind: str, id: str | None, payload: dict[str, Any]
    ) -> None:
        self.ledger, self.space = ledger, ledger.space
        self.ts, self.seq, self.sender, self.kind, self.id, self.payload = ts, seq, sender, kind, id, payload
        self.fields: dict[str, Any] | None = None

    # -- what it says --------------------------------------------------------------------------

    def size(self) -> int:
        return len(msgspec.json.encode(self.payload))

    def text(self, key: str, *, required: bool = False) -> str:
        value = self.payload.get(key)
        need(isinstance(value, str) or (value is None and not required), "validation_error", f"{key} is no text")
        return value or ""

    def name(self, key: str) -> str:
        need(self.text(key, required=True) != "", "validation_error", f"{key} names nobody")
        self.room(len(self.payload[key].encode("utf-8", "surrogatepass")), "id_bytes")
        return str(self.payload[key])

    def names(self, key: str) -> list[str]:
        value = self.payload.get(key)
        value = [] if value is None else value
        is_list = isinstance(value, list) and all(isinstance(each, str) and each for each in value)
        need(is_list, "validation_error", f"{key} is not a list of names")
        self.room(max((len(each.encode("utf-8", "surrogatepass")) for each in value), default=0), "id_bytes")
        return list(dict.fromkeys(value))

    def seconds(self, key: str) -> float | None:
        value = self.payload.get(key)
        is_time = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        need(value is None or is_time, "validation_error", f"{key} is no time")
        return value

    def field(self, name: str) -> list[str]:
        """``to`` or ``correlation_id``."""
        if self.fields is None:
            raise Unjudged("of a refused envelope only the payload is recorded")
        return list(dict.fromkeys(self.fields.get(name) or ()))

    def given_patterns(self, given: Any) -> list[dict[str, Any]]:
        is_list = isinstance(given, list) and bool(given) and all(isinstance(each, dict | str) for each in given)
        need(is_list, "validation_error", "capabilities is not a list of patterns")
        return [{"kind": each} if isinstance(each, str) else each for each in given]

    def check_patterns(self, patterns: list[dict[str, Any]], beside: list[Any]) -> None:
        listed = [*beside, *patterns]
        need(len(listed) <= MAX_PATTERNS, "limit_exceeded", "there are too many patterns")
        self.room(len(msgspec.json.encode(listed)), "capability_list_bytes")
        Held(listed)
        mirrored = any(each["kind"].lstrip("!").startswith(_MIRRORS) for each in patterns)
        need(not mirrored, "invalid_operation", "what mirrors a right is no capability")

    # -- what it needs -------------------------------------------------------------------------

    def room(self, count: int, limit: str) -> None:
        need(count <= self.space.setting("limits", limit), "limit_exceeded", f"{limit} is reached")

    def present(self, participant: str) -> None:
        need(self.space.is_present(participant), "participant_not_found", f"{participant} is not here")

    def held(self) -> Held:
        self.space.has(self.sender in self.space.roster)
        return _compiled(msgspec.json.encode(self.space.patterns(self.sender)))

    def capability(self, required: str = "") -> None:
        """The capability for its kind, or another one where no denial forbids the kind."""
        held = self.held()
        allowed = held.allows(required or self.kind, self.payload) and not held.denies(self.kind, self.payload)
        need(self.space.has(allowed), "capability_violation", f"{self.sender} has no capability for it")

    def hold(self, patterns: list[Any]) -> None:
        held = self.held()
        holds = all(each["kind"].startswith("!") or held.holds(each) for each in patterns)
        need(self.space.has(holds), "capability_violation", f"{self.sender} does not hold what it gives or takes")

    def stream(self) -> Stream:
        nested = self.payload.get("stream")
        need(isinstance(nested, dict | None), "validation_error", "stream is no object")
        named = [each.get("stream_id") for each in (self.payload, nested or {}) if each.get("stream_id") is not None]
        is_one = bool(named) and all(isinstance(each, str) and each and each == named[0] for each in named)
        need(is_one, "validation_error", "it does not name one stream")
        stream = self.known_stream(str(named[0]))
        namespace = (nested or {}).get("namespace")
        need(namespace in (None, f"{self.space.id}/{stream.id}"), "validation_error", "the namespace is wrong")
        return stream

    def known_stream(self, reference: str) -> Stream:
        stream = self.ledger.find(reference)
        if stream is None:
            self.space.has(False)
            raise Refusal("stream_not_found", f"there is no stream {reference[:128]}")
        return stream

    def managed(self, stream: Stream, kind: str = "") -> Stream:
        """The sender is the owner, or a holder of ``space/manage-streams`` to whom the kind is not denied."""
        if stream.delegated and self.kind in (kinds.GRANT_WRITE, kinds.REVOKE_WRITE):
            raise Unjudged(DELEGATION)
        if self.sender != stream.owner:
            held, payload = self.held(), {**self.payload, "stream_id": stream.id}
            manages = held.allows(kinds.SPACE_MANAGE_STREAMS, payload) and not held.denies(kind or self.kind, payload)
            need(self.space.has(manages), "unauthorized", f"{self.sender} is not entitled to {stream.id}")
        return stream

    def owned(self, stream: Stream) -> Stream:
        need(stream.owner == self.sender, "unauthorized", f"{self.sender} does not own {stream.id}")
        return stream

    def changes(self, record: str, stream: Stream, **fields: Any) -> list[Expected]:
        by = {"by": self.sender, "reason": self.payload.get("reason"), "request_id": self.id}
        return [Expected(record, {"stream_id": stream.id, **by, **fields})]


@functools.lru_cache(1024)
def _compiled(patterns: bytes) -> Held:
    return Held(msgspec.json.decode(patterns))


def is_name(text: str) -> bool:
    return bool(text) and text.isprintable() and text == text.strip() and not any(each in text for each in "#|")
