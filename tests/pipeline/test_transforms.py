"""What each table says of hand-made stories: one space for each, all in one warehouse, cut into several batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from journals import POSITION_FORMAT, Play, frame_fields, write_journal
from pyspark.sql import SparkSession
from running import Found, bring_up_to_date, rows

from mewstream.history.durations import WINDOW_SECONDS
from mewstream.protocol import commands, kinds
from mewstream.protocol.records import Frame, FramesDropped, Joined, StreamOpened
from mewstream.protocol.times import SECOND, rfc3339

STORIES: dict[str, Callable[[Play], None]] = {}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def story(tell: Callable[[Play], None]) -> Callable[[Play], None]:
    STORIES[tell.__name__] = tell
    return tell


def at(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


class Told:
    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.plays: dict[str, Play] = {}
        for name, tell in STORIES.items():
            self.plays[name] = Play(name, begin=True)
            tell(self.plays[name])
        data = write_journal(path / "data", *self.plays.values(), per_batch=2)
        self.warehouse = path / "warehouse"
        assert bring_up_to_date(spark, data, self.warehouse, max_records=90).batches > 3
        self._rows: dict[str, list[Found]] = {}

    def __call__(self, table: str, space: str, **values: Any) -> list[Found]:
        """Rows of a table of one space, by its key."""
        if table not in self._rows:
            self._rows[table] = rows(self.warehouse, table)
        return [
            row
            for row in self._rows[table]
            if row.space == space and all(row[name] == value for name, value in values.items())
        ]


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return Told(spark, tmp_path_factory.mktemp("stories"))


def seqs(play: Play, record: type[Any], **values: Any) -> list[int]:
    return [
        each.seq
        for each in play.records
        if type(each) is record and all(getattr(each, name) == value for name, value in values.items())
    ]


# -- rights ---------------------------------------------------------------------------------------


@story
def rights(play: Play) -> None:
    play.open("ann", auto_grant=["bob"])
    play.frame("bob", "stream-1")
    _grant(play, "cy", reason="a turn", conditions={"max_frames": 2})
    _grant(play, "cy", conditions={"expires_at": rfc3339(play.now + 5 * SECOND)})
    play.frame("cy", "stream-1")
    play.wait(10)
    _grant(play, "dee", conditions={"max_frames": 1})
    play.frame("dee", "stream-1")
    play.send("ann", kinds.REVOKE_WRITE, stream_id="stream-1", participant_id="bob", reason="enough")
    _grant(play, "dee")
    play.leave("dee")
    play.send("ann", kinds.TRANSFER_OWNERSHIP, stream_id="stream-1", new_owner="cy", reason="yours")
    play.send("cy", kinds.STREAM_CLOSE, stream_id="stream-1", reason="over")


def _grant(play: Play, who: str, **payload: Any) -> None:
    play.send("ann", kinds.GRANT_WRITE, stream_id="stream-1", participant_id=who, **payload)


class TestAuthorizations:
    def of(self, told: Told, who: str, right: str = "write") -> list[tuple[Any, ...]]:
        return [
            (row.given_how, row.ended_how, row.frames_used)
            for row in told("authorizations", "rights", participant=who, right=right)
        ]

    def test_each_way_to_get_and_to_lose_a_right(self, told: Told) -> None:
        assert self.of(told, "ann") == [("open", "transferred", 0)]
        assert self.of(told, "bob") == [("auto_grant", "revoked", 1)]
        assert self.of(told, "dee") == [("grant", "max_frames", 1), ("grant", "left", 0)]
        assert self.of(told, "cy") == [
            ("grant", "replaced", 0),
            ("grant", "expired", 1),
            ("transfer", "stream_ended", 0),
        ]
        assert self.of(told, "ann", "own") == [("open", "transferred", None)]
        assert self.of(told, "cy", "own") == [("transfer", "stream_ended", None)]

    def test_by_whom_and_why(self, told: Told) -> None:
        [bob] = told("authorizations", "rights", participant="bob", right="write")
        assert (bob.granted_by, bob.reason, bob.ended_by, bob.end_reason) == ("ann", "auto_grant", "ann", "enough")
        first, second, third = told("authorizations", "rights", participant="cy", right="write")
        assert (first.granted_by, first.reason, first.max_frames, first.expires_at) == ("ann", "a turn", 2, None)
        assert second.max_frames is None
        assert second.expires_at is not None
        assert second.since_seq == first.from_seq
        assert (second.ended_by, second.end_reason) == (kinds.GATEWAY, "expired")
        assert (third.granted_by, third.reason, third.ended_by, third.end_reason) == ("ann", "yours", "cy", "over")
        assert third.since_seq == third.from_seq

    def test_everyone_reads_where_there_is_no_set(self, told: Told) -> None:
        [row] = told("authorizations", "rights", right="read")
        assert (row.participant, row.given_how, row.ended_how) == (None, "open", "stream_ended")


@story
def readers(play: Play) -> None:
    play.open("ann", target=["bob"])
    play.send("ann", kinds.GRANT_READ, stream_id="stream-1", participant_id="cy")
    play.send("ann", kinds.REVOKE_READ, stream_id="stream-1", participant_id="bob", reason="no more")
    play.open("ann")
    play.send("ann", kinds.REVOKE_READ, stream_id="stream-2", participant_id="dee")


class TestReaders:
    def test_a_set_changes(self, told: Told) -> None:
        bob, cy = told("authorizations", "readers", stream_id="stream-1", right="read")
        assert (bob.participant, bob.given_how, bob.ended_how, bob.end_reason) == ("bob", "open", "revoked", "no more")
        assert (cy.participant, cy.given_how, cy.until_seq) == ("cy", "grant", None)

    def test_everyone_becomes_a_set(self, told: Told) -> None:
        *others, everyone = told("authorizations", "readers", stream_id="stream-2", right="read")
        assert (everyone.participant, everyone.ended_how) == (None, "reader_set")
        assert [(row.participant, row.given_how) for row in others] == [
            ("ann", "reader_set"),
            ("bob", "reader_set"),
            ("cy", "reader_set"),
        ]


@story
def vanished(play: Play) -> None:
    """A space that was erased and began anew: the same names again, and no record of any end."""
    play.open("ann")
    play.frame("ann", "stream-1", b"old")
    policy = play.state.streams["stream-1"].policy
    play.plant(Joined, participant="ann", capabilities=[], transport="websocket")
    again = {"status": "live", "owner": "bob", "request_id": "r", "request": {}, "policy": policy}
    play.plant(StreamOpened, stream_id="stream-1", authorized_writers=["bob"], **again)
    play.plant(Frame, **frame_fields(play, "stream-1", "bob", b"new!", stream_seq=1))


class TestVanished:
    def test_streams_and_rights(self, told: Told) -> None:
        old, new = told("streams", "vanished")
        assert (old.status, old.ended_seq, old.frames, old.bytes) == ("vanished", new.ready_seq, 1, 3)
        assert (new.status, new.owner, new.frames, new.bytes) == ("live", "bob", 1, 4)
        ends = {row.participant: row.ended_how for row in told("authorizations", "vanished", right="write")}
        assert ends == {"ann": "vanished", "bob": None}

    def test_sessions(self, told: Told) -> None:
        old, new = told("sessions", "vanished", participant="ann")
        assert (old.ended_how, old.left_seq) == ("vanished", new.joined_seq)
        assert new.left_seq is None


# -- who was here ---------------------------------------------------------------------------------


@story
def presence(play: Play) -> None:
    play.suspend("ann", "drain")
    play.wait(1)
    play.join("ann")
    play.join("ann")
    play.suspend("bob")
    play.wait(60)
    play.send("ann", kinds.KICK, participant_id="cy")
    play.join("cy")


class TestSessions:
    def test_a_lost_and_a_replaced_connection_are_the_same_session(self, told: Told) -> None:
        [row] = told("sessions", "presence", participant="ann")
        assert (row.connections, row.left_seq, row.transport) == (3, None, "websocket")
        [away] = row.suspensions
        assert away.reason == "drain"
        assert away.resumed_ts - away.ts >= timedelta(seconds=1)
        assert json.loads(row.capabilities) == [{"kind": "*"}]

    def test_nobody_came_back(self, told: Told) -> None:
        [row] = told("sessions", "presence", participant="bob")
        assert row.ended_how == "disconnected"
        assert row.left_ts >= row.suspensions[0].until
        assert row.suspensions[0].resumed_seq is None

    def test_who_was_kicked_may_come_again(self, told: Told) -> None:
        first, second = told("sessions", "presence", participant="cy")
        assert (first.ended_how, second.left_seq) == ("kicked", None)

    def test_the_summary_counts_them(self, told: Told) -> None:
        [row] = told("space_summary", "presence")
        assert (row.participants, row.present, row.joins) == (4, 3, 5)


# -- streams --------------------------------------------------------------------------------------


@story
def lifecycles(play: Play) -> None:
    play.open("ann", description="d", content_type="text/plain", direction="upload", desired_id="main")
    play.announce("bob", formats=[POSITION_FORMAT])
    play.send("bob", kinds.STREAM_COMPLETE, stream_id="stream-2", reason="done")
    play.announce("bob", start=False)
    play.send("bob", kinds.STREAM_ERROR, stream_id="stream-3", code="broken", message="it broke")
    play.send("ann", kinds.TRANSFER_OWNERSHIP, stream_id="stream-1", new_owner="cy", reason="yours")
    play.send("cy", kinds.TRANSFER_OWNERSHIP, stream_id="stream-1", new_owner="ann")


class TestStreams:
    def test_a_requested_stream_is_live_at_once(self, told: Told) -> None:
        [row] = told("streams", "lifecycles", stream_id="stream-1")
        assert (row.status, row.announced, row.alias) == ("live", False, "main")
        assert (row.description, row.content_type, row.direction) == ("d", "text/plain", "upload")
        assert row.namespace == "lifecycles/stream-1"
        assert row.intent_seq + 1 == row.ready_seq == row.live_seq
        assert json.loads(row.metadata)["desired_id"] == "main"
        assert json.loads(row.policy)["on_owner_leave"] == "keep"

    def test_owners_in_their_order(self, told: Told) -> None:
        [row] = told("streams", "lifecycles", stream_id="stream-1")
        assert [(each.owner, each.by, each.reason) for each in row.owners] == [
            ("ann", "ann", None),
            ("cy", "ann", "yours"),
            ("ann", "cy", None),
        ]
        assert row.owner == "ann"

    def test_an_announced_stream(self, told: Told) -> None:
        [row] = told("streams", "lifecycles", stream_id="stream-2")
        assert (row.status, row.announced, row.end_reason, row.ended_by) == ("completed", True, "done", "bob")
        assert row.intent_seq < row.ready_seq < row.live_seq < row.ended_seq
        [format] = row.formats
        assert (format.format_id, format.mime_type, len(format.schema_hash)) == ("position", "application/json", 64)

    def test_a_failed_stream(self, told: Told) -> None:
        [row] = told("streams", "lifecycles", stream_id="stream-3")
        assert (row.status, row.live_seq, row.end_code, row.end_message) == ("failed", None, "broken", "it broke")

    def test_formats(self, told: Told) -> None:
        [row] = told("formats", "lifecycles")
        assert (row.stream_id, row.format_id) == ("stream-2", "position")
        assert json.loads(row.schema) == POSITION_FORMAT["schema"]


# -- envelopes, refusals, frames ------------------------------------------------------------------


@story
def messages(play: Play) -> None:
    extra = {"to": ["bob", "cy"], "correlation_id": ["x"], "context": "here", "ts": "2023-11-14T22:13:00Z"}
    play.send("ann", "chat", text="hi", envelope=extra)
    play.send("ann", "chat", text="ho")
    play.send("bob", "stream/close", stream_id="stream-9")
    play.do(commands.Refuse("bob", "", "rate_limit", "too much", 429, {"limit": "rate"}, None, None, b"", 7))


class TestMessages:
    def test_envelopes(self, told: Told) -> None:
        first, second = told("envelopes", "messages")
        assert (first.kind, first.sender, first.addressed, first.correlation_id) == (
            "chat",
            "ann",
            ["bob", "cy"],
            ["x"],
        )
        assert (first.context, json.loads(first.payload)) == ("here", {"text": "hi"})
        assert first.sent_at == datetime(2023, 11, 14, 22, 13, tzinfo=UTC)
        assert (second.addressed, second.sent_at) == (None, None)
        assert second.id.startswith("ann-")

    def test_refusals(self, told: Told) -> None:
        closed, flood = told("refusals", "messages")
        assert (closed.sender, closed.kind, closed.code) == ("bob", "stream/close", "stream_not_found")
        assert (closed.stream_id, closed.http_status, closed["count"]) == ("stream-9", 404, 1)
        assert "stream-9" in closed.message
        assert (flood.kind, flood["count"], flood.http_status) == (None, 7, 429)
        [summary] = told("space_summary", "messages")
        assert (summary.envelopes, summary.refusals) == (2, 8)


SENT = {
    b'{"ts":"2023-11-14T22:13:19.5Z"}': datetime(2023, 11, 14, 22, 13, 19, 500_000, tzinfo=UTC),
    b'{"timestamp":"2023-11-14T23:13:19+01:00","x":1}': datetime(2023, 11, 14, 22, 13, 19, tzinfo=UTC),
    b' {"sent_at": 1699999999}': datetime(2023, 11, 14, 22, 13, 19, tzinfo=UTC),
    b'{"ts":1699999999250}': datetime(2023, 11, 14, 22, 13, 19, 250_000, tzinfo=UTC),
    b'{"ts":1699999999.25}': datetime(2023, 11, 14, 22, 13, 19, 250_000, tzinfo=UTC),
    b'{"ts":7,"sent_at":1699999999}': datetime(2023, 11, 14, 22, 13, 19, tzinfo=UTC),
    b'{"ts":7}': None,
    b'{"ts":"soon"}': None,
    b'{"ts":"2023-11-14"}': None,
    b'{"nested":{"ts":1699999999}}': None,
    b'["ts",1699999999]': None,
    b'{"ts":1699999999': None,
    b"\xff\xfe": None,
}


@story
def latency(play: Play) -> None:
    play.open("ann")
    for data in SENT:
        play.frame("ann", "stream-1", data, opcode=1)
    play.data("ann", "stream-1", {"sent_at": "2023-11-14T22:13:19Z"})
    play.data("ann", "stream-1", "plain")
    play.send(
        "ann",
        kinds.STREAM_DATA,
        stream_id="stream-1",
        sequence=9,
        content=1,
        envelope={"ts": "2023-11-14T22:13:18Z"},
    )


class TestFrames:
    def test_when_it_was_sent(self, told: Told) -> None:
        found = told("frames", "latency")
        assert [row.sent_at for row in found[: len(SENT)]] == list(SENT.values())
        assert [row.sent_at for row in found[len(SENT) :]] == [
            datetime(2023, 11, 14, 22, 13, 19, tzinfo=UTC),
            None,
            datetime(2023, 11, 14, 22, 13, 18, tzinfo=UTC),
        ]

    def test_latency(self, told: Told) -> None:
        for row in told("frames", "latency"):
            expected = None if row.sent_at is None else (row.ts - row.sent_at) / timedelta(milliseconds=1)
            assert row.latency_ms == expected

    def test_sizes_and_numbers(self, told: Told) -> None:
        found = told("frames", "latency")
        frames = [each for each in told.plays["latency"].records if isinstance(each, Frame)]
        for row, frame in zip(found, frames, strict=True):
            assert (row.seq, row.size, row.stream_seq, row.opcode) == (
                frame.seq,
                len(frame.data),
                frame.stream_seq,
                frame.opcode,
            )
            assert (row.kind, row.sequence, row.recipients) == (frame.kind, frame.sequence, frame.recipients)


# -- gaps -----------------------------------------------------------------------------------------


@story
def gaps(play: Play) -> None:
    play.open("ann")
    for number in (0, 1, 4, 5, 8):
        play.data("ann", "stream-1", number, sequence=number)
    play.leave("ann")
    play.join("ann")
    for number in (2, 3, 7, 100):
        play.data("ann", "stream-1", number, sequence=number)
    play.open("bob")
    for number in (0, 5):
        play.data("bob", "stream-2", number, sequence=number)
    play.send("bob", kinds.STREAM_CLOSE, stream_id="stream-2")
    play.open("cy")
    play.data("cy", "stream-3", 0, sequence=10)
    play.join("cy", continues=True)
    play.data("cy", "stream-3", 0, sequence=12)


class TestGaps:
    def test_healed(self, told: Told) -> None:
        gap = told("sequence_gaps", "gaps", stream_id="stream-1")[0]
        assert (gap.after_sequence, gap.sequence, gap.missing, gap.still_missing) == (1, 4, 2, 0)
        assert (gap.healed, gap.ranges) == (True, [])
        healing = [row.seq for row in told("frames", "gaps", stream_id="stream-1") if row.sequence == 3]
        assert [gap.healed_seq] == healing

    def test_in_part(self, told: Told) -> None:
        gap = told("sequence_gaps", "gaps", stream_id="stream-1")[1]
        assert (gap.after_sequence, gap.sequence, gap.missing, gap.still_missing) == (5, 8, 2, 1)
        assert [(each.first, each.last) for each in gap.ranges] == [(6, 6)]
        assert (gap.healed, gap.healed_seq) == (False, None)

    def test_counting_anew_is_no_gap_but_jumps_after_it_are(self, told: Told) -> None:
        assert [row.after_sequence for row in told("sequence_gaps", "gaps", stream_id="stream-1")] == [1, 5, 3, 7]

    def test_an_ended_stream(self, told: Told) -> None:
        [gap] = told("sequence_gaps", "gaps", stream_id="stream-2")
        assert (gap.sender, gap.missing, gap.healed) == ("bob", 4, False)

    def test_who_goes_on_counting_after_coming_back(self, told: Told) -> None:
        [gap] = told("sequence_gaps", "gaps", stream_id="stream-3")
        assert (gap.after_sequence, gap.missing) == (10, 1)


# -- handoffs -------------------------------------------------------------------------------------


@story
def handoffs(play: Play) -> None:
    play.open("ann")
    play.frame("ann", "stream-1")
    _grant(play, "bob", reason="a turn")
    play.wait(2)
    play.frame("bob", "stream-1")
    _grant(play, "cy")
    play.frame("ann", "stream-1")
    _grant(play, "cy", conditions={"max_frames": 5})
    play.wait(1)
    play.frame("cy", "stream-1")
    _grant(play, "dee")
    play.send("ann", kinds.REVOKE_WRITE, stream_id="stream-1", participant_id="dee")
    play.send("ann", kinds.TRANSFER_OWNERSHIP, stream_id="stream-1", new_owner="bob")
    play.send("bob", kinds.TRANSFER_OWNERSHIP, stream_id="stream-1", new_owner="bob")
    play.frame("bob", "stream-1")
    play.send("bob", kinds.GRANT_WRITE, stream_id="stream-1", participant_id="dee")


class TestHandoffs:
    def test_each_once(self, told: Told) -> None:
        found = [(row.how, row.by, row.writer, row.outcome) for row in told("handoffs", "handoffs")]
        assert found == [
            ("grant", "ann", "bob", "written"),
            ("grant", "ann", "cy", "written"),
            ("grant", "ann", "dee", "unused"),
            ("transfer", "ann", "bob", "written"),
            ("grant", "bob", "dee", "pending"),
        ]

    def test_how_long_it_took(self, told: Told) -> None:
        bob, cy, dee, transfer, _ = told("handoffs", "handoffs")
        frames = {row.seq: row for row in told("frames", "handoffs")}
        assert (bob.reason, frames[bob.first_frame_seq].sender) == ("a turn", "bob")
        assert bob.waited_ms == 2001.0
        assert bob.silent_ms == 2002.0
        assert (cy.waited_ms, cy.silent_ms) == (1003.0, 1002.0)
        assert (dee.first_frame_seq, dee.waited_ms, dee.silent_ms) == (None, None, None)
        assert transfer.previous_owner == "ann"
        assert frames[transfer.first_frame_seq].sender == "bob"


# -- metrics --------------------------------------------------------------------------------------


@story
def metrics(play: Play) -> None:
    play.open("ann")
    _grant(play, "bob")
    for step in range(120):
        play.frame("ann" if step % 3 else "bob", "stream-1", b"x" * (step % 7))
        play.wait(play.random.random() * 0.6)
        if step % 50 == 49:
            play.do(commands.ReportDrop("dee", "stream-1", step, 1, play.state.seq, "latest"))
    play.wait(25)
    play.frame("ann", "stream-1")


class TestMetrics:
    def test_against_the_frames(self, told: Told) -> None:
        frames = [each for each in told.plays["metrics"].records if isinstance(each, Frame)]
        waits = {later.seq: (later.ts - sooner.ts) / 1000 for sooner, later in pairwise(frames)}
        windows: dict[int, list[Frame]] = {}
        for frame in frames:
            windows.setdefault(frame.ts // (WINDOW_SECONDS * SECOND), []).append(frame)
        found = told("stream_metrics", "metrics")
        assert len(found) == len(windows) > 3
        for row, (number, inside) in zip(found, sorted(windows.items()), strict=True):
            assert row.window_start == at(number * WINDOW_SECONDS * SECOND)
            assert row.window_end == row.window_start + timedelta(seconds=WINDOW_SECONDS)
            assert (row.frames, row.bytes) == (len(inside), sum(len(each.data) for each in inside))
            assert row.rate == pytest.approx(len(inside) / WINDOW_SECONDS)
            assert row.writers == len({each.sender for each in inside})
            here = sorted(waits[each.seq] for each in inside if each.seq in waits)
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
                assert row[f"interarrival_{name}_ms"] == pytest.approx(percentile(here, share))

    def test_drops(self, told: Told) -> None:
        dropped = [each for each in told.plays["metrics"].records if isinstance(each, FramesDropped)]
        assert len(dropped) == 2
        by_window = {row.window_start: row.drops for row in told("stream_metrics", "metrics") if row.drops}
        for each in dropped:
            seconds = WINDOW_SECONDS * SECOND
            assert by_window[at(each.ts // seconds * seconds)] >= each.count
        assert sum(by_window.values()) == sum(each.count for each in dropped)


def percentile(values: list[float], share: float) -> float:
    place = (len(values) - 1) * share
    low = values[int(place)]
    return low + (values[min(int(place) + 1, len(values) - 1)] - low) * (place - int(place))
