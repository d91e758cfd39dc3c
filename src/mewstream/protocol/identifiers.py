"""Which names are allowed for participants, spaces and streams.

``#`` and ``|`` separate the parts of a frame, so no name may contain them (decision 24). The id of a participant is
also part of file paths and URLs, so it may not contain what has a meaning there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mewstream.protocol.errors import LimitExceeded, ValidationFailed

_ASSIGNED = re.compile(r"stream-\d+\Z")
_UNPRINTABLE = "contains invalid characters: there is one that cannot be printed"


def byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def flaw_in_id(text: str, *, max_bytes: int) -> str | None:
    """What is wrong with a name, as the end of a sentence, or None if it is valid."""
    if not text:
        return "is empty"
    if byte_length(text) > max_bytes:
        return f"is longer than {max_bytes} bytes"
    for forbidden in "#|":
        if forbidden in text:
            return f"contains {forbidden!r}, which separates the parts of a frame"
    if not text.isprintable():
        return _UNPRINTABLE
    if text != text.strip():
        return "has white space at an end"
    return None


def flaw_in_participant_id(text: str, *, max_bytes: int) -> str | None:
    if text == "gateway" or text.startswith("system:"):
        return "is reserved for the gateway"
    return invalid_characters(text) or flaw_in_id(text, max_bytes=max_bytes)


def invalid_characters(text: str) -> str | None:
    """Which characters make a participant id invalid, as the end of a sentence, or None if there are none."""
    for forbidden in ("/", "\\", ".."):
        if forbidden in text:
            return f"contains invalid characters: {forbidden!r} is not allowed in the id of a participant"
    return None if text.isprintable() else _UNPRINTABLE


def is_valid_alias(text: object, *, max_bytes: int) -> bool:
    """An alias stands where a stream id may stand, so it must never look like an assigned one."""
    return (
        isinstance(text, str)
        and flaw_in_id(text, max_bytes=max_bytes) is None
        and "/" not in text
        and not _ASSIGNED.match(text)
    )


def stream_names(space: str, stream_id: str) -> dict[str, str]:
    """What every envelope about a stream carries, so that observers can filter by prefix (seed 003)."""
    return {"stream_id": stream_id, "namespace": f"{space}/{stream_id}"}


#: How the ids of the gateway's messages begin.
GATEWAY_IDS = "gw-"


def gateway_message_id(epoch: str, seq: int) -> str:
    """Messages of the gateway are named after their record, so that one sent again is the same."""
    return f"{GATEWAY_IDS}{epoch}-{seq}"


# -- fields of payloads ---------------------------------------------------------------------------


def required_id(payload: Mapping[str, Any], key: str, *, max_bytes: int) -> str:
    """A required name in a payload, or a refusal that says what was expected."""
    value = payload.get(key)
    if not isinstance(value, str) or not value:
        raise ValidationFailed(f"payload.{key} must be a non-empty string, got {describe(value)}", field=key)
    if byte_length(value) > max_bytes:
        raise LimitExceeded(f"payload.{key} is longer than {max_bytes} bytes", limit="id_bytes")
    return value


def optional_text(payload: Mapping[str, Any], key: str) -> str | None:
    value = payload.get(key)
    if value is not None and not isinstance(value, str):
        raise ValidationFailed(f"payload.{key} must be a string, got {describe(value)}", field=key)
    return value


def id_list(payload: Mapping[str, Any], key: str, *, max_bytes: int) -> list[str] | None:
    """A list of names without repetitions; None if the field is absent."""
    value = payload.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValidationFailed(f"payload.{key} must be a list of strings, got {describe(value)}", field=key)
    if any(byte_length(each) > max_bytes for each in value):
        raise LimitExceeded(f"an entry of payload.{key} is longer than {max_bytes} bytes", limit="id_bytes")
    return list(dict.fromkeys(value))


def describe(value: object) -> str:
    """A JSON value in the words of an error message, never quoting much of it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return f"the text {value[:40]!r}"
        case list():
            return "a list"
        case dict():
            return "an object"
    return type(value).__name__
