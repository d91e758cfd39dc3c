"""Rights of writers who are not here: ``on_disconnect`` and ``when_absent``, decisions 4 and 6."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Space, is_frame

from mewstream.protocol import commands
from mewstream.protocol.records import WriteGranted, WriteRevoked
from mewstream.protocol.snapshot import dump, load
from mewstream.protocol.times import rfc3339


def lent(grace: float = 10, **terms: Any) -> tuple[Space, str]:
    """bob may write to alice's stream; carol is known and not here."""
    space = Space("alice", "bob", capabilities={"carol": ["chat"]}, policies={"reconnect_grace": grace})
    stream = space.open("alice")
    assert space.grant("alice", stream, "bob", **terms).error is None
    return space, stream


def close(space: Space, who: str) -> Any:
    return space.do(commands.Disconnect(who, space.session(who), is_final=True))


class TestOnDisconnect:
    def test_without_it_a_right_ends_with_the_leave(self) -> None:
        space, stream = lent()
        assert space.leave("bob").types == ["Suspended"]
        assert space.writers(stream) == ["alice", "bob"]
        assert space.tick(10).types == ["Left", "WriteRevoked"]
        space, stream = lent()
        assert close(space, "bob").types == ["Left", "WriteRevoked"]

    def test_revoke_does_not_wait_for_the_grace(self) -> None:
        space, stream = lent(on_disconnect="revoke")
        outcome = space.leave("bob")
        assert outcome.types == ["Suspended", "WriteRevoked"]
        revoked = outcome.one(WriteRevoked)
        assert (revoked.reason, revoked.participant, revoked.cause_seq) == ("disconnected", "bob", revoked.seq - 1)
        assert space.writers(stream) == ["alice"]
        assert space.tick(10).types == ["Left"]

    def test_revoke_after_a_close(self) -> None:
        space, _ = lent(on_disconnect="revoke")
        assert close(space, "bob").types == ["Left", "WriteRevoked"]

    def test_keep_outlasts_the_leave(self) -> None:
        space, stream = lent(on_disconnect="keep")
        assert close(space, "bob").types == ["Left"]
        assert space.tick(1e5).records == []
        assert space.writers(stream) == ["alice", "bob"]
        space.join("bob")
        assert is_frame(space.frame("bob", stream))
        close(space, "bob")
        assert space.revoke("alice", stream, "bob").one(WriteRevoked).authorized_writers == ["alice"]

    @pytest.mark.parametrize("grace", [2, 60])
    def test_seconds_count_from_the_loss(self, grace: float) -> None:
        space, stream = lent(grace, on_disconnect=30)
        space.leave("bob")
        assert "WriteRevoked" not in space.tick(29.9).types
        assert space.writers(stream) == ["alice", "bob"]
        revoked = space.tick(0.1).one(WriteRevoked)
        assert (revoked.reason, revoked.by) == ("disconnected", "system:gateway")
        assert space.tick(60).types == (["Left"] if grace == 60 else [])

    def test_one_who_comes_back_in_time_goes_on(self) -> None:
        space, stream = lent(2, on_disconnect=30)
        for _ in range(2):
            space.leave("bob")
            space.tick(20)
            space.join("bob")
        assert space.tick(1e4).records == []
        assert is_frame(space.frame("bob", stream))

    def test_a_grant_to_one_who_is_away_begins_the_time_again(self) -> None:
        space, stream = lent(600, on_disconnect=30)
        space.leave("bob")
        space.tick(20)
        space.grant("alice", stream, "bob", on_disconnect=30)
        assert space.tick(29.9).records == []
        assert space.tick(0.1).types == ["WriteRevoked"]
        space, stream = lent(600, on_disconnect=30)
        space.leave("bob")
        space.grant("alice", stream, "bob")
        assert space.tick(599).records == []

    @pytest.mark.parametrize("kept", ["keep", 30])
    def test_a_kick_ends_every_right(self, kept: Any) -> None:
        space, stream = lent(on_disconnect=kept)
        assert space.send("admin", "space/kick", {"participant_id": "bob"}).one(WriteRevoked).reason == "kicked"
        assert space.writers(stream) == ["alice"]
        assert space.state.next_deadline() is None

    def test_the_gateway_that_stops_is_no_lost_connection(self) -> None:
        space, stream = lent(on_disconnect="revoke")
        assert space.suspend("bob").types == ["Suspended"]
        assert space.writers(stream) == ["alice", "bob"]
        assert space.tick(60).types == ["Left", "WriteRevoked"]

    def test_everyone_is_told(self) -> None:
        space, stream = lent(on_disconnect=30, conditions={"max_frames": 7})
        told = next(message for record, message in space.messages if isinstance(record, WriteGranted))
        assert told["payload"]["conditions"] == {"max_frames": 7, "on_disconnect": 30}
        assert space.stream(stream)["conditions"] == {"bob": {"max_frames": 7, "frames_left": 7, "on_disconnect": 30}}

    def test_not_for_the_owner_and_gone_after_a_transfer(self) -> None:
        space, stream = lent(on_disconnect="keep")
        assert space.grant("alice", stream, "alice", on_disconnect="keep").error == "invalid_operation"
        space.transfer("alice", stream, "bob")
        assert space.state.streams[stream].writers["bob"].on_disconnect is None

    @pytest.mark.parametrize("key", ["on_disconnect", "when_absent"])
    @pytest.mark.parametrize("value", ["maybe", -1, 1e9, [], {}])
    def test_what_we_do_not_know_is_metadata_to_v04_and_a_mistake_otherwise(self, key: str, value: Any) -> None:
        space, stream = lent()
        assert space.grant("alice", stream, "bob", **{key: value}).one(WriteGranted).conditions is None
        space.do(commands.Join("alice", "ws", extensions=[]))
        outcome = space.grant("alice", stream, "bob", **{key: value})
        assert outcome.error == "validation_error"
        assert outcome.refusal is not None and outcome.refusal.details == {"field": key}

    def test_the_time_survives_a_snapshot(self) -> None:
        space, _ = lent(2, on_disconnect=30)
        space.leave("bob")
        assert load(dump(space.state)) == space.state


class TestWhenAbsent:
    def test_it_waits_for_the_join(self) -> None:
        space, stream = lent()
        outcome = space.grant("alice", stream, "carol", when_absent=True, reason="your shift")
        told = outcome.told("stream/write-granted")
        assert (told["pending"], told["participant_id"]) == (True, "carol")
        assert told["authorized_writers"] == ["alice", "bob"]
        assert space.stream(stream)["pending_writers"] == ["carol"]
        assert load(dump(space.state)) == space.state
        assert space.frame("carol", stream).error == "unauthorized_stream_write"
        joined = space.join("carol")
        assert joined.types == ["Joined", "WriteGranted"]
        told = joined.told("stream/write-granted")
        assert told["authorized_writers"] == ["alice", "bob", "carol"]
        assert (told["by"], told["reason"], "pending" in told) == ("alice", "your shift", False)
        assert "pending_writers" not in space.stream(stream)
        assert is_frame(space.frame("carol", stream))
        # It was one grant, and not a standing one.
        close(space, "carol")
        assert space.join("carol").types == ["Joined"]

    def test_one_who_is_here_is_granted_at_once(self) -> None:
        space, stream = lent()
        space.join("carol")
        assert "pending" not in space.grant("alice", stream, "carol", when_absent=True).told("stream/write-granted")
        assert space.writers(stream) == ["alice", "bob", "carol"]

    def test_only_for_those_who_may_come(self) -> None:
        space, stream = lent()
        assert space.grant("alice", stream, "nobody", when_absent=True).error == "participant_not_found"
        assert space.grant("alice", stream, "carol").error == "participant_not_found"
        assert space.grant("bob", stream, "carol", when_absent=True).error == "unauthorized"

    def test_its_conditions_wait_with_it(self) -> None:
        space, stream = lent()
        until = rfc3339(space.now + 60_000_000)
        conditions = {"expires_at": until, "max_frames": 1}
        space.grant("alice", stream, "carol", when_absent=True, conditions=conditions, on_disconnect="keep")
        space.tick(30)
        granted = space.join("carol").one(WriteGranted)
        assert granted.conditions == {**conditions, "on_disconnect": "keep"}
        assert space.frame("carol", stream).types == ["Frame", "WriteRevoked"]

    def test_it_may_expire_before_the_join(self) -> None:
        space, stream = lent()
        until = {"expires_at": rfc3339(space.now + 60_000_000)}
        space.grant("alice", stream, "carol", when_absent=True, conditions=until)
        revoked = space.tick(60).one(WriteRevoked)
        assert (revoked.participant, revoked.reason) == ("carol", "expired")
        assert "pending_writers" not in space.stream(stream)
        assert space.join("carol").types == ["Joined"]
        # Nobody has ticked before the join.
        close(space, "carol")
        space.grant("alice", stream, "carol", when_absent=True, conditions={"expires_at": rfc3339(space.now + 1)})
        space.now += 1
        assert space.join("carol").types == ["Joined"]
        assert space.tick(0).one(WriteRevoked).reason == "expired"

    def test_a_revoke_ends_it(self) -> None:
        space, stream = lent()
        space.grant("alice", stream, "carol", when_absent=True)
        assert space.revoke("alice", stream, "carol").one(WriteRevoked).authorized_writers == ["alice", "bob"]
        assert space.join("carol").types == ["Joined"]

    def test_granted_again_the_last_one_counts(self) -> None:
        space, stream = lent()
        space.grant("alice", stream, "carol", when_absent=True, conditions={"max_frames": 1})
        space.grant("alice", stream, "carol", when_absent=True)
        assert space.join("carol").one(WriteGranted).conditions is None

    def test_it_ends_with_the_stream(self) -> None:
        space, stream = lent()
        until = {"expires_at": rfc3339(space.now + 60_000_000)}
        space.grant("alice", stream, "carol", when_absent=True, conditions=until)
        space.close("alice", stream)
        assert space.state.standing == {} and space.state.next_deadline() is None
        assert space.join("carol").types == ["Joined"]

    def test_it_goes_before_a_standing_grant(self) -> None:
        space = Space("alice", capabilities={"carol": ["chat"]})
        stream = space.open("alice", auto_grant=["carol"])
        space.grant("alice", stream, "carol", when_absent=True, conditions={"max_frames": 5}, reason="mine")
        assert space.join("carol").one(WriteGranted).reason == "mine"

    def test_it_counts_as_a_writer(self) -> None:
        space = Space("alice", "bob", capabilities={"carol": []}, limits={"writers_per_stream": 2})
        stream = space.open("alice")
        space.grant("alice", stream, "carol", when_absent=True)
        assert space.grant("alice", stream, "carol", when_absent=True).error is None
        assert space.grant("alice", stream, "bob").error == "limit_exceeded"

    def test_nobody_is_replaced_by_somebody_absent(self) -> None:
        space, stream = lent()
        outcome = space.grant("alice", stream, "carol", when_absent=True, replaces="bob")
        assert outcome.error == "participant_not_found"
        assert space.writers(stream) == ["alice", "bob"]

    def test_one_who_keeps_a_right_may_be_granted_it_again(self) -> None:
        space, stream = lent(on_disconnect="keep")
        close(space, "bob")
        assert space.grant("alice", stream, "bob").error == "participant_not_found"
        assert "pending" not in space.grant("alice", stream, "bob", when_absent=True).told("stream/write-granted")
        assert space.writers(stream) == ["alice", "bob"]
