"""One fault in a log that is otherwise sound: it is found, with its rule and its seq, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from journals import POSITION_FORMAT, Play
from logs import rows, said_of, small

from mewstream.protocol import commands, kinds
from mewstream.protocol.records import (
    AdmissionEnded,
    Admitted,
    Banned,
    CapabilitiesGranted,
    CapabilitiesRevoked,
    ClockJumped,
    EnvelopeAccepted,
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
    StreamEnded,
    StreamOpened,
    StreamReused,
    StreamStarted,
    Suspended,
    Unbanned,
    Uninvited,
    Unpaused,
    WriteDenied,
    WriteGranted,
    WriteRequested,
    WriteRevoked,
)
from mewstream.protocol.times import SECOND, rfc3339

Fault = Callable[[Play], tuple[int, str]]
FAULTS: dict[str, tuple[dict[str, Any], Fault]] = {}


def fault(**policies: Any) -> Callable[[Fault], Fault]:
    def declare(plant: Fault) -> Fault:
        FAULTS[plant.__name__] = (policies, plant)
        return plant

    return declare


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_nothing_else(name: str) -> None:
    """Faults are declared below; parametrize looks again when the module is complete."""
    policies, plant = FAULTS[name]
    play = small(policies=policies)
    expected = plant(play)
    play.wait(3)
    for each in ("ann", "bob"):
        if play.state.is_present(each):
            play.send(each, kinds.CHAT, text="and so on")
    said = said_of(play)
    assert said.places == [expected], said.findings
    assert said.findings[0].reason
    assert said_of(play, seed=len(name)).places == [expected]


# -- editing a log --------------------------------------------------------------------------------


def last(play: Play, record: type[Record]) -> Any:
    return [each for each in play.records if type(each) is record][-1]


def edit(play: Play, record: type[Record], **changes: Any) -> int:
    """Change the newest record of a type, and return its seq."""
    old = last(play, record)
    play.records[play.records.index(old)] = msgspec.structs.replace(old, **changes)
    return int(old.seq)


def drop(play: Play, record: type[Record]) -> int:
    """Remove the newest record of a type from the log, and return the seq of what caused it."""
    old = last(play, record)
    play.records.remove(old)
    return int(old.cause_seq or 0)


def accept(play: Play, sender: str, kind: str, *, fields: dict[str, Any] | None = None, **payload: Any) -> int:
    """Plant an accepted envelope, whoever may send it."""
    stream = payload.get("stream_id")
    data = {"id": f"planted-{len(play.records)}", "from": sender, "kind": kind, "payload": payload, **(fields or {})}
    more = {"sender": sender, "kind": kind, "id": data["id"], "digest": 0, "stream_id": stream}
    return play.plant(EnvelopeAccepted, data=json.dumps(data).encode(), **more)


def refuse(play: Play, sender: str, kind: str, code: str, **fields: Any) -> tuple[int, str]:
    payload = fields.pop("payload", None)
    excerpt = "" if payload is None else json.dumps(payload)
    more = {"message": "no", "http_status": 400, "excerpt": excerpt} | fields
    return play.plant(Refused, sender=sender, kind=kind, code=code, **more), "refusal"


def grant(play: Play, who: str, **payload: Any) -> None:
    play.send("ann", kinds.GRANT_WRITE, stream_id="stream-1", participant_id=who, **payload)


# -- opening --------------------------------------------------------------------------------------


@fault()
def opened_without_the_capability(play: Play) -> tuple[int, str]:
    seq = accept(play, "cy", kinds.STREAM_REQUEST, description="x")
    policy = last(play, StreamOpened).policy
    request = {"owner": "cy", "request_id": last(play, EnvelopeAccepted).id, "request": {"description": "x"}}
    more = {"stream_id": "stream-2", "status": "live", "policy": policy, "authorized_writers": ["cy"]}
    play.plant(StreamOpened, cause_seq=seq, fold=True, **request, **more)
    return seq, "open_stream"


@fault()
def opened_out_of_nothing(play: Play) -> tuple[int, str]:
    policy = last(play, StreamOpened).policy
    more = {"stream_id": "stream-2", "status": "live", "policy": policy, "authorized_writers": ["ann"]}
    return play.plant(StreamOpened, fold=True, owner="ann", request_id="x", request={}, **more), "nowhere"


def _opened(name: str, asked: dict[str, Any], **changes: Any) -> None:
    @fault()
    def plant(play: Play) -> tuple[int, str]:
        play.open("ann", **asked)
        return edit(play, StreamOpened, **changes), "open_stream"

    FAULTS[name] = FAULTS.pop("plant")


_opened("opened_with_a_writer_nobody_asked_for", {}, authorized_writers=["ann", "dee"])
_opened("opened_with_readers_nobody_asked_for", {}, authorized_readers=["ann", "dee"])
_opened("opened_for_everyone_though_private", {"target": ["bob"]}, authorized_readers=None)
_opened("opened_with_one_more_reader", {"target": ["bob"]}, authorized_readers=["bob", "cy"])
_opened("opened_for_another_owner", {}, owner="bob", authorized_writers=["bob"])
_opened("opened_as_ready", {}, status="ready")
_opened("opened_under_another_alias", {"desired_id": "a"}, alias="b")
_opened("opened_under_a_taken_alias", {"desired_id": "main"}, alias="main")
_opened("opened_with_another_request", {"description": "a"}, request={"description": "b"})
_opened("opened_with_a_standing_grant", {}, auto_grant=["dee"])
_opened("opened_with_another_number", {}, stream_id="stream-7")
_opened("opened_with_other_formats", {"formats": [POSITION_FORMAT]}, formats=[])
_opened("opened_with_a_time_limit", {}, start_by=1_900_000_000_000_000)


@fault()
def opened_with_another_policy(play: Play) -> tuple[int, str]:
    play.open("ann", on_owner_leave="close")
    policy = msgspec.structs.replace(last(play, StreamOpened).policy, on_owner_leave="keep")
    return edit(play, StreamOpened, policy=policy), "open_stream"


@fault()
def an_opening_that_is_missing(play: Play) -> tuple[int, str]:
    play.open("ann")
    return drop(play, StreamOpened), "open_stream"


# -- rights ---------------------------------------------------------------------------------------


@fault()
def granted_without_the_conditions(play: Play) -> tuple[int, str]:
    grant(play, "bob", conditions={"max_frames": 3})
    return edit(play, WriteGranted, conditions=None, max_frames=None), "grant_write"


@fault()
def granted_for_longer(play: Play) -> tuple[int, str]:
    grant(play, "bob", conditions={"expires_at": rfc3339(play.now + 60 * SECOND)})
    later = play.now + 90 * SECOND
    return edit(play, WriteGranted, conditions={"expires_at": rfc3339(later)}, expires_at=later), "grant_write"


@fault()
def granted_to_another(play: Play) -> tuple[int, str]:
    grant(play, "bob")
    return edit(play, WriteGranted, participant="cy", authorized_writers=["ann", "cy"]), "grant_write"


@fault()
def told_a_wrong_list_of_writers(play: Play) -> tuple[int, str]:
    grant(play, "bob")
    return edit(play, WriteGranted, authorized_writers=["ann", "bob", "dee"]), "grant_write"


@fault()
def granted_by_another(play: Play) -> tuple[int, str]:
    grant(play, "bob")
    return edit(play, WriteGranted, by="dee"), "grant_write"


@fault()
def granted_to_one_who_is_absent(play: Play) -> tuple[int, str]:
    play.leave("bob")
    seq = accept(play, "ann", kinds.GRANT_WRITE, stream_id="stream-1", participant_id="bob")
    fields = {"stream_id": "stream-1", "participant": "bob", "authorized_writers": ["ann", "bob"], "by": "ann"}
    play.plant(WriteGranted, cause_seq=seq, request_id=last(play, EnvelopeAccepted).id, fold=True, **fields)
    return seq, "grant_write"


@fault()
def granted_by_a_stranger(play: Play) -> tuple[int, str]:
    seq = accept(play, "dee", kinds.GRANT_WRITE, stream_id="stream-1", participant_id="cy")
    fields = {"stream_id": "stream-1", "participant": "cy", "authorized_writers": ["ann", "cy"], "by": "dee"}
    play.plant(WriteGranted, cause_seq=seq, request_id=last(play, EnvelopeAccepted).id, fold=True, **fields)
    return seq, "grant_write"


@fault()
def revoked_from_another(play: Play) -> tuple[int, str]:
    grant(play, "bob")
    play.send("ann", kinds.REVOKE_WRITE, stream_id="stream-1", participant_id="bob")
    return edit(play, WriteRevoked, reason="because"), "revoke_write"


@fault()
def a_revoke_that_is_missing(play: Play) -> tuple[int, str]:
    grant(play, "bob")
    play.send("ann", kinds.REVOKE_WRITE, stream_id="stream-1", participant_id="bob")
    return drop(play, WriteRevoked), "revoke_write"


@fault()
def an_old_owner_that_keeps_the_right(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.TRANSFER_OWNERSHIP, stream_id="stream-1", new_owner="bob")
    return edit(play, OwnershipTransferred, authorized_writers=["bob", "ann"]), "transfer"


@fault()
def an_old_owner_that_loses_a_right_it_should_keep(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.TRANSFER_OWNERSHIP, stream_id="stream-1", new_owner="bob", retain_write=True)
    return edit(play, OwnershipTransferred, authorized_writers=["bob"]), "transfer"


@fault()
def a_stream_handed_to_another(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.TRANSFER_OWNERSHIP, stream_id="stream-1", new_owner="bob")
    return edit(play, OwnershipTransferred, new_owner="cy", authorized_writers=["cy"]), "transfer"


@fault()
def a_reader_beyond_the_one_named(play: Play) -> tuple[int, str]:
    stream = play.open("ann", target=["ann"])
    play.send("ann", kinds.GRANT_READ, stream_id=stream, participant_id="bob")
    return edit(play, ReadGranted, authorized_readers=["ann", "bob", "cy"]), "grant_read"


@fault()
def a_reader_that_stays(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.REVOKE_READ, stream_id="stream-1", participant_id="bob")
    return edit(play, ReadRevoked, authorized_readers=["ann", "bob", "cy", "dee"]), "revoke_read"


@fault()
def a_standing_grant_that_a_join_does_not_carry_out(play: Play) -> tuple[int, str]:
    play.leave("bob")
    play.open("ann", auto_grant=["bob"])
    play.join("bob")
    return drop(play, WriteGranted), "standing_grants"


# -- handing over and asking ----------------------------------------------------------------------


@fault()
def a_replaced_writer_that_keeps_the_right(play: Play) -> tuple[int, str]:
    grant(play, "bob")
    grant(play, "cy", replaces="bob")
    cause = drop(play, WriteRevoked)
    edit(play, WriteGranted, authorized_writers=["ann", "bob", "cy"])
    return cause, "grant_write"


@fault()
def another_writer_replaced(play: Play) -> tuple[int, str]:
    grant(play, "bob")
    grant(play, "cy", replaces="bob")
    return edit(play, WriteGranted, replaces="dee"), "grant_write"


@fault()
def a_request_of_a_writer(play: Play) -> tuple[int, str]:
    seq = accept(play, "ann", kinds.REQUEST_WRITE, stream_id="stream-1")
    play.plant(WriteRequested, cause_seq=seq, stream_id="stream-1", participant="ann")
    return seq, "request_write"


@fault()
def a_request_of_another(play: Play) -> tuple[int, str]:
    play.send("bob", kinds.REQUEST_WRITE, stream_id="stream-1")
    return edit(play, WriteRequested, participant="cy"), "request_write"


@fault()
def a_request_that_is_not_recorded(play: Play) -> tuple[int, str]:
    play.send("bob", kinds.REQUEST_WRITE, stream_id="stream-1")
    return drop(play, WriteRequested), "request_write"


@fault()
def a_request_denied_by_a_stranger(play: Play) -> tuple[int, str]:
    play.send("bob", kinds.REQUEST_WRITE, stream_id="stream-1")
    seq = accept(play, "cy", kinds.DENY_WRITE, stream_id="stream-1", participant_id="bob")
    play.plant(WriteDenied, cause_seq=seq, stream_id="stream-1", participant="bob", by="cy", fold=True)
    return seq, "deny_write"


@fault()
def a_denial_out_of_nothing(play: Play) -> tuple[int, str]:
    return play.plant(WriteDenied, stream_id="stream-1", participant="bob", by="ann"), "nowhere"


# -- the life of a stream -------------------------------------------------------------------------


@fault()
def started_by_a_stranger(play: Play) -> tuple[int, str]:
    play.announce("ann", start=False)
    seq = accept(play, "bob", kinds.STREAM_START, stream_id="stream-2")
    play.plant(StreamStarted, cause_seq=seq, stream_id="stream-2", by="bob", fold=True)
    return seq, "start_stream"


@fault()
def closed_by_a_stranger(play: Play) -> tuple[int, str]:
    seq = accept(play, "cy", kinds.STREAM_CLOSE, stream_id="stream-1")
    play.plant(StreamEnded, cause_seq=seq, stream_id="stream-1", how="closed", by="cy", fold=True)
    return seq, "end_stream"


@fault()
def ended_with_another_code(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.STREAM_ERROR, stream_id="stream-1", code="broken", message="it broke")
    return edit(play, StreamEnded, code="fine"), "end_stream"


@fault()
def closed_another_stream(play: Play) -> tuple[int, str]:
    play.open("ann")
    play.send("ann", kinds.STREAM_CLOSE, stream_id="stream-1")
    return edit(play, StreamEnded, stream_id="stream-2"), "end_stream"


# -- capabilities and participants ----------------------------------------------------------------


@fault()
def a_capability_from_nowhere_then_used(play: Play) -> tuple[int, str]:
    fields = {"grant_id": "g", "participant": "cy", "capabilities": [{"kind": "mcp/*"}], "by": "ann"}
    seq = play.plant(CapabilitiesGranted, fold=True, **fields)
    play.send("cy", kinds.MCP_REQUEST, method="tools/list")
    return seq, "nowhere"


@fault()
def more_capabilities_than_were_granted(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.CAPABILITY_GRANT, recipient="cy", capabilities=[{"kind": "mcp/request"}])
    return edit(play, CapabilitiesGranted, capabilities=[{"kind": "mcp/*"}]), "capability_grant"


@fault()
def a_capability_granted_that_is_not_held(play: Play) -> tuple[int, str]:
    patterns = [{"kind": "mcp/*"}]
    play.send("ann", kinds.CAPABILITY_GRANT, recipient="cy", capabilities=[{"kind": "capability/grant"}])
    seq = accept(play, "cy", kinds.CAPABILITY_GRANT, recipient="dee", capabilities=patterns)
    given = {"grant_id": last(play, EnvelopeAccepted).id, "participant": "dee", "capabilities": patterns, "by": "cy"}
    play.plant(CapabilitiesGranted, cause_seq=seq, fold=True, **given)
    return seq, "capability_grant"


@fault()
def capabilities_that_a_revoke_leaves(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.CAPABILITY_GRANT, recipient="cy", capabilities=[{"kind": "mcp/request"}])
    id = last(play, CapabilitiesGranted).grant_id
    play.send("ann", kinds.CAPABILITY_REVOKE, recipient="cy", capabilities=[{"kind": "mcp/*"}])
    return edit(play, CapabilitiesRevoked, remaining={id: [{"kind": "mcp/request"}]}), "capability_revoke"


def _envelope(name: str, rule: str, sender: str, kind: str, *, fields: Any = None, **payload: Any) -> None:
    @fault()
    def plant(play: Play) -> tuple[int, str]:
        return accept(play, sender, kind, fields=fields, **payload), rule

    FAULTS[name] = FAULTS.pop("plant")


_envelope("mcp_without_the_capability", "relay", "cy", kinds.MCP_REQUEST, method="tools/list")
_envelope("an_unknown_kind_without_the_capability", "relay", "cy", "my/kind")
_envelope("chat_without_a_text", "relay", "ann", kinds.CHAT)
_envelope("a_reserved_kind", "relay", "ann", kinds.STREAM_OPEN)
_envelope("an_envelope_of_nobody", "relay", "zoe", kinds.CHAT, text="x")
_envelope("an_invitation_without_the_capability", "invite", "cy", kinds.INVITE, participant_id="eve")
_envelope("a_kick_by_somebody_who_may_not", "kick", "cy", kinds.KICK, participant_id="bob")
_envelope("a_pause_by_somebody_who_may_not", "pause", "cy", kinds.PAUSE, fields={"to": ["bob"]})
_envelope("a_shutdown_by_somebody_who_may_not", "shutdown", "cy", kinds.SHUTDOWN, fields={"to": ["bob"]})
_envelope("a_withdrawal_of_nothing", "withdraw", "ann", kinds.MCP_WITHDRAW, fields={"correlation_id": ["none"]})
_envelope("a_rejection_of_nothing", "reject", "ann", kinds.MCP_REJECT, fields={"correlation_id": ["none"]})


@fault()
def a_withdrawal_of_anothers_proposal(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.MCP_PROPOSAL, method="tools/call")
    named = {"correlation_id": [last(play, EnvelopeAccepted).id]}
    return accept(play, "bob", kinds.MCP_WITHDRAW, fields=named), "withdraw"


@fault()
def a_proposal_fulfilled_by_somebody_who_may_not(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.MCP_PROPOSAL, method="tools/call")
    named = {"correlation_id": [last(play, EnvelopeAccepted).id]}
    return accept(play, "cy", kinds.MCP_REQUEST, fields=named, method="tools/call"), "relay"


@fault()
def invited_with_more_than_was_asked(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.INVITE, participant_id="eve", capabilities=[{"kind": "chat"}])
    return edit(play, Invited, capabilities=[{"kind": "*"}]), "invite"


@fault()
def a_kick_without_a_leave(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.KICK, participant_id="cy")
    return drop(play, Left), "kick"


@fault()
def a_kick_out_of_nothing(play: Play) -> tuple[int, str]:
    return play.plant(Left, participant="cy", reason="kicked", fold=True), "leave"


@fault()
def a_pause_that_is_longer(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.PAUSE, envelope={"to": ["cy"]}, timeout_seconds=60)
    return edit(play, Paused, until=play.now + 600 * SECOND), "pause"


@fault()
def a_pause_out_of_nothing(play: Play) -> tuple[int, str]:
    return play.plant(Paused, participant="cy", until=None, by="ann", fold=True), "nowhere"


@fault()
def chat_while_paused(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.PAUSE, envelope={"to": ["cy"]})
    return accept(play, "cy", kinds.CHAT, text="x"), "relay"


@fault()
def chat_after_a_shutdown(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.SHUTDOWN, envelope={"to": ["cy"]})
    return accept(play, "cy", kinds.CHAT, text="x"), "relay"


@fault()
def a_resume_that_ends_nothing(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.PAUSE, envelope={"to": ["cy"]})
    play.send("ann", kinds.RESUME, envelope={"to": ["cy"]})
    return drop(play, Unpaused), "resume"


@fault()
def somebody_else_shut_down(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.SHUTDOWN, envelope={"to": ["cy"]})
    return edit(play, ShutDown, participant="dee"), "shutdown"


# -- names, bans, invitations ---------------------------------------------------------------------


@fault()
def a_stream_given_back_to_another(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.STREAM_REQUEST, desired_id="main", if_exists="reuse")
    return edit(play, StreamReused, owner="bob"), "reuse"


@fault()
def a_replaced_stream_that_stays(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.STREAM_REQUEST, desired_id="main", if_exists="replace")
    return drop(play, StreamEnded), "open_stream"


@fault()
def closed_as_idle_without_such_a_limit(play: Play) -> tuple[int, str]:
    fields = {"stream_id": "stream-1", "how": "closed", "by": kinds.GATEWAY, "reason": "idle"}
    return play.plant(StreamEnded, fold=True, **fields), "idle"


@fault()
def a_ban_that_is_longer(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.KICK, participant_id="cy", ban=60)
    return edit(play, Banned, until=play.now + 600 * SECOND), "kick"


@fault()
def a_ban_that_does_not_end(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.KICK, participant_id="cy", ban=1)
    play.wait(5)
    drop(play, Unbanned)
    play.send("ann", kinds.CHAT, text="later")
    return play.records[-1].seq, "ban_end"


@fault()
def a_ban_ended_by_somebody_who_may_not(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.KICK, participant_id="cy", ban=60)
    return accept(play, "dee", kinds.UNBAN, participant_id="cy"), "unban"


@fault()
def chat_of_one_who_is_banned(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.KICK, participant_id="cy", ban=60)
    return accept(play, "cy", kinds.CHAT, text="x"), "relay"


@fault()
def an_invitation_that_does_not_end(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.INVITE, participant_id="eve", expires_in=1)
    play.wait(5)
    drop(play, Uninvited)
    play.send("ann", kinds.CHAT, text="later")
    return play.records[-1].seq, "invitation_end"


@fault()
def an_invitation_that_is_not_taken_back(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.INVITE, participant_id="eve")
    play.send("ann", kinds.UNINVITE, participant_id="eve")
    return drop(play, Uninvited), "uninvite"


# -- joins, leaves, the welcome -------------------------------------------------------------------


@fault()
def a_leave_without_its_revokes(play: Play) -> tuple[int, str]:
    grant(play, "bob")
    play.leave("bob")
    return drop(play, WriteRevoked), "revokes_on_leave"


@fault()
def a_leave_of_one_who_was_not_here(play: Play) -> tuple[int, str]:
    play.leave("cy")
    return play.plant(Left, participant="cy", reason="disconnected"), "leave"


@fault()
def a_join_of_nobody(play: Play) -> tuple[int, str]:
    digest = str(play.state.welcome_digest.with_participant("zoe"))
    fields = {"participant": "zoe", "capabilities": [], "transport": "ws", "welcome_digest": digest}
    return play.plant(Joined, fold=True, **fields), "join"


@fault()
def a_join_with_other_capabilities(play: Play) -> tuple[int, str]:
    play.leave("cy")
    play.join("cy")
    return edit(play, Joined, capabilities=[{"kind": "*"}]), "join"


@fault()
def a_join_that_resumes_nothing(play: Play) -> tuple[int, str]:
    play.leave("cy")
    play.join("cy")
    return edit(play, Joined, resumed=True), "join"


@fault()
def suspended_for_longer(play: Play) -> tuple[int, str]:
    play.suspend("cy")
    return edit(play, Suspended, until=play.now + 900 * SECOND), "suspend"


def _lies(name: str, change: Callable[[Play], Any]) -> None:
    @fault()
    def plant(play: Play) -> tuple[int, str]:
        play.open("ann", target=["ann", "bob"], auto_grant=["bob"])
        play.leave("cy")
        change(play)
        play.join("cy")
        play.leave("dee")
        play.join("dee")
        seqs = [each.seq for each in play.records if isinstance(each, Joined)]
        return seqs[-2], "welcome"

    FAULTS[name] = FAULTS.pop("plant")


_lies("a_welcome_without_a_stream", lambda play: play.state.welcome_digest.remove("stream", "stream-2", "ann", "live"))
_lies("a_welcome_with_a_wrong_writer", lambda play: play.state.welcome_digest.add("writer", "stream-1", "dee", None))
_lies("a_welcome_with_a_wrong_reader", lambda play: play.state.welcome_digest.add("reader", "stream-2", "dee"))
_lies("a_welcome_with_somebody_absent", lambda play: play.state.welcome_digest.add("participant", "zoe"))


@fault()
def a_welcome_of_which_nothing_is_recorded(play: Play) -> tuple[int, str]:
    play.leave("cy")
    play.join("cy")
    return edit(play, Joined, welcome_digest=None), "welcome"


# -- signed tokens and missed frames --------------------------------------------------------------


def _admit(play: Play, seconds: int = 2) -> None:
    play.do(commands.Admit("tok", [{"kind": "chat"}], play.now + seconds * SECOND, None))
    play.join("tok")


@fault()
def a_token_beyond_the_limit(play: Play) -> tuple[int, str]:
    _admit(play, 60)
    play.records[0].config["limits"] = {"admissions": 0}  # type: ignore[attr-defined]
    return int(last(play, Admitted).seq), "admit"


@fault()
def a_token_that_does_not_end(play: Play) -> tuple[int, str]:
    _admit(play)
    play.wait(5)
    drop(play, Left)
    drop(play, AdmissionEnded)
    play.send("ann", kinds.CHAT, text="later")
    return play.records[-1].seq, "admission"


@fault()
def a_token_that_ends_while_its_holder_stays(play: Play) -> tuple[int, str]:
    _admit(play)
    play.wait(5)
    return drop(play, Left), "admission_end"


@fault()
def more_frames_dropped_than_there_were(play: Play) -> tuple[int, str]:
    fields = {"participant": "bob", "stream_id": "stream-1", "first_seq": 3, "last_seq": 5, "policy": "latest"}
    return play.plant(FramesDropped, count=9, **fields), "frames_dropped"


# -- time -----------------------------------------------------------------------------------------


@fault()
def an_expiry_that_did_not_happen(play: Play) -> tuple[int, str]:
    grant(play, "bob", conditions={"expires_at": rfc3339(play.now + SECOND)})
    play.wait(3)
    drop(play, WriteRevoked)
    play.send("ann", kinds.CHAT, text="later")
    return play.records[-1].seq, "expiry"


@fault(start_timeout=2)
def a_start_timeout_that_did_not_happen(play: Play) -> tuple[int, str]:
    play.announce("ann", start=False)
    play.wait(5)
    drop(play, StreamEnded)
    play.send("ann", kinds.CHAT, text="later")
    return play.records[-1].seq, "start_timeout"


@fault(on_owner_leave="close", owner_leave_grace=1)
def a_close_that_did_not_happen(play: Play) -> tuple[int, str]:
    play.leave("ann")
    play.wait(5)
    drop(play, StreamEnded)
    play.send("bob", kinds.CHAT, text="later")
    return play.records[-1].seq, "owner_left"


@fault(on_owner_leave="transfer", owner_leave_grace=1)
def a_transfer_to_the_wrong_heir(play: Play) -> tuple[int, str]:
    grant(play, "bob")
    grant(play, "cy")
    play.leave("ann")
    play.wait(5)
    return edit(play, OwnershipTransferred, new_owner="cy", authorized_writers=["cy", "bob"]), "owner_left"


@fault(on_owner_leave="close", owner_leave_grace=60)
def a_close_that_came_too_early(play: Play) -> tuple[int, str]:
    play.leave("ann")
    fields = {"stream_id": "stream-1", "how": "closed", "by": kinds.GATEWAY, "reason": "owner_left"}
    return play.plant(StreamEnded, fold=True, **fields), "owner_left"


@fault(reconnect_grace=2)
def somebody_suspended_who_never_leaves(play: Play) -> tuple[int, str]:
    play.leave("cy")
    play.wait(5)
    drop(play, Left)
    play.send("ann", kinds.CHAT, text="later")
    return play.records[-1].seq, "rejoin"


@fault()
def a_pause_that_does_not_end(play: Play) -> tuple[int, str]:
    play.send("ann", kinds.PAUSE, envelope={"to": ["cy"]}, timeout_seconds=1)
    play.wait(5)
    drop(play, Unpaused)
    play.send("ann", kinds.CHAT, text="later")
    return play.records[-1].seq, "pause_end"


@fault()
def time_that_runs_back_over_an_expiry(play: Play) -> tuple[int, str]:
    grant(play, "bob", conditions={"expires_at": rfc3339(play.now + SECOND)})
    play.wait(3)
    play.send("ann", kinds.CHAT, text="later")
    return edit(play, EnvelopeAccepted, ts=last(play, EnvelopeAccepted).ts - 4 * SECOND), "clock"


@fault()
def a_jump_that_moves_deadlines_without_cause(play: Play) -> tuple[int, str]:
    return play.plant(ClockJumped, by=1, shift=60 * SECOND, fold=True), "clock"


@fault()
def a_right_used_up_too_early(play: Play) -> tuple[int, str]:
    grant(play, "bob", conditions={"max_frames": 3})
    play.frame("bob", "stream-1")
    fields = {"stream_id": "stream-1", "participant": "bob", "authorized_writers": ["ann"], "by": kinds.GATEWAY}
    return play.plant(WriteRevoked, fold=True, reason="max_frames", **fields), "spent"


# -- limits ---------------------------------------------------------------------------------------


def _limit(name: str, limit: str, most: int, rule: str, exceed: Callable[[Play], Any]) -> None:
    """What the core accepts with room is recorded in a space that has less of it."""

    @fault()
    def plant(play: Play) -> tuple[int, str]:
        before = len(play.records)
        exceed(play)
        play.records[0].config["limits"] = {limit: most}  # type: ignore[attr-defined]
        made = [each for each in play.records[before:] if isinstance(each, EnvelopeAccepted)]
        return made[-1].seq, rule

    FAULTS[name] = FAULTS.pop("plant")


_limit("too_many_streams", "streams_per_space", 1, "open_stream", lambda play: play.open("bob"))
_limit("too_many_streams_of_one", "streams_per_participant", 1, "open_stream", lambda play: play.open("ann"))
_limit("too_many_writers", "writers_per_stream", 1, "grant_write", lambda play: grant(play, "bob"))
_limit("too_many_readers", "readers_per_stream", 1, "open_stream", lambda play: play.open("bob", target=["ann", "cy"]))
_limit("too_long_a_request", "stream_metadata_bytes", 99, "open_stream", lambda play: play.open("bob", x="x" * 9999))


# -- refusals -------------------------------------------------------------------------------------

STREAM = {"stream_id": "stream-1"}
NAMED = {"stream_id": "stream-1", "participant_id": "bob"}


def _refusal(name: str, sender: str, kind: str, code: str, **fields: Any) -> None:
    @fault()
    def plant(play: Play) -> tuple[int, str]:
        return refuse(play, sender, kind, code, **fields)

    FAULTS[name] = FAULTS.pop("plant")


_refusal("the_owner_refused_a_frame", "ann", "frame", "unauthorized_stream_write", **STREAM)
_refusal("a_frame_refused_with_another_code", "cy", "frame", "invalid_operation", **STREAM)
_refusal("a_stream_that_is_open_not_found", "ann", "frame", "stream_not_found", **STREAM)
_refusal("an_alias_not_found", "ann", "frame", "stream_not_found", stream_id="main")
_refusal("the_owner_refused_a_grant", "ann", kinds.GRANT_WRITE, "unauthorized", payload=NAMED, **STREAM)
_refusal("the_owner_refused_a_secret_grant", "ann", kinds.GRANT_WRITE, "unauthorized", details=STREAM, **STREAM)
_refusal("a_stranger_refused_with_another_code", "cy", kinds.GRANT_WRITE, "invalid_operation", payload=NAMED)
_refusal("somebody_present_not_found", "ann", kinds.GRANT_WRITE, "participant_not_found", payload=NAMED)
_refusal("a_capability_that_is_held", "cy", kinds.CHAT, "capability_violation", payload={"text": "x"})
_refusal("a_text_that_is_there", "cy", kinds.CHAT, "validation_error", payload={"text": "x"}, details={"field": "text"})
_refusal("refused_as_paused", "cy", kinds.CHAT, "invalid_operation", payload={"text": "x"})
_refusal("a_name_that_is_free", "ann", kinds.INVITE, "already_exists", payload={"participant_id": "eve"})
_refusal("a_target_that_is_known", "ann", kinds.STREAM_REQUEST, "target_not_found", payload={"target": ["bob"]})
_refusal("a_limit_with_room", "ann", kinds.STREAM_REQUEST, "limit_exceeded", details={"limit": "streams_per_space"})
_refusal("a_kind_that_is_free", "ann", kinds.CHAT, "reserved_kind", payload={"text": "x"})
_refusal("a_format_where_there_is_none", "ann", "frame", "format_required", **STREAM)
_refusal("a_close_by_the_owner", "ann", kinds.STREAM_CLOSE, "unauthorized", payload=STREAM, **STREAM)
_refusal("a_full_space_with_room", "eve", kinds.JOIN, "limit_exceeded", details={"limit": "participants_per_space"})


# -- what is around -------------------------------------------------------------------------------


def test_columns_that_differ_from_the_detail_are_found() -> None:
    play = small()
    grant(play, "bob")
    for changes in (
        {"sender": "dee"},
        {"participant": "dee"},
        {"stream_id": "stream-9"},
        {"cause_seq": 1},
        {"ts": play.now + 1},
    ):
        records = list(rows(play))
        records[-1] = records[-1]._replace(**changes)
        assert {seq for seq, _ in said_of(play, records=records).places} == {records[-1].seq}, changes


def test_somebody_who_was_here_before_a_restart_is_suspended() -> None:
    play = small()
    play.restart(after=1.0)
    drop(play, Suspended)
    play.send("ann", kinds.CHAT, text="x")
    assert said_of(play).places == [(play.records[-1].seq, "restart")]


def test_a_revoke_with_a_condition_that_nobody_knows_is_not_judged() -> None:
    odd = [{"kind": "chat", "payload": {"text": "!(broken"}}, {"kind": "my/kind", "payload": {"$.[": 1}}]
    play = small()
    play.records[0].config["participants"]["cy"]["capabilities"] = odd  # type: ignore[attr-defined]
    accept(play, "cy", "my/kind", x=1)
    said = said_of(play)
    assert ("envelope", "a capability is not understood") in said.unjudged
    assert "relay" not in {rule for _, rule in said.places}
