"""Erasing a space from a journal, for ``mewstream erase`` and ``mewstream journal erase``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from mewstream.cli.journal_reading import locked_journal, open_reader
from mewstream.cli.output import complain
from mewstream.cli.status_line import progress
from mewstream.gateway.identity import InvitedTokens
from mewstream.journal.erase import Survey, erase, remove_strays, survey
from mewstream.journal.errors import JournalError
from mewstream.journal.local import LocalJournal
from mewstream.protocol.state import SpaceState


@dataclass
class PreparedErase:
    """What an erase would reach, in a journal that nobody else has."""

    journal: LocalJournal
    states: dict[str, SpaceState]
    invited: InvitedTokens
    found: Survey

    @property
    def what(self) -> str:
        tokens = len(self.invited.for_space(self.found.space))
        return f"{self.found.records} records in {len(self.found.segments)} segments and {tokens} invited participants"

    @property
    def is_empty(self) -> bool:
        return self.found.is_empty and not self.invited.for_space(self.found.space)

    def erase(self) -> None:
        space = self.found.space
        with progress("erasing", sum(segment.committed_bytes for segment in self.found.segments)) as advance:
            erase(self.journal, space, self.states, progress=lambda segment: advance(segment.committed_bytes))
        for participant in self.invited.for_space(space):
            self.invited.remove(space, participant)
        for file in self.found.set_aside:
            complain(f"{file} holds bytes of a damaged batch, perhaps of this space: remove it if you need it no more")


@contextmanager
def erasing(data: Path, space: str, *, may_be_empty: bool = False) -> Iterator[PreparedErase]:
    """The journal for us alone, and what there is of a space in it."""
    reader = open_reader(data)
    invited = InvitedTokens(data / "invited.json")
    with locked_journal(data, reader, "erase") as local:
        states = local.recover()
        prepared = PreparedErase(local, states, invited, survey(local, space, states))
        if prepared.is_empty:
            # Nothing counts any more; an erase that was interrupted at its end may have left bytes that never did.
            remove_strays(local, prepared.found.partition)
            if not may_be_empty:
                raise JournalError(f"there is nothing of space {space!r} in {data}")
        yield prepared


def confirm_erasing(question: str, *, yes: bool) -> None:
    if not yes and not _confirmed(question):
        click.echo("nothing is erased", err=True)
        sys.exit(1)


def _confirmed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("nobody is there to confirm: give --yes") from None
