"""Removing old segments of a journal, for ``mewstream journal prune``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from mewstream.cli.journal_reading import locked_journal, open_reader
from mewstream.cli.output import complain
from mewstream.journal.reader import JournalReader
from mewstream.journal.retention import PrunePlan, Retention, plan_pruning
from mewstream.journal.verify import sound_snapshots
from mewstream.protocol.times import rfc3339


def prune_journal(data: Path, retention: Retention, *, dry_run: bool) -> None:
    """Remove what the retention allows, and print it; with ``dry_run``, only print it."""
    reader = open_reader(data)
    if dry_run:
        _report(_plan(data, reader, retention), "would be removed")
        return
    with locked_journal(data, reader, "prune") as local:
        planned = _plan(data, reader, retention)
        if planned.segments:
            local.prune(planned)
    _report(planned, "removed")


def _plan(data: Path, reader: JournalReader, retention: Retention) -> PrunePlan:
    identity = reader.identity()
    root = data / "journal"
    return plan_pruning(
        root,
        retention,
        now=time.time_ns() // 1000,
        partitions=identity.partitions,
        snapshots=sound_snapshots(root, identity),
    )


def _report(planned: PrunePlan, verb: str) -> None:
    for segment in planned.segments:
        last = segment.next_offset - 1
        click.echo(f"{segment.data_path}: offset {segment.name.first_offset} to {last}, to {rfc3339(segment.last_ts)}")
    for alarm in planned.alarms:
        complain(alarm)
    click.echo(f"{len(planned.segments)} segments, {planned.bytes} bytes {verb}")
