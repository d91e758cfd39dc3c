"""Copies of a journal that is being written: whole, sound, and good to begin with."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from making import JournaledGateway, journaled, lively, make_journal, open_journal, write_with_snapshots

from mewstream.cli.backup import backup, restore
from mewstream.journal import backup as backups
from mewstream.journal.backup import copy_data
from mewstream.journal.errors import CorruptJournal, JournalError
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader
from mewstream.journal.retention import PrunePlan, commit_consumer
from mewstream.journal.verify import Verification
from mewstream.protocol import snapshot
from mewstream.protocol.fold import fold
from mewstream.protocol.records import Record
from support import space_config

PEOPLE = ("ann", "bob", "cy")
SPACES = ("north", "south", "east", "west")


def problems(data: Path) -> list[str]:
    return [str(each) for each in Verification(data / "journal").run() if not each.is_note]


def everything(data: Path) -> dict[str, list[Record]]:
    """The records of a journal, by space."""
    reader = JournalReader(data / "journal")
    found: dict[str, list[Record]] = {}
    for number in range(reader.identity().partitions):
        for entry in reader.entries(number, reader.identity().pruned.get(number, 0)):
            found.setdefault(entry.space, []).append(entry.record)
    return found


def recovered(data: Path) -> dict[str, bytes]:
    """The states with which a gateway would begin. This begins a run of the journal."""
    journal = LocalJournal(data)
    try:
        return {id: snapshot.dump(state) for id, state in journal.recover().items()}
    finally:
        journal.release()


def folded(data: Path) -> dict[str, bytes]:
    return {space: snapshot.dump(fold(space, found)) for space, found in everything(data).items()}


class TestUnderLoad:
    async def test_each_is_a_beginning_of_the_log(self, tmp_path: Path) -> None:
        """Taken by the command while segments are filled, sealed and followed by others, and snapshots are written."""
        configs = [space_config(*PEOPLE, space=space) for space in SPACES]
        config = {"spaces": configs}
        settings = {"segment_bytes": 60_000, "snapshot_every": 500, "flush_interval": 0.001}
        async with journaled(tmp_path, config, **settings) as gateway:
            stop = asyncio.Event()
            writers = [asyncio.create_task(busy(gateway, space, stop)) for space in SPACES]
            copies: list[Path] = []
            for number in range(4):
                copies.append(tmp_path / "backups" / str(number))
                await asyncio.sleep(0.3)
                command = (sys.executable, "-m", "mewstream", "backup", "--data", gateway.data, "--to", copies[-1])
                process = await asyncio.create_subprocess_exec(*map(str, command), stdout=asyncio.subprocess.PIPE)
                out, _ = await process.communicate()
                assert process.returncode == 0
                assert b" records in " in out
            stop.set()
            await asyncio.gather(*writers)
            await gateway.end("term")
            whole = everything(gateway.data)
            assert len(list((gateway.data / "journal").glob("p*/*.arrow"))) > 10
            before: dict[str, int] = dict.fromkeys(SPACES, 0)
            for copy in copies:
                assert problems(copy) == []
                data = tmp_path / "restored"
                result = CliRunner().invoke(restore, ["--from", str(copy), "--data", str(data)])
                assert result.exit_code == 0, result.output
                found = everything(data)
                for space in SPACES:
                    assert found[space] == whole[space][: len(found[space])]
                    assert len(found[space]) > before[space], "the later copy has more"
                    before[space] = len(found[space])
                expected = folded(data)
                assert recovered(data) == expected, "as of its last record"
                shutil.rmtree(data)

    async def test_a_gateway_goes_on_with_it(self, tmp_path: Path) -> None:
        """With the streams, and the tokens of invited participants."""
        async with journaled(tmp_path / "one", space_config(*PEOPLE)) as gateway:
            ann = await gateway.join("ann")
            stream = await ann.open_stream()
            id = await ann.send("space/invite", {"participant_id": "guest", "capabilities": [{"kind": "chat"}]})
            token = (await ann.receive("space/invite-ack", of=id))["payload"]["token"]
            await asyncio.to_thread(copy_data, gateway.data, tmp_path / "copy")
            later = await ann.open_stream()
        async with journaled(tmp_path / "two", space_config(*PEOPLE), data=tmp_path / "copy") as gateway:
            ann = await gateway.join("ann")
            assert [each["stream_id"] for each in ann.welcome["payload"]["active_streams"]] == [stream]
            assert await ann.open_stream() == later, "the number was not used in this history"
            guest = await gateway.join("guest", token=token)
            assert guest.welcome["payload"]["you"]["id"] == "guest"


async def busy(gateway: JournaledGateway, space: str, stop: asyncio.Event) -> None:
    """Frames, chats, streams that come and go."""
    ann = await gateway.join("ann", space=space)
    for number in itertools.count():
        stream = await ann.open_stream()
        for _ in range(50):
            await ann.frame(stream, f"{number}" * 100)
        await ann.send("chat", {"text": f"that was {stream}"})
        await ann.send("stream/close", {"stream_id": stream})
        await ann.settle()
        if stop.is_set():
            break


def prune_oldest(data: Path) -> None:
    """As ``journal prune`` does, before the last snapshot."""
    journal = open_journal(data)
    gone = journal.reader.segments(0)[:3]
    journal.prune(PrunePlan(segments=gone, begins_at={0: gone[-1].next_offset}))
    journal.close()


class TestChanges:
    def test_a_pruning_begins_it_anew(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        data = tmp_path / "data"
        write_with_snapshots(data, lively(600), 500, segment_bytes=4_000)
        monkeypatch.setattr(backups, "_PAUSE_SECONDS", 0.0)
        done = False

        def advance(size: int) -> None:
            nonlocal done
            if not done:
                done = True
                prune_oldest(data)

        everything_before = sum(map(len, everything(data).values()))
        copied = copy_data(data, tmp_path / "copy", advance=advance)
        assert copied.records < everything_before
        assert problems(tmp_path / "copy") == problems(data)
        assert everything(tmp_path / "copy") == everything(data)
        assert copied.records == sum(map(len, everything(data).values()))
        assert recovered(tmp_path / "copy") == recovered(data)

    def test_one_that_changes_each_time_is_given_up(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        data = tmp_path / "data"
        make_journal(data, lively(20).records)
        monkeypatch.setattr(backups, "_PAUSE_SECONDS", 0.0)

        def another_run(size: int) -> None:
            open_journal(data).close()

        with pytest.raises(JournalError, match="each time that it was copied"):
            copy_data(data, tmp_path / "copy", advance=another_run)
        assert list(tmp_path.iterdir()) == [data]

    def test_consumers_and_an_end_that_is_not_committed(self, tmp_path: Path) -> None:
        data = tmp_path / "data"
        make_journal(data, lively(50).records)
        commit_consumer(data / "journal", "tables", {0: 7})
        for file in (data / "journal").glob("p*/*.arrow"):
            with file.open("ab") as torn:
                torn.write(b"\0" * 1000)
        copy_data(data, tmp_path / "copy")
        assert problems(tmp_path / "copy") == []
        assert (tmp_path / "copy/journal/consumers/tables.json").read_bytes() == (
            data / "journal/consumers/tables.json"
        ).read_bytes()
        assert everything(tmp_path / "copy") == everything(data)


class TestRefusals:
    def test_no_journal(self, tmp_path: Path) -> None:
        with pytest.raises(JournalError, match="there is no journal in"):
            copy_data(tmp_path, tmp_path / "copy")

    def test_a_place_that_is_taken(self, tmp_path: Path) -> None:
        data, taken = tmp_path / "data", tmp_path / "taken"
        make_journal(data, lively(20).records)
        taken.mkdir()
        (taken / "file").touch()
        for to in (data, taken, taken / "file"):
            with pytest.raises(JournalError, match="is there already"):
                copy_data(data, to)
        (taken / "file").unlink()
        copy_data(data, taken)
        assert problems(taken) == []

    def test_a_damaged_journal_is_not_copied_as_if_it_were_sound(self, tmp_path: Path) -> None:
        data = tmp_path / "data"
        make_journal(data, lively(400).records, segment_bytes=4_000)
        first = min((data / "journal").glob("p*/*.index"))
        content = bytearray(first.read_bytes())
        content[10] ^= 0xFF
        first.write_bytes(content)
        with pytest.raises(CorruptJournal):
            copy_data(data, tmp_path / "copy")
        assert list(tmp_path.iterdir()) == [data]

    def test_a_damaged_backup_is_not_restored(self, tmp_path: Path) -> None:
        data = tmp_path / "data"
        make_journal(data, lively(100).records)
        made = CliRunner().invoke(backup, ["--data", str(data), "--to", str(tmp_path / "copy")])
        assert made.exit_code == 0, made.output
        file = max((tmp_path / "copy/journal").glob("p*/*.arrow"), key=lambda each: each.stat().st_size)
        content = bytearray(file.read_bytes())
        content[-20] ^= 0xFF
        file.write_bytes(content)
        result = CliRunner().invoke(restore, ["--from", str(tmp_path / "copy"), "--data", str(tmp_path / "new")])
        assert result.exit_code == 1
        assert "was not restored" in result.stderr
        assert not (tmp_path / "new").exists()

    def test_a_full_disk_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        data = tmp_path / "data"
        make_journal(data, lively(100).records)

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(backups.os, "fsync", full)
        with pytest.raises(JournalError, match="No space left on device"):
            copy_data(data, tmp_path / "copy")
        assert list(tmp_path.iterdir()) == [data]
