"""What may come over a connection that speaks HTTP, and what must be answered, case by case.

The sections follow RFC 9112 (messages), RFC 9110 (semantics) and RFC 6455 (the handshake).
"""

from __future__ import annotations

import gzip
import json
from typing import NamedTuple

from raw_socket import KEY

from support import token_of

WHO = "alice"
SECRET = token_of(WHO)
MESSAGE_BYTES = 50_000
PATH = f"/participants/{WHO}/messages"
BODY = json.dumps({"kind": "chat", "payload": {"text": "hello"}}).encode()
AUTHORIZATION = f"Authorization: Bearer {SECRET}"


#: The name in the path is another's, or none that anybody may have.
WRONG_NAME = frozenset({400, 403})


class Case(NamedTuple):
    """Bytes that are sent, and the answers in order. 101 is followed by a join, and its welcome."""

    name: str
    sent: bytes
    answers: tuple[int | frozenset[int], ...]
    ends: bool = True
    """The gateway ends the connection after the last answer; else it goes on answering."""
    waits: bool = False
    """Something is missing: the answer is that of a gateway whose patience is over."""
    hangs_up: bool = False
    """The peer sends nothing more, and says so."""


CASES: list[Case] = []


def head(line: str, *headers: str) -> bytes:
    """A head as it should be, apart from what is given."""
    return "\r\n".join([line, "Host: gateway.example", *headers, "", ""]).encode("latin-1")


def get(path: str = "/health", *headers: str) -> bytes:
    return head(f"GET {path} HTTP/1.1", *headers)


def post(*headers: str, body: bytes = b"", version: str = "HTTP/1.1") -> bytes:
    return head(f"POST {PATH} {version}", AUTHORIZATION, *headers) + body


def chunked(body: bytes, *headers: str) -> bytes:
    return post("Transfer-Encoding: chunked", *headers, body=body)


def chunk(data: bytes, size: str | None = None, extension: str = "") -> bytes:
    return f"{len(data):x}{extension}\r\n".encode() + data + b"\r\n" if size is None else size.encode() + b"\r\n" + data


def upgrade(*headers: str, line: str = "GET /ws HTTP/1.1", **changed: str | None) -> bytes:
    """A handshake; ``changed`` headers replace those of a sound one, or leave them out (None)."""
    fields: dict[str, str | None] = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
        **{name.replace("_", "-"): value for name, value in changed.items()},
    }
    return head(line, *(f"{name}: {value}" for name, value in fields.items() if value is not None), *headers)


def bad(name: str, sent: bytes, status: int = 400) -> None:
    """One answer, and the end."""
    CASES.append(Case(name, sent, (status,)))


def good(name: str, sent: bytes, *statuses: int | frozenset[int]) -> None:
    """Answered, whatever it is, and the connection goes on."""
    CASES.append(Case(name, sent, statuses or (200,), ends=False))


def slow(name: str, sent: bytes, status: int = 408) -> None:
    CASES.append(Case(name, sent, (status,), waits=True))


def cut_off(name: str, sent: bytes, *statuses: int) -> None:
    CASES.append(Case(name, sent, statuses, hangs_up=True))


# -- RFC 9112, 3: the request line ----------------------------------------------------------------

bad("line: HTTP/0.9", b"GET /health\r\n\r\n")
bad("line: no version", head("GET /health"))
bad("line: no target", head("GET HTTP/1.1"))
bad("line: empty target", head("GET  HTTP/1.1"))
bad("line: no method", head(" /health HTTP/1.1"))
bad("line: two spaces", head("GET  /health HTTP/1.1"))
bad("line: tabs", head("GET\t/health\tHTTP/1.1"))
bad("line: a space behind it", head("GET /health HTTP/1.1 "))
bad("line: a fourth word", head("GET /health HTTP/1.1 x"))
bad("line: a space in the target", head("GET /health x HTTP/1.1"))
bad("line: a token in it", head(f"GET /health?token={SECRET} HTTP/1.1 {SECRET}"))
bad("line: only a token", SECRET.encode() + b"\r\n\r\n")
for version in (
    "HTTP/1.2",
    "HTTP/2.0",
    "HTTP/0.9",
    "HTTP/3",
    "HTTP/1.10",
    "HTTP/1.",
    "HTTP/.1",
    "http/1.1",
    "HTTQ/1.1",
):
    bad(f"line: version {version}", head(f"GET /health {version}"))
bad("line: version of a letter", head("GET /health HTTP/1.x"))
CASES.append(Case("line: version HTTP/1.0", head("GET /health HTTP/1.0"), (200,)))
CASES.append(Case("line: HTTP/1.0 kept alive", head("GET /health HTTP/1.0", "Connection: keep-alive"), (200,)))
CASES.append(Case("line: HTTP/1.0 without Host", b"GET /health HTTP/1.0\r\n\r\n", (200,)))
bad("line: a method with brackets", head("GE(T /health HTTP/1.1"))
bad("line: a method with a colon", head("GET: /health HTTP/1.1"))
bad("line: a method of bytes", head("G\xc9T /health HTTP/1.1"))
good("line: an unknown method", head("BREW /health HTTP/1.1"), 405)
good("line: a method in small letters", head("get /health HTTP/1.1"), 405)
good("line: a long method", head("X" * 200 + " /health HTTP/1.1"), 405)
good("line: TRACE", head("TRACE /health HTTP/1.1", AUTHORIZATION), 405)
good("line: an empty line first", b"\r\n" + get())
good("line: some empty lines first", b"\r\n\r\n\r\n" + get())
bad("line: a line feed first", b"\n" + get())
bad("line: a carriage return first", b"\r" + get())
bad("line: a space first", b" " + get())
bad("line: a NUL first", b"\0" + get())
bad("line: longer than a head may be", head("GET /" + "x" * 17_000 + " HTTP/1.1"), 431)
bad("line: without end", b"GET /" + b"x" * 20_000, 431)

# -- other protocols ------------------------------------------------------------------------------

bad("other: HTTP/2 with prior knowledge", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
bad("other: TLS 1.3", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)))
bad("other: SSL 2.0", b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + bytes(40))
bad("other: SOCKS 5", b"\x05\x01\x00")
bad("other: PROXY protocol 1", b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 80\r\n" + get())
bad("other: PROXY protocol 2", b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12) + get())
bad("other: SMTP", b"EHLO example.org\r\n\r\n")
slow("other: SSH", b"SSH-2.0-OpenSSH_9.6\r\n")
bad("other: Redis", b"*1\r\n$4\r\nPING\r\n\r\n")
bad("other: JSON", b'{"type":"join","token":"' + SECRET.encode() + b'"}\r\n\r\n')
bad("other: a WebSocket frame", b"\x81\x85\x00\x00\x00\x00hello")
bad("other: bytes", bytes(range(255, 0, -1)))

# -- RFC 9112, 3.2: targets -----------------------------------------------------------------------

good("target: absolute", get("http://gateway.example/health"))
good("target: absolute, in capitals", get("HTTP://GATEWAY.EXAMPLE/health"))
good("target: absolute, https", get("https://elsewhere.example:8443/health"))
good("target: absolute, with a user", get("http://user:password@gateway.example/health"))
good("target: absolute, without a path", get("http://gateway.example"), 404)
good("target: absolute, with a query only", get("http://gateway.example?x"), 404)
good("target: of another scheme", get("ftp://gateway.example/health"), 404)
good("target: asterisk of OPTIONS", head("OPTIONS * HTTP/1.1"), 404)
good("target: asterisk of GET", get("*"), 404)
good("target: authority of CONNECT", head("CONNECT gateway.example:443 HTTP/1.1"), 404)
good("target: without a slash", get("health"), 404)
good("target: with a backslash", get("\\health"), 404)
good("target: two slashes", get("//health"), 404)
good("target: a slash behind it", get("/health/"), 404)
good("target: a dot", get("/./health"), 404)
good("target: two dots", get("/participants/../health"), 404)
good("target: two dots, escaped", get("/%2e%2e/%2e%2e/etc/passwd"), 404)
good("target: in capitals", get("/HEALTH"), 404)
good("target: with a parameter", get("/health;x=y"), 404)
good("target: with a fragment", get("/health#x"), 404)
good("target: with an empty query", get("/health?"))
good("target: with a strange query", get("/health?&&=&a&=b&%zz"))
good("target: escaped letters", get("/%68e%61lth"))
good("target: an escaped slash", get("/participants%2Falice%2Fmessages", AUTHORIZATION), 404)
good("target: an escaped slash in a name", get("/participants/a%2Fb/messages", AUTHORIZATION), WRONG_NAME)
good("target: an escaped NUL", get("/participants/%00/messages", AUTHORIZATION), WRONG_NAME)
good("target: an escaped line break", get("/participants/a%0d%0aX:y/messages", AUTHORIZATION), WRONG_NAME)
good("target: an empty name", get("/participants//messages", AUTHORIZATION), 404)
good("target: braces", get("/participants/{id}/messages", AUTHORIZATION), WRONG_NAME)
good("target: quotes and brackets", get("/participants/<\"'`>/messages", AUTHORIZATION), WRONG_NAME)
good("target: a long name", get(f"/participants/{'x' * 10_000}/messages", AUTHORIZATION), WRONG_NAME)
for name in ("%", "%4", "%zz", "%ff", "%c0%af", "%ed%a0%80", "%u0041"):
    bad(f"target: a bad escape {name}", get(f"/participants/{name}/messages", AUTHORIZATION))
bad("target: a query that is not UTF-8", get("/health?x=%ff"))
bad("target: a query of many fields", get("/health?" + "&".join(f"f{n}=1" for n in range(40))))
bad("target: a NUL", head("GET /health\0 HTTP/1.1"))
bad("target: DEL", head("GET /health\x7f HTTP/1.1"))
bad("target: bytes", head("GET /h\xe9alth HTTP/1.1"))
bad("target: a line feed", head("GET /health\nX: y HTTP/1.1"))

# -- RFC 9112, 5: header lines --------------------------------------------------------------------

bad("header: no Host", b"GET /health HTTP/1.1\r\n\r\n")
bad("header: two Hosts", get("/health", "Host: another.example"))
bad("header: the same Host twice", get("/health", "Host: gateway.example"))
good("header: an empty Host", b"GET /health HTTP/1.1\r\nHost:\r\n\r\n")
bad("header: a space before the colon", get("/health", "X : y"))
bad("header: a tab before the colon", get("/health", "X\t: y"))
bad("header: a token before a colon", get("/health", f"Authorization : Bearer {SECRET}"))
bad("header: no colon", get("/health", f"Authorization Bearer {SECRET}"))
bad("header: no name", get("/health", ": y"))
bad("header: a name of two words", get("/health", "X Y: z"))
bad("header: a name with brackets", get("/health", "X[0]: y"))
bad("header: a name of bytes", get("/health", "X\xe9: y"))
bad("header: a folded line", get("/health", "X: y", " z"))
bad("header: a line folded by a tab", get("/health", "X: y", "\tz"))
bad("header: a folded first line", b"GET /health HTTP/1.1\r\n Host: gateway.example\r\n\r\n")
bad("header: a folded Transfer-Encoding", post("Transfer-Encoding:", " chunked", body=b"0\r\n\r\n"))
for code in (0, 1, 8, 11, 12, 14, 27, 31, 127):
    bad(f"header: control character {code}", get("/health", f"X: a{chr(code)}b"))
bad("header: a bare line feed", get("/health", "X: y\nUpgrade: websocket"))
bad("header: a bare carriage return", get("/health", "X: y\rZ: z"))
bad("header: two carriage returns", get("/health", "X: y\r"))
bad("header: line feeds only", get().replace(b"\r\n", b"\n"))
bad("header: the last line by a line feed", get()[:-2] + b"\n")
good("header: bytes in a value", get("/health", "X: \xe9\xff\x80"))
good("header: a tab in a value", get("/health", "X:\ty\tz\t"))
good("header: an empty value", get("/health", "X:", "Y: "))
good("header: the same again and again", get("/health", *["X: y"] * 90))
good("header: every character of a name", get("/health", "!#$%&'*+-.^_`|~09azAZ: y"))
good("header: a long one", get("/health", "X: " + "y" * 15_000))
bad("header: one that is too long", get("/health", "X: " + "y" * 17_000), 431)
bad("header: a name that is too long", get("/health", "X" * 17_000 + ": y"), 431)
bad("header: many that are too long together", get("/health", *[f"X: {'y' * 1_000}"] * 17), 431)
bad("header: very many", get("/health", *["X: y"] * 1_000), 431)
bad("header: without end", get("/health", *["X: y"] * 5_000)[:-2], 431)
slow("header: no last line", get()[:-2])
slow("header: half a line", get()[:-10])
slow("header: half a name", b"GET /health HTTP/1.1\r\nHo")
cut_off("header: cut off in the request line", b"GET /hea")
cut_off("header: cut off in a line", get()[:-8])
cut_off("header: cut off before the last line", get()[:-2])
cut_off("header: nothing at all", b"")
CASES.append(Case("header: Connection: close", get("/health", "Connection: close"), (200,)))
CASES.append(Case("header: Connection: CLOSE in a list", get("/health", "Connection: x, CLOSE"), (200,)))
CASES.append(Case("header: close in a second line", get("/health", "Connection: x", "Connection: close"), (200,)))
good("header: Connection: keep-alive", get("/health", "Connection: keep-alive", "Keep-Alive: timeout=9999"))
good("header: Connection names other headers", get("/health", "Connection: Host, X, Content-Length"))
good("header: two Authorizations", get("/participants", AUTHORIZATION, AUTHORIZATION), 401)
good("header: Authorization: Basic", get("/participants", f"Authorization: Basic {SECRET}"), 401)
good("header: an empty Authorization", get("/participants", "Authorization:"), 401)
good("header: Authorization of bytes", get("/participants", "Authorization: Bearer \xff\xfe"), 401)
good("header: a wrong token", get("/participants", "Authorization: Bearer wrong"), 403)
good("header: a cookie", get("/participants", f"Cookie: token={SECRET}"), 401)
good("header: forwarded by somebody", get("/health", "X-Forwarded-For: 127.0.0.1", 'Forwarded: for="[::1]"'))
good("header: a range", get("/health", "Range: bytes=0-1"))
good("header: conditions", get("/health", "If-None-Match: *", "If-Modified-Since: x"))

# -- RFC 9112, 6: how long a body is --------------------------------------------------------------

SIZE = f"Content-Length: {len(BODY)}"
good("length: as it is", post(SIZE, body=BODY))
good("length: with zeros before it", post(f"Content-Length: 000{len(BODY)}", body=BODY))
good("length: twice the same", post(SIZE, SIZE, body=BODY))
good("length: a list of the same", post(f"{SIZE}, {len(BODY)}", body=BODY))
good("length: none, and nothing comes", post(), 400)
good("length: 0", post("Content-Length: 0"), 400)
bad("length: none, and a body comes", post(body=BODY), 400)
CASES[-1] = CASES[-1]._replace(answers=(400, 400))
bad("length: a name with an underscore", post(SIZE.replace("-", "_"), body=BODY))
CASES[-1] = CASES[-1]._replace(answers=(400, 400))
bad("length: twice, different", post(SIZE, "Content-Length: 5", body=BODY))
bad("length: a list of different ones", post(f"{SIZE}, 5", body=BODY))
for value in ("-1", "+5", "0x1f", "5 5", "five", "5.0", "5e3", "1_000", "\xb2", '"5"', "5;", "9" * 25):
    bad(f"length: {value[:8]!r}", post(f"Content-Length: {value}", body=BODY))
bad("length: empty", post("Content-Length:", body=BODY))
bad("length: more than is taken", post(f"Content-Length: {MESSAGE_BYTES + 1}", body=b"x" * (MESSAGE_BYTES + 1)), 413)
bad("length: far more than is taken", post("Content-Length: 1000000000000", body=BODY), 413)
bad("length: of a stranger", head(f"POST {PATH} HTTP/1.1", "Content-Length: 1000000"), 401)
slow("length: more than comes", post("Content-Length: 1000", body=BODY))
slow("length: nothing comes", post(SIZE))
cut_off("length: cut off", post(SIZE, body=BODY[:-1]))
cut_off("length: cut off before it", post(SIZE))
good("length: less than comes", post(SIZE, body=BODY) + get(), 200, 200)
bad("smuggling: length and chunks", post(SIZE, "Transfer-Encoding: chunked", body=BODY))
bad("smuggling: chunks and length", post("Transfer-Encoding: chunked", "Content-Length: 4", body=b"0\r\n\r\n" + get()))
bad("smuggling: chunks and length 0", post("Transfer-Encoding: chunked", "Content-Length: 0", body=b"0\r\n\r\n"))
bad("smuggling: chunks twice", post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 501)
bad("smuggling: chunks and identity", post("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), 501)
for value in (
    "identity",
    "gzip",
    "chunked, chunked",
    "gzip, chunked",
    "chunked, gzip",
    "xchunked",
    "chunked;q=1",
    "''",
):
    bad(f"smuggling: Transfer-Encoding: {value}", post(f"Transfer-Encoding: {value}", body=b"0\r\n\r\n"), 501)
bad("smuggling: an empty Transfer-Encoding", post("Transfer-Encoding:", body=b"0\r\n\r\n"), 501)
bad("smuggling: Transfer-Encoding before a colon", post("Transfer-Encoding : chunked", body=b"0\r\n\r\n"))
bad("smuggling: a vertical tab", post("Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n"))
bad("smuggling: a line feed", post("X: y\nTransfer-Encoding: chunked", body=b"0\r\n\r\n"))
bad("smuggling: chunks in HTTP/1.0", post("Transfer-Encoding: chunked", body=b"0\r\n\r\n", version="HTTP/1.0"))
good(
    "smuggling: a request in the body of GET",
    get("/health", "Content-Length: 30") + b"GET /admin HTTP/1.1\r\nX: yyyy\r\n",
)
good("smuggling: a request in a body", post(f"Content-Length: {len(get())}", body=get()), 400)
good("smuggling: chunks behind a body", post(SIZE, body=BODY) + b"\r\n" + get(), 200, 200)

# -- RFC 9112, 7.1: chunks ------------------------------------------------------------------------

END = b"0\r\n\r\n"
good("chunks: one", chunked(chunk(BODY) + END))
good("chunks: of one byte each", chunked(b"".join(chunk(BODY[n : n + 1]) for n in range(len(BODY))) + END))
good("chunks: sizes in capitals", chunked(b"%X\r\n" % len(BODY) + BODY + b"\r\n" + END))
good("chunks: sizes with zeros", chunked(b"0000%x\r\n" % len(BODY) + BODY + b"\r\n" + END))
good("chunks: Chunked", post("Transfer-Encoding:\tChunked ", body=chunk(BODY) + END))
good("chunks: extensions", chunked(chunk(BODY, extension=';name=value;quoted="a b"') + b"0;last\r\n\r\n"))
good("chunks: trailers", chunked(chunk(BODY) + b"0\r\nX: y\r\nContent-Length: 5\r\n\r\n") + get(), 200, 200)
good("chunks: a request behind them", chunked(chunk(BODY) + END) + get(), 200, 200)
good("chunks: none", chunked(END), 400)
for size in ("-5", "+5", "0x5", "g", "", "5 5", " 5", "5x", "5,5", "f" * 21, "५"):
    bad(f"chunks: size {size[:6]!r}", chunked(chunk(BODY, size=size)))
bad("chunks: a size that ends in a line feed", chunked(b"5\nhello\r\n" + END))
bad("chunks: a size that ends in a carriage return", chunked(b"5\rhello\r\n" + END))
bad("chunks: more data than the size", chunked(b"5\r\nhello world\r\n" + END))
bad("chunks: no line break behind the data", chunked(b"5\r\nhello" + END))
bad("chunks: a long extension", chunked(b"5;" + b"x" * 30_000 + b"\r\nhello\r\n" + END))
bad("chunks: a size without end", chunked(b"0" * 20_000))
bad("chunks: a NUL in a size", chunked(b"5\0\r\nhello\r\n" + END))
bad("chunks: trailers that are none", chunked(chunk(BODY) + b"0\r\nno colon\r\n\r\n"))
bad("chunks: a line feed instead of the last line", chunked(chunk(BODY) + b"0\r\n\n") + get())
bad("chunks: trailers that end in line feeds", chunked(chunk(BODY) + b"0\r\nX: y\n\n") + get())
bad("chunks: trailers that end in a line feed", chunked(chunk(BODY) + b"0\r\nX: y\n\r\n") + get())
bad("chunks: trailers with a line feed between", chunked(chunk(BODY) + b"0\r\nX: y\nZ: z\r\n\r\n") + get())
bad("chunks: a folded trailer", chunked(chunk(BODY) + b"0\r\nX: y\r\n z\r\n\r\n") + get())
bad("chunks: a folded first trailer", chunked(chunk(BODY) + b"0\r\n X: y\r\n\r\n") + get())
bad("chunks: a control character in a trailer", chunked(chunk(BODY) + b"0\r\nX: \x01\r\n\r\n") + get())
bad("chunks: a carriage return in an extension", chunked(chunk(BODY, extension=";a\rb") + END) + get())
bad("chunks: a line feed in an extension", chunked(chunk(BODY, extension=";a\nb") + END) + get())
bad("chunks: a NUL in an extension", chunked(chunk(BODY, extension=";a\0b") + END) + get())
bad("chunks: a line feed behind the last size", chunked(chunk(BODY) + b"0\n\r\n") + get())
bad("chunks: trailers without end", chunked(chunk(BODY) + b"0\r\n" + b"X: y\r\n" * 5_000))
bad("chunks: more than is taken", chunked(chunk(b"x" * 10_000) * 6 + END), 413)
bad("chunks: one that is more than is taken", chunked(b"ffffffffffff\r\n" + b"x" * (MESSAGE_BYTES + 1)), 413)
bad("chunks: one that says it is more than is taken", chunked(b"ffff\r\nx"), 413)
bad("chunks: too many", chunked(chunk(b" ") * 17_000 + END))
slow("chunks: no last one", chunked(chunk(BODY)))
slow("chunks: one that is announced and does not come", chunked(b"9000\r\nx"))
slow("chunks: no end of the trailers", chunked(chunk(BODY) + b"0\r\nX: y\r\n"))
cut_off("chunks: cut off in one", chunked(chunk(BODY)[:-10]))
cut_off("chunks: cut off between two", chunked(chunk(BODY)))
cut_off("chunks: cut off in a size", chunked(b"1"))

# -- RFC 9110, 8.4 and 10.1.1: encodings and expectations -----------------------------------------

PACKED = gzip.compress(BODY)
good("encoding: gzip", post("Content-Encoding: gzip", f"Content-Length: {len(PACKED)}", body=PACKED))
good("encoding: gzip in chunks", chunked(chunk(PACKED) + END, "Content-Encoding: gzip"))
good("encoding: gzip that is none", post("Content-Encoding: gzip", SIZE, body=BODY), 400)
good("encoding: gzip that is cut", post("Content-Encoding: gzip", "Content-Length: 20", body=PACKED[:20]), 400)
good("encoding: deflate that is none", post("Content-Encoding: deflate", SIZE, body=BODY), 400)
BOMB = gzip.compress(b" " * 20_000_000)
good("encoding: a bomb", post("Content-Encoding: gzip", f"Content-Length: {len(BOMB)}", body=BOMB), 413)
good("encoding: br", post("Content-Encoding: br", SIZE, body=BODY), 415)
good("encoding: gzip twice", post("Content-Encoding: gzip, gzip", SIZE, body=BODY), 415)
good("encoding: of no body", get("/health", "Content-Encoding: br"))
good("expect: 100-continue, and the body comes", post("Expect: 100-continue", SIZE, body=BODY), 100, 200)
good("expect: 100-Continue", post("Expect: 100-Continue", SIZE, body=BODY), 100, 200)
good("expect: 100-continue of no body", get("/health", "Expect: 100-continue"))
good("expect: something else", get("/health", "Expect: the-unexpected"), 417)
good("expect: two things", get("/health", "Expect: 100-continue", "Expect: more"), 417)
bad("expect: 100-continue of a stranger", head(f"POST {PATH} HTTP/1.1", "Expect: 100-continue", SIZE), 401)
bad("expect: 100-continue of too much", post("Expect: 100-continue", "Content-Length: 99999999"), 413)
slow("expect: 100-continue, and nothing comes", post("Expect: 100-continue", SIZE))
CASES[-1] = CASES[-1]._replace(answers=(100, 408))

# -- RFC 9112, 9.3: several requests of a connection ----------------------------------------------

good("pipeline: three", get() * 3, 200, 200, 200)
good("pipeline: fifty", get() * 50, *[200] * 50)
good(
    "pipeline: of every kind",
    get() + post(SIZE, body=BODY) + get("/x") + chunked(chunk(BODY) + END),
    200,
    200,
    404,
    200,
)
good(
    "pipeline: errors between", get("/participants") + get() + head("PUT /health HTTP/1.1") + get(), 401, 200, 405, 200
)
CASES.append(Case("pipeline: nonsense behind a request", get() + b"\x00\x01\x02", (200, 400)))
CASES.append(Case("pipeline: a bad head behind a request", get() + get("/health", "X : y") + get(), (200, 400)))
CASES.append(Case("pipeline: a request behind a bad head", get("/health", "X : y") + get(), (400,)))
CASES.append(Case("pipeline: a request behind close", get("/health", "Connection: close") + get(), (200,)))
CASES.append(Case("pipeline: a request behind HTTP/1.0", head("GET /health HTTP/1.0") + get(), (200,)))
CASES.append(Case("pipeline: a request behind too much", post("Content-Length: 99999999") + get(), (413,)))
CASES.append(Case("pipeline: a large head behind a request", get() + get("/health", "X: " + "y" * 17_000), (200, 431)))
CASES.append(Case("pipeline: half a head behind a request", get() + get()[:-2], (200, 408), waits=True))
CASES.append(Case("pipeline: half a body behind a request", get() + post(SIZE, body=BODY[:-1]), (200, 408), waits=True))
cut_off("pipeline: and nothing more", get() + post(SIZE, body=BODY) + get(), 200, 200, 200)
cut_off("pipeline: cut off in the second", get() + get()[:-3], 200)
cut_off("pipeline: cut off in the body of the second", get() + post(SIZE, body=BODY[:-3]), 200)
cut_off("pipeline: cut off in the chunks of the second", get() + chunked(chunk(BODY)), 200)

# -- RFC 6455, 4.2: upgrades ----------------------------------------------------------------------


def upgraded(name: str, sent: bytes, *before: int) -> None:
    CASES.append(Case(f"upgrade: {name}", sent, (*before, 101)))


upgraded("as it should be", upgrade())
upgraded("any path", upgrade(line="GET /any/path?x=%20&y HTTP/1.1"))
upgraded("an absolute target", upgrade(line="GET http://gateway.example/ws HTTP/1.1"))
upgraded("WEBSOCKET", upgrade(Upgrade="WEBSOCKET", Connection="UPGRADE"))
upgraded("a list of protocols", upgrade(Upgrade="websocket, h2c"))
upgraded("a list that begins with another", upgrade(Upgrade="h2c,websocket"))
upgraded("two Upgrade lines", upgrade("Upgrade: h2c"))
upgraded("keep-alive, Upgrade", upgrade(Connection="keep-alive, Upgrade"))
upgraded("Upgrade, keep-alive", upgrade(Connection="Upgrade,keep-alive"))
upgraded("two Connection lines", upgrade("Connection: keep-alive"))
upgraded("two Connection lines, the other first", upgrade("Connection: Upgrade", Connection="keep-alive"))
upgraded("a length of 0", upgrade("Content-Length: 0"))
upgraded(
    "an extension that is offered", upgrade("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits")
)
upgraded("a subprotocol", upgrade("Sec-WebSocket-Protocol: mew.v0.4"))
upgraded("a page of the same host", upgrade("Origin: http://gateway.example"))
upgraded("a body of nothing expected", upgrade("Expect: 100-continue"))
upgraded("many headers", upgrade(*["X: y"] * 90))
upgraded("behind a request", get() + upgrade(), 200)
upgraded("behind a body", post(SIZE, body=BODY) + upgrade(), 200)
upgraded("behind chunks", chunked(chunk(BODY) + END) + upgrade(), 200)
upgraded("behind a refused request", get("/participants") + upgrade(), 401)
upgraded("behind HEAD", head("HEAD /nowhere HTTP/1.1") + upgrade(), 404)
upgraded("behind an offer of another protocol", get("/health", "Upgrade: h2c", "Connection: Upgrade") + upgrade(), 200)
for version in ("0", "7", "8", "12", "14", "99", "-13", "13.0", "x", "13, 8", "8, 13", '"13"'):
    bad(f"upgrade: version {version}", upgrade(Sec_WebSocket_Version=version), 426)
bad("upgrade: no version", upgrade(Sec_WebSocket_Version=None), 426)
bad("upgrade: an empty version", upgrade(Sec_WebSocket_Version=""), 426)
bad("upgrade: two versions", upgrade("Sec-WebSocket-Version: 13"), 426)
for key in (
    "",
    "x",
    "c2hvcnQ=",
    KEY[:-1],
    KEY[:-2],
    KEY + KEY,
    "*" * 24,
    "A" * 24,
    KEY.replace("=", "-"),
    f"{KEY[:12]} {KEY[12:]}",
):
    bad(f"upgrade: key {key[:26]!r}", upgrade(Sec_WebSocket_Key=key))
bad("upgrade: no key", upgrade(Sec_WebSocket_Key=None))
bad("upgrade: two keys", upgrade(f"Sec-WebSocket-Key: {KEY}"))
bad("upgrade: no Connection", upgrade(Connection=None))
bad("upgrade: Connection: close", upgrade(Connection="close"))
bad("upgrade: Connection: keep-alive", upgrade(Connection="keep-alive"))
bad("upgrade: Connection: upgrades", upgrade(Connection="upgrades"))
good("upgrade: no Upgrade", upgrade(Upgrade=None), 404)
good("upgrade: another protocol", upgrade(Upgrade="h2c"), 404)
good("upgrade: websockets", upgrade(Upgrade="websockets"), 404)
for method in ("POST", "HEAD", "PUT", "OPTIONS", "CONNECT", "get"):
    bad(f"upgrade: {method}", upgrade(line=f"{method} /ws HTTP/1.1"), 405)
bad("upgrade: HTTP/1.0", upgrade(line="GET /ws HTTP/1.0"))
bad("upgrade: a body", upgrade("Content-Length: 5") + b"hello")
bad("upgrade: a body in chunks", upgrade("Transfer-Encoding: chunked") + END)
bad("upgrade: a body that is announced", upgrade("Content-Length: 5", "Expect: 100-continue"))
bad("upgrade: Authorization: Basic", upgrade(f"Authorization: Basic {SECRET}"), 401)
bad("upgrade: two Authorizations", upgrade(AUTHORIZATION, AUTHORIZATION), 401)
bad("upgrade: two tokens", upgrade(f"Sec-WebSocket-Protocol: mew.v0.4, {SECRET}, another"), 401)
bad("upgrade: different tokens", upgrade(AUTHORIZATION, "Sec-WebSocket-Protocol: mew.v0.4, another"), 401)
bad("upgrade: a bad escape", upgrade(line="GET /ws?space=%ff HTTP/1.1"))
bad("upgrade: a large head", upgrade(f"X: {'y' * 17_000}"), 431)
bad("upgrade: a folded line", upgrade("X: y", " z"))
CASES.append(Case("upgrade: a request behind a refused one", upgrade(Sec_WebSocket_Version="8") + get(), (426,)))
slow("upgrade: half a head", upgrade()[:-2])
cut_off("upgrade: cut off", upgrade()[:-2])
