"""Opening the journal of a gateway. This is the one place that knows which implementation there is."""

from __future__ import annotations

from pathlib import Path

from mewstream.journal.file_journal import FileJournal
from mewstream.journal.interface import Journal
from mewstream.journal.settings import JournalSettings


def open_journal(data: Path, settings: JournalSettings) -> Journal:
    """Open the journal in a data directory, or create it.

    Raises :class:`~mewstream.journal.errors.JournalInUse` if another gateway uses it, and other kinds of
    :class:`~mewstream.journal.errors.JournalError` if it cannot be used as it is."""
    return FileJournal(data, settings)
