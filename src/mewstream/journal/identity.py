"""``journal.json``: which journal this is, and what a program must understand to read it.

The identity is made once: a journal that is created again is another journal. ``features`` lists what a reader must
support beyond the columns, so that exactly those versions refuse a journal that would misread it (decision 26).
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from mewstream.journal.errors import JournalError
from mewstream.journal.schema import SCHEMA_VERSION

IDENTITY_FILE = "journal.json"

READERS_BY_REFERENCE = "readers-by-reference"
"""A frame names the record that made its reader set (``readers_seq``), and does not repeat the set."""

INTEREST = "interest"
"""Participants choose what they get: ``subscribed``, ``unsubscribed``, and the ``interest`` of ``joined``."""

NAMES = "names"
"""The answer to ``if_exists: reuse`` is a record (``stream-reused``), and streams may have an ``idle_timeout``."""

HISTORY_READS = "history-reads"
"""There may be records of participants that read history (``history-read``)."""

ADMISSIONS = "admissions"
"""There may be records of who may be in a space for how long: by signed tokens (``admitted``, ``admission-ended``), by
invitations that end (``uninvited``), and of bans (``banned``, ``unbanned``)."""

DELEGATION = "delegation"
"""A right may be granted by a delegate (``parent``), and ends with the right of that."""

WRITE_REQUESTS = "write-requests"
"""Participants ask for the right to write (``write-requested``, ``write-denied``), and a grant may replace a writer."""

PENDING_GRANTS = "pending-grants"
"""A grant may be ``pending`` until its participant joins, and its conditions may have ``on_disconnect``."""

WELCOME_DIGEST = "welcome-digest"
"""The record of a join has a digest of what its participant was told."""

FEATURES = (
    ADMISSIONS,
    DELEGATION,
    HISTORY_READS,
    INTEREST,
    NAMES,
    PENDING_GRANTS,
    READERS_BY_REFERENCE,
    WELCOME_DIGEST,
    WRITE_REQUESTS,
)
"""All features that this version supports, and that it writes."""

#: The fields of version 1. Programs of that version check these alone, and then say that they are too old.
_FIRST_FIELDS = ("id", "partitions", "created", "schema_version", "runs", "tag", "pruned")


class Identity(msgspec.Struct):
    """``pruned`` has the first offset that was not pruned, for each partition."""

    id: str
    partitions: int
    created: str
    schema_version: int = SCHEMA_VERSION
    runs: int = 0
    tag: str = ""
    """A random tag of the latest run: after a restore from a backup, the same run number means another history."""
    pruned: dict[int, int] = {}
    check: int = 0
    """A checksum of the fields above."""
    features: list[str] = []
    sum: int = 0
    """A checksum of all fields."""

    @property
    def epoch(self) -> str:
        """The name of the latest run, which also identifies the journal."""
        return f"{self.id[:8]}-{self.runs}-{self.tag}"

    def upgrade(self) -> bool:
        """Mark the journal as written by this version. Returns whether that changed anything."""
        features = sorted({*self.features, *FEATURES})
        if (self.schema_version, self.features) == (SCHEMA_VERSION, features):
            return False
        self.schema_version, self.features = SCHEMA_VERSION, features
        return True

    def encode(self) -> bytes:
        fields: dict[str, Any] = {**msgspec.structs.asdict(self), "check": 0, "sum": 0}
        fields["check"] = _checksum({**{name: fields[name] for name in _FIRST_FIELDS}, "check": 0})
        fields["sum"] = _checksum(fields)
        return msgspec.json.encode(fields)


def parse_identity(data: bytes, file: str) -> Identity:
    """Raises :class:`JournalError` if the file is damaged, or if this version must not touch the journal."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, Any])
        identity = msgspec.convert(fields, Identity, str_keys=True)
    except (msgspec.MsgspecError, UnicodeDecodeError) as flaw:
        raise JournalError(f"{file} cannot be read: {flaw}") from None
    checked = "sum" if "sum" in fields else "check"  # version 1 had no ``sum``
    if fields.get(checked) != _checksum({**fields, checked: 0}):
        raise JournalError(f"{file} is damaged: its checksum is wrong. Put it back from a copy")
    if identity.schema_version > SCHEMA_VERSION:
        raise JournalError(
            f"{file}: written by a newer mewstream (schema {identity.schema_version}, this reads up to "
            f"{SCHEMA_VERSION}): update mewstream"
        )
    if unknown := sorted(set(identity.features) - set(FEATURES)):
        named = ", ".join(unknown)
        raise JournalError(f"{file}: written by a newer mewstream, which uses {named}: update mewstream")
    return identity


def _checksum(fields: dict[str, Any]) -> int:
    return zlib.crc32(msgspec.json.encode(fields))
