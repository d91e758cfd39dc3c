"""Styled lines: pieces of text, each with the name of its style."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from mewstream.cli.output import printable

Piece = tuple[str, str]
Line = list[Piece]

#: The styles, in the notation of prompt_toolkit.
STYLES = {
    "plain": "",
    "time": "ansibrightblack",
    "dim": "ansibrightblack",
    "who": "ansicyan bold",
    "me": "ansigreen bold",
    "stream": "ansimagenta",
    "good": "ansigreen",
    "warn": "ansiyellow",
    "bad": "ansired",
    "ask": "ansiyellow bold",
    "head": "bold",
}

MOST_CHARACTERS = 400
_BYTES_SHOWN = 24


def clean(line: Line) -> Line:
    """Escape control characters, so that text from other participants cannot control the terminal or add lines."""
    return [(style, printable(text)) for style, text in line]


def plain(line: Line) -> str:
    return "".join(text for _, text in line)


def short(text: str, most: int = MOST_CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def as_json(value: Any) -> str:
    """A decoded JSON value as JSON again."""
    return msgspec.json.encode(value).decode()


def as_text(data: bytes, *, is_text: bool) -> str:
    """The data of a frame: shortened text, or the first bytes."""
    if is_text:
        return short(data.decode(errors="replace"))
    more = "..." if len(data) > _BYTES_SHOWN else ""
    return f"({len(data)} bytes) {data[:_BYTES_SHOWN].hex(' ')}{more}"


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nobody"
