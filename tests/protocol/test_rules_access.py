"""Who may be in a space: invitations that end, kicks with a ban."""

from __future__ import annotations

import pytest
from harness import EPOCH, Space, is_frame

from mewstream.protocol import commands
from mewstream.protocol.records import Banned, Invited, Joined, Left, Unbanned, Uninvited
from mewstream.protocol.snapshot import dump, load
from mewstream.protocol.times import SECOND

INVITE = {"participant_id": "guest", "capabilities": [{"kind": "chat"}]}


class TestInvitations:
    def test_one_that_nobody_has_joined_by_ends(self) -> None:
        space = Space("admin")
        invited = space.send("admin", "space/invite", {**INVITE, "expires_in": 60}).one(Invited)
        assert invited.expires_at == space.now + 60 * SECOND
        ended = space.tick(60)
        assert ended.one(Uninvited).reason == "expired"
        assert ended.told("system/presence") == {"event": "uninvited", "participant": {"id": "guest"}}
        assert space.send("admin", "space/invite", INVITE).error is None, "the name is free again"

    def test_whoever_has_joined_stays(self) -> None:
        space = Space("admin")
        space.send("admin", "space/invite", {**INVITE, "expires_in": 60})
        space.join("guest")
        assert space.tick(61).records == []
        assert space.send("guest", "chat", {"text": "hi"}).error is None

    def test_taken_back(self) -> None:
        space = Space("admin")
        space.send("admin", "space/invite", INVITE)
        space.join("guest")
        granted = {"recipient": "guest", "capabilities": [{"kind": "x/y"}]}
        assert space.send("admin", "capability/grant", granted).error is None
        stream = space.open("admin")
        space.grant("admin", stream, "guest")
        outcome = space.send("admin", "space/uninvite", {"participant_id": "guest", "reason": "enough"})
        assert outcome.types == ["EnvelopeAccepted", "Uninvited", "Left", "WriteRevoked"]
        assert outcome.one(Left).reason == "kicked"
        assert not is_frame(space.frame("guest", stream))
        space.send("admin", "space/invite", INVITE)
        assert space.join("guest").one(Joined).capabilities == [{"kind": "chat"}], "what was granted has ended too"

    def test_nobody_else_can_be_uninvited(self) -> None:
        space = Space("admin", "bob")
        assert space.send("admin", "space/uninvite", {"participant_id": "bob"}).error == "participant_not_found"
        assert space.send("bob", "space/uninvite", {"participant_id": "guest"}).error == "capability_violation"

    @pytest.mark.parametrize("seconds", [0, -1, True, "60", []])
    def test_a_time_that_is_none(self, seconds: object) -> None:
        space = Space("admin")
        refused = space.send("admin", "space/invite", {**INVITE, "expires_in": seconds})
        assert refused.error == "validation_error"

    def test_a_very_long_time(self) -> None:
        space = Space("admin")
        assert space.send("admin", "space/invite", {**INVITE, "expires_in": 1e300}).error is None

    def test_a_snapshot_keeps_the_end(self) -> None:
        space = Space("admin")
        space.send("admin", "space/invite", {**INVITE, "expires_in": 60})
        assert load(dump(space.state)).timers == space.state.timers


class TestBans:
    def test_whoever_is_banned_leaves_and_may_not_come_back(self) -> None:
        space = Space("admin", "bob")
        outcome = space.send("admin", "space/kick", {"participant_id": "bob", "ban": 60, "reason": "floods"})
        assert outcome.types == ["EnvelopeAccepted", "Banned", "Left"]
        ban = outcome.one(Banned)
        assert (ban.until, ban.by, ban.reason) == (space.now + 60 * SECOND, "admin", "floods")
        refused = space.join("bob")
        assert refused.error == "unauthorized"
        assert refused.messages[0]["payload"]["banned_until"]
        assert space.send("bob", "chat", {"text": "over HTTP"}).error == "unauthorized"
        assert space.tick(59).records == []
        ended = space.tick(1)
        assert ended.one(Unbanned).by == "system:gateway"
        assert ended.messages == []
        assert space.join("bob").error is None

    def test_somebody_who_is_away(self) -> None:
        space = Space("admin", capabilities={"bob": ["chat"]})
        assert space.send("admin", "space/kick", {"participant_id": "bob"}).error == "participant_not_found"
        banned = space.send("admin", "space/kick", {"participant_id": "bob", "ban": 60})
        assert banned.types == ["EnvelopeAccepted", "Banned"]
        assert space.join("bob").error == "unauthorized"
        stranger = space.send("admin", "space/kick", {"participant_id": "nobody", "ban": 60})
        assert stranger.error == "participant_not_found"

    def test_unbanned(self) -> None:
        space = Space("admin", "bob")
        space.send("admin", "space/kick", {"participant_id": "bob", "ban": 60})
        assert space.send("admin", "space/unban", {"participant_id": "bob"}).types == ["EnvelopeAccepted", "Unbanned"]
        assert space.join("bob").error is None
        assert space.tick(60).records == []
        assert space.send("admin", "space/unban", {"participant_id": "bob"}).error == "participant_not_found"

    def test_a_longer_ban_replaces_a_shorter_one(self) -> None:
        space = Space("admin", "bob")
        for seconds in (60, 120):
            space.send("admin", "space/kick", {"participant_id": "bob", "ban": seconds})
        assert space.tick(119).records == []
        assert space.tick(1).types == ["Unbanned"]

    def test_it_survives_a_restart_and_a_jump_of_the_clock(self) -> None:
        space = Space("admin", "bob")
        space.send("admin", "space/kick", {"participant_id": "bob", "ban": 7200})
        assert load(dump(space.state)).banned == space.state.banned
        space.do(commands.Start(EPOCH + "2", space.config))
        space.now += 3600 * SECOND
        space.do(commands.ClockJump(3600 * SECOND, 3600 * SECOND, 0))
        assert space.join("bob").error == "unauthorized"
        assert space.tick(3600).types == ["Unbanned"]

    def test_there_are_only_so_many(self) -> None:
        space = Space("admin", "bob", "cy", limits={"bans": 1})
        assert space.send("admin", "space/kick", {"participant_id": "bob", "ban": 60}).error is None
        assert space.send("admin", "space/kick", {"participant_id": "cy", "ban": 60}).error == "limit_exceeded"
        assert space.send("admin", "space/kick", {"participant_id": "bob", "ban": 90}).error is None

    def test_it_takes_the_capability(self) -> None:
        space = Space("bob", "cy")
        assert space.send("bob", "space/kick", {"participant_id": "cy", "ban": 60}).error == "capability_violation"
        assert space.send("bob", "space/unban", {"participant_id": "cy"}).error == "capability_violation"
