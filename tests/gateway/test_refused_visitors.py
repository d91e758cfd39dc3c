"""Lines about visitors that were refused: bounded in number, and without anything that a visitor could smuggle in."""

from __future__ import annotations

import pytest

from mewstream.gateway.bounded_log import BURST
from mewstream.gateway.refused_visitors import RefusedVisitors


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def visitors(clock: Clock, caplog: pytest.LogCaptureFixture) -> RefusedVisitors:
    caplog.set_level("INFO", "mewstream.gateway")
    return RefusedVisitors(clock)


def test_a_flood_is_few_lines_and_a_count(
    visitors: RefusedVisitors, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1000):
        visitors.token("192.0.2.1", space="demo", participant=None)
    assert len(caplog.messages) == BURST
    clock.now += 1
    visitors.page("https://evil.example", "192.0.2.1")
    assert caplog.messages[BURST:] == [
        "refused a page of https://evil.example, from 192.0.2.1: see gateway.allowed_origins"
        f" ({1000 - BURST} more were refused and not logged)"
    ]
    clock.now += 3600
    for _ in range(1000):
        visitors.page("https://evil.example", "")
    assert len(caplog.messages) == 2 * BURST + 1


@pytest.mark.parametrize("origin", ["x\n2026 CRITICAL everything is lost", "x\r\x1b[31m", "\u202ereversed", "x" * 5000])
def test_an_origin_stays_one_short_line(
    visitors: RefusedVisitors, caplog: pytest.LogCaptureFixture, origin: str
) -> None:
    visitors.page(origin, "192.0.2.1")
    (line,) = caplog.messages
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 200


def test_what_is_known_is_said(visitors: RefusedVisitors, caplog: pytest.LogCaptureFixture) -> None:
    visitors.token("192.0.2.1", space="demo", participant="alice")
    visitors.token("", space=None, participant=None)
    why = "it is unknown, malformed, or belongs to another"
    assert caplog.messages == [
        f"refused a token of alice in demo, from 192.0.2.1: {why}",
        f"refused a token: {why}",
    ]
