"""Writes ``docs/stream-states.md`` from the table of transitions."""

from __future__ import annotations

import sys
from pathlib import Path

from mewstream.protocol.transitions import TRANSITIONS, Status, Who

_HEADER = """\
# The states of a stream

This page is generated from `src/mewstream/protocol/transitions.py` by `make docs`; a test fails when it is stale.

A stream is `none` before it is asked for and `ended` after it was closed, completed or failed. An ended stream is
forgotten: whoever names it is told `stream_not_found`. Checks come in this order, and the first that fails is
reported: the shape of the message, whether the stream exists, the sender's right, whether the event is valid in
this state (`invalid_operation` otherwise), whether the other participant is present.
"""


def mermaid() -> str:
    """A state diagram; events that lead from one state to the same other one share an arrow."""
    arrows: dict[tuple[Status, Status], list[str]] = {}
    for row in TRANSITIONS:
        arrows.setdefault((row.source, row.target), []).append(row.event)
    lines = ["stateDiagram-v2"]
    for (source, target), events in arrows.items():
        start = "[*]" if source is Status.NONE else source
        end = "[*]" if target is Status.ENDED else target
        lines.append(f"    {start} --> {end}: {', '.join(events)}")
    return "\n".join(lines)


def document() -> str:
    parts = [_HEADER, f"```mermaid\n{mermaid()}\n```\n"]
    parts.append("| from | event | who may | to | everyone is told | otherwise |\n|---|---|---|---|---|---|")
    for row in TRANSITIONS:
        otherwise = "" if row.who is Who.GATEWAY else f"`{row.refusal}`"
        parts.append(f"| {row.source} | `{row.event}` | {row.who} | {row.target} | `{row.emits}` | {otherwise} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
