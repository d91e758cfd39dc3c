"""Pictures and sounds that tools and prompts return."""

from __future__ import annotations

import msgspec


class _Media(msgspec.Struct, frozen=True):
    data: bytes
    mime_type: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.data)} bytes, {self.mime_type!r})"


class Image(_Media, frozen=True):
    """A picture that a tool or a prompt returns, alone or in a list with text."""


class Audio(_Media, frozen=True):
    """A sound that a tool or a prompt returns, alone or in a list with text."""
