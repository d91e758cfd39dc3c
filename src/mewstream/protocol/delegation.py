"""Delegation chains: which writer of a stream holds its right from which other.

A right that a delegate has granted names it as its parent, so the writers of a stream are a forest. A right is never
more than those above it: it has ended when one of them has, and their bounds on frames are budgets that they share.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from mewstream.protocol.state import Stream, WriteRight


class Delegation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A writer may grant the right in turn. ``depth`` 1: to writers that may not. ``max_writers`` counts all below."""

    depth: int
    max_writers: int | None = None


def chain(stream: Stream, writer: str) -> Iterator[tuple[str, WriteRight]]:
    """The right of a writer, and those above it."""
    holder: str | None = writer
    while holder is not None:
        right = stream.writers[holder]
        yield holder, right
        holder = right.parent


def below(stream: Stream, holder: str, *, beyond: int = 0) -> list[str]:
    """The writers that hold their right from this one, directly or not; or only those more than ``beyond`` grants
    away. Those nearer come first."""
    right = stream.writers.get(holder)
    if right is None or right.delegate is None:
        return []
    children: dict[str, list[str]] = {}
    for writer, each in stream.writers.items():
        if each.parent is not None:
            children.setdefault(each.parent, []).append(writer)
    found: list[str] = []
    level, distance = children.get(holder, []), 1
    while level:
        if distance > beyond:
            found += level
        level, distance = [child for each in level for child in children.get(each, ())], distance + 1
    return found


def spent(stream: Stream, writer: str, now: int) -> tuple[str, str] | None:
    """The highest in the chain of a writer whose right has run out, and why. None if all still hold."""
    found = None
    for holder, right in chain(stream, writer):
        if right.expires_at is not None and now >= right.expires_at:
            found = holder, "expired"
        elif right.frames_left is not None and right.frames_left <= 0:
            found = holder, "max_frames"
    return found


def frames_left(stream: Stream, writer: str) -> int | None:
    """How many frames a writer may still send. None: any number."""
    budgets = [right.frames_left for _, right in chain(stream, writer) if right.frames_left is not None]
    return min(budgets, default=None)


def expires_at(stream: Stream, writer: str) -> int | None:
    times = [right.expires_at for _, right in chain(stream, writer) if right.expires_at is not None]
    return min(times, default=None)


# -- changes, by the fold -------------------------------------------------------------------------


def spend(stream: Stream, writer: str, count: int) -> None:
    """A writer has sent frames, which all budgets above it have paid for."""
    for _, right in chain(stream, writer):
        if right.frames_left is not None:
            right.frames_left -= count


def narrow(stream: Stream, holder: str) -> None:
    """Bound the delegations below a holder, whose own may have become less deep."""
    for each in below(stream, holder):
        right = stream.writers[each]
        assert right.parent is not None
        above = stream.writers[right.parent].delegate
        if right.delegate is not None and above is not None and right.delegate.depth >= above.depth:
            depth = above.depth - 1
            right.delegate = Delegation(depth, right.delegate.max_writers) if depth > 0 else None


def release(stream: Stream, holder: str) -> None:
    """What a holder has granted becomes a grant of the owner, which it is from now on."""
    for right in stream.writers.values():
        if right.parent == holder:
            right.parent = None
            right.is_bounded = right.conditions is not None
