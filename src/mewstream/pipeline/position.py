"""Where a reader of a journal stands: what Spark keeps in its checkpoint, as JSON.

    {"journal": "12a8...", "offsets": {"0": 11, "1": 0}, "epochs": {"0": "12a89bd9-1-5c0d3e"}}

For each partition the offset of the next record to read, and the run of the gateway that wrote the one before it. The
id tells another journal from this one. The epochs tell another history of the same journal: one that lost its end with
the power, or was put back from a copy, and then went on differently.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mewstream.pipeline.errors import SourceError


class Position(NamedTuple):
    journal: str
    offsets: dict[int, int]
    epochs: dict[int, str]

    def to_json(self) -> dict[str, Any]:
        """In one order, always: Spark compares positions as text."""
        return {
            "journal": self.journal,
            "offsets": {str(number): self.offsets[number] for number in sorted(self.offsets)},
            "epochs": {str(number): self.epochs[number] for number in sorted(self.epochs)},
        }

    @classmethod
    def from_json(cls, value: Any) -> Position:
        try:
            offsets = {int(number): offset for number, offset in value["offsets"].items()}
            epochs = {int(number): epoch for number, epoch in value.get("epochs", {}).items()}
            journal = value["journal"]
        except (KeyError, TypeError, AttributeError, ValueError):
            offsets, epochs, journal = {}, {}, None
        whole = all(type(offset) is int and offset >= 0 for offset in offsets.values())
        if not isinstance(journal, str) or not offsets or not whole:
            raise SourceError(f"{value!r} is no position in a journal: expected {{journal, offsets, epochs}}")
        return cls(journal, offsets, epochs)
