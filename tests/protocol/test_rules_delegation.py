"""Delegation chains (decision 1; seed 000, future 4): a right that may be passed on, and what ends with it."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Outcome, Space, is_frame

from mewstream.protocol import commands, snapshot
from mewstream.protocol.fold import fold
from mewstream.protocol.records import WriteGranted, WriteRevoked
from mewstream.protocol.times import SECOND, rfc3339

PEOPLE = ("owner", "alice", "bob", "carol", "dave", "admin")


def chained(*, depth: int = 3, most: int | None = None, **options: Any) -> tuple[Space, str]:
    """The owner has granted alice, who may pass the right on."""
    space = Space(*PEOPLE, **options)
    stream = space.open("owner")
    delegate(space, "owner", stream, "alice", depth, max_writers=most)
    return space, stream


def delegate(
    space: Space, sender: str, stream: str, participant: str, depth: int, max_writers: int | None = None, **fields: Any
) -> Outcome:
    return space.grant(sender, stream, participant, delegate={"depth": depth, "max_writers": max_writers}, **fields)


def line(space: Space, stream: str) -> None:
    """alice -> bob -> carol."""
    assert delegate(space, "alice", stream, "bob", 2).error is None
    assert space.grant("bob", stream, "carol").error is None


def ended(outcome: Outcome) -> list[tuple[str, str | None, list[str]]]:
    revokes = [each for each in outcome.records if isinstance(each, WriteRevoked)]
    return [(each.participant, each.reason, each.authorized_writers) for each in revokes]


class TestGranting:
    def test_a_delegate_grants_and_everyone_sees_the_chain(self) -> None:
        space, stream = chained()
        outcome = delegate(space, "alice", stream, "bob", 2)
        assert (
            outcome.told("stream/write-granted").items()
            >= {
                "participant_id": "bob",
                "by": "alice",
                "parent": "alice",
                "delegate": {"depth": 2},
                "authorized_writers": ["owner", "alice", "bob"],
            }.items()
        )
        space.grant("bob", stream, "carol")
        assert space.stream(stream)["delegations"] == [
            {"participant_id": "alice", "by": "owner", "depth": 3},
            {"participant_id": "bob", "by": "alice", "depth": 2},
            {"participant_id": "carol", "by": "bob", "depth": 0},
        ]
        for writer in ("alice", "bob", "carol"):
            assert is_frame(space.frame(writer, stream))

    def test_grants_of_owner_and_manager_have_no_parent(self) -> None:
        space, stream = chained()
        assert space.grant("owner", stream, "bob").one(WriteGranted).parent is None
        assert space.grant("admin", stream, "carol").one(WriteGranted).parent is None

    def test_a_plain_writer_and_the_end_of_a_chain_may_not(self) -> None:
        space, stream = chained(depth=1)
        space.grant("owner", stream, "bob")
        assert space.grant("bob", stream, "carol").error == "unauthorized"
        assert space.grant("alice", stream, "carol").error is None
        assert space.grant("carol", stream, "dave").error == "unauthorized"
        assert space.revoke("carol", stream, "bob").error == "unauthorized"

    def test_it_needs_no_capability_and_a_denial_wins(self) -> None:
        space = Space("owner", "bob", capabilities={"alice": [], "eve": ["*", "!stream/grant-write", "!space/*"]})
        for each in ("alice", "eve"):
            space.join(each)
        stream = space.open("owner")
        for each in ("alice", "eve"):
            delegate(space, "owner", stream, each, 1)
        assert space.grant("alice", stream, "bob").error is None
        assert space.grant("eve", stream, "bob").error == "unauthorized"

    def test_never_more_depth_than_it_has(self) -> None:
        space, stream = chained(depth=2)
        assert delegate(space, "alice", stream, "bob", 2).error == "invalid_operation"
        assert delegate(space, "alice", stream, "bob", 1).error is None

    def test_never_longer_than_it_has(self) -> None:
        space, stream = chained()
        until = space.now + 10 * SECOND
        delegate(space, "owner", stream, "alice", 2, conditions={"expires_at": rfc3339(until)})
        longer = {"expires_at": rfc3339(until + 1)}
        assert space.grant("alice", stream, "bob", conditions=longer).error == "invalid_operation"
        assert delegate(space, "alice", stream, "bob", 1).error is None
        # The bound is that of the whole chain.
        assert space.grant("bob", stream, "carol", conditions=longer).error == "invalid_operation"
        assert space.grant("bob", stream, "carol", conditions={"expires_at": rfc3339(until)}).error is None

    def test_never_more_frames_than_it_has_left(self) -> None:
        space, stream = chained()
        delegate(space, "owner", stream, "alice", 2, conditions={"max_frames": 5})
        space.frame("alice", stream)
        assert space.grant("alice", stream, "bob", conditions={"max_frames": 5}).error == "invalid_operation"
        assert space.grant("alice", stream, "bob", conditions={"max_frames": 4}).error is None

    def test_never_more_writers_than_it_has(self) -> None:
        space, stream = chained(most=2)
        assert delegate(space, "alice", stream, "bob", 1, 3).error == "invalid_operation"
        assert delegate(space, "alice", stream, "bob", 1, 2).error is None

    def test_max_writers_counts_the_whole_subtree(self) -> None:
        space, stream = chained(most=2)
        line(space, stream)
        for sender in ("alice", "bob"):
            outcome = space.grant(sender, stream, "dave")
            assert outcome.error == "limit_exceeded"
            assert outcome.refusal is not None
            assert outcome.refusal.details["limit"] == "max_writers"
        assert space.grant("bob", stream, "carol", conditions={"max_frames": 9}).error is None, "granted again"
        assert space.grant("bob", stream, "dave", replaces="carol").error is None
        assert space.grant("owner", stream, "carol").error is None

    def test_who_holds_it_from_elsewhere_is_not_a_delegates_to_grant(self) -> None:
        space, stream = chained()
        space.grant("owner", stream, "bob")
        delegate(space, "owner", stream, "carol", 1)
        space.grant("carol", stream, "dave")
        for participant in ("owner", "alice", "bob", "carol", "dave"):
            assert space.grant("alice", stream, participant).error == "invalid_operation"
        # And what a delegate has granted is not another's to change, but to revoke.
        for sender in ("owner", "admin"):
            assert space.grant(sender, stream, "dave").error == "invalid_operation"
        assert space.revoke("owner", stream, "dave").error is None
        assert space.grant("owner", stream, "dave").error is None

    @pytest.mark.parametrize(
        "value",
        [7, "x", [], True, {"depth": 0}, {"depth": True}, {"depth": "1"}, {"max_writers": 0}, {"depth": 1, "more": 1}],
    )
    def test_a_delegation_has_a_shape(self, value: Any) -> None:
        space = Space("owner", "alice")
        stream = space.open("owner")
        # To a client that knows v0.4 alone it is metadata.
        assert space.grant("owner", stream, "alice", delegate=value).error is None
        assert "delegations" not in space.stream(stream)
        space.do(commands.Join("owner", "ws", extensions=[]))
        assert space.grant("owner", stream, "alice", delegate=value).error == "validation_error"

    def test_depth_is_one_unless_it_is_said_and_has_a_bound(self) -> None:
        space = Space("owner", "alice", limits={"delegation_depth": 2})
        stream = space.open("owner")
        assert delegate(space, "owner", stream, "alice", 3).error == "limit_exceeded"
        space.grant("owner", stream, "alice", delegate={})
        assert space.stream(stream)["delegations"][0]["depth"] == 1

    def test_an_owner_has_no_delegation(self) -> None:
        space = Space("owner")
        stream = space.open("owner")
        assert delegate(space, "owner", stream, "owner", 1).error == "invalid_operation"

    def test_the_fields_of_a_request_cannot_pose_as_it(self) -> None:
        space = Space("owner")
        assert "delegations" not in space.stream(space.open("owner", delegations=["posing"]))


class TestEnding:
    @pytest.mark.parametrize("by", ["owner", "admin"])
    def test_a_revoke_takes_away_everything_below_at_one_point(self, by: str) -> None:
        space, stream = chained()
        line(space, stream)
        outcome = space.revoke(by, stream, "alice")
        left = ["owner"]
        assert ended(outcome) == [
            ("alice", None, left),
            ("bob", "delegation_ended", left),
            ("carol", "delegation_ended", left),
        ]
        assert outcome.kinds == ["stream/revoke-write", *["stream/write-revoked"] * 3]
        assert [each.cause_seq for each in outcome.records[2:]] == [outcome.records[1].seq] * 2
        for writer in ("alice", "bob", "carol"):
            assert space.frame(writer, stream).error == "unauthorized_stream_write"

    def test_at_the_record_of_the_revoke_itself(self) -> None:
        """A log that ends there, because the machine died, says the same."""
        space, stream = chained()
        line(space, stream)
        revoked = space.revoke("owner", stream, "alice").records[1]
        state = fold(space.state.id, [each for each in space.records if each.seq <= revoked.seq])
        assert list(state.streams[stream].writers) == ["owner"]

    def test_in_the_middle(self) -> None:
        space, stream = chained()
        line(space, stream)
        assert [each[0] for each in ended(space.revoke("alice", stream, "bob"))] == ["bob", "carol"]
        assert space.writers(stream) == ["owner", "alice"]

    def test_a_delegate_revokes_only_below_itself(self) -> None:
        space, stream = chained()
        line(space, stream)
        space.grant("owner", stream, "dave")
        for participant in ("bob", "alice", "dave", "nobody"):
            assert space.revoke("bob", stream, participant).error == "unauthorized"
        assert space.revoke("bob", stream, "owner").error == "invalid_operation"
        assert space.revoke("alice", stream, "carol").error is None, "also what another below has granted"

    def test_a_leave_and_a_kick(self) -> None:
        space, stream = chained()
        line(space, stream)
        assert [each[:2] for each in ended(space.leave("bob"))] == [
            ("bob", "disconnected"),
            ("carol", "delegation_ended"),
        ]
        space.join("bob")
        line(space, stream)
        kicked = ended(space.send("admin", "space/kick", {"participant_id": "alice"}))
        assert [each[:2] for each in kicked] == [
            ("alice", "kicked"),
            ("bob", "delegation_ended"),
            ("carol", "delegation_ended"),
        ]

    def test_a_suspended_delegate_keeps_the_chain_until_it_is_gone(self) -> None:
        space, stream = chained(policies={"reconnect_grace": 5.0})
        line(space, stream)
        space.leave("bob")
        assert is_frame(space.frame("carol", stream))
        assert [each[0] for each in ended(space.tick(5))] == ["bob", "carol"]

    def test_an_expiry(self) -> None:
        space, stream = chained()
        until = rfc3339(space.now + SECOND)
        delegate(space, "owner", stream, "alice", 2, conditions={"expires_at": until})
        delegate(space, "alice", stream, "bob", 1, conditions={"expires_at": until})
        space.grant("bob", stream, "carol")
        assert [each[:2] for each in ended(space.tick(1))] == [
            ("alice", "expired"),
            ("bob", "delegation_ended"),
            ("carol", "delegation_ended"),
        ]
        assert space.state.next_deadline() is None

    def test_a_frame_below_an_expired_right_finds_out(self) -> None:
        """Decision 17: the revoke precedes the refusal, also when nobody ticked."""
        space, stream = chained()
        delegate(space, "owner", stream, "alice", 2, conditions={"expires_at": rfc3339(space.now + SECOND)})
        line_space = space.grant("alice", stream, "bob")
        assert line_space.error is None
        space.now += SECOND
        outcome = space.frame("bob", stream)
        assert [each[:2] for each in ended(outcome)] == [("alice", "expired"), ("bob", "delegation_ended")]
        assert outcome.error == "unauthorized_stream_write"
        assert outcome.types[-1] == "Refused"

    def test_an_expired_delegate_grants_nothing(self) -> None:
        space, stream = chained()
        delegate(space, "owner", stream, "alice", 2, conditions={"expires_at": rfc3339(space.now + SECOND)})
        space.grant("alice", stream, "bob")
        space.now += SECOND
        assert space.grant("alice", stream, "carol").error == "unauthorized"
        assert space.revoke("alice", stream, "bob").error == "unauthorized"

    def test_frames_are_one_budget(self) -> None:
        space, stream = chained()
        delegate(space, "owner", stream, "alice", 2, conditions={"max_frames": 4})
        space.grant("alice", stream, "bob", conditions={"max_frames": 3})
        space.grant("alice", stream, "carol")
        for writer in ("alice", "bob", "carol"):
            assert ended(space.frame(writer, stream)) == []
        assert space.stream(stream)["conditions"]["alice"]["frames_left"] == 1
        assert space.stream(stream)["conditions"]["bob"]["frames_left"] == 2
        last = space.frame("carol", stream)
        assert is_frame(last)
        assert [each[:2] for each in ended(last)] == [
            ("alice", "max_frames"),
            ("bob", "delegation_ended"),
            ("carol", "delegation_ended"),
        ]

    def test_a_block_of_frames_stops_at_the_budget_of_the_chain(self) -> None:
        space, stream = chained()
        delegate(space, "owner", stream, "alice", 2, conditions={"max_frames": 2})
        space.grant("alice", stream, "bob")
        outcome = space.do(commands.SendFrames("bob", stream, [b"1", b"2", b"3"], 1))
        assert outcome.types == ["Frame", "Frame", "WriteRevoked", "WriteRevoked"]

    def test_only_what_is_below_a_spent_right_ends(self) -> None:
        space, stream = chained()
        delegate(space, "alice", stream, "bob", 1, conditions={"max_frames": 1})
        space.grant("bob", stream, "carol")
        assert [each[:2] for each in ended(space.frame("carol", stream))] == [
            ("bob", "max_frames"),
            ("carol", "delegation_ended"),
        ]
        assert space.writers(stream) == ["owner", "alice"]

    def test_a_close_ends_all(self) -> None:
        space, stream = chained()
        line(space, stream)
        space.close("owner", stream)
        assert space.state.rights == {}


class TestGrantingAgain:
    def test_conditions_are_replaced_and_the_chain_stays(self) -> None:
        space, stream = chained()
        line(space, stream)
        delegate(space, "owner", stream, "alice", 3, conditions={"max_frames": 1})
        assert space.writers(stream) == ["owner", "alice", "bob", "carol"]
        assert [each[0] for each in ended(space.frame("carol", stream))] == ["alice", "bob", "carol"]

    def test_without_a_delegation_what_is_below_ends(self) -> None:
        space, stream = chained()
        line(space, stream)
        outcome = space.grant("owner", stream, "alice")
        assert outcome.one(WriteGranted).authorized_writers == ["owner", "alice"]
        assert [each[:2] for each in ended(outcome)] == [("bob", "delegation_ended"), ("carol", "delegation_ended")]
        assert "delegations" not in space.stream(stream)

    def test_with_less_depth_what_is_deeper_ends(self) -> None:
        space, stream = chained()
        line(space, stream)
        assert [each[0] for each in ended(delegate(space, "owner", stream, "alice", 1))] == ["carol"]
        assert space.stream(stream)["delegations"] == [
            {"participant_id": "alice", "by": "owner", "depth": 1},
            {"participant_id": "bob", "by": "alice", "depth": 0},
        ]
        assert space.grant("bob", stream, "dave").error == "unauthorized"


class TestReplacing:
    def test_who_is_replaced_takes_its_chain_with_it_and_the_new_one_may_come_from_it(self) -> None:
        space, stream = chained()
        line(space, stream)
        outcome = space.grant("owner", stream, "bob", replaces="alice")
        assert ended(outcome) == [
            ("alice", None, ["owner"]),
            ("bob", "delegation_ended", ["owner"]),
            ("carol", "delegation_ended", ["owner"]),
        ]
        assert outcome.one(WriteGranted).authorized_writers == ["owner", "bob"]
        assert "delegations" not in space.stream(stream)

    def test_a_delegate_replaces_only_below_itself(self) -> None:
        space, stream = chained()
        line(space, stream)
        space.grant("owner", stream, "dave")
        assert space.grant("bob", stream, "admin", replaces="dave").error == "unauthorized"
        assert space.grant("bob", stream, "admin", replaces="alice").error == "unauthorized"
        assert space.grant("bob", stream, "admin", replaces="owner").error == "invalid_operation"
        assert space.grant("bob", stream, "admin", replaces="carol").error is None
        assert space.writers(stream) == ["owner", "alice", "bob", "dave", "admin"]


class TestTransfer:
    def test_grants_of_the_owner_outlive_it(self) -> None:
        space, stream = chained()
        line(space, stream)
        space.transfer("owner", stream, "dave")
        assert space.writers(stream) == ["dave", "alice", "bob", "carol"]
        assert is_frame(space.frame("carol", stream))

    def test_what_the_new_owner_granted_as_a_delegate_is_the_owners_now(self) -> None:
        space, stream = chained()
        line(space, stream)
        space.transfer("owner", stream, "bob", retain_write=True)
        assert space.stream(stream)["delegations"] == [{"participant_id": "alice", "by": "owner", "depth": 3}]
        space.revoke("bob", stream, "alice")
        assert space.writers(stream) == ["bob", "owner", "carol"]
        space.transfer("bob", stream, "owner")
        assert space.writers(stream) == ["owner", "carol"]

    def test_a_budget_above_does_not_bind_the_new_owner(self) -> None:
        space, stream = chained()
        delegate(space, "owner", stream, "alice", 2, conditions={"max_frames": 1})
        delegate(space, "alice", stream, "bob", 1)
        space.grant("bob", stream, "carol")
        space.transfer("owner", stream, "bob")
        for writer in ("bob", "carol", "carol"):
            assert ended(space.frame(writer, stream)) == []
        assert [each[0] for each in ended(space.frame("alice", stream))] == ["alice"]

    def test_a_standing_grant_has_no_parent(self) -> None:
        space = Space("owner", "alice", "bob", "late")
        space.leave("late")
        stream = space.open("owner", auto_grant=["late"])
        delegate(space, "owner", stream, "alice", 1)
        space.join("late")
        space.revoke("owner", stream, "alice")
        assert space.writers(stream) == ["owner", "late"]


def test_a_snapshot_keeps_the_chain() -> None:
    space, stream = chained(most=4)
    delegate(space, "alice", stream, "bob", 2, conditions={"max_frames": 7})
    space.grant("bob", stream, "carol")
    space.frame("carol", stream)
    loaded = snapshot.load(snapshot.dump(space.state))
    assert loaded == space.state
    assert loaded.streams[stream].writers["carol"].is_bounded
