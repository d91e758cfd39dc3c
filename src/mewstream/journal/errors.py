"""The exceptions of the journal.

MewError
└── JournalError
    ├── CorruptJournal      bytes on disk are not what was written: segment and offset are named
    ├── JournalDisplaced    the data directory was removed or replaced while it was in use
    ├── JournalInUse        another gateway has the data directory
    ├── PositionGone        the record at this position was pruned, or belongs to another journal
    └── RecordTooLarge      a record that no journal could hold
"""

from __future__ import annotations

from mewstream.protocol.errors import MewError


class JournalError(MewError):
    """The journal cannot be used. The message says what was found and what to do."""


class CorruptJournal(JournalError):
    def __init__(self, segment: str, offset: int, what: str) -> None:
        super().__init__(f"{segment}: offset {offset}: {what}")
        self.segment = segment
        self.offset = offset
        self.what = what


class JournalDisplaced(JournalError):
    def __init__(self, what: str) -> None:
        super().__init__(
            f"the data directory was removed or replaced while the gateway runs ({what}): new messages are refused, "
            "and what was recorded within the last moments is lost unless it comes back. Put the same directory back, "
            "and the gateway continues; else stop the gateway, put the directory back from a copy, and start it"
        )


class JournalInUse(JournalError):
    """``holder`` is the process id of the other gateway as text, empty if it is not known yet."""

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class PositionGone(JournalError):
    pass


class RecordTooLarge(JournalError):
    def __init__(self, space: str, seq: int, name: str, size: int) -> None:
        super().__init__(f"seq {seq} of {space!r}, a {name} of {size} bytes, is too large to be recorded")
