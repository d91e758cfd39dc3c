"""A gateway that sends anything: no message ends the connection, raises in the reading, or grows without end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sdk_helping import QUICK, Script, eventually, scripted
from websockets.utils import accept_key

import mewstream
from mewstream import Space, events
from mewstream.client import connection as connections
from mewstream.client.view import _HANDLERS
from mewstream.protocol import kinds

STRANGE: list[Any] = [None, 0, -1, 1.5, True, "", "text", [], [None], [1], ["a"], {}, {"a": 1}, [[]], [{}], 10**30]
KEYS = (
    *("stream_id", "stream", "participant", "participant_id", "event", "owner", "authorized_writers", "reason"),
    *("authorized_readers", "conditions", "formats", "alias", "status", "new_owner", "previous_owner", "error"),
    *("message", "limit", "notice", "count", "first_seq", "text", "method", "params", "you", "participants"),
    *("active_streams", "epoch", "seq", "resume", "sequence", "content", "format_id", "by", "capabilities", "self"),
)
ENVELOPE_KEYS = ("id", "ts", "from", "to", "correlation_id", "context", "payload", "seq", "kind", "protocol")


async def exchange(messages: list[str | bytes], caplog: pytest.LogCaptureFixture) -> Space:
    """Send them all to a client that reads everything, and see that it still lives."""
    caplog.clear()
    caplog.set_level(logging.INFO, logger="mewstream.client")
    connected = 0

    async def act(script: Script) -> None:
        nonlocal connected
        connected += 1
        opened = {"stream_id": "s", "owner": "me", "authorized_writers": ["me"], "alias": "a"}
        await script.welcome({"active_streams": [opened], "epoch": "e", "seq": 1}, seq=1)
        await script.relay(seq=2)
        for message in messages:
            await script.connection.send(message)
        await script.relay_kind("chat")  # answers to some of the messages may come before it
        await script.connection.wait_closed()

    async with scripted(act) as url, mewstream.connect(url, participant="me", reconnect=QUICK) as space:
        space.tool("t", lambda: 1)
        subscriptions = [space.subscribe("s"), space.subscribe(), space.subscribe("unknown")]
        news = space.events()
        await space.chat("begin")
        await space.chat("end")
        assert connected == 1
        assert space.is_connected
        while news.pending:
            event = await news.receive(1)
            assert repr(event)
        for subscription in subscriptions:
            while subscription.pending:
                frame = await subscription.receive(1)
                assert repr(frame)
                assert isinstance(frame.stream, str)
                assert isinstance(frame.gap, int)
        for stream in space.streams.values():
            stream_is_sound(stream)
        assert space.position is None or isinstance(space.position.seq, int)
        assert not [each for each in caplog.records if each.levelno >= logging.WARNING], caplog.text
        return space


def stream_is_sound(stream: mewstream.Stream) -> None:
    for value in (stream.id, stream.owner, stream.status, *stream.authorized_writers):
        assert isinstance(value, str)
    for value in (stream.alias, stream.namespace, stream.created, stream.description, stream.content_type):
        assert value is None or isinstance(value, str)
    assert isinstance(stream.conditions, dict)
    assert isinstance(stream.metadata, dict)
    assert isinstance(stream.formats, list)
    assert isinstance(stream.authorized_readers, list | None)
    assert repr(stream)


def envelope(kind: Any, payload: Any, **fields: Any) -> str:
    return json.dumps({"id": "x", "from": kinds.GATEWAY, "kind": kind, "payload": payload, **fields})


async def test_wrong_types_in_every_field_of_every_kind(caplog: pytest.LogCaptureFixture) -> None:
    every_kind = [*_HANDLERS, kinds.WELCOME, kinds.STREAM_DATA, kinds.INVITE_ACK, kinds.MCP_RESPONSE, "unknown/kind"]
    messages: list[str | bytes] = []
    for kind in every_kind:
        for strange in STRANGE:
            messages.append(envelope(kind, strange))
            for key in KEYS:
                messages.append(
                    envelope(kind, {"stream_id": "s", "event": "join", "notice": "frames_dropped", key: strange})
                )
                messages.append(envelope(kind, {"stream": {"stream_id": "s", key: strange}}))
                if kind == kinds.PRESENCE:
                    messages.append(envelope(kind, {"event": "join", "participant": {"id": "p", key: strange}}))
                if kind == kinds.WELCOME:
                    messages.append(envelope(kind, {"active_streams": [{"stream_id": "s", key: strange}]}))
                    messages.append(envelope(kind, {"participants": [{"id": "s", key: strange}]}))
            for key in ENVELOPE_KEYS:
                messages.append(
                    envelope(kind, {"stream_id": "s"}, **{key: strange})
                    if key not in ("kind", "payload")
                    else json.dumps({"kind": kind, "from": kinds.GATEWAY, key: strange})
                )
    # An own id comes back in the welcome: the rest of the test speaks as "me".
    messages.append(envelope(kinds.WELCOME, {"you": {"id": "me"}, "active_streams": [{"stream_id": "s"}]}))
    await exchange(messages, caplog)


async def test_frames_of_every_shape(caplog: pytest.LogCaptureFixture) -> None:
    messages: list[str | bytes] = [
        *("#", "##", "#s", "#s#", "#s|#x", "#s|1#x", "#s||#x", "#s|x|w#d", "#s|-1|w#d", "#s|1|w|more#d", "#s|²|w#d"),
        *(b"#\xff\xfe|1|w#d", b"#s|1|\xff#d", b"#s|" + b"9" * 5000 + b"|w#d", b"", b"\x00", b"{", "[]", "null", "7"),
        *('"x"', "{}", '{"kind":7}', "[" * 5000, '{"kind":"chat","payload":' + "[" * 5000, "not json", "{" * 100),
        '{"kind":"chat","seq":99999999999999999999999999}',
        "x" * 100_000,
        *(b"#s|3|w#" + bytes([byte]) for byte in range(256)),
    ]
    await exchange(messages, caplog)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["s", "me", kinds.GATEWAY]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)
envelopes = st.fixed_dictionaries(
    {"kind": st.sampled_from([*_HANDLERS, kinds.WELCOME, kinds.STREAM_DATA])},
    optional={
        "payload": st.dictionaries(st.sampled_from(KEYS), json_values, max_size=6) | json_values,
        "from": st.sampled_from([kinds.GATEWAY, "w"]) | json_values,
        **dict.fromkeys(("id", "to", "correlation_id", "context", "seq"), json_values),
    },
)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(sent=st.lists(envelopes, min_size=20, max_size=100))
def test_anything(sent: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    messages: list[str | bytes] = [json.dumps(each) for each in sent]
    messages.append(envelope(kinds.WELCOME, {"you": {"id": "me"}}))
    asyncio.run(exchange(messages, caplog))


async def test_strange_welcomes_when_coming_back(caplog: pytest.LogCaptureFixture) -> None:
    """Each connection is welcomed in another strange way, and lost."""
    caplog.set_level(logging.WARNING, logger="mewstream.client")
    resumes: list[Any] = [*STRANGE, {"recovered": True}, {"recovered": True, "from_seq": "x"}, {"recovered": "yes"}]
    resumes += [{"recovered": True, "from_seq": -5}, {"recovered": False, "reason": 7}]
    count = 0

    async def act(script: Script) -> None:
        nonlocal count
        count += 1
        if count <= len(resumes):
            strange = resumes[count - 1]
            await script.welcome(
                {"resume": strange, "epoch": strange, "active_streams": strange, "you": strange}, seq=1
            )
            await script.connection.close(4000)
        else:
            await script.welcome({"epoch": "e", "seq": 7}, seq=7)
            await script.relay()
            await script.connection.wait_closed()

    async with scripted(act) as url, mewstream.connect(url, participant="me", reconnect=QUICK) as space:
        subscription, news = space.subscribe(), space.events()
        await eventually(lambda: count > len(resumes))
        await space.chat("alive")
        assert subscription.pending == 0
        assert [event async for event in _taken(news) if isinstance(event, events.Resumed)]
    assert not caplog.records, caplog.text


async def _taken(news: mewstream.Events) -> Any:
    while news.pending:
        yield await news.receive(1)


async def raw_gateway(after_welcome: bytes, *, rounds: int = 2) -> tuple[list[mewstream.Event], int]:
    """Bytes after the welcome, from a socket that knows no WebSocket library."""
    made = 0
    talks: list[asyncio.Task[Any]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        task = asyncio.current_task()
        assert task is not None
        talks.append(task)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line.split(": ")[1] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key"))
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            + f"Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n".encode()
        )
        welcome = envelope(kinds.WELCOME, {"you": {"id": "me"}, "epoch": "e", "seq": 1}, seq=1).encode()
        # The welcome comes in the same packet as the upgrade: before the join was even sent.
        writer.write(b"\x81\x7e" + len(welcome).to_bytes(2) + welcome)
        await reader.read(10)
        writer.write(after_welcome)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with mewstream.connect(url, participant="me", reconnect=QUICK) as space:
            news = space.events()
            await eventually(lambda: made >= rounds)
            told = [event async for event in _taken(news)]
        await asyncio.wait(talks)
        return told, made


async def test_a_gateway_in_a_hurry() -> None:
    _, made = await raw_gateway(b"\x81\x02#x", rounds=1)
    assert made == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x80\x01x",  # the middle of a message without its beginning
        b"\x83\x00",  # no such opcode
        b"\x81\xff" + b"\xff" * 8,  # larger than anything
    ],
    ids=["continuation", "opcode", "huge"],
)
async def test_broken_framing_is_a_lost_connection(garbage: bytes) -> None:
    told, _ = await raw_gateway(garbage)
    assert any(isinstance(event, events.Disconnected) for event in told)


async def test_fragments(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def act(script: Script) -> None:
        await script.welcome({"epoch": "e", "seq": 1}, seq=1)
        await script.relay()
        await script.connection.send(["#s|2|", "w#one", " message"])
        await script.connection.send([b"#s|3|w#", b"", b"bytes"])
        await script.connection.wait_closed()

    async with scripted(act) as url, mewstream.connect(url, participant="me") as space:
        subscription = space.subscribe("s")
        await space.chat("begin")
        frame, other = await subscription.receive(5), await subscription.receive(5)
        assert (frame.text, frame.writer, frame.is_text) == ("one message", "w", True)
        assert (other.data, other.is_text) == (b"bytes", False)

    monkeypatch.setattr(connections, "MAX_MESSAGE_BYTES", 10_000)
    caplog.set_level(logging.WARNING, logger="mewstream.client")
    came = 0

    async def flood(script: Script) -> None:
        nonlocal came
        came += 1
        await script.welcome({"epoch": "e", "seq": 1}, seq=1)

        async def endless() -> Any:
            while True:
                yield "x"
                await asyncio.sleep(0)

        await script.connection.send(endless())

    async with scripted(flood) as url, mewstream.connect(url, participant="me", reconnect=QUICK):
        await eventually(lambda: came >= 2)
    assert "larger than 10000 bytes" in caplog.text


async def test_pongs_that_nobody_asked_for() -> None:
    async def act(script: Script) -> None:
        await script.welcome({"epoch": "e", "seq": 1}, seq=1)
        for payload in (b"", b"recorded:", b"recorded:x", b"recorded:" + b"9" * 100, b"recorded:-1", b"other"):
            await script.connection.pong(payload)
        await script.relay()
        await script.connection.wait_closed()

    async with scripted(act) as url, mewstream.connect(url, participant="me") as space:
        await space.chat("x")
        await space.flush()


async def test_an_idle_connection_is_asked_and_a_dead_one_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PING_SECONDS", 0.1)
    came = 0

    async def act(script: Script) -> None:
        nonlocal came
        came += 1
        await script.welcome({"epoch": "e", "seq": 1}, seq=1)
        if came == 1:
            script.connection.transport.pause_reading()  # it hears nothing, and so does not answer
        await script.connection.wait_closed()

    async with scripted(act) as url, mewstream.connect(url, participant="me", reconnect=QUICK) as space:
        await eventually(lambda: came == 2)
        await asyncio.sleep(0.5)
        assert came == 2
        # The answers to pings of picows and those to ours are told apart.
        await asyncio.gather(*(space.flush() for _ in range(20)))
        for _ in range(10):
            await space.flush()
            await asyncio.sleep(0.03)
        # Whoever does not read hears no answer, and is not taken for dead.
        space._link.hold("test")
        await asyncio.sleep(0.5)
        space._link.release("test")
        await space.flush()
        assert came == 2


async def test_a_gateway_that_answers_the_last_ping_only() -> None:
    """One that was behind owes a single pong: it may be the answer to another ping than ours."""

    async def act(script: Script) -> None:
        await script.welcome({"epoch": "e", "seq": 1}, seq=1)
        await script.connection.wait_closed()

    async with scripted(act) as url, mewstream.connect(url, participant="me") as space:
        flushing = asyncio.create_task(space.flush())
        await asyncio.sleep(0)
        space._link._connection._receiver.pong_received(b"")  # type: ignore[union-attr]
        await flushing
