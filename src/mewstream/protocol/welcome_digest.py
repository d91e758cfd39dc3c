"""The digest of what a participant is told when it joins: who is present, and which streams there are.

It is a sum of hashes, one for each fact, so that a change costs as much as it changes, and a join nothing. The record
of a join has it, and whoever reads the log can compute it again. "The digest of a welcome" in ``docs/journal.md`` lists
the facts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

_BYTES = 16


@dataclass(slots=True)
class WelcomeDigest:
    sum: int = 0

    def add(self, *fact: Any) -> None:
        self.sum = (self.sum + _hash(fact)) % (1 << 8 * _BYTES)

    def remove(self, *fact: Any) -> None:
        self.sum = (self.sum - _hash(fact)) % (1 << 8 * _BYTES)

    def with_participant(self, participant: str) -> WelcomeDigest:
        """What it is as soon as somebody has come who was not present."""
        digest = WelcomeDigest(self.sum)
        digest.add("participant", participant)
        return digest

    def __str__(self) -> str:
        return f"{self.sum:0{2 * _BYTES}x}"


def _hash(fact: tuple[Any, ...]) -> int:
    data = msgspec.json.encode(fact, order="sorted")
    return int.from_bytes(hashlib.blake2b(data, digest_size=_BYTES).digest(), "big")
