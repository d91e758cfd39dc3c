"""Retention: which segments may be removed, by age and by size, oldest first.

Never one that a start still needs (after the newest snapshot), never the one that is being written, and, up to a limit,
none that a named consumer has not read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from mewstream.journal.errors import JournalError
from mewstream.journal.files import Files
from mewstream.journal.reader import JournalReader
from mewstream.journal.segments import Segment
from mewstream.protocol.times import SECOND

_CONSUMER_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much history is kept. 0 means no limit."""

    max_age: float = 0.0
    """Seconds."""
    max_bytes: int = 0
    """Of all segments together."""
    consumer_hold_bytes: int = 4 << 30
    """How much a consumer that is late may hold back beyond the limits above."""


class Consumer(msgspec.Struct):
    """The progress of a named reader: for each partition, the offset below which it needs nothing any more."""

    offsets: dict[int, int]


@dataclass(slots=True)
class PrunePlan:
    segments: list[Segment] = field(default_factory=list)
    begins_at: dict[int, int] = field(default_factory=dict)
    bytes: int = 0
    alarms: list[str] = field(default_factory=list)


def commit_consumer(root: Path, name: str, offsets: Mapping[int, int], files: Files | None = None) -> None:
    """Record the progress of a consumer. An offset never goes back."""
    if not _CONSUMER_NAME.match(name):
        raise JournalError(f"{name!r} is no name for a consumer: letters, digits, '.', '_' and '-', at most 64")
    before = consumers(root).get(name, Consumer({})).offsets
    merged = {number: max(offset, before.get(number, 0)) for number, offset in offsets.items()}
    directory = root / "consumers"
    directory.mkdir(exist_ok=True)
    (files or Files()).replace(directory / f"{name}.json", msgspec.json.encode(Consumer({**before, **merged})))


def consumers(root: Path) -> dict[str, Consumer]:
    found = {}
    for file in sorted((root / "consumers").glob("*.json")):
        try:
            found[file.stem] = msgspec.json.decode(file.read_bytes(), type=Consumer)
        except msgspec.MsgspecError as flaw:
            raise JournalError(f"{file} cannot be read: {flaw}") from None
    return found


def _size(segment: Segment) -> int:
    try:
        return Path(segment.data_path).stat().st_size
    except FileNotFoundError:  # sealed meanwhile
        return segment.committed_bytes


def plan_pruning(
    root: Path, retention: Retention, *, now: int, partitions: int, snapshots: Mapping[int, int]
) -> PrunePlan:
    """Decide which segments to remove. ``now`` is in microseconds; ``snapshots`` has the offset of the newest snapshot
    of each partition."""
    reader = JournalReader(root)
    named = consumers(root)
    sizes: dict[str, int] = {}
    by_partition: dict[int, list[Segment]] = {}
    for number in range(partitions):
        by_partition[number] = reader.segments(number)
        for segment in by_partition[number]:
            sizes[segment.data_path] = _size(segment)
    total = sum(sizes.values())
    plan = PrunePlan()
    held: dict[str, int] = {}
    # The oldest segment of the whole journal comes first; within a partition they stay in order, even if the clock was
    # set back.
    queue = sorted(
        (
            (newest, number, segment)
            for number, segments in by_partition.items()
            for newest, segment in zip(
                itertools.accumulate((each.last_ts for each in segments), max), segments[:-1], strict=False
            )
        ),
        key=lambda item: (item[0], item[1], item[2].name.first_offset),
    )
    stopped: set[int] = set()
    for last_ts, number, segment in queue:
        too_old = retention.max_age > 0 and now - last_ts > retention.max_age * SECOND
        too_much = retention.max_bytes > 0 and total > retention.max_bytes
        if number in stopped or not (too_old or too_much):
            continue
        size = sizes[segment.data_path]
        waiting = [name for name, each in named.items() if each.offsets.get(number, 0) < segment.next_offset]
        if segment.next_offset > snapshots.get(number, 0):
            stopped.add(number)
            continue
        if waiting:
            for name in waiting:
                held[name] = held.get(name, 0) + size
            if all(held[name] <= retention.consumer_hold_bytes for name in waiting):
                stopped.add(number)
                continue
            late = ", ".join(name for name in waiting if held[name] > retention.consumer_hold_bytes)
            plan.alarms.append(
                f"{segment.data_path} is pruned though {late} has not read it: "
                f"it held back more than {retention.consumer_hold_bytes} bytes"
            )
        plan.segments.append(segment)
        plan.begins_at[number] = segment.next_offset
        plan.bytes += size
        total -= size
    plan.alarms += [f"consumer {name} holds back {size} bytes of the journal" for name, size in held.items()]
    return plan
