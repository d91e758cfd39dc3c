"""Logs for the auditor: lively ones as the core of the protocol writes them, and what it says of any.

A :class:`Life` does more than a play of the pipeline's tests: participants with few capabilities, MCP, proposals,
capabilities given and taken, invitations, kicks, pauses, signed tokens, and names instead of ids.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from journals import PEOPLE, Play

from mewstream.audit import ControlRecord, Finding, SpaceAuditor
from mewstream.journal import schema
from mewstream.protocol import commands, kinds
from mewstream.protocol.records import EnvelopeAccepted, Frame, Record, SpaceStarted
from mewstream.protocol.times import SECOND

CAPABILITIES: dict[str, list[dict[str, Any]]] = {
    "bob": [
        {"kind": "chat"},
        {"kind": "stream/*"},
        {"kind": "mcp/*"},
        {"kind": "!mcp/request", "payload": {"method": "x*"}},
    ],
    "cy": [{"kind": "chat"}, {"kind": "mcp/proposal"}, {"kind": "mcp/request", "payload": {"method": "tools/*"}}],
    "dee": [{"kind": "space/*"}, {"kind": "capability/*"}, {"kind": "participant/*"}, {"kind": "chat"}],
}


class Life(Play):
    def __init__(self, *, seed: int = 0, **options: Any) -> None:
        policies = {
            "on_owner_leave": ("keep", "transfer", "close")[seed % 3],
            "owner_leave_grace": (0, 2, 5)[seed // 3 % 3],
            "reconnect_grace": (0, 2)[seed % 2],
            "start_timeout": (0, 3, 60)[seed // 2 % 3],
            "invites": ("ordinary", "held")[seed // 5 % 2],
        }
        limits = (
            {"streams_per_participant": 4, "writers_per_stream": 3, "readers_per_stream": 3} if seed % 4 == 0 else {}
        )
        limits |= {"proposals_per_participant": 2, "participants_per_space": 5}
        options = {"policies": policies, "limits": limits, "capabilities": CAPABILITIES} | options
        super().__init__(seed=seed, **options)

    def step(self) -> list[Record]:
        chance = self.random
        if chance.random() < 0.5:
            return super().step()
        who, other = chance.choice(self.people), chance.choice([*self.people, "eve", "fay"])
        stream = chance.choice([*self.state.streams, *self.state.aliases, "stream-1"])
        some = {"to": [other, chance.choice(self.people)]}
        patterns = [
            {"kind": chance.choice(["mcp/*", "chat", "stream/request", "space/kick", "!chat", "stream/read:x"])}
        ]
        proposal = chance.choice([*self.state.proposals.proposers, "nothing"])
        about = {"correlation_id": [proposal]}
        match chance.randrange(34):
            case 0:
                return self.send(who, kinds.MCP_REQUEST, method=chance.choice(["tools/list", "x/y", "resources/list"]))
            case 1 | 2:
                return self.send(who, kinds.MCP_PROPOSAL, method="tools/call")
            case 3:
                return self.send(who, chance.choice([kinds.MCP_WITHDRAW, kinds.MCP_REJECT]), envelope=about)
            case 4 | 5:
                return self.send(who, kinds.CAPABILITY_GRANT, recipient=other, capabilities=patterns)
            case 6:
                return self.send(who, kinds.CAPABILITY_REVOKE, recipient=other, capabilities=[{"kind": "*"}])
            case 7:
                grants = [id for each in self.state.capability_grants.values() for id in each]
                return self.send(who, kinds.CAPABILITY_REVOKE, grant_id=chance.choice([*grants, "nothing"]))
            case 8:
                return self.send(
                    who, kinds.INVITE, participant_id=chance.choice(["eve", "fay", "a/b"]), capabilities=patterns
                )
            case 9:
                return self.send(who, kinds.KICK, participant_id=other)
            case 10:
                return self.send(who, kinds.PAUSE, envelope=some, timeout_seconds=chance.choice([1, 4, 0]))
            case 11:
                return self.send(who, kinds.RESUME, envelope=some if chance.random() < 0.5 else {})
            case 12:
                return self.send(who, kinds.SHUTDOWN, envelope={"to": [other]}) if chance.random() < 0.3 else []
            case 13:
                fields = {"desired_id": chance.choice(["main", "second", "stream-9"]), "auto_grant": [who, other]}
                return self.send(
                    who, kinds.STREAM_REQUEST, on_owner_leave=chance.choice(["keep", "transfer"]), **fields
                )
            case 14:
                return self.send(who, kinds.STREAM_CLOSE, envelope={"correlation_id": [f"{who}-{self._ids - 3}"]})
            case 15:
                return self.send(who, kinds.STREAM_ERROR, stream_id=stream, code="broken", message="it broke")
            case 16:
                return self.send(
                    who, kinds.STREAM_REQUEST, target=[other], direction=chance.choice(["upload", "sideways"])
                )
            case 17:
                until = self.now + chance.randrange(1, 6) * SECOND
                self.do(commands.Admit("tok", [{"kind": "chat"}], until, None))
                return self.join("tok") if "tok" in self.state.admitted else []
            case 18 if other in self.state.roster:
                return self.join(other, extensions=chance.choice([None, ["positions"]]))
            case 19:
                shift = chance.randrange(1, 9) * SECOND
                self.now += shift
                return self.do(commands.ClockJump(shift, shift, 0), after=0) if self._nothing_due(shift) else []
            case 20 | 21:
                return self.send(who, kinds.REQUEST_WRITE, stream_id=stream, reason=chance.choice([None, "please"]))
            case 22:
                return self.send(who, kinds.DENY_WRITE, stream_id=stream, participant_id=other)
            case 23:
                replaced = {"replaces": chance.choice(self.people)}
                return self.send(who, kinds.GRANT_WRITE, stream_id=stream, participant_id=other, **replaced)
            case 24 | 25:
                named = {"desired_id": chance.choice(["main", "second", "a/b"])}
                named |= {"if_exists": chance.choice(["new", "reuse", "replace", "error", "maybe"])}
                return self.send(who, kinds.STREAM_REQUEST, idle_timeout=chance.choice([0, 3, 60]), **named)
            case 26:
                return self.send(who, kinds.KICK, participant_id=other, ban=chance.choice([1, 3, -1]))
            case 27:
                return self.send(who, kinds.UNBAN, participant_id=other)
            case 28:
                return self.send(who, kinds.INVITE, participant_id="eve", expires_in=chance.choice([1, 5]))
            case 29:
                return self.send(who, kinds.UNINVITE, participant_id=chance.choice(["eve", "fay"]))
            case 30 | 31:
                passed_on = {"delegate": {"depth": chance.randrange(1, 3)}} if chance.random() < 0.7 else {}
                passed_on |= {"conditions": {"max_frames": chance.randrange(1, 4)}} if chance.random() < 0.3 else {}
                return self.send(who, kinds.GRANT_WRITE, stream_id=stream, participant_id=other, **passed_on)
            case 32:
                return self.send(who, chance.choice(["stream/open", "system/x", "reasoning/start"]))
            case _:
                return self.send(who, kinds.GRANT_WRITE, stream_id=stream, participant_id=other)

    def join(self, participant: str, *, continues: bool = False, extensions: list[str] | None = None) -> list[Record]:
        """Without a token nobody joins, even an owner of streams whose invitation was taken back."""
        self.wait(0.001)
        command = commands.Join(participant, "websocket", continues, extensions)
        return self._decide(command) if participant in self.state.roster else []

    def _nothing_due(self, shift: int) -> bool:
        """A jump is recorded before anything that it makes due; without one the time simply passes."""
        due = self.state.next_deadline()
        return due is None or due > self.now


def lively(count: int, seed: int, **options: Any) -> Life:
    life = Life(seed=seed, **options)
    life.begin()
    while len(life.records) < count:
        life.step()
    return life


def small(*, policies: dict[str, Any] | None = None, **options: Any) -> Play:
    """Ann and bob may do everything, cy and dee may only chat. Ann owns ``stream-1``, whose alias is ``main``."""
    chat = [{"kind": "chat"}]
    play = Play(capabilities={"cy": chat, "dee": chat}, policies=policies, **options)
    for each in PEOPLE:
        play.join(each)
    play.open("ann", desired_id="main")
    return play


# -- what the auditor says ------------------------------------------------------------------------


def rows(play: Play) -> Iterator[ControlRecord]:
    """The control records of a log, as the journal has them."""
    epoch = ""
    for record in play.records:
        if isinstance(record, SpaceStarted):
            epoch = record.epoch
        if not isinstance(record, Frame):
            described, data = schema.describe(record), record.data if isinstance(record, EnvelopeAccepted) else None
            who = (described.sender, described.participant, described.stream_id, described.outcome)
            place = (record.seq, epoch, record.ts, schema.name_of(record), described.kind)
            yield ControlRecord(*place, *who, record.cause_seq, schema.detail_of(record), data)


class Said(msgspec.Struct):
    findings: list[Finding] = []
    judged: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    unjudged: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)

    @property
    def places(self) -> list[tuple[int, str]]:
        return [(each.seq, each.rule) for each in self.findings]


def said_of(play: Play, *, records: list[ControlRecord] | None = None, seed: int | None = None) -> Said:
    """What is said of a log. With a ``seed`` it comes in random batches, and only bytes are left between them."""
    waiting = list(rows(play)) if records is None else records
    chance, said, carried = random.Random(seed), Said(), None
    frames = [(each.seq, each.stream_id, each.sender) for each in play.records if isinstance(each, Frame)]
    begins = 0
    while waiting:
        size = len(waiting) if seed is None else chance.randrange(1, 80)
        batch, waiting = waiting[:size], waiting[size:]
        ends = waiting[0].seq if waiting else 1 << 60

        def count(
            stream: str, writer: str, after: int, before: int | None, begins: int = begins, ends: int = ends
        ) -> int:
            within = range(max(after + 1, begins), min(before or ends, ends))
            return sum(seq in within for seq, *written in frames if written == [stream, writer])

        auditor = SpaceAuditor(play.space, carried, frames=count)
        for each in batch:
            auditor.see(each)
        carried, begins = auditor.carried(), ends
        said.findings += auditor.findings
        said.judged += auditor.judged
        said.unjudged += auditor.unjudged
    return said
