"""Envelopes: decoding what a peer sent, checking its shape, and encoding what is relayed.

Field values stay raw JSON until somebody needs them, so that whatever the gateway does not
understand survives a relay as it was. What the gateway has judged is encoded again from what it
judged: two readers of the same message can never disagree about a repeated key.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from typing import Any

import msgspec

from mewstream.protocol import kinds
from mewstream.protocol.errors import LimitExceeded, PeerError, ValidationFailed
from mewstream.protocol.identifiers import byte_length, describe
from mewstream.protocol.times import parse_rfc3339

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_compact = msgspec.json.format

_KNOWN = frozenset({"protocol", "id", "ts", "from", "to", "kind", "correlation_id", "context", "payload"})
#: Written by the gateway for those who asked for positions; a client's own is dropped, not believed.
_DROPPED = frozenset({"seq"})

#: In ``to`` and ``correlation_id``.
MAX_NAMES = 10_000
#: Levels of JSON. Far less than the interpreter's stack, so that what was read can be written again.
MAX_DEPTH = 100

_LONGEST_ESCAPE = len("\\u0000")
#: What stands for a value that is too long to be looked into, by its first byte.
_BEGINNINGS = {b'"': b'""', b"[": b"[]", b"{": b"{}"}
#: All that tells how deep JSON is nested: brackets, and where strings begin and end. Both kinds of brackets as one.
_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"\\'))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_RUN = re.compile(rb"(\[+)(\]+)")
#: While a pass takes out such a part of what is left, another one is quicker than to count runs.
_WORTH_A_PASS = 1 / 6


class Envelope(msgspec.Struct):
    """An envelope as a peer sent it, shape-checked. Fields it left out are None."""

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
    """Tells a repetition of a message from another message under the same id. It is that of what the peer sent,
    whatever the gateway fills in afterwards."""
    payload_decoded: dict[str, Any] | None = None

    @property
    def payload(self) -> dict[str, Any]:
        """The payload as an object; decoded on first use. Whoever asks for it judges by it, so that this very object is
        relayed; changing it changes what is relayed."""
        if self.payload_decoded is None:
            self.payload_decoded = decode_json(self.payload_raw, "payload")
        return self.payload_decoded

    def encode(self, *, id: str, ts: str, sender: str) -> bytes:
        """The normalised JSON that everyone gets, with the missing fields filled in. Raises :class:`ValidationFailed`
        where a part of it is not for everyone's decoder."""
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
        # What nobody here has looked into is relayed as it is: it must be what others, our SDK among them, can decode.
        for key, raw in self.extra.items():
            decode_json(bytes(raw), key[:40])
        if self.payload_decoded is None:
            decode_json(self.payload_raw, "payload")
        fields["payload"] = msgspec.Raw(self.payload_raw) if self.payload_decoded is None else self.payload_decoded
        fields.update(self.extra)
        return _encode(fields)


def parse_envelope(data: bytes, *, max_id_bytes: int) -> Envelope:
    """Decode one message. Raises :class:`ValidationFailed` that says what was expected."""
    try:
        if not data.isascii():
            data.decode()  # what nobody here looks into is relayed as it is, and must be text
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
        _check_depth(data)
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
    envelope.digest = _digest(envelope)
    return envelope


def _digest(envelope: Envelope) -> int:
    head: tuple[Any, ...] = (envelope.kind, envelope.sender, envelope.to, envelope.correlation_id)
    if envelope.context is not None or envelope.extra:
        # Only where there is one: the digests of most messages are in journals that were written without it.
        head += (envelope.context, envelope.extra)
    return zlib.crc32(envelope.payload_raw, zlib.crc32(_encode(head)))


def _check_depth(data: bytes) -> None:
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_deeper(_brackets(data), MAX_DEPTH):
        raise ValidationFailed(f"the JSON is nested more than {MAX_DEPTH} levels deep")


def _brackets(data: bytes) -> bytes:
    """The brackets of JSON that are not in strings. A few passes in C: a megabyte of brackets or quotes must not take
    a loop of Python's."""
    left = data.translate(_ONE_KIND, _STRUCTURE)
    if b"\\" in left:  # of a run of backslashes the first escapes the second
        left = left.replace(b"\\\\", b"").replace(b'\\"', b"").replace(b"\\", b"")
    # What has an even number of quotes before it is outside: two that meet may go, of one string or of two.
    left = left.replace(b'""', b"")
    return b"".join(left.split(b'"')[::2]) if b'"' in left else left


def _is_deeper(brackets: bytes, most: int) -> bool:
    """Innermost pairs are taken out, level by level, as long as these are many. Then the runs that are left are long,
    and few enough to be counted."""
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
    # A character takes six bytes at most, as an escape: what is longer need not be decoded to be refused.
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
    """A part of a message, whose flaws are its sender's."""
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


def encode_json(value: Any) -> bytes:
    """Compact JSON, as everything on the wire and in the logs."""
    return _encode(value)
