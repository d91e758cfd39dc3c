"""One frame that is wrong in a log that is otherwise sound: it is found, with its rule and its seq, however it is cut.

Most are in ``tests/pipeline/faults.py``, where the whole audit is looked at.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from folding import fold_all
from journals import Play, frame_fields

from mewstream.history.frame_rules import RULES
from mewstream.protocol import kinds
from mewstream.protocol.records import Frame
from mewstream.protocol.times import SECOND, rfc3339


def play_of() -> Play:
    play = Play("faulty", begin=True)
    play.open("ann")
    play.frame("ann", "stream-1")
    return play


def plant(play: Play, sender: str = "ann", stream: str = "stream-1", **fields: Any) -> int:
    return play.plant(Frame, **frame_fields(play, stream, sender, **fields))


def change_last(play: Play, **fields: Any) -> int:
    play.records[-1] = msgspec.structs.replace(play.records[-1], **fields)
    return play.records[-1].seq


def assert_found(play: Play, seq: int, *rules: str) -> None:
    assert set(rules) <= RULES.keys()
    for cut in range(len(play.records)):
        found = fold_all(play, cuts=[cut] if cut else [])
        assert found.findings == [(seq, rule) for rule in rules], cut
        assert found.sums["frames_judged"] == found.sums["frames"]


@pytest.mark.parametrize("recipients", [0, 1, 5])
def test_delivered_to_nobody_or_to_others_than_were_connected(recipients: int) -> None:
    play = play_of()
    play.frame("ann", "stream-1")
    assert_found(play, change_last(play, recipients=recipients), "frame_readers")


def test_delivered_to_more_than_the_readers() -> None:
    play = play_of()
    stream = play.open("ann", target=["bob", "cy"])
    play.frame("ann", stream)
    assert_found(play, change_last(play, recipients=3), "frame_readers")


def test_a_suspended_reader_gets_nothing() -> None:
    play = play_of()
    stream = play.open("ann", target=["bob", "cy"])
    play.suspend("cy")
    play.frame("ann", stream)
    assert fold_all(play).findings == []
    assert_found(play, change_last(play, recipients=2), "frame_readers")


def test_a_number_that_steps_back() -> None:
    play = play_of()
    for number in (3, 4):
        play.data("ann", "stream-1", number, sequence=number)
    assert_found(play, change_last(play, sequence=3), "frame_sequence")


def test_numbers_may_begin_again_in_another_session() -> None:
    play = play_of()
    play.data("ann", "stream-1", 4, sequence=4)
    play.leave("ann")
    play.join("ann")
    play.data("ann", "stream-1", 0, sequence=0)
    assert fold_all(play).findings == []


def test_time_that_runs_back_over_an_expiry() -> None:
    play = play_of()
    expiry = rfc3339(play.now + 5 * SECOND)
    play.send("ann", kinds.GRANT_WRITE, stream_id="stream-1", participant_id="bob", conditions={"expires_at": expiry})
    play.now += 6 * SECOND
    plant(play, "ann")
    seq = plant(play, "bob")
    change_last(play, ts=play.now - 3 * SECOND)
    assert_found(play, seq, "frame_clock", "frame_expired")


def test_a_writer_who_is_not_here_and_does_not_own_the_stream() -> None:
    """By ``stream/data`` as well: a right that the log has not ended is no presence."""
    play = play_of()
    play.send("ann", kinds.GRANT_WRITE, stream_id="stream-1", participant_id="bob")
    before = len(play.records)
    play.leave("bob")
    left = [each for each in play.records[before:] if type(each).__name__ == "Left"]
    play.records[before:] = [msgspec.structs.replace(each, seq=before + 1 + at) for at, each in enumerate(left)]
    play.state.seq = len(play.records)
    seq = plant(play, "bob", kind=kinds.STREAM_DATA, sequence=1)
    found = fold_all(play)
    assert (seq, "frame_absent") in found.findings


def test_an_owner_who_is_not_here_may_send_data() -> None:
    play = play_of()
    play.leave("ann")
    play.data("ann", "stream-1", 1, sequence=1)
    assert fold_all(play).findings == []
