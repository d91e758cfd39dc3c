"""Which permission lets a message through, for those who explain a decision."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mewstream.protocol.capabilities import Capabilities

TOOLS = {"kind": "mcp/request", "payload": {"method": "tools/*"}}
KINDS = ("chat", "mcp/request", "mcp/response", "stream/request", "x")
PATTERNS = ("*", "chat", "mcp/*", "!chat", "!mcp/request", "stream/*")


@pytest.mark.parametrize(
    ("patterns", "kind", "payload", "place"),
    [
        ([{"kind": "chat"}], "chat", {}, 0),
        ([{"kind": "mcp/*"}, {"kind": "chat"}, {"kind": "*"}], "chat", {}, 1),
        ([TOOLS, {"kind": "mcp/*"}], "mcp/request", {"method": "tools/list"}, 0),
        ([TOOLS, {"kind": "mcp/*"}], "mcp/request", {"method": "prompts/list"}, 1),
        ([TOOLS], "mcp/request", {"method": "prompts/list"}, None),
        ([{"kind": "*"}, {"kind": "!chat"}], "chat", {}, None),
        ([{"kind": "!chat"}, {"kind": "*"}], "x", {}, 1),
        ([], "chat", {}, None),
    ],
)
def test_the_first_that_matches(patterns: list[Any], kind: str, payload: Any, place: int | None) -> None:
    assert Capabilities(patterns).permitting(kind, payload) == place


@settings(deadline=None)
@given(st.lists(st.sampled_from([{"kind": each} for each in PATTERNS] + [TOOLS])), st.sampled_from(KINDS))
def test_there_is_one_where_it_is_allowed(patterns: list[Any], kind: str) -> None:
    capabilities = Capabilities(patterns)
    for payload in ({"method": "tools/list"}, {}):
        place = capabilities.permitting(kind, payload)
        assert (place is not None) == capabilities.allows(kind, payload)
        assert place is None or not patterns[place]["kind"].startswith("!")
