"""Who may give and take capabilities: grants, revokes by pattern, invitations, and denials that win."""

from __future__ import annotations

from typing import Any

import pytest
from harness import EVERYTHING, Outcome, Space

from mewstream.protocol.capabilities import Capabilities, is_privileged
from mewstream.protocol.records import CapabilitiesRevoked


def grant(space: Space, sender: str, recipient: str, *capabilities: Any, **fields: Any) -> Outcome:
    return space.send(
        sender, "capability/grant", {"recipient": recipient, "capabilities": list(capabilities)}, **fields
    )


def revoke(space: Space, sender: str, recipient: str, *capabilities: Any, **fields: Any) -> Outcome:
    payload = {"recipient": recipient, "capabilities": list(capabilities)}
    return space.send(sender, "capability/revoke", payload, **fields)


READ = {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "read_file"}}}
TOOLS = {"kind": "mcp/request", "payload": {"method": "tools/*"}}


class TestRevokeByPattern:
    """WIRE.md, What the reference's own tools rely on; spec 3.6.2: all that a pattern covers is taken."""

    @pytest.mark.parametrize(
        ("granted", "revoked", "left"),
        [
            (["chat"], ["chat"], []),
            (["mcp/request", "mcp/proposal", "chat"], ["mcp/*"], ["chat"]),
            ([READ, "mcp/request"], [TOOLS], ["mcp/request"]),
            ([TOOLS], [READ], ["mcp/request"]),
            ([TOOLS], [TOOLS], []),
            (["mcp/*"], ["mcp/request"], ["mcp/*"]),
            (["mcp/*", "chat"], ["*"], []),
            (["chat", "reasoning/*", "mcp/*"], ["chat", "mcp/*"], ["reasoning/*"]),
            ([{"kind": "x", "payload": {"a": "/^b/"}}], [{"kind": "x", "payload": {"a": "/^b/"}}], []),
            ([{"kind": "x", "payload": {"a": 1}}], [{"kind": "x", "payload": {"a": True}}], ["x"]),
            ([{"kind": "x", "reason": "asked for"}], ["x"], []),
            (["chat"], ["!chat"], ["chat"]),
            (["chat"], ["!*"], ["chat"]),
        ],
    )
    def test_takes_all_that_it_includes(self, granted: list[Any], revoked: list[Any], left: list[str]) -> None:
        space = Space("admin", "bob", capabilities={"bob": ["own/*"]})
        grant(space, "admin", "bob", *granted)
        outcome = revoke(space, "admin", "bob", *revoked)
        assert outcome.types == ["EnvelopeAccepted", "CapabilitiesRevoked"]
        assert space.capabilities("bob") == ["own/*", *left]

    def test_of_several_grants(self) -> None:
        space = Space("admin", "bob", capabilities={"bob": []})
        grant(space, "admin", "bob", "chat", "mcp/request", id="g1")
        grant(space, "admin", "bob", "mcp/proposal", id="g2")
        grant(space, "admin", "bob", "reasoning/*", id="g3")
        remaining = revoke(space, "admin", "bob", "mcp/*").one(CapabilitiesRevoked).remaining
        assert remaining == {"g1": [{"kind": "chat"}], "g2": []}
        assert space.capabilities("bob") == ["chat", "reasoning/*"]

    @pytest.mark.parametrize("recipient", ["bob", "carol", "nobody"])
    def test_nothing_matches(self, recipient: str) -> None:
        """It is accepted and relayed all the same; the recipient gets a new welcome by the record."""
        space = Space("admin", "bob", capabilities={"carol": ["chat"]})
        for _ in range(2):
            outcome = revoke(space, "admin", recipient, TOOLS)
            assert outcome.kinds == ["capability/revoke"]
            assert outcome.one(CapabilitiesRevoked).remaining == {}

    def test_what_the_configuration_gives_stays(self) -> None:
        space = Space("admin", "bob", capabilities={"bob": ["chat", "mcp/request"]})
        revoke(space, "admin", "bob", "*")
        assert space.capabilities("bob") == ["chat", "mcp/request"]

    def test_what_an_invitation_gives_stays(self) -> None:
        space = Space("admin")
        space.send("admin", "space/invite", {"participant_id": "eve", "capabilities": ["chat"]})
        revoke(space, "admin", "eve", "*")
        assert space.capabilities("eve") == ["chat"]

    def test_by_id_and_recipient(self) -> None:
        """Spec 3.6.2 names both; a wrong recipient is a mistake."""
        space = Space("admin", "bob", "carol")
        grant(space, "admin", "bob", "x", id="g1")
        wrong = space.send("admin", "capability/revoke", {"grant_id": "g1", "recipient": "carol"})
        assert wrong.error == "invalid_operation"
        assert space.send("admin", "capability/revoke", {"grant_id": "g1", "recipient": "bob"}).error is None

    def test_too_much_to_compare(self) -> None:
        space = Space("admin", "bob")
        grant(space, "admin", "bob", *(f"a/{number}" for number in range(250)))
        outcome = revoke(space, "admin", "bob", *(f"b/{number}" for number in range(250)))
        assert outcome.error == "validation_error"
        assert "grant_id" in outcome.messages[0]["payload"]["message"]


class TestWhoMayRevoke:
    """To revoke takes what to grant takes: nobody strips others of what they were given by somebody above."""

    def space(self) -> Space:
        lesser = ["capability/*", "chat", "mcp/request"]
        space = Space("admin", "eve", "mallory", "bob", capabilities={"eve": lesser, "mallory": lesser, "bob": []})
        grant(space, "admin", "bob", "space/kick", id="high")
        grant(space, "eve", "bob", "mcp/request", id="low")
        return space

    @pytest.mark.parametrize("by", [{"grant_id": "high"}, {"recipient": "bob", "capabilities": ["space/kick"]}])
    def test_not_what_one_does_not_hold(self, by: dict[str, Any]) -> None:
        space = self.space()
        outcome = space.send("mallory", "capability/revoke", by)
        assert outcome.error == "capability_violation"
        assert outcome.messages[0]["payload"]["attempted_kind"] == "space/kick"
        assert space.capabilities("bob") == ["space/kick", "mcp/request"]

    def test_all_or_nothing(self) -> None:
        """A pattern that covers more than one may take is refused, and takes nothing."""
        space = self.space()
        assert revoke(space, "mallory", "bob", "*").error == "capability_violation"
        assert space.capabilities("bob") == ["space/kick", "mcp/request"]
        assert revoke(space, "mallory", "bob", "mcp/*").error is None
        assert space.capabilities("bob") == ["space/kick"]

    def test_what_one_has_granted_oneself(self) -> None:
        """Also where one has lost it since."""
        space = Space("admin", "eve", "bob", capabilities={"eve": ["capability/*"], "bob": []})
        grant(space, "admin", "eve", "mcp/*", id="g1")
        grant(space, "eve", "bob", "mcp/request", id="g2")
        space.send("admin", "capability/revoke", {"grant_id": "g1"})
        assert revoke(space, "eve", "bob", "mcp/*").error is None
        assert space.capabilities("bob") == []

    def test_what_was_granted_to_oneself(self) -> None:
        space = Space("admin", "eve", capabilities={"eve": ["capability/revoke"]})
        grant(space, "admin", "eve", "space/*")
        assert revoke(space, "eve", "eve", "space/*").error is None
        assert space.capabilities("eve") == ["capability/revoke"]

    def test_without_the_capability(self) -> None:
        space = Space("admin", "bob", capabilities={"bob": []})
        grant(space, "admin", "bob", "chat", id="g1")
        assert space.send("bob", "capability/revoke", {"grant_id": "g1"}).error == "capability_violation"


ORDINARY = [
    *("chat", "chat/*", "mcp/*", "mcp/request", "reasoning/*", "participant/*", "stream/*", "unknown/kind", "x*"),
    *("?*", "spaces/*", "Space/kick", "capability"),
]
PRIVILEGED = [
    *("capability/grant", "capability/*", "space/invite", "space/kick", "space/manage-streams", "space/*", "system/*"),
    *("*", "**", "*/*", "**/*", "c*", "cap*", "capability*", "s*", "sp*", "sys*", "*/invite", "*/grant", "*e/*"),
    *("s*e/k*", "capability/*/x", "*y/grant", "*chat", "*m/*", "*space/kick", "c*t", "space/k*", "sp**e/*"),
]


class TestInvite:
    """WIRE.md: an inviter may give ordinary capabilities that it does not hold, and privileged ones only if it does."""

    def invite(self, space: Space, *capabilities: Any, sender: str = "eve") -> Outcome:
        payload = {"participant_id": "guest", "initial_capabilities": list(capabilities)}
        return space.send(sender, "space/invite", payload)

    @pytest.mark.parametrize("kind", ORDINARY)
    def test_ordinary(self, kind: str) -> None:
        assert not is_privileged(kind)
        space = Space("eve", capabilities={"eve": ["space/invite"]})
        assert self.invite(space, kind).error is None
        assert space.capabilities("guest") == [kind]

    @pytest.mark.parametrize("kind", PRIVILEGED)
    def test_privileged(self, kind: str) -> None:
        assert is_privileged(kind)
        for pattern in (kind, {"kind": kind, "payload": {"any": "thing"}}):
            space = Space("eve", capabilities={"eve": ["space/invite", "chat", "mcp/*", "stream/*"]})
            if kind == "space/invite":
                continue
            outcome = self.invite(space, "chat", pattern)
            assert outcome.error == "capability_violation"
            assert outcome.messages[0]["payload"]["attempted_kind"] == kind
            assert self.invite(Space("admin"), pattern, sender="admin").error is None

    def test_privileged_and_held(self) -> None:
        space = Space("eve", capabilities={"eve": ["space/*", "!space/kick", "capability/grant"]})
        assert self.invite(space, "space/*").error == "capability_violation", "a denial of the giver touches it"
        assert self.invite(space, "space/kick").error == "capability_violation"
        assert self.invite(space, "space/invite", "capability/grant").error is None

    @pytest.mark.parametrize("kind", ["!chat", "!space/*", "!*", "!capability/grant"])
    def test_a_denial_gives_nothing(self, kind: str) -> None:
        assert not is_privileged(kind)
        space = Space("eve", capabilities={"eve": ["space/invite"]})
        assert self.invite(space, "mcp/*", kind).error is None
        space.join("guest")
        assert space.send("guest", "space/kick", {"participant_id": "eve"}).error == "capability_violation"

    @pytest.mark.parametrize("kind", ORDINARY)
    def test_held_is_the_strict_form(self, kind: str) -> None:
        space = Space("eve", capabilities={"eve": ["space/invite", "other"]}, policies={"invites": "held"})
        assert self.invite(space, kind).error == "capability_violation"
        assert self.invite(space, "other").error is None

    def test_held_does_not_concern_the_defaults(self) -> None:
        """Those are the operator's gift."""
        space = Space(
            "eve",
            capabilities={"eve": ["space/invite"]},
            policies={"invites": "held"},
            default_capabilities=[{"kind": "chat"}],
        )
        assert space.send("eve", "space/invite", {"participant_id": "guest"}).error is None
        assert space.capabilities("guest") == ["chat"]

    def test_nobody_gains_a_privilege_by_inviting(self) -> None:
        """Whatever pattern is given: the invited one may send no privileged kind that the inviter may not."""
        kinds = ["capability/grant", "capability/revoke", "space/invite", "space/kick", "space/manage-streams"]
        for given in (*ORDINARY, *PRIVILEGED):
            space = Space("eve", capabilities={"eve": ["space/invite"]})
            if self.invite(space, given).error is None:
                held = space.state.capabilities("guest")
                assert not [kind for kind in kinds[:2] + kinds[3:] if held.allows(kind, {})], given


class TestDenialsWin:
    """Decisions 2 and 21: what is allowed by another capability than its own name is still denied by its name; a right
    on a stream stands above all capabilities."""

    def test_announce(self) -> None:
        space = Space("bob", capabilities={"bob": ["stream/manage", "!stream/announce"]})
        outcome = space.send("bob", "stream/announce", {})
        assert outcome.error == "capability_violation"
        assert outcome.messages[0]["payload"]["attempted_kind"] == "stream/announce"

    @pytest.mark.parametrize("kind", ["!stream/*", "!*", "!stream/manage", "!stream/a*"])
    def test_announce_by_a_wider_denial(self, kind: str) -> None:
        space = Space("bob", capabilities={"bob": ["*", kind]})
        assert space.send("bob", "stream/announce", {}).error == "capability_violation"

    def test_announce_with_a_payload(self) -> None:
        denial = {"kind": "!stream/announce", "payload": {"desired_id": "secret"}}
        space = Space("bob", capabilities={"bob": ["stream/*", denial]})
        assert space.send("bob", "stream/announce", {"desired_id": "secret"}).error == "capability_violation"
        assert space.send("bob", "stream/announce", {"desired_id": "open"}).error is None

    OPERATIONS = (
        ("stream/grant-write", {"participant_id": "carol"}),
        ("stream/revoke-write", {"participant_id": "carol"}),
        ("stream/grant-read", {"participant_id": "carol"}),
        ("stream/revoke-read", {"participant_id": "carol"}),
        ("stream/transfer-ownership", {"new_owner": "carol"}),
        ("stream/close", {}),
    )

    @pytest.mark.parametrize(("kind", "payload"), OPERATIONS)
    def test_a_manager(self, kind: str, payload: dict[str, Any]) -> None:
        for denial in (f"!{kind}", "!stream/*"):
            space = Space("alice", "carol", "bob", capabilities={"bob": ["space/manage-streams", denial]})
            stream = space.open("alice")
            assert space.send("bob", kind, {"stream_id": stream, **payload}).error == "unauthorized"
            assert space.send("alice", kind, {"stream_id": stream, **payload}).error is None

    @pytest.mark.parametrize("name", ["stream_id", "alias", "nested", "correlation"])
    def test_a_manager_for_one_stream(self, name: str) -> None:
        """However the stream is named: what is judged is its id."""
        denial = {"kind": "!space/manage-streams", "payload": {"stream_id": "stream-1"}}
        space = Space("alice", "bob", capabilities={"bob": ["space/*", denial]})
        for alias in ("first", "second"):
            space.send("alice", "stream/request", {"desired_id": alias}, id=f"r-{alias}")

        def close(stream: str, alias: str) -> str | None:
            fields: dict[str, Any] = {}
            payload: dict[str, Any] = {}
            match name:
                case "stream_id":
                    payload = {"stream_id": stream}
                case "alias":
                    payload = {"stream_id": alias}
                case "nested":
                    payload = {"stream": {"stream_id": stream}}
                case _:
                    fields = {"correlation_id": [f"r-{alias}"]}
            return space.send("bob", "stream/close", payload, **fields).error

        assert close("stream-1", "first") == "unauthorized"
        assert close("stream-2", "second") is None

    def test_a_manager_of_one_stream_only(self) -> None:
        only = {"kind": "space/manage-streams", "payload": {"stream_id": "stream-2"}}
        space = Space("alice", "bob", capabilities={"bob": [only]})
        first, second = space.open("alice"), space.open("alice")
        assert space.close("bob", first).error == "unauthorized"
        assert space.close("bob", second).error is None

    @pytest.mark.parametrize(("kind", "payload"), OPERATIONS)
    def test_not_over_the_right_of_an_owner(self, kind: str, payload: dict[str, Any]) -> None:
        """Decision 2: whatever else one's capabilities say."""
        space = Space("alice", "carol", "bob", capabilities={"bob": ["!*"]})
        stream = space.open("alice")
        space.transfer("alice", stream, "bob")
        assert space.frame("bob", stream).error is None
        assert space.send("bob", kind, {"stream_id": stream, **payload}).error is None

    @pytest.mark.parametrize("kind", ["mcp/response", "capability/grant-ack"])
    def test_not_over_answers(self, kind: str) -> None:
        """WIRE.md, Connecting: every participant may always send them."""
        assert Space("bob", capabilities={"bob": ["!*"]}).send("bob", kind, {}).error is None

    def test_denies(self) -> None:
        held = Capabilities(["*", "!a/*", {"kind": "!b", "payload": {"x": 1}}])
        assert held.denies("a/b", {})
        assert held.denies("b", {"x": 1})
        assert not held.denies("b", {})
        assert not held.denies("c", {})
        assert not Capabilities(EVERYTHING).denies("a", {})
        assert held.denies("k" * 2000, {}), "what cannot be judged is denied"
