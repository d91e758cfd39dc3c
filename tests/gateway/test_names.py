"""Names of streams over real sockets: a program that is restarted finds its stream again (decision 12)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import mewstream.sync
from mewstream import AlreadyExists, Unauthorized
from support import Client, GatewayProcess, active_stream, running_gateway, space_config, token_of

REUSE = {"desired_id": "hero", "if_exists": "reuse"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    capabilities = {"bob": [{"kind": "stream/*"}]}
    with running_gateway(space_config("ann", "bob", "mia", capabilities=capabilities)) as running:
        yield running


@contextlib.asynccontextmanager
async def together(gateway: GatewayProcess, *people: str, **fields: Any) -> AsyncIterator[list[Client]]:
    """They join, and at the end every stream is closed."""
    clients = [await gateway.join(each, **fields) for each in people]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()
        status, listed = await gateway.http("GET", "/streams", "mia")
        assert status == 200
        for stream in listed["streams"]:
            await gateway.post("mia", {"kind": "stream/close", "payload": {"stream_id": stream["stream_id"]}})


async def ask(client: Client, if_exists: str, kind: str = "stream/request") -> dict[str, Any]:
    """Ask for the name. Returns what the answer says of the stream."""
    id = await client.send(kind, {"desired_id": "hero", "if_exists": if_exists})
    answer = await client.receive("stream/open" if kind == "stream/request" else "stream/ready", of=id)
    return dict(answer["payload"].get("stream", answer["payload"]))


async def test_reuse_is_between_the_gateway_and_the_owner(gateway: GatewayProcess) -> None:
    async with together(gateway, "ann", "bob") as (ann, bob):
        stream = await ann.open_stream(desired_id="hero")
        await bob.receive("stream/open", stream_id=stream)
        for kind in ("stream/request", "stream/announce"):
            answer = await ask(ann, "reuse", kind)
            assert (answer["stream_id"], answer["reused"], answer["alias"]) == (stream, True, "hero")
        await ann.settle()
        assert [each for each in await bob.settle() if isinstance(each, dict) and each["from"] != "ann"] == []
        refused = await bob.send("stream/request", REUSE)
        error = await bob.error("already_exists", of=refused)
        assert (error["payload"]["stream_id"], error["payload"]["owner"]) == (stream, "ann")


async def test_replace_is_one_point_of_the_log(gateway: GatewayProcess) -> None:
    async with together(gateway, "ann", "bob", "mia") as (ann, bob, mia):
        first = await ann.open_stream(desired_id="hero")
        refused = await bob.send("stream/request", {"desired_id": "hero", "if_exists": "replace"})
        assert (await bob.error("unauthorized", of=refused))["payload"]["stream_id"] == first
        for who in (ann, mia):
            id = await who.send("stream/request", {"desired_id": "hero", "if_exists": "replace"})
            opened = await who.receive("stream/open", of=id)
            told = [each async for each in until_opened(bob, id)]
            assert [each["kind"] for each in told] == ["stream/close", "stream/open"]
            assert (told[0]["payload"]["stream_id"], told[0]["payload"]["reason"]) == (first, "replaced")
            assert opened["payload"]["alias"] == "hero"
            first = opened["payload"]["stream_id"]
        late = await gateway.join("ann")
        assert active_stream(late.welcome, first)["owner"] == "mia"
        await late.close()


async def until_opened(client: Client, request: str) -> AsyncIterator[dict[str, Any]]:
    """What is said of streams from the request on, up to its answer."""
    await client.wait_for(lambda each: isinstance(each, dict) and each["id"] == request)
    while True:
        message = await client.next()
        if not isinstance(message, dict) or not message["kind"].startswith("stream/"):
            continue
        yield message
        if request in message.get("correlation_id", ()):
            return


async def test_new_and_error(gateway: GatewayProcess) -> None:
    async with together(gateway, "ann", "bob") as (ann, bob):
        stream = await ann.open_stream(desired_id="hero")
        answer = await ask(bob, "new")
        assert (answer["alias"], answer["alias_taken_by"]) == (None, stream)
        plain = await bob.send("stream/request", {"desired_id": "hero"})
        assert "alias_taken_by" not in (await bob.receive("stream/open", of=plain))["payload"]
        refused = await ann.send("stream/request", {"desired_id": "hero", "if_exists": "error"})
        assert (await ann.error("already_exists", of=refused))["payload"]["stream_id"] == stream


async def test_over_http(gateway: GatewayProcess) -> None:
    async with together(gateway, "ann"):
        status, opened = await gateway.post("ann", {"kind": "stream/request", "payload": REUSE})
        assert (status, "reused" in opened) == (200, False)
        status, answer = await gateway.post("ann", {"id": "again", "kind": "stream/request", "payload": REUSE})
        assert (status, answer["stream_id"], answer["reused"]) == (200, opened["stream_id"], True)
        assert await gateway.post("ann", {"id": "again", "kind": "stream/request", "payload": REUSE}) == (200, answer)
        status, error = await gateway.post("bob", {"kind": "stream/request", "payload": REUSE})
        assert (status, error["payload"]["owner"]) == (409, "ann")
        _, listed = await gateway.http("GET", "/streams", "ann", params={"activity": "true"})
        assert listed["streams"][0]["last_active"] == listed["streams"][0]["created"]


async def test_a_close_that_races_a_reuse(gateway: GatewayProcess) -> None:
    """Whichever comes first in the log decides: the owner either gets back a stream that is closed then, or a new one.
    Never an error, never a stream that was closed before."""
    async with together(gateway, "ann", "mia", extensions=["positions"]) as (ann, mia):
        outcomes = set()
        stream = (await ask(ann, "new"))["stream_id"]
        for turn in range(60):
            close = {"stream_id": stream}
            acts = [mia.send("stream/close", close), ann.send("stream/request", REUSE)]
            _, asked = await asyncio.gather(*acts) if turn % 2 else reversed(await asyncio.gather(*reversed(acts)))
            closed = await mia.receive("stream/close", stream_id=stream)
            answer = await ann.receive("stream/open", of=asked)
            given = answer["payload"]
            outcomes.add(given.get("reused", False))
            if given.get("reused"):
                assert given["stream_id"] == stream
                assert answer["seq"] < closed["seq"]
                given = await ask(ann, "reuse")
                assert "reused" not in given
            else:
                assert given["stream_id"] != stream
                assert answer["seq"] > closed["seq"]
            assert given["alias"] == "hero"
            stream = given["stream_id"]
        assert outcomes == {True, False}


async def test_a_repeated_request_is_answered_as_before_even_after_the_stream_has_ended(
    gateway: GatewayProcess,
) -> None:
    async with together(gateway, "ann") as (ann,):
        stream = await ann.open_stream(desired_id="hero")
        await ann.send("stream/request", REUSE, id="the-same")
        first = await ann.receive("stream/open", of="the-same")
        await ann.send("stream/close", {"stream_id": stream})
        await ann.receive("stream/close", stream_id=stream)
        await ann.send("stream/request", REUSE, id="the-same")
        assert await ann.receive("stream/open", of="the-same") == first


@pytest.mark.parametrize("how", ["kill", "term"])
async def test_after_a_restart_of_gateway_and_owner(tmp_path: Path, how: str) -> None:
    config = space_config("ann", "bob", mewstream={"policies": {"suspend_for": 0.2}})
    gateway = GatewayProcess(tmp_path, config, options=("--data", str(tmp_path / "data"))).start()
    try:
        ann, bob = await gateway.join("ann"), await gateway.join("bob")
        stream = await ann.open_stream(desired_id="hero", idle_timeout=3600)
        await ann.frame("hero", "before")
        assert await bob.receive_frame(stream) == "before"
        assert gateway.process is not None
        if how == "kill":
            gateway.process.kill()
            gateway.process.wait(timeout=30)
            gateway.process.stdout.close()
        else:
            gateway.stop()
        gateway.start()
        bob = await gateway.join("bob")
        ann = await gateway.join("ann")
        answer = await ask(ann, "reuse")
        assert (answer["stream_id"], answer["reused"], answer["owner"]) == (stream, True, "ann")
        await ann.frame("hero", "after")
        assert await bob.receive_frame(stream) == "after"
        await ann.close()
        await bob.close()
    finally:
        gateway.stop()


async def test_a_resume_repeats_the_answer_to_its_owner_alone(gateway: GatewayProcess) -> None:
    async with together(gateway, "ann", "bob", extensions=["positions"]) as (ann, bob):
        await ann.open_stream(desired_id="hero")
        await ann.settle()
        position = {
            each: {"epoch": each.welcome["payload"]["epoch"], "seq": each.got[-1]["seq"]}  # type: ignore[index]
            for each in (ann, bob)
        }
        await bob.settle()
        answer = await ask(ann, "reuse")
        for who in (ann, bob):
            again = await gateway.join(who.participant, extensions=["positions"], resume=position[who])
            got = await again.settle()
            reused = [each for each in got if isinstance(each, dict) and each["payload"].get("reused")]
            assert [each["payload"] for each in reused] == ([answer] if who is ann else [])
            await again.close()


async def test_an_idle_stream_is_closed_and_a_used_one_is_not(gateway: GatewayProcess) -> None:
    async with together(gateway, "ann", "bob") as (ann, bob):
        used, idle = await ann.open_stream(idle_timeout=600), await ann.open_stream(idle_timeout=0.3)
        await ann.frame(used, "x")
        closed = await bob.receive("stream/close")
        assert (closed["payload"]["stream_id"], closed["payload"]["reason"]) == (idle, "idle")
        await ann.frame(idle, "x")
        await ann.error("stream_not_found")
        _, listed = await gateway.http("GET", "/streams", "ann")
        assert [each["stream_id"] for each in listed["streams"]] == [used]


# -- the SDK ----------------------------------------------------------------------------------------


def enter(gateway: GatewayProcess, who: str) -> mewstream.Connecting:
    return mewstream.connect(gateway.ws_url, participant=who, token=token_of(who))


async def test_the_sdk(gateway: GatewayProcess) -> None:
    async with together(gateway, "ann"), enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        with ann.events() as news:
            stream = await ann.open_stream(name="hero", if_exists="reuse", on_owner_leave="transfer", idle_timeout=60)
            assert (stream.alias, stream.reused, stream.alias_taken_by) == ("hero", False, None)
            assert stream.metadata["on_owner_leave"] == "transfer"
            again = await ann.announce(name="hero", if_exists="reuse")
            assert again is stream and again.reused
            await ann.chat("end")
            kinds = []
            async for event in news:
                kinds.append(type(event).__name__)
                if isinstance(event, mewstream.Chat):
                    break
            assert kinds.count("StreamOpened") == 1
        other = await bob.open_stream(name="hero")
        assert (other.alias, other.alias_taken_by) == (None, stream.id)
        with pytest.raises(AlreadyExists) as taken:
            await bob.open_stream(name="hero", if_exists="error")
        assert taken.value.details == {"stream_id": stream.id, "owner": "ann"}
        with pytest.raises(Unauthorized):
            await bob.open_stream(name="hero", if_exists="replace")
        new = await ann.open_stream(name="hero", if_exists="replace", fields={"color": "red"})
        assert (stream.is_open, new.alias, new.metadata["color"]) == (False, "hero", "red")
        with pytest.raises(ValueError, match="give a name"):
            ann.open_stream(if_exists="reuse")
        with pytest.raises(TypeError, match="colour"):
            ann.open_stream(colour="red")  # type: ignore[call-arg]


async def test_a_request_that_nobody_waits_for_closes_no_stream_that_was_there(gateway: GatewayProcess) -> None:
    async with together(gateway, "ann"), enter(gateway, "ann") as ann:
        stream = await ann.open_stream(name="hero")
        asking = asyncio.ensure_future(ann.open_stream(name="hero", if_exists="reuse").make())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await ann.flush()
        await ann.chat("the answer came before this")
        assert stream.is_open


def test_the_synchronous_twin(gateway: GatewayProcess) -> None:
    with mewstream.sync.connect(gateway.ws_url, participant="ann", token=token_of("ann")) as ann:
        first = ann.open_stream(name="twin", if_exists="error")
        again = ann.open_stream(name="twin", if_exists="reuse")
        assert (again.id, again.reused, again.alias_taken_by) == (first.id, True, None)
        replaced = ann.announce(name="twin", if_exists="replace", priority=3, history="all")
        assert (first.is_open, replaced.metadata["priority"], replaced.metadata["history"]) == (False, 3, "all")
        replaced.close()
