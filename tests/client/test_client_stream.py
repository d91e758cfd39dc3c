"""Writing: opening, rights, formats, what is sent and what is refused, back-pressure."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sdk_helping import Script, enter, eventually, scripted, until

import mewstream
from mewstream import (
    AlreadyExists,
    ConnectionClosed,
    Format,
    FormatRequired,
    FormatViolation,
    InvalidOperation,
    ParticipantNotFound,
    RequestTimeout,
    StreamNotFound,
    TargetNotFound,
    Unauthorized,
    UnauthorizedStreamWrite,
    UnknownRefusal,
    events,
)
from mewstream.client.connection import WRITE_BUFFER_BYTES
from mewstream.client.errors import refusal
from mewstream.client.format import format_of
from mewstream.protocol.errors import PeerError
from support import GatewayProcess

POINT = {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}


async def test_what_is_sent_arrives_as_it_was(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, ann.open_stream() as stream:
        await bob.stream(stream.id)
        subscription = await bob.subscribe(stream.id)
        plain = await gateway.join("cy")
        sent: list[Any] = [b"\x00\xff#|", bytearray(b"ba"), memoryview(b"mv"), "text # |", "", b"", {"a": [1]}, [1], 7]
        sent += [None, True, "ünï"]
        for data in sent:
            await stream.send(data)
        got = [await subscription.receive(5) for _ in sent]
        expected = [b"\x00\xff#|", b"ba", b"mv", b"text # |", b"", b"", b'{"a":[1]}', b"[1]", b"7", b"null", b"true"]
        assert [frame.data for frame in got] == [*expected, "ünï".encode()]
        assert [frame.is_text for frame in got] == [not isinstance(x, bytes | bytearray | memoryview) for x in sent]
        assert all(frame.writer == "ann" and frame.stream == stream.id and frame.gap == 0 for frame in got)
        seqs = [frame.seq or 0 for frame in got]
        assert seqs == sorted(set(seqs))
        assert got[6].json() == {"a": [1]}
        assert got[-1].text == "ünï"
        assert bool(got[4]) and len(got[4]) == 0
        assert await plain.receive_frame(stream.id) == b"\x00\xff#|"
        await plain.close()
        with pytest.raises(TypeError):
            await stream.send(object())
        with pytest.raises(FormatViolation, match="not what was expected"):
            got[0].json()
        with pytest.raises(FormatViolation):
            got[6].json(list[int])
        assert got[7].json(list[int]) == [1]


async def test_the_handshake(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        news = bob.events()
        stream = await ann.announce(name="hand", formats=[Format("point", schema=POINT)], intent="show")
        opened = await until(news, events.StreamOpened, stream=stream.id)
        assert opened.handle.formats[0]["id"] == "point"
        assert opened.handle.alias == "hand"
        with pytest.raises(InvalidOperation, match="start"):
            await stream.send({"x": 1})
        await stream.start()
        await until(news, events.StreamStarted, stream=stream.id)
        assert bob.streams["hand"].status == "live"
        subscription = await bob.subscribe("hand")
        await stream.send({"x": 1})
        await stream.send({"x": 2}, format="point")
        await stream.send(b"raw")
        with pytest.raises(TypeError, match="bytes"):
            await stream.send(b"raw", numbered=True)
        with pytest.raises(TypeError, match="format"):
            await stream.send("raw", numbered=False, format="point")
        got = [await subscription.receive(5) for _ in range(3)]
        assert [(frame.sequence, frame.format_id) for frame in got] == [(1, None), (2, "point"), (None, None)]
        await stream.complete()
        closed = await until(news, events.StreamClosed, stream=stream.id)
        assert (closed.how, stream.status, opened.handle.status) == ("completed", "completed", "completed")
        with pytest.raises(StreamNotFound, match="completed"):
            await stream.send({"x": 3})
        failing = await ann.announce(name="hand")
        await failing.start()
        await failing.fail("sensor_lost", "the sensor is gone")
        failed = await until(news, events.StreamClosed, stream=failing.id)
        assert (failed.how, failed.reason, failing.status) == ("failed", "the sensor is gone", "failed")


async def test_blocks_end_streams(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        await eventually(lambda: "bob" in ann.participants)
        news = bob.events()
        async with ann.announce() as announced:
            await announced.start()
        assert (await until(news, events.StreamClosed)).how == "completed"
        async with ann.announce():
            pass
        assert (await until(news, events.StreamClosed)).how == "closed"
        with pytest.raises(ZeroDivisionError):
            async with ann.open_stream():
                raise ZeroDivisionError
        assert (await until(news, events.StreamClosed)).how == "closed"
        async with ann.open_stream() as closed_within:
            await closed_within.close()
        async with ann.open_stream() as given:
            await given.transfer("bob", retain_write=True)
            await given.send("still writing")
        await eventually(lambda: bob.streams[given.id].is_mine)
        async with bob.streams[given.id]:
            pass
        await eventually(lambda: given.status == "closed")

        started = asyncio.Event()

        async def work() -> None:
            async with ann.open_stream(description="cancelled"):
                started.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        opened = await until(news, events.StreamOpened)
        while opened.handle.description != "cancelled":
            opened = await until(news, events.StreamOpened)
        await eventually(lambda: not opened.handle.is_open)


async def test_an_opening_that_was_given_up_leaves_no_stream(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        news = bob.events()
        opening = asyncio.ensure_future(ann.open_stream(description="given up").make())
        await asyncio.sleep(0)  # it is sent
        opening.cancel()
        opened = await until(news, events.StreamOpened)
        assert opened.handle.description == "given up"
        await until(news, events.StreamClosed, stream=opened.stream)


async def test_conditions(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, ann.open_stream() as stream:
        theirs = await bob.stream(stream.id)
        news = bob.events()
        end = datetime.now(UTC) + timedelta(hours=1)
        await stream.grant("bob", expires_at=end, max_frames=2)
        granted = await until(news, events.WriteGranted)
        assert granted.conditions is not None
        assert datetime.fromisoformat(granted.conditions["expires_at"]) == end
        assert stream.conditions["bob"]["max_frames"] == 2
        await theirs.send("1")
        await theirs.send("2")
        await theirs.flush()
        assert (await until(news, events.WriteRevoked)).reason == "max_frames"
        assert "bob" not in stream.authorized_writers
        assert stream.conditions == {}
        with pytest.raises(UnauthorizedStreamWrite, match="ask ann"):
            await theirs.send("3")
        await stream.grant("bob", expires_at=(datetime.now(UTC) + timedelta(seconds=0.3)).isoformat())
        assert (await until(news, events.WriteRevoked)).reason == "expired"
        with pytest.raises(ValueError, match="time zone"):
            await stream.grant("bob", expires_at=datetime(2030, 1, 1))
        with pytest.raises(InvalidOperation):
            await stream.grant("bob", expires_at=datetime(2020, 1, 1, tzinfo=UTC))


async def test_readers(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, ann.open_stream(target=["ann"]) as stream:
        theirs = await bob.stream(stream.id)
        assert theirs.authorized_readers == ["ann"]
        subscription, news = await theirs.subscribe(), bob.events()
        await stream.send("private")
        await stream.grant_read("bob")
        await until(news, events.ReadGranted, participant="bob")
        assert theirs.authorized_readers == ["ann", "bob"]
        await stream.send("for both")
        assert (await subscription.receive(5)).text == "for both"
        await stream.revoke_read("bob", reason="enough")
        assert (await until(news, events.ReadRevoked)).reason == "enough"
        assert theirs.authorized_readers == ["ann"]


async def test_formats_are_checked_before_they_are_sent(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann:
        subscription = ann.subscribe()
        one = await ann.announce(formats=[Format("point", schema=POINT)], validate=True)
        await one.start()
        with pytest.raises(FormatViolation) as caught:
            await one.send({"x": "no"})
        assert caught.value.details["format_id"] == "point"
        assert caught.value.details["problems"]
        with pytest.raises(FormatViolation):
            await one.send('{"y": 1}', numbered=False)
        with pytest.raises(FormatViolation, match="no format"):
            await one.send({"x": 1}, format="other")
        await one.send({"x": 1})
        await one.send('{"x": 2}', numbered=False)
        two = await ann.announce(formats=[{"id": "a", "schema": POINT}, {"id": "b", "schema": True}], validate=True)
        await two.start()
        with pytest.raises(FormatRequired, match="a, b"):
            await two.send({"x": 1})
        with pytest.raises(FormatRequired):
            await two.send("raw", numbered=False)
        await two.send({"y": 1}, format="b")
        got = [(await subscription.receive(5)).json() for _ in range(3)]
        assert got == [{"x": 1}, {"x": 2}, {"y": 1}]
        assert subscription.pending == 0
        enforced = await ann.open_stream(formats=[Format("point", schema=POINT)], validate="enforce")
        await enforced.send({"y": 1})
        with pytest.raises(FormatViolation):
            await enforced.flush()
        for stream in (one, two, enforced):
            await stream.close()


async def test_refusals_reach_whoever_caused_them(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "dee") as dee:
        stream = await ann.open_stream()
        theirs = await dee.stream(stream.id)
        with pytest.raises(mewstream.CapabilityViolation) as denied:
            await dee.kick("ann")
        assert denied.value.details["attempted_kind"] == "space/kick"
        with pytest.raises(Unauthorized):
            await theirs.grant("cy")
        with pytest.raises(Unauthorized):
            await theirs.close()
        with pytest.raises(ParticipantNotFound) as caught:
            await stream.grant("nobody")
        assert caught.value.details["participant_id"] == "nobody"
        assert caught.value.code == "participant_not_found"
        with pytest.raises(TargetNotFound):
            await ann.open_stream(target=["nobody"])
        with pytest.raises(mewstream.ValidationFailed):
            await ann.send("chat", {"no": "text"})
        with pytest.raises(mewstream.ReservedKind):
            await ann.send("system/welcome")
        news = ann.events()
        await ann.send("custom/kind", {"free": True}, to="dee", context="deep/er")
        assert (await until(news, events.Received, kind="custom/kind")).sender == "ann"
        await stream.close()
        with pytest.raises(StreamNotFound):
            await stream.grant("dee")


async def test_a_refused_frame_is_never_silent(gateway: GatewayProcess) -> None:
    """The view of the writer is older than the revoke, so the frames go out and the gateway says no."""
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        stream = await ann.open_stream()
        await eventually(lambda: "bob" in ann.participants)
        await stream.grant("bob")
        theirs = await bob.stream(stream.id)
        await theirs.send("good")
        await theirs.flush()

        async def cheat() -> None:
            """As if the revoke were still on its way."""
            theirs._update(authorized_writers=["ann", "bob"])
            await theirs.send("late")

        await stream.revoke("bob")
        await bob._link.round_trip()
        news = bob.events()
        await cheat()
        refused = await until(news, events.Refused)
        assert isinstance(refused.error, UnauthorizedStreamWrite)
        with pytest.raises(UnauthorizedStreamWrite):
            await theirs.send("the next one says so")
        await stream.grant("bob")
        await stream.revoke("bob")
        await bob._link.round_trip()
        await cheat()
        with pytest.raises(UnauthorizedStreamWrite):
            await theirs.flush()
        await stream.grant("bob")
        await stream.revoke("bob")
        await bob._link.round_trip()
        with pytest.raises(UnauthorizedStreamWrite):
            async with theirs:
                await cheat()
                await bob._link.round_trip()
        await stream.close()


async def test_formats_are_typed_and_can_be_read_like_mappings(gateway: GatewayProcess) -> None:
    given = [
        Format("point", schema=POINT, mime_type="application/json", description="where it is", extra={"unit": "m"}),
        {"id": "plain", "encoding": "utf-8"},
    ]
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        async with ann.announce(formats=given) as mine:
            point, plain = (await bob.stream(mine.id)).formats
        assert (point.id, point.mime_type, point.description) == ("point", "application/json", "where it is")
        assert (point.schema, point.extra) == (POINT, {"unit": "m"})
        assert isinstance(point.schema_hash, str) and point.schema_hash
        assert (plain.id, plain.schema, plain.schema_hash, plain.extra) == ("plain", None, None, {"encoding": "utf-8"})
        assert (point["id"], point["unit"], point.get("nosuch"), plain.get("schema", 1)) == ("point", "m", None, 1)
        assert dict(plain) == {"id": "plain", "encoding": "utf-8"} == {**plain}
        with pytest.raises(KeyError):
            plain["schema"]
        with pytest.raises(AttributeError):
            plain.id = "other"  # type: ignore[misc]
        # What was read can be announced again: the hash is the gateway's, which makes its own.
        async with bob.announce(formats=[point]) as again:
            assert again.formats == [point]


@pytest.mark.parametrize("strange", [{}, {"id": 7, "schema": "x", "mime_type": [], "schema_hash": None}])
async def test_a_format_of_a_strange_gateway_is_a_format(strange: dict[str, Any]) -> None:
    assert isinstance(format_of(strange), Format)


def test_there_is_an_exception_for_every_code_of_the_wire() -> None:
    for kind in PeerError.__subclasses__():
        if kind is UnknownRefusal:
            continue
        made = refusal({"error": kind.code, "message": "because", "stream_id": "s", "limit": "l"})
        assert type(made) is kind
        assert isinstance(made, mewstream.MewError)
        assert (str(made), made.code, made.details["stream_id"]) == ("because", kind.code, "s")
    # A class of its own code is found however deep it stands; one that shares its code with another is that.
    assert type(refusal({"error": AlreadyExists.code})).code == AlreadyExists.code
    assert type(refusal({"error": UnauthorizedStreamWrite.code})) is UnauthorizedStreamWrite
    first, second = refusal({"error": "new_code"}), refusal({"error": "newer_code", "self": 1, "details": 2})
    assert (first.code, second.code) == ("new_code", "newer_code")
    assert isinstance(second, UnknownRefusal)
    assert second.details == {"self": 1, "details": 2}
    for strange in ({}, {"error": []}, {"error": "limit_exceeded", "limit": ["x"]}, {"error": None, "message": {}}):
        assert isinstance(refusal(strange), PeerError)


def _forget_the_limit(space: mewstream.Space) -> None:
    """As with a gateway that does not say what it takes."""
    space._link.max_message_bytes = None


async def test_too_large(gateway: GatewayProcess) -> None:
    """The gateway closes the connection. It is made again, and the same message is not sent again for ever."""
    async with enter(gateway, "ann") as ann:
        news = ann.events()
        with pytest.raises(mewstream.LimitExceeded):
            await ann.chat("x" * (3 << 20))
        await until(news, events.Resumed, recovered=True)
        await ann.chat("small")
        stream = await ann.open_stream()
        _forget_the_limit(ann)
        await stream.send(b"x" * (3 << 20))
        # A connection that is cut in the middle of a message may be lost before it says why.
        with pytest.raises((mewstream.LimitExceeded, mewstream.FramesUnconfirmed)) as caught:
            await stream.flush()
        assert "the gateway takes" in str(caught.value), "the reason is told"
        await stream.send("small")
        await stream.flush()
        await stream.close()


async def test_a_frame_that_is_too_large_is_told_by_the_next_call_on_its_stream(gateway: GatewayProcess) -> None:
    """Not by a connection that is lost for no reason. The gateway names no stream, for it has not read the message."""
    async with enter(gateway, "ann") as ann:
        news = ann.events()
        other, stream = await ann.open_stream(), await ann.open_stream()
        await other.send("small")
        _forget_the_limit(ann)
        await stream.send("x" * (3 << 19))
        with pytest.raises(mewstream.LimitExceeded, match="larger than") as caught:
            await stream.flush()
        assert caught.value.details["limit"] == "message_bytes"
        refused = await until(news, events.Refused)
        assert refused.error.code == "limit_exceeded"

        await stream.send("x" * (3 << 19))
        await until(news, events.Refused)
        with pytest.raises(mewstream.LimitExceeded):
            await stream.send("the next")
        with contextlib.suppress(mewstream.FramesUnconfirmed):
            await stream.flush()
        await stream.send("small again")
        await stream.flush()
        with contextlib.suppress(mewstream.FramesUnconfirmed):
            await other.flush()


async def test_a_request_that_is_too_large_fails_and_others_do_not(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        large = asyncio.create_task(ann.chat("x" * (3 << 19)))
        fits = asyncio.create_task(ann.chat("y" * (1 << 18)))
        with pytest.raises(mewstream.LimitExceeded, match="larger than"):
            await large
        assert len((await fits).payload["text"]) == 1 << 18
        await bob.chat("still here")


# -- back-pressure --------------------------------------------------------------------------------


async def test_sending_waits_for_a_gateway_that_does_not_read() -> None:
    reading = asyncio.Event()
    got = 0

    async def act(script: Script) -> None:
        nonlocal got
        description = {"stream_id": "s", "owner": "me", "authorized_writers": ["me"]}
        await script.welcome({"active_streams": [description], "epoch": "e", "seq": 1}, seq=1)
        await reading.wait()
        while True:
            await script.connection.recv()
            got += 1

    async with scripted(act, max_queue=1) as url, mewstream.connect(url, participant="me") as space:
        stream = space.streams["s"]
        sent = 0

        async def send_all() -> None:
            nonlocal sent
            for _ in range(3000):
                await stream.send(b"x" * 10_000)
                sent += 1

        tracemalloc.start()
        tasks = [asyncio.create_task(send_all()) for _ in range(10)]
        before = -1
        while sent > before:
            before = sent
            await asyncio.sleep(0.2)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert sent < 30_000, "nothing held up the sender"
        assert not any(task.done() for task in tasks)
        assert peak < 50 * WRITE_BUFFER_BYTES, peak
        assert space._link._connection is not None
        waiting = space._link._connection._transport.underlying_transport.get_write_buffer_size()
        assert waiting < WRITE_BUFFER_BYTES + 11 * 10_100
        asking = asyncio.create_task(space.chat("held up too"))
        tasks[0].cancel()
        reading.set()
        await asyncio.gather(*tasks[1:])
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        await eventually(lambda: got >= sent)
        asking.cancel()


async def test_a_flood_of_frames_leaves_turns_for_others(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        for _ in range(2000):
            await stream.send("x")
        assert turns > 20
        counting.cancel()
        await stream.flush()


async def test_a_gateway_that_never_answers() -> None:
    async def act(script: Script) -> None:
        await script.welcome({"participants": [{"id": "y"}]})
        await script.connection.wait_closed()

    async with scripted(act) as url, mewstream.connect(url, participant="me", request_timeout=0.1) as space:
        with pytest.raises(RequestTimeout, match="chat was not answered"):
            await space.chat("hello?")
        with pytest.raises(TimeoutError):
            await space.request("x", to="y", timeout=0.05)
        with pytest.raises(RequestTimeout, match="nobody opened"):
            await space.stream("never", timeout=0.05)
        assert not space._calls._pending


async def test_the_end(gateway: GatewayProcess) -> None:
    async with enter(gateway, "bob") as bob:
        kept = await bob.subscribe()  # what comes after one's first visit can be asked for, if one wanted it then
    async with enter(gateway, "ann") as ann:
        stream = await ann.open_stream()
        for number in range(500):
            await stream.send(str(number))
        subscription = stream.subscribe()
        waiting = asyncio.create_task(ann.stream("never"))
        await asyncio.sleep(0)
        await asyncio.gather(ann.drain(), ann.drain())
        assert ann.is_closed
        assert not ann.is_connected
        assert ann.error is None
        with pytest.raises(ConnectionClosed):
            await waiting
        for _ in range(2):
            with pytest.raises(ConnectionClosed, match="closed here") as caught:
                await stream.send("x")
            assert caught.value.code == 1000
        with pytest.raises(ConnectionClosed):
            await ann.chat("x")
        with pytest.raises(ConnectionClosed):
            await ann.flush()
        assert all([frame.stream == stream.id async for frame in subscription])
        assert [event async for event in ann.events()] == []
        assert [frame async for frame in ann.subscribe("x")] == []
        await ann.wait_closed()
        await ann.close()
        await ann.drain()
        assert "closed" in repr(ann)
    assert kept.pending == 0
    async with enter(gateway, "bob") as bob:
        assert bob.streams[stream.id].metadata is not None
        status, answer = await gateway.http("GET", "/participants/bob/messages", "bob")
        assert status == 200
        frames = [each for each in answer["messages"] if each["kind"] == "frame" and each["stream_id"] == stream.id]
        while answer["messages"]:
            after = {"since": str(answer["seq"])}
            _, answer = await gateway.http("GET", "/participants/bob/messages", "bob", params=after)
            frames += [each for each in answer["messages"] if each["kind"] == "frame"]
        assert [each["data"] for each in frames if each["stream_id"] == stream.id] == [str(n) for n in range(500)]


async def test_waiting_for_the_end_can_be_cancelled(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann:
        task = asyncio.create_task(ann.wait_closed())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not ann.is_closed
