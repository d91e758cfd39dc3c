"""The walks in docs/architecture.md are those of a running gateway."""

from __future__ import annotations

import contextlib
from pathlib import Path

import walks

DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"
#: Functions until a message is on its way to its readers. Readers of the code follow all of them, so a change that
#: needs more of them has to say why. At commit 7ae7385 there were 52 and 158.
AT_MOST = {"frame": 39, "grant": 134}
#: On a busy machine, a timer may fire in most recordings. A document that is stale agrees with none.
ATTEMPTS = 5


def test_a_real_frame_and_a_real_grant_walk_as_documented() -> None:
    """Where the gateway waited is not compared: on a busy machine, it is interrupted anywhere."""
    text = DOCUMENT.read_text(encoding="utf-8")
    documented: dict[str, list[walks.Call]] = {}
    for name, most in AT_MOST.items():
        place = walks.section(name).search(text)
        assert place is not None, name
        documented[name] = walks.calls_in(place[2])
        first_part = place[2].split("Then, after a wait")[0]
        assert 10 < len(walks.calls_in(first_part)) <= most
    found: dict[str, list[walks.Call]] = {}
    for _ in range(ATTEMPTS):
        with contextlib.suppress(walks.Disagreement):
            found = {name: [call for part in walk for call in part] for name, walk in walks.walks().items()}
            if found == documented:
                return
    assert found == documented, "stale: run `make docs`"
