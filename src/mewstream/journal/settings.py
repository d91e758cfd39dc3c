"""What an operator can set for the journal."""

from __future__ import annotations

from typing import Literal

import msgspec

from mewstream.journal.retention import Retention

Durability = Literal["none", "flush", "fsync"]


class JournalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The ``journal`` section of ``gateway`` in space.yaml."""

    durability: Durability = "flush"
    flush_interval: float = 0.01
    """Seconds for which frames may wait to be written together."""
    flush_bytes: int = 1 << 20
    """They are written earlier when so many bytes wait."""
    partitions: int = 4
    """Only when a journal is made; afterwards it has what it has."""
    segment_bytes: int = 64 << 20
    snapshot_every: int = 100_000
    """Records of a partition after which its state is written down, to make the next start short."""
    retention: Retention = Retention()
