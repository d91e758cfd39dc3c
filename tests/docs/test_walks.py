"""The walks in docs/architecture.md are those of a running gateway."""

from __future__ import annotations

from pathlib import Path

import walks

DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"
#: Functions until a message is on its way to its readers. Readers of the code follow all of them, so a change that
#: needs more of them has to say why. At commit 7ae7385 there were 52 and 158.
AT_MOST = {"frame": 39, "grant": 124}


def test_a_real_frame_and_a_real_grant_walk_as_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    found = walks.walks()
    assert found.keys() == AT_MOST.keys()
    for name, walk in found.items():
        documented = walks.section(name).search(text)
        assert documented is not None and documented[2] == walks.rendered(walk), "stale: run `make docs`"
        assert len(walk[0]) <= AT_MOST[name]
