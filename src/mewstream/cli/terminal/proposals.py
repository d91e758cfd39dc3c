"""Open proposals, with numbers that are easy to type."""

from __future__ import annotations

from mewstream.cli.terminal.arguments import InvalidInput
from mewstream.client.events import Proposed, Requested

MOST = 1000


class Proposals:
    """The open proposals by number. The oldest is forgotten when there are too many."""

    def __init__(self) -> None:
        self.open: dict[int, Proposed] = {}
        self._numbers: dict[str, int] = {}
        self._last = 0

    def add(self, proposal: Proposed) -> int:
        self._last += 1
        self.open[self._last] = proposal
        self._numbers[proposal.proposal] = self._last
        if len(self.open) > MOST:
            oldest = self.open.pop(next(iter(self.open)))
            self._numbers.pop(oldest.proposal, None)
        return self._last

    def settle(self, proposal: str) -> int | None:
        """Remove a proposal, and return its number if it was open."""
        number = self._numbers.pop(proposal, None)
        if number is not None:
            self.open.pop(number, None)
        return number

    def withdrawn(self, proposal: str, by: str) -> int | None:
        """Remove a proposal if ``by`` made it, and return its number. Not every gateway checks who withdraws."""
        found = self._find(proposal)
        return self.settle(proposal) if found is not None and found.sender == by else None

    def number_of_another(self, proposal: str, than: str) -> int | None:
        """The number of an open proposal, if it was not made by ``than``."""
        found = self._find(proposal)
        return self._numbers[proposal] if found is not None and found.sender != than else None

    def requested(self, request: Requested, proposal: str) -> None:
        """A request names a proposal. Remove the proposal if the request is what was proposed."""
        found = self._find(proposal)
        if found is not None and (found.method, found.params) == (request.method, request.params):
            self.settle(proposal)

    def _find(self, proposal: str) -> Proposed | None:
        number = self._numbers.get(proposal)
        return self.open.get(number) if number is not None else None

    def __getitem__(self, number: str) -> Proposed:
        found = self.open.get(int(number)) if number.isascii() and number.isdecimal() and len(number) < 20 else None
        if found is None:
            waiting = ", ".join(map(str, self.open)) or "none"
            raise InvalidInput(f"there is no open proposal {number}: open are {waiting}")
        return found
