"""The proposals that a space remembers, with the participant that made each.

Only the newest are remembered, of each participant and in all. One that is forgotten can be neither withdrawn nor
rejected, because its proposer is not known any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Proposals:
    proposers: dict[str, str] = field(default_factory=dict)
    """Envelope id -> who proposed it, the oldest first."""
    _by_proposer: dict[str, dict[str, None]] = field(default_factory=dict, compare=False, repr=False)
    """The same facts, found from the other end."""

    @classmethod
    def of(cls, proposers: Iterable[tuple[str, str]]) -> Proposals:
        """Those of a snapshot, the oldest first."""
        proposals = cls()
        for id, proposer in proposers:
            proposals._add(id, proposer)
        return proposals

    def remember(self, id: str, proposer: str, *, most_of_one: int, most: int) -> None:
        """Remember a proposal. If its id is known, it stays with its first proposer."""
        if id in self.proposers:
            return
        self._add(id, proposer)
        if len(self._by_proposer[proposer]) > most_of_one:
            self._forget(next(iter(self._by_proposer[proposer])))
        while len(self.proposers) > most:
            self._forget(next(iter(self.proposers)))

    def _add(self, id: str, proposer: str) -> None:
        self.proposers[id] = proposer
        self._by_proposer.setdefault(proposer, {})[id] = None

    def _forget(self, id: str) -> None:
        proposer = self.proposers.pop(id)
        own = self._by_proposer[proposer]
        del own[id]
        if not own:
            del self._by_proposer[proposer]
