"""Bytes into requests, without a socket: the same requests however the bytes are cut."""

from __future__ import annotations

import itertools

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mewstream.gateway.http_chunks import MAX_CHUNKS, MAX_LINE_BYTES, BodyTooLarge, ChunkedBody
from mewstream.gateway.http_message import BadRequest, Request
from mewstream.gateway.http_parser import MAX_HEAD_BYTES, RequestParser

MOST = 10_000
Parsed = tuple[str, tuple[str, ...], dict[str, str], bytes]

GET = b"GET /a/b%2Fc?x=1&x=2&y HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"PUT /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2 \r\nde\r\n0\r\nT: x\r\n\r\n"
)


def parse(pieces: list[bytes]) -> list[Parsed | str]:
    """Every request, in the way in which a connection asks for them; the last entry may be an error."""
    parser = RequestParser()
    found: list[Parsed | str] = []
    request: Request | None = None
    for piece in pieces:
        parser.feed(piece)
        try:
            while True:
                if request is None:
                    request = None if parser.is_empty else parser.next_request()
                    if request is None:
                        break
                body = parser.body(MOST)
                if body is None:
                    if parser.has_more:
                        continue
                    break
                found.append((request.method, request.path, request.query, body))
                request = None
        except BadRequest as bad:
            return [*found, f"bad {bad.status}"]
        except BodyTooLarge:
            return [*found, "too large"]
    return found


def test_what_is_parsed() -> None:
    assert parse([GET + POST + CHUNKED + b"\r\n" + GET]) == [
        ("GET", ("a", "b/c"), {"x": "1", "y": ""}, b""),
        ("POST", ("p",), {}, b"hello"),
        ("PUT", ("c",), {}, b"abcde"),
        ("GET", ("a", "b/c"), {"x": "1", "y": ""}, b""),
    ]


_HEADERS = st.lists(
    st.sampled_from(
        [
            b"Host: h",
            b"Content-Length: 3",
            b"Content-Length: 0",
            b"Content-Length: 03",
            b"Content-Length: 3, 3",
            b"Content-Length: -1",
            b"Content-Length: 20000",
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: gzip, chunked",
            b"Connection: close",
            b"Expect: 100-continue",
            b"X:",
            b"X: \x80\xff",
            b" folded",
            b"Bad Name: x",
            b"X: a\nb",
            b"X: \x01",
            b"no colon",
            b"Y: " + b"y" * MAX_HEAD_BYTES,
        ]
    ),
    max_size=4,
)
_HEADS = st.builds(
    lambda line, headers: b"\r\n".join([line, b"Host: h", *headers, b"", b""]),
    st.sampled_from([b"GET / HTTP/1.1", b"POST /x HTTP/1.1", b"GET / HTTP/1.0", b"GET / HTTP/3.0", b"GET /", b"{}"]),
    _HEADERS,
)
_BODIES = st.sampled_from([b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"0\r\n\r\n", b"zz\r\n", b"\r\n", b"\x00\x01"])
_STREAMS = st.lists(st.one_of(st.tuples(_HEADS, _BODIES).map(b"".join), st.binary(max_size=20)), max_size=5).map(
    b"".join
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


class TestAnyCut:
    @settings(max_examples=400, deadline=None)
    @given(data=_STREAMS, places=st.lists(st.integers(0, 1 << 16), max_size=12))
    @example(data=GET + POST + CHUNKED, places=list(range(200)))
    def test_gives_the_same_requests(self, data: bytes, places: list[int]) -> None:
        whole, pieces = parse([data]), parse(cut(data, places))
        # An error may be seen earlier, in what is not complete yet; what came before it is the same.
        assert [each for each in whole if not isinstance(each, str)] == [
            each for each in pieces if not isinstance(each, str)
        ]
        assert [str(each)[:3] for each in whole if isinstance(each, str)] == [
            str(each)[:3] for each in pieces if isinstance(each, str)
        ]

    @settings(max_examples=300, deadline=None)
    @given(data=st.binary(max_size=300))
    def test_of_anything_raises_nothing_else(self, data: bytes) -> None:
        parse([data])


class TestHeads:
    @pytest.mark.parametrize("size", [MAX_HEAD_BYTES - 100, MAX_HEAD_BYTES + 100, 10 * MAX_HEAD_BYTES])
    @pytest.mark.parametrize("is_complete", [True, False])
    def test_have_a_largest_size(self, size: int, is_complete: bool) -> None:
        head = b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * (size - 33) + b"\r\n\r\n"
        expected: list[object] = ["bad 431"] if size > MAX_HEAD_BYTES else [("GET", ("",), {}, b"")] * is_complete
        assert parse([head if is_complete else head[:-4]]) == expected

    @pytest.mark.parametrize(
        "rest",
        [b"GET / HTTP/1.1\r\nA: b\r\n", b"\x16\x03", b"GET / HTTP/1.1\nHost: x\n\n", b"\nGET", b"\rGET"],
    )
    def test_what_cannot_become_one_is_not_waited_for(self, rest: bytes) -> None:
        assert parse([rest]) == ([] if rest.startswith(b"GET / HTTP/1.1\r") else ["bad 400"])

    def test_empty_lines_before_one_are_passed_over(self) -> None:
        parser = RequestParser()
        parser.feed(b"\r\n" * 1_000 + b"\r")
        assert parser.next_request() is None
        parser.feed(b"\nGET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert parser.next_request() is not None


class TestChunks:
    HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    LINES = st.sampled_from(
        [
            b"0",
            b"3",
            b"003",
            b"3;x=y",
            b"3 ;x",
            b"3\t",
            b"g",
            b"3\r",
            b"0;\n",
            b"X: y",
            b"X : y",
            b" z",
            b"\x00",
            b"",
            b"abc",
        ]
    )
    ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b""])

    @settings(max_examples=600, deadline=None)
    @given(lines=st.lists(st.tuples(LINES, ENDS).map(b"".join), max_size=9), has_end=st.booleans())
    @example(lines=[b"3\r\n", b"abc\r\n", b"0\r\n", b"X: y\r\n"], has_end=True)
    @example(lines=[b"0\r\n", b"\n"], has_end=False)
    @example(lines=[b"3", b"3 ;x\r\n"], has_end=False)
    @example(lines=[b"3", b"3\r\n", b"3\t\r\n", b"\n", b"0\r\n"], has_end=False)
    def test_what_is_taken_h11_would_take_for_the_same(self, lines: list[bytes], has_end: bool) -> None:
        """We are stricter than a parser that many use, and never of another opinion."""
        data = b"".join(lines) + b"\r\n" * has_end + GET
        received = bytearray(data)
        try:
            body = ChunkedBody().read(received, MOST)
        except (BadRequest, BodyTooLarge):
            return
        other = h11.Connection(h11.SERVER)
        other.receive_data(self.HEAD + data)
        events = [other.next_event()]
        while type(events[-1]) in (h11.Request, h11.Data):
            events.append(other.next_event())
        if body is None:
            assert events[-1] is h11.NEED_DATA
        else:
            assert type(events[-1]) is h11.EndOfMessage
            assert b"".join(bytes(each.data) for each in events if isinstance(each, h11.Data)) == body
            assert other.trailing_data[0] == received

    def test_others_have_their_turn_between_small_ones(self) -> None:
        parser = RequestParser()
        parser.feed(self.HEAD + b"1\r\nx\r\n" * 5_000 + b"0\r\n\r\n")
        assert parser.next_request() is not None
        turns = 0
        while (body := parser.body(MOST)) is None:
            assert parser.has_more
            turns += 1
        assert body == b"x" * 5_000
        assert turns > 5

    def test_there_may_not_be_too_many(self) -> None:
        assert parse([self.HEAD + b"1\r\nx\r\n" * 8_000 + b"0\r\n\r\n"]) == [("POST", ("",), {}, b"x" * 8_000)]
        parser = RequestParser()
        parser.feed(self.HEAD + b"1\r\nx\r\n" * (MAX_CHUNKS + 1))
        parser.next_request()
        with pytest.raises(BadRequest):
            while parser.body(1 << 20) is None:
                pass

    def test_a_line_of_them_has_a_largest_size(self) -> None:
        assert parse([self.HEAD + b"1;" + b"x" * MAX_LINE_BYTES]) == ["bad 400"]
