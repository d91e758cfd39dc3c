"""Interest: which streams a participant wants, beside which it may read (decision 27).

A client with the extension ``interest`` gets frames of nothing but what it has subscribed to. Interest is recorded
state. It is no right: who is interested and no reader gets nothing. The recipients of a frame are the readers of its
stream that are connected and interested, and :class:`Audiences` keeps who that is from one change to the next, so that
no frame has to ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from mewstream.protocol.errors import LimitExceeded, ValidationFailed
from mewstream.protocol.identifiers import byte_length, describe
from mewstream.protocol.policy import Limits

EXTENSION = "interest"
#: How many changes of one participant's interest are remembered, for a replay from before them, and their bytes.
MAX_CHANGES = 256
MAX_CHANGES_BYTES = 64 << 10
#: Streams that have ended and whose names are remembered, for a replay of their frames.
MAX_ENDED = 4_096
#: Every frame, in place of frames per second.
EVERY_FRAME = 0.0

_FIELDS = ("streams", "formats", "namespaces")


class Names(NamedTuple):
    """Everything by which a stream can be meant."""

    id: str
    alias: str | None = None
    formats: tuple[str, ...] = ()


class Interest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one participant has subscribed to. Each entry has the frames per second that it takes at most."""

    streams: dict[str, float] = {}
    """Ids or aliases, of streams that exist or that open later."""
    formats: dict[str, float] = {}
    """Ids of formats: streams that declare one of these."""
    namespaces: dict[str, float] = {}
    """Globs over ``<space>/<id or alias>``, in which ``*`` stands for any characters."""

    def __bool__(self) -> bool:
        return bool(self.streams or self.formats or self.namespaces)

    @property
    def count(self) -> int:
        return len(self.streams) + len(self.formats) + len(self.namespaces)

    @property
    def size(self) -> int:
        """Its approximate bytes in memory and in a snapshot."""
        return 32 + sum(24 + len(text) for entries in self._entries() for text in entries)

    def _entries(self) -> tuple[dict[str, float], ...]:
        return self.streams, self.formats, self.namespaces

    def with_added(self, given: Interest) -> Interest:
        """Subscriptions add up. The same one again takes the place of the first."""
        return Interest(*(mine | its for mine, its in zip(self._entries(), given._entries(), strict=True)))

    def without(self, given: Interest) -> Interest:
        return Interest(
            *(
                {text: rate for text, rate in mine.items() if text not in its}
                for mine, its in zip(self._entries(), given._entries(), strict=True)
            )
        )

    def as_lists(self) -> dict[str, list[str]]:
        """As clients write it and are told of it."""
        return {field: list(entries) for field, entries in zip(_FIELDS, self._entries(), strict=True)}

    def rate(self, space: str, names: Names) -> float | None:
        """How many frames a second of a stream are wanted, or None if it is of no interest. Of several entries that
        match, the one that wants most counts."""
        rates = [self.streams[name] for name in (names.id, names.alias) if name in self.streams]
        rates += [self.formats[format] for format in names.formats if format in self.formats]
        if self.namespaces:
            full = [f"{space}/{name}" for name in (names.id, names.alias) if name is not None]
            rates += [rate for glob, rate in self.namespaces.items() if any(matches(glob, each) for each in full)]
        if not rates:
            return None
        return EVERY_FRAME if EVERY_FRAME in rates else max(rates)


NOTHING = Interest()


def matches(glob: str, text: str) -> bool:
    """Whether a glob matches. It takes the first place for each part between two stars, which needs no second try, so
    that no glob takes long."""
    first, *parts = glob.split("*")
    if not parts:
        return glob == text
    last = parts.pop()
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    place, end = len(first), len(text) - len(last)
    for part in parts:
        found = text.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def parse_interest(given: Mapping[str, Any], limits: Limits) -> Interest:
    """The subscriptions in a payload or a join. Raises the refusal of what cannot be one."""
    found = _interest(given, limits)
    if not found:
        raise ValidationFailed(f"nothing is named: expected {', '.join(_FIELDS)}, lists of strings", field="streams")
    return found


def interest_of_join(given: Mapping[str, Any] | None, limits: Limits) -> Interest | None:
    """What a client subscribes to as it joins, which may be nothing. None if it does not say."""
    if given is None:
        return None
    interest = _interest(given, limits)
    check_interest(interest, limits)
    return interest


def check_interest(interest: Interest, limits: Limits) -> None:
    """Check that this may be all that one participant has subscribed to."""
    for count, limit in (
        (interest.count, "subscriptions_per_participant"),
        (len(interest.namespaces), "namespaces_per_participant"),
    ):
        most = getattr(limits, limit)
        if count > most:
            what = limit.removesuffix("_per_participant")
            raise LimitExceeded(f"{count} {what} of one participant, at most {most} are allowed", limit=limit)


def _interest(given: Mapping[str, Any], limits: Limits) -> Interest:
    return Interest(*(dict.fromkeys(_texts(given, field, limits), EVERY_FRAME) for field in _FIELDS))


def _texts(given: Mapping[str, Any], field: str, limits: Limits) -> list[str]:
    value = given.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValidationFailed(f"{field} must be a list of non-empty strings, got {describe(value)}", field=field)
    # A namespace is a space and a stream.
    most = 2 * limits.id_bytes if field == "namespaces" else limits.id_bytes
    if any(byte_length(each) > most for each in value):
        raise LimitExceeded(f"an entry of {field} is longer than {most} bytes", limit="id_bytes")
    return value


# -- what is remembered for a replay --------------------------------------------------------------


class InterestForgotten(Exception):
    """It is not remembered what a participant was interested in that long ago. ``since`` is the first seq at which it
    is."""

    def __init__(self, since: int) -> None:
        super().__init__(f"what you had subscribed to before seq {since} is not remembered")
        self.since = since


class Change(msgspec.Struct, frozen=True, array_like=True):
    """From ``seq`` on this holds. None: the client does not use interest, and gets what it may read."""

    seq: int
    interest: Interest | None


class InterestLog(msgspec.Struct):
    """The interest of one participant over time, as long as it is remembered."""

    changes: list[Change] = []

    @property
    def current(self) -> Interest | None:
        return self.changes[-1].interest

    def change(self, seq: int, interest: Interest | None) -> None:
        if not self.changes:
            self.changes.append(Change(0, None))
        self.changes.append(Change(seq, interest))
        size = 0
        for place in range(len(self.changes) - 1, -1, -1):
            size += (self.changes[place].interest or NOTHING).size
            if size > MAX_CHANGES_BYTES or len(self.changes) - place > MAX_CHANGES:
                del self.changes[: min(place + 1, len(self.changes) - 1)]
                break

    def at(self, seq: int) -> Interest | None:
        """What held right after this seq. Raises :class:`InterestForgotten`."""
        for change in reversed(self.changes):
            if change.seq <= seq:
                return change.interest
        raise InterestForgotten(self.changes[0].seq)


# -- who gets frames now --------------------------------------------------------------------------


class Audiences:
    """The connected participants that use interest, and the streams that each is interested in.

    It follows from the rest of the state. A snapshot leaves it out."""

    __slots__ = ("_changes", "_streams_of", "choosing", "listeners", "versions")

    def __init__(self) -> None:
        self.choosing: dict[str, Interest] = {}
        """The participants that use interest, and what they want."""
        self.listeners: dict[str, dict[str, float]] = {}
        """Stream -> those of them that are interested in it, and their frames per second."""
        self.versions: dict[str, int] = {}
        """Stream -> a number that changes with its listeners, so that caches know when they are stale."""
        self._streams_of: dict[str, dict[str, None]] = {}
        self._changes = 0

    def leave(self, participant: str) -> None:
        """It uses interest no more, or it is not connected any more."""
        if self.choosing.pop(participant, None) is None:
            return
        for stream_id in self._streams_of.pop(participant, ()):
            self._drop(stream_id, participant)

    def choose(self, participant: str, interest: Interest, rates: Iterable[tuple[str, float | None]]) -> None:
        """Its interest is this now. ``rates`` has every stream for which it may have changed, and how many frames a
        second it wants of that."""
        self.choosing[participant] = interest
        listening = self._streams_of.setdefault(participant, {})
        for stream_id, rate in rates:
            if rate is not None:
                listening[stream_id] = None
                self._add(stream_id, participant, rate)
            elif stream_id in listening:
                del listening[stream_id]
                self._drop(stream_id, participant)

    def opened(self, space: str, names: Names) -> None:
        for participant, interest in self.choosing.items():
            rate = interest.rate(space, names)
            if rate is not None:
                self._streams_of[participant][names.id] = None
                self._add(names.id, participant, rate)

    def ended(self, stream_id: str) -> None:
        for participant in self.listeners.pop(stream_id, ()):
            del self._streams_of[participant][stream_id]
        self.versions.pop(stream_id, None)

    def streams_of(self, participant: str) -> Iterator[str]:
        """The streams that a participant is interested in."""
        return iter(tuple(self._streams_of.get(participant, ())))

    def version(self, stream_id: str) -> int:
        return self.versions.get(stream_id, 0)

    def _add(self, stream_id: str, participant: str, rate: float) -> None:
        self.listeners.setdefault(stream_id, {})[participant] = rate
        self._touch(stream_id)

    def _drop(self, stream_id: str, participant: str) -> None:
        listeners = self.listeners[stream_id]
        del listeners[participant]
        if not listeners:
            del self.listeners[stream_id]
        self._touch(stream_id)

    def _touch(self, stream_id: str) -> None:
        self._changes += 1
        self.versions[stream_id] = self._changes
