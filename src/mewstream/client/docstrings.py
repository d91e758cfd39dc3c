"""What the docstring of a function says of the function itself and of each of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

_SECTION = re.compile(r"(args|arguments|parameters|params):\s*$", re.IGNORECASE)
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_FIELD = re.compile(r":param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")


class Described(NamedTuple):
    """``text`` is the docstring without the parts about parameters; None if there is nothing else."""

    text: str | None
    parameters: dict[str, str]


def described(function: Callable[..., Any]) -> Described:
    """Parse the docstring of a function: parameters in a section ``Args:``, or as ``:param name:``."""
    lines = ((inspect.getdoc(function) if inspect.isroutine(function) else None) or "").splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    newest: str | None = None
    section: int | None = None
    """The indentation of the section of parameters that we are in."""
    margin = 0
    """The indentation of its entries, or of a ``:param``; deeper lines continue the newest entry."""
    for line in lines:
        indent = len(line) - len(line.lstrip())
        text = line.strip()
        if section is not None and text and indent <= section:
            section = newest = None
        if section is None and (field := _FIELD.match(text)):
            newest, margin = field[1], indent
            parameters[newest] = field[2]
        elif section is None and _SECTION.match(text):
            section, margin, newest = indent, -1, None
        elif section is not None and text and (margin < 0 or indent <= margin) and (entry := _ENTRY.match(text)):
            newest, margin = entry[1], indent
            parameters[newest] = entry[2]
        elif newest is not None and text and indent > margin:
            parameters[newest] = f"{parameters[newest]} {text}".strip()
        elif section is None:
            newest = None
            kept.append(line)
    return Described("\n".join(kept).strip() or None, parameters)
