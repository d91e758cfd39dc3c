"""The resources that we offer to the space, and who wants to hear of their changes."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from mewstream.client.content import as_json
from mewstream.client.errors import McpError
from mewstream.client.mcp import INVALID_PARAMS, RESOURCE_NOT_FOUND, quoted
from mewstream.client.messages import without_none
from mewstream.client.signature import Signature

#: How many resources one participant may subscribe to.
MAX_SUBSCRIPTIONS = 1000
#: Matching a longer URI with a template could take long.
MAX_URI_CHARACTERS = 8192

_PLACEHOLDER = re.compile(r"\{(\+?)(\w+)\}")
_WHOLE = re.compile(r"[^{}]*(?:\{\+?\w+\}[^{}]*)*")


class Resource:
    """A function that is read under a URI, or under every URI that fits a template such as ``weather://{city}``."""

    def __init__(
        self,
        uri: str,
        handler: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
    ) -> None:
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
            raise ValueError(f"{uri!r} is no URI: expected something like config://app")
        if not _WHOLE.fullmatch(uri):
            raise ValueError(f"{uri!r} is no template: expected placeholders like {{city}} or {{+path}}")
        self.uri = uri
        self.handler = handler
        self.signature = Signature(f"the resource {uri}", handler)
        self.mime_type = mime_type
        placeholders = [name for _, name in _PLACEHOLDER.findall(uri)]
        self.is_template = bool(placeholders)
        if sorted(placeholders) != sorted(self.signature.parameters):
            found, expected = (", ".join(each) or "none" for each in (placeholders, self.signature.parameters))
            raise TypeError(f"the placeholders of {uri} are {found}, the parameters of its function are {expected}")
        self._pattern = re.compile(_PLACEHOLDER.sub(_group, _escaped(uri)), re.DOTALL)
        self.described = without_none(
            name=name or getattr(handler, "__name__", uri),
            title=title,
            description=description or self.signature.description,
            mimeType=mime_type,
            **{"uriTemplate" if self.is_template else "uri": uri},
        )
        """The resource as ``resources/list`` or ``resources/templates/list`` lists it."""

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the placeholders in a URI; None if it does not fit. A value of ``{name}`` is one
        segment of a path, also when it is decoded: it cannot lead out of a directory."""
        found = self._pattern.fullmatch(uri)
        if found is None:
            return None
        values = {name: unquote(value) for name, value in found.groupdict().items()}
        for plus, name in _PLACEHOLDER.findall(self.uri):
            value = values[name]
            if "\0" in value or (not plus and (value in (".", "..") or re.search(r"[/\\]", value))):
                return None
        return values

    def contents(self, uri: str, value: Any) -> dict[str, Any]:
        """Return what the function returned as the result of ``resources/read``."""
        if isinstance(value, dict) and isinstance(value.get("contents"), list):
            return value
        if isinstance(value, bytes | bytearray):
            blob = base64.b64encode(value).decode()
            return {"contents": [{"uri": uri, "mimeType": self.mime_type or "application/octet-stream", "blob": blob}]}
        if isinstance(value, str):
            return {"contents": [{"uri": uri, "mimeType": self.mime_type or "text/plain", "text": value}]}
        text = as_json(msgspec.to_builtins(value))
        return {"contents": [{"uri": uri, "mimeType": self.mime_type or "application/json", "text": text}]}


def find(resources: Mapping[str, Resource], uri: Any) -> tuple[Resource, dict[str, str]]:
    """Return the resource of a URI, and the values of its placeholders. Raises :class:`McpError` if there is none."""
    if not isinstance(uri, str):
        raise McpError(f"expected the uri of a resource, not {quoted(uri)}", code=INVALID_PARAMS)
    exact = resources.get(uri)
    if exact is not None and not exact.is_template:
        return exact, {}
    for each in resources.values() if len(uri) <= MAX_URI_CHARACTERS else ():
        if each.is_template and (values := each.match(uri)) is not None:
            return each, values
    raise McpError(f"resource not found: {quoted(uri)}", code=RESOURCE_NOT_FOUND, data={"uri": uri[:1000]})


class Subscribers:
    """Who is told when a resource changes, by URI."""

    def __init__(self) -> None:
        self._by_uri: dict[str, set[str]] = {}
        self._counts: dict[str, int] = {}

    def of(self, uri: str) -> list[str]:
        return sorted(self._by_uri.get(uri, ()))

    def add(self, uri: str, participant: str) -> None:
        """Note that a participant wants to know. Raises :class:`McpError` if it has too many subscriptions."""
        if participant in self._by_uri.get(uri, ()):
            return
        if self._counts.get(participant, 0) >= MAX_SUBSCRIPTIONS:
            raise McpError(
                f"you have subscribed to {MAX_SUBSCRIPTIONS} resources, which is the most", code=INVALID_PARAMS
            )
        self._by_uri.setdefault(uri, set()).add(participant)
        self._counts[participant] = self._counts.get(participant, 0) + 1

    def remove(self, uri: str, participant: str) -> None:
        wanting = self._by_uri.get(uri, set())
        if participant in wanting:
            wanting.discard(participant)
            self._counts[participant] -= 1
            if not wanting:
                del self._by_uri[uri]

    def left(self, participant: str) -> None:
        """Forget a participant who has left."""
        if self._counts.pop(participant, 0):
            for uri in [uri for uri, wanting in self._by_uri.items() if participant in wanting]:
                self._by_uri[uri].discard(participant)
                if not self._by_uri[uri]:
                    del self._by_uri[uri]


def _escaped(uri: str) -> str:
    """Return the URI as a regular expression in which the placeholders stand as they are."""
    pieces = re.split(r"(\{\+?\w+\})", uri)
    return "".join(each if _PLACEHOLDER.fullmatch(each) else re.escape(each) for each in pieces)


def _group(placeholder: re.Match[str]) -> str:
    return f"(?P<{placeholder[2]}>.+)" if placeholder[1] else f"(?P<{placeholder[2]}>[^/?#]+)"
