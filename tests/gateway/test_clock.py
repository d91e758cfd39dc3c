"""A clock that is set stops no timer and spends no grace; what happens is recorded, and the log never runs back.

A real gateway, whose process sees a clock that the tests set. Only the order of events is looked at: a grace of a
second that had been stopped by a clock of a day would end tomorrow.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from instruments import FakeClock, fake_clock
from mewstream.gateway import clock as clock_module
from mewstream.gateway.clock import MachineClock, SpaceClock
from mewstream.journal.reader import JournalReader
from mewstream.protocol.records import ClockJumped, Left, Record, StreamEnded, WriteRevoked
from mewstream.protocol.times import SECOND
from support import GatewayProcess, space_config

DAY = 86_400.0
#: Long enough that nobody waits for it in vain: a timer that works is due within a second or two.
PATIENCE = 30.0


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with fake_clock() as clock:
        yield clock


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def config(**policies: Any) -> dict[str, Any]:
    policies = {"reconnect_grace": 1, "start_timeout": 1, "on_owner_leave": "close", "owner_leave_grace": 1} | policies
    return space_config("ann", "bob", "cy", gateway={"drain_seconds": 0}, mewstream={"policies": policies})


class Stage:
    """A gateway with a journal, which may be started again."""

    def __init__(self, directory: Path, clock: FakeClock, **policies: Any) -> None:
        self.clock = clock
        self.data = directory / "data"
        self.gateway = GatewayProcess(
            directory, config(**policies), options=("--data", str(self.data)), prepare=clock.prepare
        ).start()

    def records(self) -> list[Record]:
        """After the end of the gateway: all of it, in time that never runs back."""
        found = [entry.record for entry in JournalReader(self.data / "journal").read("demo", 0)]
        assert [each.seq for each in found] == list(range(1, len(found) + 1))
        times = [each.ts for each in found]
        assert times == sorted(times)
        return found

    def stop(self) -> list[Record]:
        assert "jumped" in self.gateway.stop() or "ahead of the clock" in self.gateway.log.read_text()
        return self.records()


@pytest.mark.parametrize("jump", [-DAY, DAY - DAY / 2, 0], ids=["set back", "set forward", "ran ahead once"])
async def test_every_timer_goes_on(directory: Path, clock: FakeClock, jump: float) -> None:
    stage = Stage(directory, clock)
    ann = await stage.gateway.join("ann")
    bob = await stage.gateway.join("bob")
    if jump:
        clock.advance(jump)
    else:  # it runs ahead, something happens, and it is set right again
        clock.advance(DAY)
        await ann.send("chat", {"text": "tomorrow"})
        await ann.receive("chat", text="tomorrow")
        clock.advance(-DAY)
    # The grace of a lost connection, and then that of the owner that it was.
    stream = await bob.open_stream()
    bob.connection.transport.abort()
    await ann.receive("system/presence", event="leave", timeout=PATIENCE)
    await ann.receive("stream/close", timeout=PATIENCE, stream_id=stream)
    # The time for a start.
    await ann.send("stream/announce", {})
    await ann.receive("stream/error", timeout=PATIENCE, code="start_timeout")
    # A pause ends by time.
    cy = await stage.gateway.join("cy")
    await ann.send("participant/pause", {"timeout_seconds": 1}, to=["cy"])
    await cy.receive("participant/pause")
    await cy.send("chat", {"text": "too early"})
    await cy.error("invalid_operation")
    while (await stage.gateway.post("cy", {"kind": "chat", "payload": {"text": "at last"}}))[0] != 200:
        pass
    # A right expires at a time of the clock.
    mine = await ann.open_stream()
    last = next(each for each in reversed(ann.got) if isinstance(each, dict))["ts"]
    expiry = datetime.fromtimestamp(max(clock.now(), datetime.fromisoformat(last).timestamp()) + 1.5, UTC).isoformat()
    grant = {"stream_id": mine, "participant_id": "cy", "conditions": {"expires_at": expiry}}
    await ann.send("stream/grant-write", grant)
    await ann.receive("stream/write-granted")
    await ann.receive("stream/write-revoked", timeout=PATIENCE, reason="expired")
    await ann.close()
    await cy.close()
    records = stage.stop()
    jumps = [each for each in records if isinstance(each, ClockJumped)]
    assert sum(each.by for each in jumps) / SECOND == pytest.approx(jump, abs=1.5 if jump else 3)
    assert jumps[-1].ahead / SECOND == pytest.approx({-DAY: DAY, DAY / 2: 0, 0: DAY}[jump], abs=2)


async def test_a_clock_that_is_set_forward_spends_no_grace(directory: Path, clock: FakeClock) -> None:
    """What was promised for a minute has a minute, whatever the clock says; a right that ends at a time has ended."""
    minute = {"reconnect_grace": 60, "start_timeout": 60, "owner_leave_grace": 60}
    stage = Stage(directory, clock, **minute)
    ann = await stage.gateway.join("ann")
    bob = await stage.gateway.join("bob")
    stream = await ann.open_stream()
    expiry = datetime.fromtimestamp(clock.now() + DAY / 2, UTC).isoformat()
    for who in ("bob", "cy"):
        client = bob if who == "bob" else await stage.gateway.join("cy")
        await ann.send(
            "stream/grant-write",
            {"stream_id": stream, "participant_id": who, "conditions": {"expires_at": expiry} if who == "cy" else {}},
        )
        await client.receive("stream/write-granted", participant_id=who)
    await ann.send("stream/announce", {})
    await ann.receive("stream/ready")
    await ann.send("participant/pause", {"timeout_seconds": 60}, to=["cy"])
    bob.connection.transport.abort()
    clock.advance(DAY)
    await ann.receive("stream/write-revoked", participant_id="cy", reason="expired", timeout=PATIENCE)
    assert "chat" not in [each["kind"] for each in await ann.settle() if isinstance(each, dict)]
    bob = await stage.gateway.join("bob")
    [entry] = [each for each in bob.welcome["payload"]["active_streams"] if each["stream_id"] == stream]
    assert entry["authorized_writers"] == ["ann", "bob"], "bob was only away for a moment"
    assert len(bob.welcome["payload"]["active_streams"]) == 2, "the announced stream has its minute"
    status, answer = await stage.gateway.post("cy", {"kind": "chat", "payload": {"text": "hi"}})
    assert (status, answer["payload"]["error"]) == (400, "invalid_operation"), "the pause has its minute"
    for client in (ann, bob):
        await client.close()
    records = stage.stop()
    [jump] = [each for each in records if isinstance(each, ClockJumped)]
    assert jump.shift == jump.by
    assert jump.shift / SECOND == pytest.approx(DAY, abs=1.5)
    told = [each for each in records if each.seq < records[-4].seq]
    assert not [each for each in told if isinstance(each, Left | StreamEnded)]
    assert [each.participant for each in told if isinstance(each, WriteRevoked)] == ["cy"]


async def test_a_start_with_a_clock_that_is_behind_the_log(directory: Path, clock: FakeClock) -> None:
    """The time goes on from the newest record. Those who are expected back are waited for as long as was promised."""
    clock.advance(DAY)
    stage = Stage(directory, clock, suspend_for=1)
    ann = await stage.gateway.join("ann")
    stream = await ann.open_stream()
    bob = await stage.gateway.join("bob")
    await ann.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
    await bob.receive("stream/write-granted")
    assert stage.gateway.process is not None
    stage.gateway.process.kill()
    stage.gateway.process.wait()
    stage.gateway.process.stdout.close()
    clock.advance(-DAY)
    stage.gateway.start()
    cy = await stage.gateway.join("cy")
    revoked = await cy.receive("stream/write-revoked", participant_id="bob", timeout=PATIENCE)
    assert datetime.fromisoformat(revoked["ts"]).timestamp() - clock.now() == pytest.approx(DAY, abs=60)
    _, metrics = await stage.gateway.http("GET", "/metrics")
    [ahead] = [line for line in metrics.splitlines() if line.startswith("mewstream_clock_ahead_seconds{")]
    assert float(ahead.split()[-1]) == pytest.approx(DAY, abs=60)
    await cy.close()
    records = stage.stop()
    starts = [place for place, each in enumerate(records) if type(each).__name__ == "SpaceStarted"]
    jump = records[starts[1] + 1]
    assert isinstance(jump, ClockJumped)
    assert jump.ahead == -jump.by
    assert jump.shift == 0


class TestClocks:
    """The arithmetic, with clocks that are told what to say."""

    @pytest.fixture
    def times(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
        times = {"wall": 1_000 * SECOND, "monotonic": 5 * SECOND}
        monkeypatch.setattr(clock_module.time, "time_ns", lambda: times["wall"] * 1000)
        monkeypatch.setattr(clock_module.time, "monotonic_ns", lambda: times["monotonic"] * 1000)
        return times

    def pass_time(self, times: dict[str, int], seconds: float, *, set_by: float = 0) -> None:
        times["wall"] += round((seconds + set_by) * SECOND)
        times["monotonic"] += round(seconds * SECOND)

    def test_small_steps_are_followed(self, times: dict[str, int]) -> None:
        machine = MachineClock()
        clock = SpaceClock(machine, 0)
        for _ in range(20):
            self.pass_time(times, 1, set_by=0.9)
            machine.check()
            assert clock.check() is None
        assert clock.now() == times["wall"]

    @pytest.mark.parametrize("jumps", [[-10], [10, -10], [-10, 4], [-10, 15], [100, -300, 50, 500]])
    def test_time_never_runs_back(self, times: dict[str, int], jumps: list[float]) -> None:
        machine = MachineClock()
        clock = SpaceClock(machine, 0)
        last = clock.now()
        shifted = 0
        for by in jumps:
            self.pass_time(times, 3, set_by=by)
            jump = clock.check()
            assert jump is not None
            assert jump.by == by * SECOND
            shifted += jump.shift
            assert clock.now() >= last + 3 * SECOND
            assert clock.now() == last + 3 * SECOND + jump.shift, "but for the shift it goes on as it was"
            assert clock.check() is None
            last = clock.now()
        assert clock.ahead == clock.now() - times["wall"] >= 0
        assert clock.ahead == max(0, clock.ahead)
        assert clock.now() == 1_000 * SECOND + len(jumps) * 3 * SECOND + shifted

    def test_what_is_ahead_is_made_up(self, times: dict[str, int]) -> None:
        machine = MachineClock()
        clock = SpaceClock(machine, times["wall"] + 10 * SECOND)
        assert clock.now() == times["wall"] + 10 * SECOND
        for _ in range(100):
            before = clock.now()
            self.pass_time(times, 1)
            clock.make_up(SECOND)
            assert before < clock.now() <= before + SECOND
        assert clock.ahead == 0
        clock.make_up(SECOND)
        assert clock.now() == times["wall"]

    def test_a_pause_of_the_process_is_no_jump(self, times: dict[str, int]) -> None:
        machine = MachineClock()
        clock = SpaceClock(machine, 0)
        self.pass_time(times, 3600)
        assert clock.check() is None

    def test_each_space_sees_each_jump_once(self, times: dict[str, int]) -> None:
        machine = MachineClock()
        one, other = SpaceClock(machine, 0), SpaceClock(machine, times["wall"] + 60 * SECOND)
        self.pass_time(times, 5, set_by=20)
        assert one.check() == (20 * SECOND, 20 * SECOND)
        assert other.check() == (20 * SECOND, 0), "it was ahead of the clock by more than that"
        assert (one.check(), other.check()) == (None, None)
        assert json.dumps([one.ahead, other.ahead]) == json.dumps([0, 40 * SECOND])
