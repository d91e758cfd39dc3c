"""The table of rules in the documents, and that every rule finds something."""

from __future__ import annotations

from pathlib import Path

from audit_rules import document
from logs import said_of, small
from test_faults import FAULTS

from mewstream.audit.records import RULES

DOCS = Path(__file__).parents[2] / "docs"
#: Rules whose faults have tests of their own.
ELSEWHERE = {"form", "restart"}


def test_the_page_of_the_rules_is_current() -> None:
    assert (DOCS / "audit.md").read_text() == document(), "stale: run `make docs`"


def test_every_rule_names_a_heading_of_the_protocol() -> None:
    headings = {line.lstrip("# ") for line in (DOCS / "protocol.md").read_text().splitlines() if line.startswith("#")}
    assert {rule.section for rule in RULES.values()} <= headings
    assert all(rule.finds.endswith(".") for rule in RULES.values())


def test_every_rule_is_shown_to_find_something() -> None:
    found = set(ELSEWHERE)
    for policies, plant in FAULTS.values():
        play = small(policies=policies)
        plant(play)
        play.send("ann", "chat", text="and so on")
        found |= {rule for _, rule in said_of(play).places}
    assert found >= {rule for rule in RULES if rule not in ("paused_and_shut_down", "accepted")}
