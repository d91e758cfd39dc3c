"""Who is connected and who is paused, as intervals of the log."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mewstream.audit.records import ControlRecord
from mewstream.history.records import Detail, Integers, text_of


class Presence(IntEnum):
    UNKNOWN = -1
    """The log begins in the middle, and has not said anything of this participant."""
    GONE = 0
    SUSPENDED = 1
    HERE = 2
    CHOOSING = 3
    """Here, and interested in some streams only. Which, the records do not say for each stream."""


Change = tuple[int, int]
"""The place in the log, and what holds from there on."""
_NEVER = -(1 << 62)
_FAR = 1 << 62


class As(NamedTuple):
    """What held at each of some places of the log, and since which record."""

    value: Integers
    since: Integers


def as_of(changes: list[Change], seqs: Integers, default: int) -> As:
    """``changes`` are in the order of the log."""
    if not changes:
        return As(np.full(len(seqs), default), np.zeros(len(seqs), np.int64))
    places = np.fromiter((seq for seq, _ in changes), np.int64, len(changes))
    values = np.fromiter((value for _, value in changes), np.int64, len(changes))
    found = np.searchsorted(places, seqs) - 1
    known = found >= 0
    return As(np.where(known, values[found], default), np.where(known, places[found], 0))


class Attendance:
    """``is_whole``: the log was seen from its beginning, so that nobody is here of whom it does not say so."""

    def __init__(self, people: Mapping[str, Change], pauses: Mapping[str, Change], *, is_whole: bool) -> None:
        self.default = Presence.GONE if is_whole else Presence.UNKNOWN
        self.people: dict[str, list[Change]] = {who: [(seq, state)] for who, (seq, state) in people.items()}
        self.pauses: dict[str, list[Change]] = {who: [(seq, until)] for who, (seq, until) in pauses.items()}
        self._least = sum(state == Presence.HERE for _, state in people.values())
        self._most = sum(state >= Presence.HERE for _, state in people.values())
        self.least: list[Change] = [(_NEVER, self._least)]
        """How many are connected and want everything."""
        self.most: list[Change] = [(_NEVER, self._most)]
        """How many are connected."""

    def see(self, record: ControlRecord, detail: Detail) -> None:
        who = detail.participant or ""
        match record.record:
            case "joined":
                self._is(who, record.seq, Presence.CHOOSING if text_of(detail.interest) else Presence.HERE)
            case "subscribed" | "unsubscribed":
                self._is(who, record.seq, Presence.CHOOSING)
            case "left":
                self._is(who, record.seq, Presence.GONE)
            case "suspended":
                self._is(who, record.seq, Presence.SUSPENDED)
            case "paused":
                self.pauses.setdefault(who, []).append((record.seq, _FAR if detail.until is None else detail.until))
            case "unpaused":
                self.pauses.setdefault(who, []).append((record.seq, _NEVER))

    def _is(self, who: str, seq: int, state: Presence) -> None:
        changes = self.people.setdefault(who, [])
        before = changes[-1][1] if changes else self.default
        changes.append((seq, state))
        self._least += (state == Presence.HERE) - (before == Presence.HERE)
        self._most += (state >= Presence.HERE) - (before >= Presence.HERE)
        self.least.append((seq, self._least))
        self.most.append((seq, self._most))

    def presence(self, who: str, seqs: Integers) -> As:
        return as_of(self.people.get(who, []), seqs, self.default)

    def paused(self, who: str, seqs: Integers, now: Integers) -> tuple[NDArray[np.bool_], Integers]:
        """Whether it was paused, and by which record."""
        until = as_of(self.pauses.get(who, []), seqs, _NEVER)
        return now < until.value, until.since

    def reached(self, readers: tuple[str, ...] | None, seqs: Integers) -> tuple[Integers, Integers]:
        """The least and the most of these that a frame was addressed to; None: of all."""
        if readers is None:
            return as_of(self.least, seqs, 0).value, as_of(self.most, seqs, 0).value
        least, most = np.zeros(len(seqs), np.int64), np.zeros(len(seqs), np.int64)
        for who in readers:
            presence = self.presence(who, seqs).value
            least += presence == Presence.HERE
            most += presence >= Presence.HERE
        return least, most

    def leaves(self, who: str) -> list[int]:
        return [seq for seq, state in self.people.get(who, ()) if state == Presence.GONE]

    def left(self) -> tuple[dict[str, Change], dict[str, Change]]:
        """For the next batch."""
        people = {who: changes[-1] for who, changes in self.people.items()}
        pauses = {who: changes[-1] for who, changes in self.pauses.items() if changes[-1][1] != _NEVER}
        return people, pauses
