"""Envelopes: decoding what a peer sent, checking its shape, and encoding what is relayed.

Fields stay raw JSON until they are needed, so that whatever the gateway does not understand is relayed unchanged.
Fields that the gateway has judged are encoded again from the judged values, so that two readers of the same message
cannot disagree about a repeated key.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from mewstream.protocol import kinds
from mewstream.protocol.errors import LimitExceeded, PeerError, ValidationFailed
from mewstream.protocol.identifiers import byte_length, describe
from mewstream.protocol.times import parse_rfc3339

#: Compact JSON, as everything on the wire and in the logs.
encode_json: Callable[[Any], bytes] = msgspec.json.Encoder().encode

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_compact = msgspec.json.format

_KNOWN = frozenset({"protocol", "id", "ts", "from", "to", "kind", "correlation_id", "context", "payload"})
#: The gateway adds this field for clients that asked for positions. If a client sends it, it is dropped.
_DROPPED = frozenset({"seq"})

#: Entries in ``to`` and ``correlation_id``.
MAX_NAMES = 10_000
#: Levels of JSON: far fewer than the stack allows, so that everything that was decoded can be encoded again.
MAX_DEPTH = 100

_LONGEST_ESCAPE = len("\\u0000")
#: A stand-in for a value that is too long to be decoded, of the type that its first byte tells.
_BEGINNINGS = {b'"': b'""', b"[": b"[]", b"{": b"{}"}
#: Everything that does not matter for how deep JSON is nested: all but brackets, quotes and backslashes.
_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"\\'))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_RUN = re.compile(rb"(\[+)(\]+)")
#: While a pass removes at least this part of the brackets, another pass is faster than counting runs.
_WORTH_A_PASS = 1 / 6


class Envelope(msgspec.Struct):
    """An envelope as a peer sent it, with its shape checked. Fields that were left out are None."""

    kind: str
    id: str | None = None
    ts: str | None = None
    sender: str | None = None
    to: list[str] | None = None
    correlation_id: list[str] | None = None
    context: str | None = None
    payload_raw: bytes = b"{}"
    extra: dict[str, msgspec.Raw] = {}
    digest: int = 0
    """Tells a repetition of a message from another message with the same id. It does not depend on fields that the
    gateway fills in later."""
    payload_decoded: dict[str, Any] | None = None

    @property
    def payload(self) -> dict[str, Any]:
        """The decoded payload. Once it was used, this object is relayed instead of the raw JSON, so that what was
        judged and what is relayed are the same; a change of it changes what is relayed."""
        if self.payload_decoded is None:
            self.payload_decoded = decode_json(self.payload_raw, "payload")
        return self.payload_decoded

    def encode(self, *, id: str, ts: str, sender: str) -> bytes:
        """The normalised JSON that everyone gets, with the missing fields filled in.

        Raises :class:`ValidationFailed` if some clients could not decode a part of it."""
        fields: dict[str, Any] = {
            "protocol": kinds.PROTOCOL,
            "id": id,
            "ts": self.ts or ts,
            "from": sender,
        }
        if self.to is not None:
            fields["to"] = self.to
        fields["kind"] = self.kind
        if self.correlation_id is not None:
            fields["correlation_id"] = self.correlation_id
        if self.context is not None:
            fields["context"] = self.context
        # What was not decoded is relayed unchanged, so it must be checked that clients can decode it.
        for key, raw in self.extra.items():
            decode_json(bytes(raw), key[:40])
        if self.payload_decoded is None:
            decode_json(self.payload_raw, "payload")
        fields["payload"] = msgspec.Raw(self.payload_raw) if self.payload_decoded is None else self.payload_decoded
        fields.update(self.extra)
        return encode_json(fields)


def parse_envelope(data: bytes, *, max_id_bytes: int) -> Envelope:
    """Decode one message. Raises a :class:`PeerError` that says what was expected."""
    try:
        if not data.isascii():
            data.decode()  # what is not decoded is relayed unchanged, and must be UTF-8
        data = _compact(data, indent=-1)
        fields = _decode_fields(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as flaw:
        raise ValidationFailed(
            f"not a JSON object: {flaw}. Expected an envelope such as "
            '{"kind":"chat","payload":{"text":"hi"}} or a frame #<stream_id>#<data>'
        ) from None
    except RecursionError:
        raise ValidationFailed("the JSON is nested too deeply") from None

    try:
        if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_deeper(_brackets(data), MAX_DEPTH):
            raise ValidationFailed(f"the JSON is nested more than {MAX_DEPTH} levels deep")
        return _check_fields(fields, max_id_bytes)
    except PeerError as flaw:
        with contextlib.suppress(PeerError):
            flaw.envelope_id = _text(fields, "id", max_id_bytes) or None
        raise


def _check_fields(fields: dict[str, msgspec.Raw], max_id_bytes: int) -> Envelope:
    kind = _text(fields, "kind", max_id_bytes)
    if not kind:
        raise ValidationFailed("kind is missing: an envelope needs a kind, such as chat", field="kind")
    protocol = _text(fields, "protocol", max_id_bytes)
    if protocol is not None and protocol != kinds.PROTOCOL:
        raise ValidationFailed(f"protocol is {protocol[:40]!r}, this gateway speaks {kinds.PROTOCOL}", field="protocol")
    ts = _text(fields, "ts", max_id_bytes)
    if ts is not None and parse_rfc3339(ts) is None:
        raise ValidationFailed(f"ts is {ts[:40]!r}, expected an RFC 3339 time", field="ts")
    payload_raw = bytes(fields.get("payload", b"{}"))
    if payload_raw == b"null":
        payload_raw = b"{}"
    if not payload_raw.startswith(b"{"):
        raise ValidationFailed("payload must be an object", field="payload")
    envelope = Envelope(
        kind=kind,
        id=_text(fields, "id", max_id_bytes) or None,
        ts=ts,
        sender=_text(fields, "from", max_id_bytes),
        to=_texts(fields, "to", max_id_bytes, bare_text=False),
        correlation_id=_texts(fields, "correlation_id", max_id_bytes, bare_text=True),
        context=_text(fields, "context", None),
        payload_raw=payload_raw,
        extra={key: value for key, value in fields.items() if key not in _KNOWN and key not in _DROPPED},
    )
    head: tuple[Any, ...] = (envelope.kind, envelope.sender, envelope.to, envelope.correlation_id)
    if envelope.context is not None or envelope.extra:
        # Only if there are any, because journals hold digests of messages without them.
        head += (envelope.context, envelope.extra)
    envelope.digest = zlib.crc32(envelope.payload_raw, zlib.crc32(encode_json(head)))
    return envelope


def _brackets(data: bytes) -> bytes:
    """The brackets of JSON that are not in strings, with braces as brackets.

    It takes a few passes in C, because a loop in Python over a megabyte of brackets or quotes would take too long."""
    left = data.translate(_ONE_KIND, _STRUCTURE)
    if b"\\" in left:  # the first of two backslashes escapes the second
        left = left.replace(b"\\\\", b"").replace(b'\\"', b"").replace(b"\\", b"")
    # Outside of strings is what has an even number of quotes before it, so two adjacent quotes may be removed.
    left = left.replace(b'""', b"")
    return b"".join(left.split(b'"')[::2]) if b'"' in left else left


def _is_deeper(brackets: bytes, most: int) -> bool:
    """Whether brackets are nested deeper than ``most``. Innermost pairs are removed level by level, as long as there
    are many of them. The runs that are left are long, and few enough to be counted."""
    depth = deepest = 0
    while brackets and most > 0:
        left = brackets.replace(b"[]", b"")
        if len(brackets) - len(left) < len(brackets) * _WORTH_A_PASS:
            break
        brackets = left
        most -= 1
    for opening, closing in _RUN.findall(brackets):
        depth += len(opening)
        deepest = max(deepest, depth)
        depth -= len(closing)
    return deepest > most


def _text(fields: dict[str, msgspec.Raw], key: str, max_bytes: int | None) -> str | None:
    raw = bytes(fields.get(key, b"null"))
    # A character takes at most six bytes, as an escape, so a longer value can be refused without decoding it.
    is_too_long = max_bytes is not None and len(raw) > _LONGEST_ESCAPE * max_bytes + 2
    value = decode_json(raw if not is_too_long else _BEGINNINGS.get(raw[:1], b"0"), key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValidationFailed(f"{key} must be a string, got {describe(value)}", field=key)
    if is_too_long or (max_bytes is not None and byte_length(value) > max_bytes):
        raise LimitExceeded(f"{key} is longer than {max_bytes} bytes", limit="id_bytes", field=key)
    return value


def _texts(fields: dict[str, msgspec.Raw], key: str, max_bytes: int, *, bare_text: bool) -> list[str] | None:
    raw = fields.get(key)
    if raw is None:
        return None
    value = decode_json(bytes(raw), key)
    if value is None:
        return None
    if bare_text and isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValidationFailed(f"{key} must be a list of strings, got {describe(value)}", field=key)
    if len(value) > MAX_NAMES:
        raise LimitExceeded(f"{key} names more than {MAX_NAMES}", limit="names", field=key)
    if any(byte_length(each) > max_bytes for each in value):
        raise LimitExceeded(f"an entry of {key} is longer than {max_bytes} bytes", limit="id_bytes", field=key)
    return value


def decode_json(raw: bytes, what: str) -> Any:
    """Decode a part of a message. Raises :class:`ValidationFailed`, in which ``what`` names the part."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError:
        raise ValidationFailed(
            f"a number in {what} is out of range: expected what a double can hold, or an integer of less than 4300 "
            "digits; send it as text",
            field=what,
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as flaw:
        raise ValidationFailed(f"{what} is not valid JSON: {flaw}", field=what) from None
    except RecursionError:
        raise ValidationFailed(f"{what} is nested too deeply", field=what) from None
