"""Envelopes: WIRE.md, section Envelopes; what is refused, filled in, and left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import NOON, Space

from mewstream.client import messages
from mewstream.protocol.commands import Send
from mewstream.protocol.decide import decide
from mewstream.protocol.envelope import Envelope, encode_json, parse_envelope
from mewstream.protocol.errors import LimitExceeded, ValidationFailed
from mewstream.protocol.fold import apply
from mewstream.protocol.identifiers import flaw_in_participant_id, is_valid_alias
from mewstream.protocol.records import Refused
from mewstream.protocol.times import parse_rfc3339, rfc3339


def parse(message: bytes | dict[str, Any]) -> Envelope:
    return parse_envelope(message if isinstance(message, bytes) else json.dumps(message).encode(), max_id_bytes=128)


def relayed(envelope: Envelope) -> bytes:
    return envelope.encode(id="filled", ts="2026-01-31T12:00:00Z", sender="alice")


class TestShape:
    @pytest.mark.parametrize(
        "message",
        [
            pytest.param(b"", id="nothing"),
            pytest.param(b"hello", id="text"),
            pytest.param(b"[]", id="a list"),
            pytest.param(b'"chat"', id="a string"),
            pytest.param(b'{"kind":"chat"} {}', id="two values"),
            pytest.param(b'\xef\xbb\xbf{"kind":"chat"}', id="byte order mark"),
            pytest.param(b'{"payload":{}}', id="no kind"),
            pytest.param(b'{"kind":""}', id="empty kind"),
            pytest.param(b'{"kind":7}', id="kind is a number"),
            pytest.param(b'{"kind":"chat","protocol":"mew/v0.3"}', id="another protocol"),
            pytest.param(b'{"kind":"chat","id":7}', id="id is a number"),
            pytest.param(b'{"kind":"chat","from":["a"]}', id="from is a list"),
            pytest.param(b'{"kind":"chat","ts":"yesterday"}', id="ts is no time"),
            pytest.param(b'{"kind":"chat","ts":"2026-01-31T12:00:00"}', id="ts without zone"),
            pytest.param(b'{"kind":"chat","to":"alice"}', id="to is a string"),
            pytest.param(b'{"kind":"chat","to":["alice",7]}', id="to with a number"),
            pytest.param(b'{"kind":"chat","correlation_id":7}', id="correlation_id is a number"),
            pytest.param(b'{"kind":"chat","correlation_id":[7]}', id="correlation_id with a number"),
            pytest.param(b'{"kind":"chat","context":{"any":"thing"}}', id="context is an object"),
            pytest.param(b'{"kind":"chat","context":["a"]}', id="context is a list"),
            pytest.param(b'{"kind":"chat","context":7}', id="context is a number"),
            pytest.param(b'{"kind":"chat","payload":[]}', id="payload is a list"),
            pytest.param(b'{"kind":"chat","payload":"text"}', id="payload is a string"),
        ],
    )
    def test_refused(self, message: bytes) -> None:
        with pytest.raises(ValidationFailed):
            parse(message)

    @pytest.mark.parametrize("where", ["payload", "x-unknown"])
    @pytest.mark.parametrize(
        "value",
        [
            pytest.param(b'{"a":NaN}', id="NaN"),
            pytest.param(b'{"a":Infinity}', id="Infinity"),
            pytest.param(b'{"a":01}', id="leading zero"),
            pytest.param(b'{"a":1.}', id="half a number"),
            pytest.param(b'{"a":tru}', id="half a word"),
            pytest.param(b'{"a":"\x00"}', id="control character"),
            pytest.param(b'{"a":"\\ud800"}', id="lone high surrogate"),
            pytest.param(b'{"a":"\\udc00"}', id="lone low surrogate"),
            pytest.param(b'{"a":"\\ud800\\u0041"}', id="half a pair"),
            pytest.param(b'{"\\ud800":1}', id="lone surrogate in a key"),
            pytest.param(b'{"a":"\xff"}', id="invalid UTF-8"),
            pytest.param(b'{"a":"\xed\xa0\x80"}', id="a surrogate in UTF-8"),
            pytest.param(b'{"\xff":1}', id="invalid UTF-8 in a key"),
            pytest.param(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="deep"),
            pytest.param(b'{"a":1e400}', id="too large for a double"),
            pytest.param(b'{"a":[{"b":-1E+999}]}', id="too small for a double"),
            pytest.param(b'{"a":%b.5}' % (b"1" * 400), id="too large for a double, written out"),
            pytest.param(b'{"a":%b}' % (b"1" * 5_000), id="an integer of 5000 digits"),
        ],
    )
    def test_what_is_not_json_is_refused_even_where_nobody_looks(self, where: str, value: bytes) -> None:
        """What one participant sends must never be what makes another's parser fail."""
        with pytest.raises(ValidationFailed):
            relayed(parse(b'{"kind":"x/y","%b":%b}' % (where.encode(), value)))

    @pytest.mark.parametrize("key", ["kind", "id", "from", "ts", "protocol"])
    def test_long_texts_name_the_limit(self, key: str) -> None:
        """decision 19: ``limit_exceeded`` names the limit."""
        with pytest.raises(LimitExceeded) as refused:
            parse({"kind": "chat"} | {key: "x" * 129})
        assert refused.value.details["limit"] == "id_bytes"

    @pytest.mark.parametrize("key", ["to", "correlation_id"])
    def test_long_entries_name_the_limit(self, key: str) -> None:
        """decision 19."""
        with pytest.raises(LimitExceeded) as refused:
            parse({"kind": "chat", key: ["x" * 129]})
        assert refused.value.details["limit"] == "id_bytes"

    @pytest.mark.parametrize("key", ["id", "kind"])
    def test_an_id_is_measured_in_bytes(self, key: str) -> None:
        """decision 19; ``Limits.id_bytes``: "a participant id, an alias or an envelope id, in UTF-8"."""
        assert parse({"kind": "chat"} | {key: "é" * 64})
        with pytest.raises(LimitExceeded):
            parse({"kind": "chat"} | {key: "é" * 65})

    @pytest.mark.parametrize(
        ("kind", "payload", "error"),
        [
            ("chat", {"text": "hi"}, None),
            ("chat", {"text": ""}, None),
            ("chat", {}, "validation_error"),
            ("chat", {"text": None}, "validation_error"),
            ("chat", {"text": ["hi"]}, "validation_error"),
            ("mcp/request", {"method": "tools/list"}, None),
            ("mcp/request", {"params": {}}, "validation_error"),
            ("mcp/request", {"method": 7}, "validation_error"),
            ("chat/acknowledge", {}, None),
        ],
    )
    def test_required_fields_of_a_kind(self, kind: str, payload: dict[str, Any], error: str | None) -> None:
        """WIRE.md, Envelopes: ``chat`` needs ``payload.text``, ``mcp/request`` needs ``payload.method``."""
        assert Space("alice", capabilities={"alice": ["*"]}).send("alice", kind, payload).error == error


class TestRelay:
    def test_missing_fields_are_filled_in(self) -> None:
        """WIRE.md, Envelopes: ``protocol``, ``id``, ``ts``, ``from``."""
        space = Space("alice")
        told = space.send("alice", "chat", {"text": "hi"}, id=None).messages[0]
        assert told["protocol"] == "mew/v0.4"
        assert told["from"] == "alice"
        assert told["id"]
        assert parse_rfc3339(told["ts"]) == space.now

    def test_given_fields_are_kept(self) -> None:
        fields = {
            "protocol": "mew/v0.4",
            "id": "mine",
            "ts": "2020-01-01T00:00:00+02:00",
            "from": "alice",
            "to": ["bob"],
            "kind": "chat",
            "correlation_id": ["other"],
            "context": "parent/child",
            "payload": {"text": "hi"},
        }
        assert Space("alice").raw("alice", json.dumps(fields).encode()).messages == [fields]

    @pytest.mark.parametrize("absent", [{}, {"to": None}, {"id": None}, {"ts": None}, {"from": None}])
    def test_null_is_absent(self, absent: dict[str, None]) -> None:
        told = json.loads(relayed(parse({"kind": "chat", "payload": None} | absent)))
        assert told.items() >= {"id": "filled", "from": "alice", "payload": {}}.items()
        assert "to" not in told

    def test_a_correlation_id_becomes_a_list(self) -> None:
        """WIRE.md, Envelopes: a string is accepted and becomes an array."""
        assert json.loads(relayed(parse(b'{"kind":"chat","correlation_id":"a"}')))["correlation_id"] == ["a"]

    def test_unknown_fields_survive(self) -> None:
        """DESIGN.md, protocol: unknown envelope fields survive a relay untouched."""
        told = relayed(parse(b'{"kind":"chat", "x-trace": {"n": [1.0, 1e2]}, "version": null, "payload": {}}'))
        assert b'"x-trace":{"n":[1.0,1e2]}' in told
        assert b'"version":null' in told

    def test_the_seq_of_a_client_is_dropped(self) -> None:
        """decision 24: ``seq`` is the gateway's; also when it hides behind an escape."""
        for key in (b"seq", b"\\u0073eq"):
            assert b"seq" not in relayed(parse(b'{"kind":"chat","%b":7}' % key))

    def test_the_compact_form_is_relayed(self) -> None:
        """WIRE.md, HTTP: JSON is compact."""
        assert b" " not in relayed(parse(b'{ "kind" : "x/y" ,\n "payload" : { "a" : [ 1 , 2 ] } }'))

    @pytest.mark.parametrize(
        "number",
        [
            *("123456789012345678901234567890", "1.0", "1e2", "1E308", "1e-400", "-0", "1" * 4_300),
            "0.1000000000000000055511151231257827",
        ],
    )
    def test_numbers_that_nobody_judged_are_untouched(self, number: str) -> None:
        payload = b'{"n":%b}' % number.encode()
        outcome = Space("alice", capabilities={"alice": ["x/y"]}).raw("alice", b'{"kind":"x/y","payload":%b}' % payload)
        assert payload in outcome.records[0].data  # type: ignore[attr-defined]

    def test_a_big_integer_survives_judgement(self) -> None:
        outcome = Space("alice").send("alice", "chat", {"text": "hi", "n": 2**100})
        assert outcome.told("chat")["n"] == 2**100

    @pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 5_000])
    def test_a_refused_number_is_named_and_correlated(self, number: str) -> None:
        message = b'{"id":"m1","kind":"x/y","payload":{"n":%b}}' % number.encode()
        refused = Space("alice", capabilities={"alice": ["x/y"]}).raw("alice", message).one(Refused)
        assert (refused.code, refused.details["field"], refused.id) == ("validation_error", "payload", "m1")
        assert "a number in payload is out of range" in refused.message

    def test_whatever_is_relayed_the_sdk_can_decode(self) -> None:
        """The largest numbers there are, in a payload that nobody here looks into."""
        numbers = ["1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "9" * 4_300, "-" + "9" * 4_299]
        relay = relayed(parse(b'{"kind":"x/y","payload":{"n":[%b]}}' % ",".join(numbers).encode()))
        message = messages.parse(relay)
        assert message is not None
        assert len(message.payload["n"]) == len(numbers)

    def test_what_was_judged_is_what_is_relayed(self) -> None:
        """Two readers of a repeated key could disagree: the judged payload is encoded anew."""
        space = Space("alice", capabilities={"alice": [{"kind": "x/y", "payload": {"tool": "read"}}]})
        twice = b'{"kind":"x/y","payload":{"tool":"%b","tool":"%b"}}'
        assert space.raw("alice", twice % (b"read", b"write")).error == "capability_violation"
        accepted = space.raw("alice", twice % (b"write", b"read"))
        assert b'"payload":{"tool":"read"}' in accepted.records[0].data  # type: ignore[attr-defined]

    def test_a_repeated_envelope_key_is_relayed_once(self) -> None:
        told = relayed(parse(b'{"kind":"system/welcome","kind":"chat","from":"bob","from":"alice"}'))
        assert told.count(b'"kind"') == told.count(b'"from"') == 1
        assert json.loads(told)["kind"] == "chat"

    def test_whatever_is_accepted_can_be_told_again(self) -> None:
        """A stream's metadata is told to every later joiner: it must not be too deep for the one who tells it."""
        state = Space("alice").state
        for depth in range(1000, 0, -1):
            try:
                envelope = parse(b'{"kind":"stream/request","payload":{"m":%b}}' % (b"[" * depth + b"]" * depth))
            except ValidationFailed:
                continue
            for record in decide(state, NOON, Send("alice", envelope)).records:
                apply(state, record)
            if state.streams:
                break

        def further_down_the_stack(frames: int) -> bytes:
            return further_down_the_stack(frames - 1) if frames else encode_json(state.welcome("bob"))

        assert b"stream-1" in further_down_the_stack(60)


class TestNames:
    @pytest.mark.parametrize("id", ["alice", "player-1", "näme", "a.b", "a b", "x" * 128])
    def test_allowed(self, id: str) -> None:
        assert flaw_in_participant_id(id, max_bytes=128) is None

    @pytest.mark.parametrize(
        "id", ["", "a#b", "a|b", "gateway", "system:gateway", "system:x", " a", "a\n", "a\x00", "x" * 129, "é" * 65]
    )
    def test_refused(self, id: str) -> None:
        """decision 24: ``|`` and ``#`` are not allowed in ids."""
        assert flaw_in_participant_id(id, max_bytes=128)

    @pytest.mark.parametrize(
        "id", ["a/b", "/", "a\\b", "..", "a..b", "../../etc/passwd", "..\\x", "a\x00b", "a\x1bb", "a\x7f", "a\u202eb"]
    )
    def test_what_leads_elsewhere_is_refused(self, id: str) -> None:
        """WIRE.md, What the reference's own tools rely on: ids with ``/``, ``\\``, ``..`` or control characters."""
        assert "invalid characters" in (flaw_in_participant_id(id, max_bytes=128) or "")

    @pytest.mark.parametrize(("alias", "valid"), [("positions", True), ("stream-x", True), ("stream-7", False)])
    def test_an_alias_never_looks_assigned(self, alias: str, valid: bool) -> None:
        """decision 12."""
        assert is_valid_alias(alias, max_bytes=128) is valid


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "micros"),
        [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t00:00:00.5z", 500_000),
            ("1970-01-01T01:00:00+01:00", 0),
            ("1970-01-01 00:00:00.123456789Z", 123_456),
            ("1970-01-01T00:00:00", None),
            ("1970-01-01", None),
            ("1970-13-01T00:00:00Z", None),
            ("1970-01-01T00:00:00Z\n", None),
            ("\uff11\uff19\uff17\uff10-01-01T00:00:00Z", None),
            ("now", None),
        ],
    )
    def test_rfc3339(self, text: str, micros: int | None) -> None:
        assert parse_rfc3339(text) == micros

    def test_texts_sort_as_times_do(self) -> None:
        assert rfc3339(0) == "1970-01-01T00:00:00.000000Z"
        assert rfc3339(5) < rfc3339(10) < rfc3339(10**6)
