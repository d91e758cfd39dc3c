"""The walks in docs/architecture.md are those of a running gateway."""

from __future__ import annotations

import contextlib
from pathlib import Path

import walks

DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"
#: Functions until a message is on its way to its readers. Readers of the code follow all of them, so a change that
#: needs more of them has to say why. At commit 7ae7385 there were 52 and 158.
AT_MOST = {"frame": 39, "grant": 134}
#: On a busy machine, what waits and what does not differs from one recording to the next. A document that is stale
#: agrees with none.
ATTEMPTS = 5


def test_a_real_frame_and_a_real_grant_walk_as_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    documented = {}
    for name in AT_MOST:
        place = walks.section(name).search(text)
        assert place is not None, name
        documented[name] = place[2]
    shown: dict[str, str] = {}
    for _ in range(ATTEMPTS):
        with contextlib.suppress(walks.Disagreement):
            found = walks.walks()
            shown = {name: walks.rendered(walk) for name, walk in found.items()}
            if shown == documented:
                assert all(len(walk[0]) <= AT_MOST[name] for name, walk in found.items())
                return
    assert shown == documented, "stale: run `make docs`"
