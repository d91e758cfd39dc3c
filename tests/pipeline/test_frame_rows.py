"""``frames``: what is made of records, and when a payload says that it was sent. Without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from mewstream.journal.schema import SCHEMA
from mewstream.pipeline.frames import COLUMNS, frames
from mewstream.pipeline.tables import FRAMES
from mewstream.protocol import kinds
from mewstream.protocol.times import rfc3339

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = 1_700_000_000_000_000
SENT = datetime(2023, 11, 14, 22, 13, 19, tzinfo=UTC)
LATER = SENT + timedelta(milliseconds=250)


def record(
    data: bytes | None, *, seq: int = 1, kind: str = "frame", record: str = "frame", **more: Any
) -> dict[str, Any]:
    given = {"offset": seq, "space": "s", "seq": seq, "epoch": "e", "ts": NOW, "record": record, "outcome": "accepted"}
    return {**given, "kind": kind, "sender": "ann", "stream_id": "stream-1", "opcode": 1, "data": data, **more}


def made_of(*records: Row) -> list[Row]:
    batch = pa.RecordBatch.from_pylist(list(records), SCHEMA).select(COLUMNS)
    rows: list[Row] = frames(batch).to_pylist()
    return rows


def sent_at(data: bytes | None, **more: Any) -> datetime | None:
    [row] = made_of(record(data, **more))
    found: datetime | None = row["sent_at"]
    waited = None if found is None else (EPOCH + timedelta(microseconds=NOW) - found) / timedelta(milliseconds=1)
    assert row["latency_ms"] == (None if waited is None else pytest.approx(waited))
    return found


def message(content: Any, **more: Any) -> bytes:
    envelope = {"protocol": "mew/v0.4", "id": "1", "from": "ann", "kind": kinds.STREAM_DATA, **more}
    return json.dumps({**envelope, "payload": {"stream_id": "stream-1", "content": content}}).encode()


def test_the_columns_are_those_of_the_table() -> None:
    found = from_arrow_schema(frames(pa.RecordBatch.from_pylist([], SCHEMA)).schema)
    assert ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in found) == FRAMES.schema


def test_frames_only_and_as_they_were() -> None:
    rows = made_of(
        record(b"", seq=1, record="joined", kind="system/presence"),
        record(b"abc", seq=2, opcode=2, stream_seq=7, recipients=3, format_id="f"),
        record(b"{}", seq=3, record="envelope", kind="chat"),
        record(message(1), seq=4, kind=kinds.STREAM_DATA, sequence=5, gap=1),
    )
    assert [(row["seq"], row["size"], row["opcode"], row["kind"]) for row in rows] == [
        (2, 3, 2, "frame"),
        (4, len(message(1)), 1, kinds.STREAM_DATA),
    ]
    assert [(row["stream_seq"], row["recipients"], row["format_id"]) for row in rows] == [
        (7, 3, "f"),
        (None, None, None),
    ]
    assert [(row["sequence"], row["gap"]) for row in rows] == [(None, None), (5, 1)]
    assert all((row["space"], row["stream_id"], row["sender"]) == ("s", "stream-1", "ann") for row in rows)
    assert made_of(record(b"", record="left")) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"ts":1699999999000}', SENT),
        (b'{"ts":1699999999250,"x":1}', LATER),
        (b'{"ts":1699999999.25}', LATER),
        (b'{"ts":1.69999999925e12}', LATER),
        (b' \n{"sent_at" : 1699999999 }', SENT),
        (b'{"ts":"1699999999.25"}', LATER),
        (b'{"ts":"2023-11-14T22:13:19.25Z"}', LATER),
        (b'{"ts":"2023-11-14t22:13:19z"}', SENT),
        (b'{"timestamp":"2023-11-14 23:13:19+01:00","x":{"y":[1]}}', SENT),
        (b'{"x":"a \\"quoted\\" word","nested":{"ts":7},"ts":1699999999}', SENT),
        (b'{"ts":7,"timestamp":"soon","sent_at":1699999999}', SENT),
        (b'{"ts":null,"sent_at":1699999999}', SENT),
        (b'{"ts":"0001-01-01T00:00:00Z"}', datetime(1, 1, 1, tzinfo=UTC)),
        (b'{"ts":"9999-12-31T23:59:59Z"}', datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_a_payload_that_tells(data: bytes, expected: datetime) -> None:
    assert sent_at(data) == expected


@pytest.mark.parametrize(
    "data",
    [
        *(None, b"", b"x=1", b"{", b"[1699999999]", b'"ts"', b"\xff\xfe", b"{}", b'{"x":1699999999}'),
        *(b'{"ts":7}', b'{"ts":-1699999999}', b'{"ts":16999999990}', b'{"ts":1e400}', b'{"ts":' + b"9" * 5000 + b"}"),
        *(b'{"ts":true}', b'{"ts":[1699999999]}', b'{"ts":{"ts":1699999999}}', b'{"nested":{"ts":1699999999}}'),
        *(b'{"ts":"soon"}', b'{"ts":"2023-11-14"}', b'{"ts":"2023-11-14T22:13:19"}', b'{"ts":"2023-13-14T22:13:19Z"}'),
        *(b'{"ts":"1_699_999_999"}', b'{"ts":"nan"}', b'{"ts":"' + b"1" * 100 + b'"}', b'{"ts":"\\ud800"}'),
        *(b'{"ts":1699999999', b'{"ts":1699999999} more', b'{"a":' * 100_000),
    ],
)
def test_a_payload_that_does_not(data: bytes | None) -> None:
    assert sent_at(data) is None
    assert sent_at(data, kind=kinds.STREAM_DATA) is None


class TestStreamData:
    def sent_at(self, data: bytes) -> datetime | None:
        return sent_at(data, kind=kinds.STREAM_DATA)

    def test_its_content_tells(self) -> None:
        assert self.sent_at(message({"ts": 1699999999250}, ts="2023-11-14T22:00:00Z")) == LATER
        assert self.sent_at(message('{"ts":1699999999}', ts="2023-11-14T22:00:00Z")) == SENT

    @pytest.mark.parametrize("content", [None, 1, "plain", [1], {"x": 1}, '{"x":', "\U0001f408"])
    def test_or_its_own_ts(self, content: Any) -> None:
        assert self.sent_at(message(content, ts="2023-11-14T22:13:19.25Z")) == LATER

    def test_of_which_any_is_possible(self) -> None:
        assert self.sent_at(message(1, ts="0001-01-01T00:00:00Z")) == datetime(1, 1, 1, tzinfo=UTC)

    def test_which_is_not_that_of_the_gateway(self) -> None:
        assert self.sent_at(message(1, ts=rfc3339(NOW))) is None
        assert self.sent_at(message(1)) is None

    @pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"payload":1}', b'{"ts":1,"payload":{}}', b"\xff"])
    def test_no_envelope(self, data: bytes) -> None:
        """The gateway records none such; a log may hold it all the same."""
        assert self.sent_at(data) is None


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=40)), max_size=5))
def test_whatever_is_in_it(payloads: list[tuple[bool, bytes]]) -> None:
    rows = made_of(*(record(data, kind=kinds.STREAM_DATA if named else "frame") for named, data in payloads))
    assert [row["size"] for row in rows] == [len(data) for _, data in payloads]
    assert all(row["sent_at"] is None for row in rows)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ts", "sent_at", "x"]), inner),
        max_leaves=8,
    )
)
def test_whatever_json_it_is(value: Any) -> None:
    times = [value.get(key) for key in ("ts", "sent_at")] if isinstance(value, dict) else []
    [row] = made_of(record(json.dumps(value).encode()))
    if row["sent_at"] is not None:
        assert any(isinstance(each, int | float | str) and not isinstance(each, bool) for each in times)
