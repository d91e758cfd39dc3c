"""A gateway that loses, repeats, reorders or changes something is caught; other forms of the same are not."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from bench_running import bench, figures

from mewstream.bench import wire
from mewstream.bench.errors import CheckFailed
from mewstream.bench.order import OrderReader, SharedOrder, Stamped
from mewstream.bench.pattern import Pattern, PatternReader
from mewstream.bench.readers import ReaderPool
from support import running_gateway, space_config

RUNS = {
    "fanout": ("--readers", "3", "--seconds", "0.3"),
    "rate": ("--writers", "3", "--hz", "50", "--seconds", "0.7"),
}
HARMLESS = ("none", "fragment", "noise", "binary")


@contextmanager
def relayed(tmp_path: Path, fault: str, participants: int = 4) -> Iterator[tuple[str, ...]]:
    """A real gateway behind a relay with that fault: the options that lead to it."""
    config = space_config(*(f"p{number}" for number in range(participants)))
    file = tmp_path / "space.yaml"
    file.write_text(yaml.safe_dump(config))
    with running_gateway(config) as gateway:
        command = [sys.executable, str(Path(__file__).parent / "faulty_relay.py"), str(gateway.port), fault]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
            try:
                assert relay.stdout is not None
                port = int(relay.stdout.readline())
                yield "--url", f"ws://127.0.0.1:{port}", "--config", str(file)
            finally:
                relay.kill()


class TestAFaultyGateway:
    @pytest.mark.parametrize("run", RUNS)
    @pytest.mark.parametrize(
        ("fault", "says"),
        [("lose", "missing"), ("repeat", "again"), ("swap", "out of order"), ("change", "changed")],
    )
    def test_is_caught(self, tmp_path: Path, run: str, fault: str, says: str) -> None:
        with relayed(tmp_path, fault) as where:
            done = bench(run, *where, *RUNS[run], "--json")
        assert done.returncode == 1, done.stderr
        assert says in done.stderr and "did not pass the check" in done.stderr
        assert done.stdout == "", "figures of a gateway that fails are worth nothing"

    @pytest.mark.parametrize("run", RUNS)
    @pytest.mark.parametrize("form", HARMLESS)
    def test_another_form_of_the_same_passes(self, tmp_path: Path, run: str, form: str) -> None:
        with relayed(tmp_path, form) as where:
            (measured,) = figures(bench(run, *where, *RUNS[run], "--json"))["rounds"][0]
        assert measured["frames"] > 20
        assert measured["opcode_changed"] == (form == "binary")

    @pytest.mark.parametrize("options", [("--joiners", "10"), ("--joiners", "1", "--listeners", "9")])
    @pytest.mark.parametrize(("fault", "says"), [("welcome", "wrong owner or writers"), ("presence", "was told that")])
    def test_a_wrong_welcome_and_a_lost_presence_are_caught(
        self, tmp_path: Path, fault: str, says: str, options: tuple[str, ...]
    ) -> None:
        with relayed(tmp_path, fault, participants=11) as where:
            done = bench("join", *where, *options, "--streams", "3", "--concurrency", "2")
        assert done.returncode == 1, done.stderr
        assert says in done.stderr


@dataclass
class Plain:
    id: str
    socket: socket.socket

    def unread(self) -> bytes:
        return b""


class TestTheEnd:
    """What is missing at the end, or too much, is nothing that a comparison on the way can see."""

    def finish(self, sent: bytes, frames: int, pattern: Pattern) -> None:
        ours, theirs = socket.socketpair()
        with (
            ours,
            theirs,
            ReaderPool(
                [Plain("reader", theirs)],
                lambda sources: [PatternReader(each.id, pattern) for each in sources],
                patience=0.6,
            ) as pool,
        ):
            ours.sendall(sent)
            pool.finish(frames)

    def test_all_of_it(self) -> None:
        pattern = Pattern("s", 100)
        data, size = pattern.received(wire.TEXT)
        self.finish(data[: 50 * size], 50, pattern)

    def test_the_last_one_is_missing(self) -> None:
        pattern = Pattern("s", 100)
        data, size = pattern.received(wire.TEXT)
        with pytest.raises(CheckFailed, match="has 49 of 50 frames"):
            self.finish(data[: 49 * size], 50, pattern)

    def test_one_too_many(self) -> None:
        pattern = Pattern("s", 100)
        data, size = pattern.received(wire.TEXT)
        with pytest.raises(CheckFailed, match="got 51 frames, 50 were sent"):
            self.finish(data[: 51 * size], 50, pattern)


def pieces(data: bytes, chance: random.Random) -> Iterator[memoryview]:
    start = 0
    while start < len(data):
        end = start + chance.choice((1, 3, 100, 1000, 70_000, 900_000))
        yield memoryview(data[start:end])
        start = end


class TestPatternReader:
    def test_any_pieces_over_several_periods(self) -> None:
        pattern = Pattern("stream-1", 2000)
        data, _ = pattern.received(wire.TEXT)
        whole = data * 2 + data[:12_345]
        for seed in range(5):
            reader = PatternReader("r", pattern)
            for piece in pieces(whole, random.Random(seed)):
                reader.feed(piece, 0)
            assert reader.frames == len(whole) * pattern.period // len(data)

    def test_a_ping_in_the_middle_is_answered(self) -> None:
        pattern = Pattern("stream-1", 100)
        data, size = pattern.received(wire.TEXT)
        ping = wire.server_header(wire.PING, 2) + b"hi"
        reader = PatternReader("r", pattern)
        for byte in data[: 3 * size] + ping + data[3 * size : 5 * size]:
            reader.feed(memoryview(bytes((byte,))), 0)
        assert reader.frames == 5
        assert reader.replies == [wire.client_message(wire.PONG, b"hi")]

    def test_a_change_of_a_single_byte_anywhere_is_seen(self) -> None:
        pattern = Pattern("stream-1", 40)
        data, size = pattern.received(wire.TEXT)
        for at in range(size, 2 * size):
            reader = PatternReader("r", pattern)
            spoilt = bytearray(data[: 8 * size])
            spoilt[at] ^= 0x04
            try:
                reader.feed(memoryview(spoilt), 0)
            except CheckFailed:
                continue
            assert reader.frames < 8, at

    def test_a_disconnection_says_why(self) -> None:
        reader = PatternReader("r", Pattern("stream-1", 100))
        close = b"\x0f\xa1slow"
        with pytest.raises(CheckFailed, match="4001 slow"):
            reader.feed(memoryview(wire.server_header(wire.CLOSE, len(close)) + close), 0)


class TestOrderReader:
    """Frames of two writers, as a gateway may mix them."""

    def stream(self, frames: Stamped, order: str) -> bytes:
        counts = [0, 0]
        sent = b""
        for letter in order:
            writer = "ab".index(letter)
            body = frames.message(writer, counts[writer], 1_000_000)[-frames.body_size :]
            sent += wire.server_header(wire.TEXT, len(body)) + body
            counts[writer] += 1
        return sent

    def test_all_readers_in_one_order(self) -> None:
        frames = Stamped(["stream-9", "stream-10"], 100)
        sent = self.stream(frames, "abbaabbbab" * 300)
        chance = random.Random(1)
        shared = SharedOrder(frames)
        readers = [OrderReader(f"r{number}", shared) for number in range(3)]
        waiting = [list(pieces(sent, chance)) for _ in readers]
        while any(waiting):
            number = chance.choice([each for each, left in enumerate(waiting) if left])
            readers[number].feed(waiting[number].pop(0), 3_000_000)
        for reader in readers:
            assert reader.frames == 3000
            assert reader.latencies == {2000: 3000}

    def test_an_order_of_ones_own_is_allowed_within_the_order_of_each_writer(self) -> None:
        frames = Stamped(["stream-9", "stream-10"], 100)
        shared = SharedOrder(frames)
        first, second = OrderReader("r1", shared), OrderReader("r2", shared)
        first.feed(memoryview(self.stream(frames, "ab" * 20)), 0)
        second.feed(memoryview(self.stream(frames, "ab" * 5 + "ba" * 15)), 0)
        assert (first.frames, second.frames) == (40, 40)

    @pytest.mark.parametrize("gap", [0, 7, 19])
    def test_a_lost_frame_is_seen_by_the_first_and_by_the_others(self, gap: int) -> None:
        frames = Stamped(["stream-9", "stream-10"], 100)
        whole = self.stream(frames, "ab" * 20)
        holey = whole[: gap * frames.size] + whole[(gap + 1) * frames.size :]
        with pytest.raises(CheckFailed, match="missing"):
            OrderReader("r1", SharedOrder(frames)).feed(memoryview(holey), 0)
        shared = SharedOrder(frames)
        OrderReader("r1", shared).feed(memoryview(whole), 0)
        with pytest.raises(CheckFailed, match="missing"):
            OrderReader("r2", shared).feed(memoryview(holey), 0)
