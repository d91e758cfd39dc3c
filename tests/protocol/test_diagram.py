"""The table of transitions: the page that is drawn from it, and that ``decide`` does what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stream_states import document
from test_authorization_model import SPACE, Scene, codes

from mewstream.protocol import commands, kinds, records
from mewstream.protocol.render import render
from mewstream.protocol.times import SECOND, rfc3339
from mewstream.protocol.transitions import (
    BY_EVENT_AND_STATE,
    DELEGATION_ENDED,
    FRAME,
    GRANT_SPENT,
    IDLE_TIMEOUT,
    OWNER_LEFT_CLOSE,
    OWNER_LEFT_TRANSFER,
    REPLACE,
    REUSE,
    START_TIMEOUT,
    TRANSITIONS,
    WHO,
    WRITER_LEFT,
    Status,
    Transition,
    Who,
    states_allowing,
)

PAGE = Path(__file__).parents[2] / "docs" / "stream-states.md"

OWNER, OTHER, STRANGER, CHATTER, MANAGER = "ann", "ben", "cat", "dan", "mia"
ID = "stream-1"
EVENTS = sorted({row.event for row in TRANSITIONS})
#: Requests for a name that is taken. They take the capability to open streams too.
BY_NAME = {REUSE: "reuse", REPLACE: "replace"}
#: Events that happen to a stream there is; the others open one.
ON_A_STREAM = [event for event in EVENTS if WHO[event] not in (Who.CAPABLE, Who.GATEWAY) and event not in BY_NAME]
CAUSED = [row for row in TRANSITIONS if row.who is not Who.GATEWAY]
MANAGED = (Who.OWNER_OR_MANAGER, Who.GRANTER)
BY_GATEWAY = [row for row in TRANSITIONS if row.who is Who.GATEWAY]


def name(row: Transition) -> str:
    return f"{row.source}-{row.event}"


def scene_in(status: Status, **request: Any) -> Scene:
    scene = Scene(OWNER, OTHER, STRANGER, CHATTER, MANAGER, start_timeout=60.0, owner_leave_grace=10.0)
    request["desired_id"] = "hero"
    if status in (Status.READY, Status.LIVE, Status.ENDED):
        scene.send(OWNER, kinds.STREAM_ANNOUNCE if status is Status.READY else kinds.STREAM_REQUEST, request)
        scene.send(CHATTER, kinds.REQUEST_WRITE, {"stream_id": ID})
    if status is Status.ENDED:
        scene.send(OWNER, kinds.STREAM_CLOSE, {"stream_id": ID})
    return scene


def status_of(scene: Scene) -> Status:
    stream = scene.state.streams.get(ID)
    if stream is not None:
        return stream.status
    return Status.ENDED if scene.state.stream_counter else Status.NONE


def cause(scene: Scene, event: str, sender: str) -> list[records.Record]:
    """Send what the event is, as a participant does."""
    if event == FRAME:
        return scene.frame(sender, ID)
    if event in BY_NAME:
        return scene.send(sender, kinds.STREAM_REQUEST, {"desired_id": "hero", "if_exists": BY_NAME[event]})
    if event == kinds.TRANSFER_OWNERSHIP:
        return scene.send(sender, event, {"stream_id": ID, "new_owner": OTHER})
    if event in (kinds.STREAM_REQUEST, kinds.STREAM_ANNOUNCE):
        return scene.send(sender, event, {})
    about = CHATTER if event == kinds.DENY_WRITE else OTHER
    payload = {"stream_id": ID, "participant_id": about, "code": "broken", "message": "it broke"}
    return scene.send(sender, event, payload)


def told(scene: Scene, decided: list[records.Record]) -> list[str]:
    """The kinds of the messages that everyone gets."""
    messages = [render(SPACE, scene.state.epoch, record) for record in decided]
    return [json.loads(message)["kind"] for message in messages if message is not None]


def check_happened(scene: Scene, row: Transition, decided: list[records.Record]) -> None:
    assert codes(decided) == []
    assert status_of(scene) is row.target
    if row.event == FRAME:
        assert [type(record) for record in decided] == [records.Frame]
    else:
        assert row.emits in told(scene, decided)


def test_the_page_is_the_one_the_table_draws() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), "docs/stream-states.md is stale: run `make docs`"


class TestTable:
    @pytest.mark.parametrize("event", EVENTS)
    def test_an_event_has_one_answer_to_who_may(self, event: str) -> None:
        rows = [row for row in TRANSITIONS if row.event == event]
        assert {row.who for row in rows} == {WHO[event]}
        assert len({row.refusal for row in rows}) == 1
        assert (rows[0].refusal == "") == (rows[0].who is Who.GATEWAY)

    def test_no_event_has_two_rows_for_a_state(self) -> None:
        pairs = [(row.event, row.source) for row in TRANSITIONS]
        assert len(pairs) == len(set(pairs))
        assert all(BY_EVENT_AND_STATE[row.event, row.source] is row for row in TRANSITIONS)
        assert all(row.source in states_allowing(row.event) for row in TRANSITIONS)

    def test_nothing_follows_an_end(self) -> None:
        assert all(row.source is not Status.ENDED for row in TRANSITIONS)

    def test_every_row_is_on_the_page(self) -> None:
        page = document()
        for row in TRANSITIONS:
            assert f"| {row.source} | `{row.event}` | {row.who} | {row.target} |" in page


class TestDecideFollowsTheTable:
    @pytest.mark.parametrize("row", CAUSED, ids=name)
    def test_a_row_works_for_whoever_may(self, row: Transition) -> None:
        scene = scene_in(row.source)
        check_happened(scene, row, cause(scene, row.event, STRANGER if row.who is Who.ANYONE else OWNER))

    @pytest.mark.parametrize(
        "row", [row for row in CAUSED if row.who in MANAGED and row.event in ON_A_STREAM], ids=name
    )
    def test_a_manager_may_what_the_table_says_a_manager_may(self, row: Transition) -> None:
        scene = scene_in(row.source)
        check_happened(scene, row, cause(scene, row.event, MANAGER))

    def test_an_authorized_writer_may_write(self) -> None:
        scene = scene_in(Status.LIVE, auto_grant=[OTHER])
        assert [type(record) for record in scene.frame(OTHER)] == [records.Frame]

    @pytest.mark.parametrize("row", [row for row in CAUSED if row.who is not Who.ANYONE], ids=name)
    def test_others_are_refused_with_the_code_of_the_row(self, row: Transition) -> None:
        """Somebody without any right, and a writer, who may no more than write (decision 1)."""
        others = [CHATTER] if row.event not in BY_NAME else []
        if row.who is not Who.CAPABLE:
            others.append(STRANGER)
        if row.who is Who.OWNER or row.who in MANAGED:
            others.append(OTHER)
        if row.who in (Who.OWNER, Who.WRITER) and row.event not in BY_NAME:
            others.append(MANAGER)
        for sender in others:
            scene = scene_in(row.source, auto_grant=[OTHER])
            before = repr(scene.state.streams)
            assert codes(cause(scene, row.event, sender)) == [row.refusal], sender
            assert repr(scene.state.streams) == before

    @pytest.mark.parametrize(
        ("event", "status"),
        [
            (event, status)
            for event in ON_A_STREAM
            for status in (Status.READY, Status.LIVE)
            if (event, status) not in BY_EVENT_AND_STATE
        ],
    )
    def test_what_has_no_row_is_an_invalid_operation(self, event: str, status: Status) -> None:
        scene = scene_in(status)
        before = repr(scene.state.streams)
        assert codes(cause(scene, event, OWNER)) == ["invalid_operation"]
        assert repr(scene.state.streams) == before

    def test_data_before_the_start_is_an_invalid_operation_too(self) -> None:
        """Decision 13, and ``stream/data`` envelopes are frames."""
        scene = scene_in(Status.READY)
        decided = scene.send(OWNER, kinds.STREAM_DATA, {"stream_id": ID, "sequence": 0, "content": 1})
        assert codes(decided) == ["invalid_operation"]

    @pytest.mark.parametrize("event", ON_A_STREAM)
    @pytest.mark.parametrize("status", [Status.NONE, Status.ENDED])
    def test_a_stream_that_is_not_there_is_not_found(self, event: str, status: Status) -> None:
        scene = scene_in(status)
        assert codes(cause(scene, event, OWNER)) == ["stream_not_found"]
        assert status_of(scene) is status

    def test_the_right_is_checked_before_the_state(self) -> None:
        assert codes(cause(scene_in(Status.LIVE), kinds.STREAM_START, STRANGER)) == ["unauthorized"]
        assert codes(cause(scene_in(Status.READY), FRAME, STRANGER)) == ["unauthorized_stream_write"]

    @pytest.mark.parametrize("kind", sorted(kinds.RESERVED))
    def test_what_the_gateway_tells_nobody_else_may_say(self, kind: str) -> None:
        scene = scene_in(Status.LIVE)
        assert codes(scene.send(OWNER, kind, {"stream_id": ID})) == ["reserved_kind"]


class TestWhatTheGatewayDoes:
    """The rows that time and lost connections cause."""

    @pytest.mark.parametrize("row", BY_GATEWAY, ids=name)
    def test_a_row_of_the_gateway_works(self, row: Transition) -> None:
        policy = {OWNER_LEFT_TRANSFER: "transfer", OWNER_LEFT_CLOSE: "close"}.get(row.event, "keep")
        scene = scene_in(
            row.source, auto_grant=[OTHER], on_owner_leave=policy, idle_timeout=10 if row.event == IDLE_TIMEOUT else 0
        )
        wait = {START_TIMEOUT: 60, GRANT_SPENT: 1}.get(row.event, 10)
        if row.event == DELEGATION_ENDED:
            on_other = {"stream_id": ID, "participant_id": OTHER}
            scene.send(OWNER, kinds.GRANT_WRITE, {**on_other, "delegate": {"depth": 1}})
            scene.send(OTHER, kinds.GRANT_WRITE, {**on_other, "participant_id": STRANGER})
            decided = scene.send(OWNER, kinds.REVOKE_WRITE, on_other)
            assert (decided[-1].participant, decided[-1].reason) == (STRANGER, "delegation_ended")
            check_happened(scene, row, decided[-1:])
            return
        if row.event == WRITER_LEFT:
            check_happened(scene, row, scene.do(commands.Disconnect(OTHER, scene.sessions[OTHER])))
            return
        if row.event == GRANT_SPENT:
            until = {"expires_at": rfc3339(scene.now + SECOND)}
            scene.send(OWNER, kinds.GRANT_WRITE, {"stream_id": ID, "participant_id": OTHER, "conditions": until})
        elif row.event not in (START_TIMEOUT, IDLE_TIMEOUT):
            scene.do(commands.Disconnect(OWNER, scene.sessions[OWNER]))
        scene.now += wait * SECOND - 1
        assert scene.do(commands.Tick()) == []
        scene.now += 1
        check_happened(scene, row, scene.do(commands.Tick()))

    @pytest.mark.parametrize("status", [Status.READY, Status.LIVE])
    def test_a_stream_that_nobody_can_inherit_is_closed(self, status: Status) -> None:
        """Decision 7: ``transfer`` to the longest-standing connected writer, else close."""
        scene = scene_in(status, auto_grant=[OTHER], on_owner_leave="transfer")
        for who in (OTHER, OWNER):
            scene.do(commands.Disconnect(who, scene.sessions[who]))
        scene.now += 10 * SECOND
        assert told(scene, scene.do(commands.Tick())) == [kinds.STREAM_CLOSE]
        assert status_of(scene) is Status.ENDED

    @pytest.mark.parametrize("status", [Status.READY, Status.LIVE])
    def test_a_kept_stream_waits_for_its_owner(self, status: Status) -> None:
        scene = scene_in(status)
        scene.do(commands.Disconnect(OWNER, scene.sessions[OWNER]))
        assert scene.state.welcome(OTHER)["active_streams"][0]["owner_connected"] is False
        if status is Status.LIVE:
            assert scene.state.next_deadline() is None
        scene.do(commands.Join(OWNER, "websocket"))
        assert scene.state.welcome(OTHER)["active_streams"][0]["owner_connected"] is True
        assert codes(cause(scene, kinds.STREAM_CLOSE, OWNER)) == []
