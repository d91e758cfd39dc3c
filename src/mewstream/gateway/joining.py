"""The first message of a connection, by which a client joins: who it is, and what it asks for."""

from __future__ import annotations

from typing import Any

import msgspec

from mewstream.protocol import kinds
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.errors import PeerError, ValidationFailed
from mewstream.protocol.identifiers import invalid_characters
from mewstream.protocol.position import Position

#: What a client may ask for by ``extensions``; unknown names are ignored, so that clients may be newer.
KNOWN_EXTENSIONS = frozenset({"interest", "positions"})

EXPECTED = (
    'expected {"type":"join","participantId":...,"space":...,"token":...} '
    'or the same as payload of {"kind":"system/join"}'
)


class JoinRefused(Exception):
    """A join is refused. ``flaw`` is the error that the peer gets, ``reason`` that of the close."""

    def __init__(self, flaw: PeerError, reason: CloseReason) -> None:
        super().__init__(flaw.message)
        self.flaw = flaw
        self.reason = reason


class JoinRequest(msgspec.Struct, frozen=True):
    """What a client asks for when it joins. ``knows_extensions``: it sent a list of extensions, so that it knows our
    close codes. ``resume`` is the last position that it has seen."""

    participant: str | None = None
    space: str | None = None
    token: str | None = None
    extensions: frozenset[str] = frozenset()
    knows_extensions: bool = False
    resume: Position | None = None
    interest: dict[str, Any] | None = None
    """What it subscribes to, as it wrote that: the limits of the space judge it. Only with the extension."""

    def __repr__(self) -> str:
        return f"JoinRequest(participant={self.participant!r}, space={self.space!r})"


def parse_join(message: bytes) -> JoinRequest | None:
    """Parse a join. Returns None if the message is something else, and raises :class:`ValidationFailed` if a join is
    malformed. ``capabilities`` that a client claims are ignored."""
    try:
        decoded = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(decoded, dict):
        return None
    if decoded.get("type") == "join" and "kind" not in decoded:
        fields: Any = decoded
    elif decoded.get("kind") == kinds.JOIN:
        fields = decoded.get("payload") or {}
        if not isinstance(fields, dict):
            raise ValidationFailed(f"the payload of a join must be an object: {EXPECTED}")
    else:
        return None
    extensions = fields.get("extensions")
    if extensions is not None and (
        not isinstance(extensions, list) or not all(isinstance(each, str) for each in extensions)
    ):
        raise ValidationFailed(f"extensions in a join must be a list of strings: {EXPECTED}")
    known = KNOWN_EXTENSIONS.intersection(extensions or ())
    interest = fields.get("interest") if "interest" in known else None
    if interest is not None and not isinstance(interest, dict):
        raise ValidationFailed(
            "interest in a join must be an object with streams, formats or namespaces", field="interest"
        )
    participant = _text(fields, "participantId", "participant_id", "participant")
    if participant is not None and (flaw := invalid_characters(participant)):
        raise ValidationFailed(f"the participant id in a join {flaw}", field="participantId")
    return JoinRequest(
        participant=participant,
        space=_text(fields, "space"),
        token=_text(fields, "token"),
        extensions=known,
        knows_extensions=extensions is not None,
        resume=_resume(fields.get("resume")),
        interest=interest,
    )


def _resume(value: Any) -> Position | None:
    if value is None:
        return None
    try:
        resume = msgspec.convert(value, Position)
    except msgspec.ValidationError:
        resume = Position("", -1)
    if resume.seq < 0:
        raise ValidationFailed('resume in a join must be {"epoch":...,"seq":...} as a welcome has them')
    return resume


def _text(fields: dict[str, Any], *keys: str) -> str | None:
    """The value of the first of several spellings of a key. Errors never quote it, because it may be a token."""
    for key in keys:
        value = fields.get(key)
        if value is not None:
            if not isinstance(value, str):
                raise ValidationFailed(f"{key} in a join must be a string: {EXPECTED}")
            return value or None
    return None
