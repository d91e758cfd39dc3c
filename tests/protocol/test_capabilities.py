"""Capability patterns: WIRE.md, section Capabilities; DESIGN.md, decisions 1 and 2."""

from __future__ import annotations

import json
from typing import Any

import pytest
import re2
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mewstream.protocol import capabilities as module
from mewstream.protocol.capabilities import EMPTY, MAX_PATTERNS, Capabilities
from mewstream.protocol.errors import ValidationFailed
from mewstream.protocol.patterns import MAX_DEPTH, MAX_NODES, MAX_STRING


def allows(pattern: Any, value: Any) -> bool:
    """Whether ``pattern`` for the key ``v`` of a payload matches ``value``."""
    return Capabilities([{"kind": "k", "payload": {"v": pattern}}]).allows("k", {"v": value})


def covers(held: Capabilities, pattern: Any) -> bool:
    return held.first_not_covered([pattern]) is None


def undecided(pattern: Any, value: Any) -> bool:
    """Whether the budget ends before ``pattern`` is decided: then neither a permission nor a denial lets it pass."""
    denial = {"kind": "!k", "payload": {"v": pattern}}
    return not allows(pattern, value) and not Capabilities(["*", denial]).allows("k", {"v": value})


def nested(depth: int, leaf: Any) -> Any:
    value = leaf
    for level in range(depth):
        value = {"n": value} if level % 2 else [value]
    return {"n": value}


class TestKind:
    @pytest.mark.parametrize(
        ("pattern", "kind", "expected"),
        [
            ("*", "anything/at all", True),
            ("chat", "chat", True),
            ("chat", "chat/cancel", False),
            ("chat", "xchat", False),
            ("mcp/*", "mcp/request", True),
            ("mcp/*", "mcp/tools/list/deep", True),
            ("mcp/*", "mcp", False),
            ("mcp/*", "xmcp/request", False),
            ("*/request", "a/b/request", True),
            ("*/request", "a/b/requests", False),
            ("a?c", "abc", False),
            ("a?c", "a?c", True),
            ("a.c*", "abcd", False),
            ("a*", "a\nb", True),
            ("stream/write:stream-1", "stream/write:stream-1", True),
            ("stream/write:stream-1", "stream/data", False),
        ],
    )
    def test_matching(self, pattern: str, kind: str, expected: bool) -> None:
        assert Capabilities([{"kind": pattern}]).allows(kind, None) is expected

    def test_bare_string_is_a_kind(self) -> None:
        assert Capabilities(["mcp/*"]).allows("mcp/request", {})
        assert Capabilities(["mcp/*"]).as_list() == [{"kind": "mcp/*"}]

    def test_empty_allows_nothing(self) -> None:
        assert not EMPTY.allows("chat", {"text": "x"})
        assert EMPTY.as_list() == []

    @pytest.mark.parametrize("patterns", [["*", "!mcp/request"], ["!mcp/request", "*"]])
    def test_denial_wins_in_any_order(self, patterns: list[str]) -> None:
        held = Capabilities(patterns)
        assert held.allows("mcp/response", {})
        assert not held.allows("mcp/request", {"method": "x"})

    def test_only_denials_allow_nothing(self) -> None:
        assert not Capabilities(["!mcp/request"]).allows("chat", {})

    def test_denial_with_payload_denies_only_what_it_matches(self) -> None:
        held = Capabilities(["mcp/*", {"kind": "!mcp/request", "payload": {"params": {"name": "delete_*"}}}])
        assert held.allows("mcp/request", {"params": {"name": "read_file"}})
        assert held.allows("mcp/request", None)
        assert not held.allows("mcp/request", {"params": {"name": "delete_file"}})
        assert held.allows("mcp/proposal", {"params": {"name": "delete_file"}})

    def test_any_permission_suffices(self) -> None:
        held = Capabilities([{"kind": "k", "payload": {"a": 1}}, {"kind": "*", "payload": {"b": 2}}])
        assert held.allows("k", {"a": 1})
        assert held.allows("k", {"b": 2})
        assert not held.allows("k", {"a": 2, "b": 1})

    def test_judges_payload(self) -> None:
        held = Capabilities(["chat", {"kind": "mcp/*", "payload": {}}, {"kind": "!x/*", "payload": {"a": 1}}])
        assert not held.judges_payload("chat")
        assert held.judges_payload("mcp/request")
        assert held.judges_payload("x/y")
        assert not held.judges_payload("unknown")

    def test_hostile_kinds_are_denied_and_do_not_fill_the_cache(self) -> None:
        held = Capabilities(["*"])
        assert not held.allows("x" * (MAX_STRING + 1), None)
        assert not held.allows("\ud800", None)
        for number in range(2_000):
            assert held.allows(f"k{number}", None)
        assert len(held._decisions) <= module._CACHED_KINDS


class TestPayloadStrings:
    @pytest.mark.parametrize(
        ("pattern", "value", "expected"),
        [
            ("read_file", "read_file", True),
            ("read_file", "read_file2", False),
            ("", "", True),
            ("", "x", False),
            ("read_*", "read_file", True),
            ("read_*", "read_a/b\nc", True),  # no `/` in the pattern: `*` is anything
            ("read_*", "unread_x", False),
            ("/public/*", "/public/a", True),
            ("/public/*", "/public/a/b", False),
            ("/public/**", "/public/a/b", True),
            ("/public/**", "/public/", True),
            ("/public/**", "/private/public/a", False),
            ("/a/**/z", "/a/b/c/z", True),
            ("/a/*/z", "/a/b/c/z", False),
            ("a.b*", "axb", False),
            ("!delete_*", "read", True),
            ("!delete_*", "delete_x", False),
            ("!exact", "exact", False),
            ("!exact", "exactly", True),
            ("/^read_(file|dir)$/", "read_dir", True),
            ("/^read_(file|dir)$/", "read_dirs", False),
            ("/public/", "/etc/public", True),  # an expression, not a path: documented
            ("!/^rm /", "rm -rf", False),
            ("!/^rm /", "ls", True),
            ("/", "/", True),
            ("//", "//", True),
            ("/é+$/", "caféé", True),
        ],
    )
    def test_matching(self, pattern: str, value: str, expected: bool) -> None:
        assert allows(pattern, value) is expected

    @pytest.mark.parametrize("pattern", ["x", "*", "!y", "/x/", "!/y/"])
    @pytest.mark.parametrize("value", [["x"], {"x": 1}, 1, True, None])
    def test_only_strings_match_string_patterns(self, pattern: str, value: Any) -> None:
        assert not allows(pattern, value)

    @pytest.mark.parametrize("pattern", ["!x", "*", None, [None], {}])
    def test_missing_key_fails(self, pattern: Any) -> None:
        assert not Capabilities([{"kind": "k", "payload": {"v": pattern}}]).allows("k", {"other": "y"})

    @pytest.mark.parametrize("pattern", ["!delete*", "!/delete/", "delete*"])
    def test_lone_surrogates_do_not_get_past_a_negation(self, pattern: str) -> None:
        assert not allows(pattern, "delete\ud800")


class TestPayloadValues:
    @pytest.mark.parametrize(
        ("pattern", "value", "expected"),
        [
            (1, 1, True),
            (1, 1.0, True),
            (1, True, False),
            (True, 1, False),
            (True, True, True),
            (0, False, False),
            (1, "1", False),
            (None, None, True),
            (None, 0, False),
            (["a*", 3, None], "ab", True),
            (["a*", 3, None], 3, True),
            (["a*", 3, None], None, True),
            (["a*", 3, None], "b", False),
            (["a"], ["a"], False),
            ([], "a", False),
            ({"a": {"b": "x*"}}, {"a": {"b": "xy", "c": 1}, "d": 2}, True),
            ({"a": {"b": "x*"}}, {"a": {"c": 1}}, False),
            ({"a": 1}, [{"a": 1}], False),
            ({}, {}, True),
            ({}, None, False),
            ([{"a": 1}, {"b": 2}], {"b": 2}, True),
        ],
    )
    def test_matching(self, pattern: Any, value: Any, expected: bool) -> None:
        assert allows(pattern, value) is expected

    def test_payload_may_be_a_list_of_alternatives(self) -> None:
        held = Capabilities([{"kind": "k", "payload": [{"a": 1}, {"b": 2}]}])
        assert held.allows("k", {"b": 2})
        assert not held.allows("k", {"b": 1})
        assert not held.allows("k", None)


class TestAnyDepth:
    def test_finds_values_and_objects(self) -> None:
        held = Capabilities([{"kind": "k", "payload": {"**": {"path": "/public/**"}}}])
        assert held.allows("k", {"path": "/public/x"})  # the object itself
        assert held.allows("k", {"a": [{"b": {"path": "/public/x"}}]})
        assert not held.allows("k", {"a": [{"b": {"path": "/etc/x"}}]})
        assert Capabilities([{"kind": "k", "payload": {"**": "x"}}]).allows("k", {"a": [[["x"]]]})

    def test_other_keys_must_match_too(self) -> None:
        held = Capabilities([{"kind": "k", "payload": {"**": "x", "m": 1}}])
        assert held.allows("k", {"m": 1, "a": "x"})
        assert not held.allows("k", {"m": 2, "a": "x"})

    def test_deep_payloads_do_not_recurse(self) -> None:
        held = Capabilities([{"kind": "k", "payload": {"**": "needle"}}, {"kind": "j", "payload": {"$..x": 1}}])
        assert held.allows("k", nested(20_000, "needle"))
        assert not held.allows("k", nested(20_000, "hay"))
        assert held.allows("j", nested(20_000, {"x": 1}))

    def test_too_much_work_is_denied(self) -> None:
        pattern: Any = "never"
        for _ in range(20):
            pattern = {"**": pattern}
        deny = Capabilities(["*", {"kind": "!k", "payload": pattern}])
        allow = Capabilities([{"kind": "k", "payload": pattern}])
        payload = {"a": [{"b": number} for number in range(20_000)]}
        assert not allow.allows("k", payload)
        assert not deny.allows("k", payload)  # a denial that cannot be judged holds
        assert deny.allows("k", {"a": []})
        assert deny.allows("other", payload)


class TestJSONPath:
    DOCUMENT: Any = {  # noqa: RUF012
        "a": {"b": "x", "c d": 1, "list": [{"id": 1}, {"id": 2}]},
        "$ref": "r",
        "e-f": True,
    }

    @pytest.mark.parametrize(
        ("path", "pattern", "expected"),
        [
            ("$.a.b", "x", True),
            ("$.a.b", "y", False),
            ("$.a.missing", "!y", False),
            ("$['a']['c d']", 1, True),
            ('$["a"].b', "x", True),
            ("$.a.list[0].id", 1, True),
            ("$.a.list[0].id", 2, False),
            ("$.a.list[9].id", 2, False),
            ("$.a.list[*].id", 2, True),
            ("$.a.list[*].id", 3, False),
            ("$..id", 2, True),
            ("$..id", 3, False),
            ("$.a..id", 1, True),
            ("$.*", {"b": "x"}, True),
            ("$.*.*", "x", True),
            ("$.e-f", True, True),
            ("$['$ref']", "r", True),
            ("$.a[0]", "x", False),
            ("$.a.list.id", 1, False),
        ],
    )
    def test_matching(self, path: str, pattern: Any, expected: bool) -> None:
        held = Capabilities([{"kind": "k", "payload": {path: pattern}}])
        assert held.allows("k", self.DOCUMENT) is expected

    def test_root_is_the_object_the_key_stands_in(self) -> None:
        held = Capabilities([{"kind": "k", "payload": {"a": {"$.list[1].id": 2}}}])
        assert held.allows("k", self.DOCUMENT)

    @pytest.mark.parametrize(
        "path",
        [
            "$",
            "$a",
            "$.",
            "$.a[",
            "$.a[-1]",
            "$.a[1:2]",
            "$.a[?(@.b)]",
            "$..*",
            "$.a b",
            "$['a",
            "$.a.",
            "$['']",
            "$" + ".a" * (MAX_DEPTH + 1),
        ],
    )
    def test_unsupported_is_refused(self, path: str) -> None:
        with pytest.raises(ValidationFailed, match="JSONPath"):
            Capabilities([{"kind": "k", "payload": {path: 1}}])


class TestHostileExpressions:
    @pytest.mark.parametrize("pattern", ["/(a+)+$/", "/^(a|a)*b$/", "/^(([a-z])+.)+[A-Z]([a-z])+$/"])
    def test_need_no_backtracking(self, pattern: str) -> None:
        """An engine that backtracks takes 2 ** 40,000 steps; here the answer is a no, not a refusal to answer."""
        assert not allows(pattern, "a" * 40_000 + "!")
        assert not undecided(pattern, "a" * 40_000 + "!")

    @pytest.mark.parametrize("pattern", ["/(.*a){30}c/", "*a" * 200, "/((a?){30}){30}b/"])
    def test_large_ones_exhaust_the_budget(self, pattern: str) -> None:
        assert undecided(pattern, "a" * 500_000 + "!")
        assert not undecided(pattern, "a" * 500 + "!")

    def test_many_texts_share_one_budget(self) -> None:
        pattern = {"**": "/((a?){30}){30}b/"}
        assert not undecided(pattern, {"texts": ["a" * 1_000]})
        assert undecided(pattern, {"texts": ["a" * 1_000] * 200})

    def test_compiling_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compiled = []
        compile_regex = re2.compile
        monkeypatch.setattr(re2, "compile", lambda *args: (compiled.append(args), compile_regex(*args))[1])
        expressions = [f"/(a?){{{number % 900 + 1}}}((b?){{30}}){{30}}c/" for number in range(4_000)]
        with pytest.raises(ValidationFailed, match="too large"):
            Capabilities([{"kind": "k", "payload": {"v": expressions}}])
        assert len(compiled) < 100

    @pytest.mark.parametrize("pattern", ["read_*", "/^a/", "!*.exe", "/(foo|bar)+/"])
    def test_ordinary_patterns_judge_long_texts(self, pattern: str) -> None:
        held = Capabilities([{"kind": "k", "payload": {"v": [pattern, "/end$/"]}}])
        assert held.allows("k", {"v": "x" * (128 << 10) + "end"})


class TestMalformed:
    @pytest.mark.parametrize(
        ("pattern", "reason"),
        [
            ({}, "it has no kind"),
            ({"payload": {}}, "it has no kind"),
            ({"kind": ""}, "its kind is ''"),
            ({"kind": None}, "its kind is None"),
            ({"kind": 3}, "its kind is 3"),
            ({"kind": []}, "its kind is"),
            ({"kind": "!"}, "its kind is '!'"),
            ({"kind": "!!chat"}, "its kind is '!!chat'"),
            ("", "its kind is ''"),
            (7, "neither an object nor a string"),
            (["chat"], "neither an object nor a string"),
            ({"kind": "k", "payload": None}, "payload is not an object"),
            ({"kind": "k", "payload": "x"}, "payload is not an object"),
            ({"kind": "k", "payload": ["x"]}, "payload is not an object"),
            ({"kind": "k", "payload": {"a": "/(/"}}, "RE2 does not accept"),
            ({"kind": "k", "payload": {"a": r"/(a)\1/"}}, "no back-references"),
            ({"kind": "k", "payload": {"a": "/(?=a)/"}}, "RE2 does not accept"),
            ({"kind": "k", "payload": {"a": r"/\pL{999}/"}}, "too large"),
            ({"kind": "k", "payload": {"a": "!"}}, "negates nothing"),
            ({"kind": "k", "payload": {"a": "!!x"}}, "negates nothing"),
            ({"kind": "k", "payload": {1: "x"}}, "key 1 is not a string"),
            ({"kind": "k", "payload": {"a": {1, 2}}}, "not a JSON value"),
            ({"kind": "k", "payload": {"a": float("nan")}}, "not a JSON value"),
            ({"kind": "k", "reason": b"x"}, "not a JSON value"),
            ({"kind": "k\ud800"}, "not valid Unicode"),
            ({"kind": "k" * (MAX_STRING + 1)}, "expected at most 1024"),
            ({"kind": "k", "payload": {"a": "é" * (MAX_STRING // 2 + 1)}}, "expected at most 1024"),
            ({"kind": "k", "payload": {"a" * (MAX_STRING + 1): 1}}, "expected at most 1024"),
            ({"kind": "k", "payload": nested(MAX_DEPTH, 1)}, "nested too deep"),
            ({"kind": "k", "payload": nested(50_000, 1)}, "nested too deep"),
            ({"kind": "k", "payload": {"a": [1] * MAX_NODES}}, "the list is too large"),
        ],
    )
    def test_says_which_and_why(self, pattern: Any, reason: str) -> None:
        with pytest.raises(ValidationFailed) as caught:
            Capabilities(["chat", pattern])
        assert caught.value.message.startswith("capability pattern 1 (")
        assert reason in caught.value.message
        assert "expected" in caught.value.message
        assert len(caught.value.message) < 1_000
        with pytest.raises(ValidationFailed):
            covers(Capabilities(["*"]), pattern)

    @pytest.mark.parametrize("patterns", [None, "chat", {"kind": "chat"}, 3])
    def test_not_a_list(self, patterns: Any) -> None:
        with pytest.raises(ValidationFailed, match="expected a list"):
            Capabilities(patterns)

    def test_too_many(self) -> None:
        Capabilities(["chat"] * MAX_PATTERNS)
        with pytest.raises(ValidationFailed, match="expected at most 256"):
            Capabilities(["chat"] * (MAX_PATTERNS + 1))

    def test_deepest_pattern_works(self) -> None:
        deepest = nested(MAX_DEPTH - 2, "x")
        held = Capabilities([{"kind": "k", "payload": deepest}])
        assert covers(held, {"kind": "k", "payload": deepest})
        assert json.loads(json.dumps(held.as_list())) == [{"kind": "k", "payload": deepest}]


class TestList:
    def test_other_keys_are_kept_without_effect(self) -> None:
        source = {"id": "cap-1", "payload": {"a": [1.0, None]}, "kind": "k", "reason": {"$x": "/(/"}}
        held = Capabilities([source, "chat"])
        assert held.as_list() == [source, {"kind": "chat"}]
        assert list(held.as_list()[0]) == list(source)
        assert held.allows("k", {"a": None})

    def test_is_immutable_through_its_sources_and_copies(self) -> None:
        source: dict[str, Any] = {"kind": "k", "payload": {"a": [1]}}
        held = Capabilities([source])
        source["payload"]["a"].append(2)
        held.as_list()[0]["payload"]["a"].append(2)
        assert held.as_list() == [{"kind": "k", "payload": {"a": [1]}}]
        assert not held.allows("k", {"a": 2})

    def test_equality_is_by_content(self) -> None:
        one = Capabilities([{"kind": "k", "payload": {"a": 1}}])
        assert one == Capabilities(({"payload": {"a": 1}, "kind": "k"},))
        assert hash(one) == hash(Capabilities([{"payload": {"a": 1}, "kind": "k"}]))
        assert one != Capabilities([{"kind": "k", "payload": {"a": True}}])
        assert one != [{"kind": "k", "payload": {"a": 1}}]
        assert Capabilities([]) == EMPTY
        assert '"kind": "k"' in repr(one)


def held_payload(pattern: Any) -> Capabilities:
    return Capabilities([{"kind": "k", "payload": {"v": pattern}}])


class TestCovers:
    @pytest.mark.parametrize(
        ("held", "granted", "expected"),
        [
            (["*"], "anything", True),
            (["*"], {"kind": "mcp/*", "payload": {"a": 1}}, True),
            (["mcp/*"], "mcp/request", True),
            (["mcp/*"], "mcp/*", True),
            (["mcp/*"], "mcp/tools/*", True),
            (["mcp/*"], "mcp/*/x*", True),
            (["mcp/*"], "*", False),
            (["mcp/*"], "m*", False),
            (["mcp/*"], "mcp*", False),
            (["chat"], "chat", True),
            (["chat"], "chat/*", False),
            (["chat"], "mcp/request", False),
            ([], "chat", False),
            ([], "!chat", True),
            (["chat"], {"kind": "!*", "payload": {"a": 1}}, True),
            (["!mcp/request"], "chat", False),
            (["*", "!mcp/request"], "chat", True),
            (["*", "!mcp/request"], "mcp/request", False),
            (["*", "!mcp/request"], "mcp/*", False),
            (["*", "!mcp/request"], "*", False),
            (["*", "!mcp/*"], "chat/*", True),
            (["*", "!*/x"], "chat/*", False),
            (["*", "!*/x"], "chat*y", True),
            (["*", "!a*c"], "abd", True),
            (["a*", "!ab"], "a*c", True),
            (["*", {"kind": "!k", "payload": {"a": "x*"}}], "k", False),
            (["*", {"kind": "!k", "payload": {"a": "x*"}}], {"kind": "k", "payload": {"a": "y"}}, True),
            (["*", {"kind": "!k", "payload": {"a": "x*"}}], {"kind": "k", "payload": {"a": "y*"}}, True),
            (["*", {"kind": "!k", "payload": {"a": "x*"}}], {"kind": "k", "payload": {"a": "*y"}}, False),
            (
                ["*", {"kind": "!k", "payload": {"a": "x*"}}],
                {"kind": "k", "payload": {"a": ["y", "xy"]}},
                False,
            ),
            (
                ["*", {"kind": "!k", "payload": {"a": ["p", "q"]}}],
                {"kind": "k", "payload": {"a": ["y", "z"]}},
                True,
            ),
            (["*", {"kind": "!k", "payload": {"a": ["p", "q*"]}}], {"kind": "k", "payload": {"a": "q"}}, False),
            (["*", {"kind": "!k", "payload": {"a": 1}}], {"kind": "k", "payload": {"a": "!z"}}, True),
            (["*", {"kind": "!k", "payload": {"a": {"b": 1}}}], {"kind": "k", "payload": {"a": "*"}}, True),
            (["*", {"kind": "!k", "payload": {"a": "x"}}], {"kind": "k", "payload": {"b": "y"}}, False),
            (["*", {"kind": "!k", "payload": {"**": "x"}}], {"kind": "k", "payload": {"**": "y"}}, False),
            ([{"kind": "k", "payload": {}}], "k", False),
            ([{"kind": "k", "payload": {"a": 1}}], {"kind": "k", "payload": {}}, False),
            ([{"kind": "k", "payload": {"a": 1}}], {"kind": "k", "payload": {"a": 1, "b": 2}}, True),
            ([{"kind": "k", "payload": {"a": 1}}], {"kind": "k", "payload": [{"a": 1}, {"b": 1}]}, False),
        ],
    )
    def test_kinds_and_denials(self, held: list[Any], granted: Any, expected: bool) -> None:
        assert covers(Capabilities(held), granted) is expected

    @pytest.mark.parametrize(
        ("held", "granted", "expected"),
        [
            ("read_*", "read_file", True),
            ("read_*", "read_x*", True),
            ("read_*", "write", False),
            ("read_*", "*", False),
            ("read_*", "!x", False),
            ("*", "!x", True),
            ("*", "/x/", True),
            ("*", 1, False),
            ("/public/**", "/public/a/**", True),
            ("/public/**", "/public/*", True),
            ("/public/*", "/public/**", False),  # `*` stops at `/`, `**` does not
            ("/public/*", "/public/***", False),
            ("/public/*", "/public/x*", True),
            ("/x/a/*/b", "/x/a**b", False),
            ("/p*/\0", "/p*/**", False),
            ("p/*", "p*", False),
            ("p*", "p/**", True),
            ("/^a/", "abc", True),
            ("/^a/", "bc", False),
            ("/^a/", "/^a/", True),
            ("/^a/", "/^ab/", False),
            ("!a", "!a", True),
            ("!a", "b", True),
            ("!a", "b*", False),
            ("exact", "exact", True),
            ("exact", "*", False),
            (1, 1, True),
            (1, True, False),
            (["a", "b*"], ["b1", "a"], True),
            (["a", "b*"], ["b1", "c"], False),
            ({"**": "x*"}, {"**": "xy"}, True),
            ({"**": "x*"}, {"a": "xy"}, False),
            ({"$.a": "x*"}, {"$['a']": "xy"}, True),
            ({"a": {"b": "*"}}, {"a": "x"}, False),
            ({"a": 1}, "*", False),
        ],
    )
    def test_payloads(self, held: Any, granted: Any, expected: bool) -> None:
        assert covers(held_payload(held), {"kind": "k", "payload": {"v": granted}}) is expected

    def test_too_much_work_is_not_covered(self) -> None:
        held = held_payload([f"a{number}" for number in range(2_000)])
        assert covers(held, {"kind": "k", "payload": {"v": ["a1999"] * 5}})
        assert not covers(held, {"kind": "k", "payload": {"v": ["a1999"] * 2_000}})


# A small alphabet, so that patterns and values meet often.
GLOB = st.text(alphabet="ab/*\0", min_size=1, max_size=5)
STRINGS = st.text(alphabet="ab/\0*", max_size=5)
SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0])
KEYS = st.sampled_from(["a", "b"])
PATTERN_STRINGS = st.one_of(
    GLOB,
    STRINGS,
    GLOB.map(lambda text: "!" + text),
    st.sampled_from(["/a/", "/^a/", "/b$/", "!/a/", "/^(a|b)+$/", "*", "**"]),
)
PATTERN_VALUES = st.recursive(
    SCALARS | PATTERN_STRINGS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS | st.sampled_from(["**", "$.a", "$..b", "$.*", "$['b']"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PAYLOAD_PATTERNS = st.dictionaries(KEYS | st.sampled_from(["**", "$..a"]), PATTERN_VALUES, max_size=2)
KINDS = st.text(alphabet="ab/*", min_size=1, max_size=4)
PATTERNS = st.fixed_dictionaries(
    {"kind": st.tuples(st.sampled_from(["", "", "", "!"]), KINDS).map("".join)},
    optional={"payload": PAYLOAD_PATTERNS | st.lists(PAYLOAD_PATTERNS, max_size=2)},
)
VALUES = st.recursive(
    SCALARS | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = st.none() | st.dictionaries(KEYS, VALUES, max_size=2)


def compiled(patterns: list[Any]) -> Capabilities | None:
    try:
        return Capabilities(patterns)
    except ValidationFailed:  # such as `/**/`, which is a broken expression
        return None


def _filled(glob: str, filling: tuple[str, ...]) -> str:
    rest = iter(filling)
    return "".join(next(rest) if character == "*" else character for character in glob)


class TestSoundness:
    """A granter cannot give what it does not hold."""

    @staticmethod
    def check(held: list[Any], pattern: Any, messages: list[tuple[str, Any]]) -> None:
        holder, receiver = compiled(held), compiled([pattern])
        if holder is None or receiver is None or not covers(holder, pattern):
            return
        for kind, payload in messages:
            if receiver.allows(kind, payload):
                assert holder.allows(kind, payload)

    @given(
        st.lists(PATTERNS, max_size=3),
        PATTERNS,
        st.lists(st.tuples(st.text(alphabet="ab/", max_size=4), PAYLOADS), min_size=1, max_size=20),
    )
    @example(
        ["*", {"kind": "!a", "payload": {"a": "a*"}}],
        {"kind": "a", "payload": {"a": "*"}},
        [("a", {"a": "a"})],
    )
    @settings(max_examples=400, deadline=None)
    def test_of_lists(self, held: list[Any], pattern: Any, messages: list[tuple[str, Any]]) -> None:
        self.check(held, pattern, messages)

    @given(PATTERN_VALUES, PATTERN_VALUES, st.lists(VALUES, min_size=1, max_size=30))
    @settings(max_examples=400, deadline=None)
    def test_of_payload_values(self, held: Any, granted: Any, values: list[Any]) -> None:
        messages = [("k", {"a": value}) for value in values]
        deny = {"kind": "!k", "payload": {"a": held}}
        pattern = {"kind": "k", "payload": {"a": granted}}
        self.check([{"kind": "k", "payload": {"a": held}}], pattern, messages)
        self.check(["*", deny], pattern, messages)

    @given(GLOB, GLOB, st.lists(st.tuples(*[st.text(alphabet="ab/\0", max_size=2)] * 5), min_size=1, max_size=30))
    @example("/a/*", "/a/**", [("b", "/b", "", "", "")])
    @example("*/\0", "*/**", [("a", "b", "", "", "")])
    @settings(max_examples=600, deadline=None)
    def test_of_globs(self, held: str, granted: str, fillings: list[tuple[str, ...]]) -> None:
        pattern = {"kind": "k", "payload": {"a": granted}}
        # Texts that the granted glob is likely to match: with something in the place of its stars.
        values = [_filled(granted, filling) for filling in fillings]
        messages: list[tuple[str, Any]] = [("k", {"a": value}) for value in values]
        self.check([{"kind": "k", "payload": {"a": held}}], pattern, messages)
        self.check(["*", {"kind": "!k", "payload": {"a": held}}], pattern, messages)
        self.check([held], granted, [(value, None) for value in values])
        self.check(["*", "!" + held], granted, [(value, None) for value in values])

    @given(PATTERNS)
    @settings(max_examples=200, deadline=None)
    def test_whoever_holds_a_pattern_can_give_it(self, pattern: Any) -> None:
        holder = compiled([pattern])
        assert holder is None or covers(holder, pattern)
