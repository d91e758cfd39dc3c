"""Seed 001, "Proposal: Stream Ownership Transfer (s2w)", section by section, against a real gateway.

DESIGN.md settles what the seed leaves open; where a test follows a decision of it, it says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from support import AT_ONCE, Client, GatewayProcess, active_stream, running_gateway, space_config

if TYPE_CHECKING:
    from conftest import Stage

GRANT, REVOKE, TRANSFER = "stream/grant-write", "stream/revoke-write", "stream/transfer-ownership"
GRANTED, REVOKED, TRANSFERRED = "stream/write-granted", "stream/write-revoked", "stream/ownership-transferred"

over_both = pytest.mark.parametrize("transport", ["socket", "http"])

# Not "*": that holds space/manage-streams, which is a right on the streams of others (decision 1).
PLAIN = [{"kind": "stream/*"}, {"kind": "mcp/*"}, {"kind": "chat"}, {"kind": "capability/*"}]
CAPABILITIES = {
    **dict.fromkeys(("character-server", "player1", "player2", "ai-agent", "latecomer", "ghost"), PLAIN),
    "manager": [*PLAIN, {"kind": "space/manage-streams"}],
    "chatter": [{"kind": "chat"}],
}
POSITION_STREAM = {
    "content_type": "application/json",
    "format": "seacat/character-position-v1",
    "metadata": {"character_id": "character-player1"},
}


@pytest.fixture(scope="module")
def gateway(space_count: int) -> Iterator[GatewayProcess]:
    spaces = [
        space_config(*CAPABILITIES, space=f"space-{number}", capabilities=CAPABILITIES, mewstream=AT_ONCE)
        for number in range(space_count)
    ]
    with running_gateway({"spaces": spaces}) as process:
        yield process


def frames_in(messages: list[Any]) -> list[str | bytes]:
    return [each for each in messages if not isinstance(each, dict)]


def kinds_in(messages: list[Any]) -> list[str]:
    return [each["kind"] for each in messages if isinstance(each, dict)]


def position(x: int, y: int) -> str:
    return json.dumps({"x": x, "y": y})


async def call_tool(caller: Client, server: Client, name: str, **arguments: Any) -> None:
    """An MCP tool call from one participant to another, who answers it."""
    params = {"name": name, "arguments": arguments}
    id = await caller.send("mcp/request", {"method": "tools/call", "params": params}, to=[server.participant])
    asked = await server.receive("mcp/request", method="tools/call")
    assert (asked["id"], asked["from"], asked["payload"]["params"]) == (id, caller.participant, params)
    result = {"result": {"content": [{"type": "text", "text": "granted"}]}}
    await server.send("mcp/response", result, to=[caller.participant], correlation_id=[id])
    answered = await caller.receive("mcp/response", of=id)
    assert (answered["from"], answered["payload"]) == (server.participant, result)


# -- Motivation -----------------------------------------------------------------------------------


async def test_motivation_single_writer_unless_delegated(stage: Stage) -> None:
    """seed 001, Summary and Motivation: the requester alone writes, until it delegates."""
    server, player = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    await stage.accepted(server, stream, position(0, 0))
    await stage.rejected(player, stream, position(1, 0))
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    await stage.accepted(player, stream, position(2, 0))


async def test_use_case_1_control_delegation_in_games(stage: Stage) -> None:
    """seed 001, Use Case 1, 1 to 6: the player writes directly, the AI takes over, late joiners know who controls."""
    # 1: the character server requests a position stream
    server = await stage.join("character-server")
    stream = await server.open_stream(**POSITION_STREAM)
    # 2: initially no one else controls the character
    await stage.accepted(server, stream, position(0, 0))
    # 3: a player joins and wants control
    player = await stage.join("player1")
    await call_tool(player, server, "claim_control", character_id="character-player1")
    # 4: the server delegates; desired behavior: the player publishes directly, without a relay
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    await stage.accepted(player, stream, position(1, 1))
    # 5: later the AI takes over, when the player disconnects
    agent = await stage.join("ai-agent")
    await stage.leave(player)
    await stage.ask(server, GRANT, stream_id=stream, participant_id="ai-agent")
    await stage.accepted(agent, stream, position(2, 2))
    # 6: late joiners know who currently controls the character
    entry = await stage.late_view(stream)
    assert entry["authorized_writers"] == ["character-server", "ai-agent"]
    assert entry["metadata"] == {"character_id": "character-player1"}


async def test_use_case_2_collaborative_data_streams(stage: Stage) -> None:
    """seed 001, Use Case 2, 1 to 4: an orchestrator grants all workers, who publish without relay."""
    orchestrator, *workers = await stage.cast("character-server", "player1", "player2", "ai-agent")
    stream = await orchestrator.open_stream(description="results")
    for worker in workers:
        await stage.ask(orchestrator, GRANT, stream_id=stream, participant_id=worker.participant)
    for number, worker in enumerate(workers):
        await stage.accepted(worker, stream, f"result {number} of {worker.participant}")


async def test_use_case_3_the_owner_disconnects_and_comes_back(stage: Stage) -> None:
    """seed 001, Use Case 3, by decision 7 "keep": writers go on, the owner comes back as the owner."""
    owner, writer, other = await stage.cast("character-server", "player1", "player2")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    await stage.leave(owner)
    entry = await stage.late_view(stream)
    assert (entry["owner"], entry["owner_connected"]) == ("character-server", False)
    # 3: not read-only
    await stage.accepted(writer, stream, "goes on")
    # Nobody takes over by just asking.
    await stage.refused("socket", other, TRANSFER, "unauthorized", stream_id=stream, new_owner="player2")
    owner = await stage.join("character-server")
    assert active_stream(owner.welcome, stream)["owner_connected"] is True
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="player2")
    await stage.accepted(other, stream, "took over")


@over_both
async def test_use_case_3_a_manager_hands_on_what_its_owner_left(stage: Stage, transport: str) -> None:
    """seed 001, Use Case 3, 2: with space/manage-streams another can take over: nothing is ever stuck (decision 1)."""
    owner, manager, heir = await stage.cast("character-server", "manager", "player1")
    stream = await owner.open_stream()
    await stage.leave(owner)
    if transport == "http":
        status, answer = await stage.post("manager", TRANSFER, {"stream_id": stream, "new_owner": "player1"})
        assert (status, answer["status"]) == (200, "transferred")
    else:
        await stage.ask(manager, TRANSFER, stream_id=stream, new_owner="player1")
    told = (await heir.receive(TRANSFERRED, stream_id=stream))["payload"]
    assert (told["previous_owner"], told["new_owner"]) == ("character-server", "player1")
    await stage.accepted(heir, stream, "took over")
    # The right of a manager is no right to write.
    await stage.rejected(manager, stream, "a manager is no writer")


async def test_use_case_3_policy_transfer(stage: Stage) -> None:
    """seed 001, Use Case 3, 2: on_owner_leave transfer: to the longest-standing connected writer (decision 7)."""
    owner, first, second, third = await stage.cast("character-server", "player1", "player2", "ai-agent")
    stream = await owner.open_stream(on_owner_leave="transfer", owner_leave_grace=0)
    for participant in ("player1", "player2", "ai-agent"):
        await stage.ask(owner, GRANT, stream_id=stream, participant_id=participant)
    await stage.leave(first)
    await stage.leave(owner)
    for client in (second, third):
        told = (await client.receive(TRANSFERRED, stream_id=stream))["payload"]
        assert (told["previous_owner"], told["new_owner"]) == ("character-server", "player2")
        assert told["reason"] == "owner_left"
        assert told["authorized_writers"] == ["player2", "ai-agent"]
    await stage.ask(second, REVOKE, stream_id=stream, participant_id="ai-agent")


@pytest.mark.parametrize("policy", ["transfer", "close"])
async def test_use_case_3_policy_close(stage: Stage, policy: str) -> None:
    """seed 001, Use Case 3, 3: on_owner_leave close, and transfer with no writer: closed and told (decision 7)."""
    owner, other = await stage.cast("character-server", "player1")
    stream = await owner.open_stream(on_owner_leave=policy, owner_leave_grace=0)
    if policy == "close":
        await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    await stage.leave(owner)
    told = await other.receive("stream/close", stream_id=stream)
    assert (told["from"], told["payload"]["reason"]) == ("system:gateway", "owner_left")
    await stage.rejected(other, stream, "closed", "stream_not_found")


async def test_use_case_3_an_owner_that_comes_back_in_time(stage: Stage) -> None:
    """seed 001, Use Case 3: within the grace period the owner comes back and nothing has changed (decision 7)."""
    owner, writer = await stage.cast("character-server", "player1")
    stream = await owner.open_stream(on_owner_leave="transfer", owner_leave_grace=600)
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    await stage.leave(owner)
    owner = await stage.join("character-server")
    assert active_stream(owner.welcome, stream)["owner"] == "character-server"
    await stage.accepted(owner, stream, "in time")
    assert TRANSFERRED not in kinds_in(writer.got)


# -- Goals and Non-Goals --------------------------------------------------------------------------


async def test_goals(stage: Stage) -> None:
    """seed 001, Goals, 1 to 5: grant, transfer, unchanged streams, only authorized writers, visible to late joiners."""
    owner, writer, stranger = await stage.cast("character-server", "player1", "player2")
    untouched, stream = await owner.open_stream(), await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")  # 1
    await stage.accepted(writer, stream, "delegated")
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="player1")  # 2
    await stage.accepted(owner, untouched, "as before")  # 3
    for client in (owner, stranger):  # 4
        await stage.rejected(client, stream, f"{client.participant} may not")
    entry = await stage.late_view(stream)  # 5
    assert (entry["owner"], entry["authorized_writers"]) == ("player1", ["player1"])


async def test_non_goal_streams_remain_broadcast_by_default(stage: Stage) -> None:
    """seed 001, Non-Goals: without a reader set everyone gets every frame, those without capabilities too."""
    owner, *_ = await stage.cast("character-server", "player1", "chatter")
    stream = await owner.open_stream()
    assert "authorized_readers" not in await stage.late_view(stream)
    await stage.accepted(owner, stream, "for everyone")


async def test_non_goal_frames_of_the_past_are_not_replayed(stage: Stage) -> None:
    """seed 001, Non-Goals: a joiner that does not ask for it gets no history."""
    owner = await stage.join("character-server")
    stream = await owner.open_stream()
    await stage.accepted(owner, stream, "before")
    late = await stage.join("player1")
    assert not frames_in(await late.settle())


async def test_non_goal_no_automatic_transfer_unless_asked_for(stage: Stage) -> None:
    """seed 001, Non-Goals: transfer on disconnect is policy; the default keeps the owner (decision 7)."""
    owner, writer = await stage.cast("character-server", "player1")
    stream = await owner.open_stream(owner_leave_grace=0)
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    await stage.leave(owner)
    assert TRANSFERRED not in kinds_in(await writer.settle())
    assert (await stage.late_view(stream))["owner"] == "character-server"


# -- Proposal 1: stream/grant-write ---------------------------------------------------------------


async def test_grant_the_message_of_the_proposal(stage: Stage) -> None:
    """seed 001, Proposal, 1: the message as written there, with protocol, from, to gateway and reason."""
    server, _ = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    envelope = {
        "protocol": "mew/v0.4",
        "id": "grant-write-1",
        "from": "character-server",
        "to": ["gateway"],
        "kind": GRANT,
        "payload": {
            "stream_id": stream,
            "participant_id": "player1",
            "reason": "Player claimed character control",
        },
    }
    await server.send_raw(json.dumps(envelope))
    told = await server.receive(GRANTED, of="grant-write-1")
    assert told["payload"]["reason"] == "Player claimed character control"
    assert told["payload"]["authorized_writers"] == ["character-server", "player1"]


@over_both
@pytest.mark.parametrize("missing", ["stream_id", "participant_id"])
async def test_grant_required_fields(stage: Stage, transport: str, missing: str) -> None:
    """seed 001, Proposal, 1, Fields: stream_id and participant_id are required."""
    server, _ = await stage.cast("character-server", "player1")
    payload = {"stream_id": await server.open_stream(), "participant_id": "player1"}
    del payload[missing]
    error = await stage.refused(transport, server, GRANT, "validation_error", **payload)
    assert missing in error["payload"]["message"]


async def test_grant_reason_is_optional(stage: Stage) -> None:
    """seed 001, Proposal, 1, Fields: reason is optional."""
    server, _ = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    assert (await stage.ask(server, GRANT, stream_id=stream, participant_id="player1"))["reason"] is None


async def test_grant_behavior_1_by_owner_or_manager_not_by_a_writer(stage: Stage) -> None:
    """seed 001, Proposal, 1, Gateway behavior, 1 ("or authorized writer"): by decision 1 not other writers."""
    server, writer, manager, _ = await stage.cast("character-server", "player1", "manager", "player2")
    stream = await server.open_stream()
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    await stage.refused("socket", writer, GRANT, "unauthorized", stream_id=stream, participant_id="player2")
    told = await stage.ask(manager, GRANT, stream_id=stream, participant_id="player2")
    assert told["authorized_writers"] == ["character-server", "player1", "player2"]


async def test_grant_behavior_2_writers_are_a_set(stage: Stage) -> None:
    """seed 001, Proposal, 1, Gateway behavior, 2: added to the set of writers, once."""
    server, _ = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    for _ in range(3):
        told = await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
        assert told["authorized_writers"] == ["character-server", "player1"]


async def test_grant_behavior_3_broadcast(stage: Stage) -> None:
    """seed 001, Proposal, 1, Gateway behavior, 3: the acknowledgement goes to everyone."""
    server, *others = await stage.cast("character-server", "player1", "player2", "chatter")
    stream = await server.open_stream()
    id = await server.send(GRANT, {"stream_id": stream, "participant_id": "player1"})
    told = await server.receive(GRANTED, of=id)
    for client in others:
        assert await client.receive(GRANTED, of=id) == told


async def test_grant_behavior_4_active_streams(stage: Stage) -> None:
    """seed 001, Proposal, 1, Gateway behavior, 4: late joiners see the grant."""
    server, _ = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    assert (await stage.late_view(stream))["authorized_writers"] == ["character-server", "player1"]


async def test_a_right_on_a_stream_needs_no_capability(stage: Stage) -> None:
    """seed 001, Proposal, 1 and 3: a right on a stream authorizes what goes with it (decision 2)."""
    server, chatter, _ = await stage.cast("character-server", "chatter", "player1")
    stream = await server.open_stream()
    await stage.ask(server, GRANT, stream_id=stream, participant_id="chatter")
    await stage.accepted(chatter, stream, "granted")
    await stage.ask(server, TRANSFER, stream_id=stream, new_owner="chatter")
    await stage.ask(chatter, GRANT, stream_id=stream, participant_id="player1")
    await stage.ask(chatter, REVOKE, stream_id=stream, participant_id="player1")
    await chatter.send("stream/close", {"stream_id": stream})
    await server.receive("stream/close", stream_id=stream)


@over_both
async def test_grant_error_stream_not_found(stage: Stage, transport: str) -> None:
    """seed 001, Proposal, 1, Error conditions: stream does not exist -> stream_not_found."""
    server, _ = await stage.cast("character-server", "player1")
    error = await stage.refused(
        transport, server, GRANT, "stream_not_found", stream_id="stream-42", participant_id="player1"
    )
    assert "stream-42" in error["payload"]["message"]


@over_both
async def test_grant_error_unauthorized(stage: Stage, transport: str) -> None:
    """seed 001, Proposal, 1, Error conditions: sender not authorized -> unauthorized."""
    server, player = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    await stage.refused(transport, player, GRANT, "unauthorized", stream_id=stream, participant_id="player1")
    assert (await stage.late_view(stream))["authorized_writers"] == ["character-server"]


@over_both
async def test_grant_error_participant_not_found(stage: Stage, transport: str) -> None:
    """seed 001, Proposal, 1, Error conditions: participant not in space -> participant_not_found."""
    server, _ = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    for absent in ("ghost", "nobody"):
        await stage.refused(transport, server, GRANT, "participant_not_found", stream_id=stream, participant_id=absent)


# -- Proposal 2: stream/revoke-write --------------------------------------------------------------


async def test_revoke_the_message_of_the_proposal(stage: Stage) -> None:
    """seed 001, Proposal, 2: the message as written there; Gateway behavior, 2 and 4."""
    server, player, bystander = await stage.cast("character-server", "player1", "player2")
    stream = await server.open_stream()
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    payload = {"stream_id": stream, "participant_id": "player1", "reason": "Player disconnected"}
    await server.send(REVOKE, payload, id="revoke-write-1", to=["gateway"], protocol="mew/v0.4")
    told = await server.receive(REVOKED, of="revoke-write-1")
    assert told["payload"]["authorized_writers"] == ["character-server"]
    assert (told["payload"]["participant_id"], told["payload"]["reason"]) == ("player1", "Player disconnected")
    for client in (player, bystander):
        assert await client.receive(REVOKED, of="revoke-write-1") == told


async def test_revoke_behavior_1_by_the_owner_only(stage: Stage) -> None:
    """seed 001, Proposal, 2, Gateway behavior, 1: not by a writer, not even of itself; by a manager (decision 1)."""
    server, writer, manager = await stage.cast("character-server", "player1", "manager")
    stream = await server.open_stream()
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    await stage.refused("socket", writer, REVOKE, "unauthorized", stream_id=stream, participant_id="player1")
    await stage.refused("socket", writer, REVOKE, "unauthorized", stream_id=stream, participant_id="character-server")
    await stage.accepted(writer, stream, "still a writer")
    await stage.ask(manager, REVOKE, stream_id=stream, participant_id="player1")


async def test_revoke_behavior_3_frames_are_dropped(stage: Stage) -> None:
    """seed 001, Proposal, 2, Gateway behavior, 3: subsequent frames of the revoked are dropped."""
    server, player = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    await stage.accepted(player, stream, "before")
    await stage.ask(server, REVOKE, stream_id=stream, participant_id="player1")
    await stage.rejected(player, stream, "after")


@over_both
async def test_revoke_error_stream_not_found(stage: Stage, transport: str) -> None:
    """seed 001, Proposal, 2, Error conditions: stream does not exist -> system/error."""
    server, _ = await stage.cast("character-server", "player1")
    await stage.refused(transport, server, REVOKE, "stream_not_found", stream_id="stream-42", participant_id="player1")


@over_both
async def test_revoke_error_unauthorized(stage: Stage, transport: str) -> None:
    """seed 001, Proposal, 2, Error conditions: sender not authorized -> system/error."""
    server, player, other = await stage.cast("character-server", "player1", "player2")
    stream = await server.open_stream()
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    await stage.refused(transport, other, REVOKE, "unauthorized", stream_id=stream, participant_id="player1")
    await stage.accepted(player, stream, "still a writer")


@over_both
async def test_revoke_of_one_not_authorized_is_a_success(stage: Stage, transport: str) -> None:
    """seed 001, Proposal, 2, Error conditions: participant not currently authorized -> success (idempotent)."""
    server, _ = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    for absent in ("player1", "ghost", "nobody"):
        if transport == "http":
            status, answer = await stage.post(
                "character-server", REVOKE, {"stream_id": stream, "participant_id": absent}
            )
            assert (status, answer["status"]) == (200, "revoked")
        else:
            answer = await stage.ask(server, REVOKE, stream_id=stream, participant_id=absent)
        assert answer["authorized_writers"] == ["character-server"]
    assert "system/error" not in kinds_in(server.got)


# -- Proposal 3: stream/transfer-ownership --------------------------------------------------------


async def test_transfer_the_message_of_the_proposal(stage: Stage) -> None:
    """seed 001, Proposal, 3: the message as written there; Gateway behavior, 2, 5 and 6."""
    server, player, bystander = await stage.cast("character-server", "player1", "player2")
    stream = await server.open_stream()
    payload = {"stream_id": stream, "new_owner": "player1", "reason": "Permanent control delegation"}
    await server.send(TRANSFER, payload, id="transfer-1", to=["gateway"], protocol="mew/v0.4")
    told = await server.receive(TRANSFERRED, of="transfer-1")
    assert told["from"] == "system:gateway"
    assert (told["payload"]["previous_owner"], told["payload"]["new_owner"]) == ("character-server", "player1")
    assert told["payload"]["reason"] == "Permanent control delegation"
    for client in (player, bystander):
        assert await client.receive(TRANSFERRED, of="transfer-1") == told
    assert (await stage.late_view(stream))["owner"] == "player1"


@over_both
async def test_transfer_behavior_1_by_the_owner_only(stage: Stage, transport: str) -> None:
    """seed 001, Proposal, 3, Gateway behavior, 1: a writer is no owner."""
    server, writer = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    await stage.refused(transport, writer, TRANSFER, "unauthorized", stream_id=stream, new_owner="player1")


async def test_transfer_behavior_3_the_new_owner_inherits_all_permissions(stage: Stage) -> None:
    """seed 001, Proposal, 3, Gateway behavior, 3: grant, revoke, transfer and close."""
    server, new, third = await stage.cast("character-server", "player1", "player2")
    stream = await server.open_stream()
    await stage.ask(server, TRANSFER, stream_id=stream, new_owner="player1")
    await stage.ask(new, GRANT, stream_id=stream, participant_id="player2")
    await stage.ask(new, REVOKE, stream_id=stream, participant_id="player2")
    await stage.ask(new, TRANSFER, stream_id=stream, new_owner="player2")
    await third.send("stream/close", {"stream_id": stream})
    await server.receive("stream/close", stream_id=stream)


@over_both
async def test_transfer_behavior_4_the_previous_owner_loses_ownership(stage: Stage, transport: str) -> None:
    """seed 001, Proposal, 3, Gateway behavior, 4: none of its permissions is left (decision 3)."""
    server, _ = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    await stage.ask(server, TRANSFER, stream_id=stream, new_owner="player1")
    for kind, who in ((GRANT, "participant_id"), (REVOKE, "participant_id"), (TRANSFER, "new_owner")):
        await stage.refused(transport, server, kind, "unauthorized", stream_id=stream, **{who: "character-server"})
    await stage.refused(transport, server, "stream/close", "unauthorized", stream_id=stream)
    await stage.rejected(server, stream, "no longer mine")


async def test_transfer_behavior_4_retain_write(stage: Stage) -> None:
    """seed 001, Proposal, 3, Gateway behavior, 4 ("may retain write access"): retain_write (decision 3)."""
    server, new = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    told = await stage.ask(server, TRANSFER, stream_id=stream, new_owner="player1", retain_write=True)
    assert told["authorized_writers"] == ["player1", "character-server"]
    await stage.accepted(server, stream, "an ordinary writer now")
    await stage.refused("socket", server, GRANT, "unauthorized", stream_id=stream, participant_id="character-server")
    await stage.ask(new, REVOKE, stream_id=stream, participant_id="character-server")
    await stage.rejected(server, stream, "and can be revoked like one")


async def test_transfer_keeps_the_other_writers(stage: Stage) -> None:
    """seed 001, Proposal, 3 and Implementation Notes, Transfer Ownership: the other writers go on writing."""
    server, writer, new = await stage.cast("character-server", "player1", "player2")
    stream = await server.open_stream()
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    told = await stage.ask(server, TRANSFER, stream_id=stream, new_owner="player2")
    assert told["authorized_writers"] == ["player2", "player1"]
    await stage.accepted(writer, stream, "goes on")
    await stage.accepted(new, stream, "owns")


async def test_transfer_to_self_changes_nothing(stage: Stage) -> None:
    """seed 001, Proposal, 3: an owner that transfers to itself stays what it was."""
    server, _ = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    await stage.ask(server, TRANSFER, stream_id=stream, new_owner="character-server")
    entry = await stage.late_view(stream)
    assert (entry["owner"], entry["authorized_writers"]) == ("character-server", ["character-server"])
    await stage.accepted(server, stream, "mine")


@over_both
async def test_transfer_error_stream_not_found(stage: Stage, transport: str) -> None:
    """seed 001, Proposal, 3, Error conditions: stream does not exist -> system/error."""
    server, _ = await stage.cast("character-server", "player1")
    await stage.refused(transport, server, TRANSFER, "stream_not_found", stream_id="stream-42", new_owner="player1")


@over_both
async def test_transfer_error_unauthorized(stage: Stage, transport: str) -> None:
    """seed 001, Proposal, 3, Error conditions: sender not current owner -> system/error."""
    server, player = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    await stage.refused(transport, player, TRANSFER, "unauthorized", stream_id=stream, new_owner="player1")
    await stage.accepted(server, stream, "still mine")


@over_both
async def test_transfer_error_new_owner_not_in_space(stage: Stage, transport: str) -> None:
    """seed 001, Proposal, 3, Error conditions: new owner not in space -> system/error."""
    server, _ = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    for absent in ("ghost", "nobody"):
        await stage.refused(transport, server, TRANSFER, "participant_not_found", stream_id=stream, new_owner=absent)
    await stage.accepted(server, stream, "still mine")


# -- Proposal 1 to 3: errors, whatever the transport ----------------------------------------------


@pytest.mark.parametrize(
    ("sender", "kind", "code", "payload"),
    [
        ("character-server", GRANT, "validation_error", {"participant_id": "player1"}),
        ("character-server", GRANT, "stream_not_found", {"stream_id": "stream-42", "participant_id": "player1"}),
        ("player1", GRANT, "unauthorized", {"stream_id": "stream-1", "participant_id": "player1"}),
        ("character-server", GRANT, "participant_not_found", {"stream_id": "stream-1", "participant_id": "ghost"}),
        ("character-server", REVOKE, "validation_error", {"stream_id": "stream-1"}),
        ("character-server", REVOKE, "stream_not_found", {"stream_id": "stream-42", "participant_id": "player1"}),
        ("player1", REVOKE, "unauthorized", {"stream_id": "stream-1", "participant_id": "player1"}),
        (
            "character-server",
            REVOKE,
            "invalid_operation",
            {"stream_id": "stream-1", "participant_id": "character-server"},
        ),
        ("character-server", TRANSFER, "validation_error", {"stream_id": "stream-1", "new_owner": 1}),
        ("character-server", TRANSFER, "stream_not_found", {"stream_id": "stream-42", "new_owner": "player1"}),
        ("player1", TRANSFER, "unauthorized", {"stream_id": "stream-1", "new_owner": "player1"}),
        ("character-server", TRANSFER, "participant_not_found", {"stream_id": "stream-1", "new_owner": "ghost"}),
    ],
)
async def test_an_error_over_http_equals_the_one_over_the_socket(
    stage: Stage, sender: str, kind: str, code: str, payload: dict[str, Any]
) -> None:
    """seed 001, Proposal, 1 to 3, Error conditions: the same rules for both (WIRE, HTTP)."""
    clients = {each.participant: each for each in await stage.cast("character-server", "player1")}
    assert await clients["character-server"].open_stream() == "stream-1"
    by_socket, by_http = [
        await stage.refused(transport, clients[sender], kind, code, **payload) for transport in ("socket", "http")
    ]
    for error in (by_socket, by_http):
        for of_its_own in ("id", "ts", "correlation_id"):
            del error[of_its_own]
    assert by_socket == by_http


@over_both
@pytest.mark.parametrize(
    ("kind", "payload", "code"),
    [
        (GRANT, {"stream_id": "stream-42", "participant_id": 7}, "validation_error"),
        (GRANT, {"stream_id": "stream-42", "participant_id": "ghost"}, "stream_not_found"),
        (GRANT, {"stream_id": "stream-1", "participant_id": "ghost"}, "unauthorized"),
        (REVOKE, {"stream_id": "stream-42", "participant_id": "character-server"}, "stream_not_found"),
        (REVOKE, {"stream_id": "stream-1", "participant_id": "character-server"}, "unauthorized"),
        (TRANSFER, {"stream_id": "stream-42", "new_owner": "ghost"}, "stream_not_found"),
        (TRANSFER, {"stream_id": "stream-1", "new_owner": "ghost"}, "unauthorized"),
    ],
)
async def test_the_first_check_that_fails_is_reported(
    stage: Stage, transport: str, kind: str, payload: dict[str, Any], code: str
) -> None:
    """seed 001, Proposal, 1 to 3, Error conditions, several at once: shape, stream, right, operation, participant."""
    server, player = await stage.cast("character-server", "player1")
    assert await server.open_stream() == "stream-1"
    await stage.refused(transport, player, kind, code, **payload)


# -- Proposal 4: the welcome ----------------------------------------------------------------------


async def test_the_welcome_of_the_proposal(stage: Stage) -> None:
    """seed 001, Proposal, 4: the entry as written there, authorized_writers included."""
    server, _ = await stage.cast("character-server", "player1")
    stream = await server.open_stream(**POSITION_STREAM)
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    welcome = (await stage.join("player2")).welcome
    assert (welcome["kind"], welcome["from"], welcome["to"]) == ("system/welcome", "system:gateway", ["player2"])
    assert welcome["payload"]["you"]["id"] == "player2"
    entry = active_stream(welcome, stream)
    wanted = {
        "stream_id": stream,
        "owner": "character-server",
        "direction": "upload",
        **POSITION_STREAM,
        "authorized_writers": ["character-server", "player1"],
    }
    assert {key: entry[key] for key in wanted} == wanted


async def test_the_welcome_always_includes_the_owner(stage: Stage) -> None:
    """seed 001, Proposal, 4, New field: authorized_writers is [owner] without grants and always has the owner."""
    server, player = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    assert (await stage.late_view(stream))["authorized_writers"] == ["character-server"]
    await stage.ask(server, TRANSFER, stream_id=stream, new_owner="player1")
    assert (await stage.late_view(stream))["authorized_writers"] == ["player1"]
    await stage.leave(player)
    assert (await stage.late_view(stream))["authorized_writers"] == ["player1"]


async def test_a_welcome_and_what_follows_it_have_no_hole(stage: Stage) -> None:
    """seed 001, Proposal, 4: a change is in the welcome or comes after it, never neither and never both."""
    server, _ = await stage.cast("character-server", "player1")
    stream = await server.open_stream()
    who = {"stream_id": stream, "participant_id": "player1"}
    for number in range(20):
        kind = (GRANT, REVOKE)[number % 2]
        id = await server.send(kind, who)  # not awaited: it races with the join
        late = await stage.gateway.join("latecomer", space=stage.space)
        told = [each for each in await late.settle() if isinstance(each, dict) and id in each.get("correlation_id", ())]
        await late.close()
        seen = "player1" in active_stream(late.welcome, stream)["authorized_writers"]
        assert (seen == (kind == GRANT)) != bool(told)


# -- Proposal 5: validation -----------------------------------------------------------------------


async def test_validation_forwards_for_writers_and_refuses_others(stage: Stage) -> None:
    """seed 001, Proposal, 5: forwarded to all for a writer; otherwise dropped, with an error to the sender."""
    server, writer, other = await stage.cast("character-server", "player1", "player2")
    stream = await server.open_stream()
    await stage.ask(server, GRANT, stream_id=stream, participant_id="player1")
    await stage.accepted(server, stream, "owner")
    await stage.accepted(writer, stream, "writer")
    await stage.rejected(other, stream, "other")
    await stage.rejected(other, "stream-42", "no such stream", "stream_not_found")


async def test_a_right_holds_for_one_stream_only(stage: Stage) -> None:
    """seed 001, Proposal, 5: a writer of one stream is nobody on another."""
    server, writer = await stage.cast("character-server", "player1")
    one, other = await server.open_stream(), await server.open_stream()
    await stage.ask(server, GRANT, stream_id=one, participant_id="player1")
    await stage.accepted(writer, one, "here")
    await stage.rejected(writer, other, "there")


# -- Benefits -------------------------------------------------------------------------------------


async def test_benefits_1_to_5(stage: Stage) -> None:
    """seed 001, Benefits, 1 to 5: N writers without relay, hand-off, late joiners, unchanged for others."""
    owner, *players = await stage.cast("character-server", "player1", "player2", "ai-agent")
    stream = await owner.open_stream()
    for player in players:
        await stage.ask(owner, GRANT, stream_id=stream, participant_id=player.participant)
        await stage.accepted(player, stream, f"direct from {player.participant}")
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="ai-agent")
    assert (await stage.late_view(stream))["authorized_writers"] == ["ai-agent", "player1", "player2"]


async def test_benefit_6_audit_trail(stage: Stage) -> None:
    """seed 001, Benefits, 6: each grant, revoke and transfer can be read back, in order, with its reason."""
    owner, _ = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1", reason="one")
    await stage.ask(owner, REVOKE, stream_id=stream, participant_id="player1", reason="two")
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="player1", reason="three")
    status, answer = await stage.gateway.http(
        "GET", "/participants/player1/messages", "player1", space=stage.space, params={"since": "0"}
    )
    assert status == 200
    trail = [
        (each["kind"], each["from"], each["payload"]["reason"])
        for each in answer["messages"]
        if each["kind"] in (GRANT, REVOKE, TRANSFER, GRANTED, REVOKED, TRANSFERRED)
    ]
    assert trail == [
        (GRANT, "character-server", "one"),
        (GRANTED, "system:gateway", "one"),
        (REVOKE, "character-server", "two"),
        (REVOKED, "system:gateway", "two"),
        (TRANSFER, "character-server", "three"),
        (TRANSFERRED, "system:gateway", "three"),
    ]


# -- Security Considerations ----------------------------------------------------------------------


@pytest.mark.parametrize(("transport", "present"), [("socket", True), ("http", True), ("http", False)])
async def test_security_1_authorization_validation(stage: Stage, transport: str, present: bool) -> None:
    """seed 001, Security Considerations, 1: only the owner grants, revokes and transfers; connected or not."""
    owner = await stage.join("character-server")
    stream = await owner.open_stream()
    attempts = [(GRANT, "participant_id"), (REVOKE, "participant_id"), (TRANSFER, "new_owner")]
    attacker = await stage.join("player2") if present else None
    for kind, who in attempts:
        payload = {"stream_id": stream, who: "player2"}
        if attacker is not None:
            await stage.refused(transport, attacker, kind, "unauthorized", **payload)
        else:
            status, error = await stage.post("player2", kind, payload)
            assert (status, error["payload"]["error"]) == (403, "unauthorized")
    entry = await stage.late_view(stream)
    assert (entry["owner"], entry["authorized_writers"]) == ("character-server", ["character-server"])


async def test_security_2_writer_validation_on_every_frame(stage: Stage) -> None:
    """seed 001, Security Considerations, 2: raw frames and stream/data envelopes, text and binary."""
    owner, other = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    data = {"stream_id": stream, "sequence": 1, "content": "an envelope"}
    await other.send_raw(f"#{stream}#text")
    await other.error("unauthorized_stream_write")
    await other.send_raw(f"#{stream}#binary".encode())
    await other.error("unauthorized_stream_write", of=await other.send("stream/data", data))
    status, error = await stage.post("player1", "stream/data", data)
    assert (status, error["payload"]["error"]) == (403, "unauthorized_stream_write")
    for client in (owner, other):
        messages = await client.settle()
        assert not frames_in(messages) and "stream/data" not in kinds_in(messages)
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    await stage.accepted(other, stream, "text")
    await stage.accepted(other, stream, b"binary")
    id = await other.send("stream/data", {**data, "sequence": 2})
    relayed = await owner.receive("stream/data")
    assert (relayed["id"], relayed["payload"]["content"]) == (id, "an envelope")


@over_both
@pytest.mark.parametrize("sender", ["character-server", "manager"])
async def test_security_3_the_owner_cannot_be_revoked(stage: Stage, transport: str, sender: str) -> None:
    """seed 001, Security Considerations, 3: owner is always authorized: not by itself, not by a manager."""
    clients = {each.participant: each for each in await stage.cast("character-server", "manager")}
    owner = clients["character-server"]
    stream = await owner.open_stream()
    await stage.refused(
        transport, clients[sender], REVOKE, "invalid_operation", stream_id=stream, participant_id="character-server"
    )
    await stage.accepted(owner, stream, "always")


async def test_security_4_circular_transfers(stage: Stage) -> None:
    """seed 001, Security Considerations, 4: the new owner can transfer back at once."""
    owner, other, third = await stage.cast("character-server", "player1", "player2")
    stream = await owner.open_stream()
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="player1")
    await stage.ask(other, TRANSFER, stream_id=stream, new_owner="player2")
    told = await stage.ask(third, TRANSFER, stream_id=stream, new_owner="character-server")
    assert told["authorized_writers"] == ["character-server"]
    await stage.accepted(owner, stream, "round")


async def test_security_5_broadcast_transparency(stage: Stage) -> None:
    """seed 001, Security Considerations, 5: all changes are visible to all, even to those who may only chat."""
    owner, _, witness = await stage.cast("character-server", "player1", "chatter")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    await stage.ask(owner, REVOKE, stream_id=stream, participant_id="player1")
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="player1")
    seen = [each for each in kinds_in(await witness.settle()) if each in (GRANTED, REVOKED, TRANSFERRED)]
    assert seen == [GRANTED, REVOKED, TRANSFERRED]


# -- Backward Compatibility -----------------------------------------------------------------------


async def test_compatibility_a_client_that_ignores_everything_new(stage: Stage) -> None:
    """seed 001, Backward Compatibility, Existing behavior: request, open, frames and close as before."""
    old, other = await stage.cast("character-server", "player1")
    id = await old.send("stream/request", {"direction": "upload", "description": "old"})
    opened = await old.receive("stream/open", of=id)
    stream = opened["payload"]["stream_id"]
    assert opened["payload"]["encoding"] in ("text", "binary")
    await old.send_raw(f"#{stream}#data")
    for client in (old, other):
        assert await client.wait_for(lambda message: not isinstance(message, dict)) == f"#{stream}#data"
    await stage.rejected(other, stream, "owner-only writes")
    entry = await stage.late_view(stream)
    assert {"stream_id", "owner", "direction", "created", "description"} <= entry.keys()
    await old.send("stream/close", {"stream_id": stream})
    await other.receive("stream/close", stream_id=stream)


async def test_compatibility_new_features_are_opt_in(stage: Stage) -> None:
    """seed 001, Backward Compatibility, Migration path: nothing new is sent to a space that does not use it."""
    old, other = await stage.cast("character-server", "player1")
    stream = await old.open_stream()
    await stage.accepted(old, stream, "data")
    await old.send("stream/close", {"stream_id": stream})
    await old.settle()
    await other.settle()
    known = {"system/welcome", "system/presence", "stream/request", "stream/open", "stream/close", "mcp/response"}
    assert set(kinds_in(old.got + other.got)) <= known


# -- Alternative Approaches Considered ------------------------------------------------------------


async def test_alternative_1_metadata_is_advisory(stage: Stage) -> None:
    """seed 001, Alternative 1, rejected: writers in metadata, at the request or later, authorize nobody."""
    owner, player = await stage.cast("character-server", "player1")
    stream = await owner.open_stream(metadata={"authorized_writers": ["player1"]})
    await stage.rejected(player, stream, "by metadata")
    payload = {"stream_id": stream, "metadata": {"authorized_writers": ["player1"]}}
    await owner.send("stream/metadata_update", payload)
    await owner.settle()
    await player.frame(stream, "by an update")
    assert not frames_in(await player.settle())
    assert (await stage.late_view(stream))["authorized_writers"] == ["character-server"]


async def test_alternative_2_the_stream_stays_the_same(stage: Stage) -> None:
    """seed 001, Alternative 2, rejected: id, metadata and creation survive every change, without interruption."""
    owner, player = await stage.cast("character-server", "player1")
    stream = await owner.open_stream(**POSITION_STREAM)
    before = await stage.late_view(stream)
    await stage.accepted(owner, stream, "before")
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    await stage.accepted(player, stream, "between")
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="player1")
    await stage.accepted(player, stream, "after")
    after = await stage.late_view(stream)
    for key in ("stream_id", "created", "direction", *POSITION_STREAM):
        assert after[key] == before[key]


@pytest.mark.parametrize("form", ["as proposed", "as projected"])
async def test_alternative_3_capabilities_authorize_no_writer(stage: Stage, form: str) -> None:
    """seed 001, Alternative 3, rejected: a capability/grant makes no writer; projections only mirror (decision 2)."""
    owner, player = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    as_proposed = {"kind": "stream/write", "payload": {"stream_id": stream}}
    capability = as_proposed if form == "as proposed" else {"kind": f"stream/write:{stream}"}
    await owner.send("capability/grant", {"recipient": "player1", "capabilities": [capability]})
    await owner.settle()
    await stage.rejected(player, stream, "by a capability")
    assert (await stage.late_view(stream))["authorized_writers"] == ["character-server"]


async def test_alternative_3_rights_are_projected_into_capabilities(stage: Stage) -> None:
    """seed 001, Alternative 3: stream/write:{id} follows the set of writers (decision 2)."""
    owner, _ = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()

    async def projected() -> bool:
        late = await stage.gateway.join("latecomer", space=stage.space)
        await late.close()
        (entry,) = [each for each in late.welcome["payload"]["participants"] if each["id"] == "player1"]
        return {"kind": f"stream/write:{stream}"} in entry["capabilities"]

    assert not await projected()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    assert await projected()
    await stage.ask(owner, REVOKE, stream_id=stream, participant_id="player1")
    assert not await projected()


# -- Implementation Notes -------------------------------------------------------------------------


async def test_notes_initialization(stage: Stage) -> None:
    """seed 001, Implementation Notes, Initialization: initially just the owner, whatever the payload says."""
    owner = await stage.join("character-server")
    id = await owner.send("stream/request", {"authorizedWriters": ["player1"], "authorized_writers": ["player1"]})
    opened = await owner.receive("stream/open", of=id)
    assert opened["payload"]["authorized_writers"] == ["character-server"]
    entry = await stage.late_view(opened["payload"]["stream_id"])
    assert entry["authorized_writers"] == ["character-server"]


async def test_notes_the_acknowledgement_of_a_grant(stage: Stage) -> None:
    """seed 001, Implementation Notes, Grant Write Access: the envelope of stream/write-granted."""
    owner, _ = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    id = await owner.send(GRANT, {"stream_id": stream, "participant_id": "player1"})
    told = await owner.receive(GRANTED, of=id)
    assert (told["protocol"], told["from"], told["correlation_id"]) == ("mew/v0.4", "system:gateway", [id])
    wanted = {
        "stream_id": stream,
        "participant_id": "player1",
        "authorized_writers": ["character-server", "player1"],
    }
    assert {key: told["payload"][key] for key in wanted} == wanted


async def test_notes_the_acknowledgement_of_a_transfer(stage: Stage) -> None:
    """seed 001, Implementation Notes, Transfer Ownership: the new owner is among the writers."""
    owner, _ = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    id = await owner.send(TRANSFER, {"stream_id": stream, "new_owner": "player1"})
    told = await owner.receive(TRANSFERRED, of=id)
    assert (told["protocol"], told["from"], told["correlation_id"]) == ("mew/v0.4", "system:gateway", [id])
    wanted = {
        "stream_id": stream,
        "previous_owner": "character-server",
        "new_owner": "player1",
        "authorized_writers": ["player1"],
    }
    assert {key: told["payload"][key] for key in wanted} == wanted


# -- Testing Strategy, Unit Tests -----------------------------------------------------------------


async def test_unit_1_grant(stage: Stage) -> None:
    """seed 001, Testing Strategy, Unit Tests, 1: grant write access -> authorized writers array."""
    owner, _ = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    told = await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    assert told["authorized_writers"] == ["character-server", "player1"]


async def test_unit_2_revoke(stage: Stage) -> None:
    """seed 001, Testing Strategy, Unit Tests, 2: revoke write access -> removal from array."""
    owner, *_ = await stage.cast("character-server", "player1", "player2")
    stream = await owner.open_stream()
    for participant in ("player1", "player2"):
        await stage.ask(owner, GRANT, stream_id=stream, participant_id=participant)
    told = await stage.ask(owner, REVOKE, stream_id=stream, participant_id="player1")
    assert told["authorized_writers"] == ["character-server", "player2"]


async def test_unit_3_transfer(stage: Stage) -> None:
    """seed 001, Testing Strategy, Unit Tests, 3: transfer -> owner change and authorized writers update."""
    owner, *_ = await stage.cast("character-server", "player1", "player2")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player2")
    told = await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="player1")
    assert (told["new_owner"], told["authorized_writers"]) == ("player1", ["player1", "player2"])


@over_both
async def test_unit_4_non_owner_attempts_grant(stage: Stage, transport: str) -> None:
    """seed 001, Testing Strategy, Unit Tests, 4: non-owner attempts grant -> error response."""
    owner, player = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    await stage.refused(transport, player, GRANT, "unauthorized", stream_id=stream, participant_id="player1")


@over_both
async def test_unit_5_grant_to_non_existent_participant(stage: Stage, transport: str) -> None:
    """seed 001, Testing Strategy, Unit Tests, 5: grant to non-existent participant -> error response."""
    owner = await stage.join("character-server")
    stream = await owner.open_stream()
    await stage.refused(transport, owner, GRANT, "participant_not_found", stream_id=stream, participant_id="nobody")


# -- Testing Strategy, Integration Tests ----------------------------------------------------------


async def test_integration_1_owner_publishes(stage: Stage) -> None:
    """seed 001, Testing Strategy, Integration Tests, 1: owner publishes frame -> accepted."""
    owner, _ = await stage.cast("character-server", "player1")
    await stage.accepted(owner, await owner.open_stream(), position(1, 2))


async def test_integration_2_granted_writer_publishes(stage: Stage) -> None:
    """seed 001, Testing Strategy, Integration Tests, 2: granted writer publishes frame -> accepted."""
    owner, player = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    await stage.accepted(player, stream, position(1, 2))


async def test_integration_3_revoked_writer_publishes(stage: Stage) -> None:
    """seed 001, Testing Strategy, Integration Tests, 3: revoked writer publishes frame -> rejected."""
    owner, player = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    await stage.ask(owner, REVOKE, stream_id=stream, participant_id="player1")
    await stage.rejected(player, stream, position(1, 2))


async def test_integration_4_new_owner_publishes(stage: Stage) -> None:
    """seed 001, Testing Strategy, Integration Tests, 4: new owner publishes frame -> accepted."""
    owner, player = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="player1")
    await stage.accepted(player, stream, position(1, 2))


async def test_integration_5_previous_owner_publishes(stage: Stage) -> None:
    """seed 001, Testing Strategy, Integration Tests, 5: previous owner publishes frame -> requires grant."""
    owner, player = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, TRANSFER, stream_id=stream, new_owner="player1")
    await stage.rejected(owner, stream, position(1, 2))
    await stage.ask(player, GRANT, stream_id=stream, participant_id="character-server")
    await stage.accepted(owner, stream, position(3, 4))


async def test_integration_6_late_joiner(stage: Stage) -> None:
    """seed 001, Testing Strategy, Integration Tests, 6: late joiner sees authorized_writers in welcome message."""
    owner, _ = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    late = await stage.join("player2")
    assert active_stream(late.welcome, stream)["authorized_writers"] == ["character-server", "player1"]


# -- Testing Strategy, E2E Test Scenario ----------------------------------------------------------


async def test_scenario_character_control_delegation(stage: Stage) -> None:
    """seed 001, Testing Strategy, E2E Test Scenario, Character Control Delegation, 1 to 12."""
    # step 1: character server connects and requests position stream
    server = await stage.join("character-server")
    stream = await server.open_stream(**POSITION_STREAM)
    # step 2: player1 joins (late joiner sees stream with owner=character-server)
    player1 = await stage.join("player1")
    entry = active_stream(player1.welcome, stream)
    assert (entry["owner"], entry["authorized_writers"]) == ("character-server", ["character-server"])
    # step 3: player1 claims control via MCP tool
    await call_tool(player1, server, "claim_control", character_id="character-player1")
    # step 4: character server grants write access to player1
    await stage.ask(
        server, GRANT, stream_id=stream, participant_id="player1", reason="Player claimed character control"
    )
    await player1.receive(GRANTED, stream_id=stream, participant_id="player1")
    # step 5: player1 publishes position frames -> accepted
    for x in range(5):
        await stage.accepted(player1, stream, position(x, 0))
    # step 6: player2 joins (late joiner sees authorized_writers=[character-server, player1])
    player2 = await stage.join("player2")
    assert active_stream(player2.welcome, stream)["authorized_writers"] == ["character-server", "player1"]
    # step 7: player2 attempts to publish -> rejected
    await stage.rejected(player2, stream, position(66, 6))
    # step 8: player1 disconnects: the gateway revokes at once and tells everyone
    await stage.leave(player1)
    for client in (server, player2):
        told = (await client.receive(REVOKED, stream_id=stream, participant_id="player1"))["payload"]
        assert (told["reason"], told["authorized_writers"]) == ("disconnected", ["character-server"])
    # step 9: character server revokes player1's write access: a success that changes nothing
    told = await stage.ask(server, REVOKE, stream_id=stream, participant_id="player1", reason="Player disconnected")
    assert (told["reason"], told["authorized_writers"]) == ("Player disconnected", ["character-server"])
    # step 10: AI agent claims control
    agent = await stage.join("ai-agent")
    assert active_stream(agent.welcome, stream)["authorized_writers"] == ["character-server"]
    await call_tool(agent, server, "claim_control", character_id="character-player1")
    # step 11: character server transfers ownership to AI agent
    told = await stage.ask(server, TRANSFER, stream_id=stream, new_owner="ai-agent", reason="AI takes over")
    assert (told["previous_owner"], told["new_owner"]) == ("character-server", "ai-agent")
    assert told["authorized_writers"] == ["ai-agent"]
    # step 12: AI agent publishes position frames -> accepted
    for y in range(5):
        await stage.accepted(agent, stream, position(5, y))
    await stage.rejected(server, stream, position(0, 0))


# -- Open Questions -------------------------------------------------------------------------------


async def test_question_1_the_revoked_participant_is_notified(stage: Stage) -> None:
    """seed 001, Open Questions, 1, option A: the revoked one is told before it writes again."""
    owner, player = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    id = await owner.send(REVOKE, {"stream_id": stream, "participant_id": "player1", "reason": "round over"})
    told = await player.receive(REVOKED, of=id)
    assert (told["payload"]["participant_id"], told["payload"]["reason"]) == ("player1", "round over")
    assert "system/error" not in kinds_in(player.got)


@pytest.mark.parametrize("how", ["closes", "vanishes"])
async def test_question_2_auto_revoke_on_disconnect(stage: Stage, how: str) -> None:
    """seed 001, Open Questions, 2, option A: no zombie writers, by an orderly close or a lost connection."""
    owner, player = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    await stage.ask(owner, GRANT, stream_id=stream, participant_id="player1")
    if how == "closes":
        await stage.leave(player)
    else:
        stage.clients.remove(player)
        player.connection.transport.abort()
    told = await owner.receive(REVOKED, stream_id=stream)
    assert (told["payload"]["participant_id"], told["payload"]["reason"]) == ("player1", "disconnected")
    assert (await stage.late_view(stream))["authorized_writers"] == ["character-server"]
    await stage.rejected(await stage.join("player1"), stream, "a zombie")


async def test_question_3_no_small_maximum(stage: Stage) -> None:
    """seed 001, Open Questions, 3, option A: everyone here can be a writer (the limit: seed 000, Threat Model, 4)."""
    owner, *others = await stage.cast("character-server", "player1", "player2", "ai-agent", "manager", "chatter")
    stream = await owner.open_stream()
    for client in others:
        await stage.ask(owner, GRANT, stream_id=stream, participant_id=client.participant)
    for client in others:
        await stage.accepted(client, stream, f"from {client.participant}")


async def test_question_4_transfers_are_immediate(stage: Stage) -> None:
    """seed 001, Open Questions, 4, option B: the very next frames are judged by the new ownership."""
    owner, player = await stage.cast("character-server", "player1")
    stream = await owner.open_stream()
    await owner.send(TRANSFER, {"stream_id": stream, "new_owner": "player1"})
    await owner.frame(stream, "right behind the transfer")
    await owner.error("unauthorized_stream_write")
    await stage.accepted(player, stream, "without having said yes")
