"""Journals for tests: records that follow from commands, files that fail, crash or forget."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import random
import re
import shutil
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from mewstream.journal.files import Files
from mewstream.journal.interface import Entry
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader
from mewstream.journal.rows import Rows
from mewstream.journal.segments import parse_index
from mewstream.protocol import commands
from mewstream.protocol.decide import decide
from mewstream.protocol.delegation import Delegation
from mewstream.protocol.envelope import parse_envelope
from mewstream.protocol.fold import apply, fold
from mewstream.protocol.interest import Interest
from mewstream.protocol.records import (
    AdmissionEnded,
    Admitted,
    Banned,
    CapabilitiesGranted,
    CapabilitiesRevoked,
    ClockJumped,
    EnvelopeAccepted,
    Frame,
    FramesDropped,
    Invited,
    Joined,
    Left,
    OwnershipTransferred,
    Paused,
    ReadGranted,
    ReadRevoked,
    Record,
    Refused,
    ShutDown,
    SpaceStarted,
    StreamEnded,
    StreamOpened,
    StreamPolicy,
    StreamReused,
    StreamStarted,
    Subscribed,
    Suspended,
    Unbanned,
    Uninvited,
    Unpaused,
    Unsubscribed,
    WriteDenied,
    WriteGranted,
    WriteRequested,
    WriteRevoked,
)
from mewstream.protocol.state import SpaceState
from support import Client, GatewayProcess

SPACE = "demo"
START = 1_700_000_000_000_000
PEOPLE = ("ann", "bob", "cy", "dee")
Written = tuple[str, Record]


# -- records --------------------------------------------------------------------------------------


def encode(entries: Iterable[tuple[str, str, Record]], first_offset: int) -> pa.RecordBatch:
    rows = Rows()
    for entry in entries:
        rows.append(*entry)
    return rows.encode(first_offset)


def every_record() -> list[Record]:
    """One of each type and then some, with every field set and with every field left out."""
    policy = StreamPolicy("transfer", 1.5, "latest", "enforce")
    pattern = [{"kind": "stream/*", "payload": {"a": ["é", 1, None, 1.5]}}]
    made: list[tuple[type[Record], dict[str, Any]]] = [
        (SpaceStarted, {"epoch": "e-1", "config": {"participants": {"ann": {"capabilities": pattern}}}}),
        (ClockJumped, {"by": -3_600_000_000, "ahead": 3_600_000_000}),
        (ClockJumped, {"by": 5_000_000, "shift": 2_000_000}),
        (Joined, {"participant": "ann", "capabilities": pattern, "transport": "websocket"}),
        (Joined, {"participant": "änn", "capabilities": [], "transport": "log", "resumed": True, "continues": True}),
        (Joined, {"participant": "ann", "capabilities": [], "transport": "websocket", "replaced": True}),
        (Suspended, {"participant": "ann", "until": START + 1, "reason": "restart"}),
        (Left, {"participant": "ann", "reason": "disconnected"}),
        (EnvelopeAccepted, {"sender": "a", "kind": "chat", "id": "x", "digest": 2**32 - 1, "data": b'{"\xc3\xa9":1}'}),
        (EnvelopeAccepted, {"sender": "a", "kind": "k", "id": "", "digest": 0, "data": b"", "stream_id": "stream-1"}),
        (Refused, {"sender": "a", "kind": "", "code": "c", "message": "m", "http_status": 403}),
        (
            Refused,
            {
                "sender": "a",
                "kind": "chat",
                "code": "c",
                "message": "m\n\0",
                "http_status": 503,
                "details": {"your": pattern},
                "id": "i",
                "remember": False,
                "digest": 7,
                "stream_id": "stream-2",
                "excerpt": "\ufffd#",
                "count": 12,
                "told": 3,
            },
        ),
        (CapabilitiesGranted, {"grant_id": "g", "participant": "b", "capabilities": pattern, "by": "ann"}),
        (CapabilitiesRevoked, {"participant": "b", "remaining": {"g": [], "h": pattern}, "by": "ann"}),
        (Invited, {"participant": "b", "capabilities": pattern, "by": "ann", "request_id": "r"}),
        (Uninvited, {"participant": "b", "by": "ann", "reason": "withdrawn"}),
        (Banned, {"participant": "b", "until": START, "by": "ann", "reason": "r"}),
        (Unbanned, {"participant": "b", "by": "ann"}),
        (Admitted, {"participant": "b", "capabilities": pattern, "until": START, "issuer": "https://issuer"}),
        (AdmissionEnded, {"participant": "b", "reason": "expired"}),
        (Paused, {"participant": "b", "until": None, "by": "ann"}),
        (Paused, {"participant": "b", "until": START, "by": "ann", "request_id": "r"}),
        (Unpaused, {"participant": "b", "by": "ann"}),
        (Unpaused, {"participant": "b", "by": "system:gateway", "request_id": "r"}),
        (ShutDown, {"participant": "b", "by": "ann"}),
        (
            Subscribed,
            {"participant": "b", "interest": Interest({"a": 0.0}, {}, {"*/b": 0.0}), "streams": [], "total": 0},
        ),
        (
            Unsubscribed,
            {
                "participant": "b",
                "interest": Interest({}, {"f": 0.0}),
                "streams": ["stream-1"],
                "total": 1,
                "digest": 7,
                "request_id": "r",
            },
        ),
        (
            StreamOpened,
            {
                "stream_id": "stream-1",
                "status": "live",
                "owner": "ann",
                "request_id": "r",
                "request": {},
                "policy": policy,
                "authorized_writers": ["ann"],
            },
        ),
        (
            StreamOpened,
            {
                "stream_id": "stream-2",
                "status": "ready",
                "owner": "ann",
                "request_id": "r",
                "request": {"x": []},
                "policy": policy,
                "authorized_writers": ["ann", "b"],
                "authorized_readers": [],
                "alias": "é",
                "alias_taken_by": "stream-1",
                "auto_grant": ["b"],
                "formats": [{"id": "f"}],
                "start_by": START,
                "owner_connected": False,
            },
        ),
        (
            StreamReused,
            {
                "stream_id": "stream-1",
                "owner": "ann",
                "kind": "stream/request",
                "request_id": "r",
                "digest": -1,
                "described": {"stream_id": "stream-1", "reused": True},
            },
        ),
        (StreamStarted, {"stream_id": "stream-2", "by": "ann"}),
        (StreamEnded, {"stream_id": "stream-2", "how": "completed", "by": "ann"}),
        (
            StreamEnded,
            {"stream_id": "s", "how": "failed", "by": "system:gateway", "code": "c", "message": "m", "reason": "r"},
        ),
        (WriteGranted, {"stream_id": "s", "participant": "b", "authorized_writers": ["ann", "b"], "by": "ann"}),
        (
            WriteGranted,
            {
                "stream_id": "s",
                "participant": "b",
                "authorized_writers": [],
                "by": "ann",
                "reason": "r",
                "conditions": {"max_frames": 3},
                "expires_at": START,
                "max_frames": 3,
                "request_id": "q",
                "pending": True,
            },
        ),
        (
            WriteGranted,
            {
                "stream_id": "s",
                "participant": "b",
                "authorized_writers": ["ann", "b"],
                "by": "c",
                "replaces": "d",
                "parent": "c",
                "delegate": Delegation(2, 3),
            },
        ),
        (WriteRevoked, {"stream_id": "s", "participant": "b", "authorized_writers": [], "by": "a", "reason": "r"}),
        (WriteRevoked, {"stream_id": "s", "participant": "b", "authorized_writers": [], "by": "a", "replaced_by": "c"}),
        (WriteRequested, {"stream_id": "s", "participant": "b"}),
        (WriteRequested, {"stream_id": "s", "participant": "b", "reason": "r"}),
        (WriteDenied, {"stream_id": "s", "participant": "b", "by": "a", "reason": "r", "request_id": "q"}),
        (
            OwnershipTransferred,
            {"stream_id": "s", "previous_owner": "a", "new_owner": "b", "authorized_writers": ["b"], "by": "a"},
        ),
        (ReadGranted, {"stream_id": "s", "participant": "b", "authorized_readers": None, "by": "a"}),
        (ReadGranted, {"stream_id": "s", "participant": "b", "authorized_readers": ["b"], "by": "a", "reason": "r"}),
        (ReadRevoked, {"stream_id": "s", "participant": "b", "authorized_readers": [], "by": "a", "request_id": "q"}),
        (
            Frame,
            {"stream_id": "s", "sender": "a", "stream_seq": 1, "opcode": 2, "recipients": 0, "data": bytes(range(256))},
        ),
        (
            Frame,
            {
                "stream_id": "s",
                "sender": "a",
                "stream_seq": 2,
                "opcode": 1,
                "recipients": 3,
                "data": b"",
                "kind": "stream/data",
                "readers": (),
                "id": "i",
                "digest": 2**32 - 1,
                "sequence": 2**63 - 1,
                "gap": 5,
                "format_id": "f",
            },
        ),
        (
            Frame,
            {
                "stream_id": "s",
                "sender": "a",
                "stream_seq": 3,
                "opcode": 1,
                "recipients": 1,
                "data": b"x",
                "readers": ("a", "b"),
            },
        ),
        (
            FramesDropped,
            {"participant": "b", "stream_id": "s", "count": 9, "first_seq": 1, "last_seq": 20, "policy": "latest"},
        ),
    ]
    return [
        # No record causes a frame.
        kind(place, START + place, place - 1 if place % 3 == 0 and kind is not Frame else None, **fields)
        for place, (kind, fields) in enumerate(made, 1)
    ]


class Script:
    """A space without a gateway: commands become records, which are folded as a gateway would."""

    def __init__(self, space: str = SPACE, *, seed: int = 0, pauses: bool = True) -> None:
        self.state = SpaceState(space)
        self.pauses = pauses
        self.records: list[Record] = []
        self.now = START
        self.random = random.Random(seed)
        self.people = PEOPLE
        self._ids = 0
        config = {"participants": {each: {"capabilities": [{"kind": "*"}]} for each in self.people}}
        self.do(commands.Start("e-1", config))

    def do(self, command: commands.Command) -> list[Record]:
        self.now += 1000
        made = decide(self.state, self.now, command).records
        for record in made:
            apply(self.state, record)
        self.records += made
        return made

    def send(self, sender: str, kind: str, **payload: Any) -> list[Record]:
        self._ids += 1
        to = payload.pop("to", None)
        envelope: dict[str, Any] = {"id": f"{sender}-{self._ids}", "kind": kind, "payload": payload}
        if to is not None:
            envelope["to"] = to
        return self.do(commands.Send(sender, parse_envelope(json.dumps(envelope).encode(), max_id_bytes=128)))

    def frame(self, sender: str, stream: str, data: bytes) -> list[Record]:
        return self.do(commands.SendFrame(sender, stream, data, 2))

    def begin(self) -> Script:
        """Everyone is here, and two streams live."""
        for each in self.people:
            self.do(commands.Join(each, "websocket"))
        self.send("ann", "stream/request", direction="upload", desired_id="main")
        self.send("bob", "stream/announce", formats=[])
        self.send("ann", "stream/grant-write", stream_id="stream-1", participant_id="bob")
        return self

    def step(self) -> list[Record]:
        """Something happens, whatever it is."""
        who, other = self.random.choice(self.people), self.random.choice(self.people)
        stream = self.random.choice([*self.state.streams, "stream-1"])
        about = {"stream_id": stream}
        match self.random.randrange(16):
            case 0:
                return self.send(who, "stream/grant-write", **about, participant_id=other)
            case 1:
                return self.send(who, "stream/revoke-write", **about, participant_id=other)
            case 2:
                return self.send(who, "stream/transfer-ownership", **about, new_owner=other, retain_write=True)
            case 3:
                target = [who, other] if self.random.random() < 0.5 else None
                return self.send(who, "stream/request", **({"target": sorted({*target})} if target else {}))
            case 4:
                return self.send(who, "stream/revoke-read", **about, participant_id=other)
            case 5:
                return self.send(who, "stream/grant-read", **about, participant_id=other)
            case 6 if len(self.state.streams) > 3:
                return self.send(who, "stream/close", **about)
            case 7:
                return self.do(commands.Join(who, "websocket"))
            case 8:
                return self.send(who, "chat", text="x" * self.random.randrange(200))
            case 9:
                conditions = {"max_frames": self.random.randrange(1, 5)}
                return self.send(who, "stream/grant-write", **about, participant_id=other, conditions=conditions)
            case 10 if self.pauses:
                return self.send(who, "participant/pause", to=[other])
            case 11:
                return self.send(who, "participant/resume", to=[other])
            case 12:
                return self.send(who, "capability/grant", recipient=other, capabilities=[{"kind": f"chat/{self._ids}"}])
            case 13:
                return self.do(commands.Suspend(who, "restart"))
            case _:
                return self.frame(who, stream, self.random.randbytes(self.random.randrange(100)))


def lively(count: int, *, space: str = SPACE, seed: int = 0, pauses: bool = True) -> Script:
    """A space in which at least so many records were written."""
    script = Script(space, seed=seed, pauses=pauses).begin()
    while len(script.records) < count:
        script.step()
    return script


# -- journals -------------------------------------------------------------------------------------


def open_journal(data: Path, **options: Any) -> LocalJournal:
    return LocalJournal(data, **{"partitions": 1, **options})


def write(journal: LocalJournal, written: Iterable[Written], *, per_batch: int = 5) -> list[Written]:
    """Append, one batch for every so many records."""
    done = []
    for place, (space, record) in enumerate(written, 1):
        journal.append(space, record)
        if place % per_batch == 0:
            journal.partition(space).flush()
        done.append((space, record))
    for partition in journal.partitions:
        partition.flush()
    return done


def write_with_snapshots(data: Path, script: Script, *at: int, **options: object) -> None:
    """A journal of what a script has recorded, with snapshots after so many records, and its full segments sealed."""
    journal = open_journal(data, files=QuickFiles(), **options)
    place = 0
    for end in (*at, len(script.records)):
        write(journal, [(SPACE, record) for record in script.records[place:end]])
        if end in at:
            state = fold(SPACE, script.records[:end])
            journal.write_snapshot(*journal.encode_snapshot(0, {SPACE: state}))
        place = end
    for partition, name in journal.segments_to_seal():
        partition.seal(name)
    journal.close()


def abandon(journal: LocalJournal) -> None:
    """As a killed process leaves it: nothing more is written, the descriptors are gone."""
    for partition in journal.partitions:
        for handle in (partition._data, partition._index):
            with contextlib.suppress(OSError):
                os.close(handle)
    os.close(journal._lock)


def make_journal(
    data: Path,
    records: Iterable[Record],
    *,
    space: str = SPACE,
    per_batch: int = 5,
    **options: Any,
) -> list[Record]:
    """A closed journal that holds these records of one space."""
    journal = open_journal(data, **options)
    written = write(journal, [(space, record) for record in records], per_batch=per_batch)
    journal.close()
    return [record for _, record in written]


def entries(data: Path, partition: int = 0) -> list[Entry]:
    """Everything that a reader finds."""
    return list(JournalReader(data / "journal").entries(partition))


def records(data: Path, partition: int = 0) -> list[Record]:
    return [entry.record for entry in entries(data, partition)]


def copy(data: Path, to: Path) -> Path:
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(data, to)
    return to


def segment_files(data: Path, partition: int = 0, suffix: str = "index") -> list[Path]:
    return sorted((data / "journal" / f"p{partition}").glob(f"*.{suffix}"))


# -- files that fail ------------------------------------------------------------------------------


class Crash(BaseException):
    """The process is gone here."""


class CountedFiles(Files):
    """Calls ``at`` before each operation that changes something. ``at`` may raise; where it returns
    True, a write is torn in the middle and then the process crashes."""

    def __init__(self, at: Callable[[str, Path | int], bool | None]) -> None:
        self._at = at
        self.handles: set[int] = set()

    def open(self, path: Path) -> int:
        self._at("open", path)
        handle = super().open(path)
        self.handles.add(handle)
        return handle

    def close(self, handle: int) -> None:
        self.handles.discard(handle)
        super().close(handle)

    def write_at(self, handle: int, data: bytes, position: int) -> None:
        if self._at("write", handle):
            super().write_at(handle, data[: len(data) // 2], position)
            raise Crash
        super().write_at(handle, data, position)

    def truncate(self, handle: int, size: int) -> None:
        self._at("truncate", handle)
        super().truncate(handle, size)

    def sync(self, handle: int) -> None:
        self._at("sync", handle)
        super().sync(handle)

    def sync_directory(self, path: Path) -> None:
        self._at("sync_directory", path)
        super().sync_directory(path)

    def replace(self, path: Path, data: bytes) -> None:
        self._at("replace", path)
        super().replace(path, data)
        self._at("replaced", path)

    def remove(self, path: Path) -> None:
        self._at("remove", path)
        super().remove(path)


class CrashingFiles(CountedFiles):
    """Crashes at the n-th operation; ``torn`` where that is a write: half of it is written."""

    def __init__(self, at: int, *, torn: bool = False) -> None:
        self.count = 0
        self._crash_at = at
        self._torn = torn
        super().__init__(self._operation)

    def _operation(self, what: str, where: Path | int) -> bool | None:
        self.count += 1
        if self.count == self._crash_at:
            if self._torn and what == "write":
                return True
            raise Crash
        return None


class FailingFiles(CountedFiles):
    """Raises ``error`` for operations from the n-th on, for a while; then all is well again."""

    def __init__(self, at: int, times: int = 1, error: int = errno.ENOSPC) -> None:
        self.count = 0
        self._fail_at = at
        self._times = times
        self._error = error
        super().__init__(self._operation)

    def _operation(self, what: str, where: Path | int) -> None:
        self.count += 1
        if self._fail_at <= self.count < self._fail_at + self._times:
            raise OSError(self._error, os.strerror(self._error))


class ForgetfulFiles(Files):
    """A disk whose power can fail: it knows what was synced, and goes back to that.

    A file's content is safe after ``sync``; its name after ``sync_directory``. ``crash`` restores both.
    With ``survives``, each write since then that it is true of has reached the disk all the same.
    """

    def __init__(self) -> None:
        self._paths: dict[int, Path] = {}
        self._safe: dict[Path, bytes] = {}
        self._writes: dict[Path, list[tuple[str, int, bytes]]] = {}
        self._names: dict[Path, set[str]] = {}
        self.fail_sync: Callable[[Path], int | None] = lambda path: None
        """The error number of a sync that fails. What it should have made safe is then lost, and the
        next sync says nothing of it: as Linux has it."""
        self.syncs = 0
        self._lock = threading.Lock()
        self.before_sync: Callable[[Path], None] = lambda path: None

    def open(self, path: Path) -> int:
        handle = super().open(path)
        self._paths[handle] = path
        self._safe.setdefault(path, b"")
        self._writes.setdefault(path, [])
        return handle

    def close(self, handle: int) -> None:
        self._paths.pop(handle, None)
        super().close(handle)

    def write_at(self, handle: int, data: bytes, position: int) -> None:
        super().write_at(handle, data, position)
        with self._lock:
            if handle in self._paths:
                self._writes[self._paths[handle]].append(("write", position, bytes(data)))

    def truncate(self, handle: int, size: int) -> None:
        super().truncate(handle, size)
        with self._lock:
            if handle in self._paths:
                self._writes[self._paths[handle]].append(("truncate", size, b""))

    def sync(self, handle: int) -> None:
        path = self._paths.get(handle)
        if path is None:
            super().sync(handle)
            return
        self.before_sync(path)
        with self._lock:
            known, self._writes[path] = self._writes[path], []
            error = self.fail_sync(path)
            self.syncs += 1
            if error is not None:
                # The pages are marked clean and their content never reaches the disk.
                raise OSError(error, os.strerror(error))
            self._safe[path] = _replay(self._safe[path], known)

    def durable_end(self) -> int:
        """The offset up to which a partition would survive now, where there is one partition only."""
        end = 0
        with self._lock:
            for path, content in self._safe.items():
                if path.suffix != ".index" or path.name.endswith(".sealed.index"):
                    continue
                data = self._safe.get(path.with_suffix(".arrow"), b"")
                for entry in parse_index(content)[0]:
                    if zlib.crc32(data[entry.position : entry.position + entry.length]) != entry.checksum:
                        break
                    end = max(end, entry.last_offset + 1)
        return end

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self._names[path] = {each.name for each in path.iterdir()}

    def replace(self, path: Path, data: bytes) -> None:
        super().replace(path, data)
        with self._lock:
            self._safe[path] = data
            self._writes[path] = []

    def remove(self, path: Path) -> None:
        super().remove(path)
        # The name is gone for good only after a sync of the directory; it may come back until then.

    def crash(self, survives: Callable[[], bool] | None = None) -> None:
        """The power fails. Call it when nobody writes any more."""
        for path, safe in self._safe.items():
            if path.name not in self._names.get(path.parent, set()):
                # Its name was never safe.
                if survives is None or not survives():
                    path.unlink(missing_ok=True)
                    continue
            elif not path.exists() and (survives is None or not survives()):
                path.touch(0o600)  # removed, and the directory not synced since
            if not path.exists():
                continue
            content = safe
            for write in self._writes.get(path, []):
                if survives is not None and survives():
                    content = _replay(content, [write])
            path.write_bytes(content)


def _replay(content: bytes, writes: Iterable[tuple[str, int, bytes]]) -> bytes:
    changed = bytearray(content)
    for what, position, data in writes:
        if what == "truncate":
            del changed[position:]
            changed.extend(bytes(position - len(changed)))
        else:
            changed.extend(bytes(max(0, position - len(changed))))
            changed[position : position + len(data)] = data
    return bytes(changed)


class QuickFiles(Files):
    """Syncs nothing: for the many tests that only care about what the operating system has."""

    def sync(self, handle: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


# -- a gateway with a journal ---------------------------------------------------------------------


class JournaledGateway(GatewayProcess):
    """A gateway that is ended and started again; it knows its clients, so that none is left behind."""

    def __init__(self, *arguments: Any, data: Path, **options: Any) -> None:
        super().__init__(*arguments, options=("--data", str(data)), **options)
        self.data = data
        self.clients: list[Client] = []

    async def join(self, participant: str, **fields: Any) -> Client:
        client = await super().join(participant, **fields)
        self.clients.append(client)
        return client

    async def stranger(self) -> Client:
        """A connection that has not joined."""
        self.clients.append(await Client.connect(f"{self.ws_url}/ws"))
        return self.clients[-1]

    async def end(self, how: str) -> None:
        """``kill``: as kill -9 does. ``term``: as an operator does; then the log must be clean."""
        # Not in this thread: clients answer a close, and the gateway waits for that.
        await asyncio.to_thread(self.stop if how == "term" else self._kill)
        await self._drop_clients()

    async def restart(self, how: str, *, after: float = 0.0) -> None:
        await self.end(how)
        await asyncio.sleep(after)
        self.start()

    def _kill(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=30)
        self.process.stdout.close()

    async def _drop_clients(self) -> None:
        clients, self.clients = self.clients, []
        for client in clients:
            client.connection.transport.abort()
            await client.connection.wait_closed()


@contextlib.asynccontextmanager
async def journaled(
    directory: Path, config: dict[str, Any], *, data: Path | None = None, start: bool = True, **journal: Any
) -> AsyncIterator[JournaledGateway]:
    """A gateway whose journal is in ``directory/data``. Whatever happens, no process is left, and the log
    holds no traceback."""
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    settings = {**config.get("gateway", {}), "journal": journal, "drain_seconds": 0}
    gateway = JournaledGateway(directory, {**config, "gateway": settings}, data=data or directory / "data")
    try:
        yield gateway.start() if start else gateway
    finally:
        await gateway._drop_clients()
        if gateway.process is not None and gateway.process.poll() is None:
            gateway._kill()
        elif gateway.process is not None:
            gateway.process.stdout.close()
    assert "Traceback" not in gateway.log.read_text(), gateway.log.read_text()[-3000:]


_POSITIONED = re.compile(rb"#([^|#]+)\|(\d+)\|([^#]+)#", re.DOTALL)


class GotFrame(NamedTuple):
    seq: int
    stream_id: str
    writer: str
    data: bytes


def positioned_frame(message: Any) -> GotFrame | None:
    """A frame as those get it who asked for positions; None for everything else."""
    if isinstance(message, dict):
        return None
    raw = message.encode() if isinstance(message, str) else message
    match = _POSITIONED.match(raw)
    if match is None:
        return None
    return GotFrame(int(match[2]), match[1].decode(), match[3].decode(), raw[match.end() :])


def seq_of(message: Any) -> int | None:
    """The position of anything that came to somebody who asked for positions."""
    if isinstance(message, dict):
        return message.get("seq")
    frame = positioned_frame(message)
    return frame.seq if frame is not None else None


def is_welcome(message: Any) -> bool:
    return isinstance(message, dict) and message.get("kind") == "system/welcome"


POSITIONS = {"extensions": ["positions"]}


def position(client: Client) -> dict[str, Any]:
    """Where a client stands: the ``resume`` of its next join. A welcome that says what follows describes
    a state that the client has not reached before it has got all that."""
    at = max(place for place, message in enumerate(client.got) if is_welcome(message))
    welcome = client.got[at]["payload"]  # type: ignore[index]
    recovery = welcome.get("resume", {})
    seqs = [recovery["from_seq"] - 1 if recovery.get("recovered") else welcome["seq"]]
    seqs += [seq for message in client.got[at + 1 :] if (seq := seq_of(message)) is not None]
    return {"epoch": welcome["epoch"], "seq": max(seqs)}
