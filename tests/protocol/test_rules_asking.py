"""Asking for the right to write, saying no, and handing it over at one point of the log (decision 29)."""

from __future__ import annotations

from typing import Any

import pytest
from harness import EVERYTHING, Outcome, Space, is_frame

from mewstream.protocol import commands, snapshot
from mewstream.protocol.records import WriteDenied, WriteGranted, WriteRequested, WriteRevoked
from mewstream.protocol.times import rfc3339


def ask(space: Space, sender: str, stream: str, reason: str | None = None) -> Outcome:
    return space.send(sender, "stream/request-write", {"stream_id": stream, "reason": reason})


def deny(space: Space, sender: str, stream: str, participant: str, reason: str | None = None) -> Outcome:
    payload = {"stream_id": stream, "participant_id": participant, "reason": reason}
    return space.send(sender, "stream/deny-write", payload)


def asking(space: Space, stream: str) -> list[str]:
    return [each["participant_id"] for each in space.stream(stream).get("write_requests", [])]


def opened(*, writers: tuple[str, ...] = (), **options: Any) -> tuple[Space, str]:
    space = Space("owner", "alice", "bob", "carol", "admin", **options)
    stream = space.open("owner")
    for writer in writers:
        space.grant("owner", stream, writer)
    return space, stream


class TestReplacing:
    def test_revoke_then_grant_both_correlated(self) -> None:
        space, stream = opened(writers=("alice",))
        payload = {"stream_id": stream, "participant_id": "bob", "replaces": "alice", "reason": "your turn"}
        outcome = space.send("owner", "stream/grant-write", payload, id="m")
        accepted, revoked, granted = outcome.records
        assert (type(revoked), type(granted)) == (WriteRevoked, WriteGranted)
        assert revoked.cause_seq == granted.cause_seq == accepted.seq
        for kind in ("stream/write-revoked", "stream/write-granted"):
            [message] = [each for each in outcome.messages if each["kind"] == kind]
            assert message["correlation_id"] == ["m"]
        told = outcome.told("stream/write-revoked")
        assert told["authorized_writers"] == ["owner"]
        assert (told["participant_id"], told["replaced_by"], told["reason"]) == ("alice", "bob", "your turn")
        told = outcome.told("stream/write-granted")
        assert told["authorized_writers"] == ["owner", "bob"]
        assert (told["participant_id"], told["replaces"], told["reason"]) == ("bob", "alice", "your turn")
        assert is_frame(space.frame("bob", stream))
        assert space.frame("alice", stream).error == "unauthorized_stream_write"

    @pytest.mark.parametrize(
        ("replaces", "participant"), [("owner", "bob"), ("carol", "bob"), ("nobody", "bob"), ("alice", "alice")]
    )
    def test_the_owner_one_who_does_not_write_and_oneself_cannot_be_replaced(
        self, replaces: str, participant: str
    ) -> None:
        space, stream = opened(writers=("alice",))
        assert space.grant("owner", stream, participant, replaces=replaces).error == "invalid_operation"
        assert space.writers(stream) == ["owner", "alice"]

    @pytest.mark.parametrize("replaces", [7, True, [], "", "x" * 200])
    def test_a_name_is_a_name(self, replaces: Any) -> None:
        space, stream = opened(writers=("alice",))
        space.do(commands.Join("owner", "ws", extensions=[]))
        assert space.grant("owner", stream, "bob", replaces=replaces).error in ("validation_error", "limit_exceeded")
        assert space.writers(stream) == ["owner", "alice"]

    def test_what_a_v04_client_says_by_it_stays_metadata(self) -> None:
        space, stream = opened(writers=("alice",))
        assert space.grant("owner", stream, "bob", replaces={"its": "own"}).error is None
        assert space.writers(stream) == ["owner", "alice", "bob"]

    def test_a_failure_changes_nothing(self) -> None:
        space, stream = opened(writers=("alice",))
        assert space.grant("owner", stream, "nobody", replaces="alice").error == "participant_not_found"
        past = {"expires_at": rfc3339(space.now - 1)}
        assert space.grant("owner", stream, "bob", replaces="alice", conditions=past).error == "invalid_operation"
        assert space.grant("bob", stream, "bob", replaces="alice").error == "unauthorized"
        assert space.writers(stream) == ["owner", "alice"]
        assert is_frame(space.frame("alice", stream))

    def test_it_takes_the_right_to_revoke_too(self) -> None:
        capabilities: dict[str, list[Any]] = {"mia": ["space/manage-streams", "!stream/revoke-write"]}
        space = Space("owner", "alice", "bob", capabilities=capabilities)
        space.join("mia")
        stream = space.open("owner")
        assert space.grant("mia", stream, "alice").error is None
        assert space.grant("mia", stream, "bob", replaces="alice").error == "unauthorized"

    def test_one_who_writes_already_may_replace_another(self) -> None:
        space, stream = opened(writers=("alice", "bob"))
        conditions = {"max_frames": 2}
        space.grant("owner", stream, "bob", replaces="alice", conditions=conditions)
        assert space.writers(stream) == ["owner", "bob"]
        assert space.stream(stream)["conditions"] == {"bob": {"max_frames": 2, "frames_left": 2}}

    def test_the_place_that_becomes_free_is_enough(self) -> None:
        space, stream = opened(writers=("alice",), limits={"writers_per_stream": 2})
        assert space.grant("owner", stream, "bob").error == "limit_exceeded"
        assert space.grant("owner", stream, "bob", replaces="alice").error is None

    def test_it_ends_a_standing_grant_as_a_revoke_does(self) -> None:
        space = Space("owner", "alice", "bob")
        stream = space.open("owner", auto_grant=["alice"])
        space.grant("owner", stream, "bob", replaces="alice")
        space.leave("alice")
        space.join("alice")
        assert space.writers(stream) == ["owner", "bob"]

    def test_the_same_message_again_changes_nothing(self) -> None:
        space, stream = opened(writers=("alice",))
        payload = {"stream_id": stream, "participant_id": "bob", "replaces": "alice"}
        space.send("owner", "stream/grant-write", payload, id="m")
        again = space.send("owner", "stream/grant-write", payload, id="m")
        assert again.records == []
        assert again.repetition is not None
        assert [type(each) for each in again.repetition.answer.records] == [WriteRevoked, WriteGranted]


class TestAsking:
    def test_everyone_is_told_and_it_is_shown(self) -> None:
        space, stream = opened()
        outcome = ask(space, "bob", stream, "my turn")
        assert outcome.kinds == ["stream/request-write"]
        requested = outcome.one(WriteRequested)
        assert (requested.participant, requested.reason) == ("bob", "my turn")
        ask(space, "alice", stream)
        assert space.stream(stream)["write_requests"] == [
            {"participant_id": "bob", "reason": "my turn", "ts": rfc3339(requested.ts)},
            {"participant_id": "alice", "reason": None, "ts": rfc3339(requested.ts)},
        ]
        assert space.stream(stream)["last_seq"] == space.state.seq

    def test_an_alias_is_told_as_the_id(self) -> None:
        space = Space("owner", "bob")
        stream = space.open("owner", desired_id="pose")
        assert ask(space, "bob", "pose").told("stream/request-write")["stream_id"] == stream

    def test_asked_again_the_reason_is_replaced(self) -> None:
        space, stream = opened()
        first = ask(space, "bob", stream, "my turn").records[0].ts
        ask(space, "alice", stream)
        space.tick(1)
        ask(space, "bob", stream, "please")
        assert space.stream(stream)["write_requests"][0] == {
            "participant_id": "bob",
            "reason": "please",
            "ts": rfc3339(first),
        }

    def test_it_takes_no_capability_and_a_denial_wins(self) -> None:
        space = Space("owner", capabilities={"bob": [], "eve": ["!stream/request-write", *EVERYTHING]})
        for each in ("bob", "eve"):
            space.join(each)
        stream = space.open("owner")
        assert ask(space, "bob", stream).error is None
        assert ask(space, "eve", stream).error == "capability_violation"

    def test_a_writer_has_it_already(self) -> None:
        space, stream = opened(writers=("alice",))
        assert ask(space, "owner", stream).error == "invalid_operation"
        assert ask(space, "alice", stream).error == "invalid_operation"

    def test_one_who_is_not_here_asks_for_nothing(self) -> None:
        space, stream = opened()
        space.leave("bob")
        assert ask(space, "bob", stream).error == "participant_not_found"

    @pytest.mark.parametrize("reason", [7, [], "x" * 1025, "ü" * 513])
    def test_a_reason_is_a_short_text(self, reason: Any) -> None:
        space, stream = opened()
        assert ask(space, "bob", stream, reason).error == "validation_error"

    def test_there_is_a_bound_for_each_stream(self) -> None:
        space, stream = opened(limits={"write_requests_per_stream": 1})
        other = space.open("owner")
        ask(space, "bob", stream)
        outcome = ask(space, "alice", stream)
        assert outcome.error == "limit_exceeded"
        assert outcome.refusal is not None
        assert outcome.refusal.details["limit"] == "write_requests_per_stream"
        assert ask(space, "bob", stream, "again").error is None
        assert ask(space, "alice", other).error is None

    def test_no_such_stream(self) -> None:
        space, stream = opened()
        space.close("owner", stream)
        assert ask(space, "bob", stream).error == "stream_not_found"
        assert space.state.rights == {}

    def test_a_stream_that_has_not_started_can_be_asked_for(self) -> None:
        space = Space("owner", "bob")
        stream = space.announce("owner")
        assert ask(space, "bob", stream).error is None
        assert asking(space, stream) == ["bob"]


class TestAnswering:
    def test_a_grant_answers(self) -> None:
        space, stream = opened()
        ask(space, "bob", stream)
        space.grant("owner", stream, "bob")
        assert asking(space, stream) == []
        assert "write_requests" not in space.stream(stream)

    def test_a_transfer_to_the_asker_answers(self) -> None:
        space, stream = opened()
        ask(space, "bob", stream)
        ask(space, "alice", stream)
        space.transfer("owner", stream, "bob")
        assert asking(space, stream) == ["alice"]

    def test_a_denial_is_told_to_everyone(self) -> None:
        space, stream = opened()
        ask(space, "bob", stream)
        outcome = deny(space, "owner", stream, "bob", "not now")
        assert outcome.kinds == ["stream/deny-write", "stream/write-denied"]
        told = outcome.told("stream/write-denied")
        assert told == {
            "stream_id": stream,
            "participant_id": "bob",
            "reason": "not now",
            "by": "owner",
            "stream": {"stream_id": stream, "namespace": f"{space.state.id}/{stream}"},
        }
        assert outcome.one(WriteDenied).request_id == outcome.messages[-1]["correlation_id"][0]
        assert asking(space, stream) == []

    def test_denying_none_is_invalid(self) -> None:
        space, stream = opened()
        assert deny(space, "owner", stream, "bob").error == "invalid_operation"
        ask(space, "bob", stream)
        deny(space, "owner", stream, "bob")
        assert deny(space, "owner", stream, "bob").error == "invalid_operation"

    def test_a_manager_may_deny_and_others_may_not(self) -> None:
        space, stream = opened(writers=("alice",))
        ask(space, "bob", stream)
        for sender in ("alice", "bob", "carol"):
            assert deny(space, sender, stream, "bob").error == "unauthorized"
        assert deny(space, "admin", stream, "bob").error is None

    def test_gone_when_its_sender_leaves_and_kept_while_it_is_expected_back(self) -> None:
        space, stream = opened(policies={"reconnect_grace": 5.0})
        ask(space, "bob", stream)
        space.leave("bob")
        assert asking(space, stream) == ["bob"]
        space.join("bob")
        assert asking(space, stream) == ["bob"]
        space.leave("bob")
        seen = space.stream(stream)["last_seq"]
        space.tick(5)
        assert asking(space, stream) == []
        assert space.stream(stream)["last_seq"] > seen, "a welcome that was made before is stale"

    def test_a_revoke_or_a_leave_of_another_leaves_it(self) -> None:
        space, stream = opened(writers=("alice",))
        ask(space, "bob", stream)
        space.leave("alice")
        assert asking(space, stream) == ["bob"]

    def test_a_snapshot_keeps_it(self) -> None:
        space, stream = opened()
        ask(space, "bob", stream, "my turn")
        assert snapshot.load(snapshot.dump(space.state)) == space.state

    def test_the_fields_of_a_request_cannot_pose_as_it(self) -> None:
        """Decision 23."""
        space = Space("owner")
        stream = space.open("owner", write_requests=["posing"])
        assert "write_requests" not in space.stream(stream)
