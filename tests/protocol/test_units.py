"""Times and sizes as people write them: one parser for space.yaml and the command line."""

from __future__ import annotations

import pytest

from mewstream.protocol.units import parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("30", 30), ("0", 0), ("1.5", 1.5), ("1.5s", 1.5), ("500ms", 0.5), ("15m", 900), ("12h", 43_200)),
        *(("7d", 604_800), ("2w", 1_209_600), (" 7 D ", 604_800)),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("0", 0), ("65536", 65_536), ("10B", 10), ("1k", 1000), ("500MB", 500_000_000), ("10GiB", 10 << 30)),
        *(("1.5MiB", 3 << 19), ("64 kib", 64 << 10), ("2TB", 2 * 10**12), ("9007199254740993", 9_007_199_254_740_993)),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "1e3", "1 day", "7 days", "inf", "nan", "1_000", "٣s", "9" * 400 + "d"]
)
def test_what_is_no_time_is_told_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number of seconds, or one with ms, s, m, h, d or w"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["", "MiB", "-1", "10 parsecs", "10s", "1e9", "9" * 400])
def test_what_is_no_size_is_told_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number of bytes, or one with kB, MB, GB, KiB, MiB or GiB"):
        parse_bytes(text)
