"""Tells the gateway which streams our subscriptions want, so that it sends nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mewstream.client.messages import Message
from mewstream.protocol import kinds

#: More streams than this are not listed one by one: every stream is wanted then, and we choose here.
MAX_LISTED = 200

Entry = tuple[str, str]
"""A field of ``stream/subscribe``, and a text in its list."""

_EVERY_STREAM: Entry = ("namespaces", "*")


class Interest:
    """What the gateway knows of our interest, on one connection after another.

    Each join tells it all, and takes the place of what held before: a change that was lost with a connection is made
    up for by that."""

    def __init__(self, wanted: Callable[[], set[str] | None], post: Callable[[str, Any], object]) -> None:
        """``wanted`` returns the names of the streams that are subscribed to, or None if all are."""
        self._wanted = wanted
        self._post = post
        self._told: set[Entry] | None = None
        """None: there is no connection, or the gateway does not choose for us."""
        self._in_join: set[Entry] = set()

    def for_join(self) -> dict[str, list[str]]:
        """Return what a join says of it."""
        self._told = None
        self._in_join = self._entries()
        return _lists(self._in_join)

    def welcomed(self, welcome: Message) -> None:
        """Make up for what has changed since the join was sent. A gateway that knows of interest says so."""
        if "interest" in welcome.payload:
            self._told = self._in_join
            self.update()

    def update(self) -> None:
        """Tell the gateway what has changed. It never gets to know of less before it knows of more."""
        if self._told is None:
            return
        told, self._told = self._told, self._entries()
        for kind, changed in (
            (kinds.STREAM_SUBSCRIBE, self._told - told),
            (kinds.STREAM_UNSUBSCRIBE, told - self._told),
        ):
            if changed:
                self._post(kind, _lists(changed))

    def _entries(self) -> set[Entry]:
        names = self._wanted()
        if names is None or len(names) > MAX_LISTED:
            return {_EVERY_STREAM}
        return {("streams", name) for name in names}


def _lists(entries: Iterable[Entry]) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    for field, text in sorted(entries):
        lists.setdefault(field, []).append(text)
    return lists
