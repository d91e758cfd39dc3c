"""``mewstream replay``: real journals, played into a real gateway, whose own journal tells what came."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pexpect
import pytest

import mewstream
from mewstream.cli.playback import Player
from mewstream.cli.recording import RecordedFrame
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader
from mewstream.protocol.records import Frame, Record, StreamEnded, StreamOpened, StreamPolicy
from mewstream.protocol.times import SECOND, parse_rfc3339, rfc3339
from support import TIMEOUT, GatewayProcess, running_gateway, space_config, token_of

COMMAND = [sys.executable, "-m", "mewstream.cli.main"]
NOON = parse_rfc3339("2026-01-31T12:00:00Z") or 0
POLICY = StreamPolicy("keep", 10.0, "drop-oldest", "off")
TEXT, BINARY = 1, 2


@pytest.fixture
def live() -> Iterator[GatewayProcess]:
    with running_gateway(space_config("ann", "bob"), options=("--data", "data")) as running:
        yield running


def environment(participant: str) -> dict[str, str]:
    return {**os.environ, "MEW_TOKEN": token_of(participant), "MEW_PARTICIPANT": participant}


def replay(gateway: GatewayProcess, *options: object, participant: str = "ann") -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "replay", "--url", gateway.ws_url, *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment(participant))


def records(gateway: GatewayProcess) -> list[Record]:
    return [entry.record for entry in JournalReader(gateway.directory / "data" / "journal").read("demo")]


def frames(gateway: GatewayProcess, stream: str = "stream-1") -> list[Frame]:
    return [each for each in records(gateway) if isinstance(each, Frame) and each.stream_id == stream]


def make_journal(
    data: Path, moments: list[float], *, space: str = "past", stream: str = "stream-1", alias: str | None = None
) -> Path:
    """A stream whose frames ``f0``, ``f1``, ... came at these seconds after noon."""
    journal = LocalJournal(data)
    request = {"direction": "upload", "description": f"of {space}"}
    opened = StreamOpened(1, NOON, None, stream, "live", "rec", "r-1", request, POLICY, ["rec"], alias=alias)
    journal.append(space, opened)
    for place, moment in enumerate(moments):
        ts = NOON + int(moment * SECOND)
        journal.append(space, Frame(place + 2, ts, None, stream, "rec", place + 1, TEXT, 0, b"f%d" % place))
    journal.close()
    return data


def connect(gateway: GatewayProcess, participant: str) -> mewstream.Connecting:
    return mewstream.connect(gateway.ws_url, participant=participant, token=token_of(participant))


MIXED: list[str | bytes] = ["plain", "", b"", b"\x00\xff#|#", "é 🐈\n#|", '{"x": 1}', b"text in binary", "x" * 100_000]


class TestContent:
    async def test_content_order_and_opcodes_are_the_same(self, live: GatewayProcess) -> None:
        async with connect(live, "bob") as space:
            stream = await space.open_stream(
                description="moves",
                content_type="text/plain",
                metadata={"game": 7},
                fields={"color": "red"},
                validate=False,
            )
            for data in MIXED:
                await stream.send(data)
            await stream.flush()
            # It is still open, and the gateway is running.
            done = replay(live, "--data", live.directory / "data", "--stream", stream.id, "--speed", 0)
            assert done.returncode == 0, done
            assert done.stdout == "replayed 8 of 8 frames of demo/stream-1 into stream-2, 8 are recorded\n"
            assert done.stderr == ""
            before, after = frames(live), frames(live, "stream-2")
            assert [(each.opcode, each.data) for each in before] == [(each.opcode, each.data) for each in after]
            assert len(after) == len(MIXED)
            assert {each.sender for each in after} == {"ann"}
        (opened,) = [each for each in records(live) if isinstance(each, StreamOpened) and each.stream_id == "stream-2"]
        expected = {"description": "moves", "content_type": "text/plain", "metadata": {"game": 7}, "color": "red"}
        assert opened.request == {**expected, "direction": "upload", "replay_of": "demo/stream-1"}
        assert opened.owner == "ann"
        (ended,) = [each for each in records(live) if isinstance(each, StreamEnded) and each.stream_id == "stream-2"]
        assert (ended.how, ended.by) == ("closed", "ann")

    async def test_numbered_data_keep_content_and_format(self, live: GatewayProcess, tmp_path: Path) -> None:
        formats = [mewstream.Format("a", {"type": "object"}), mewstream.Format("b", {"type": "string"})]
        contents: list[tuple[str, Any]] = [("a", {"big": 12345678901234567890123, "f": 1.0}), ("b", "é"), ("a", {})]
        async with connect(live, "bob") as space:
            stream = await space.announce(name="movement", formats=formats, description="both")
            await stream.start()
            for form, content in contents:
                await stream.send(content, format=form)
            await stream.flush()
            done = replay(live, "--data", live.directory / "data", "--stream", "movement", "--speed", 0)
        assert done.returncode == 0, done
        before, after = frames(live), frames(live, "stream-2")
        assert [each.kind for each in after] == ["stream/data"] * 3
        assert [each.sequence for each in after] == [1, 2, 3]
        assert [each.format_id for each in after] == ["a", "b", "a"]
        content = [each.data[each.data.index(b'"content":') :].split(b',"format_id"')[0] for each in (*before, *after)]
        assert content[:3] == content[3:]
        (ended,) = [each for each in records(live) if isinstance(each, StreamEnded) and each.stream_id == "stream-2"]
        assert ended.how == "completed"

    def test_an_export_gives_the_same_as_its_journal(self, live: GatewayProcess, tmp_path: Path) -> None:
        journal = LocalJournal(tmp_path / "data")
        journal.append(
            "past", StreamOpened(1, NOON, None, "stream-1", "live", "rec", "r", {}, POLICY, ["rec"], alias="it")
        )
        for place, data in enumerate(MIXED):
            raw, opcode = (data.encode(), TEXT) if isinstance(data, str) else (data, BINARY)
            journal.append("past", Frame(place + 2, NOON, None, "stream-1", "rec", place + 1, opcode, 0, raw))
        envelope = (
            b'{"id":"1","kind":"stream/data","payload":{"stream_id":"stream-1","sequence":1,"content":{"y": [1.5]}}}'
        )
        last = len(MIXED) + 2
        journal.append(
            "past", Frame(last, NOON, None, "stream-1", "rec", last, TEXT, 0, envelope, "stream/data", id="1")
        )
        journal.close()
        export = tmp_path / "past.jsonl"
        command = [*COMMAND, "journal", "export", "--data", str(tmp_path / "data"), "-o", str(export)]
        subprocess.run(command, check=True, timeout=60)
        assert replay(live, "--data", tmp_path / "data", "--stream", "it", "--speed", 0).returncode == 0
        assert replay(live, "--export", export, "--stream", "it", "--speed", 0).returncode == 0
        one, two = frames(live), frames(live, "stream-2")
        assert len(one) == len(MIXED) + 1
        assert [(each.opcode, each.data) for each in one[:-1]] == [(each.opcode, each.data) for each in two[:-1]]
        for each in (one[-1], two[-1]):
            assert each.kind == "stream/data"
            assert b'"content":{"y":[1.5]}' in each.data.replace(b" ", b"")


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            if timeout is None:
                return select(None)
            found = select(0)
            if not found:
                self.now += timeout
            return found

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now


class SlowStream:
    """Notes when frames are sent, each of which takes its time."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self.seconds = seconds
        self.sent: list[float] = []
        self.begin: float | None = None

    async def send(self, data: Any, **options: Any) -> None:
        now = asyncio.get_running_loop().time()
        self.begin = now if self.begin is None else self.begin
        self.sent.append(now - self.begin)
        await asyncio.sleep(self.seconds(len(self.sent) - 1))

    async def flush(self) -> None:
        pass


class SilentSpace:
    """Nothing happens in it."""

    pending = 0

    def events(self) -> SilentSpace:
        return self

    def __enter__(self) -> SilentSpace:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class TestTiming:
    GAPS = (0.05, 0.5, 0.05, 1.0, 0.25)

    def replayed(self, live: GatewayProcess, data: Path, stream: str, speed: float) -> list[int]:
        done = replay(live, "--data", data, "--stream", "stream-1", "--speed", speed)
        assert done.returncode == 0, done
        return [each.ts for each in frames(live, stream)]

    def test_pauses_are_kept_in_proportion(self, live: GatewayProcess, tmp_path: Path) -> None:
        moments = [0.0]
        for gap in self.GAPS:
            moments.append(moments[-1] + gap)
        data = make_journal(tmp_path / "data", moments)
        slow = self.replayed(live, data, "stream-1", 1)
        fast = self.replayed(live, data, "stream-2", 4)
        gaps = [after - before for before, after in pairwise(slow)]
        # The longest pauses are the longest again, in the same order.
        assert sorted(range(5), key=lambda place: gaps[place])[-3:] == [4, 1, 3]
        assert slow[-1] - slow[0] > 1.5 * (fast[-1] - fast[0])

    def test_delays_do_not_add_up(self) -> None:
        """Frames are due a tenth of a second apart. However long each send takes, none is early, and each
        is sent when it is due, or as soon as the one before it is out."""
        recorded = [RecordedFrame(place, NOON + place * SECOND // 10, "x", False, None, 1) for place in range(600)]

        def play(stream: SlowStream, speed: float) -> None:
            player = Player(SilentSpace(), stream, speed=speed)  # type: ignore[arg-type]
            loop = VirtualLoop()
            try:
                loop.run_until_complete(player.play(iter(recorded), lambda size: None))
                loop.run_until_complete(loop.shutdown_default_executor())
            finally:
                loop.close()
            assert player.played.confirmed == 600

        # Twice as fast is every 0.05 s, and a send takes longer than that: no pause at all.
        brisk = SlowStream(lambda place: 0.07)
        play(brisk, speed=2.0)
        assert brisk.sent == pytest.approx([place * 0.07 for place in range(600)])
        held_up = SlowStream(lambda place: 1.05 if place == 10 else 0.02)
        play(held_up, speed=1.0)
        assert held_up.sent[:11] == pytest.approx([place * 0.1 for place in range(11)])
        assert held_up.sent[11] == pytest.approx(2.05)
        # It has caught up, and the end is on time.
        assert held_up.sent[100:] == pytest.approx([place * 0.1 for place in range(100, 600)])

    def test_as_fast_as_possible_waits_for_nothing(self, live: GatewayProcess, tmp_path: Path) -> None:
        data = make_journal(tmp_path / "data", [0.0, 86_400.0 * 365, 86_400.0 * 730])
        assert len(self.replayed(live, data, "stream-1", 0)) == 3


class TestRange:
    RANGES: tuple[tuple[tuple[object, ...], list[int]], ...] = (
        (("--from-seq", 5), [3, 4, 5, 6, 7, 8, 9]),
        (("--to-seq", 4), [0, 1, 2]),
        (("--from-seq", 4, "--to-seq", 5), [2, 3]),
        (("--from-time", rfc3339(NOON + 6 * SECOND)), [6, 7, 8, 9]),
        (("--until", rfc3339(NOON + 2 * SECOND)), [0, 1]),
        (("--from-time", rfc3339(NOON + 2 * SECOND), "--to-seq", 6), [2, 3, 4]),
        (("--from-seq", 100), []),
    )

    @pytest.mark.parametrize("source", ["journal", "export"])
    def test_by_seq_and_by_time(self, live: GatewayProcess, tmp_path: Path, source: str) -> None:
        data = make_journal(tmp_path / "data", [float(place) for place in range(10)])
        where: tuple[object, ...] = ("--data", data)
        if source == "export":
            command = [*COMMAND, "journal", "export", "--data", str(data), "-o", str(tmp_path / "x")]
            subprocess.run(command, check=True, timeout=60)
            where = ("--export", tmp_path / "x")
        for number, (options, expected) in enumerate(self.RANGES, 1):
            done = replay(live, *where, "--stream", "stream-1", "--speed", 0, *options)
            assert done.returncode == 0, done
            came = [each.data for each in frames(live, f"stream-{number}")]
            assert came == [b"f%d" % place for place in expected], options
            assert f"replayed {len(expected)} of {len(expected)} frames" in done.stdout


class TestInto:
    async def test_a_stream_that_is_open_stays_open(self, live: GatewayProcess, tmp_path: Path) -> None:
        data = make_journal(tmp_path / "data", [0.0, 0.0])
        async with connect(live, "bob") as space:
            await space.open_stream(description="shared")
            refused = replay(live, "--data", data, "--stream", "stream-1", "--into", "stream-1", "--speed", 0)
            assert refused.returncode == 1
            assert "may not write to stream-1" in refused.stderr
            assert "replayed 0 of 2 frames" in refused.stdout
            # Bob's right is his own, and the command takes his place.
            done = replay(live, "--data", data, "--stream", "stream-1", "--into", "stream-1", participant="bob")
            assert done.returncode == 0, done
            await space.wait_closed()
        assert [each.data for each in frames(live)] == [b"f0", b"f1"]
        assert not [each for each in records(live) if isinstance(each, StreamEnded)]

    def test_one_that_is_not_there(self, live: GatewayProcess, tmp_path: Path) -> None:
        data = make_journal(tmp_path / "data", [0.0])
        done = replay(live, "--data", data, "--stream", "stream-1", "--into", "nowhere")
        assert done.returncode == 1
        assert "there is no open stream 'nowhere': open are none" in done.stderr


class TestMistakes:
    def test_those_there_are_are_listed(self, live: GatewayProcess, tmp_path: Path) -> None:
        data = make_journal(tmp_path / "data", [0.0, 1.0], alias="moves")
        make_journal(data, [0.0], space="other", stream="stream-9")
        for options in ((), ("--stream", "stream-77")):
            done = replay(live, "--data", data, *options)
            assert done.returncode == 2
            assert "past/stream-1 (moves), 2 frames, 2026-01-31T12:00:00.000000Z to" in done.stderr
            assert "other/stream-9, 1 frames" in done.stderr
            assert "Traceback" not in done.stderr
        done = replay(live, "--data", data, "--stream", "stream-1", "--source-space", "other")
        assert done.returncode == 2
        assert "there is no stream 'stream-1'" in done.stderr
        assert "past/" not in done.stderr

    def test_a_name_in_two_spaces(self, live: GatewayProcess, tmp_path: Path) -> None:
        data = make_journal(tmp_path / "data", [0.0])
        make_journal(data, [0.0, 0.0], space="other")
        done = replay(live, "--data", data, "--stream", "stream-1")
        assert done.returncode == 2
        assert "say of which space by --source-space" in done.stderr
        done = replay(live, "--data", data, "--stream", "stream-1", "--source-space", "other")
        assert done.returncode == 0
        assert "replayed 2 of 2 frames of other/stream-1" in done.stdout

    def test_no_journal_no_file_and_no_export(self, live: GatewayProcess, tmp_path: Path) -> None:
        done = replay(live, "--data", tmp_path / "nowhere", "--stream", "stream-1")
        assert done.returncode == 2
        assert "there is no journal in" in done.stderr
        (tmp_path / "other.jsonl").write_text('\n{"some": "json"}\n')
        done = replay(live, "--export", tmp_path / "other.jsonl", "--stream", "stream-1")
        assert done.returncode == 2
        assert "other.jsonl:2:" in done.stderr
        assert "mewstream journal export" in done.stderr
        (tmp_path / "odd.jsonl").write_text(
            '{"record":"frame","space":"x","seq":7,"ts":"2026-01-31T12:00:00Z","stream_id":"s","kind":"stream/data","data":"?"}'
        )
        done = replay(live, "--export", tmp_path / "odd.jsonl", "--stream", "s")
        assert done.returncode == 2
        assert "the frame with seq 7 is not what it is recorded to be" in done.stderr
        assert "Traceback" not in done.stderr
        for options in ((), ("--data", tmp_path, "--export", tmp_path / "other.jsonl")):
            done = replay(live, *options)
            assert done.returncode == 2
            assert "--data DIRECTORY or --export FILE" in done.stderr

    def test_no_gateway(self, tmp_path: Path) -> None:
        data = make_journal(tmp_path / "data", [0.0])
        command = [*COMMAND, "replay", "--url", "ws://127.0.0.1:1", "--data", str(data), "--stream", "stream-1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment("ann"))
        assert done.returncode == 3
        assert done.stderr.count("\n") == 1


class TestInterruption:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_a_signal_ends_it_in_good_order(
        self, live: GatewayProcess, tmp_path: Path, number: signal.Signals, code: int
    ) -> None:
        data = make_journal(tmp_path / "data", [0.0, 0.0, 0.0, 3600.0])
        command = [*COMMAND, "replay", "--url", live.ws_url, "--data", str(data), "--stream", "stream-1"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment("ann")
        ) as process:
            deadline = time.monotonic() + TIMEOUT
            while len(frames(live)) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(number)
            out, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == code, (out, err)
        assert out == "replayed 3 of 4 frames of past/stream-1 into stream-1, 3 are recorded\n"
        assert err == ""
        (ended,) = [each for each in records(live) if isinstance(each, StreamEnded)]
        assert ended.how == "closed"

    def test_a_gateway_that_dies_and_comes_back(self, live: GatewayProcess, tmp_path: Path) -> None:
        data = make_journal(tmp_path / "data", [place / 200 for place in range(600)])
        command = [*COMMAND, "replay", "--url", live.ws_url, "--data", str(data), "--stream", "stream-1"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment("ann")
        ) as process:
            deadline = time.monotonic() + TIMEOUT
            while len(frames(live)) < 50:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert live.process is not None
            live.process.kill()
            live.process.wait()
            live.process.stdout.close()
            live.start()
            out, err = process.communicate(timeout=60)
        came = [int(each.data[1:]) for each in frames(live)]
        assert came == sorted(set(came)), "in order, and none twice"
        assert came[-1] == 599
        assert out.startswith("replayed 600 of 600 frames")
        confirmed = int(out.rsplit(", ", 1)[1].split()[0])
        assert confirmed <= len(came), "what is said to be recorded is recorded"
        assert process.returncode == (0 if confirmed == 600 else 3), (out, err)

    def test_a_signal_while_there_is_no_gateway(self, live: GatewayProcess, tmp_path: Path) -> None:
        data = make_journal(tmp_path / "data", [0.0, 3600.0])
        command = [*COMMAND, "replay", "--url", live.ws_url, "--data", str(data), "--stream", "stream-1"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment("ann")
        ) as process:
            deadline = time.monotonic() + TIMEOUT
            while len(frames(live)) < 1:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert live.process is not None
            live.process.kill()
            live.process.wait()
            live.process.stdout.close()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        live.start()
        assert process.returncode == 130, (out, err)
        assert out.startswith("replayed 1 of 2 frames")
        assert "Traceback" not in err

    def test_a_bar_on_a_terminal(self, live: GatewayProcess, tmp_path: Path) -> None:
        data = make_journal(tmp_path / "data", [0.0, 0.5, 1.0])
        child = pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], "replay", "--url", live.ws_url, "--data", str(data), "--stream", "stream-1"],
            env={**environment("ann"), "TERM": "xterm"},
            encoding="utf-8",
            timeout=TIMEOUT,
        )
        try:
            child.expect("replaying")
            child.expect("replayed 3 of 3 frames")
            child.expect(pexpect.EOF)
        finally:
            child.close(force=True)
        assert child.exitstatus == 0
