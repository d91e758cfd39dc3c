"""The log under the gateway. Nothing outside this package knows how records are kept."""

from mewstream.journal.memory import MemoryJournal

__all__ = ["MemoryJournal"]
