"""Times and sizes as people write them, ``30s``, ``7d``, ``10MiB``: one syntax for space.yaml and the command line.

A plain number is seconds, or bytes. A mistake is a :class:`ValueError` that says the form.
"""

from __future__ import annotations

import re

TIME_FORM = "a number of seconds, or one with ms, s, m, h, d or w, such as 30, 500ms, 15m or 7d"
SIZE_FORM = "a number of bytes, or one with kB, MB, GB, KiB, MiB or GiB, such as 65536, 64KiB or 10GB"

# More digits than this are a mistake, and would not fit into a float.
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([a-z]*)")
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
_BYTES = {"": 1, "b": 1} | {
    unit: factor**power
    for power, letter in enumerate("kmgt", 1)
    for unit, factor in ((letter, 1000), (f"{letter}b", 1000), (f"{letter}ib", 1024))
}


def parse_seconds(text: str) -> float:
    """A time span in seconds: ``90``, ``1.5s``, ``15m``, ``12h``, ``7d``, ``2w``."""
    found = _QUANTITY.fullmatch(text.strip().lower())
    if found is None or found[2] not in _SECONDS:
        raise ValueError(f"expected {TIME_FORM}")
    return float(found[1]) * _SECONDS[found[2]]


def parse_bytes(text: str) -> int:
    """A size in bytes: ``10GB`` are 10^10, ``10GiB`` are 10 * 2^30."""
    found = _QUANTITY.fullmatch(text.strip().lower())
    if found is None or found[2] not in _BYTES:
        raise ValueError(f"expected {SIZE_FORM}")
    # Whole numbers stay exact, however large.
    return int(found[1]) * _BYTES[found[2]] if found[1].isdigit() else int(float(found[1]) * _BYTES[found[2]])
