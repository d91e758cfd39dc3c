"""Messages on the wire, as a participant sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mewstream.protocol import kinds


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope that somebody in the space sent. ``seq`` is its position, where the gateway tells."""

    kind: str
    id: str = ""
    ts: str = ""
    sender: str = msgspec.field(name="from", default="")
    to: list[str] = []
    correlation_id: list[str] = []
    context: Any = None
    payload: dict[str, Any] = {}
    seq: int | None = None

    @property
    def is_from_gateway(self) -> bool:
        return self.sender == kinds.GATEWAY

    @property
    def stream_id(self) -> str:
        """The stream that it names, by ``stream_id`` or by ``stream``; empty where it names none."""
        stream = self.payload.get("stream")
        id = self.payload.get("stream_id") or (stream.get("stream_id") if isinstance(stream, dict) else None)
        return str(id) if id else ""


class _Loose(msgspec.Struct):
    """What other gateways may send: a bare text for a list, null for nothing."""

    kind: str
    id: str | None = None
    ts: str | None = None
    sender: str | None = msgspec.field(name="from", default=None)
    to: list[str] | str | None = None
    correlation_id: list[str] | str | None = None
    context: Any = None
    payload: dict[str, Any] | None = None
    seq: int | None = None


_decode = msgspec.json.Decoder(Message).decode
_decode_loose = msgspec.json.Decoder(_Loose).decode
_encode = msgspec.json.Encoder().encode


def parse(data: bytes) -> Message | None:
    """The envelope in a text message; None where it is none."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        loose = _decode_loose(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Message(
        kind=loose.kind,
        id=loose.id or "",
        ts=loose.ts or "",
        sender=loose.sender or "",
        to=_names(loose.to),
        correlation_id=_names(loose.correlation_id),
        context=loose.context,
        payload=loose.payload or {},
        seq=loose.seq,
    )


def _names(value: list[str] | str | None) -> list[str]:
    return [value] if isinstance(value, str) else value or []


def encode(
    kind: str,
    payload: Any,
    *,
    id: str,
    to: list[str] | None = None,
    correlation_id: list[str] | None = None,
    context: str | None = None,
) -> bytes:
    """An envelope of ours; the gateway fills in who sent it and when."""
    fields: dict[str, Any] = {"protocol": kinds.PROTOCOL, "id": id, "kind": kind}
    if to is not None:
        fields["to"] = to
    if correlation_id is not None:
        fields["correlation_id"] = correlation_id
    if context is not None:
        fields["context"] = context
    fields["payload"] = payload
    return _encode(fields)


def names(to: str | Sequence[str] | None) -> list[str] | None:
    """One participant, several, or everyone."""
    if to is None:
        return None
    return [to] if isinstance(to, str) else list(to)
