"""The tools that we offer to the space."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mewstream.client import content
from mewstream.client.call import Call
from mewstream.client.docstrings import described
from mewstream.client.errors import McpError
from mewstream.client.mcp import INVALID_PARAMS
from mewstream.client.messages import without_none
from mewstream.client.schema_checks import checker_of
from mewstream.client.signature import Signature
from mewstream.client.user_code import UserCode

if TYPE_CHECKING:
    from mewstream.protocol.formats import FormatChecker

Handler = Callable[..., Any | Awaitable[Any]]

logger = logging.getLogger("mewstream.client")


class Tool:
    """A function, and what callers are told of it."""

    def __init__(
        self,
        name: str,
        handler: Handler,
        *,
        schema: dict[str, Any] | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.handler = handler
        self._checker: FormatChecker | None = None
        self._signature: Signature | None = None
        if schema is None:
            self._signature = Signature(f"the tool {name}", handler)
            schema, about = self._signature.schema, self._signature.description
        else:
            self._checker, about = checker_of({"id": name, "schema": schema}), described(handler).text
        result = self._signature.result if self._signature else None
        self.described = without_none(
            name=name,
            title=title,
            description=description or about,
            inputSchema=schema,
            outputSchema=result.schema if result else None,
            annotations=dict(annotations) if annotations else None,
        )
        """The tool as ``tools/list`` lists it."""

    async def call(self, call: Call, code: UserCode) -> dict[str, Any]:
        """Call the function with the arguments of a ``tools/call``. Returns the result, which says so if the arguments
        are wrong or the function failed. Raises :class:`McpError` if the function does, or if the request has no
        arguments at all."""
        given = call.params.get("arguments")
        given = {} if given is None else given
        if not isinstance(given, dict):
            raise McpError(
                f"the arguments of {self.name} are wrong: expected an object with the arguments by name",
                code=INVALID_PARAMS,
            )
        try:
            arguments = self._arguments(given, call)
        except msgspec.ValidationError as flaw:
            return content.error_result(f"the arguments of {self.name} are wrong: {flaw}")
        try:
            value = await code.run(self.handler, **arguments)
        except McpError:
            raise
        except Exception as failure:
            logger.exception("the tool %s failed", self.name)
            return content.error_result(f"{type(failure).__name__}: {failure}")
        try:
            return content.tool_result(value, self._signature.result if self._signature else None)
        except (TypeError, ValueError) as flaw:
            logger.error("the tool %s returned something that is not what it promises: %s", self.name, flaw)
            return content.error_result(f"{self.name} returned something that is not what it promises: {flaw}")

    def _arguments(self, given: dict[str, Any], call: Call) -> dict[str, Any]:
        """Return the arguments of the function. Raises :class:`msgspec.ValidationError` if those given are wrong."""
        if self._signature is None:
            problems = self._checker.problems(given) if self._checker else []
            if problems:
                raise msgspec.ValidationError("; ".join(problems))
            return given
        arguments = self._signature.convert(given)
        if self._signature.call_parameter is not None:
            arguments[self._signature.call_parameter] = call
        return arguments
