"""The prompts that we offer to the space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mewstream.client.content import block
from mewstream.client.errors import McpError
from mewstream.client.mcp import INVALID_PARAMS
from mewstream.client.messages import without_none
from mewstream.client.signature import Signature


class Prompt:
    """A function that returns messages for a model."""

    def __init__(
        self, name: str, handler: Callable[..., Any], *, title: str | None = None, description: str | None = None
    ) -> None:
        self.name = name
        self.handler = handler
        self.signature = Signature(f"the prompt {name}", handler)
        required = self.signature.schema.get("required", [])
        properties = self.signature.schema.get("properties", {})
        arguments = [
            without_none(name=each, description=about.get("description"), required=each in required)
            for each, about in properties.items()
        ]
        self.described = without_none(
            name=name, title=title, description=description or self.signature.description, arguments=arguments or None
        )
        """The prompt as ``prompts/list`` lists it."""

    def arguments(self, given: Any) -> dict[str, Any]:
        """Return the arguments of the function; callers give text, which is taken for the types of the function.
        Raises :class:`McpError` if they are wrong."""
        given = {} if given is None else given
        if not isinstance(given, dict):
            raise McpError(f"the arguments of {self.name} are wrong: expected an object", code=INVALID_PARAMS)
        try:
            return self.signature.convert(given, strict=False)
        except msgspec.ValidationError as flaw:
            raise McpError(f"the arguments of {self.name} are wrong: {flaw}", code=INVALID_PARAMS) from None

    def result(self, value: Any) -> dict[str, Any]:
        """Return what the function returned as the result of ``prompts/get``: one message or several, each as text,
        as a picture, or with its role. Raises TypeError if it is none of these."""
        if isinstance(value, dict) and isinstance(value.get("messages"), list):
            return value
        several = value if isinstance(value, list | tuple) else [value]
        messages = [_message(each) for each in several]
        return without_none(description=self.described.get("description"), messages=messages)


def _message(value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and value.get("role") in ("user", "assistant"):
        content = block(value.get("content"))
        if content is not None:
            return {"role": value["role"], "content": content}
    elif (content := block(value)) is not None:
        return {"role": "user", "content": content}
    raise TypeError(f"a prompt returned {type(value).__name__}: expected text, or a message with role and content")
