"""What tools return, as the content of an MCP result."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from mewstream.client.media import Audio, Image
from mewstream.client.signature import Result

_CONTENT_TYPES = frozenset({"text", "image", "audio", "resource", "resource_link"})


def tool_result(value: Any, result: Result | None) -> dict[str, Any]:
    """Return what a tool returned as an MCP tool result: text, pictures and sounds as they are, everything else as
    JSON and as structured content. Raises :class:`msgspec.ValidationError` if it is not of the type of ``result``,
    and TypeError if JSON cannot express it."""
    if result is not None:
        structured = result.structured(value)
        return {"content": [text_block(as_json(msgspec.to_builtins(value)))], "structuredContent": structured}
    if isinstance(value, dict) and _is_content(value.get("content")):
        return value
    if (content := _content(value)) is not None:
        return {"content": content}
    plain = msgspec.to_builtins(value)
    found: dict[str, Any] = {"content": [text_block(as_json(plain))]}
    if plain is not None:
        found["structuredContent"] = plain if isinstance(plain, dict) else {"result": plain}
    return found


def error_result(text: str) -> dict[str, Any]:
    """Return the result of a tool that failed, which tells its caller why."""
    return {"content": [text_block(text)], "isError": True}


def block(value: Any) -> dict[str, Any] | None:
    """Return the content block that a value stands for; None if it stands for none."""
    match value:
        case str():
            return text_block(value)
        case Image() | Audio():
            kind = "image" if isinstance(value, Image) else "audio"
            return {"type": kind, "data": base64.b64encode(value.data).decode(), "mimeType": value.mime_type}
        case {"type": str(kind)} if kind in _CONTENT_TYPES:
            return dict(value)
    return None


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def text_of(result: dict[str, Any]) -> str:
    """Return the text in the content of a tool result, which may contain anything."""
    content = result.get("content")
    found = [each.get("text") for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    return "\n".join(each for each in found if isinstance(each, str))


def _content(value: Any) -> list[dict[str, Any]] | None:
    """Return a value as content blocks; None if it is data. A list of texts alone is data."""
    if isinstance(value, list | tuple):
        blocks = [block(each) for each in value]
        if not blocks or all(isinstance(each, str) for each in value):
            return None
        return [each for each in blocks if each is not None] if all(blocks) else None
    one = block(value)
    return None if one is None else [one]


def _is_content(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) and "type" in each for each in value)
