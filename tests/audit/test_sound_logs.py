"""A log that the core has written has no findings, however it is cut, and nearly all of it is judged."""

from __future__ import annotations

import itertools

import pytest
from logs import lively, rows, said_of, small

from mewstream.audit import ControlRecord
from mewstream.audit.auditor import SpaceAuditor
from mewstream.journal.erase import ERASED


@pytest.mark.parametrize("seed", range(40))
def test_a_lively_log_has_no_findings(seed: int) -> None:
    said = said_of(lively(400, seed), seed=seed)
    assert said.findings == []
    assert said.judged.total() > 8 * said.unjudged.total()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40, 540))
def test_five_hundred_lively_logs_have_no_findings(seed: int) -> None:
    assert said_of(lively(400 + seed % 7 * 100, seed), seed=seed).findings == []


@pytest.mark.parametrize("seed", range(12))
def test_a_log_that_begins_in_the_middle_has_no_findings(seed: int) -> None:
    life = lively(500, seed)
    pruned = [each for each in rows(life) if each.seq > 150]
    said = said_of(life, records=pruned, seed=seed)
    assert said.findings == []
    assert said.unjudged["change", "the log begins in the middle"] > 0
    assert said.judged.total() > 0


@pytest.mark.parametrize("seed", range(6))
def test_an_erased_log_is_not_judged(seed: int) -> None:
    life = lively(300, seed)
    erased = [
        each._replace(record=ERASED, kind=None, sender=None, participant=None, stream_id=None, detail=None, data=None)
        for each in rows(life)
    ]
    said = said_of(life, records=erased, seed=seed)
    assert said.findings == []
    assert said.judged.total() == 0
    assert said.unjudged.total() == len(erased)


def test_all_ways_of_cutting_a_log_say_the_same() -> None:
    life = lively(400, 7)
    whole = said_of(life)
    for seed in range(5):
        cut = said_of(life, seed=seed)
        assert (cut.findings, cut.judged, cut.unjudged) == (whole.findings, whole.judged, whole.unjudged)


def test_records_of_a_newer_version_are_counted() -> None:
    play = small()
    seq = play.plant_unknown("moved", where="north")
    assert said_of(play).findings == []
    assert said_of(play).unjudged["record", "the record is not known"] == 1
    assert seq == play.records[-1].seq


@pytest.mark.parametrize("name", ["joined", "stream-opened", "envelope", "refused", "write-granted", "clock-jumped"])
@pytest.mark.parametrize("detail", [None, "", "[]", "{}", '{"participant": 7, "stream_id": [], "by": {}}', "\ud800"])
def test_nothing_that_a_record_contains_stops_it(name: str, detail: str | None) -> None:
    play = small()
    broken = ControlRecord(99, "e", play.now, name, None, "ann", None, None, "accepted", None, detail, b"{")
    said = said_of(play, records=[*rows(play), broken])
    assert {each.seq for each in said.findings} == {99}


def test_a_space_is_over_when_nobody_is_there_and_nothing_open() -> None:
    play = small()
    play.send("ann", "stream/close", stream_id="stream-1")
    auditor = SpaceAuditor(play.space)
    states = []
    for each in itertools.chain(rows(play)):
        auditor.see(each)
        states.append(auditor.is_over)
    assert not any(states[1:])
    for each in play.people:
        play.leave(each)
    auditor = SpaceAuditor(play.space)
    for each in rows(play):
        auditor.see(each)
    assert auditor.is_over
    assert auditor.findings == []
