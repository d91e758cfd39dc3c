"""Attempts to exhaust a gateway: its time, its memory, its disk. Each is a function of a scene, and says who may do it.

``scale`` is 1 in the ordinary run; in the long one more of the same is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from http_socket import HttpSocket, request
from raw_socket import CONTINUATION, PING, TEXT, RawSocket, join_message, text, ws_frame

from support import GatewayProcess

SPACE = "arena"
#: May send nothing but what everybody may.
MUTE = "mallory"
#: May chat, ask by MCP, and open streams.
ORDINARY = "oscar"
#: Not more than so much is on its way to the gateway at once, so that a test takes no longer than it must.
MEGABYTE = 1_000_000
ROSTER = tuple(f"guest-{number:04}" for number in range(2_000))

_ids = itertools.count()


class Scene:
    """A gateway under attack, and what was sent to it."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self.sent = 0
        self.answers = 0
        """Bytes that came back."""

    @contextlib.asynccontextmanager
    async def joined(self, who: str, *, reads: bool = True) -> AsyncIterator[Peer]:
        async with await RawSocket.joined(self.gateway.port, who, space=SPACE) as raw:
            peer = Peer(self, raw)
            reading = asyncio.create_task(peer.read()) if reads else None
            try:
                yield peer
            finally:
                if reading is not None:
                    reading.cancel()
                    await asyncio.wait([reading])

    @contextlib.asynccontextmanager
    async def stranger(self) -> AsyncIterator[RawSocket]:
        async with await RawSocket.upgraded(self.gateway.port) as raw:
            yield raw

    async def post(self, who: str, bodies: Iterable[bytes], *, connections: int) -> list[int]:
        """Over so many connections at once; the statuses."""
        queue = list(bodies)
        statuses: list[int] = []

        async def worker() -> None:
            async with await HttpSocket.connected(self.gateway.port) as raw:
                while queue:
                    body = queue.pop()
                    self.sent += len(body)
                    answer = await raw.ask(
                        request("POST", f"/participants/{who}/messages?space={SPACE}", participant=who, body=body)
                    )
                    self.answers += len(answer.body)
                    statuses.append(answer.status)

        await asyncio.gather(*(worker() for _ in range(connections)))
        return statuses


class Peer:
    """A connection that has joined."""

    def __init__(self, scene: Scene, raw: RawSocket) -> None:
        self._scene = scene
        self.raw = raw
        self._answered = asyncio.Event()
        self._marker = b""
        self.opened: asyncio.Queue[str] = asyncio.Queue()

    async def read(self) -> None:
        while (frame := await self.raw.read_frame(within=120)) is not None:
            self._scene.answers += len(frame.payload)
            self.raw.got.clear()
            if self._marker and self._marker in frame.payload[:400]:
                self._answered.set()
            elif b'"kind":"stream/open"' in frame.payload[:400]:
                self.opened.put_nowait(frame.json["payload"]["stream_id"])

    async def send(self, *messages: Any) -> None:
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message).encode()
            self._scene.sent += len(data)
            await self.raw.send(ws_frame(TEXT, data, mask=bytes(4)))

    async def settle(self) -> None:
        """Until everything that was sent has been worked off."""
        marker = f"settled-{next(_ids)}"
        self._marker = marker.encode()
        self._answered.clear()
        await self.send({"id": marker, "kind": "mcp/response", "payload": {}})
        await asyncio.wait_for(self._answered.wait(), 120)

    async def open_stream(self, **payload: Any) -> str:
        await self.send({"kind": "stream/request", "payload": payload})
        return await asyncio.wait_for(self.opened.get(), 60)


@dataclass(frozen=True)
class Attack:
    name: str
    who: str
    run: Callable[[Scene, int], Awaitable[None]] = field(repr=False)


ATTACKS: list[Attack] = []


def attack(who: str) -> Callable[[Callable[[Scene, int], Awaitable[None]]], Callable[[Scene, int], Awaitable[None]]]:
    def note(run: Callable[[Scene, int], Awaitable[None]]) -> Callable[[Scene, int], Awaitable[None]]:
        ATTACKS.append(Attack(run.__name__, who, run))
        return run

    return note


def filled(head: bytes, unit: bytes, tail: bytes, size: int = MEGABYTE) -> bytes:
    """As many units as there is room for."""
    return head + b",".join([unit] * ((size - len(head) - len(tail)) // (len(unit) + 1))) + tail


def envelope(kind: str, payload: Any) -> bytes:
    return json.dumps({"kind": kind, "payload": payload}).encode()


def entangled(number: int, size: int = 300) -> dict[str, Any]:
    """A schema that takes long to analyse for its size; each number makes another one."""
    return {
        "title": str(number),
        "$defs": {
            f"d{i}": {
                "properties": {
                    "x": {"$ref": f"#/$defs/d{(i * 7 + 1) % size}"},
                    "y": {"$ref": f"#/$defs/d{(i * 13 + 5) % size}"},
                }
            }
            for i in range(size)
        },
        "$ref": "#/$defs/d0",
    }


def expressions(count: int) -> list[dict[str, Any]]:
    return [{"kind": f"k{n}*", "payload": {"a": f"/a{{0,{n % 900}}}x{n}/"}} for n in range(count)]


# -- strangers ------------------------------------------------------------------------------------


@attack("strangers")
async def first_messages_that_are_no_joins(scene: Scene, scale: int) -> None:
    shapes = [
        filled(b'{"type":"join","x":[', b"[]", b"]}", 60_000),
        filled(b'{"type":"join","extensions":[', b'"a"', b"]}", 60_000),
        b'{"type":"join","token":"' + b"\\u00e9" * 9_000 + b'"}',
        b"[" * 60_000,
        filled(b'{"type":"join",', b'"a":1', b"}", 60_000),
    ]

    async def one(number: int) -> None:
        async with scene.stranger() as raw:
            data = shapes[number % len(shapes)]
            scene.sent += len(data)
            await raw.send(ws_frame(TEXT, data))
            await raw.read_to_close()

    for start in range(0, 100 * scale, 25):
        await asyncio.gather(*(one(number) for number in range(start, start + 25)))


@attack("strangers")
async def joins_with_wrong_tokens(scene: Scene, scale: int) -> None:
    async def one() -> None:
        async with scene.stranger() as raw:
            await raw.send(text(join_message(MUTE) | {"space": SPACE, "token": "x" * 1_000}))
            assert (await raw.read_to_close())[1] == 4500

    for _ in range(10 * scale):
        await asyncio.gather(*(one() for _ in range(25)))


@attack("strangers")
async def fragments_and_pings_before_a_join(scene: Scene, scale: int) -> None:
    async def one() -> None:
        async with scene.stranger() as raw:
            tiny = ws_frame(TEXT, b"{", fin=False) + ws_frame(CONTINUATION, b" ", fin=False) * 3_000
            tiny += ws_frame(PING, b"x" * 100) * 100
            scene.sent += len(tiny)
            with contextlib.suppress(ConnectionError):
                await raw.send(tiny)

    await asyncio.gather(*(one() for _ in range(30 * scale)))


@attack("strangers")
async def posts_without_a_token(scene: Scene, scale: int) -> None:
    async def one() -> None:
        async with await HttpSocket.connected(scene.gateway.port) as raw:
            for _ in range(40):
                answer = await raw.ask(
                    request("POST", f"/participants/{MUTE}/messages?space={SPACE}", body=b"x" * 9_000)
                )
                assert answer.status == 401

    for _ in range(scale):
        await asyncio.gather(*(one() for _ in range(25)))


# -- a participant without capabilities -----------------------------------------------------------


@attack(MUTE)
async def frames_that_name_no_stream(scene: Scene, scale: int) -> None:
    async with scene.joined(MUTE) as peer:
        many = (ws_frame(TEXT, b"#") + ws_frame(TEXT, b"##")) * 500
        for _ in range(20 * scale):
            scene.sent += len(many)
            await peer.raw.send(many)
        await peer.settle()


@attack(MUTE)
async def schemas_of_somebody_who_may_open_nothing(scene: Scene, scale: int) -> None:
    """One of these, of 438 KB, took five seconds."""
    formats = [{"id": str(n), "schema": entangled(n, 350)} for n in range(16)]
    small = [{"id": "a", "schema": entangled(1)}]
    async with scene.joined(MUTE) as peer:
        for _ in range(5 * scale):
            for kind in ("stream/request", "stream/announce"):
                await peer.send(envelope(kind, {"formats": formats}), envelope(kind, {"formats": small}))
        await peer.settle()


@attack(MUTE)
async def capability_lists_of_somebody_who_may_give_nothing(scene: Scene, scale: int) -> None:
    async with scene.joined(MUTE) as peer:
        for _ in range(5 * scale):
            for patterns in (expressions(256), [{"kind": "k", "why": "x" * 1_000}] * 800, expressions(8_000)):
                await peer.send(envelope("capability/grant", {"recipient": MUTE, "capabilities": patterns}))
                await peer.send(envelope("space/invite", {"participant_id": "eve", "capabilities": patterns}))
                await peer.send(envelope("capability/revoke", {"recipient": MUTE, "capabilities": patterns}))
        await peer.settle()


@attack(MUTE)
async def the_largest_messages_that_are_refused(scene: Scene, scale: int) -> None:
    units = [b"[]", b"{}", b'{"":0}', b'""', b'"[\\""', b"0", b"1.5e7", b"[[[[]]]]", b'["["]', b"9" * 4_000]
    async with scene.joined(MUTE) as peer:
        for kind in (b"chat", b"x/y", b"stream/data", b"stream/close", b"participant/pause"):
            for unit in units[:: 1 if kind == b"chat" else 3]:
                for _ in range(scale):
                    head = b'{"kind":"%b","to":["nobody"],"payload":{"text":"x","sequence":1,"content":[' % kind
                    await peer.send(filled(head, unit, b"]}}"))
        many = ",".join(f'"{number}":0' for number in range(80_000))
        await peer.send(f'{{"kind":"x/y",{many}}}'.encode(), f'{{"kind":"chat","payload":{{{many}}}}}'.encode())
        await peer.send(filled(b'{"kind":"x/y","to":[', b'"a"', b"]}"), b"{" * MEGABYTE, b'"' * MEGABYTE)
        await peer.settle()


@attack(MUTE)
async def a_flood_of_small_refused_envelopes(scene: Scene, scale: int) -> None:
    async with scene.joined(MUTE) as peer:
        for number in range(200 * scale):
            batch = [{"id": f"{number}-{n}", "kind": "chat", "payload": {"text": "no"}} for n in range(50)]
            await peer.raw.send(b"".join(ws_frame(TEXT, json.dumps(each), mask=bytes(4)) for each in batch))
            scene.sent += 50 * 60
        await peer.settle()


@attack(MUTE)
async def a_flood_of_refused_frames(scene: Scene, scale: int) -> None:
    """To more streams than anybody keeps an account of, and to streams that do not exist."""
    async with scene.joined(ORDINARY) as owner, scene.joined(MUTE) as peer:
        streams = [await owner.open_stream() for _ in range(100)]
        chance = random.Random(1)
        for number in range(200 * scale):
            names = [*chance.sample(streams, 50), *(f"none-{number}-{n}" for n in range(50))]
            data = b"".join(ws_frame(TEXT, f"#{name}#x", mask=bytes(4)) for name in names)
            scene.sent += len(data)
            await peer.raw.send(data)
        await peer.settle()
        for stream in streams:
            await owner.send(envelope("stream/close", {"stream_id": stream}))
        await owner.settle()


@attack(MUTE)
async def refused_posts_over_many_connections(scene: Scene, scale: int) -> None:
    bodies = [filled(b'{"kind":"chat","payload":{"text":"x","a":[', b"[]", b"]}}", 200_000)] * (100 * scale)
    bodies += [envelope("chat", {"text": "no"})] * (400 * scale)
    await scene.post(MUTE, bodies, connections=40)


@attack(MUTE)
async def coming_and_going(scene: Scene, scale: int) -> None:
    """As fast as one can, and without reading the welcome."""

    async def one() -> None:
        with contextlib.suppress(ConnectionError):
            async with scene.stranger() as raw:
                await raw.send(text(join_message(MUTE, space=SPACE)))
                await raw.read_frame(within=60)

    for _ in range(16 * scale):
        await asyncio.gather(*(one() for _ in range(25)))
    await asyncio.sleep(1.0)


@attack(MUTE)
async def questions_without_end(scene: Scene, scale: int) -> None:
    async with scene.joined(MUTE) as peer:
        for _ in range(300 * scale):
            await peer.send(envelope("participant/list", {}), envelope("stream/list", {}))
        await peer.send(filled(b'{"kind":"stream/close","correlation_id":[', b'"abcdefgh"', b"]}", 100_000))
        await peer.settle()


# -- a participant with ordinary capabilities -----------------------------------------------------


@attack(ORDINARY)
async def schemas_at_the_bounds(scene: Scene, scale: int) -> None:
    """Streams that are opened and closed again, each with the most that may be announced."""
    large = {"properties": {str(n): {"type": "string", "minLength": 1} for n in range(600)}}
    patterns = {"properties": {str(n): {"pattern": rf"\p{{L}}{n}"} for n in range(64)}}
    async with scene.joined(ORDINARY) as peer:
        for number in range(10 * scale):
            schemas = [entangled(number, 150), {**patterns, "title": str(number)}]
            for each in (schemas, [{**large, "title": str(number)}], [entangled(number)] * 2):
                formats = [{"id": str(place), "schema": schema} for place, schema in enumerate(each)]
                await peer.send(envelope("stream/request", {"formats": formats, "desired_id": "mine"}))
                await peer.send(envelope("stream/close", {"stream_id": "mine"}))
        await peer.settle()


#: Schemas and contents that take long to check for their size.
HOSTILE_PAIRS: list[tuple[dict[str, Any], Any]] = [
    ({"items": {"allOf": [{"type": "string"}] * 60}}, [1] * 390),
    ({"oneOf": [{"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}] * 60}, [1] * 390),
    ({"uniqueItems": True}, [2**63 + n for n in range(900)]),
    ({"items": {"uniqueItems": True}}, [[n + 0.5 for n in range(15)]] * 60),
    ({"items": {"multipleOf": 1e-90}}, [1e90] * 1_000),
    ({"items": {"enum": [n + 0.5 for n in range(350)]}}, [0.25] * 300),
    ({"items": {"oneOf": [{"const": n} for n in range(300)]}}, [299] * 300),
    ({"allOf": [{"contains": {"const": n}} for n in range(100)], "unevaluatedItems": False}, list(range(100))),
    (
        {"patternProperties": {f"[ab]*a[ab]{{{n}}}c": True for n in range(10, 40)}},
        {"ab" * 500 + str(n): n for n in range(20)},
    ),
    ({"items": {"required": [str(n) for n in range(300)]}}, [{}] * 300),
    ({"items": {"$ref": "#"}, "anyOf": [{"items": {"$ref": "#"}}]}, [[[[[[[[1] * 40]]]]]]]),
]


@attack(ORDINARY)
async def frames_that_take_long_to_check(scene: Scene, scale: int) -> None:
    """One reading holds many of them."""
    async with scene.joined(ORDINARY) as peer:
        for schema, content in HOSTILE_PAIRS:
            formats = [{"id": "f", "mime_type": "application/json", "schema": schema}]
            stream = await peer.open_stream(formats=formats, validate="enforce")
            frame = f"#{stream}#{json.dumps(content, separators=(',', ':'))}".encode()
            data = ws_frame(TEXT, frame, mask=bytes(4)) * max(2, 60_000 * scale // len(frame))
            scene.sent += len(data)
            await peer.raw.send(data)
            await peer.settle()
            await peer.send(envelope("stream/close", {"stream_id": stream}))


@attack(ORDINARY)
async def more_schemas_than_are_kept(scene: Scene, scale: int) -> None:
    """Each frame is for another stream, whose schema must be compiled again."""
    async with scene.joined(ORDINARY) as peer:
        streams = []
        for number in range(100):
            schema = {"title": str(number), "properties": {str(n): {"type": "string"} for n in range(300)}}
            formats = [{"id": "f", "schema": schema}, {"id": "g", "schema": {**schema, "title": f"g{number}"}}]
            streams.append(await peer.open_stream(formats=formats, validate="enforce"))
        for number in range(scale):
            for stream in streams:
                for place, format_id in enumerate("fg"):
                    payload = {"stream": {"stream_id": stream}, "sequence": 2 * number + place, "content": {}}
                    await peer.send(envelope("stream/data", payload | {"format_id": format_id}))
        await peer.settle()
        for stream in streams:
            await peer.send(envelope("stream/close", {"stream_id": stream}))
        await peer.settle()


@attack(ORDINARY)
async def the_largest_messages_that_are_relayed(scene: Scene, scale: int) -> None:
    async with scene.joined(ORDINARY) as peer:
        for _ in range(2 * scale):
            for unit in (b"[]", b'{"":0}', b'"ab"', b"1.5e7", b'"[\\""'):
                await peer.send(filled(b'{"kind":"chat","payload":{"text":"x","a":[', unit, b"]}}"))
        await peer.settle()


@attack(ORDINARY)
async def streams_with_all_the_metadata_there_may_be(scene: Scene, scale: int) -> None:
    """And with as many values in it as there may be: their ids are remembered, and the answers with them."""
    values: Any = [[] for _ in range(2_000)]
    async with scene.joined(ORDINARY) as peer:
        for number in range(60 * scale):
            payload = {"a": values, "description": "x" * 50_000, "desired_id": "mine", "auto_grant": ["nobody"] * 8}
            await peer.send({"id": f"{next(_ids)}-{number}", "kind": "stream/request", "payload": payload})
            await peer.send(envelope("stream/close", {"stream_id": "mine"}))
        await peer.settle()


@attack(ORDINARY)
async def reader_sets_that_are_told_again_and_again(scene: Scene, scale: int) -> None:
    """A hundred bytes of a request make tens of thousands of an answer for everyone."""
    async with scene.joined(ORDINARY) as peer:
        stream = await peer.open_stream(target=list(ROSTER))
        grant = envelope("stream/grant-read", {"stream_id": stream, "participant_id": ORDINARY})
        revoke = envelope("stream/revoke-read", {"stream_id": stream, "participant_id": ORDINARY})
        for _ in range(150 * scale):
            await peer.send(grant, revoke)
        await peer.settle()
        await peer.send(envelope("stream/close", {"stream_id": stream}))
        await peer.settle()


@attack(ORDINARY)
async def standing_grants_for_those_who_come(scene: Scene, scale: int) -> None:
    """As many as may be are named in each of many streams, and somebody joins again and again."""
    async with scene.joined(ORDINARY) as peer:
        streams = [await peer.open_stream(auto_grant=[f"nobody-{n}" for n in range(128)]) for _ in range(250)]
        for number in range(20 * scale):
            async with scene.joined(ROSTER[number]):
                pass
        for stream in streams:
            await peer.send(envelope("stream/close", {"stream_id": stream}))
        await peer.settle()


@attack(ORDINARY)
async def welcomes_that_nobody_reads(scene: Scene, scale: int) -> None:
    """Long ones, for a participant that comes back before it has read the last."""
    async with scene.joined(ORDINARY) as peer:
        streams = [await peer.open_stream(description="x" * 60_000) for _ in range(100)]
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(60):
                raw = await stack.enter_async_context(
                    await RawSocket.upgraded(scene.gateway.port, receive_buffer=4_096)
                )
                await raw.send(text(join_message(ROSTER[-1], space=SPACE)))
            await asyncio.sleep(0.5)
        for stream in streams:
            await peer.send(envelope("stream/close", {"stream_id": stream}))
        await peer.settle()
