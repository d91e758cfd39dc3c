"""The state at a point of the log equals the welcome that a joiner got there."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from journals import Play, append, lively, opened, prune_before, rows_of, seal_segments

from mewstream.journal.errors import JournalError
from mewstream.protocol.fold import apply
from mewstream.protocol.records import Frame
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import rfc3339
from mewstream.query.asof import NoSuchState, Point, state_in_journal, state_in_records, welcome
from mewstream.query.database import WarehouseDatabase
from support import Client, GatewayProcess, space_config

PEOPLE = ("ann", "bob", "cy", "dee")


def states_of(play: Play) -> dict[int, dict[str, Any]]:
    """What a joiner is told after each record of a play."""
    state, told = SpaceState(play.space), {}
    for record in play.records:
        apply(state, record)
        told[state.seq] = json.loads(json.dumps(welcome(state)))
    return told


def records_of(data: Path) -> WarehouseDatabase:
    """The records of a journal, as the bronze table has them."""
    records = rows_of(data).drop_columns(["partition"])
    return WarehouseDatabase(lambda name: records)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


# -- real welcomes of a real gateway --------------------------------------------------------------


async def _busy_session(gateway: GatewayProcess, chance: random.Random) -> list[tuple[str, dict[str, Any]]]:
    """Things happen, and every now and then somebody comes late. Returns the welcomes: (who, payload)."""
    welcomes: list[tuple[str, dict[str, Any]]] = []
    here = {each: await gateway.join(each) for each in PEOPLE}
    welcomes += [(each, client.welcome["payload"]) for each, client in here.items()]
    streams = [await here["ann"].open_stream(description="main", auto_grant=["bob"])]
    streams.append(await here["bob"].open_stream(content_type="application/octet-stream", target=["ann", "cy"]))
    for number in range(14):
        for _ in range(5):
            who = here[chance.choice(PEOPLE)]
            stream, other = chance.choice(streams), chance.choice(PEOPLE)
            match chance.randrange(9):
                case 0:
                    await who.send("stream/grant-write", {"stream_id": stream, "participant_id": other})
                case 1:
                    conditions = {"max_frames": chance.randrange(2, 40)}
                    payload = {"stream_id": stream, "participant_id": other, "conditions": conditions}
                    await who.send("stream/grant-write", payload)
                case 2:
                    await who.send("stream/revoke-write", {"stream_id": stream, "participant_id": other})
                case 3:
                    await who.send("stream/transfer-ownership", {"stream_id": stream, "new_owner": other})
                case 4:
                    streams.append(await who.open_stream(description=f"stream of round {number}"))
                case 5 if len(streams) > 2:
                    await who.send("stream/close", {"stream_id": streams[0]})
                case 6:
                    grant = {"recipient": other, "capabilities": [{"kind": f"chat/{number}"}]}
                    await who.send("capability/grant", grant)
                case _:
                    for _ in range(3):
                        await who.frame(stream, b"data")
            await who.settle()
        if chance.random() < 0.3:
            gone = chance.choice(PEOPLE)
            await here[gone].close()
            here[gone] = await gateway.join(gone)
            welcomes.append((gone, here[gone].welcome["payload"]))
        late = await gateway.join("late")
        welcomes.append(("late", late.welcome["payload"]))
        await late.close()
        await here["ann"].receive("system/presence", event="leave")
    for client in here.values():
        await client.close()
    return welcomes


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, dict[str, Any]]]]:
    """The data directory of a gateway, stopped and started in between, and the welcomes it gave."""
    directory = tmp_path_factory.mktemp("gateway")
    gateway = GatewayProcess(directory, space_config(*PEOPLE, "late"), options=("--data", str(directory / "data")))
    welcomes = []
    for seed in (1, 2):
        gateway.start()
        try:
            welcomes += asyncio.run(_busy_session(gateway, random.Random(seed)))
        finally:
            gateway.stop()
    return directory / "data", welcomes


def test_equals_the_welcomes_of_a_gateway(recorded: tuple[Path, list[tuple[str, dict[str, Any]]]]) -> None:
    data, welcomes = recorded
    assert len(welcomes) >= 36
    assert any("conditions" in each for _, payload in welcomes for each in payload["active_streams"])
    for participant, payload in welcomes:
        state = state_in_journal(data, "demo", Point(seq=payload["seq"]))
        assert json.loads(json.dumps(welcome(state, participant))) == payload


def test_records_of_a_warehouse_give_the_same(recorded: tuple[Path, list[tuple[str, dict[str, Any]]]]) -> None:
    data, welcomes = recorded
    with records_of(data) as records:
        for participant, payload in welcomes:
            state = state_in_records(records, "demo", Point(seq=payload["seq"]))
            assert json.loads(json.dumps(welcome(state, participant))) == payload


# -- every point of a lively log ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_every_point_of_a_lively_log(journal_of: Callable[..., Path], seed: int) -> None:
    play = lively(300, seed=seed)
    data = journal_of(play, lively(50, space="other", seed=seed + 10), per_batch=7, seal=True, segment_bytes=20_000)
    for seq, told in states_of(play).items():
        assert welcome(state_in_journal(data, "demo", Point(seq=seq))) == told


def test_every_point_of_a_lively_log_in_a_warehouse(journal_of: Callable[..., Path]) -> None:
    play = lively(400, seed=5)
    with records_of(journal_of(play, lively(50, space="other", seed=6))) as records:
        for seq, told in states_of(play).items():
            assert welcome(state_in_records(records, "demo", Point(seq=seq))) == told


def test_a_bounded_right_granted_again_counts_anew(journal_of: Callable[..., Path]) -> None:
    play = Play(begin=True)
    stream = play.open("ann")
    for bound in (9, 5):
        conditions = {"max_frames": bound}
        play.send("ann", "stream/grant-write", stream_id=stream, participant_id="bob", conditions=conditions)
        play.frame("bob", stream)
        play.frame("ann", stream)
        play.frame("bob", stream)
    data = journal_of(play)
    with records_of(data) as records:
        states = [state_in_journal(data, "demo", Point()), state_in_records(records, "demo", Point())]
    for state in states:
        [described] = welcome(state)["active_streams"]
        assert described["conditions"] == {"bob": {"max_frames": 5, "frames_left": 3}}
        assert described["last_seq"] == play.state.seq


# -- points ---------------------------------------------------------------------------------------


def test_by_time(journal_of: Callable[..., Path], stack: ExitStack) -> None:
    play = Play(begin=True)
    stream = play.open("ann")
    play.wait(60)
    play.send("ann", "stream/transfer-ownership", stream_id=stream, new_owner="bob")
    transferred = play.records[-1].ts
    data = journal_of(play)
    records = stack.enter_context(records_of(data))
    for micros, owner in ((transferred - 1, "ann"), (transferred, "bob"), (transferred + 10**9, "bob")):
        for state in (
            state_in_journal(data, "demo", Point(micros=micros)),
            state_in_records(records, "demo", Point(micros=micros)),
        ):
            assert [each["owner"] for each in welcome(state)["active_streams"]] == [owner]
    before = Point(micros=play.records[0].ts - 1)
    with pytest.raises(NoSuchState, match=f"nothing of space 'demo' in .* up to {rfc3339(before.micros or 0)}"):
        state_in_journal(data, "demo", before)
    with pytest.raises(NoSuchState, match="nothing of space 'demo' in the warehouse up to"):
        state_in_records(records, "demo", before)


def test_points_that_are_not_there(journal_of: Callable[..., Path], tmp_path: Path, stack: ExitStack) -> None:
    play = Play(begin=True)
    data = journal_of(play)
    records = stack.enter_context(records_of(data))
    last = play.state.seq
    with pytest.raises(NoSuchState, match=f"ends at seq {last}: there is no seq {last + 1} yet"):
        state_in_journal(data, "demo", Point(seq=last + 1))
    with pytest.raises(NoSuchState, match=f"ends at seq {last}: there is no seq {last + 1} yet"):
        state_in_records(records, "demo", Point(seq=last + 1))
    with pytest.raises(NoSuchState, match="nothing of space 'elsewhere'"):
        state_in_journal(data, "elsewhere", Point())
    with pytest.raises(NoSuchState, match="nothing of space 'elsewhere'"):
        state_in_records(records, "elsewhere", Point(seq=1))
    with pytest.raises(JournalError, match="there is no journal"):
        state_in_journal(tmp_path / "nowhere", "demo", Point())


def test_a_pruned_journal_tells_what_its_snapshots_reach(tmp_path: Path, stack: ExitStack) -> None:
    play = lively(600, seed=3)
    with opened(tmp_path / "data", segment_bytes=20_000) as journal:
        append(journal, play)
        number = journal.partitions.index(journal.partition("demo"))
        journal.write_snapshot(*journal.encode_snapshot(number, {"demo": play.state}))
        snapshot_at, offset = play.state.seq, journal.partitions[number].next_offset
        for _ in range(200):
            play.step()
        append(journal, play)
        seal_segments(journal)
        assert prune_before(journal, number, offset) > 0
    states = states_of(play)
    for seq in (snapshot_at, snapshot_at + 1, play.state.seq):
        assert welcome(state_in_journal(tmp_path / "data", "demo", Point(seq=seq))) == states[seq]
    with pytest.raises(NoSuchState, match=r"was pruned; no snapshot is old enough .*--warehouse"):
        state_in_journal(tmp_path / "data", "demo", Point(seq=snapshot_at - 1))
    records = stack.enter_context(records_of(tmp_path / "data"))
    with pytest.raises(NoSuchState, match="was pruned from the journal before the pipeline read it"):
        state_in_records(records, "demo", Point())


def test_a_log_that_contradicts_itself_is_one_line(journal_of: Callable[..., Path]) -> None:
    play = Play(begin=True)
    stream = play.open("ann")
    fields = {"stream_id": stream, "sender": "cy", "stream_seq": 1, "opcode": 2, "recipients": 4, "data": b"x"}
    seq = play.plant(Frame, **fields)
    with pytest.raises(NoSuchState, match=f"seq {seq} of 'demo' does not follow from what is before it"):
        state_in_journal(journal_of(play), "demo", Point())


async def test_while_the_gateway_runs(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path, space_config(*PEOPLE), options=("--data", str(tmp_path / "data")))
    gateway.start()
    try:
        ann: Client = await gateway.join("ann")
        await ann.open_stream(description="<script>alert(1)</script>")
        bob = await gateway.join("bob")
        await bob.settle()
        payload = bob.welcome["payload"]
        state = state_in_journal(tmp_path / "data", "demo", Point(seq=payload["seq"]))
        assert welcome(state, "bob") == payload
        await ann.close()
        await bob.close()
    finally:
        gateway.stop()
