"""The participants of a space as welcomes describe them, encoded. Most of it is the same in the next welcome, so it is
kept in one piece that grows as participants join: a longer welcome costs nothing but copying more bytes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Reversible
from typing import Any, NamedTuple, Protocol

import msgspec

from mewstream.protocol.envelope import encode_json


class Present(Collection[str], Reversible[str], Protocol):
    """Participants in the order in which they came."""


class Others(NamedTuple):
    """``parts`` are to be encoded as a list: each is a part of that list."""

    parts: list[msgspec.Raw]
    size: int
    is_everyone: bool


class Descriptions:
    """The descriptions of one space. Call ``forget`` for a participant whose description changes, or who leaves."""

    __slots__ = ("_encoded", "_listed", "_spans")

    def __init__(self) -> None:
        self._encoded: dict[str, bytes] = {}
        self._listed = bytearray()
        """The descriptions of the first participants, with commas between them."""
        self._spans: dict[str, tuple[int, int]] = {}
        """The place of each description in ``_listed``, in the same order."""

    def forget(self, participant: str) -> None:
        self._encoded.pop(participant, None)
        if participant in self._spans:
            # Everything after it has to be listed again. That is nothing if it has just joined.
            last = None
            while last != participant:
                last, (start, _) = self._spans.popitem()
            del self._listed[max(0, start - 1) :]

    def forget_all(self) -> None:
        self._encoded.clear()
        self._listed.clear()
        self._spans.clear()

    def others(
        self, participant: str, present: Present, describe: Callable[[str], dict[str, Any]], *, max_bytes: int
    ) -> Others:
        """Everyone who is present except one, or as many as fit into ``max_bytes``."""
        unlisted = len(present) - len(self._spans)
        for each in reversed(list(itertools.islice(reversed(present), unlisted))):
            if len(self._listed) > max_bytes:
                break
            self._list(each, describe)
        start, end = self._spans.get(participant, (len(self._listed) + 1, len(self._listed)))
        last, is_everyone = len(self._listed), len(self._spans) == len(present)
        if last > max_bytes:
            last = max((stop for _, stop in self._spans.values() if stop <= max_bytes), default=0)
            is_everyone = False
        with memoryview(self._listed) as listed:
            parts = bytes(listed[: min(last, max(0, start - 1))]), bytes(listed[end + 1 : last])
        return Others([msgspec.Raw(part) for part in parts if part], sum(map(len, parts)), is_everyone)

    def _list(self, participant: str, describe: Callable[[str], dict[str, Any]]) -> None:
        encoded = self._encoded.get(participant)
        if encoded is None:
            encoded = self._encoded[participant] = encode_json(describe(participant))
        if self._listed:
            self._listed += b","
        start = len(self._listed)
        self._listed += encoded
        self._spans[participant] = start, len(self._listed)
