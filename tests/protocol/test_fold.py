"""The state of a space is a fold over its records and nothing else (DESIGN.md, "One idea")."""

from __future__ import annotations

import copy
import json
import re
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from test_authorization_model import LONG, ORDINARY, PEOPLE, SPACE, Scene, SpaceMachine

from mewstream.protocol import commands, kinds, records
from mewstream.protocol.fold import apply, fold
from mewstream.protocol.render import render
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import SECOND, rfc3339

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(records.AnyRecord).decode


def through_json(log: list[records.Record]) -> list[records.Record]:
    """The log as a journal would give it back."""
    return [_decode(_encode(record)) for record in log]


def welcomes(state: SpaceState) -> list[bytes]:
    return [_encode(state.welcome(who)) for who in (*PEOPLE, "stranger")]


def check_fold(live: SpaceState, log: list[records.Record]) -> None:
    """From the log alone, whole or read back from JSON, comes the very state of the live run."""
    decoded = through_json(log)
    assert decoded == log
    for told in (log, decoded):
        folded = fold(SPACE, told)
        assert folded == live
        assert ordered(folded) == ordered(live), "equal, but in another order"
        assert welcomes(folded) == welcomes(live)


def check_prefixes(live: SpaceState, log: list[records.Record]) -> None:
    """Wherever the log is cut: the fold of the first part, and then the rest, is the same state."""
    decoded = through_json(log)
    growing = SpaceState(SPACE)
    for cut, record in enumerate(decoded):
        folded = fold(SPACE, decoded[:cut])
        assert folded == growing
        assert folded.seq == cut
        resumed = copy.deepcopy(folded)
        for rest in decoded[cut:]:
            apply(resumed, rest)
        assert resumed == live
        apply(growing, record)
    assert growing == live


def check_render(log: list[records.Record]) -> None:
    """What is told of a record depends on nothing but the record, and is compact JSON."""
    epoch = ""
    for record, read_back in zip(log, through_json(log), strict=True):
        if isinstance(record, records.SpaceStarted):
            epoch = record.epoch
        told = render(SPACE, epoch, record)
        assert told == render(SPACE, epoch, record) == render(SPACE, epoch, read_back)
        if told is None:
            continue
        message = json.loads(told)
        assert msgspec.json.format(told, indent=-1) == told
        assert message["protocol"] == kinds.PROTOCOL
        assert isinstance(message["payload"], dict)
        assert {"id", "ts", "from", "kind"} <= set(message)
        if message["from"] == kinds.GATEWAY:
            assert (message["id"], message["ts"]) == (f"gw-{epoch}-{record.seq}", rfc3339(record.ts))


def ordered(state: object) -> str:
    """Everything in its order, but for where JSON that is kept encoded lies in memory."""
    return re.sub(r"0x[0-9a-f]+", "", repr(state))


class FoldMachine(SpaceMachine):
    """The same lives; what counts here is the log that they leave."""

    def teardown(self) -> None:
        check_fold(self.state, self.log)
        check_render(self.log)
        # Every cut costs a fold: the beginning of a long life is enough.
        beginning = self.log[:50]
        check_prefixes(fold(SPACE, beginning), beginning)


def test_random_lives_fold_to_the_state_they_ended_in() -> None:
    run_state_machine_as_test(FoldMachine, settings=settings(ORDINARY, max_examples=100, stateful_step_count=30))


@pytest.mark.long
def test_many_random_lives_fold_to_the_state_they_ended_in() -> None:
    run_state_machine_as_test(FoldMachine, settings=settings(LONG, max_examples=2_000))


# -- one life in which everything happens ---------------------------------------------------------


def every_kind_of_record() -> Scene:
    scene = Scene("ann", "ben", "mia")
    state, now = scene.state, scene.now
    everyone = [{"kind": "*"}]
    scene.do(commands.Start("e2", {"participants": {who: {"capabilities": everyone} for who in PEOPLE}}))
    scene.send("ann", "chat", {"text": "Grüße ✨ \u2028"}, context="plans/1", mine={"any": [1, 2.5, None]})
    scene.send("ann", "chat", {"text": 1})
    scene.send("ann", kinds.CAPABILITY_GRANT, {"recipient": "ben", "capabilities": [{"kind": "mcp/*"}, {"kind": "x"}]})
    scene.send("ann", kinds.CAPABILITY_REVOKE, {"recipient": "ben", "capabilities": [{"kind": "x"}]})
    scene.send("ann", kinds.INVITE, {"participant_id": "guest", "capabilities": [{"kind": "chat"}]})
    scene.send("mia", kinds.PAUSE, {"timeout_seconds": 5}, to=["ben"])
    scene.send("mia", kinds.RESUME, {}, to=["ben"])
    scene.send("ann", kinds.MCP_PROPOSAL, {"method": "x"}, id="p1")
    scene.send("ann", kinds.MCP_WITHDRAW, {}, correlation_id=["p1"])
    schema = {"id": "pose", "format": "json", "schema": {"type": "object"}}
    request = {"description": "#1", "target": ["ann", "ben"], "auto_grant": ["ben", "cat"], "desired_id": "pose"}
    scene.send("ann", kinds.STREAM_REQUEST, {**request, "big": 2**80, "small": 1e-300, "nested": {"owner": [None]}})
    scene.send("ann", kinds.STREAM_REQUEST, {"desired_id": "pose", "if_exists": "reuse"})
    scene.send("ann", kinds.STREAM_ANNOUNCE, {"intent": "later", "formats": [schema]})
    scene.send("ann", kinds.STREAM_START, {"stream_id": "stream-2"})
    on_first = {"stream_id": "pose", "participant_id": "mia"}
    conditions = {"expires_at": rfc3339(now + SECOND), "max_frames": 9}
    scene.send("ann", kinds.GRANT_WRITE, {**on_first, "conditions": conditions})
    scene.send("ann", kinds.GRANT_WRITE, {**on_first, "replaces": "ben", "conditions": conditions})
    scene.send("ben", kinds.REQUEST_WRITE, {"stream_id": "pose"})
    scene.send("ann", kinds.DENY_WRITE, {**on_first, "participant_id": "ben"})
    scene.send("ann", kinds.GRANT_WRITE, {**on_first, "participant_id": "ben"})
    scene.do(commands.Join("ben", "websocket", True, ["interest"]))
    scene.send("ben", kinds.STREAM_SUBSCRIBE, {"streams": ["pose"]})
    scene.send("ben", kinds.STREAM_UNSUBSCRIBE, {"streams": ["pose"]})
    scene.send("ann", kinds.GRANT_READ, on_first)
    scene.send("ann", kinds.REVOKE_READ, {**on_first, "participant_id": "ben"})
    scene.do(commands.SendFrame("mia", "stream-1", bytes(range(256)), 2))
    scene.send("ben", kinds.STREAM_DATA, {"stream_id": "pose", "sequence": 4, "content": {"x": 1}})
    scene.send("ben", kinds.STREAM_DATA, {"stream_id": "pose", "sequence": 9, "content": {"x": 2}})
    scene.send("ben", kinds.STREAM_DATA, {"stream_id": "pose", "sequence": 9, "content": {"x": 3}})
    scene.now += SECOND
    scene.frame("mia")
    scene.send("ann", kinds.TRANSFER_OWNERSHIP, {"stream_id": "pose", "new_owner": "ben", "retain_write": True})
    scene.send("ben", kinds.REVOKE_WRITE, {"stream_id": "pose", "participant_id": "ann", "reason": "done"})
    scene.do(commands.ReportDrop("mia", "stream-1", 2, 3, 4, "drop-oldest"))
    scene.do(
        commands.Refuse("ann", "frame", "limit_exceeded", "too much", 429, {"limit": "x"}, excerpt=b"\xff", count=3)
    )
    scene.send("ann", kinds.INVITE, {"participant_id": "late", "capabilities": [{"kind": "chat"}], "expires_in": 9})
    scene.send("ann", kinds.UNINVITE, {"participant_id": "late"})
    scene.send("ann", kinds.KICK, {"participant_id": "cat", "ban": 60})
    scene.send("ann", kinds.UNBAN, {"participant_id": "cat"})
    scene.do(commands.Admit("cat", [{"kind": "chat"}], now + 9 * SECOND))
    scene.do(commands.EndAdmission("cat"))
    scene.do(commands.Admit("dog", [{"kind": "chat"}], now + 99 * SECOND, "issuer"))
    scene.do(commands.Join("cat", "websocket"))
    scene.do(commands.Suspend("cat", "draining"))
    scene.do(commands.ClockJump(5 * SECOND, 0, 0))
    scene.do(commands.Disconnect("ann", scene.sessions["ann"]))
    scene.send("ben", kinds.STREAM_CLOSE, {}, correlation_id=state.streams["stream-1"].open_id)
    scene.send("ann", kinds.STREAM_ERROR, {"stream_id": "stream-2", "code": "broken", "message": "it broke"})
    scene.send("ann", kinds.STREAM_ANNOUNCE, {})
    scene.send("mia", kinds.STREAM_REQUEST, {"desired_id": "pose", "owner": "posing", "formats": [schema]})
    scene.send("mia", kinds.SHUTDOWN, {}, to=["ben"])
    return scene


def test_the_example_life_has_every_kind_of_record() -> None:
    scene = every_kind_of_record()
    assert {type(record) for record in scene.log} == set(get_args(records.AnyRecord))
    refused = [record.code for record in scene.log if isinstance(record, records.Refused)]
    assert refused == ["validation_error", "sequence_regression", "unauthorized_stream_write", "limit_exceeded"]


def test_every_kind_of_record_folds_and_is_told_alike_after_json() -> None:
    scene = every_kind_of_record()
    check_fold(scene.state, scene.log)
    check_prefixes(scene.state, scene.log)
    check_render(scene.log)


def test_a_fold_does_not_share_what_changes_with_the_log() -> None:
    """Folding must not change the records: they are sent and stored after they were applied."""
    scene = every_kind_of_record()
    before = [_encode(record) for record in scene.log]
    first, second = fold(SPACE, scene.log), fold(SPACE, scene.log)
    assert [_encode(record) for record in scene.log] == before
    apply(first, records.StreamEnded(first.seq + 1, first.ts, None, "stream-4", "closed", kinds.GATEWAY))
    assert second == scene.state


# -- what apply does not know ---------------------------------------------------------------------


class FromTheFuture(records.Record, tag="from-the-future"):
    stream_id: str


def without_position(state: SpaceState) -> SpaceState:
    bare = copy.deepcopy(state)
    bare.seq = bare.ts = 0
    return bare


@pytest.mark.parametrize(
    "build",
    [
        lambda seq, ts: FromTheFuture(seq, ts, None, "stream-1"),
        lambda seq, ts: records.FramesDropped(seq, ts, None, "mia", "stream-1", 2, 3, 4, "latest"),
        lambda seq, ts: records.Refused(seq, ts, None, "ann", "frame", "stream_not_found", "no", 404),
        lambda seq, ts: records.Refused(
            seq, ts, None, "ann", "x", "invalid_request", "no", 400, id="m1", remember=False
        ),
    ],
    ids=["unknown", "frames-dropped", "refused-without-id", "refused-not-remembered"],
)
def test_a_record_that_means_nothing_to_the_state_moves_only_its_position(build: Any) -> None:
    state = every_kind_of_record().state
    before = copy.deepcopy(state)
    apply(state, build(before.seq + 1, before.ts + 5))
    assert (state.seq, state.ts) == (before.seq + 1, before.ts + 5)
    assert without_position(state) == without_position(before)
    assert ordered(without_position(state)) == ordered(without_position(before))


def test_an_unknown_record_is_told_to_nobody() -> None:
    assert render(SPACE, "e1", FromTheFuture(1, 0, None, "stream-1")) is None


def test_an_empty_log_is_a_new_space() -> None:
    assert fold(SPACE, []) == SpaceState(SPACE)
