"""Seed 000, "Research: Stream Ownership Transfer", section by section, against a real gateway.

DESIGN.md settles what the seed leaves open; where a test follows a decision of it, it says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support import Client, GatewayProcess, active_stream, running_gateway, space_config, token_of

if TYPE_CHECKING:
    from conftest import Stage

GRANT, REVOKE, TRANSFER = "stream/grant-write", "stream/revoke-write", "stream/transfer-ownership"
GRANTED, REVOKED, TRANSFERRED = "stream/write-granted", "stream/write-revoked", "stream/ownership-transferred"
GRANT_READ, REVOKE_READ = "stream/grant-read", "stream/revoke-read"

over_both = pytest.mark.parametrize("transport", ["socket", "http"])

# Not "*": that holds space/manage-streams, which is a right on the streams of others (decision 1).
PLAIN = [{"kind": "stream/*"}, {"kind": "mcp/*"}, {"kind": "chat"}, {"kind": "chat/*"}]
PARTICIPANTS = ("owner", "writer", "player1", "player2", "attacker", "latecomer", "ghost")
MANY = tuple(f"worker-{number}" for number in range(12))


def space(name: str, *participants: str, **sections: Any) -> dict[str, Any]:
    return space_config(*participants, space=name, capabilities=dict.fromkeys(participants, PLAIN), **sections)


@pytest.fixture(scope="module")
def gateway(space_count: int) -> Iterator[GatewayProcess]:
    spaces = [space(f"space-{number}", *PARTICIPANTS) for number in range(space_count)]
    spaces.append(space("crowd", "owner", "latecomer", *MANY))
    for name in ("limited", "limited-http", "limited-auto-grant", "limited-transfer"):
        spaces.append(space(name, *PARTICIPANTS, mewstream={"limits": {"writers_per_stream": 3}}))
    spaces.append(space("grace", *PARTICIPANTS, mewstream={"policies": {"reconnect_grace": 600.0}}))
    with running_gateway({"spaces": spaces}) as process:
        yield process


def frames_in(messages: list[Any]) -> list[str | bytes]:
    return [each for each in messages if not isinstance(each, dict)]


def kinds_in(messages: list[Any]) -> list[str]:
    return [each["kind"] for each in messages if isinstance(each, dict)]


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


# -- Current Implementation Analysis --------------------------------------------------------------


async def test_a_request_is_answered_by_an_open_for_its_requester(stage: Stage) -> None:
    """seed 000, Stream Creation: stream/open from system:gateway to [requester], correlated; key insight 2."""
    owner, other = await stage.cast("owner", "writer")
    id = await owner.send("stream/request", {"direction": "upload"}, to=["gateway"])
    opened = await owner.receive("stream/open", of=id)
    assert (opened["protocol"], opened["from"], opened["to"]) == ("mew/v0.4", "system:gateway", ["owner"])
    assert opened["correlation_id"] == [id]
    assert opened["payload"]["owner"] == "owner"
    assert await other.receive("stream/open", of=id) == opened


async def test_all_fields_of_a_request_are_preserved(stage: Stage) -> None:
    """seed 000, Stream Creation, key insights 1 and 3: all payload fields, known and custom ones."""
    owner = await stage.join("owner")
    request = {
        "direction": "download",
        "description": "positions",
        "content_type": "application/json",
        "format": "seacat/character-position-v1",
        "expected_size_bytes": 1024,
        "metadata": {"character_id": "character-player1", "deep": [1, {"two": None}]},
        "my_own_field": ["kept"],
    }
    id = await owner.send("stream/request", request)
    opened = (await owner.receive("stream/open", of=id))["payload"]
    entry = await stage.late_view(opened["stream_id"])
    for key, value in request.items():
        assert opened[key] == entry[key] == value


async def test_stream_ids_are_sequential_per_space(stage: Stage) -> None:
    """seed 000, Stream Creation, key insight 4: ids count up per space; decision 12: never reused."""
    owner, other = await stage.cast("owner", "writer")
    assert [await owner.open_stream(), await other.open_stream()] == ["stream-1", "stream-2"]
    id = await other.send("stream/close", {"stream_id": "stream-2"})
    await other.wait_for(lambda message: isinstance(message, dict) and message["id"] == id)
    assert await owner.open_stream() == "stream-3"


@pytest.mark.parametrize("data", ["text", b"\x00\xff binary", "with # and ##", "", b""])
async def test_the_owners_frames_reach_everyone_as_they_were(stage: Stage, data: str | bytes) -> None:
    """seed 000, Stream Frame Validation: raw data to all participants, the sender too; text stays text."""
    owner, _ = await stage.cast("owner", "writer")
    await stage.accepted(owner, await owner.open_stream(), data)


async def test_only_the_owner_publishes_at_first(stage: Stage) -> None:
    """seed 000, Stream Frame Validation, key insights 1 to 3: owner only, others are dropped."""
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    await stage.rejected(writer, stream, "not mine")
    await stage.accepted(owner, stream, "mine")


async def test_an_unauthorized_publisher_is_told(stage: Stage) -> None:
    """seed 000, Stream Frame Validation, key insight 4 ("no error sent"): decision 9 sends one."""
    owner, writer = await stage.cast("owner", "writer")
    await stage.rejected(writer, await owner.open_stream(), "not mine")


async def test_the_welcome_lists_all_streams_of_all_owners(stage: Stage) -> None:
    """seed 000, Welcome Message with Active Streams, key insights 1 to 3: all, with metadata and owner."""
    owner, writer = await stage.cast("owner", "writer")
    first = await owner.open_stream(description="first", metadata={"n": 1})
    second = await writer.open_stream(description="second")
    welcome = (await stage.join("player1")).welcome
    assert welcome["payload"]["you"]["id"] == "player1"
    assert [each["id"] for each in welcome["payload"]["participants"]] == ["owner", "writer"]
    assert [each["stream_id"] for each in welcome["payload"]["active_streams"]] == [first, second]
    one, two = active_stream(welcome, first), active_stream(welcome, second)
    assert (one["owner"], one["description"], one["metadata"]) == ("owner", "first", {"n": 1})
    assert (two["owner"], two["description"], two["direction"]) == ("writer", "second", "upload")
    assert datetime.fromisoformat(one["created"]) <= datetime.fromisoformat(two["created"])


async def test_the_welcome_names_additional_writers(stage: Stage) -> None:
    """seed 000, Welcome Message with Active Streams, key insight 4: the limitation is gone."""
    owner, _ = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner", "writer"]


# -- Implementation Requirements ------------------------------------------------------------------


async def test_a_new_stream_has_its_owner_as_the_only_writer(stage: Stage) -> None:
    """seed 000, Implementation Requirements, 1: authorizedWriters exists from creation on."""
    owner = await stage.join("owner")
    id = await owner.send("stream/request", {"direction": "upload"})
    opened = await owner.receive("stream/open", of=id)
    assert opened["payload"]["authorized_writers"] == ["owner"]


async def test_the_three_kinds_are_acted_on(stage: Stage) -> None:
    """seed 000, Implementation Requirements, 2: grant adds, revoke removes, transfer changes the owner."""
    owner, _ = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    granted = await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    assert granted["authorized_writers"] == ["owner", "writer"]
    revoked = await stage.ask(owner, REVOKE, stream_id=stream, participant_id="writer")
    assert revoked["authorized_writers"] == ["owner"]
    transferred = await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="writer")
    assert transferred["new_owner"] == "writer"
    assert (await stage.late_view(stream))["owner"] == "writer"


async def test_the_error_for_an_unauthorized_frame(stage: Stage) -> None:
    """seed 000, Implementation Requirements, 3: the system/error of a frame, without a correlation."""
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    error = await stage.rejected(writer, stream, "not mine")
    assert (error["protocol"], error["from"], error["kind"]) == ("mew/v0.4", "system:gateway", "system/error")
    assert error["payload"]["error"] == "unauthorized_stream_write"
    assert stream in error["payload"]["message"]
    assert "correlation_id" not in error


async def test_a_frame_of_an_unknown_stream(stage: Stage) -> None:
    """seed 000, Implementation Requirements, 3 (streamInfo is missing): decision 9, stream_not_found."""
    owner, _ = await stage.cast("owner", "writer")
    await stage.rejected(owner, "stream-404", "nowhere", "stream_not_found")


async def test_active_streams_carry_authorized_writers(stage: Stage) -> None:
    """seed 000, Implementation Requirements, 4: the proposed entry has all of its fields."""
    owner = await stage.join("owner")
    stream = await owner.open_stream(description="d")
    entry = await stage.late_view(stream)
    assert {"stream_id", "owner", "authorized_writers", "direction", "created", "description"} <= entry.keys()
    assert entry["authorized_writers"] == ["owner"]


# -- TypeScript Type Updates ----------------------------------------------------------------------


@pytest.mark.parametrize("reason", [None, "Player claimed character control"])
async def test_payloads_of_grant_revoke_transfer_and_their_acknowledgements(stage: Stage, reason: str | None) -> None:
    """seed 000, New Protocol Types: the request payloads, reason being optional, and the acknowledgements."""
    owner, _ = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    why = {} if reason is None else {"reason": reason}
    told = await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer", **why)
    wanted = {"stream_id": stream, "participant_id": "writer", "authorized_writers": ["owner", "writer"]}
    assert {**told, **wanted, "reason": reason} == told
    told = await stage.ask(owner, REVOKE, stream_id=stream, participant_id="writer", **why)
    wanted = {"stream_id": stream, "participant_id": "writer", "authorized_writers": ["owner"]}
    assert {**told, **wanted, "reason": reason} == told
    told = await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="writer", **why)
    wanted = {"stream_id": stream, "previous_owner": "owner", "new_owner": "writer", "authorized_writers": ["writer"]}
    assert {**told, **wanted, "reason": reason} == told


@over_both
@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (GRANT, {"participant_id": "writer"}),
        (GRANT, {"stream_id": "stream-1"}),
        (GRANT, {"stream_id": 1, "participant_id": "writer"}),
        (GRANT, {"stream_id": "stream-1", "participant_id": ["writer"]}),
        (GRANT, {"stream_id": "stream-1", "participant_id": "writer", "reason": 7}),
        (REVOKE, {"participant_id": "writer"}),
        (REVOKE, {"stream_id": "stream-1"}),
        (TRANSFER, {"new_owner": "writer"}),
        (TRANSFER, {"stream_id": "stream-1"}),
        (TRANSFER, {"stream_id": "stream-1", "participant_id": "writer"}),
    ],
)
async def test_payloads_of_another_shape_are_refused(
    stage: Stage, transport: str, kind: str, payload: dict[str, Any]
) -> None:
    """seed 000, New Protocol Types: fields that are missing or of another type are a validation_error."""
    owner, _ = await stage.cast("owner", "writer")
    assert await owner.open_stream() == "stream-1"
    await stage.refused(transport, owner, kind, "validation_error", **payload)
    assert (await stage.late_view("stream-1"))["authorized_writers"] == ["owner"]


# -- Security Analysis, Threat Model --------------------------------------------------------------


async def test_threat_unauthorized_frame_publishing(stage: Stage) -> None:
    """seed 000, Threat Model, 1: frames to someone else's stream are dropped, the sender gets an error."""
    owner, attacker = await stage.cast("owner", "attacker")
    stream = await owner.open_stream()
    await stage.rejected(attacker, stream, "forged")
    await attacker.send_raw(b"#%b#forged too" % stream.encode())
    await attacker.send("stream/data", {"stream_id": stream, "sequence": 1, "content": "forged as an envelope"})
    await attacker.error("unauthorized_stream_write")
    assert not frames_in(await attacker.settle())
    assert not frames_in(messages := await owner.settle())
    assert "stream/data" not in kinds_in(messages)


@over_both
async def test_threat_authorization_bypass(stage: Stage, transport: str) -> None:
    """seed 000, Threat Model, 2: a grant for a stream of somebody else is refused and not relayed."""
    owner, attacker = await stage.cast("owner", "attacker")
    stream = await owner.open_stream()
    for kind in (GRANT, REVOKE):
        await stage.refused(transport, attacker, kind, "unauthorized", stream_id=stream, participant_id="attacker")
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner"]
    await stage.rejected(attacker, stream, "still not")


@over_both
async def test_threat_ownership_hijacking(stage: Stage, transport: str) -> None:
    """seed 000, Threat Model, 3: a transfer of a stream of somebody else is refused."""
    owner, attacker = await stage.cast("owner", "attacker")
    stream = await owner.open_stream()
    await stage.refused(transport, attacker, TRANSFER, "unauthorized", stream_id=stream, new_owner="attacker")
    await stage.refused(transport, attacker, "stream/close", "unauthorized", stream_id=stream)
    assert (await stage.late_view(stream))["owner"] == "owner"
    await stage.accepted(owner, stream, "still mine")


@over_both
async def test_threat_denial_of_service(stages: Callable[[str], Stage], transport: str) -> None:
    """seed 000, Threat Model, 4 and Open Questions, 3, option C: writers_per_stream, decision 19."""
    stage = stages("limited" if transport == "socket" else "limited-http")
    owner, *_ = await stage.cast("owner", "writer", "player1", "player2")
    stream = await owner.open_stream()
    for participant in ("writer", "player1"):
        await stage.ask(owner, GRANT, stream_id=stream, participant_id=participant)
    error = await stage.refused(transport, owner, GRANT, "limit_exceeded", stream_id=stream, participant_id="player2")
    assert error["payload"]["limit"] == "writers_per_stream"
    # One who is a writer already takes no room, and one who goes makes room.
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    await stage.ask(owner, REVOKE, stream_id=stream, participant_id="writer")
    told = await stage.ask(owner, GRANT, stream_id=stream, participant_id="player2")
    assert told["authorized_writers"] == ["owner", "player1", "player2"]


async def test_the_limit_holds_for_standing_grants_too(stages: Callable[[str], Stage]) -> None:
    """seed 000, Threat Model, 4: auto_grant is no way around writers_per_stream, at open or at a join."""
    stage = stages("limited-auto-grant")
    owner, *_ = await stage.cast("owner", "player1", "player2")
    too_many = ["writer", "player1", "player2"]
    error = await stage.refused("socket", owner, "stream/request", "limit_exceeded", auto_grant=too_many)
    assert error["payload"]["limit"] == "writers_per_stream"
    stream = await owner.open_stream(auto_grant=["writer"])
    for participant in ("player1", "player2"):
        await stage.ask(owner, GRANT, stream_id=stream, participant_id=participant)
    await stage.join("writer")
    assert len((await stage.late_view(stream))["authorized_writers"]) == 3


async def test_the_limit_holds_for_a_transfer_that_retains_write(stages: Callable[[str], Stage]) -> None:
    """seed 000, Threat Model, 4: retain_write is no way around writers_per_stream."""
    stage = stages("limited-transfer")
    owner, *_ = await stage.cast("owner", "writer", "player1", "player2")
    stream = await owner.open_stream()
    for participant in ("writer", "player1"):
        await stage.ask(owner, GRANT, stream_id=stream, participant_id=participant)
    await owner.send(TRANSFER, {"stream_id": stream, "new_owner": "player2", "retain_write": True})
    await owner.settle()
    assert len((await stage.late_view(stream))["authorized_writers"]) <= 3
    # What fits is possible: the new owner takes the place of the old one.
    told = await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="player2")
    assert told["authorized_writers"] == ["player2", "writer", "player1"]


async def test_threat_late_joiner_confusion(stage: Stage) -> None:
    """seed 000, Threat Model, 5: a late joiner never sees a writer that is gone."""
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    await stage.leave(writer)
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner"]


# -- Security Analysis, Security Properties -------------------------------------------------------


@over_both
@pytest.mark.parametrize(
    "kind", ["system/welcome", "system/error", "system/presence", "stream/open", GRANTED, REVOKED, TRANSFERRED]
)
async def test_only_the_gateway_sends_its_own_kinds(stage: Stage, transport: str, kind: str) -> None:
    """seed 000, Security Properties, Maintained, 1: system/* (and by decision 21 the acknowledgements)."""
    attacker, _ = await stage.cast("attacker", "owner")
    await stage.refused(transport, attacker, kind, "reserved_kind", stream_id="stream-1")


@pytest.mark.parametrize("sender", ["owner", "system:gateway"])
async def test_nobody_can_spoof_from(stage: Stage, sender: str) -> None:
    """seed 000, Security Properties, Maintained, 2: a wrong from is refused, by socket and HTTP."""
    owner, attacker = await stage.cast("owner", "attacker")
    stream = await owner.open_stream()
    payload = {"stream_id": stream, "participant_id": "attacker"}
    id = await attacker.send(GRANT, payload, **{"from": sender})
    await attacker.error("unauthorized", of=id)
    status, body = await stage.post("attacker", GRANT, payload, **{"from": sender})
    assert (status, body["payload"]["error"]) == (403, "unauthorized")
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner"]
    id = await owner.send(GRANT, payload, **{"from": "owner"})
    await owner.receive(GRANTED, of=id)


async def test_ownership_is_explicitly_tracked(stage: Stage) -> None:
    """seed 000, Security Properties, Maintained, 3: no request can pose as another's (decision 23)."""
    attacker, _ = await stage.cast("attacker", "owner")
    forged = {
        "owner": "owner",
        "participantId": "owner",
        "authorized_writers": ["owner", "player1"],
        "authorizedWriters": ["player1"],
        "stream_id": "stream-77",
        "created": "1970-01-01T00:00:00Z",
    }
    stream = await attacker.open_stream(**forged)
    assert stream == "stream-1"
    entry = await stage.late_view(stream)
    assert (entry["owner"], entry["authorized_writers"]) == ("attacker", ["attacker"])
    assert entry["created"] != forged["created"]
    await stage.rejected(await stage.join("player1"), stream, "by a forged list")


async def test_authorization_changes_are_protocol_messages(stage: Stage) -> None:
    """seed 000, Security Properties, Maintained, 4: each change is seen by all, with who asked and why."""
    owner, _, bystander = await stage.cast("owner", "writer", "player1")
    stream = await owner.open_stream()
    asked = []
    for kind, who in ((GRANT, "participant_id"), (REVOKE, "participant_id"), (TRANSFER, "new_owner")):
        asked.append(await owner.send(kind, {"stream_id": stream, who: "writer", "reason": f"why {kind}"}))
    await owner.settle()
    seen = [each for each in await bystander.settle() if isinstance(each, dict) and each["kind"] != "system/presence"]
    requests = [each for each in seen if each["from"] == "owner" and each["id"] in asked]
    assert [(each["kind"], each["payload"]["reason"]) for each in requests] == [
        (kind, f"why {kind}") for kind in (GRANT, REVOKE, TRANSFER)
    ]
    acknowledged = [(each["kind"], each["correlation_id"]) for each in seen if each["kind"].endswith(("ed",))]
    assert acknowledged == list(zip((GRANTED, REVOKED, TRANSFERRED), ([id] for id in asked), strict=True))


async def test_only_the_owner_grants_revokes_and_transfers(stage: Stage) -> None:
    """seed 000, Security Properties, New, 1: not a stranger, and not a writer either (decision 1)."""
    owner, writer, _ = await stage.cast("owner", "writer", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    for client in (writer, await stage.join("attacker")):
        for kind in (GRANT, REVOKE):
            await stage.refused("socket", client, kind, "unauthorized", stream_id=stream, participant_id="player1")
        await stage.refused("socket", client, TRANSFER, "unauthorized", stream_id=stream, new_owner=client.participant)


async def test_writers_are_verified_on_every_frame(stage: Stage) -> None:
    """seed 000, Security Properties, New, 2: the answer changes with the right, frame by frame."""
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    for number in range(3):
        await stage.rejected(writer, stream, f"before {number}")
        await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
        await stage.accepted(writer, stream, f"while {number}")
        await stage.ask(owner, REVOKE, stream_id=stream, participant_id="writer")


async def test_late_joiners_see_the_current_state(stage: Stage) -> None:
    """seed 000, Security Properties, New, 3: after each change, the welcome shows it."""
    owner, _ = await stage.cast("owner", "writer")
    stream = await owner.open_stream()

    async def view() -> tuple[str, list[str]]:
        entry = await stage.late_view(stream)
        return entry["owner"], entry["authorized_writers"]

    assert await view() == ("owner", ["owner"])
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    assert await view() == ("owner", ["owner", "writer"])
    await stage.ask(owner, REVOKE, stream_id=stream, participant_id="writer")
    assert await view() == ("owner", ["owner"])
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="writer")
    assert await view() == ("writer", ["writer"])


@over_both
async def test_the_owner_cannot_lose_write_access(stage: Stage, transport: str) -> None:
    """seed 000, Security Properties, New, 4: the owner is always among the writers."""
    owner = await stage.join("owner")
    stream = await owner.open_stream()
    await stage.refused(transport, owner, REVOKE, "invalid_operation", stream_id=stream, participant_id="owner")
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner"]
    await stage.leave(owner)
    entry = await stage.late_view(stream)
    assert (entry["owner"], entry["authorized_writers"], entry["owner_connected"]) == ("owner", ["owner"], False)
    await stage.accepted(await stage.join("owner"), stream, "back, and still the owner")


# -- Edge Cases -----------------------------------------------------------------------------------


async def test_edge_owner_grants_self(stage: Stage) -> None:
    """seed 000, Edge Cases, 1: allowed, changes nothing."""
    owner, _ = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    told = await stage.ask(owner, GRANT, stream_id=stream, participant_id="owner")
    assert told["authorized_writers"] == ["owner"]
    await stage.accepted(owner, stream, "as ever")


@over_both
async def test_edge_owner_revokes_self(stage: Stage, transport: str) -> None:
    """seed 000, Edge Cases, 2: rejected (decision 5: invalid_operation)."""
    owner, _ = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    await stage.refused(transport, owner, REVOKE, "invalid_operation", stream_id=stream, participant_id="owner")
    await stage.accepted(owner, stream, "as ever")


@over_both
@pytest.mark.parametrize("absent", ["ghost", "player-offline", "gone"])
async def test_edge_grant_to_a_disconnected_participant(stage: Stage, transport: str, absent: str) -> None:
    """seed 000, Edge Cases, 3: an error, whether one never came, does not exist, or has left (decision 4)."""
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    if absent == "gone":
        await stage.leave(writer)
        absent = "writer"
    await stage.refused(transport, owner, GRANT, "participant_not_found", stream_id=stream, participant_id=absent)
    # The alternative, authorization in advance, is not what happens.
    assert absent not in (await stage.late_view(stream))["authorized_writers"]
    if absent != "player-offline":
        await stage.rejected(await stage.join(absent), stream, "not in advance")


@over_both
async def test_edge_transfer_to_a_disconnected_participant(stage: Stage, transport: str) -> None:
    """seed 000, Edge Cases, 4: rejected, and the owner stays the owner."""
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    await stage.leave(writer)
    for absent in ("writer", "ghost", "player-offline"):
        await stage.refused(transport, owner, TRANSFER, "participant_not_found", stream_id=stream, new_owner=absent)
    assert (await stage.late_view(stream))["owner"] == "owner"


async def test_edge_writer_publishes_after_revoke(stage: Stage) -> None:
    """seed 000, Edge Cases, 5: the frame after the revoke is dropped; option A: the writer was told."""
    owner, player1 = await stage.cast("owner", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    await stage.accepted(player1, stream, "moving")
    await stage.ask(owner, REVOKE, stream_id=stream, participant_id="player1")
    told = await player1.receive(REVOKED, stream_id=stream, participant_id="player1")
    assert told["payload"]["authorized_writers"] == ["owner"]
    await stage.rejected(player1, stream, "moving on")


async def test_edge_revoke_in_the_middle_of_a_flood_of_frames(stage: Stage) -> None:
    """seed 000, Edge Cases, 5: no frame of the writer has a higher seq than the revoke (DESIGN, "One idea")."""
    owner, player1 = await stage.cast("owner", "player1")
    observer = await stage.join("player2", extensions=["positions"])
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")

    async def flood() -> None:
        for number in range(500):
            await player1.frame(stream, f"frame {number}")

    async def revoke() -> None:
        await owner.receive_frame(stream)
        await stage.ask(owner, REVOKE, stream_id=stream, participant_id="player1")

    await asyncio.gather(flood(), revoke())
    await player1.settle()
    seen = await observer.settle()
    (revoked,) = [each for each in seen if isinstance(each, dict) and each["kind"] == REVOKED]
    positions = [int(each.split("|")[1]) for each in seen if isinstance(each, str)]
    assert positions == sorted(positions)
    assert positions[0] < revoked["seq"] and positions[-1] < revoked["seq"]
    assert all(each.split("#")[1].endswith("|player1") for each in seen if isinstance(each, str))
    assert seen.index(revoked) > max(index for index, each in enumerate(seen) if isinstance(each, str))


async def test_edge_ownership_transfer_loop(stage: Stage) -> None:
    """seed 000, Edge Cases, 6: there and back again, any number of times."""
    owner, other = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    for number in range(3):
        await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="writer")
        told = await stage.ask(other, TRANSFER, stream_id=stream, new_owner="owner")
        assert (told["previous_owner"], told["new_owner"]) == ("writer", "owner")
        assert told["authorized_writers"] == ["owner"]
        await stage.accepted(owner, stream, f"mine again {number}")


async def test_edge_multiple_simultaneous_grants(stage: Stage) -> None:
    """seed 000, Edge Cases, 7: grants in rapid succession are processed one by one, in order."""
    owner, *_ = await stage.cast("owner", "player1", "player2")
    stream = await owner.open_stream()
    ids = [await owner.send(GRANT, {"stream_id": stream, "participant_id": each}) for each in ("player1", "player2")]
    lists = [(await owner.receive(GRANTED, of=id))["payload"]["authorized_writers"] for id in ids]
    assert lists == [["owner", "player1"], ["owner", "player1", "player2"]]


async def test_edge_simultaneous_grants_over_socket_and_http(stage: Stage) -> None:
    """seed 000, Edge Cases, 7: whatever the order of arrival, no grant is lost."""
    owner, *others = await stage.cast("owner", "writer", "player1", "player2", "attacker")
    stream = await owner.open_stream()
    names = [each.participant for each in others]
    answers = await asyncio.gather(
        *(stage.post("owner", GRANT, {"stream_id": stream, "participant_id": name}) for name in names[:2]),
        *(owner.send(GRANT, {"stream_id": stream, "participant_id": name}) for name in names[2:]),
    )
    assert [status for status, _ in answers[:2]] == [200, 200]
    await owner.settle()
    writers = (await stage.late_view(stream))["authorized_writers"]
    assert writers[0] == "owner" and sorted(writers[1:]) == sorted(names)


@pytest.mark.parametrize("by", ["stream_id", "request", "open"])
async def test_edge_stream_close_with_active_writers(stage: Stage, by: str) -> None:
    """seed 000, Edge Cases, 8: gone from active_streams, all frames are dropped, everyone is told (decision 8)."""
    owner, player1, bystander = await stage.cast("owner", "player1", "player2")
    request = await owner.send("stream/request", {"direction": "upload"})
    opened = await owner.receive("stream/open", of=request)
    stream = opened["payload"]["stream_id"]
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    if by == "stream_id":
        await owner.send("stream/close", {"stream_id": stream})
    else:
        await owner.send("stream/close", {}, correlation_id=[request if by == "request" else opened["id"]])
    for client in (owner, player1, bystander):
        assert (await client.receive("stream/close"))["payload"]["stream_id"] == stream
    for client in (owner, player1):
        await stage.rejected(client, stream, f"{client.participant} after the close", "stream_not_found")
    assert (await stage.join("latecomer")).welcome["payload"]["active_streams"] == []
    await stage.refused("socket", owner, GRANT, "stream_not_found", stream_id=stream, participant_id="player2")


# -- Performance Considerations -------------------------------------------------------------------


async def test_a_revoked_writer_is_removed_from_the_array(stage: Stage) -> None:
    """seed 000, Memory Impact: revoke removes from the array; repeated grants do not make it grow."""
    owner, *_ = await stage.cast("owner", "player1", "player2")
    stream = await owner.open_stream()
    for _ in range(20):
        for participant in ("player1", "player2", "player1"):
            await stage.ask(owner, GRANT, stream_id=stream, participant_id=participant)
        told = await stage.ask(owner, REVOKE, stream_id=stream, participant_id="player1")
        assert told["authorized_writers"] == ["owner", "player2"]
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner", "player2"]


async def test_more_than_ten_writers(stages: Callable[[str], Stage]) -> None:
    """seed 000, CPU Impact and Open Questions, 3, option A: no small fixed number; each one may write."""
    stage = stages("crowd")
    owner, *workers = await stage.cast("owner", *MANY)
    stream = await owner.open_stream()
    for worker in workers:
        await stage.ask(owner, GRANT, stream_id=stream, participant_id=worker.participant)
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner", *MANY]
    for worker in workers:
        await stage.accepted(worker, stream, f"result of {worker.participant}")


# -- Testing Plan, Unit Tests ---------------------------------------------------------------------


async def test_unit_1_grant_from_owner(stage: Stage) -> None:
    """seed 000, Testing Plan, Unit Tests, 1: grant-write from owner -> adds to authorized_writers."""
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    told = await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    assert told["authorized_writers"] == ["owner", "writer"]
    await stage.accepted(writer, stream, "granted")


@over_both
async def test_unit_2_grant_from_non_owner(stage: Stage, transport: str) -> None:
    """seed 000, Testing Plan, Unit Tests, 2: grant-write from non-owner -> returns error."""
    owner, writer, _ = await stage.cast("owner", "writer", "player1")
    stream = await owner.open_stream()
    await stage.refused(transport, writer, GRANT, "unauthorized", stream_id=stream, participant_id="player1")


@over_both
async def test_unit_3_grant_to_non_existent_participant(stage: Stage, transport: str) -> None:
    """seed 000, Testing Plan, Unit Tests, 3: grant-write to non-existent participant -> returns error."""
    owner, _ = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    error = await stage.refused(
        transport, owner, GRANT, "participant_not_found", stream_id=stream, participant_id="nobody"
    )
    assert "nobody" in error["payload"]["message"]


async def test_unit_4_duplicate_grant(stage: Stage) -> None:
    """seed 000, Testing Plan, Unit Tests, 4: duplicate grant -> idempotent success."""
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    first = await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    assert await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer") == first
    await stage.accepted(writer, stream, "granted once")


async def test_unit_5_revoke_from_owner(stage: Stage) -> None:
    """seed 000, Testing Plan, Unit Tests, 5: revoke-write from owner -> removes from authorized_writers."""
    owner, writer, player1 = await stage.cast("owner", "writer", "player1")
    stream = await owner.open_stream()
    for participant in ("writer", "player1"):
        await stage.ask(owner, GRANT, stream_id=stream, participant_id=participant)
    told = await stage.ask(owner, REVOKE, stream_id=stream, participant_id="writer")
    assert told["authorized_writers"] == ["owner", "player1"]
    await stage.rejected(writer, stream, "revoked")
    await stage.accepted(player1, stream, "not revoked")


@over_both
async def test_unit_6_revoke_of_owner(stage: Stage, transport: str) -> None:
    """seed 000, Testing Plan, Unit Tests, 6: revoke-write of owner (self) -> returns error."""
    owner, _ = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    await stage.refused(transport, owner, REVOKE, "invalid_operation", stream_id=stream, participant_id="owner")


@pytest.mark.parametrize("participant", ["writer", "ghost", "nobody"])
async def test_unit_7_revoke_of_non_authorized(stage: Stage, participant: str) -> None:
    """seed 000, Testing Plan, Unit Tests, 7: revoke-write of non-authorized participant -> idempotent success."""
    owner, _ = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    for _ in range(2):
        told = await stage.ask(owner, REVOKE, stream_id=stream, participant_id=participant)
        assert told["authorized_writers"] == ["owner"]


async def test_unit_8_transfer_from_owner(stage: Stage) -> None:
    """seed 000, Testing Plan, Unit Tests, 8: transfer-ownership from owner -> changes owner."""
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    told = await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="writer")
    assert (told["previous_owner"], told["new_owner"]) == ("owner", "writer")
    assert (await stage.late_view(stream))["owner"] == "writer"
    # The new one may do what the old one could, the old one may not any more.
    await stage.refused("socket", owner, GRANT, "unauthorized", stream_id=stream, participant_id="owner")
    await stage.ask(writer, GRANT, stream_id=stream, participant_id="owner")


@over_both
async def test_unit_9_transfer_from_non_owner(stage: Stage, transport: str) -> None:
    """seed 000, Testing Plan, Unit Tests, 9: transfer-ownership from non-owner -> returns error."""
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    await stage.refused(transport, writer, TRANSFER, "unauthorized", stream_id=stream, new_owner="writer")
    assert (await stage.late_view(stream))["owner"] == "owner"


@over_both
async def test_unit_10_transfer_to_non_existent_participant(stage: Stage, transport: str) -> None:
    """seed 000, Testing Plan, Unit Tests, 10: transfer-ownership to non-existent participant -> returns error."""
    owner, _ = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    await stage.refused(transport, owner, TRANSFER, "participant_not_found", stream_id=stream, new_owner="nobody")
    assert (await stage.late_view(stream))["owner"] == "owner"


# -- Testing Plan, Integration Tests --------------------------------------------------------------


async def walk_the_sequence(gateway: GatewayProcess) -> None:
    """The fourteen steps, in a gateway with one space of stream-owner, stream-writer and verifier."""

    async def published(writer: Client, data: str, *everyone: Client) -> None:
        await writer.frame(stream, data)
        for client in everyone:
            assert await client.receive_frame(stream) == data

    async def refused(writer: Client, data: str, *everyone: Client) -> None:
        await writer.frame(stream, data)
        error = await writer.error("unauthorized_stream_write")
        assert error["payload"]["stream_id"] == stream
        for client in everyone:
            assert not frames_in(await client.settle())

    # step 1: stream-owner connects, requests stream
    owner = await gateway.join("stream-owner")
    request = {"direction": "upload", "description": "Test stream", "content_type": "text/plain"}
    id = await owner.send("stream/request", request, to=["gateway"])
    stream = (await owner.receive("stream/open", of=id))["payload"]["stream_id"]
    # step 2: stream-owner can publish frames
    await published(owner, "Frame from owner", owner)
    # step 3: stream-writer connects (late joiner)
    writer = await gateway.join("stream-writer")
    # step 4: stream-writer sees owner in authorized_writers
    assert active_stream(writer.welcome, stream)["authorized_writers"] == ["stream-owner"]
    # step 5: stream-writer attempts to publish -> rejected
    await refused(writer, "too early", owner, writer)
    # step 6: stream-owner grants write to stream-writer
    grant = {"stream_id": stream, "participant_id": "stream-writer"}
    await owner.receive(GRANTED, of=await owner.send(GRANT, grant, to=["gateway"]))
    # step 7: stream-writer publishes frames -> accepted
    await published(writer, "Frame from writer", owner, writer)
    # step 8: verifier connects (late joiner)
    verifier = await gateway.join("verifier")
    # step 9: verifier sees both owner and writer in authorized_writers
    entry = active_stream(verifier.welcome, stream)
    assert (entry["owner"], entry["authorized_writers"]) == ("stream-owner", ["stream-owner", "stream-writer"])
    # step 10: stream-owner revokes stream-writer
    await owner.receive(REVOKED, of=await owner.send(REVOKE, grant, to=["gateway"]))
    # step 11: stream-writer attempts to publish -> rejected
    await refused(writer, "too late", owner, writer, verifier)
    # step 12: stream-owner transfers ownership to stream-writer
    transfer = {"stream_id": stream, "new_owner": "stream-writer"}
    await owner.receive(TRANSFERRED, of=await owner.send(TRANSFER, transfer, to=["gateway"]))
    # step 13: stream-writer (now owner) publishes frames -> accepted
    await published(writer, "Frame from new owner", owner, writer, verifier)
    # step 14: stream-owner attempts to publish -> rejected (no longer owner)
    await refused(owner, "no longer mine", owner, writer, verifier)
    for client in (owner, writer, verifier):
        await client.close()


def scenario_space(**sections: Any) -> dict[str, Any]:
    return space("scenario-16", "stream-owner", "stream-writer", "verifier", **sections)


async def test_the_sequence_of_fourteen_steps() -> None:
    """seed 000, Testing Plan, Integration Tests, Test sequence, 1 to 14."""
    with running_gateway(scenario_space()) as gateway:
        await walk_the_sequence(gateway)


async def test_check_sh(tmp_path: Path) -> None:
    """seed 000, E2E Test Implementation, check.sh: its five greps of the envelope history."""
    logging = {"enabled": True, "envelope_history": {"enabled": True}}
    gateway = GatewayProcess(tmp_path, scenario_space(gateway_logging=logging)).start()
    try:
        await walk_the_sequence(gateway)
    finally:
        gateway.stop()
    text = (tmp_path / ".mew/logs/envelope-history.jsonl").read_text()
    lines = text.splitlines()
    # 1 to 4: the messages were sent
    for kind in ("stream/open", GRANT, REVOKE, TRANSFER):
        assert any(f'"kind":"{kind}"' in line for line in lines), f"FAIL: No {kind} message"
    # 5: authorized_writers in the last welcome message
    welcomes = [line for line in lines if '"kind":"system/welcome"' in line]
    assert '"authorized_writers"' in welcomes[-1], "FAIL: No authorized_writers in welcome message"

    # Beyond the script: every change of rights came in once and went out to everyone, and no secret did.
    entries = [json.loads(line) for line in lines]
    for kind in (GRANT, REVOKE, TRANSFER, GRANTED, REVOKED, TRANSFERRED):
        of_kind = [each for each in entries if each["envelope"] and each["envelope"]["kind"] == kind]
        received = [each["participant"] for each in of_kind if each["event"] == "received"]
        delivered = {each["participant"] for each in of_kind if each["event"] == "delivered"}
        assert received == (["stream-owner"] if kind in (GRANT, REVOKE, TRANSFER) else [])
        assert delivered >= {"stream-owner", "stream-writer"}
    assert not any(token_of(each) in text for each in ("stream-owner", "stream-writer", "verifier"))
    assert "Frame from owner" not in text


async def test_stream_owner_script(stage: Stage) -> None:
    """seed 000, E2E Test Implementation, stream-owner.cjs: an agent that acts on signals in the chat."""
    owner, writer = await stage.cast("owner", "writer")
    signals = {
        "grant-access": (GRANT, "participant_id"),
        "revoke-access": (REVOKE, "participant_id"),
        "transfer-ownership": (TRANSFER, "new_owner"),
    }

    async def agent() -> None:
        request = {"direction": "upload", "description": "Test stream", "content_type": "text/plain"}
        id = await owner.send("stream/request", request, to=["gateway"])
        stream = (await owner.receive("stream/open", of=id))["payload"]["stream_id"]
        await owner.frame(stream, "Frame from owner")
        for signal, (kind, who) in signals.items():
            await owner.receive("chat", text=signal)
            await owner.send(kind, {"stream_id": stream, who: "writer"}, to=["gateway"])

    running = asyncio.create_task(agent())
    stream = (await writer.receive("stream/open"))["payload"]["stream_id"]
    assert await writer.receive_frame(stream) == "Frame from owner"
    writers = []
    for signal, told in zip(signals, (GRANTED, REVOKED, TRANSFERRED), strict=True):
        await writer.send("chat", {"text": signal}, to=["owner"])
        writers.append((await writer.receive(told))["payload"]["authorized_writers"])
    assert writers == [["owner", "writer"], ["owner"], ["writer"]]
    await running


# -- Open Questions & Recommendations -------------------------------------------------------------


async def test_question_1_auto_revoke_on_disconnect(stage: Stage) -> None:
    """seed 000, Open Questions, 1, option A: all rights of a writer that leaves are revoked, and told."""
    owner, writer, player1 = await stage.cast("owner", "writer", "player1")
    streams = [await owner.open_stream() for _ in range(2)]
    its_own = await writer.open_stream()
    for stream in streams:
        for participant in ("writer", "player1"):
            await stage.ask(owner, GRANT, stream_id=stream, participant_id=participant)
    await stage.leave(writer)
    for client in (owner, player1):
        for stream in streams:
            told = await client.receive(REVOKED, stream_id=stream)
            assert (told["from"], told["payload"]["participant_id"]) == ("system:gateway", "writer")
            assert told["payload"]["reason"] == "disconnected"
            assert told["payload"]["authorized_writers"] == ["owner", "player1"]
        # streamInfo.participantId !== participantId: one's own stream is not touched.
        assert REVOKED not in kinds_in(await client.settle())
    assert (await stage.late_view(its_own))["authorized_writers"] == ["writer"]
    # Not option B: who comes back has to be granted again.
    writer = await stage.join("writer")
    await stage.rejected(writer, streams[0], "back, but no writer")
    await stage.ask(owner, GRANT, stream_id=streams[0], participant_id="writer")
    await stage.accepted(writer, streams[0], "granted again")


async def test_question_1_auto_revoke_waits_for_the_reconnect_grace(stages: Callable[[str], Stage]) -> None:
    """seed 000, Open Questions, 1, option B is a setting: within reconnect_grace rights are kept (decision 6)."""
    stage = stages("grace")
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    stage.clients.remove(writer)
    writer.connection.transport.abort()
    # Who is suspended counts as present (decision 4).
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    writer = await stage.join("writer")
    assert active_stream(writer.welcome, stream)["authorized_writers"] == ["owner", "writer"]
    await stage.accepted(writer, stream, "continued")
    assert REVOKED not in kinds_in(owner.got)


async def test_question_1_a_replaced_connection_takes_nothing_away(stage: Stage) -> None:
    """seed 000, Open Questions, 1: the close of a connection that was replaced revokes nothing (decision 22)."""
    owner, old = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    stage.clients.remove(old)
    new = await stage.join("writer")
    await old.closed()
    await stage.accepted(new, stream, "still a writer")
    assert REVOKED not in kinds_in(owner.got)


async def test_question_2_revocation_is_broadcast(stage: Stage) -> None:
    """seed 000, Open Questions, 2, option C: everyone is told of a revoke, correlated to its request."""
    owner, *others = await stage.cast("owner", "writer", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    id = await owner.send(REVOKE, {"stream_id": stream, "participant_id": "writer"})
    told = await owner.receive(REVOKED, of=id)
    assert told["payload"]["authorized_writers"] == ["owner"]
    for client in others:
        assert await client.receive(REVOKED, of=id) == told


async def test_question_4_transfers_need_no_acceptance(stage: Stage) -> None:
    """seed 000, Open Questions, 4, option B: immediate; an unwanted stream can be handed back at once."""
    owner, other = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="writer")
    assert (await stage.late_view(stream))["owner"] == "writer"
    await stage.ask(other, TRANSFER, stream_id=stream, new_owner="owner", reason="unwanted")
    assert (await stage.late_view(stream))["owner"] == "owner"


async def test_question_5_unauthorized_frames_are_answered_to_the_sender_only(stage: Stage) -> None:
    """seed 000, Open Questions, 5, option A: an error to the sender, not to everyone, without correlation."""
    owner, writer, bystander = await stage.cast("owner", "writer", "player1")
    error = await stage.rejected(writer, await owner.open_stream(), "not mine")
    assert "correlation_id" not in error
    for client in (owner, bystander):
        assert "system/error" not in kinds_in(client.got)


async def test_question_5_a_flood_is_summed_up(stage: Stage) -> None:
    """seed 000, Open Questions, 5: the first is reported, a flood of the same with a count (decision 9)."""
    owner, writer = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    for number in range(200):
        await writer.frame(stream, f"flood {number}")
    await writer.error("unauthorized_stream_write")
    reported = 1
    while reported < 200:
        error = await writer.error("unauthorized_stream_write")
        assert error["payload"]["stream_id"] == stream
        assert error["payload"].get("count", 1) > 1, "each one is reported by itself"
        reported += error["payload"]["count"]
    assert reported == 200
    assert not frames_in(await owner.settle())


# -- Backward Compatibility Analysis --------------------------------------------------------------


async def test_a_client_that_ignores_everything_new_still_works(stage: Stage) -> None:
    """seed 000, Existing Clients and Migration Path, Phase 1: owner-only writes, extra fields and kinds ignored."""
    old, new, _ = await stage.cast("owner", "writer", "player1")
    mine = await old.open_stream()
    theirs = await new.open_stream()
    await stage.ask(new, GRANT, stream_id=theirs, participant_id="player1")
    await stage.ask(new, TRANSFER, stream_id=theirs, new_owner="player1")
    # What an old client looks at is as before, whatever else goes on around it.
    await stage.accepted(old, mine, "#as#ever#")
    await stage.rejected(new, mine, "nobody was granted anything here")
    entry = await stage.late_view(mine)
    assert (entry["stream_id"], entry["owner"], entry["direction"]) == (mine, "owner", "upload")
    await old.send("stream/close", {"stream_id": mine})
    await old.receive("stream/close", stream_id=mine)


async def test_unknown_kinds_are_relayed_and_change_nothing(stage: Stage) -> None:
    """seed 000, Existing Gateways: a kind that is not known is no error and has no effect."""
    owner, other = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    id = await owner.send("stream/grant-everything", {"stream_id": stream, "participant_id": "writer"})
    relayed = await other.receive("stream/grant-everything")
    assert relayed["id"] == id
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner"]
    assert "system/error" not in kinds_in(owner.got + other.got)


# -- Future Extensions (1 to 3 are in scope by DESIGN) --------------------------------------------


async def test_future_1_a_private_stream(stage: Stage) -> None:
    """seed 000, Future Extensions, 1: frames reach the readers only; target is the initial set (decision 16)."""
    owner, friend, stranger = await stage.cast("owner", "player1", "player2")
    stream = await owner.open_stream(target=["player1"])
    assert (await stage.late_view(stream))["authorized_readers"] == ["player1"]
    await owner.frame(stream, "psst")
    assert await friend.receive_frame(stream) == "psst"
    assert not frames_in(await stranger.settle())

    told = await stage.ask(owner, GRANT_READ, stream_id=stream, participant_id="player2", reason="friend of a friend")
    assert (told["participant_id"], told["authorized_readers"]) == ("player2", ["player1", "player2"])
    assert told["reason"] == "friend of a friend"
    await owner.frame(stream, "for both")
    for client in (friend, stranger):
        assert await client.receive_frame(stream) == "for both"

    told = await stage.ask(owner, REVOKE_READ, stream_id=stream, participant_id="player1")
    assert told["authorized_readers"] == ["player2"]
    await owner.frame(stream, "for one")
    assert await stranger.receive_frame(stream) == "for one"
    assert not frames_in(await friend.settle())
    assert (await stage.late_view(stream))["authorized_readers"] == ["player2"]


async def test_future_1_without_a_set_everyone_reads(stage: Stage) -> None:
    """seed 000, Future Extensions, 1: a grant to read takes nothing away from the others; a revoke does from one."""
    owner, one, other = await stage.cast("owner", "player1", "player2")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT_READ, stream_id=stream, participant_id="player1")
    await stage.accepted(owner, stream, "for everyone")
    await stage.ask(owner, REVOKE_READ, stream_id=stream, participant_id="player1")
    await owner.frame(stream, "for everyone but one")
    assert await owner.receive_frame(stream) == await other.receive_frame(stream) == "for everyone but one"
    assert not frames_in(await one.settle())


@over_both
@pytest.mark.parametrize("kind", [GRANT_READ, REVOKE_READ])
async def test_future_1_errors(stage: Stage, transport: str, kind: str) -> None:
    """seed 000, Future Extensions, 1: the same error conditions as for writing."""
    owner, attacker = await stage.cast("owner", "attacker")
    stream = await owner.open_stream(target=["owner"])
    await stage.refused(transport, owner, kind, "stream_not_found", stream_id="stream-9", participant_id="attacker")
    await stage.refused(transport, attacker, kind, "unauthorized", stream_id=stream, participant_id="attacker")
    await stage.refused(transport, owner, kind, "validation_error", stream_id=stream)
    if kind == GRANT_READ:
        await stage.refused(transport, owner, kind, "participant_not_found", stream_id=stream, participant_id="ghost")


async def test_future_1_reading_is_not_writing(stage: Stage) -> None:
    """seed 000, Future Extensions, 1: neither right implies the other."""
    owner, reader, writer = await stage.cast("owner", "player1", "writer")
    stream = await owner.open_stream(target=["player1"])
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    await stage.rejected(reader, stream, "a reader writes")
    await writer.frame(stream, "a writer that may not read")
    assert await reader.receive_frame(stream) == "a writer that may not read"
    assert not frames_in(await writer.settle())


async def test_future_2_max_frames(stage: Stage) -> None:
    """seed 000, Future Extensions, 2: max_frames; when spent, an ordinary broadcast revoke (decision 17)."""
    owner, player1 = await stage.cast("owner", "player1")
    stream = await owner.open_stream()
    told = await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1", conditions={"max_frames": 3})
    assert told["conditions"] == {"max_frames": 3}
    assert (await stage.late_view(stream))["conditions"]["player1"]["max_frames"] == 3
    for number in range(3):
        await stage.accepted(player1, stream, f"frame {number}")
    for client in (owner, player1):
        told = await client.receive(REVOKED, stream_id=stream)
        assert (told["payload"]["participant_id"], told["payload"]["reason"]) == ("player1", "max_frames")
        assert told["payload"]["authorized_writers"] == ["owner"]
    await stage.rejected(player1, stream, "one too many")
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner"]


async def test_future_2_expires_at(stage: Stage) -> None:
    """seed 000, Future Extensions, 2: expires_at; the revoke comes by itself and precedes any refusal."""
    owner, player1 = await stage.cast("owner", "player1")
    stream = await owner.open_stream()
    conditions = {"expires_at": soon(0.3), "max_frames": 100}
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1", conditions=conditions)
    for client in (owner, player1):
        told = await client.receive(REVOKED, stream_id=stream)
        assert (told["payload"]["participant_id"], told["payload"]["reason"]) == ("player1", "expired")
    await stage.rejected(player1, stream, "too late")
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner"]


async def test_future_2_frames_at_the_moment_of_expiry(stage: Stage) -> None:
    """seed 000, Future Extensions, 2: in the log no frame follows the revoke, and no refusal precedes it."""
    owner, player1 = await stage.cast("owner", "player1")
    observer = await stage.join("player2", extensions=["positions"])
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1", conditions={"expires_at": soon(0.3)})
    waiting = asyncio.create_task(player1.receive("system/error"))
    number = 0
    while not waiting.done():
        await player1.frame(stream, f"frame {number}")
        number += 1
        await asyncio.sleep(0.001)
    assert (await waiting)["payload"]["error"] == "unauthorized_stream_write"
    answers = [kind for kind in kinds_in(player1.got) if kind in (REVOKED, "system/error")]
    assert answers == [REVOKED, "system/error"]
    seen = await observer.settle()
    (revoked,) = [each for each in seen if isinstance(each, dict) and each["kind"] == REVOKED]
    positions = [int(each.split("|")[1]) for each in seen if isinstance(each, str)]
    assert positions and max(positions) < revoked["seq"]


async def test_future_2_a_repeated_grant_replaces_the_conditions(stage: Stage) -> None:
    """seed 000, Future Extensions, 2: decision 5, and without conditions there are none any more."""
    owner, player1 = await stage.cast("owner", "player1")
    stream = await owner.open_stream()
    grant = {"stream_id": stream, "participant_id": "player1"}
    await stage.ask(owner, GRANT, **grant, conditions={"max_frames": 1, "expires_at": soon(0.2)})
    await stage.ask(owner, GRANT, **grant, conditions={"max_frames": 2})
    assert (await stage.late_view(stream))["conditions"]["player1"]["max_frames"] == 2
    await stage.accepted(player1, stream, "one")
    await stage.ask(owner, GRANT, **grant)
    assert "conditions" not in await stage.late_view(stream)
    for number in range(4):
        await stage.accepted(player1, stream, f"unlimited {number}")


async def test_future_2_a_transfer_clears_the_conditions_of_the_new_owner(stage: Stage) -> None:
    """seed 000, Future Extensions, 2: an owner's right has no conditions (decision 5)."""
    owner, player1 = await stage.cast("owner", "player1")
    stream = await owner.open_stream()
    grant = {"stream_id": stream, "participant_id": "player1"}
    await stage.ask(owner, GRANT, **grant, conditions={"max_frames": 1, "expires_at": soon(600)})
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="player1")
    assert "conditions" not in await stage.late_view(stream)
    for number in range(3):
        await stage.accepted(player1, stream, f"unlimited {number}")


@over_both
@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        ({"max_frames": 0}, "validation_error"),
        ({"max_frames": -1}, "validation_error"),
        ({"max_frames": "100"}, "validation_error"),
        ({"max_frames": 1.5}, "validation_error"),
        ({"max_frames": True}, "validation_error"),
        ({"expires_at": "tomorrow"}, "validation_error"),
        ({"expires_at": 1_800_000_000}, "validation_error"),
        ({"on_weekdays": True}, "validation_error"),
        (["max_frames"], "validation_error"),
        ({"expires_at": "2025-11-23T13:00:00Z"}, "invalid_operation"),
    ],
)
async def test_future_2_conditions_that_mean_nothing(stage: Stage, transport: str, conditions: Any, code: str) -> None:
    """seed 000, Future Extensions, 2: what is not understood never becomes a grant without conditions."""
    owner, _ = await stage.cast("owner", "player1")
    stream = await owner.open_stream()
    await stage.refused(
        transport, owner, GRANT, code, stream_id=stream, participant_id="player1", conditions=conditions
    )
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner"]


async def test_future_3_auto_grant(stage: Stage) -> None:
    """seed 000, Future Extensions, 3: those present are granted at open, the others when they join (decision 18)."""
    owner, first = await stage.cast("owner", "player1")
    template = {"template": "collaborative", "auto_grant": ["player1", "player2"]}
    id = await owner.send("stream/request", template)
    opened = (await owner.receive("stream/open", of=id))["payload"]
    stream = opened["stream_id"]
    assert opened["authorized_writers"] == ["owner", "player1"]
    assert (opened["template"], opened["auto_grant"]) == ("collaborative", ["player1", "player2"])
    await stage.accepted(first, stream, "from the first")
    second = await stage.join("player2")
    for client in (owner, first):
        told = await client.receive(GRANTED, stream_id=stream, participant_id="player2")
        assert told["payload"]["authorized_writers"] == ["owner", "player1", "player2"]
    await stage.accepted(second, stream, "from the second")
    # Others are not concerned.
    await stage.rejected(await stage.join("writer"), stream, "not of the team")


async def test_future_3_a_member_sees_itself_in_its_welcome(stage: Stage) -> None:
    """seed 000, Future Extensions, 3: welcome and standing grant agree, or the grant follows the welcome."""
    owner = await stage.join("owner")
    stream = await owner.open_stream(auto_grant=["player1"])
    member = await stage.join("player1")
    if "player1" not in active_stream(member.welcome, stream)["authorized_writers"]:
        await member.receive(GRANTED, stream_id=stream, participant_id="player1")
    await stage.accepted(member, stream, "a member")


async def test_future_3_a_member_that_reconnects_is_granted_again(stage: Stage) -> None:
    """seed 000, Future Extensions, 3: a standing grant outlives a disconnect."""
    owner, member = await stage.cast("owner", "player1")
    stream = await owner.open_stream(auto_grant=["player1"])
    await stage.leave(member)
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner"]
    await stage.accepted(await stage.join("player1"), stream, "back in the team")


async def test_future_3_an_explicit_revoke_ends_the_standing_grant(stage: Stage) -> None:
    """seed 000, Future Extensions, 3: ... for that participant, present or not yet."""
    owner, present = await stage.cast("owner", "player1")
    stream = await owner.open_stream(auto_grant=["player1", "player2", "writer"])
    for participant in ("player1", "player2"):
        await stage.ask(owner, REVOKE, stream_id=stream, participant_id=participant)
    await stage.leave(present)
    for participant in ("player1", "player2"):
        await stage.rejected(await stage.join(participant), stream, f"{participant} was taken out")
    await stage.accepted(await stage.join("writer"), stream, "was not taken out")


async def test_future_3_a_previous_owner_does_not_come_back_by_its_own_template(stage: Stage) -> None:
    """seed 000, Future Extensions, 3: who transfers loses write until the new owner grants it (decision 3)."""
    owner, other = await stage.cast("owner", "writer")
    stream = await owner.open_stream(auto_grant=["owner", "writer"])
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="writer")
    await stage.leave(owner)
    owner = await stage.join("owner")
    assert (await stage.late_view(stream))["authorized_writers"] == ["writer"]
    await stage.rejected(owner, stream, "by the back door")
    await stage.ask(other, GRANT, stream_id=stream, participant_id="owner")
    await stage.accepted(owner, stream, "by the front door")


async def test_future_3_conditions_are_not_shaken_off_by_reconnecting(stage: Stage) -> None:
    """seed 000, Future Extensions, 2 and 3: who was granted under conditions does not come back without them."""
    owner, member = await stage.cast("owner", "player1")
    stream = await owner.open_stream(auto_grant=["player1"])
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1", conditions={"max_frames": 1})
    await stage.accepted(member, stream, "the only one")
    await stage.leave(member)
    await stage.rejected(await stage.join("player1"), stream, "one more")
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner"]


@over_both
@pytest.mark.parametrize("auto_grant", ["player1", {"player1": True}, [1], [None]])
async def test_future_3_auto_grant_of_another_shape(stage: Stage, transport: str, auto_grant: Any) -> None:
    """seed 000, Future Extensions, 3: auto_grant is a list of participant ids."""
    owner = await stage.join("owner")
    await stage.refused(
        transport, owner, "stream/request", "validation_error", direction="upload", auto_grant=auto_grant
    )


@over_both
async def test_future_4_no_delegation_chains(stage: Stage, transport: str) -> None:
    """seed 000, Future Extensions, 4: out of scope: a writer may write and no more."""
    owner, lead, _ = await stage.cast("owner", "writer", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="writer")
    await stage.refused(transport, lead, GRANT, "unauthorized", stream_id=stream, participant_id="player1")
    await stage.accepted(lead, stream, "may write")


# -- Implementation Checklist ---------------------------------------------------------------------


async def test_a_retry_after_a_lost_answer_changes_nothing(stage: Stage) -> None:
    """seed 000, Implementation Checklist, acknowledgements: the same envelope again is answered as before."""
    owner, _ = await stage.cast("owner", "writer")
    stream = await owner.open_stream()
    grant = {"stream_id": stream, "participant_id": "writer"}
    await owner.send(GRANT, grant, id="grant-once")
    first = await owner.receive(GRANTED, of="grant-once")
    await stage.ask(owner, REVOKE, **grant)
    await owner.send(GRANT, grant, id="grant-once")
    assert await owner.receive(GRANTED, of="grant-once") == first
    assert (await stage.late_view(stream))["authorized_writers"] == ["owner"]


async def test_acknowledgements_over_http(stage: Stage) -> None:
    """seed 000, Implementation Checklist, handlers: the same three over HTTP, told to the sockets too."""
    _, writer = await stage.cast("owner", "writer")
    status, opened = await stage.post("owner", "stream/request", {"direction": "upload"}, id="r")
    stream = opened["stream_id"]
    assert (status, opened["id"], opened["status"]) == (200, "r", "stream_opened")
    who = {"stream_id": stream, "participant_id": "writer"}
    status, answer = await stage.post("owner", GRANT, who, id="g")
    writers = ["owner", "writer"]
    wanted = {"id": "g", "status": "granted", "stream_id": stream, "authorized_writers": writers}
    assert (status, answer) == (200, wanted)
    assert (await writer.receive(GRANTED, of="g"))["payload"]["authorized_writers"] == writers
    status, answer = await stage.post("owner", REVOKE, who, id="v")
    wanted = {"id": "v", "status": "revoked", "stream_id": stream, "authorized_writers": ["owner"]}
    assert (status, answer) == (200, wanted)
    await writer.receive(REVOKED, of="v")
    status, answer = await stage.post("owner", TRANSFER, {"stream_id": stream, "new_owner": "writer"}, id="t")
    wanted = {"previous_owner": "owner", "new_owner": "writer", "authorized_writers": ["writer"]}
    assert (status, answer) == (200, {"id": "t", "status": "transferred", "stream_id": stream, **wanted})
    await writer.receive(TRANSFERRED, of="t")
