"""Parsing the arguments in a typed line.

Words are separated by blanks; a name that contains blanks is put in quotes. The last argument of a command may take the
rest of the line unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mewstream.protocol.errors import MewError

if TYPE_CHECKING:
    from mewstream.cli.terminal.session import Session

_QUOTES = "\"'"

#: Suggestions for an argument, given the words before it.
Candidates = Callable[["Session", list[str]], Iterable[str]]


class InvalidInput(MewError):
    """The typed line is not valid. The text says what was expected."""


def _nothing(session: Session, before: list[str]) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    candidates: Candidates = _nothing
    optional: bool = False
    is_rest: bool = False
    """Whether it takes the rest of the line unchanged."""

    def __str__(self) -> str:
        return f"[{self.name}]" if self.optional else self.name


def values(arguments: tuple[Argument, ...], text: str, usage: str) -> list[str | None]:
    """The value of each argument; None for an optional one that was not given. Raises InvalidInput."""
    found: list[str | None] = []
    for argument in arguments:
        text = text.strip()
        if not text:
            if not argument.optional:
                raise InvalidInput(f"{argument.name} is missing: {usage}")
            found.append(None)
        elif argument.is_rest:
            found.append(text)
            text = ""
        else:
            word, text = _first_word(text)
            found.append(word)
    if text.strip():
        raise InvalidInput(f"{text.strip()!r} is too much: {usage}")
    return found


def _first_word(text: str) -> tuple[str, str]:
    if text[0] in _QUOTES:
        end = text.find(text[0], 1)
        if end < 0:
            raise InvalidInput(f"the quote before {text[1:]!r} is not closed")
        return text[1:end], text[end + 1 :]
    word, *rest = text.split(maxsplit=1)
    return word, rest[0] if rest else ""


def last_word(text: str) -> tuple[list[str], str]:
    """The words before the last one, and the last one as typed so far, including its opening quote."""
    before: list[str] = []
    while True:
        text = text.lstrip()
        if text[:1] and text[0] in _QUOTES:
            if text.find(text[0], 1) < 0:
                return before, text
        elif not any(each.isspace() for each in text):
            return before, text
        word, text = _first_word(text)
        before.append(word)


def quoted(name: str) -> str:
    """A name as it must be typed: in quotes if necessary."""
    if not any(each.isspace() for each in name) and name[:1] not in (*_QUOTES, ""):
        return name
    quote = _QUOTES[1] if _QUOTES[0] in name else _QUOTES[0]
    return f"{quote}{name}{quote}"
