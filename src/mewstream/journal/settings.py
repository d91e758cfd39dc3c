"""The settings of the journal."""

from __future__ import annotations

from typing import Literal

import msgspec

from mewstream.journal.retention import Retention

Durability = Literal["none", "flush", "fsync"]


class JournalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The ``journal`` section of ``gateway`` in space.yaml."""

    durability: Durability = "flush"
    flush_interval: float = 0.01
    """Seconds for which records may wait to be written together."""
    flush_bytes: int = 1 << 20
    """Records are written earlier when this many bytes wait."""
    partitions: int = 4
    """Used when a journal is created; afterwards the number of partitions cannot change."""
    segment_bytes: int = 64 << 20
    snapshot_every: int = 100_000
    """Number of records of a partition between two snapshots of its state, which keep the next start short."""
    retention: Retention = Retention()
