"""What can be wrong with a journal.

MewError
└── JournalError
    ├── CorruptJournal      bytes on disk are not what was written: segment and offset are named
    ├── JournalInUse        another gateway has the data directory
    ├── PositionGone        a position that was pruned, or is of another journal
    └── RecordTooLarge      a record that no journal could hold
"""

from __future__ import annotations

from mewstream.protocol.errors import MewError


class JournalError(MewError):
    """The journal cannot be used as it is. The text says what was found and what to do."""


class CorruptJournal(JournalError):
    def __init__(self, segment: str, offset: int, what: str) -> None:
        super().__init__(f"{segment}: offset {offset}: {what}")
        self.segment = segment
        self.offset = offset
        self.what = what


class JournalInUse(JournalError):
    pass


class PositionGone(JournalError):
    pass


class RecordTooLarge(JournalError):
    def __init__(self, space: str, seq: int, name: str, size: int) -> None:
        super().__init__(f"seq {seq} of {space!r}, a {name} of {size} bytes, is too large to be recorded")
