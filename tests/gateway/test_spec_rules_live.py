"""The rules of the spec over real sockets (WIRE, "Rules of the spec (v0.4) that ours must keep")."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import Client, GatewayProcess, Message, running_gateway, space_config

CHAT = {"kind": "chat"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """``alice`` may do everything, ``bob`` proposes, ``carol`` only chats."""
    capabilities: dict[str, list[Any]] = {
        "bob": [CHAT, {"kind": "chat/*"}, {"kind": "mcp/*"}, {"kind": "stream/*"}, {"kind": "participant/status"}],
        "carol": [CHAT, {"kind": "mcp/withdraw"}],
    }
    with running_gateway(space_config("alice", "bob", "carol", capabilities=capabilities)) as gateway:
        yield gateway


@contextlib.asynccontextmanager
async def joined(gateway: GatewayProcess, *participants: str) -> AsyncIterator[list[Client]]:
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for participant in participants:
            clients.append(await gateway.join(participant))
            stack.push_async_callback(clients[-1].close)
        for client in clients:
            await client.settle()
        yield clients


def kinds(messages: list[Any]) -> list[str]:
    return [each["kind"] for each in messages if isinstance(each, dict)]


async def accepted(client: Client, kind: str, payload: Message, **fields: Any) -> Message:
    """The envelope as everyone got it."""
    id = await client.send(kind, payload, **fields)
    return await client.wait_for(lambda each: isinstance(each, dict) and each["id"] == id)


class TestReservedKinds:
    @pytest.mark.parametrize("kind", ["system/register", "system/welcome", "stream/open", "space/invite-ack"])
    async def test_over_http_and_the_socket(self, gateway: GatewayProcess, kind: str) -> None:
        text = f"{kind} is reserved for the gateway"
        async with joined(gateway, "bob") as (bob,):
            status, answer = await gateway.post("bob", {"id": f"r-{kind}", "kind": kind, "payload": {}})
            assert status == 400
            assert text in answer["payload"]["message"]
            told = await bob.error("reserved_kind", of=f"r-{kind}")
            assert text in told["payload"]["message"]
            id = await bob.send(kind, {})
            assert text in (await bob.error("reserved_kind", of=id))["payload"]["message"]


class TestRevokeByPattern:
    async def test_everyone_is_told_and_the_recipient_is_welcomed_anew(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "carol", "bob") as (alice, carol, bob):
            given = [{"kind": "mcp/request"}, {"kind": "mcp/proposal"}, {"kind": "reasoning/*"}]
            await alice.send("capability/grant", {"recipient": "carol", "capabilities": given})
            await carol.receive("system/welcome")
            id = await alice.send("capability/revoke", {"recipient": "carol", "capabilities": [{"kind": "mcp/*"}]})
            for client in (alice, bob, carol):
                assert (await client.receive("capability/revoke"))["id"] == id
            welcome = await carol.receive("system/welcome")
            own = [CHAT, {"kind": "mcp/withdraw"}]
            assert welcome["payload"]["you"]["capabilities"] == [*own, {"kind": "reasoning/*"}]
            # Whether or not something matches.
            payload = {"recipient": "carol", "capabilities": [{"kind": "*"}, {"kind": "never/granted"}]}
            for expected in ([*own], [*own]):
                status, answer = await gateway.post("alice", {"kind": "capability/revoke", "payload": payload})
                assert (status, answer["status"]) == (200, "accepted")
                await bob.receive("capability/revoke")
                welcome = await carol.receive("system/welcome")
                assert welcome["payload"]["you"]["capabilities"] == expected


class TestProposals:
    async def test_a_stranger_cannot_withdraw(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob", "carol") as (alice, bob, carol):
            proposal = await bob.send("mcp/proposal", {"method": "tools/call"}, to=["alice"])
            await alice.receive("mcp/proposal")
            for stranger in (carol, alice):
                id = await stranger.send("mcp/withdraw", {"reason": "mine now"}, correlation_id=[proposal])
                await stranger.error("unauthorized", of=id)
            id = await bob.send("mcp/withdraw", {})
            error = await bob.error("validation_error", of=id)
            assert error["payload"]["field"] == "correlation_id"
            await accepted(bob, "mcp/withdraw", {"reason": "no_longer_needed"}, correlation_id=[proposal])
            assert kinds(await carol.settle()).count("mcp/withdraw") == 1
            assert (await alice.receive("mcp/withdraw"))["from"] == "bob"

    async def test_a_rejection_names_one(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            proposal = await bob.send("mcp/proposal", {"method": "tools/call"})
            id = await alice.send("mcp/reject", {"reason": "unsafe"})
            await alice.error("validation_error", of=id)
            id = await alice.send("mcp/reject", {"reason": "unsafe"}, correlation_id=["never-proposed"])
            await alice.error("invalid_operation", of=id)
            await accepted(alice, "mcp/reject", {"reason": "unsafe"}, correlation_id=[proposal])
            assert (await bob.receive("mcp/reject", of=proposal))["from"] == "alice"

    async def test_known_after_a_restart(self, tmp_path: Path) -> None:
        gateway = GatewayProcess(tmp_path, space_config("alice", "bob"), options=("--data", "data")).start()
        await gateway.post("bob", {"id": "p1", "kind": "mcp/proposal", "payload": {"method": "x"}})
        gateway.stop()
        gateway = GatewayProcess(tmp_path, space_config("alice", "bob"), options=("--data", "data")).start()
        try:
            withdraw = {"kind": "mcp/withdraw", "payload": {}, "correlation_id": ["p1"]}
            assert (await gateway.post("alice", withdraw))[0] == 403
            assert (await gateway.post("bob", withdraw))[0] == 200
        finally:
            gateway.stop()


class TestPause:
    async def test_cancellations_are_still_taken(self, gateway: GatewayProcess) -> None:
        """Spec 3.9.1."""
        async with joined(gateway, "alice", "bob") as (alice, bob):
            stream = await bob.open_stream()
            proposal = await bob.send("mcp/proposal", {"method": "x"})
            await accepted(alice, "participant/pause", {}, to=["bob"])
            id = await bob.send("chat", {"text": "hi"})
            await bob.error("invalid_operation", of=id)
            for kind in ("chat/acknowledge", "chat/cancel", "participant/status"):
                await accepted(bob, kind, {})
            await accepted(bob, "mcp/withdraw", {}, correlation_id=[proposal])
            await accepted(bob, "stream/close", {"stream_id": stream})
            await accepted(alice, "participant/resume", {}, to=["bob"])
            await accepted(bob, "chat", {"text": "hi"})

    async def test_its_end_by_time_is_told_to_everyone(self, gateway: GatewayProcess) -> None:
        """Spec 3.9.2."""
        async with joined(gateway, "alice", "bob", "carol") as (alice, bob, carol):
            pause = await alice.send("participant/pause", {"timeout_seconds": 0.3}, to=["bob"])
            for client in (alice, bob, carol):
                told = await client.receive("participant/resume", of=pause)
                assert (told["from"], told["to"]) == ("system:gateway", ["bob"])
                assert told["payload"] == {"reason": "timeout"}
            await accepted(bob, "chat", {"text": "hi"})
            _, history = await gateway.http("GET", "/participants/carol/messages", "carol")
            assert pause in [each.get("correlation_id", [""])[0] for each in history["messages"]]


class TestShutdown:
    async def test_until_it_joins_again(self, gateway: GatewayProcess) -> None:
        """Spec 3.9.10, over the socket and over HTTP."""
        chat = {"kind": "chat", "payload": {"text": "hi"}}
        async with joined(gateway, "alice", "bob") as (alice, bob):
            stream = await bob.open_stream()
            id = await alice.send("participant/shutdown", {"reason": "done"}, to=["bob"])
            assert (await bob.receive("participant/shutdown"))["id"] == id
            # It says that it knows, as the reference's agents do.
            await accepted(bob, "participant/status", {"status": "shutting_down:done"}, correlation_id=[id])
            await accepted(bob, "chat/acknowledge", {}, correlation_id=[id])
            refused = await bob.send(**chat)
            error = await bob.error("invalid_operation", of=refused)
            assert "join again" in error["payload"]["message"]
            for _ in range(3):
                await bob.frame(stream, "x")
            assert (await bob.error("invalid_operation"))["payload"]["stream_id"] == stream
            status, answer = await gateway.post("bob", chat)
            assert (status, answer["payload"]["error"]) == (400, "invalid_operation")
            assert "chat" not in kinds(await alice.settle())
            await bob.close()
            await alice.receive("system/presence", event="leave")
            assert (await gateway.post("bob", chat))[0] == 400, "it has not joined"
            async with joined(gateway, "bob") as (bob,):
                await accepted(bob, **chat)
                assert (await gateway.post("bob", chat))[0] == 200

    async def test_not_without_the_capability(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            id = await bob.send("participant/shutdown", {}, to=["alice"])
            await bob.error("capability_violation", of=id)
            await accepted(alice, "chat", {"text": "hi"})
            id = await alice.send("participant/shutdown", {})
            assert (await alice.error("validation_error", of=id))["payload"]["field"] == "to"


class TestIds:
    async def test_of_another(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            id = await alice.send("chat", {"text": "hi"})
            await bob.receive("chat")
            await bob.send("chat", {"text": "hi"}, id=id)
            await bob.error("invalid_request", of=id)
            status, answer = await gateway.post("bob", {"id": id, "kind": "chat", "payload": {"text": "ho"}})
            assert (status, answer["payload"]["error"]) == (400, "invalid_request")
            # Its own sender may repeat it, and is answered as before.
            await alice.settle()
            await alice.send("chat", {"text": "hi"}, id=id)
            assert (await alice.receive("chat"))["id"] == id
            await alice.send("chat", {"text": "something else"}, id=id)
            await alice.error("invalid_request", of=id)
            assert kinds(await bob.settle()).count("chat") == 0

    async def test_a_repeated_announcement_with_a_scope(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            payload = {"scope": ["bob"], "intent": "soon", "description": "x"}
            id = await alice.send("stream/announce", payload)
            ready = await alice.receive("stream/ready", of=id)
            assert (await bob.receive("stream/announce"))["to"] == ["bob"]
            await bob.settle()
            await alice.send("stream/announce", payload, id=id)
            again = await alice.receive("stream/ready", of=id)
            assert again == ready
            assert await bob.settle() == [], "nothing happened"
            status, answer = await gateway.post("alice", {"id": id, "kind": "stream/announce", "payload": payload})
            assert (status, answer["stream_id"]) == (200, ready["payload"]["stream"]["stream_id"])
            await accepted(alice, "stream/close", {"stream_id": ready["payload"]["stream"]["stream_id"]})


class TestMessages:
    @pytest.mark.parametrize("number", ["1e400", "-1e400", "1" * 5_000, "1" * 400 + ".0"])
    async def test_numbers_that_nobody_can_decode(self, gateway: GatewayProcess, number: str) -> None:
        """In a kind that the gateway does not look into, and in a field that it does not know."""
        async with joined(gateway, "alice", "bob") as (alice, bob):
            for rest in (f'"payload":{{"n":[{number}]}}', f'"payload":{{}},"x-unknown":{number}'):
                body = f'{{"kind":"unknown/kind",{rest}}}'
                await alice.send_raw(body)
                error = await alice.error("validation_error")
                assert "out of range" in error["payload"]["message"]
                headers = {"Content-Type": "application/json"}
                path = "/participants/alice/messages"
                status, _ = await gateway.http("POST", path, "alice", data=body.encode(), headers=headers)
                assert status == 400
            assert await bob.settle() == []

    @pytest.mark.parametrize("context", [{"a": 1}, ["a"], 7, True])
    async def test_context_is_a_string(self, gateway: GatewayProcess, context: Any) -> None:
        async with joined(gateway, "alice") as (alice,):
            id = await alice.send("chat", {"text": "hi"}, context=context)
            assert (await alice.error("validation_error", of=id))["payload"]["field"] == "context"
            told = await accepted(alice, "chat", {"text": "hi"}, context="parent/child")
            assert told["context"] == "parent/child"
            assert "context" not in await accepted(alice, "chat", {"text": "hi"}, context=None)


class TestRepeatedInvitations:
    """The token is the same as long as it is known, is replaced after a restart, and is never one more."""

    def tokens(self, directory: Path) -> dict[str, list[str]]:
        kept = json.loads((directory / "data" / "invited.json").read_text())
        return dict(kept["demo"])

    def start(self, directory: Path) -> GatewayProcess:
        config = space_config("alice", "bob")
        return GatewayProcess(directory, config, options=("--data", "data")).start()

    async def join(self, gateway: GatewayProcess, name: str, token: str) -> Client:
        client = await Client.connect(f"{gateway.ws_url}/ws")
        client.participant = name
        await client.send_raw(json.dumps({"type": "join", "participantId": name, "token": token}))
        return client

    async def test_the_same_token_as_long_as_it_is_known(self, tmp_path: Path) -> None:
        """Of 200 invitations of two, each repeated: no token beyond the 200."""
        gateway = self.start(tmp_path)
        try:
            async with joined(gateway, "alice", "bob") as inviters:
                first: list[tuple[Client, str, str, str]] = []
                for number in range(200):
                    inviter, name = inviters[number // 100], f"guest-{number}"
                    id = await inviter.send("space/invite", {"participant_id": name})
                    token = (await inviter.receive("space/invite-ack", of=id))["payload"]["token"]
                    first.append((inviter, name, id, token))
                for inviter, name, id, token in first:
                    await inviter.send("space/invite", {"participant_id": name}, id=id)
                    assert (await inviter.receive("space/invite-ack", of=id))["payload"]["token"] == token
            assert [len(each) for each in self.tokens(tmp_path).values()] == [1] * 200
        finally:
            gateway.stop()

    async def test_a_new_one_replaces_it_after_a_restart(self, tmp_path: Path) -> None:
        invite = {"id": "i1", "kind": "space/invite", "payload": {"participant_id": "guest"}}
        gateway = self.start(tmp_path)
        _, first = await gateway.post("alice", invite)
        gateway.stop()
        gateway = self.start(tmp_path)
        try:
            status, second = await gateway.post("alice", invite)
            assert (status, second["status"]) == (200, "created")
            assert second["token"] != first["token"]
            assert (await gateway.post("alice", invite))[1] == second
            assert [len(each) for each in self.tokens(tmp_path).values()] == [1]
            late = await self.join(gateway, "guest", first["token"])
            assert await late.closed() == 4500, "nobody was told it, for all that is known"
            guest = await self.join(gateway, "guest", second["token"])
            await guest.receive("system/welcome")
            # Whoever has come has its token: the inviter is not given another.
            status, third = await gateway.post("alice", invite)
            assert (status, third["status"]) == (200, "created")
            assert "token" not in third
            await guest.close()
        finally:
            gateway.stop()
        gateway = self.start(tmp_path)
        try:
            assert "token" not in (await gateway.post("alice", invite))[1]
            guest = await self.join(gateway, "guest", second["token"])
            await guest.receive("system/welcome")
            await guest.close()
        finally:
            gateway.stop()

    async def test_a_token_that_cannot_be_kept(self, tmp_path: Path) -> None:
        """The inviter is told, keeps its connection, and may repeat it when the disk is back."""
        gateway = self.start(tmp_path)
        await gateway.post("alice", {"id": "i1", "kind": "space/invite", "payload": {"participant_id": "guest"}})
        gateway.stop()
        gateway = self.start(tmp_path)
        data, aside = tmp_path / "data", tmp_path / "aside"
        try:
            async with joined(gateway, "alice") as (alice,):
                data.rename(aside)
                data.write_text("a file where the directory was")
                for _ in range(2):
                    await alice.send("space/invite", {"participant_id": "guest"}, id="i1")
                    await alice.error("journal_unavailable", of="i1")
                    assert (await alice.receive("space/invite-ack", of="i1"))["payload"]["status"] == "error"
                repeated = {"id": "i1", "kind": "space/invite", "payload": {"participant_id": "guest"}}
                status, answer = await gateway.post("alice", repeated)
                assert (status, answer["payload"]["error"]) == (503, "journal_unavailable")
                data.unlink()
                aside.rename(data)
                await asyncio.sleep(0)
                await alice.send("space/invite", {"participant_id": "guest"}, id="i1")
                ack = await alice.wait_for(
                    lambda each: isinstance(each, dict) and each["payload"].get("status") == "created"
                )
                guest = await self.join(gateway, "guest", ack["payload"]["token"])
                await guest.receive("system/welcome")
                await guest.close()
        finally:
            gateway.stop(expect_clean_log=False)
        assert "Traceback" not in gateway.log.read_text()

    async def test_one_that_a_crash_left_behind_is_worth_nothing(self, tmp_path: Path) -> None:
        """A token that was kept before the invitation was recorded, and that a crash came between."""
        gateway = self.start(tmp_path)
        await gateway.post("alice", {"id": "i1", "kind": "space/invite", "payload": {"participant_id": "guest"}})
        gateway.stop()
        left = self.tokens(tmp_path)
        shutil.rmtree(tmp_path / "data")
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "invited.json").write_text(json.dumps({"demo": left}))
        gateway = self.start(tmp_path)
        try:
            invite = {"id": "i2", "kind": "space/invite", "payload": {"participant_id": "guest"}}
            _, answer = await gateway.post("alice", invite)
            assert answer["token"]
            assert [len(each) for each in self.tokens(tmp_path).values()] == [1]
            assert self.tokens(tmp_path) != left
        finally:
            gateway.stop()
