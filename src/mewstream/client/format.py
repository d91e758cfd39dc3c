"""What the frames of a stream contain, as its creator declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mewstream.client import untrusted

_NAMED = ("id", "schema", "mime_type", "description", "schema_hash")


@dataclass(frozen=True, slots=True)
class Format:
    """A format of a stream. ``schema`` is JSON Schema 2020-12. ``schema_hash`` comes from the gateway and identifies
    the schema. ``extra`` holds all other fields of the descriptor.

    It can also be read like the mapping that it is on the wire: ``format["id"]``, ``dict(format)``.
    """

    id: str
    schema: dict[str, Any] | bool | None = None
    mime_type: str | None = None
    description: str | None = None
    schema_hash: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The descriptor as it is on the wire, without fields that are None."""
        named = {name: getattr(self, name) for name in _NAMED}
        return {**self.extra, **{name: value for name, value in named.items() if value is not None}}

    def __getitem__(self, key: str) -> Any:
        return self.as_dict()[key]

    def get(self, key: str, default: Any = None) -> Any:
        """A field of the descriptor, or ``default`` where it has none of that name."""
        return self.as_dict().get(key, default)

    def keys(self) -> Iterator[str]:
        """The names of the descriptor's fields."""
        return iter(self.as_dict())


def format_of(described: dict[str, Any]) -> Format:
    """The format of a descriptor from the wire, which may contain anything."""
    schema = described.get("schema")
    return Format(
        untrusted.text(described.get("id")) or "",
        schema if isinstance(schema, dict | bool) else None,
        untrusted.text(described.get("mime_type")),
        untrusted.text(described.get("description")),
        untrusted.text(described.get("schema_hash")),
        {key: value for key, value in described.items() if key not in _NAMED},
    )
