"""The synchronous twin: everything from plain threads."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import mewstream
import mewstream.sync
from mewstream import (
    Backoff,
    Call,
    ConnectError,
    ConnectionClosed,
    JoinRefused,
    ProposalRejected,
    RequestTimeout,
    SubscriptionEnded,
    events,
)
from support import GatewayProcess, token_of


def enter(gateway: GatewayProcess, participant: str, **options: Any) -> mewstream.sync.Space:
    options.setdefault("token", token_of(participant))
    return mewstream.sync.connect(gateway.ws_url, space="demo", participant=participant, **options)


def until(news: mewstream.sync.Events, kind: type[Any]) -> Any:
    while True:
        event = news.receive(10)
        if isinstance(event, kind):
            return event


def test_the_twin_has_the_same_names() -> None:
    for name in ("Space", "Stream", "Subscription", "Events", "Proposal", "Streams"):
        twin, original = getattr(mewstream.sync, name), getattr(mewstream, name)
        missing = {each for each in dir(original) if not each.startswith("_")} - set(dir(twin))
        assert not missing, (name, missing)
        for each in dir(original):
            method = getattr(original, each)
            if each.startswith("_") or not inspect.isfunction(method):
                continue
            expected = list(inspect.signature(method).parameters)
            assert list(inspect.signature(getattr(twin, each)).parameters) == expected, (name, each)
    expected = list(inspect.signature(mewstream.connect).parameters)
    assert list(inspect.signature(mewstream.sync.connect).parameters) == expected


def test_everything(gateway: GatewayProcess) -> None:
    with enter(gateway, "ann") as ann, enter(gateway, "bob", reconnect=Backoff(first=0.01)) as bob:
        assert (ann.participant, ann.is_connected, ann.is_closed, ann.error) == ("ann", True, False, None)
        assert "resume" in bob.features
        assert bob.position is not None
        assert bob.capabilities
        news = bob.events()
        with ann.open_stream(description="positions", content_type="application/json") as stream:
            theirs = bob.stream(stream.id, timeout=5)
            subscription = bob.subscribe(theirs)
            stream.send({"x": 1})
            stream.flush()
            frame = subscription.receive(5)
            assert (frame.json(), frame.writer) == ({"x": 1}, "ann")
            stream.grant("bob", max_frames=2)
            assert until(news, events.WriteGranted).participant == "bob"
            theirs.send("by bob")
            assert next(subscription).text == "by bob"
            stream.revoke("bob")
            assert until(news, events.WriteRevoked).participant == "bob"
            stream.grant_read("bob")
            stream.revoke_read("cy")
            assert (stream.id in bob.streams, len(bob.streams) >= 1, list(bob.streams)) == (True, True, [*bob.streams])
            assert bob.streams[stream.id].owner == "ann"
            assert (theirs.status, theirs.is_open, theirs.is_mine, theirs.owner_connected) == (
                "live",
                True,
                False,
                True,
            )
            assert theirs.authorized_writers == ["ann"]
            assert (theirs.description, theirs.content_type) == ("positions", "application/json")
            assert theirs.metadata["description"] == "positions"
            assert (theirs.alias, theirs.formats, theirs.conditions) == (None, [], {})
            assert theirs.namespace
            assert theirs.created
            assert repr(theirs) == repr(bob._space.streams[stream.id])
            stream.transfer("bob")
        with theirs:
            theirs.send("last")
        assert [each.text for each in subscription] == ["last"]
        announced = ann.announce(name="moves", formats=[{"id": "m"}])
        assert announced.is_announced
        announced.start()
        with bob.subscribe("moves", on_slow="pause", max_pending=5) as moves:
            for number in range(50):
                announced.send(number)
            announced.complete()
            assert [each.json() for each in moves] == list(range(50))
            assert (moves.pending, moves.dropped) == (0, 0)
        failing = ann.announce()
        failing.fail("code", "message")
        bob.tool("double", lambda n: 2 * n, {"type": "object", "required": ["n"]})
        assert ann.call_tool("double", {"n": 4}, to="bob")["structuredContent"] == {"result": 8}
        assert ann.request("tools/list", to="bob")["tools"][0]["name"] == "double"
        assert ann.call_tool("double", {}, to="bob")["isError"] is True
        assert ann.chat("hi", to="bob").sender == "ann"
        assert ann.send("custom/kind", {"a": 1}).kind == "custom/kind"
        assert until(news, events.Chat).text == "hi"
        proposal = ann.propose("x", to="bob")
        bob.reject(until(news, events.Proposed), reason="no")
        with pytest.raises(ProposalRejected):
            proposal.result(timeout=5)
        assert proposal.is_settled
        proposal = ann.propose("x", to="bob")
        proposed = until(news, events.Proposed)

        @bob.on_request
        def answer(call: Call) -> str:
            return "done"

        assert bob.fulfil(proposed) == "done" == proposal.result(timeout=5)
        ann.propose("y").withdraw()
        invitation = ann.invite("sync-guest")
        assert invitation.token
        grant = ann.grant_capabilities("bob", [{"kind": "x"}])
        ann.revoke_capabilities("bob", grant_id=grant)
        assert set(ann.participants) == {"bob"}
        with pytest.raises(RequestTimeout):
            bob.subscribe("never").receive(0.05)
        with pytest.raises(mewstream.StreamNotFound):
            failing.send(1)
        ann.flush()
        ann.kick("bob")
        bob.wait_closed()
        assert bob.error is not None
        assert bob.error.code == 4501
        with pytest.raises(ConnectionClosed):
            bob.chat("x")
        with pytest.raises(ConnectionClosed):
            for _ in bob.events():
                pass


def test_closing_from_many_threads_at_once(gateway: GatewayProcess) -> None:
    for _ in range(20):
        space = enter(gateway, "ann")
        with ThreadPoolExecutor(8) as pool:
            ends = [pool.submit(space.close) for _ in range(8)]
        assert [end.result() for end in ends] == [None] * 8


def test_closing_ends_everything_in_other_threads(gateway: GatewayProcess) -> None:
    space = enter(gateway, "ann")
    stream = space.open_stream()
    frames, news = stream.subscribe(), space.events()
    ends: dict[str, Any] = {}

    def note(name: str, work: Any) -> None:
        try:
            ends[name] = work()
        except BaseException as error:
            ends[name] = type(error)

    @space.on_request
    async def never(call: Call) -> None:
        await asyncio.Event().wait()

    works: dict[str, Any] = {
        "frames": lambda: list(frames),
        "events": lambda: list(news),
        "request": lambda: space.request("never", to=space.participant),
        "stream": lambda: space.stream("never"),
        "receive": lambda: space.subscribe("x").receive(),
        "waiting": space.wait_closed,
    }
    threads = [threading.Thread(target=note, args=each) for each in works.items()]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    closing = [threading.Thread(target=space.close) for _ in range(3)]
    for thread in closing:
        thread.start()
    for thread in (*closing, *threads):
        thread.join(10)
        assert not thread.is_alive()
    assert ends["frames"] == []
    assert all(isinstance(event, mewstream.Event) for event in ends["events"])
    assert (ends["request"], ends["stream"], ends["waiting"]) == (ConnectionClosed, ConnectionClosed, None)
    assert ends["receive"] in (SubscriptionEnded, ConnectionClosed)
    space.close()
    space.drain()
    space.wait_closed()
    frames.close()
    assert list(frames) == []
    with pytest.raises(ConnectionClosed, match="closed here"):
        space.chat("x")
    with pytest.raises(ConnectionClosed):
        stream.send("x")
    assert space.is_closed
    assert stream.id
    assert not [each for each in threading.enumerate() if each.name == "mewstream-sync"]


def test_many_threads(gateway: GatewayProcess) -> None:
    with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        subscription = stream.subscribe()

        def work(number: int) -> None:
            for each in range(25):
                stream.send(f"{number}:{each}")
                ann.chat("x")
            stream.flush()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        got = [subscription.receive(5).text for _ in range(200)]
        assert len(set(got)) == 200
        for number in range(8):
            assert [each for each in got if each.startswith(f"{number}:")] == [f"{number}:{n}" for n in range(25)]


def test_refusals(gateway: GatewayProcess, unused_tcp_port: int) -> None:
    with pytest.raises(JoinRefused):
        enter(gateway, "ann", token="wrong")
    with pytest.raises(ConnectError):
        mewstream.sync.connect(f"ws://127.0.0.1:{unused_tcp_port}", token="t")
    with pytest.raises(ConnectError):
        mewstream.sync.connect("nonsense://", token="t")
    assert not [each for each in threading.enumerate() if each.name == "mewstream-sync"]
    with enter(gateway, "ann", token=lambda: token_of("ann")) as ann:

        async def tool() -> None:
            ann.chat("from within its own thread")

        ann.tool("wrong", tool)
        result = ann.call_tool("wrong", to="ann")
        assert result["isError"] is True
        assert "would wait for itself" in result["content"][0]["text"]
    with pytest.raises(ZeroDivisionError), enter(gateway, "ann"):
        raise ZeroDivisionError


def test_a_loop_that_is_left_by_break(gateway: GatewayProcess) -> None:
    with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        stream.send("x")
        keeper = stream.subscribe()
        sender = threading.Thread(target=lambda: [stream.send("y") for _ in range(10)])
        sender.start()
        for frame in stream.subscribe():
            assert frame.text in "xy"
            break
        sender.join()
        stream.flush()
        assert len(ann._space._inbox.routes._streams[stream.id.encode()]) == 1
        assert keeper.pending >= 10


@pytest.mark.parametrize(
    "blocked", ["next(iter(space.events()))", "space.request('x', to='cy')", "space.wait_closed()"]
)
def test_an_interrupt_ends_a_blocking_call(gateway: GatewayProcess, blocked: str) -> None:
    code = f"""
        import asyncio, mewstream.sync
        async def never(call):
            await asyncio.Event().wait()
        try:
            with mewstream.sync.connect({gateway.ws_url!r}, participant="cy", token={token_of("cy")!r}) as space:
                space.on_request(never)
                stream = space.open_stream()
                stream.send("x")
                print("ready", flush=True)
                try:
                    {blocked}
                except KeyboardInterrupt:
                    print("interrupted", space.chat("still usable").kind, flush=True)
                    raise
        except KeyboardInterrupt:
            print("left", space.is_closed)
        mewstream.sync.connect({gateway.ws_url!r}, participant="cy", token={token_of("cy")!r})
        # Left open: the interpreter must end all the same, and in silence.
    """
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("interrupted chat\nleft True\n", "", 0)


def test_the_interpreter_ends_in_silence(gateway: GatewayProcess) -> None:
    """Async objects that nobody closed, alive in globals when the interpreter goes down."""
    code = f"""
        import asyncio, mewstream
        kept = []
        async def main():
            space = await mewstream.connect({gateway.ws_url!r}, participant="cy", token={token_of("cy")!r})
            kept.extend([space, space.subscribe(), space.events(), await space.propose("x")])
            await space.close()
        asyncio.run(main())
    """
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)
