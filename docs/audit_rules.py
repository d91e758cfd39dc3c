"""Writes docs/audit.md: the rules of the auditor, and which part of the protocol each judges. Run by `make docs`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import mewstream.audit  # noqa: F401  (its modules declare the rules)
from mewstream.audit.records import RULES

_HEADER = """\
# The audit's rules

This page is generated from `src/mewstream/audit` by `make docs`; a test fails when it is stale.

The auditor judges every record that is no frame, from the log alone. It is a state machine of its own, written from
[the protocol](protocol.md) and not from the gateway's code: it shares names with it (kinds, codes, the language of
patterns, the form of times) and no rule. An import contract says so. No decision rests on the words of a message.

- **Asked, state, outcome.** For every envelope it finds out what must follow, and compares it with what was recorded,
  field by field. A refusal must have the code that follows from the state.
- **One fault is one finding.** After a finding the auditor follows the log as it is. If a record is missing, what it
  would have changed is open until the log says it. The first welcome after a finding is not judged.
- **Where a finding is.** Its `seq` is that of the record that is wrong. If a record is missing, it is that of the
  record that it should have followed; if something was due and did not happen, that of the first record that shows it.
- **What cannot be judged is counted** with the reason: what the log says from before its beginning (after pruning),
  records of newer versions and erased ones, a capability that is not understood, a refusal of which not enough was
  recorded, or that is a sum of many.

Between two looks at the clock, one message may pass a deadline. The second message, or one that comes a second later,
may not.

| rule | finds | part of the protocol |
|---|---|---|
"""


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def document() -> str:
    rows = [
        f"| `{rule.name}` | {rule.finds} | [{rule.section}](protocol.md#{anchor(rule.section)}) |"
        for rule in sorted(RULES.values())
    ]
    return _HEADER + "\n".join(rows) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
