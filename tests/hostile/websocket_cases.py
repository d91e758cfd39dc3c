"""What a peer may send over a WebSocket, and what must come back, case by case.

The sections follow RFC 6455, in the manner of the Autobahn test suite.
"""

from __future__ import annotations

import struct
import zlib

from raw_socket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Frame
from websocket_case import (
    CASES,
    HEAD,
    INVALID,
    JOIN,
    LIMIT,
    MASK,
    TOO_LARGE,
    Case,
    Chat,
    HangUp,
    Refusal,
    Welcome,
    broken,
    chat,
    closed,
    closing,
    each_byte,
    echo,
    fine,
    fragments,
    frame,
    lost,
    pong,
    refused,
    stranger,
    written,
)

STRANGER_LIMIT = 64 << 10

# -- 5.2: lengths and masks -----------------------------------------------------------------------

for kind, opcode in (("text", TEXT), ("binary", BINARY)):
    for size in (0, 1, 115, 116, 117, 118, 240, 65_525, 65_526, 65_527, 65_600, LIMIT - len(HEAD)):
        data = b"x" * size
        fine(f"length: {kind} of {size + len(HEAD)} bytes", written(data, opcode), echo(data, opcode))
    fine(f"length: an empty {kind}", frame(opcode), INVALID)
    fine(f"length: {kind} of a byte", frame(opcode, "#"), INVALID)
    too_much = HEAD.ljust(LIMIT + 1, b"x")
    refused(f"length: {kind} that is a byte too long", frame(opcode, too_much), 1009, TOO_LARGE)
    broken(f"length: {kind} that says it is far too long", frame(opcode, "x", claim=2 * LIMIT + 1), code=1009)
for size in (0, 1, 5, 125):
    data = bytes(size)
    long_form = MASK + frame(BINARY, data, mask=MASK)[6:]
    broken(f"length: {size} in two bytes", struct.pack("!BBH", 0x82, 0xFE, size) + long_form)
for size in (0, 125, 126, 127, 65_535):
    broken(f"length: {size} in eight bytes", struct.pack("!BBQ", 0x82, 0xFF, size) + MASK + bytes(size))
for claim in (1 << 32, 1 << 40, (1 << 63) - 1):
    broken(f"length: {claim} that never come", frame(BINARY, "x", claim=claim), code=1009)
for claim in (1 << 63, (1 << 63) + 5, (1 << 64) - 1):
    broken(f"length: {claim}, which is negative", frame(BINARY, "x", claim=claim))
for mask in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\0\0\0", b"####", HEAD[:4]):
    fine(f"mask: {mask.hex()}", frame(TEXT, HEAD + b"masked", mask=mask), echo("masked"))
fine(
    "mask: another for each",
    b"".join(frame(TEXT, HEAD + b"%d" % n, mask=bytes([n] * 4)) for n in range(20)),
    *(echo(str(n)) for n in range(20)),
)
for name, unmasked in {
    "text": frame(TEXT, HEAD + b"x", masked=False),
    "binary": frame(BINARY, HEAD + b"x", masked=False),
    "an empty text": frame(TEXT, masked=False),
    "a long text": frame(TEXT, HEAD + b"x" * 200, masked=False),
    "a very long text": frame(TEXT, HEAD + b"x" * 70_000, masked=False),
    "a ping": frame(PING, "x", masked=False),
    "a pong": frame(PONG, masked=False),
    "a close": frame(CLOSE, b"\x03\xe8", masked=False),
    "an empty close": frame(CLOSE, masked=False),
    "a first fragment": frame(TEXT, HEAD, fin=False, masked=False),
    "a second fragment": frame(TEXT, HEAD, fin=False) + frame(CONTINUATION, "x", masked=False),
}.items():
    broken(f"unmasked: {name}", unmasked)
broken("unmasked: behind a message", written("good") + frame(TEXT, HEAD + b"bad", masked=False), echo("good"))

# -- 5.2: reserved bits ---------------------------------------------------------------------------

for bits in range(1, 8):
    refused(f"reserved bits: {bits:03b} in a text", frame(TEXT, HEAD + b"x", rsv=bits), 1002, INVALID)
    refused(f"reserved bits: {bits:03b} in a binary", frame(BINARY, HEAD + b"x", rsv=bits), 1002, INVALID)
for bits in (1, 2, 4):
    refused(f"reserved bits: {bits:03b} in a ping", frame(PING, "x", rsv=bits), 1002, INVALID)
    refused(f"reserved bits: {bits:03b} in a pong", frame(PONG, rsv=bits), 1002, INVALID)
    refused(f"reserved bits: {bits:03b} in a close", frame(CLOSE, b"\x03\xe8", rsv=bits), 1002, INVALID)
    refused(f"reserved bits: {bits:03b} in a first fragment", frame(TEXT, HEAD, fin=False, rsv=bits), 1002, INVALID)
    refused(
        f"reserved bits: {bits:03b} in a second fragment",
        frame(TEXT, HEAD, fin=False) + frame(CONTINUATION, "x", rsv=bits),
        1002,
        INVALID,
    )
refused(
    "reserved bits: behind a message",
    written("good") + frame(TEXT, HEAD + b"bad", rsv=4) + frame(PING),
    1002,
    echo("good"),
    INVALID,
)
refused(
    "reserved bits: amid messages for the same stream",
    written("1") + written("2") + frame(TEXT, HEAD + b"3", rsv=4) + written("4"),
    1002,
    echo("1"),
    echo("2"),
    INVALID,
)

# -- 5.2: reserved opcodes ------------------------------------------------------------------------

for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
    broken(f"opcode: {opcode}", frame(opcode))
    broken(f"opcode: {opcode} with a payload", frame(opcode, HEAD + b"x") + frame(PING))
    broken(f"opcode: {opcode} behind a message", written("good") + frame(opcode, "x") + written("bad"), echo("good"))
broken("opcode: 3 that goes on", frame(3, "x", fin=False))
broken("opcode: 3 between fragments", frame(TEXT, HEAD, fin=False) + frame(3) + frame(CONTINUATION, "x"))
broken("opcode: 11 between fragments", frame(TEXT, HEAD, fin=False) + frame(11) + frame(CONTINUATION, "x"))
broken("opcode: HTTP instead of a frame", b"GET /health HTTP/1.1\r\nHost: gateway.example\r\n\r\n")

# -- 5.5.2, 5.5.3: pings and pongs ----------------------------------------------------------------

for size in (0, 1, 4, 124, 125):
    data = bytes(range(256))[-size:] if size else b""
    fine(f"ping: {size} bytes", frame(PING, data), pong(data))
    fine(f"pong: {size} bytes that nobody asked for", frame(PONG, data))
for opcode, name in ((PING, "ping"), (PONG, "pong")):
    for size in (126, 127, 65_535, 65_536):
        broken(f"{name}: of {size} bytes", frame(opcode, bytes(size)))
    broken(f"{name}: in fragments", frame(opcode, "x", fin=False))
    broken(f"{name}: in fragments, and their end", frame(opcode, "x", fin=False) + frame(CONTINUATION, "y"))
    broken(f"{name}: of 5 bytes in two bytes of length", struct.pack("!BBH", 0x80 | opcode, 0xFE, 5) + MASK + b"hello")
    broken(f"{name}: of 2^63 bytes", frame(opcode, claim=(1 << 63) - 1))
fine("ping: ten", b"".join(frame(PING, str(n)) for n in range(10)), *(pong(str(n)) for n in range(10)))
fine("ping: a thousand", b"".join(frame(PING, str(n)) for n in range(1_000)), *(pong(str(n)) for n in range(1_000)))
fine("ping: between messages", written("1") + frame(PING, "p") + written("2"), echo("1"), pong("p"), echo("2"))
fine("ping: that looks like a message", frame(PING, HEAD + b"x"), pong(HEAD + b"x"))
fine("pong: a thousand that nobody asked for", frame(PONG, "x") * 1_000)
fine("pong: and then a ping", frame(PONG, "unasked") + frame(PING, "asked"), pong("asked"))
fine("pong: between messages", written("1") + frame(PONG) + written("2"), echo("1"), echo("2"))

# -- 5.4: fragments -------------------------------------------------------------------------------

for kind, opcode in (("text", TEXT), ("binary", BINARY)):
    whole = HEAD + b"in pieces"
    told = echo("in pieces", opcode)
    fine(f"fragments: {kind} in two", fragments(opcode, [whole[:12], whole[12:]]), told)
    fine(f"fragments: {kind} byte by byte", fragments(opcode, each_byte(whole)), told)
    fine(f"fragments: {kind}, of which the first is empty", fragments(opcode, [b"", whole]), told)
    fine(f"fragments: {kind}, of which the last is empty", fragments(opcode, [whole, b""]), told)
    fine(f"fragments: {kind}, of which many are empty", fragments(opcode, [b"", *[b""] * 500, whole, b""]), told)
    fine(f"fragments: {kind}, all of them empty", fragments(opcode, [b"", b"", b""]), INVALID)
    fine(
        f"fragments: {kind} with a ping between",
        fragments(opcode, [whole[:5], whole[5:]], between=frame(PING, "p")),
        pong("p"),
        told,
    )
    fine(
        f"fragments: {kind} with pings and pongs between all of them",
        fragments(opcode, each_byte(whole), between=frame(PING, "p") + frame(PONG, "q")),
        *[pong("p")] * (len(whole) - 1),
        told,
    )
    fine(
        f"fragments: {kind}, two messages one after another",
        fragments(opcode, [whole[:3], whole[3:]]) * 2,
        told,
        told,
    )
    fine(
        f"fragments: {kind} between whole messages",
        written("1", opcode) + fragments(opcode, [whole[:3], whole[3:]]) + written("2", opcode),
        echo("1", opcode),
        told,
        echo("2", opcode),
    )
    limit = HEAD.ljust(LIMIT, b"x")
    fine(
        f"fragments: {kind} of all that is taken",
        fragments(opcode, [limit[n : n + 1_000] for n in range(0, LIMIT, 1_000)]),
        Frame(opcode, limit),
    )
    refused(
        f"fragments: {kind} of a byte more than is taken",
        fragments(opcode, [*(limit[n : n + 1_000] for n in range(0, LIMIT, 1_000)), b"x"]),
        1009,
        TOO_LARGE,
    )
    refused(f"fragments: {kind} inside a text", frame(TEXT, HEAD, fin=False) + frame(opcode, HEAD), 1002, INVALID)
    refused(
        f"fragments: {kind} inside a binary, in fragments",
        frame(BINARY, HEAD, fin=False) + frame(opcode, HEAD, fin=False),
        1002,
        INVALID,
    )
    refused(
        f"fragments: {kind} inside one for the same stream",
        written("1", opcode) + frame(opcode, HEAD + b"2", fin=False) + written("3", opcode),
        1002,
        echo("1", opcode),
        INVALID,
    )
    closed(
        f"fragments: {kind} with a close between",
        fragments(opcode, [whole[:5], whole[5:]], between=closing(1000)),
        1000,
    )
refused("fragments: a continuation of nothing", frame(CONTINUATION, HEAD + b"x"), 1002, INVALID)
refused("fragments: a continuation of nothing that goes on", frame(CONTINUATION, HEAD, fin=False), 1002, INVALID)
refused("fragments: an empty continuation of nothing", frame(CONTINUATION), 1002, INVALID)
refused("fragments: a continuation behind a message", written("1") + frame(CONTINUATION, "2"), 1002, echo("1"), INVALID)
refused(
    "fragments: a continuation behind the last one",
    fragments(TEXT, [HEAD, b"x"]) + frame(CONTINUATION, "y"),
    1002,
    echo("x"),
    INVALID,
)
refused(
    "fragments: eight of nothing, and a message",
    frame(CONTINUATION, "x", fin=False) * 8 + written("late"),
    1002,
    INVALID,
)
fine("fragments: cut in the name of the stream", fragments(TEXT, [HEAD[:4], HEAD[4:] + b"x"]), echo("x"))
fine("fragments: of an envelope", fragments(TEXT, each_byte(chat("in pieces"))), Chat("in pieces"))
fine("fragments: of a binary envelope", fragments(BINARY, each_byte(chat("in pieces"))), Chat("in pieces"))

# -- 8.1: text is UTF-8 ---------------------------------------------------------------------------

VALID = {
    "words": "κόσμε",
    "languages": "Größe, 日本語, العربية, 🙂 and e\u0301",
    "the first of one byte": "\0",
    "the last of one byte": "\x7f",
    "the first of two bytes": "\x80",
    "the last of two bytes": "\u07ff",
    "the first of three bytes": "\u0800",
    "the last of three bytes": "\uffff",
    "the first of four bytes": "\U00010000",
    "the last of all": "\U0010ffff",
    "before the surrogates": "\ud7ff",
    "behind the surrogates": "\ue000",
    "the replacement": "\ufffd",
    "no characters": "\ufffe\ufdd0\ufdef\U0001fffe\U0002ffff\U000fffff",
    "a byte order mark": "\ufeffx",
}
for name, words in VALID.items():
    data = words.encode()
    fine(f"UTF-8: {name}", written(data), echo(data))
    fine(f"UTF-8: {name}, byte by byte", fragments(TEXT, [HEAD, *each_byte(data)]), echo(data))
for place in range(1, 4):
    data = "🙂".encode()
    fine(f"UTF-8: cut after {place} bytes of four", fragments(TEXT, [HEAD + data[:place], data[place:]]), echo(data))
fine(
    "UTF-8: cut within a character, with a ping between",
    fragments(TEXT, [HEAD + b"\xf0\x9f", b"\x99\x82"], between=frame(PING, b"\xff")),
    pong(b"\xff"),
    echo("🙂"),
)
fine("UTF-8: an envelope cut within a character", fragments(TEXT, each_byte(chat("€"))), Chat("€"))
NOT_TEXT = {
    "the first continuation alone": b"\x80",
    "the last continuation alone": b"\xbf",
    "all continuations": bytes(range(0x80, 0xC0)),
    "the first of two alone": b"\xc2",
    "the first of two and a space": b"\xdf ",
    "the first of three alone": b"\xe0",
    "two of three": b"\xe2\x82",
    "two of three and a space": b"\xef\xbf ",
    "three of four": b"\xf0\x9f\x99",
    "three of four and a letter": b"\xf4\x8f\xbfx",
    "0xfe": b"\xfe",
    "0xff": b"\xff",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "six bytes": b"\xfc\x84\x80\x80\x80\x80",
    "a slash in two bytes": b"\xc0\xaf",
    "a slash in three bytes": b"\xe0\x80\xaf",
    "a slash in four bytes": b"\xf0\x80\x80\xaf",
    "NUL in two bytes": b"\xc0\x80",
    "two bytes that should be one": b"\xc1\xbf",
    "three bytes that should be two": b"\xe0\x9f\xbf",
    "four bytes that should be three": b"\xf0\x8f\xbf\xbf",
    "the first surrogate": b"\xed\xa0\x80",
    "the last surrogate": b"\xed\xbf\xbf",
    "a pair of surrogates": b"\xed\xa0\xbd\xed\xb9\x82",
    "one beyond the last of all": b"\xf4\x90\x80\x80",
    "far beyond the last of all": b"\xf7\xbf\xbf\xbf",
    "Latin-1": "Größe".encode("latin-1"),
    "a good word first": "κόσμε".encode() + b"\xed\xa0\x80edited",
    "much that is good first": b"x" * 5_000 + b"\xc0",
}
for name, data in NOT_TEXT.items():
    refused(f"UTF-8: not text: {name}", written(data), 1007, INVALID)
    parts = [HEAD, *each_byte(data)] if len(data) < 100 else [HEAD, data[:2_000], data[2_000:]]
    refused(f"UTF-8: not text in fragments: {name}", fragments(TEXT, parts), 1007, INVALID)
    fine(f"UTF-8: binary may have it: {name}", written(data, BINARY), echo(data, BINARY))
for name, data in {"0xff": b"\xff", "a surrogate": b"\xed\xa0", "too long a form": b"\xc0"}.items():
    refused(
        f"UTF-8: no need to wait for the end: {name}", fragments(TEXT, [HEAD, data, b"x"], ends=False), 1007, INVALID
    )
refused(
    "UTF-8: a character that is cut, and then a ping and the end",
    fragments(TEXT, [HEAD + b"\xe2\x82", b""], between=frame(PING, "p")),
    1007,
    pong("p"),
    INVALID,
)
refused("UTF-8: not text behind a message", written("good") + written(b"\xff"), 1007, echo("good"), INVALID)
refused("UTF-8: not text before a message", written(b"\xff") + written("late"), 1007, INVALID)
refused("UTF-8: an envelope that is not text", frame(TEXT, chat("x")[:-4] + b"\xff" + b'"}}'), 1007, INVALID)

# -- 5.5.1, 7: closing ----------------------------------------------------------------------------

closed("close: without a code", closing(None), None, 1000)
for code in (1000, 1001, 1002, 1003, *range(1007, 1015), 3000, 3999, 4000, 4999):
    closed(f"close: {code}", closing(code), code)
for code in (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 9999, 65_535):
    closed(f"close: {code}, which may not be sent", closing(code, "why"), 1002, is_cut=True)
closed("close: half a code", frame(CLOSE, b"\x03"), 1002, is_cut=True)
closed("close: with a reason", closing(1000, "done"), 1000)
closed("close: with a reason of 123 bytes", closing(1000, "x" * 123), 1000)
closed("close: with a reason of many letters", closing(1000, "κόσμε 🙂"), 1000)
broken("close: of 126 bytes", closing(1000, "x" * 124))
broken("close: of 65,536 bytes", closing(1000, bytes(65_534)))
broken("close: in fragments", frame(CLOSE, b"\x03\xe8", fin=False))
for name, reason in {"0xff": b"\xff", "a cut character": b"\xe2\x82", "a surrogate": b"\xed\xa0\x80"}.items():
    closed(f"close: a reason that is not text: {name}", closing(1000, reason), 1007, is_cut=True)
closed("close: behind a message", written("last") + closing(), 1000, told=(echo("last"),))
closed("close: behind half a message", frame(TEXT, HEAD, fin=False) + closing(), 1000)
closed("close: behind a ping", frame(PING, "p") + closing(), 1000, told=(pong("p"),))
closed("after a close: a message", closing() + written("late"), 1000)
closed("after a close: an envelope", closing() + frame(TEXT, chat("late")), 1000)
closed("after a close: a ping", closing() + frame(PING, "late"), 1000)
closed("after a close: a join", closing() + frame(TEXT, JOIN), 1000)
closed("after a close: many messages", closing() + written("x" * 1_000) * 60, 1000)
closed("after a close: half a frame", closing() + written("late")[:7], 1000)
# Two of them, or what is no frame, in one piece: the parser finds fault before the first is answered.
closed("after a close: another", closing() + closing(), 1000, 1002, is_cut=True)
closed("after a close: another code", closing(1000) + closing(1001), 1000, 1002, is_cut=True)
closed("after a close: a reserved opcode", closing() + frame(3), 1000, 1002, is_cut=True)
closed("after a close: a ping and a reserved opcode", closing() + frame(PING) + frame(3), 1000)
closed("after a close: a ping and another", closing() + frame(PING) + closing(1001), 1000)
closed("after a close: an unmasked frame", closing() + frame(TEXT, masked=False), 1000, 1002, is_cut=True)
for name, rest in {
    "a message": written("late"),
    "a close": closing(1001),
    "two closes": closing() * 2,
    "a ping": frame(PING, "late"),
    "a reserved opcode": frame(3),
    "a ping and an unmasked frame": frame(PING) + frame(TEXT, HEAD, masked=False),
    "a message that is far too long": written("late") + frame(BINARY, claim=1 << 40),
    "what is not text": written(b"\xfe"),
    "a megabyte": bytes(1 << 20),
}.items():
    refused(f"after the gateway's close: {name}", frame(TEXT, HEAD + b"x", rsv=4) + frame(PING) + rest, 1002, INVALID)
    broken(f"after the parser's close: {name}", frame(5) + rest)

# -- 9: extensions that nobody agreed on ----------------------------------------------------------


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


for offer in (
    "permessage-deflate",
    "permessage-deflate; client_max_window_bits",
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover, permessage-deflate",
    "permessage-deflate; client_max_window_bits=99",
    "x-webkit-deflate-frame",
    "permessage-bzip2, permessage-snappy",
    "unknown; a=b; c",
):
    CASES.append(Case(f"extension: {offer}", written("plain"), (echo("plain"),), offers=offer))
PACKED = frame(TEXT, deflated(HEAD + b"packed"), rsv=4)
for name, sent in {
    "a compressed text": PACKED,
    "a compressed binary": frame(BINARY, deflated(HEAD + b"packed"), rsv=4),
    "a compressed text in fragments": frame(TEXT, deflated(HEAD), fin=False, rsv=4) + frame(CONTINUATION, "x"),
    "a bomb": frame(TEXT, deflated(bytes(10_000_000)), rsv=4),
}.items():
    CASES.append(Case(f"extension: {name}", sent, (INVALID,), frozenset({1002}), offers="permessage-deflate"))

# -- streams and envelopes ------------------------------------------------------------------------

fine("message: text stays text", written("#a#b#"), echo("#a#b#"))
fine("message: binary stays binary", written(bytes(range(256)), BINARY), echo(bytes(range(256)), BINARY))
fine(
    "message: one after another",
    written("1") + written("2", BINARY) + written("3"),
    echo("1"),
    echo("2", BINARY),
    echo("3"),
)
fine("message: a hundred", b"".join(written(str(n)) for n in range(100)), *(echo(str(n)) for n in range(100)))
fine("message: for another stream", frame(TEXT, "#nowhere#x"), Refusal("stream_not_found"))
fine("message: for a stream without a name", frame(TEXT, "##x"), INVALID)
fine("message: a chat", frame(TEXT, chat("hello")), Chat("hello"))
fine("message: a binary chat", frame(BINARY, chat("hello")), Chat("hello"))
fine("message: chats and frames in turn", (frame(TEXT, chat("a")) + written("b")) * 5, *[Chat("a"), echo("b")] * 5)
fine("message: no JSON", frame(TEXT, "hello"), INVALID)
fine("message: a join that says the same", frame(TEXT, JOIN) + written("still here"), echo("still here"))

# -- before a join --------------------------------------------------------------------------------

stranger("stranger: a join", frame(TEXT, JOIN), None, Welcome())
stranger("stranger: a binary join", frame(BINARY, JOIN), None, Welcome())
stranger("stranger: a join byte by byte", fragments(TEXT, each_byte(JOIN)), None, Welcome())
stranger(
    "stranger: a join with pings between",
    fragments(TEXT, [JOIN[:9], JOIN[9:]], between=frame(PING, "p") + frame(PONG)),
    None,
    pong("p"),
    Welcome(),
)
stranger("stranger: a join and a message", frame(TEXT, JOIN) + written("x"), None, Welcome(), echo("x"))
stranger("stranger: a join and a broken frame", frame(TEXT, JOIN) + frame(3), 1002, Welcome(), is_cut=True)
stranger("stranger: a join and reserved bits", frame(TEXT, JOIN) + frame(TEXT, rsv=1), 1002, Welcome(), INVALID)
stranger("stranger: a join and a close", frame(TEXT, JOIN) + closing(), 1000, Welcome())
stranger("stranger: a ping", frame(PING, "p") + frame(TEXT, JOIN), None, pong("p"), Welcome())
stranger("stranger: a pong", frame(PONG, "p") + frame(TEXT, JOIN), None, Welcome())
stranger("stranger: a close", closing(), 1000)
stranger("stranger: a close with a code of its own", closing(4000, "bye"), 4000)
stranger("stranger: a close with a bad code", closing(1006), 1002)
stranger("stranger: a close and a join", closing() + frame(TEXT, JOIN), 1000)
stranger("stranger: a message", written("x") + frame(TEXT, JOIN), 4503, INVALID)
stranger("stranger: an empty message", frame(TEXT) + frame(TEXT, JOIN), 4503, INVALID)
stranger("stranger: a chat", frame(TEXT, chat("x")), 4503, INVALID)
stranger("stranger: not text", frame(TEXT, b"\xff"), 1007, INVALID)
stranger("stranger: not text in fragments", fragments(TEXT, [b"{", b"\xff", b"}"], ends=False), 1007, INVALID)
stranger("stranger: a reserved opcode", frame(3), 1002, is_cut=True)
stranger("stranger: reserved bits", frame(TEXT, JOIN, rsv=4), 1002, INVALID)
stranger("stranger: an unmasked join", frame(TEXT, JOIN, masked=False), 1002, is_cut=True)
stranger("stranger: a continuation of nothing", frame(CONTINUATION, JOIN), 1002, INVALID)
stranger("stranger: a ping in fragments", frame(PING, fin=False), 1002, is_cut=True)
stranger("stranger: a ping of 126 bytes", frame(PING, bytes(126)), 1002, is_cut=True)
stranger("stranger: a length of 2^40", frame(BINARY, claim=1 << 40), 1009, is_cut=True)
stranger("stranger: a length of 2^63", frame(BINARY, claim=1 << 63), 1002, is_cut=True)
stranger("stranger: more than a join may be", frame(TEXT, JOIN.ljust(STRANGER_LIMIT + 1)), 1009, TOO_LARGE)
stranger("stranger: as much as a join may be", frame(TEXT, JOIN.ljust(STRANGER_LIMIT)), None, Welcome())
stranger(
    "stranger: more than a join may be, in fragments",
    fragments(TEXT, [JOIN, *[b" " * 1_000] * 70]),
    1009,
    TOO_LARGE,
)
stranger("stranger: HTTP", b"GET /health HTTP/1.1\r\nHost: gateway.example\r\n\r\n", 1002, is_cut=True)

# -- 7.1.4: gone without a close ------------------------------------------------------------------

for way in HangUp:
    how = "half closed" if way is HangUp.HALF else "reset"
    lost(f"{how}: at once", b"", way)
    lost(f"{how}: behind a message", written("last words"), way, echo("last words"))
    lost(f"{how}: behind a fragment", frame(TEXT, HEAD + b"x", fin=False), way)
    lost(f"{how}: behind a ping", frame(PING, "p"), way, pong("p"))
    lost(f"{how}: after a byte", b"\x81", way)
    lost(f"{how}: in a length", b"\x81\xfe\x01", way)
    lost(f"{how}: in a mask", frame(TEXT, HEAD)[:4], way)
    lost(f"{how}: in a message", written("x" * 500)[:200], way)
    lost(f"{how}: in a message behind another", written("whole") + written("half")[:-2], way, echo("whole"))
    lost(f"{how}: in a large message", written("x" * 90_000)[:50_000], way)
    lost(f"{how}: of a stranger", b"", way, is_stranger=True)
    lost(f"{how}: of a stranger, in a join", frame(TEXT, JOIN)[:20], way, is_stranger=True)
    lost(f"{how}: of a stranger, behind a ping", frame(PING), way, pong(), is_stranger=True)
