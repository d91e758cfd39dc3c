"""Participant control (spec 3.9): what the SDK sends, and what it does when it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sdk_helping import Script, enter, eventually, scripted, until

import mewstream
import mewstream.sync
from mewstream import Compacted, Instructed, InvalidOperation, McpError, ParticipantNotFound, Status, events
from mewstream.client import controlled
from mewstream.client.status import compacted_of, status_of
from support import TIMEOUT, GatewayProcess, running_gateway, space_config, token_of

LONG = 300.0


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """bob may do what agents may, dee may only chat."""
    modest = {
        "bob": [{"kind": each} for each in ("chat", "chat/*", "mcp/*", "stream/*", "participant/status")]
        + [{"kind": "participant/compact-done"}],
        "dee": [{"kind": "chat"}],
    }
    with running_gateway(space_config("ann", "bob", "cy", "dee", capabilities=modest)) as running:
        yield running


class TestPause:
    """3.9.1 and 3.9.2."""

    async def test_pause_and_resume(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
            told: list[tuple[str, str, str | None, float | None]] = []

            @bob.on_pause
            async def paused(instruction: Instructed) -> None:
                told.append(("paused", instruction.sender, instruction.reason, instruction.seconds))

            @bob.on_resume
            def resumed(instruction: Instructed) -> None:
                told.append(("resumed", instruction.sender, instruction.reason, instruction.seconds))

            bob.tool("one", lambda: 1)
            assert not bob.is_paused
            news = bob.events()
            await ann.pause("bob", seconds=60, reason="rate_limit")
            pause = await until(news, events.Instructed, kind="participant/pause")
            assert pause.message is not None
            await eventually(lambda: bob.is_paused)
            with pytest.raises(InvalidOperation):
                await bob.chat("hello")
            assert await ann.call_tool("one", to="bob", type=int) == 1, "who is paused still answers"
            assert (await ann.request_status("bob")).status == "paused"
            seen = ann.events()
            await ann.resume("bob", reason="all clear")
            resume = await until(seen, events.Instructed, kind="participant/resume")
            assert resume.message is not None
            assert resume.message.correlation_id == [pause.message.id]
            await eventually(lambda: len(told) == 2)
            assert told == [("paused", "ann", "rate_limit", 60), ("resumed", "ann", "all clear", None)]
            assert not bob.is_paused
            await bob.chat("hello")
            with pytest.raises(ParticipantNotFound):
                await ann.pause("nobody")

    async def test_a_pause_that_ends_by_time(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
            ended = asyncio.Event()

            @bob.on_resume
            async def resumed(instruction: Instructed) -> None:
                assert (instruction.sender, instruction.reason) == ("system:gateway", "timeout")
                ended.set()

            await ann.pause("bob", seconds=0.2)
            async with asyncio.timeout(TIMEOUT):
                await ended.wait()
            await bob.chat("back")

    async def test_a_gateway_that_does_not_end_pauses(self) -> None:
        """Then the participant says itself that it goes on."""
        said: list[Any] = []

        async def act(script: Script) -> None:
            await script.welcome({"participants": [{"id": "ann"}]})
            await script.tell("participant/pause", {"timeout_seconds": 0.1}, id="p1", to=["me"], **{"from": "ann"})
            said.append(await script.relay_kind("participant/resume"))
            await script.tell("participant/pause", {"timeout_seconds": 3600}, id="p2", to=["me"], **{"from": "ann"})
            await script.tell("participant/resume", {}, to=["me"], **{"from": "ann"})
            await script.connection.wait_closed()

        async with scripted(act) as url, mewstream.connect(url, participant="me", token="t") as space:
            news: list[str] = []
            space.on_pause(lambda instruction: news.append("pause"))
            space.on_resume(lambda instruction: news.append("resume"))
            await eventually(lambda: news == ["pause", "resume", "pause", "resume"])
            assert not space.is_paused
        assert (said[0]["correlation_id"], said[0]["to"], said[0]["payload"]) == (["p1"], ["me"], {"reason": "timeout"})


class TestStatus:
    """3.9.3 and 3.9.4."""

    async def test_the_status_of_a_program(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, enter(gateway, "cy") as cy:
            seen = cy.events()
            assert await ann.request_status("bob") == Status(0, status="active"), "also of one that says nothing"

            @bob.on_status
            async def status(instruction: Instructed) -> Status:
                return Status(128, tokens=12345, max_tokens=20000, extra={"latency_ms": 350})

            found = await ann.request_status("bob")
            assert found == Status(128, 12345, 20000, "active", {"latency_ms": 350})
            found = await ann.request_status("bob", fields=["tokens", "latency_ms"])
            assert found.as_dict() == {"messages_in_context": 128, "tokens": 12345, "latency_ms": 350}
            asked = await until(seen, events.Instructed)
            assert (asked.sender, asked.kind, asked.to, asked.fields) == (
                "ann",
                "participant/request-status",
                ["bob"],
                [],
            )
            reported = await until(seen, events.StatusReported, participant="bob")
            assert reported.message is not None
            assert (reported.message.to, reported.message.correlation_id) == (["ann"], [asked.message.id])  # type: ignore[union-attr]
            bob.on_status(lambda instruction: {"tokens": 7})
            assert (await ann.request_status("bob")).as_dict() == {
                "messages_in_context": 0,
                "tokens": 7,
                "status": "active",
            }
            await bob.report_status({"tokens": 19000, "max_tokens": 20000})
            await until(seen, events.StatusReported, status=Status(0, 19000, 20000))
            await bob.report_status(Status(3), to="ann")
            await until(seen, events.StatusReported, status=Status(3))

    async def test_somebody_who_is_not_there_or_goes(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, asyncio.timeout(TIMEOUT):
            with pytest.raises(ParticipantNotFound, match="bob is not in the space"):
                await ann.request_status("bob", timeout=LONG)
            bob = await gateway.join("bob")
            await eventually(lambda: "bob" in ann.participants)
            asking = asyncio.create_task(ann.compact("bob", timeout=LONG))
            await bob.receive("participant/compact")
            await bob.close()
            with pytest.raises(ParticipantNotFound, match="bob left"):
                await asking

    async def test_nobody_else_answers(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, enter(gateway, "cy") as cy:
            bob = await gateway.join("bob")
            await eventually(lambda: "bob" in ann.participants)
            asking = asyncio.create_task(ann.request_status("bob"))
            request = await bob.receive("participant/request-status")
            forged = {"messages_in_context": 99}
            await cy.send("participant/status", forged, to="ann", correlation_id=request["id"])
            await bob.send("participant/status", {"messages_in_context": 1}, to=["ann"], correlation_id=[request["id"]])
            assert (await asking).messages_in_context == 1
            await bob.close()

    async def test_a_broadcast_is_for_everyone_else(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, enter(gateway, "bob"), enter(gateway, "cy"):
            news = ann.events()
            await ann.send("participant/request-status")
            found = {(await until(news, events.StatusReported)).participant for _ in range(2)}
            assert found == {"bob", "cy"}

    async def test_who_may_not_answer_goes_on(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, enter(gateway, "dee") as dee:
            cleared = asyncio.Event()

            @dee.on_clear
            async def clear(instruction: Instructed) -> None:
                cleared.set()

            with pytest.raises(mewstream.RequestTimeout):
                await ann.request_status("dee", timeout=0.3)
            with pytest.raises(mewstream.RequestTimeout):
                await ann.clear("dee", timeout=0.3)
            assert cleared.is_set()
            await dee.chat("alive")

    def test_strange_figures(self) -> None:
        assert status_of({"messages_in_context": "x", "tokens": True, "status": 7, "own": [1]}) == Status(
            extra={"own": [1]}
        )
        assert compacted_of({"freed_tokens": "x", "skipped": "yes", "reason": 1}) == Compacted()
        assert Compacted(1, skipped=False).as_dict() == {"freed_tokens": 1}
        pause = Instructed("a", "participant/pause", [], {"timeout_seconds": 10**400})
        assert pause.seconds == 7 * 86400
        assert Instructed("a", "k", [], {"timeout_seconds": True}).seconds is None
        assert Instructed("a", "k", [], {"timeout_seconds": -1}).seconds == 0
        strange = Instructed("a", "k", [], {"direction": 1, "entries": "x", "fields": [1, "a"], "reason": []})
        assert (strange.direction, strange.entries, strange.fields, strange.reason) == ("oldest", None, ["a"], None)


class TestMemory:
    """3.9.5 to 3.9.8."""

    async def test_forget_and_clear(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
            context = list(range(20))

            @bob.on_forget
            async def forget(instruction: Instructed) -> None:
                count = instruction.entries or 1
                if instruction.direction == "oldest":
                    del context[:count]
                else:
                    del context[-count:]

            @bob.on_clear
            def clear(instruction: Instructed) -> None:
                context.clear()

            bob.on_status(lambda instruction: Status(len(context)))
            assert (await ann.forget("bob", entries=5)).messages_in_context == 15
            assert (await ann.forget("bob", direction="newest", entries=3)).messages_in_context == 12
            assert context == list(range(5, 17))
            assert (await ann.clear("bob", reason="fresh start")).messages_in_context == 0
            assert context == []

    async def test_who_has_nothing_to_forget_says_so(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, enter(gateway, "bob"):
            assert (await ann.forget("bob")).messages_in_context == 0
            assert (await ann.clear("bob")).messages_in_context == 0
            assert await ann.compact("bob") == Compacted(skipped=True, reason="there is nothing to compact")

    async def test_an_acknowledgement_is_an_answer_too(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann:
            bob = await gateway.join("bob")
            await eventually(lambda: "bob" in ann.participants)
            forgetting = asyncio.create_task(ann.forget("bob"))
            request = await bob.receive("participant/forget", direction="oldest")
            await bob.send("chat/acknowledge", {"status": "received"}, to=["ann"], correlation_id=[request["id"]])
            assert await forgetting == Status()
            await bob.close()

    async def test_compact(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
            news = ann.events()

            @bob.on_compact
            async def compact(instruction: Instructed) -> Compacted:
                assert (instruction.target_tokens, instruction.reason) == (16000, "token_pressure")
                return Compacted(freed_tokens=2048, freed_messages=12)

            found = await ann.compact("bob", target_tokens=16000, reason="token_pressure")
            assert found == Compacted(2048, 12, status="compacted")
            assert (await until(news, events.StatusReported)).status.status == "compacting"
            done = await until(news, events.Received, kind="participant/compact-done")
            assert done.message is not None
            assert done.message.to == ["ann"]
            bob.on_compact(lambda instruction: {"freed_tokens": 1, "own": 2})
            assert await ann.compact("bob") == Compacted(1, status="compacted", extra={"own": 2})
            bob.on_compact(lambda instruction: None)
            assert await ann.compact("bob") == Compacted(status="compacted")

            @bob.on_compact
            def fail(instruction: Instructed) -> None:
                raise OSError("no room")

            assert await ann.compact("bob") == Compacted(skipped=True, reason="OSError: no room", status="failed")


class TestEnd:
    """3.9.9 and 3.9.10."""

    async def test_restart(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
            news = ann.events()
            await ann.restart("bob")
            assert await ann.request("ping", to="bob") == {}, "a program that cannot begin again goes on"
            restarted = asyncio.Event()

            @bob.on_restart
            async def restart(instruction: Instructed) -> None:
                restarted.set()

            @bob.tool
            async def forever() -> None:
                await asyncio.Event().wait()

            mine = await bob.open_stream(description="of bob")
            theirs = await ann.open_stream(description="of ann")
            calling = asyncio.create_task(ann.call_tool("forever", to="bob", timeout=LONG))
            await eventually(lambda: len(bob._server._running) == 1)
            await ann.restart("bob", reason="stuck")
            with pytest.raises(McpError, match="bob was told to begin again"):
                await calling
            closed = await until(news, events.StreamClosed)
            assert (closed.stream, closed.reason) == (mine.id, "restart")
            await until(news, events.StatusReported, participant="bob")
            assert restarted.is_set()
            assert theirs.is_open
            await theirs.close()

    async def test_what_is_asked_at_the_time_of_a_restart_is_answered_after_it(self, gateway: GatewayProcess) -> None:
        """A call that came in the same turn has not begun, and can be carried out."""
        async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
            received = bob._server.received

            def received_and_restarted(request: events.Requested) -> None:
                received(request)
                bob._server.stop_calls("bob was told to begin again")

            bob._server.received = received_and_restarted
            assert await ann.request("ping", to="bob", timeout=LONG) == {}

    async def test_shutdown(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann:
            bob = await enter(gateway, "bob")
            news, theirs = ann.events(), bob.events()
            reasons: list[str | None] = []

            @bob.on_shutdown
            async def end(instruction: Instructed) -> None:
                reasons.append(instruction.reason)

            await ann.shutdown("bob", reason="nightly")
            acknowledged = await until(news, events.Received, kind="chat/acknowledge")
            assert (acknowledged.sender, acknowledged.message.to) == ("bob", ["ann"])  # type: ignore[union-attr]
            await until(news, events.Left, participant="bob")
            await bob.wait_closed()
            assert reasons == ["nightly"]
            assert bob.error is None, "an orderly end"
            with pytest.raises(mewstream.ConnectionClosed, match="ann shut us down: nightly"):
                await bob.chat("still here?")
            assert [each async for each in theirs][-1:] != [], "what had come can still be read"
            async with enter(gateway, "bob") as again:
                await again.chat("back")

    async def test_shutdown_without_a_word(self, gateway: GatewayProcess) -> None:
        """dee may not acknowledge: leaving is enough. A function that fails or hangs does not keep us."""
        async with enter(gateway, "ann") as ann:
            for hook in (None, "fails"):
                dee = await enter(gateway, "dee")
                if hook:

                    @dee.on_shutdown
                    def fail(instruction: Instructed) -> None:
                        raise OSError

                await ann.shutdown("dee")
                await asyncio.wait_for(dee.wait_closed(), TIMEOUT)

    async def test_a_function_that_hangs(self, gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(controlled, "SHUTDOWN_SECONDS", 0.1)
        async with enter(gateway, "ann") as ann:
            bob = await enter(gateway, "bob")

            @bob.on_shutdown
            async def hang(instruction: Instructed) -> None:
                await asyncio.Event().wait()

            await ann.shutdown("bob")
            await asyncio.wait_for(bob.wait_closed(), TIMEOUT)

    async def test_not_for_others(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, enter(gateway, "cy") as cy:
            told: list[str] = []
            for on in (bob.on_pause, bob.on_clear, bob.on_restart, bob.on_shutdown):
                on(lambda instruction: told.append(instruction.kind))
            await ann.pause("cy")
            await ann.resume("cy")
            await ann.clear("cy")
            await ann.restart("cy")
            await ann.shutdown("cy")
            await cy.wait_closed()
            assert await ann.request("ping", to="bob") == {}
            assert not told

    async def test_a_flood_of_instructions_is_bounded(
        self, gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(controlled, "MAX_WAITING", 5)
        async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
            release = threading.Event()
            begun: list[Any] = []

            @bob.on_clear
            def slow(instruction: Instructed) -> None:
                begun.append(instruction)
                release.wait(TIMEOUT)

            for _ in range(50):
                await ann.send("participant/clear", to="bob")
            assert await ann.request("ping", to="bob") == {}, "and the rest goes on"
            assert bob._controlled._waiting.qsize() <= 5
            release.set()
            await eventually(lambda: bob._controlled._waiting.qsize() == 0)
            assert len(begun) <= 7

    def test_what_is_no_function(self, gateway: GatewayProcess) -> None:
        with (
            mewstream.sync.connect(gateway.ws_url, participant="bob", token=token_of("bob")) as bob,
            pytest.raises(TypeError, match="not a function"),
        ):
            bob.on_pause("x")  # type: ignore[type-var]


def test_without_async(gateway: GatewayProcess) -> None:
    def enter(name: str) -> mewstream.sync.Space:
        return mewstream.sync.connect(gateway.ws_url, participant=name, token=token_of(name))

    with enter("ann") as ann:
        bob = enter("bob")
        said: list[str] = []

        @bob.on_clear
        def clear(instruction: Instructed) -> None:
            said.append("cleared")
            bob.chat("from the function")

        bob.on_status(lambda instruction: Status(7))
        bob.on_compact(lambda instruction: Compacted(freed_messages=1))
        bob.on_forget(lambda instruction: None)
        bob.on_pause(lambda instruction: said.append("paused"))
        bob.on_resume(lambda instruction: said.append("resumed"))
        bob.on_restart(lambda instruction: said.append("restarted"))
        bob.on_shutdown(lambda instruction: said.append("ended"))
        assert ann.clear("bob").messages_in_context == 7
        assert ann.forget("bob", entries=1).messages_in_context == 7
        assert ann.compact("bob").freed_messages == 1
        ann.pause("bob")
        assert ann.request_status("bob").status == "paused"
        assert bob.is_paused
        ann.resume("bob")
        ann.restart("bob")
        bob.report_status(Status(1))
        ann.shutdown("bob")
        bob.wait_closed()
        assert said == ["cleared", "paused", "resumed", "restarted", "ended"]
        bob.close()
