"""The files of a journal, opened for writing: identity, partitions, snapshots, recovery and pruning.

DIR/lock                      locked while a gateway runs
DIR/journal/journal.json      identity, number of runs, where each partition begins
DIR/journal/p0 ... p3/        segments, their indexes, snapshots
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from mewstream.io import lock_file
from mewstream.io.log_lines import event
from mewstream.journal.checked import CheckedFile
from mewstream.journal.errors import CorruptJournal, JournalError, JournalInUse
from mewstream.journal.files import Files
from mewstream.journal.identity import IDENTITY_FILE, Identity
from mewstream.journal.partition import Partition, displacement
from mewstream.journal.reader import JournalReader, partition_of
from mewstream.journal.reader_sets import SetsInForce, changes_in
from mewstream.journal.retention import PrunePlan
from mewstream.journal.rewriting import remove_segment
from mewstream.journal.segments import SegmentName
from mewstream.protocol import snapshot
from mewstream.protocol.fold import apply
from mewstream.protocol.records import Record
from mewstream.protocol.state import SpaceState

log = logging.getLogger("mewstream.journal")

KEPT_SNAPSHOTS = 2


def snapshot_name(offset: int) -> str:
    return f"snapshot-{offset:020d}.json"


def snapshot_files(directory: Path) -> list[Path]:
    """Return the snapshots of a partition, oldest first."""
    return sorted(directory.glob(f"snapshot-{'[0-9]' * 20}.json"))


class _SnapshotFile(CheckedFile):
    journal: str
    offset: int
    states: list[msgspec.Raw]
    names_sets: bool = False
    """Each reader set has the record that made it, as far as the log could tell. Version 1 had none of them."""

    @classmethod
    def read(cls, file: Path, journal: str) -> _SnapshotFile:
        content = cls.parse(file.read_bytes())
        if content.journal != journal:
            raise ValueError("it is of another journal")
        return content

    def by_space(self) -> dict[str, SpaceState]:
        states = [snapshot.load(bytes(raw)) for raw in self.states]
        return {state.id: state for state in states}


class LocalJournal:
    """There is at most one at a time, which a lock ensures. Everything here is synchronous; a gateway uses it through
    :class:`~mewstream.journal.file_journal.FileJournal`."""

    def __init__(
        self,
        data: Path,
        *,
        partitions: int = 4,
        segment_bytes: int = 64 << 20,
        synced_commits: bool = False,
        files: Files | None = None,
    ) -> None:
        self._files = files or Files()
        self._lock_file = data / "lock"
        self._lock = _lock(data)
        try:
            self.root = data / "journal"
            self.root.mkdir(exist_ok=True)
            self.reader = JournalReader(self.root)
            self.identity, is_new = self._identify(partitions)
            if not is_new and self.identity.upgrade():
                # Before anything is written that older versions could not read.
                self._files.replace(self.root / IDENTITY_FILE, self.identity.encode())
            self.partitions = [
                Partition(
                    self.root / f"p{number}",
                    self._files,
                    segment_bytes=segment_bytes,
                    begins_at=self.identity.pruned.get(number, 0),
                    is_new=is_new,
                    synced_commits=synced_commits,
                )
                for number in range(self.identity.partitions)
            ]
            self._files.sync_directory(data)
            self._files.sync_directory(self.root)
            # Last: a journal without its identity was never completely created, and is created again.
            self._files.replace(self.root / IDENTITY_FILE, self.identity.encode())
            for number in range(self.identity.partitions):
                self._remove_other_sets(number)
        except OSError as error:
            os.close(self._lock)
            raise JournalError(f"cannot use {data} for the journal: {error.strerror or error}") from None
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def epoch(self) -> str:
        return self.identity.epoch

    def _identify(self, partitions: int) -> tuple[Identity, bool]:
        """Return the identity of the journal, with the number of this run, and whether the journal is new."""
        is_new = not (self.root / IDENTITY_FILE).exists()
        if is_new:
            if any(file.stat().st_size for file in self.root.glob("p*/*.index")):
                raise JournalError(f"{self.root} holds segments and no {IDENTITY_FILE}: put it back from a copy")
            identity = Identity(uuid.uuid4().hex, partitions, datetime.now(UTC).isoformat(timespec="seconds"))
            identity.upgrade()
        else:
            identity = self.reader.identity()
        identity.runs += 1
        identity.tag = secrets.token_hex(3)
        return identity, is_new

    # -- writing ----------------------------------------------------------------------------------

    def partition(self, space: str) -> Partition:
        return self.partitions[partition_of(space, len(self.partitions))]

    def append(self, space: str, record: Record) -> None:
        self.partition(space).append(space, self.identity.epoch, record)

    def close(self) -> None:
        """Write and sync what waits, and unlock the directory."""
        try:
            for partition in self.partitions:
                try:
                    partition.flush()
                    partition.sync()
                except Exception as error:
                    log.error(
                        "%s: its end could not be written: %s",
                        partition.directory,
                        error,
                        extra=event("journal_end_lost"),
                    )
        finally:
            self.release()

    def release(self) -> None:
        """Unlock the directory without writing anything."""
        for partition in self.partitions:
            partition.close()
        os.close(self._lock)

    def displaced(self) -> str | None:
        """Return which file of the journal is not in its place any more, because the data directory was removed, moved
        or replaced, or None. A thread may call this."""
        flaw = displacement(self._files, self._lock_file, self._files.identity(self._lock))
        for partition in self.partitions:
            flaw = flaw or partition.displaced()
        if flaw is None:
            try:
                # A copy of the same journal that another gateway uses has another epoch.
                if self.reader.identity().epoch != self.epoch:
                    flaw = f"{self.root / IDENTITY_FILE} is of another journal or run"
            except (JournalError, OSError) as error:
                flaw = str(error)
        return flaw

    # -- snapshots and recovery -------------------------------------------------------------------

    def recover(self) -> dict[str, SpaceState]:
        """See :class:`~mewstream.journal.interface.Recovery`."""
        states: dict[str, SpaceState] = {}
        for number in range(len(self.partitions)):
            offset, recovered = self._latest_snapshot(number)
            for entry in self.reader.entries(number, offset, with_readers=False):
                state = recovered.get(entry.space)
                if state is None:
                    state = recovered[entry.space] = SpaceState(entry.space)
                try:
                    apply(state, entry.record)
                except (KeyError, msgspec.ValidationError) as flaw:
                    raise JournalError(
                        f"{self.root}/p{number}: offset {entry.offset}, seq {entry.record.seq} of {entry.space!r} "
                        f"does not follow from what is before it ({flaw!r}): run mewstream journal verify"
                    ) from None
            states.update(recovered)
        return states

    def _latest_snapshot(self, number: int) -> tuple[int, dict[str, SpaceState]]:
        directory = self.root / f"p{number}"
        for file in reversed(snapshot_files(directory)):
            try:
                content = _SnapshotFile.read(file, self.identity.id)
                states = content.by_space()
            except (OSError, ValueError) as flaw:
                log.warning("%s is not used: %s", file, flaw, extra=event("snapshot_unusable"))
                continue
            if content.offset <= self.partitions[number].next_offset:
                if not content.names_sets:
                    self._name_sets(number, content.offset, states)
                return content.offset, states
            log.warning(
                "%s is removed: it is ahead of the journal, which lost its end", file, extra=event("snapshot_unusable")
            )
            self._files.remove(file)
        pruned = self.identity.pruned.get(number, 0)
        if pruned:
            raise JournalError(
                f"{directory} was pruned up to offset {pruned} and has no sound snapshot from there on: "
                "the state is not known. Put a snapshot file back from a copy"
            )
        return 0, {}

    def _name_sets(self, number: int, offset: int, states: Mapping[str, SpaceState]) -> None:
        """Find the records that made the reader sets of a snapshot that does not name them. Without its record, a set
        is repeated by each frame: a hundred bytes could become a megabyte on the disk."""
        unnamed = [
            (space, stream)
            for space, state in states.items()
            for stream in state.streams.values()
            if stream.readers is not None and stream.readers_seq is None
        ]
        if not unnamed:
            return
        sets = self.carried_sets(number)
        try:
            self._advance_sets(sets, number, offset)
        except (JournalError, OSError) as flaw:
            log.warning(
                "%s: frames of streams with a reader set repeat it until it is changed",
                flaw,
                extra=event("reader_sets_unknown"),
            )
            return
        for space, stream in unnamed:
            seq, readers = sets.sets.get(space, {}).get(stream.id, (None, ()))
            if readers == stream.readers:
                stream.readers_seq = seq

    def encode_snapshot(self, number: int, states: Mapping[str, SpaceState]) -> tuple[Path, bytes]:
        """Return the file and the content of a snapshot at the end of a partition. It must not be written before all
        records up to there are."""
        end = self.partitions[number].end_offset
        count = len(self.partitions)
        own = [
            msgspec.Raw(snapshot.dump(state)) for space, state in states.items() if partition_of(space, count) == number
        ]
        file = self.root / f"p{number}" / snapshot_name(end)
        return file, _SnapshotFile(self.identity.id, end, own, names_sets=True).encode()

    def prepare_snapshot(self, partition: int, states: Mapping[str, SpaceState]) -> Callable[[], None]:
        """See :class:`~mewstream.journal.interface.SnapshotStore`."""
        return partial(self.write_snapshot, *self.encode_snapshot(partition, states))

    def write_snapshot(self, file: Path, data: bytes) -> None:
        """Write a snapshot, and remove all but the newest few. A thread may call this."""
        self._files.replace(file, data)
        for older in snapshot_files(file.parent)[:-KEPT_SNAPSHOTS]:
            self._files.remove(older)

    # -- sealing and retention --------------------------------------------------------------------

    def prune(self, plan: PrunePlan) -> None:
        """Remove the segments of a plan. The reader sets that remaining frames refer to are written first, then the
        decision, and only then is the first file removed."""
        for number, begins_at in plan.begins_at.items():
            carried = self._sets_in_force(number, begins_at)
            file = self.root / f"p{number}" / SetsInForce.file_name(begins_at)
            self._files.replace(file, carried.encode())
            self.identity.pruned[number] = begins_at
        self._files.replace(self.root / IDENTITY_FILE, self.identity.encode())
        for segment in plan.segments:
            remove_segment(self._files, segment)
        for number in plan.begins_at:
            self._remove_other_sets(number)

    def carried_sets(self, number: int) -> SetsInForce:
        """Return the reader sets that were in force where a partition begins."""
        begins_at = self.identity.pruned.get(number, 0)
        file = self.root / f"p{number}" / SetsInForce.file_name(begins_at)
        try:
            return SetsInForce.parse(file.read_bytes())
        except FileNotFoundError:
            pass  # nothing was pruned, or an older version pruned, whose frames refer to no sets
        except ValueError as flaw:
            log.error(
                "%s cannot be used: %s. The readers of some frames are not known any more",
                file,
                flaw,
                extra=event("reader_sets_unknown"),
            )
        return SetsInForce(self.identity.id, begins_at)

    def _sets_in_force(self, number: int, offset: int) -> SetsInForce:
        """Return the reader sets in force at an offset that is about to become the beginning."""
        sets = self.carried_sets(number)
        try:
            self._advance_sets(sets, number, offset)
        except CorruptJournal as flaw:
            # The segment is removed all the same: keeping what cannot be read does not help.
            log.error(
                "%s: the readers of frames after offset %d may not be known any more",
                flaw,
                offset,
                extra=event("reader_sets_unknown"),
            )
        sets.offset = offset
        return sets

    def _advance_sets(self, sets: SetsInForce, number: int, offset: int) -> None:
        for batch in self.reader.batches(number, sets.offset, offset):
            for entry in changes_in(batch.rows):
                sets.apply(entry)

    def _remove_other_sets(self, number: int) -> None:
        """Remove the reader sets of an earlier beginning, and of a pruning that was interrupted."""
        kept = SetsInForce.file_name(self.identity.pruned.get(number, 0))
        for file in (self.root / f"p{number}").glob("readers-*.json"):
            if file.name != kept:
                self._files.remove(file)

    def snapshot_offsets(self, *, synced: bool = False) -> dict[int, int]:
        """Return the offset of the newest sound snapshot of each partition, or 0. With ``synced``, only of a snapshot
        whose records are known to be on the disk: another might be ahead of its log after a loss of power."""
        return {
            number: newest_snapshot(
                partition.directory, self.identity.id, partition.synced_offset if synced else partition.next_offset
            )
            for number, partition in enumerate(self.partitions)
        }

    def segments_to_seal(self) -> list[tuple[Partition, SegmentName]]:
        """Return the full segments that are not sealed yet. The caller seals them."""
        waiting = [(partition, name) for partition in self.partitions for name in partition.closed]
        for partition in self.partitions:
            partition.closed = []
        return waiting


def read_snapshot(file: Path, journal: str) -> tuple[int, dict[str, SpaceState]]:
    """Return the offset of a snapshot and the states of the spaces at that offset. Raises :class:`ValueError` if the
    file is damaged or belongs to another journal."""
    content = _SnapshotFile.read(file, journal)
    return content.offset, content.by_space()


def newest_snapshot(directory: Path, journal: str, end: int) -> int:
    """Return the offset of the newest sound snapshot of a partition that is not beyond ``end``, or 0."""
    for file in reversed(snapshot_files(directory)):
        with contextlib.suppress(OSError, ValueError):
            offset, _ = read_snapshot(file, journal)
            if offset <= end:
                return offset
    return 0


def _lock(data: Path) -> int:
    """Lock the data directory: a second gateway would use the same numbers again."""
    try:
        return lock_file.acquire(data / "lock")
    except lock_file.LockHeld as held:
        by = f" (process {held.holder})" if held.holder else ""
        raise JournalInUse(
            f"{data} is in use by another gateway{by}: stop that one or give this one another --data", held.holder
        ) from None
    except OSError as error:
        raise JournalError(f"cannot use {data} as the data directory: {error.strerror or error}") from None
