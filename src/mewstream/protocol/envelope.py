"""Envelopes: decoding what a peer sent, checking its shape, and encoding what is relayed.

Field values stay raw JSON until somebody needs them, so that whatever the gateway does not
understand survives a relay as it was. What the gateway has judged is encoded again from what it
judged: two readers of the same message can never disagree about a repeated key.
"""

from __future__ import annotations

import contextlib
import itertools
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

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


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
    payload_value: dict[str, Any] = {}
    is_judged: bool = False

    @property
    def payload(self) -> dict[str, Any]:
        """The payload as an object. Whoever asks for it judges by it, so that this very object is relayed; changing it
        changes what is relayed."""
        self.is_judged = True
        return self.payload_value

    def encode(self, *, id: str, ts: str, sender: str) -> bytes:
        """The normalised JSON that everyone gets, with the missing fields filled in."""
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
        fields["payload"] = self.payload_value if self.is_judged else msgspec.Raw(self.payload_raw)
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
        return _check_fields(fields, _decode_whole(data), max_id_bytes)
    except PeerError as flaw:
        with contextlib.suppress(PeerError, msgspec.MsgspecError):
            id = msgspec.json.decode(fields.get("id", b"null"))
            flaw.envelope_id = _text({"id": id}, "id", max_id_bytes) or None
        raise


def _check_fields(fields: dict[str, msgspec.Raw], values: dict[str, Any], max_id_bytes: int) -> Envelope:
    """``fields`` as they came, and their ``values``."""
    kind = _text(values, "kind", max_id_bytes)
    if not kind:
        raise ValidationFailed("kind is missing: an envelope needs a kind, such as chat", field="kind")
    protocol = _text(values, "protocol", max_id_bytes)
    if protocol is not None and protocol != kinds.PROTOCOL:
        raise ValidationFailed(f"protocol is {protocol[:40]!r}, this gateway speaks {kinds.PROTOCOL}", field="protocol")
    ts = _text(values, "ts", max_id_bytes)
    if ts is not None and parse_rfc3339(ts) is None:
        raise ValidationFailed(f"ts is {ts[:40]!r}, expected an RFC 3339 time", field="ts")
    payload_raw = bytes(fields.get("payload", b"{}"))
    if payload_raw == b"null":
        payload_raw = b"{}"
    if not payload_raw.startswith(b"{"):
        raise ValidationFailed("payload must be an object", field="payload")
    envelope = Envelope(
        kind=kind,
        id=_text(values, "id", max_id_bytes) or None,
        ts=ts,
        sender=_text(values, "from", max_id_bytes),
        to=_texts(values, "to", max_id_bytes, bare_text=False),
        correlation_id=_texts(values, "correlation_id", max_id_bytes, bare_text=True),
        context=_text(values, "context", None),
        payload_raw=payload_raw,
        payload_value=values.get("payload") or {},
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
    """``data`` is JSON: its strings end, so that taking them out is one pass."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    if max(itertools.accumulate(map(_STEPS.__getitem__, brackets))) > MAX_DEPTH:
        raise ValidationFailed(f"the JSON is nested more than {MAX_DEPTH} levels deep")


def _decode_whole(data: bytes) -> dict[str, Any]:
    """Whatever nobody here looks into is relayed as it is: it must be what others, our SDK among them, can decode."""
    try:
        decoded: dict[str, Any] = msgspec.json.decode(data)
    except msgspec.ValidationError:
        raise ValidationFailed(
            "a number is out of range: expected what a double can hold, or an integer of less than 4300 digits; "
            "send it as text"
        ) from None
    return decoded


def _text(values: dict[str, Any], key: str, max_bytes: int | None) -> str | None:
    value = values.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValidationFailed(f"{key} must be a string, got {describe(value)}", field=key)
    if max_bytes is not None and byte_length(value) > max_bytes:
        raise LimitExceeded(f"{key} is longer than {max_bytes} bytes", limit="id_bytes", field=key)
    return value


def _texts(values: dict[str, Any], key: str, max_bytes: int, *, bare_text: bool) -> list[str] | None:
    value = values.get(key)
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


def encode_json(value: Any) -> bytes:
    """Compact JSON, as everything on the wire and in the logs."""
    return _encode(value)
