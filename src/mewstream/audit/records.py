"""What the auditor reads and says, and how its rules are declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec


class ControlRecord(NamedTuple):
    """The columns of a record that is no frame, as the journal and the table ``records`` have them. ``ts`` is in
    microseconds."""

    seq: int
    epoch: str
    ts: int
    record: str
    kind: str | None
    sender: str | None
    participant: str | None
    stream_id: str | None
    outcome: str
    cause_seq: int | None
    detail: str | None
    data: bytes | None


class Finding(NamedTuple):
    """What the log does not justify. ``seq`` is that of the record that is wrong; of a record that is missing, that of
    the one that it should have followed, or of the first one that shows that it did not come in time."""

    seq: int
    ts: int
    rule: str
    reason: str
    participant: str | None = None
    stream_id: str | None = None
    cause_seq: int | None = None


class Expected(msgspec.Struct, array_like=True):
    """A record that must come next, because a rule says so."""

    record: str
    fields: dict[str, Any]
    rule: str = ""
    ts: int = 0
    cause_seq: int | None = None

    def is_meant_by(self, record: str, fields: dict[str, Any]) -> bool:
        """Whether a record is this one, even if it is not as it should be."""
        same = (self.fields.get(key) in (None, fields.get(key)) for key in ("stream_id", "participant"))
        return self.record == record and all(same)


class Refusal(Exception):
    """An envelope must be refused with this code. The text says why."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


class Unjudged(Exception):
    """What is known does not say whether something is right. The text is the reason."""


def need(holds: bool, code: str, why: str) -> bool:
    if not holds:
        raise Refusal(code, why)
    return True


class Rule(NamedTuple):
    name: str
    finds: str
    section: str
    """The heading in ``docs/protocol.md`` under which it stands."""


RULES: dict[str, Rule] = {}
"""All rules by name."""
ASKED: dict[str, Callable[[Any], list[Expected]]] = {}
"""The rules of envelopes by their kinds."""
F = TypeVar("F", bound=Callable[..., Any])


def rule(section: str, *asked_by: str) -> Callable[[F], F]:
    """Declare a function to be a rule: it has its name, and its docstring says what it finds. ``asked_by`` are the
    kinds of the envelopes that it judges."""

    def declare(function: F) -> F:
        name = function.__name__
        RULES[name] = Rule(name, " ".join((function.__doc__ or "").split()), section)
        ASKED.update(dict.fromkeys(asked_by, function))
        return function

    return declare
