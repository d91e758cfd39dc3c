"""Logs with one planted fault each, and what the audit must say of it: the seq and the rule.

Ann and bob may do everything; cy and dee may only chat.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from journals import POSITION_FORMAT, Play, frame_fields

from mewstream.protocol import kinds
from mewstream.protocol.records import (
    EnvelopeAccepted,
    Frame,
    OwnershipTransferred,
    Refused,
    StreamEnded,
    StreamStarted,
    WriteGranted,
    WriteRevoked,
)
from mewstream.protocol.times import SECOND, rfc3339

Expected = tuple[int, str]
Fault = Callable[[Play], Expected]

CHAT_ONLY = [{"kind": "chat"}]
FAULTS: dict[str, Fault] = {}


def fault(plant: Fault) -> Fault:
    FAULTS[plant.__name__] = plant
    return plant


def planted(name: str, *, space: str | None = None) -> tuple[Play, Expected]:
    play = Play(
        space or name,
        capabilities={"cy": CHAT_ONLY, "dee": CHAT_ONLY},
        limits={"streams_per_space": 10, "writers_per_stream": 5},
        begin=False,
    )
    for each in play.people:
        play.join(each)
    play.open("ann", desired_id="main")
    play.frame("ann", "stream-1")
    return play, FAULTS[name](play)


def _frame(play: Play, sender: str, rule: str, stream: str = "stream-1", **fields: Any) -> Expected:
    return play.plant(Frame, **frame_fields(play, stream, sender, **fields)), rule


def _grant(play: Play, participant: str, **payload: Any) -> None:
    play.send("ann", kinds.GRANT_WRITE, stream_id="stream-1", participant_id=participant, **payload)


def _asked(play: Play, sender: str, kind: str, **payload: Any) -> int:
    """An accepted envelope of somebody who had no right to send it."""
    data = {"id": "planted", "from": sender, "kind": kind, "payload": {"stream_id": "stream-1", **payload}}
    fields: dict[str, Any] = {"sender": sender, "kind": kind, "id": "planted", "digest": 0, "stream_id": "stream-1"}
    return play.plant(EnvelopeAccepted, data=json.dumps(data).encode(), **fields)


def _refused(play: Play, sender: str, kind: str, code: str, message: str = "no", **fields: Any) -> Expected:
    fields = {"stream_id": "stream-1", "http_status": 400} | fields
    return play.plant(Refused, sender=sender, kind=kind, code=code, message=message, **fields), "refusal"


# -- frames ---------------------------------------------------------------------------------------


@fault
def unauthorized_frame(play: Play) -> Expected:
    expected = _frame(play, "cy", "frame_no_right")
    play.frame("ann", "stream-1")
    return expected


@fault
def frame_after_revoke(play: Play) -> Expected:
    _grant(play, "bob")
    play.frame("bob", "stream-1")
    play.send("ann", kinds.REVOKE_WRITE, stream_id="stream-1", participant_id="bob")
    expected = _frame(play, "bob", "frame_no_right")
    play.frame("ann", "stream-1")
    return expected


@fault
def frame_after_expiry(play: Play) -> Expected:
    _grant(play, "bob", conditions={"expires_at": rfc3339(play.now + 5 * SECOND)})
    play.frame("bob", "stream-1")
    play.now += 6 * SECOND
    return _frame(play, "bob", "frame_expired")


@fault
def frame_after_max_frames(play: Play) -> Expected:
    _grant(play, "bob", conditions={"max_frames": 3})
    play.frame("bob", "stream-1")
    for _ in range(2):
        play.plant(Frame, **frame_fields(play, "stream-1", "bob"))
    return _frame(play, "bob", "frame_spent")


@fault
def frame_after_close(play: Play) -> Expected:
    play.send("ann", kinds.STREAM_CLOSE, stream_id="stream-1")
    return _frame(play, "ann", "frame_no_stream")


@fault
def frame_without_stream(play: Play) -> Expected:
    return _frame(play, "ann", "frame_no_stream", "stream-7")


@fault
def frame_before_start(play: Play) -> Expected:
    stream = play.announce("ann", start=False)
    return _frame(play, "ann", "frame_not_live", stream)


@fault
def frame_by_one_who_left(play: Play) -> Expected:
    play.leave("ann")
    return _frame(play, "ann", "frame_absent")


@fault
def frame_by_one_who_is_suspended(play: Play) -> Expected:
    play.suspend("ann")
    return _frame(play, "ann", "frame_absent")


@fault
def frame_while_paused(play: Play) -> Expected:
    play.send("bob", kinds.PAUSE, envelope={"to": ["ann"]}, timeout_seconds=60)
    expected = _frame(play, "ann", "frame_paused")
    play.now += 61 * SECOND
    play.frame("ann", "stream-1")
    return expected


@fault
def frame_to_others_than_readers(play: Play) -> Expected:
    stream = play.open("ann", target=["ann", "bob"])
    play.frame("ann", stream)
    return _frame(play, "ann", "frame_readers", stream, readers=("ann", "cy"))


@fault
def frame_to_readers_of_before(play: Play) -> Expected:
    """It names a set that was in force once, and is not any more."""
    stream = play.open("ann", target=["ann", "bob"])
    made_at = play.state.streams[stream].readers_seq
    play.frame("ann", stream)
    play.send("ann", "stream/revoke-read", stream_id=stream, participant_id="bob")
    play.frame("ann", stream)
    return _frame(play, "ann", "frame_readers", stream, readers_seq=made_at)


@fault
def frame_to_everyone_where_some_read(play: Play) -> Expected:
    stream = play.open("ann", target=["ann", "bob"])
    play.frame("ann", stream)
    return _frame(play, "ann", "frame_readers", stream)


@fault
def frame_to_some_where_everyone_reads(play: Play) -> Expected:
    play.open("ann", target=["ann", "bob"])
    return _frame(play, "ann", "frame_readers", "stream-1", readers_seq=play.state.seq)


# -- numbers --------------------------------------------------------------------------------------


@fault
def gap_in_a_stream(play: Play) -> Expected:
    expected = _frame(play, "ann", "stream_seq_gap", stream_seq=4)
    play.frame("ann", "stream-1")
    return expected


@fault
def repeat_in_a_stream(play: Play) -> Expected:
    play.frame("ann", "stream-1")
    expected = _frame(play, "ann", "stream_seq_repeat", stream_seq=2)
    play.frame("ann", "stream-1")
    return expected


@fault
def first_number_of_a_stream(play: Play) -> Expected:
    stream = play.open("ann")
    return _frame(play, "ann", "stream_seq_gap", stream, stream_seq=2)


@fault
def gap_in_the_space(play: Play) -> Expected:
    play.state.seq += 2
    [record] = play.frame("ann", "stream-1")
    play.frame("ann", "stream-1")
    return record.seq, "seq_gap"


@fault
def repeat_in_the_space(play: Play) -> Expected:
    play.state.seq -= 1
    [record] = play.frame("ann", "stream-1")
    play.frame("ann", "stream-1")
    return record.seq, "seq_repeat"


# -- changes --------------------------------------------------------------------------------------


def _transfer(play: Play, by: str, cause: int | None = None, *, rule: str, **fields: Any) -> Expected:
    given: dict[str, Any] = {"previous_owner": "ann", "new_owner": "cy", "authorized_writers": ["cy"]} | fields
    seq = play.plant(OwnershipTransferred, fold=True, cause_seq=cause, stream_id="stream-1", by=by, **given)
    play.frame("cy", "stream-1")
    return seq, rule


@fault
def owner_change_out_of_nothing(play: Play) -> Expected:
    return _transfer(play, "ann", request_id="planted", rule="nowhere")


@fault
def owner_change_by_the_gateway(play: Play) -> Expected:
    return _transfer(play, kinds.GATEWAY, reason="owner_left", rule="owner_left")


@fault
def owner_change_against_the_policy(play: Play) -> Expected:
    """The owner has left, and its streams are kept."""
    _grant(play, "cy")
    play.leave("ann")
    play.wait(60)
    return _transfer(play, kinds.GATEWAY, reason="owner_left", rule="owner_left")


def _orphan(play: Play) -> str:
    """Ann has left her stream, which bob and cy write to. Bob was there first, and was granted the right again."""
    stream = play.open("ann", on_owner_leave="transfer", owner_leave_grace=10)
    for heir in ("bob", "cy", "bob"):
        play.send("ann", kinds.GRANT_WRITE, stream_id=stream, participant_id=heir)
    play.leave("ann")
    play.now += 11 * SECOND
    return stream


@fault
def owner_change_to_the_second_heir(play: Play) -> Expected:
    given: dict[str, Any] = {"previous_owner": "ann", "new_owner": "cy", "authorized_writers": ["ann", "bob", "cy"]}
    stream = _orphan(play)
    seq = play.plant(OwnershipTransferred, fold=True, stream_id=stream, by=kinds.GATEWAY, reason="owner_left", **given)
    return seq, "owner_left"


@fault
def close_of_a_stream_with_an_heir(play: Play) -> Expected:
    stream = _orphan(play)
    seq = play.plant(StreamEnded, fold=True, stream_id=stream, how="closed", by=kinds.GATEWAY, reason="owner_left")
    return seq, "owner_left"


@fault
def transfer_by_a_stranger(play: Play) -> Expected:
    cause = _asked(play, "cy", kinds.TRANSFER_OWNERSHIP, new_owner="cy")
    _transfer(play, "cy", cause, request_id="planted", rule="transfer")
    return cause, "transfer"


@fault
def transfer_to_another_than_asked(play: Play) -> Expected:
    cause = _asked(play, "ann", kinds.TRANSFER_OWNERSHIP, new_owner="bob")
    return _transfer(play, "ann", cause, request_id="planted", rule="transfer")


def _granted(play: Play, by: str, cause: int | None, *, rule: str, **fields: Any) -> Expected:
    given: dict[str, Any] = {"participant": "cy", "authorized_writers": ["ann", "cy"], "request_id": "planted"} | fields
    seq = play.plant(WriteGranted, fold=True, cause_seq=cause, stream_id="stream-1", by=by, **given)
    play.frame("cy", "stream-1")
    return seq, rule


@fault
def grant_by_a_stranger(play: Play) -> Expected:
    cause = _asked(play, "dee", kinds.GRANT_WRITE, participant_id="cy")
    _granted(play, "dee", cause, rule="grant_write")
    return cause, "grant_write"


@fault
def grant_without_a_request(play: Play) -> Expected:
    return _granted(play, "ann", None, rule="nowhere")


@fault
def standing_grant_out_of_nothing(play: Play) -> Expected:
    return _granted(play, "ann", play.join("cy")[0].seq, reason="auto_grant", request_id=None, rule="nowhere")


def _revoked(play: Play, by: str, cause: int | None = None, *, rule: str, **fields: Any) -> Expected:
    _grant(play, "bob", conditions={"expires_at": rfc3339(play.now + 60 * SECOND), "max_frames": 5})
    given: dict[str, Any] = {"participant": "bob", "authorized_writers": ["ann"]} | fields
    seq = play.plant(WriteRevoked, fold=True, cause_seq=cause, stream_id="stream-1", by=by, **given)
    return seq, rule


@fault
def revoke_by_a_stranger(play: Play) -> Expected:
    _grant(play, "bob")
    cause = _asked(play, "cy", kinds.REVOKE_WRITE, participant_id="bob")
    given: dict[str, Any] = {"participant": "bob", "authorized_writers": ["ann"], "by": "cy", "request_id": "planted"}
    play.plant(WriteRevoked, fold=True, cause_seq=cause, stream_id="stream-1", **given)
    return cause, "revoke_write"


@fault
def revoke_before_expiry(play: Play) -> Expected:
    return _revoked(play, kinds.GATEWAY, reason="expired", rule="expiry")


@fault
def revoke_before_max_frames(play: Play) -> Expected:
    return _revoked(play, kinds.GATEWAY, reason="max_frames", rule="spent")


@fault
def revoke_of_one_who_is_here(play: Play) -> Expected:
    return _revoked(play, kinds.GATEWAY, reason="disconnected", rule="nowhere")


@fault
def closed_by_a_stranger(play: Play) -> Expected:
    cause = _asked(play, "cy", kinds.STREAM_CLOSE)
    play.plant(StreamEnded, fold=True, cause_seq=cause, stream_id="stream-1", how="closed", by="cy")
    return cause, "end_stream"


@fault
def started_by_a_stranger(play: Play) -> Expected:
    stream = play.announce("ann", start=False)
    seq = play.plant(StreamStarted, fold=True, stream_id=stream, by="cy")
    play.frame("ann", stream)
    return seq, "nowhere"


# -- refusals -------------------------------------------------------------------------------------


@fault
def refused_the_owner(play: Play) -> Expected:
    return _refused(play, "ann", "frame", "unauthorized_stream_write")


@fault
def refused_a_writer(play: Play) -> Expected:
    _grant(play, "bob")
    return _refused(play, "bob", "stream/data", "unauthorized_stream_write")


@fault
def refused_an_open_stream(play: Play) -> Expected:
    return _refused(play, "ann", "frame", "stream_not_found")


@fault
def refused_an_alias(play: Play) -> Expected:
    return _refused(play, "ann", "frame", "stream_not_found", stream_id="main")


@fault
def refused_somebody_present(play: Play) -> Expected:
    return _refused(play, "ann", kinds.GRANT_WRITE, "participant_not_found", details={"participant_id": "bob"})


@fault
def refused_the_owner_to_grant(play: Play) -> Expected:
    return _refused(play, "ann", kinds.GRANT_WRITE, "unauthorized")


@fault
def refused_a_manager(play: Play) -> Expected:
    return _refused(play, "bob", kinds.STREAM_CLOSE, "unauthorized")


@fault
def refused_a_sequence_that_grows(play: Play) -> Expected:
    play.data("ann", "stream-1", "x", sequence=4)
    excerpt = json.dumps({"stream_id": "stream-1", "sequence": 5})
    message = "payload.sequence is 5, your last on stream-1 was 4: it must grow"
    return _refused(
        play, "ann", "stream/data", "sequence_regression", message, details={"last_sequence": 4}, excerpt=excerpt
    )


@fault
def refused_a_sequence_of_a_new_session(play: Play) -> Expected:
    play.data("ann", "stream-1", "x", sequence=4)
    play.join("ann")
    message = "payload.sequence is 1, your last on stream-1 was 4: it must grow"
    return _refused(play, "ann", "stream/data", "sequence_regression", message, details={"last_sequence": 4})


@fault
def refused_as_paused(play: Play) -> Expected:
    return _refused(play, "ann", "frame", "invalid_operation", "you are paused: frames are not accepted")


@fault
def refused_as_not_live(play: Play) -> Expected:
    return _refused(play, "ann", "frame", "invalid_operation", details={"status": "ready"})


@fault
def refused_a_revoke(play: Play) -> Expected:
    excerpt = json.dumps({"stream_id": "stream-1", "participant_id": "bob"})
    return _refused(play, "ann", kinds.REVOKE_WRITE, "invalid_operation", excerpt=excerpt)


@fault
def refused_a_capability_that_is_held(play: Play) -> Expected:
    return _refused(play, "ann", kinds.STREAM_REQUEST, "capability_violation", stream_id=None)


@fault
def refused_a_capability_that_was_granted(play: Play) -> Expected:
    play.send("ann", "capability/grant", recipient="cy", capabilities=[{"kind": "stream/man*"}])
    return _refused(play, "cy", kinds.STREAM_ANNOUNCE, "capability_violation", stream_id=None)


@fault
def refused_the_only_format(play: Play) -> Expected:
    stream = play.announce("ann", formats=[POSITION_FORMAT])
    return _refused(play, "ann", "frame", "format_required", stream_id=stream)


@fault
def refused_content_that_is_not_checked(play: Play) -> Expected:
    stream = play.announce("ann", formats=[POSITION_FORMAT], validate="off")
    return _refused(play, "ann", "frame", "format_violation", stream_id=stream, details={"problems": ["x"]})


@fault
def refused_within_a_limit(play: Play) -> Expected:
    details = {"limit": "streams_per_space"}
    return _refused(play, "ann", kinds.STREAM_REQUEST, "limit_exceeded", stream_id=None, details=details)


@fault
def refused_writers_within_a_limit(play: Play) -> Expected:
    return _refused(play, "ann", kinds.GRANT_WRITE, "limit_exceeded", details={"limit": "writers_per_stream"})


@fault
def refused_a_free_kind(play: Play) -> Expected:
    return _refused(play, "ann", kinds.STREAM_REQUEST, "reserved_kind", stream_id=None)


@fault
def refused_a_known_target(play: Play) -> Expected:
    return _refused(play, "ann", kinds.STREAM_REQUEST, "target_not_found", stream_id=None, details={"targets": ["dee"]})
