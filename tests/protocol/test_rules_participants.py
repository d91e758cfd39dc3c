"""Participants that are paused or shut down (spec 3.9), and whose proposals are whose (spec 3.3)."""

from __future__ import annotations

from typing import Any

import pytest
from harness import EVERYTHING, Space, is_frame

from mewstream.protocol import commands, kinds, snapshot
from mewstream.protocol.records import Paused, ShutDown, Unpaused
from mewstream.protocol.times import SECOND

CAPABLE = ["chat", "chat/*", "participant/*", "stream/*", "mcp/*", "reasoning/*"]


class TestPause:
    """Spec 3.9.1: a paused participant may still send acknowledgements and cancellations."""

    def paused(self, **payload: Any) -> Space:
        space = Space("admin", "bob", capabilities={"bob": CAPABLE})
        space.open("bob")
        space.send("bob", "mcp/proposal", {"method": "x"}, id="p1")
        paused = space.send("admin", "participant/pause", payload, to=["bob"], id="pause").one(Paused)
        assert (paused.by, paused.request_id) == ("admin", "pause")
        return space

    @pytest.mark.parametrize(
        ("kind", "error"),
        [
            ("chat", "invalid_operation"),
            ("stream/request", "invalid_operation"),
            ("stream/data", "invalid_operation"),
            ("stream/grant-write", "invalid_operation"),
            ("mcp/request", "invalid_operation"),
            ("mcp/proposal", "invalid_operation"),
            ("mcp/reject", "invalid_operation"),
            ("reasoning/start", "invalid_operation"),
            ("participant/pause", "invalid_operation"),
            ("chat/acknowledge", None),
            ("chat/cancel", None),
            ("reasoning/cancel", None),
            ("mcp/withdraw", None),
            ("stream/close", None),
            ("participant/status", None),
            ("participant/compact-done", None),
            ("participant/resume", None),
            ("capability/grant-ack", None),
            ("mcp/response", None),
        ],
    )
    def test_what_is_still_accepted(self, kind: str, error: str | None) -> None:
        space = self.paused()
        payload = {"text": "hi", "method": "x", "stream_id": "stream-1", "sequence": 1, "content": 1}
        assert space.send("bob", kind, payload, correlation_id=["p1"]).error == error

    def test_each_under_its_capability(self) -> None:
        space = Space("admin", "bob", capabilities={"bob": ["chat"]})
        space.send("admin", "participant/pause", {}, to=["bob"])
        assert space.send("bob", "chat/cancel", {}).error == "capability_violation"

    def test_frames_are_refused(self) -> None:
        assert self.paused().frame("bob", "stream-1").error == "invalid_operation"

    def test_the_others_are_not_held(self) -> None:
        assert self.paused().send("admin", "chat", {"text": "hi"}).error is None

    def test_its_end_by_time_is_recorded_and_told(self) -> None:
        """Spec 3.9.2."""
        space = self.paused(timeout_seconds=5)
        assert space.tick(4.9).records == []
        assert space.send("bob", "chat", {"text": "hi"}).error == "invalid_operation"
        outcome = space.tick(0.1)
        unpaused = outcome.one(Unpaused)
        assert (unpaused.participant, unpaused.by, unpaused.request_id) == ("bob", "system:gateway", "pause")
        [told] = outcome.messages
        assert told.items() >= {"kind": "participant/resume", "from": "system:gateway", "to": ["bob"]}.items()
        assert told["correlation_id"] == ["pause"]
        assert told["payload"] == {"reason": "timeout"}
        for each in ("admin", "bob"):
            assert told in space.seen_by(each)
        assert space.send("bob", "chat", {"text": "hi"}).error is None
        assert is_frame(space.frame("bob", "stream-1"))
        assert space.state.paused == {}
        assert space.state.next_deadline() is None

    @pytest.mark.parametrize("sender", ["admin", "bob"])
    def test_its_end_by_resume(self, sender: str) -> None:
        space = self.paused(timeout_seconds=5)
        to = ["bob"] if sender == "admin" else None
        outcome = space.send(sender, "participant/resume", {}, to=to)
        assert outcome.one(Unpaused).participant == "bob"
        assert outcome.kinds == ["participant/resume"], "the envelope tells it, once"
        assert space.send("bob", "chat", {"text": "hi"}).error is None
        assert space.tick(60).records == [], "and time has nothing to end any more"

    def test_paused_again(self) -> None:
        space = self.paused(timeout_seconds=5)
        space.send("admin", "participant/pause", {"timeout_seconds": 20}, to=["bob"])
        assert space.tick(19.9).records == []
        assert len(space.tick(0.1).records) == 1
        space.send("admin", "participant/pause", {"timeout_seconds": 5}, to=["bob"])
        space.send("admin", "participant/pause", {}, to=["bob"])
        assert space.tick(1000).records == [], "until somebody resumes"
        assert space.send("bob", "chat", {"text": "hi"}).error == "invalid_operation"

    def test_a_reconnect_does_not_end_it(self) -> None:
        """WIRE.md: until the timeout or resume."""
        space = self.paused()
        space.leave("bob")
        space.join("bob")
        assert space.send("bob", "chat", {"text": "hi"}).error == "invalid_operation"

    def test_it_ends_by_time_for_one_who_is_away(self) -> None:
        space = self.paused(timeout_seconds=5)
        space.leave("bob")
        assert space.tick(5).kinds == ["participant/resume"]
        space.join("bob")
        assert space.send("bob", "chat", {"text": "hi"}).error is None

    def test_a_rejoin_within_the_grace_does_not_end_it(self) -> None:
        space = self.paused()
        space.suspend("bob")
        space.join("bob")
        assert space.send("bob", "chat", {"text": "hi"}).error == "invalid_operation"

    @pytest.mark.parametrize(
        ("sender", "to", "payload", "error"),
        [
            ("carol", None, {}, "validation_error"),
            ("carol", ["bob"], {"timeout_seconds": 0}, "validation_error"),
            ("carol", ["bob"], {"timeout_seconds": "5"}, "validation_error"),
            ("carol", ["bob"], {"timeout_seconds": True}, "validation_error"),
            ("carol", ["nobody"], {}, "capability_violation"),
            ("admin", ["bob", "nobody"], {}, "participant_not_found"),
        ],
    )
    def test_refused(self, sender: str, to: list[str] | None, payload: dict[str, Any], error: str) -> None:
        space = Space("admin", "bob", "carol")
        assert space.send(sender, "participant/pause", payload, to=to).error == error
        assert not space.state.is_paused("bob", space.now)

    def test_one_of_an_earlier_version_ends_too(self) -> None:
        """Its snapshots say only until when, as a number; there, no timer ended a pause."""
        space = self.paused(timeout_seconds=5)
        written = snapshot.dump(space.state)
        before = b'"paused":{"bob":{"until":%d,"request_id":"pause"}}' % (space.now + 5 * SECOND)
        assert before in written
        timer = b'["pause","bob","",%d]' % (space.now + 5 * SECOND)
        assert timer in written
        old = written.replace(before, b'"paused":{"bob":%d}' % (space.now + 5 * SECOND)).replace(timer, b"")
        assert snapshot.load(old).next_deadline() == space.now + 5 * SECOND
        open_end = written.replace(before, b'"paused":{"bob":-1}').replace(timer, b"")
        loaded = snapshot.load(open_end)
        assert loaded.is_paused("bob", space.now + 1000 * SECOND)
        assert loaded.next_deadline() is None


class TestShutdown:
    """Spec 3.9.10: nothing more is accepted until the participant joins again."""

    def shut_down(self) -> Space:
        space = Space("admin", "bob", "carol", capabilities={"bob": CAPABLE})
        space.open("bob")
        outcome = space.send("admin", "participant/shutdown", {"reason": "enough"}, to=["bob"])
        assert outcome.kinds == ["participant/shutdown"]
        record = outcome.one(ShutDown)
        assert (record.participant, record.by) == ("bob", "admin")
        assert record.cause_seq == outcome.records[0].seq
        return space

    @pytest.mark.parametrize(
        "kind",
        [
            *("chat", "mcp/request", "mcp/response", "mcp/proposal", "stream/request", "stream/close", "stream/data"),
            *("participant/resume", "participant/compact-done", "capability/grant-ack", "chat/cancel"),
        ],
    )
    def test_refuses(self, kind: str) -> None:
        space = self.shut_down()
        payload = {"text": "hi", "method": "x", "stream_id": "stream-1", "sequence": 1, "content": 1}
        outcome = space.send("bob", kind, payload)
        assert outcome.error == "invalid_operation"
        assert outcome.messages[0]["payload"]["shut_down"] is True

    @pytest.mark.parametrize("kind", ["chat/acknowledge", "participant/status"])
    def test_it_may_say_that_it_knows(self, kind: str) -> None:
        """The reference's agents answer a shutdown by their status."""
        assert self.shut_down().send("bob", kind, {"status": "shutting_down"}).error is None

    def test_frames_are_refused(self) -> None:
        outcome = self.shut_down().frame("bob", "stream-1")
        assert outcome.error == "invalid_operation"
        assert outcome.messages[0]["payload"]["stream_id"] == "stream-1"

    def test_until_it_joins_again(self) -> None:
        for how in ("leave", "suspend", "replace"):
            space = self.shut_down()
            if how != "replace":
                getattr(space, how)("bob")
                assert space.send("bob", "chat", {"text": "by HTTP"}).error == "invalid_operation"
            space.join("bob")
            assert space.send("bob", "chat", {"text": "hi"}).error is None
            assert space.state.shut_down == {}
        assert is_frame(space.frame("bob", "stream-1"))

    def test_a_resume_does_not_end_it(self) -> None:
        space = self.shut_down()
        space.send("admin", "participant/resume", {}, to=["bob"])
        assert space.send("bob", "chat", {"text": "hi"}).error == "invalid_operation"

    def test_a_pause_outlasts_it(self) -> None:
        space = self.shut_down()
        space.send("admin", "participant/pause", {}, to=["bob"])
        space.join("bob")
        assert "paused" in space.send("bob", "chat", {"text": "hi"}).messages[0]["payload"]["message"]

    def test_survives_a_restart(self) -> None:
        space = self.shut_down()
        space.do(commands.Start("e2", space.config))
        assert space.send("bob", "chat", {"text": "hi"}).error == "invalid_operation"
        assert snapshot.load(snapshot.dump(space.state)) == space.state

    def test_the_others_are_not_concerned(self) -> None:
        assert self.shut_down().send("carol", "chat", {"text": "hi"}).error is None

    @pytest.mark.parametrize(
        ("sender", "to", "error"),
        [
            ("carol", ["bob"], "capability_violation"),
            ("admin", None, "validation_error"),
            ("admin", [], "validation_error"),
            ("admin", ["nobody"], "participant_not_found"),
            ("admin", ["bob", "nobody"], "participant_not_found"),
        ],
    )
    def test_refused(self, sender: str, to: list[str] | None, error: str) -> None:
        space = Space("admin", "bob", "carol")
        assert space.send(sender, "participant/shutdown", {}, to=to).error == error
        assert space.send("bob", "chat", {"text": "hi"}).error is None

    def test_several_at_once_and_oneself(self) -> None:
        space = Space("admin", "bob", "carol")
        outcome = space.send("admin", "participant/shutdown", {}, to=["bob", "admin", "bob"])
        assert outcome.types == ["EnvelopeAccepted", "ShutDown", "ShutDown"]
        assert list(space.state.shut_down) == ["bob", "admin"]


class TestProposals:
    """Spec 3.3.1: only the proposer withdraws a proposal; a rejection and a withdrawal name one."""

    def space(self, **limits: Any) -> Space:
        capable = {"bob": ["mcp/proposal", "mcp/withdraw", "chat"], "eve": ["mcp/*"], "carol": EVERYTHING}
        space = Space("bob", "eve", "carol", capabilities=capable, limits=limits)
        space.send("bob", "mcp/proposal", {"method": "x"}, id="p1")
        return space

    @pytest.mark.parametrize(
        ("sender", "kind", "named", "error"),
        [
            ("bob", "mcp/withdraw", ["p1"], None),
            ("bob", "mcp/withdraw", "p1", None),
            ("bob", "mcp/withdraw", None, "validation_error"),
            ("bob", "mcp/withdraw", [], "validation_error"),
            ("bob", "mcp/withdraw", ["p9"], "invalid_operation"),
            ("bob", "mcp/withdraw", ["p1", "p9"], "invalid_operation"),
            ("eve", "mcp/withdraw", ["p1"], "unauthorized"),
            ("carol", "mcp/withdraw", ["p1"], "unauthorized"),
            ("eve", "mcp/reject", ["p1"], None),
            ("eve", "mcp/reject", ["a-chat", "p1"], None),
            ("eve", "mcp/reject", None, "validation_error"),
            ("eve", "mcp/reject", ["p9"], "invalid_operation"),
            ("bob", "mcp/reject", ["p1"], "capability_violation"),
        ],
    )
    def test_who_may_say_what_of_which(self, sender: str, kind: str, named: Any, error: str | None) -> None:
        outcome = self.space().send(sender, kind, {"reason": "unsafe"}, correlation_id=named)
        assert outcome.error == error
        if error is None:
            assert outcome.kinds == [kind]

    def test_not_beside_ones_own(self) -> None:
        space = self.space()
        space.send("eve", "mcp/proposal", {"method": "y"}, id="p2")
        assert space.send("eve", "mcp/withdraw", {}, correlation_id=["p2", "p1"]).error == "unauthorized"
        assert space.send("eve", "mcp/withdraw", {}, correlation_id=["p2"]).error is None

    def test_one_without_an_id_of_its_own(self) -> None:
        space = self.space()
        told = space.send("bob", "mcp/proposal", {"method": "x"}, id=None).messages[0]
        assert space.send("eve", "mcp/withdraw", {}, correlation_id=[told["id"]]).error == "unauthorized"
        assert space.send("bob", "mcp/withdraw", {}, correlation_id=[told["id"]]).error is None

    def test_nobody_takes_over_an_id(self) -> None:
        """Also when the id is forgotten as that of a message, and not yet as that of a proposal."""
        space = self.space(remembered_ids=1)
        space.send("bob", "chat", {"text": "the next"})
        assert space.send("eve", "mcp/proposal", {"method": "y"}, id="p1").error == "invalid_request"
        assert space.send("eve", "chat", {"text": "hi"}, id="p1").error == "invalid_request"
        assert space.send("eve", "mcp/withdraw", {}, correlation_id=["p1"]).error == "unauthorized"

    def test_the_newest_of_each_are_remembered(self) -> None:
        space = self.space(proposals_per_participant=2)
        space.send("eve", "mcp/proposal", {"method": "y"}, id="e1")
        for id in ("p2", "p3"):
            space.send("bob", "mcp/proposal", {"method": "x"}, id=id)
        assert list(space.state.proposals.proposers) == ["e1", "p2", "p3"]
        refused = space.send("bob", "mcp/withdraw", {}, correlation_id=["p1"])
        assert refused.error == "invalid_operation"
        assert "more than 2 newer ones" in refused.messages[0]["payload"]["message"]
        assert space.send("eve", "mcp/withdraw", {}, correlation_id=["p1"]).error == "invalid_operation"
        assert space.send("bob", "mcp/withdraw", {}, correlation_id=["p2"]).error is None

    def test_the_newest_of_all_are_remembered(self) -> None:
        space = self.space(proposals_per_space=2)
        for id, sender in (("e1", "eve"), ("e2", "eve")):
            space.send(sender, "mcp/proposal", {"method": "y"}, id=id)
        assert space.state.proposals.proposers == {"e1": "eve", "e2": "eve"}

    def test_none_at_all(self) -> None:
        space = self.space(proposals_per_participant=0)
        assert space.state.proposals.proposers == {}
        assert space.send("bob", "mcp/withdraw", {}, correlation_id=["p1"]).error == "invalid_operation"

    def test_a_fulfilment(self) -> None:
        """A request that names a proposal; whether it may be made is a matter of capabilities."""
        space = self.space()
        request = {"method": "x"}
        assert space.send("eve", "mcp/request", request, to=["carol"], correlation_id=["p1"]).error is None
        assert space.send("bob", "mcp/request", request, correlation_id=["p1"]).error == "capability_violation"

    def test_survives_a_restart(self) -> None:
        space = self.space()
        loaded = snapshot.load(snapshot.dump(space.state))
        assert loaded == space.state
        assert loaded.proposals.proposers == {"p1": "bob"}
        loaded.proposals.remember("p2", "bob", most_of_one=1, most=10)
        assert loaded.proposals.proposers == {"p2": "bob"}
        assert loaded.used_ids["p1"] == "bob"


def test_the_lists_of_kinds() -> None:
    assert kinds.AFTER_SHUTDOWN < kinds.WHILE_PAUSED
    assert kinds.ALWAYS_ALLOWED < kinds.WHILE_PAUSED
