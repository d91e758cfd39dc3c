"""The journal on local disk: identity, partitions, snapshots, recovery.

DIR/lock                      held while a gateway runs
DIR/journal/journal.json      identity, number of runs, what was pruned
DIR/journal/p0 ... p3/        segments, their indexes, snapshots
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import secrets
import uuid
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from mewstream.journal.errors import CorruptJournal, JournalError, JournalInUse
from mewstream.journal.files import Files
from mewstream.journal.identity import IDENTITY_FILE, Identity
from mewstream.journal.partition import Partition, displacement
from mewstream.journal.reader import JournalReader, partition_of
from mewstream.journal.reader_sets import SetsInForce, changes_in, sets_files
from mewstream.journal.retention import PrunePlan
from mewstream.journal.schema import Entry
from mewstream.journal.sealing import remove_segment
from mewstream.journal.segments import SegmentName
from mewstream.protocol import snapshot
from mewstream.protocol.fold import apply
from mewstream.protocol.records import Record
from mewstream.protocol.state import SpaceState

log = logging.getLogger("mewstream.journal")

DEFAULT_PARTITIONS = 4
DEFAULT_SEGMENT_BYTES = 64 << 20
_SNAPSHOT = re.compile(r"snapshot-(\d{20})\.json\Z")
KEPT_SNAPSHOTS = 2


def snapshot_files(directory: Path) -> list[Path]:
    """The snapshots of a partition, oldest first."""
    return sorted(file for file in directory.glob("snapshot-*.json") if _SNAPSHOT.match(file.name))


class _SnapshotFile(msgspec.Struct):
    journal: str
    offset: int
    states: list[msgspec.Raw]


class LocalJournal:
    """The writing end of a journal; there is one at a time."""

    def __init__(
        self,
        data: Path,
        *,
        partitions: int = DEFAULT_PARTITIONS,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
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
                # Before the first byte that older versions could not read.
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
            # Written last: a journal without its identity was never finished, and is begun again.
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
        """The identity of the journal that is here, or of a new one; each start is a new run."""
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
        """Write what waits, sync it, and let another have the directory."""
        try:
            for partition in self.partitions:
                try:
                    partition.flush()
                    partition.sync()
                except Exception as error:
                    log.error("%s: its end could not be written: %s", partition.directory, error)
                partition.close()
        finally:
            os.close(self._lock)

    def release(self) -> None:
        """Let another have the directory, as it is."""
        for partition in self.partitions:
            partition.close()
        os.close(self._lock)

    def displaced(self) -> str | None:
        """What is not in its place any more of what this journal has open, because the data directory was removed,
        moved or replaced; None where all is well. May be asked in a thread."""
        flaw = displacement(self._files, self._lock_file, self._files.identity(self._lock))
        for partition in self.partitions:
            flaw = flaw or partition.displaced()
        return flaw or self._identity_displaced()

    def _identity_displaced(self) -> str | None:
        try:
            there = self.reader.identity()
        except (JournalError, OSError) as flaw:
            return str(flaw)
        # Of this very run: another copy of the same journal has another.
        return None if there.epoch == self.epoch else f"{self.root / IDENTITY_FILE} is of another journal or run"

    # -- reading ----------------------------------------------------------------------------------

    def read(self, space: str, after: int) -> Iterator[Entry]:
        """Records above a position; those that still wait are written first."""
        self.partition(space).flush()
        return self.reader.read(space, after)

    # -- snapshots and recovery -------------------------------------------------------------------

    def recover(self) -> dict[str, SpaceState]:
        """The state of every space: from the last snapshot of its partition, and the tail after it."""
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
        for file in sorted(directory.glob("snapshot-*.json"), reverse=True):
            try:
                offset, states = read_snapshot(file, self.identity.id)
            except (OSError, ValueError) as flaw:
                log.warning("%s is not used: %s", file, flaw)
                continue
            if offset <= self.partitions[number].next_offset:
                return offset, states
            log.warning("%s is removed: it is ahead of the journal, which lost its end", file)
            self._files.remove(file)
        pruned = self.identity.pruned.get(number, 0)
        if pruned:
            raise JournalError(
                f"{directory} was pruned up to offset {pruned} and has no sound snapshot from there on: "
                "the state cannot be told. Put a snapshot file back from a copy"
            )
        return 0, {}

    def encode_snapshot(self, number: int, states: Mapping[str, SpaceState]) -> tuple[Path, bytes]:
        """A snapshot of a partition at its end, and where it goes: when all its records are written."""
        end = self.partitions[number].end_offset
        count = len(self.partitions)
        body = msgspec.json.encode(
            _SnapshotFile(
                self.identity.id,
                end,
                [
                    msgspec.Raw(snapshot.dump(state))
                    for space, state in states.items()
                    if partition_of(space, count) == number
                ],
            )
        )
        file = self.root / f"p{number}" / f"snapshot-{end:020d}.json"
        return file, b"%08x\n%b" % (zlib.crc32(body), body)

    def write_snapshot(self, file: Path, data: bytes) -> None:
        """May run in a thread. Older snapshots than the last few are removed."""
        self._files.replace(file, data)
        older = sorted(each for each in file.parent.iterdir() if _SNAPSHOT.match(each.name))
        for each in older[:-KEPT_SNAPSHOTS]:
            self._files.remove(each)

    # -- sealing and retention --------------------------------------------------------------------

    def prune(self, plan: PrunePlan) -> None:
        """Remove what a plan says. What frames that stay refer to is written down first, then the decision, and then
        the first file goes."""
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
        """The reader sets that were in force where a partition begins."""
        begins_at = self.identity.pruned.get(number, 0)
        file = self.root / f"p{number}" / SetsInForce.file_name(begins_at)
        try:
            return SetsInForce.parse(file.read_bytes())
        except FileNotFoundError:
            pass  # nothing was pruned, or by an older version, whose frames refer to nothing
        except ValueError as flaw:
            log.error("%s cannot be used: %s. The readers of some frames are not known any more", file, flaw)
        return SetsInForce(self.identity.id, begins_at)

    def _sets_in_force(self, number: int, offset: int) -> SetsInForce:
        """At an offset that is about to become the beginning."""
        sets = self.carried_sets(number)
        try:
            for batch in self.reader.batches(number, sets.offset, offset):
                for entry in changes_in(batch.rows):
                    if sets.offset <= entry.offset < offset:
                        sets.apply(entry)
        except CorruptJournal as flaw:
            # It goes all the same: to keep what cannot be read helps nobody.
            log.error("%s: the readers of frames after offset %d may not be known any more", flaw, offset)
        sets.offset = offset
        return sets

    def _remove_other_sets(self, number: int) -> None:
        """Those of an earlier beginning, and of a pruning that did not come to its end."""
        kept = SetsInForce.file_name(self.identity.pruned.get(number, 0))
        for file in sets_files(self.root / f"p{number}"):
            if file.name != kept:
                self._files.remove(file)

    def snapshot_offsets(self, *, synced: bool = False) -> dict[int, int]:
        """For each partition the offset of its newest sound snapshot: a start needs what comes after it.
        ``synced``: of one whose records are known to be on the disk, so that it cannot turn out to be
        ahead of them after a loss of power."""
        offsets = {}
        for number in range(len(self.partitions)):
            offsets[number] = 0
            for file in reversed(snapshot_files(self.root / f"p{number}")):
                with contextlib.suppress(OSError, ValueError):
                    offset, _ = read_snapshot(file, self.identity.id)
                    partition = self.partitions[number]
                    if offset <= (partition.synced_offset if synced else partition.next_offset):
                        offsets[number] = offset
                        break
        return offsets

    def segments_to_seal(self) -> list[tuple[Partition, SegmentName]]:
        """Full segments that wait to be rewritten."""
        waiting = [(partition, name) for partition in self.partitions for name in partition.closed]
        for partition in self.partitions:
            partition.closed = []
        return waiting


def read_snapshot(file: Path, journal: str) -> tuple[int, dict[str, SpaceState]]:
    """The states of a partition's spaces, and the offset at which they held. Raises
    :class:`ValueError` where the file is no sound snapshot of the journal with this identity."""
    checksum, _, body = file.read_bytes().partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(body):
        raise ValueError("its checksum is wrong")
    try:
        content = msgspec.json.decode(body, type=_SnapshotFile)
    except msgspec.MsgspecError as flaw:
        raise ValueError(str(flaw)) from None
    if content.journal != journal:
        raise ValueError("it is of another journal")
    states = [snapshot.load(bytes(raw)) for raw in content.states]
    return content.offset, {state.id: state for state in states}


def _lock(data: Path) -> int:
    """One gateway at a time on a data directory: a second would number the same log again."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        handle = os.open(data / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise JournalError(f"cannot use {data} as the data directory: {error.strerror or error}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(handle, 32).decode("ascii", "replace").strip()
        os.close(handle)
        by = f" (process {holder})" if holder else ""
        raise JournalInUse(
            f"{data} is in use by another gateway{by}: stop that one or give this one another --data"
        ) from None
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(handle)
        raise JournalError(f"cannot write in {data}: {error.strerror or error}") from None
    return handle
