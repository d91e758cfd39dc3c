"""MCP as it is spoken in a space: versions, error codes and the answer in an ``mcp/response``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mewstream.client import untrusted
from mewstream.client.errors import McpError

if TYPE_CHECKING:
    from mewstream.client.messages import Message

#: The newest revision with the forms that participants use among each other, and the older ones with the same forms.
PROTOCOL_VERSION = "2025-11-25"
PROTOCOL_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", PROTOCOL_VERSION)

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000
RESOURCE_NOT_FOUND = -32002

CANCELLED = "notifications/cancelled"
PROGRESS = "notifications/progress"
RESOURCE_UPDATED = "notifications/resources/updated"

_SHOWN_CHARACTERS = 100


def is_notification(method: str) -> bool:
    """Return whether nobody answers a method. MEW sends these as ``mcp/request`` too (section 3.1)."""
    return method.startswith("notifications/")


def quoted(value: Any) -> str:
    """Return a value of somebody else for an error message, cut short: a refusal costs no more than its cause."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def result_of(response: Message) -> Any:
    """Return the result in an ``mcp/response``. Raises :class:`McpError` if it holds an error instead."""
    payload = response.payload
    error = payload.get("error")
    if error is None:
        return payload.get("result", payload)
    described = error if isinstance(error, dict) else {"message": str(error)}
    code = untrusted.number(described.get("code"))
    raise McpError(
        str(described.get("message") or "the request failed"),
        code=SERVER_ERROR if code is None else code,
        data=described.get("data"),
    )
