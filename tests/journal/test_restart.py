"""A restart is a fold of the log: what was, is; and who does not come back in time has left."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import oracle
import pytest
from making import POSITIONS, JournaledGateway, journaled

from support import Client, active_stream, space_config, token_of

HOW = pytest.mark.parametrize("how", ["kill", "term"])


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def configured(**policies: Any) -> dict[str, Any]:
    capabilities = {"cy": [{"kind": "chat"}, {"kind": "mcp/response"}], "eve": [{"kind": "chat"}]}
    return space_config("ann", "bob", "cy", "dee", "eve", capabilities=capabilities, mewstream={"policies": policies})


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[JournaledGateway]:
    async with journaled(tmp_path, configured()) as made:
        yield made


async def grant(owner: Client, stream: str, participant: str, **conditions: Any) -> dict[str, Any]:
    payload = {"stream_id": stream, "participant_id": participant, **({"conditions": conditions} if conditions else {})}
    id = await owner.send("stream/grant-write", payload)
    return await owner.receive("stream/write-granted", of=id)


# -- what survives --------------------------------------------------------------------------------


@HOW
async def test_streams_and_rights_survive(gateway: JournaledGateway, how: str) -> None:
    ann, bob, cy, dee = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob", "cy", "dee")]
    main = await ann.open_stream(desired_id="main", description="the main one")
    private = await bob.open_stream(target=["ann", "bob"])
    announced = await dee.send("stream/announce", {"intent": "later"})
    ready = (await dee.receive("stream/ready", of=announced))["payload"]["stream"]["stream_id"]
    closed = await ann.open_stream(desired_id="gone")
    await ann.send("stream/close", {"stream_id": closed})
    await grant(ann, main, "bob")
    await grant(ann, main, "cy", max_frames=5)
    await grant(ann, main, "dee", expires_at=in_seconds(3600))
    for number in range(2):
        await cy.frame("main", f"{number}")
    id = await bob.send("stream/transfer-ownership", {"stream_id": private, "new_owner": "ann", "retain_write": True})
    await bob.receive("stream/ownership-transferred", of=id)
    await cy.settle()
    await ann.settle()
    # The last word before the restart: a welcome, and the log at that very place.
    before = (await gateway.join("ann", **POSITIONS)).welcome
    assert oracle.at(gateway.data, before["seq"]).summary() == oracle.of_welcome(before)

    await gateway.restart(how)
    ann = await gateway.join("ann", **POSITIONS)
    after = ann.welcome
    assert oracle.of_welcome(after) == oracle.of_welcome(before)
    assert oracle.at(gateway.data, after["seq"]).summary() == oracle.of_welcome(after)
    changing = ("owner_connected", "last_seq")
    for stream in (main, private, ready):
        old, new = active_stream(before, stream), active_stream(after, stream)
        assert {key: value for key, value in new.items() if key not in changing} == {
            key: value for key, value in old.items() if key not in changing
        }
    assert active_stream(after, main)["conditions"]["cy"] == {"max_frames": 5, "frames_left": 3}
    assert after["payload"]["epoch"] != before["payload"]["epoch"]

    # Counters go on: an id is never given out twice, a bounded right has what was left of it.
    assert await ann.open_stream() == "stream-5"
    cy = await gateway.join("cy", **POSITIONS)
    for number in range(4):
        await cy.frame("main", f"after {number}")
    await cy.error("unauthorized_stream_write")
    revoked = await ann.receive("stream/write-revoked", participant_id="cy")
    assert revoked["payload"]["reason"] == "max_frames"
    frames = [each for each in ann.got if isinstance(each, str) and "after" in each]
    assert len(frames) == 3
    # The announced one can still be started by its owner, the private one has its two readers.
    dee = await gateway.join("dee", **POSITIONS)
    await dee.send("stream/start", {"stream_id": ready})
    await ann.receive("stream/start")
    bob = await gateway.join("bob", **POSITIONS)
    await bob.frame(private, "for two")
    await ann.wait_for(lambda message: isinstance(message, str) and message.endswith("#for two"))
    await dee.settle()
    assert not any(isinstance(each, str) and each.endswith("#for two") for each in dee.got)
    await gateway.end("term")
    oracle.fold(oracle.space_rows(gateway.data))


@HOW
async def test_a_grant_that_expires_while_the_gateway_is_down(gateway: JournaledGateway, how: str) -> None:
    ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
    stream = await ann.open_stream()
    await grant(ann, stream, "bob", expires_at=in_seconds(0.6))
    seq = (await ann.settle(), max(each["seq"] for each in ann.got if isinstance(each, dict)))[1]
    await gateway.restart(how, after=0.7)
    bob = await gateway.join("bob", **POSITIONS)
    assert active_stream(bob.welcome, stream)["authorized_writers"] == ["ann"]
    await bob.frame(stream, "too late")
    await bob.error("unauthorized_stream_write")
    rows = [row for row in oracle.space_rows(gateway.data) if row["seq"] > seq]
    [revoked] = [row for row in rows if row["record"] == "write-revoked"]
    assert revoked["detail"]["reason"] == "expired"
    await gateway.end("term")


@HOW
async def test_capabilities_and_invitations_survive(gateway: JournaledGateway, how: str) -> None:
    ann, cy = [await gateway.join(each) for each in ("ann", "cy")]
    granted = await ann.send("capability/grant", {"recipient": "cy", "capabilities": [{"kind": "mcp/request"}]})
    await cy.wait_for(lambda message: isinstance(message, dict) and message.get("id") == granted)
    id = await ann.send("space/invite", {"participant_id": "guest", "capabilities": [{"kind": "chat"}]})
    token = (await ann.receive("space/invite-ack", of=id))["payload"]["token"]
    await ann.settle()
    await gateway.restart(how)
    ann, cy = [await gateway.join(each) for each in ("ann", "cy")]
    assert {"kind": "mcp/request"} in cy.welcome["payload"]["you"]["capabilities"]
    await cy.send("mcp/request", {"method": "x"})
    await ann.receive("mcp/request")
    guest = await gateway.stranger()
    guest.participant = "guest"
    await guest.send_raw(json.dumps({"type": "join", "participantId": "guest", "token": token}))
    welcome = await guest.receive("system/welcome")
    assert welcome["payload"]["you"]["capabilities"] == [{"kind": "chat"}]
    await guest.send("chat", {"text": "here I am"})
    await ann.receive("chat", text="here I am")
    # And they can be taken back.
    await ann.send("capability/revoke", {"grant_id": granted})
    await cy.receive("capability/revoke")
    await cy.send("mcp/request", {"method": "x"})
    await cy.error("capability_violation")
    for file in gateway.directory.rglob("*"):
        if file.is_file():
            assert token.encode() not in file.read_bytes(), f"the token is in {file}"
    await gateway.end("term")


@HOW
async def test_a_pause_survives(gateway: JournaledGateway, how: str) -> None:
    ann, bob = [await gateway.join(each) for each in ("ann", "bob")]
    await ann.send("participant/pause", to=["bob"])
    await bob.receive("participant/pause")
    await bob.send("chat", {"text": "no"})
    await bob.error("invalid_operation")
    await gateway.restart(how)
    ann, bob = [await gateway.join(each) for each in ("ann", "bob")]
    await bob.send("chat", {"text": "still no"})
    await bob.error("invalid_operation", timeout=3)
    await ann.send("participant/resume", to=["bob"])
    await bob.receive("participant/resume")
    await bob.send("chat", {"text": "yes"})
    await ann.receive("chat", text="yes")
    await gateway.end("term")


@HOW
async def test_a_repeated_id_is_answered_as_before(gateway: JournaledGateway, how: str) -> None:
    """A client that did not see the answer sends again after the restart: nothing happens twice."""
    ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
    requests: list[tuple[str, dict[str, Any], str]] = [
        ("chat", {"text": "once"}, "chat"),
        ("stream/request", {"direction": "upload"}, "stream/open"),
        ("stream/grant-write", {"stream_id": "stream-1", "participant_id": "bob"}, "stream/write-granted"),
        ("stream/close", {"stream_id": "stream-77"}, "system/error"),
    ]
    answers = []
    for number, (kind, payload, answered) in enumerate(requests):
        id = await ann.send(kind, payload, id=f"once-{number}")
        answers.append(await ann.wait_for(lambda each, a=answered: isinstance(each, dict) and each["kind"] == a))
        assert id == f"once-{number}"
    await bob.settle()
    await gateway.restart(how)
    ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
    await ann.settle()
    for number, (kind, payload, answered) in enumerate(requests):
        await ann.send(kind, payload, id=f"once-{number}")
        again = await ann.wait_for(lambda each, a=answered: isinstance(each, dict) and each["kind"] == a)
        assert again["payload"] == answers[number]["payload"]
        assert again["seq"] == answers[number]["seq"]
    told = [each for each in await bob.settle() if isinstance(each, dict) and each["from"] != "bob"]
    assert [each["kind"] for each in told if each["kind"] != "mcp/response"] == []
    welcome = (await gateway.join("dee")).welcome
    assert [each["stream_id"] for each in welcome["payload"]["active_streams"]] == ["stream-1"]
    await gateway.end("term")


async def test_many_restarts(tmp_path: Path) -> None:
    """Killed and stopped in turns, with snapshots and segments of a few records: the state stays the fold."""
    async with journaled(tmp_path, configured(), start=False, segment_bytes=6000, snapshot_every=25) as gateway:
        streams: list[str] = []
        for round in range(6):
            gateway.start()
            ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
            assert [each["stream_id"] for each in ann.welcome["payload"]["active_streams"]] == streams
            assert oracle.at(gateway.data, ann.welcome["seq"]).summary() == oracle.of_welcome(ann.welcome)
            streams.append(await ann.open_stream())
            await grant(ann, streams[-1], "bob")
            for number in range(20):
                await bob.frame(streams[number % len(streams)], f"{round} {number}")
            await bob.settle()
            await gateway.end("kill" if round % 2 else "term")
        assert streams == [f"stream-{number}" for number in range(1, 7)]
        rows = oracle.space_rows(gateway.data)
        state = oracle.fold(rows)
        assert sum(each.frames for each in state.streams.values()) == 120
        starts = [row["detail"]["epoch"] for row in rows if row["record"] == "space-started"]
        assert len(set(starts)) == 6


# -- who comes back, and who does not -------------------------------------------------------------


@HOW
async def test_who_comes_back_in_time_keeps_everything(tmp_path: Path, how: str) -> None:
    async with journaled(tmp_path, configured(suspend_for=20.0)) as gateway:
        ann, bob, cy = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob", "cy")]
        stream = await ann.open_stream()
        await grant(ann, stream, "bob")
        await cy.settle()
        await gateway.restart(how)
        ann = await gateway.join("ann", **POSITIONS)
        # Suspended ones are present: they can be granted to, and count as writers.
        assert {each["id"] for each in ann.welcome["payload"]["participants"]} == {"bob", "cy"}
        await grant(ann, stream, "cy")
        bob = await gateway.join("bob", **POSITIONS)
        assert active_stream(bob.welcome, stream)["authorized_writers"] == ["ann", "bob", "cy"]
        await bob.frame(stream, "goes on")
        await ann.wait_for(lambda message: isinstance(message, str) and message.endswith("#goes on"))
        events = [each for each in ann.got if isinstance(each, dict) and each["kind"] == "system/presence"]
        assert events == [], "nobody came and nobody left"
        await gateway.end("term")
        rows = oracle.space_rows(gateway.data)
        assert not [row for row in rows if row["record"] in ("left", "write-revoked")]


@HOW
async def test_who_does_not_come_back_has_left(tmp_path: Path, how: str) -> None:
    async with journaled(tmp_path, configured(suspend_for=4.0)) as gateway:
        ann, bob, cy = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob", "cy")]
        stream = await ann.open_stream()
        await grant(ann, stream, "bob")
        mine = await bob.open_stream()
        await cy.settle()
        await gateway.restart(how)
        ann = await gateway.join("ann", **POSITIONS)
        assert active_stream(ann.welcome, stream)["authorized_writers"] == ["ann", "bob"]
        leaves = [await ann.receive("system/presence", event="leave") for _ in range(2)]
        assert {each["payload"]["participant"]["id"] for each in leaves} == {"bob", "cy"}
        told = [each for each in ann.got if isinstance(each, dict) and each["kind"] == "stream/write-revoked"]
        told = told or [await ann.receive("stream/write-revoked")]
        [revoked] = told
        assert revoked["payload"]["participant_id"] == "bob"
        assert revoked["payload"]["reason"] == "disconnected"
        # What one owns is kept for one who comes later.
        bob = await gateway.join("bob", **POSITIONS)
        assert active_stream(bob.welcome, mine)["owner"] == "bob"
        assert active_stream(bob.welcome, stream)["authorized_writers"] == ["ann"]
        await ann.receive("system/presence", event="join")
        await gateway.end("term")


async def test_who_was_suspended_too_long_has_left_before_anyone_comes(tmp_path: Path) -> None:
    """The time ran out while the gateway was down."""
    async with journaled(tmp_path, configured(suspend_for=0.3)) as gateway:
        ann, _ = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
        stream = await ann.open_stream()
        await grant(ann, stream, "bob")
        await gateway.restart("term", after=0.5)
        ann = await gateway.join("ann", **POSITIONS)
        assert ann.welcome["payload"]["participants"] == []
        assert active_stream(ann.welcome, stream)["authorized_writers"] == ["ann"]
        await gateway.end("term")


# -- one gateway at a time ------------------------------------------------------------------------


async def test_a_second_gateway_on_the_same_directory(gateway: JournaledGateway, tmp_path: Path) -> None:
    ann = await gateway.join("ann")
    async with journaled(tmp_path / "second", configured(), data=gateway.data, start=False) as second:
        with pytest.raises(AssertionError, match="did not start"):
            second.start()
        assert second.process is not None
        assert second.process.wait(timeout=20) == 2
    [line] = second.log.read_text().strip().splitlines()
    assert "in use by another gateway" in line
    assert str(gateway.pid) in line
    # The first one has not noticed.
    await ann.send("chat", {"text": "still here"})
    await ann.receive("chat", text="still here")
    await gateway.end("term")


async def test_a_corrupt_journal_is_one_line(gateway: JournaledGateway) -> None:
    ann = await gateway.join("ann")
    for _ in range(5):
        await ann.settle()
    await gateway.end("kill")
    file = max((gateway.data / "journal").glob("p*/*.arrow"), key=lambda each: each.stat().st_size)
    content = bytearray(file.read_bytes())
    content[3000] ^= 1
    file.write_bytes(content)
    gateway.log.write_text("")
    with pytest.raises(AssertionError, match="did not start"):
        gateway.start()
    assert gateway.process is not None
    assert gateway.process.wait(timeout=20) == 2
    [line] = gateway.log.read_text().strip().splitlines()
    assert file.name in line
    assert "offset" in line
    assert bytes(content) == file.read_bytes(), "a start that fails changes nothing"


async def test_durability_fsync_over_a_restart(tmp_path: Path) -> None:
    """The same gateway with the strongest setting, stopped while it is busy."""
    async with journaled(tmp_path, configured(), start=False, durability="fsync") as gateway:
        for how in ("term", "kill", "term"):
            gateway.start()
            ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
            stream = await ann.open_stream()
            for number in range(200):
                await ann.frame(stream, f"{number}")
                if number % 5 == 0:
                    await bob.send("chat", {"text": f"{number}"})
            told = max(each["seq"] for each in (await bob.settle(), bob.got)[1] if isinstance(each, dict))
            for number in range(50):
                await bob.send("chat", {"text": f"{number}"})
            await gateway.end(how)
            assert oracle.space_rows(gateway.data)[-1]["seq"] >= told


async def test_tokens_are_in_no_file(gateway: JournaledGateway) -> None:
    ann = await gateway.join("ann")
    await ann.settle()
    stranger = await gateway.stranger()
    await stranger.send_raw(json.dumps({"type": "join", "participantId": "ann", "token": "a-wrong-token"}))
    await stranger.closed()
    await gateway.end("term")
    for file in gateway.data.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert token_of("ann").encode() not in content
            assert b"a-wrong-token" not in content
