"""Tokens of invited participants: made before an invitation is a fact, told to the inviter alone."""

from __future__ import annotations

import json

from doubles import FakeMember, ManualLoop, joined, make_space, say

from mewstream.gateway.invitations import Invitations
from mewstream.protocol.decide import Decision
from mewstream.protocol.records import Invited, Refused
from mewstream.protocol.state import SpaceState

INVITED = Invited(7, 7, 6, "guest", [], "ann", "m-1")


def refused(code: str = "already_exists", **details: str) -> Refused:
    return Refused(
        7, 7, None, sender="ann", kind="space/invite", code=code, message="no", http_status=409, details=details, id="m"
    )


class TestTokens:
    def make(self) -> tuple[Invitations, list[str]]:
        minted: list[str] = []

        def mint(participant: str) -> str:
            minted.append(participant)
            return f"secret-{participant}"

        return Invitations(SpaceState("demo"), mint, lambda participant: None, "ws://here"), minted

    def test_a_token_is_made_once_and_told_again(self) -> None:
        invitations, minted = self.make()
        for _ in range(2):
            assert invitations.without_token(Decision([INVITED])) is None
            assert invitations.answer(INVITED) == {
                "status": "created",
                "participant_id": "guest",
                "token": "secret-guest",
                "connection_url": "ws://here",
            }
        assert minted == ["guest"]

    def test_it_is_not_told_after_the_guest_has_joined(self) -> None:
        invitations, _ = self.make()
        invitations.without_token(Decision([INVITED]))
        invitations.joined("guest")
        assert "token" not in invitations.answer(INVITED)

    def test_one_that_cannot_be_stored_is_named(self) -> None:
        def mint(participant: str) -> str:
            raise OSError("no space left on device")

        invitations = Invitations(SpaceState("demo"), mint, lambda participant: None, "ws://here")
        assert invitations.without_token(Decision([INVITED])) is INVITED

    def test_a_decision_without_invitations_needs_none(self) -> None:
        invitations, minted = self.make()
        assert invitations.without_token(Decision([refused()])) is None and not minted


class TestAnswers:
    invitations = Invitations(SpaceState("demo", epoch="e"), str, lambda participant: None, "ws://here")

    def test_an_acknowledgement(self) -> None:
        message = json.loads(self.invitations.acknowledgement(INVITED))
        assert (message["kind"], message["to"], message["correlation_id"]) == ("space/invite-ack", ["ann"], ["m-1"])
        assert message["id"] == "gw-e-7-ack"

    def test_a_refusal_names_the_reason_and_whom_it_was_about(self) -> None:
        message = json.loads(self.invitations.refusal(refused(participant_id="guest"), "-3"))
        assert message["id"] == "gw-e-7-ack-3"
        assert message["payload"]["status"] == "already_exists"
        assert message["payload"]["participant_id"] == "guest"
        assert json.loads(self.invitations.refusal(refused("unauthorized")))["payload"]["status"] == "error"


class TestInASpace:
    def test_the_inviter_alone_gets_the_token(self) -> None:
        loop = ManualLoop()
        space = make_space(loop, "ann", "bob")
        ann, bob = joined(space, "ann"), joined(space, "bob")
        say(space, "ann", "space/invite", participant_id="guest")
        loop.advance()
        assert b"token-of-guest" in ann.sent and b"token-of-guest" not in bob.sent
        assert ann.kinds[-1] == "space/invite-ack" and bob.kinds[-1] == "system/presence"

    def test_a_refused_invitation_is_answered_twice(self) -> None:
        """By an error, as everything that is refused, and by the answer that inviters wait for."""
        loop = ManualLoop()
        space = make_space(loop, "ann", "bob")
        ann = joined(space, "ann")
        say(space, "ann", "space/invite", participant_id="bob")
        loop.advance()
        assert ann.kinds[-2:] == ["system/error", "space/invite-ack"]
        assert ann.messages[-1]["payload"]["status"] == "already_exists"

    def test_a_guest_joins_by_a_member_of_its_own(self) -> None:
        loop = ManualLoop()
        space = make_space(loop, "ann")
        joined(space, "ann")
        say(space, "ann", "space/invite", participant_id="guest")
        guest = FakeMember("guest")
        assert space.join(guest) is None
        loop.advance()
        assert guest.kinds[0] == "system/welcome"
