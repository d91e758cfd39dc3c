"""Who may what, who is in and who is out, while everyone is connected (WIRE, "Envelopes"; decisions 6 and 10)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from support import AT_ONCE, TIMEOUT, Client, GatewayProcess, Message, active_stream, running_gateway, space_config

CHAT = [{"kind": "chat"}]
KICKED = 4501
_numbers = itertools.count()


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """``alice`` may do everything, ``dave`` may grant and invite within his own bounds, the others chat."""
    capabilities: dict[str, list[Any]] = {
        "bob": CHAT,
        "carol": CHAT,
        "dave": [{"kind": "capability/*"}, {"kind": "space/invite"}, {"kind": "chat"}, {"kind": "mcp/*"}],
    }
    config = space_config("alice", "bob", "carol", "dave", capabilities=capabilities, mewstream=AT_ONCE)
    with running_gateway(config) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def patient() -> Iterator[GatewayProcess]:
    """A gateway that keeps the rights of a lost connection for a while."""
    policies = {"reconnect_grace": 2.0}
    config = space_config("alice", "bob", "carol", mewstream={"policies": policies})
    with running_gateway(config) as gateway:
        yield gateway


@contextlib.asynccontextmanager
async def joined(gateway: GatewayProcess, *participants: str) -> AsyncIterator[list[Client]]:
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for participant in participants:
            clients.append(await enter(gateway, participant))
            stack.push_async_callback(clients[-1].close)
        for client in clients:
            await client.settle()
        for client in clients:
            await client.settle()
            client.got.clear()
        yield clients


async def enter(gateway: GatewayProcess, participant: str, **fields: Any) -> Client:
    client = await gateway.join(participant, **fields)
    client.participant = f"{participant}-{next(_numbers)}"
    return client


async def join_by_token(gateway: GatewayProcess, participant: str, token: str) -> Client:
    client = await Client.connect(f"{gateway.ws_url}/ws")
    await client.send_raw(json.dumps({"type": "join", "participantId": participant, "token": token}))
    client.participant = f"{participant}-{next(_numbers)}"
    return client


def kinds(messages: list[Any]) -> list[str]:
    return [each["kind"] for each in messages if isinstance(each, dict)]


async def grant_write(owner: Client, stream: str, participant: str) -> None:
    id = await owner.send("stream/grant-write", {"stream_id": stream, "participant_id": participant})
    await owner.receive("stream/write-granted", of=id)


async def works(client: Client, kind: str, payload: Message) -> bool:
    id = await client.send(kind, payload)
    answer = await client.wait_for(
        lambda each: isinstance(each, dict) and (each["id"] == id or id in each.get("correlation_id", ()))
    )
    return bool(answer["kind"] != "system/error")


class TestCapabilities:
    async def test_a_grant_gives_a_new_welcome(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob", "carol") as (alice, bob, carol):
            stream = await alice.open_stream(description="seen in the new welcome")
            assert not await works(bob, "mcp/request", {"method": "x"})
            added = [{"kind": "mcp/request"}]
            id = await alice.send("capability/grant", {"recipient": "bob", "capabilities": added})
            relayed = await bob.receive("capability/grant")
            assert relayed["id"] == id
            welcome = await bob.receive("system/welcome")
            assert welcome["to"] == ["bob"]
            assert welcome["payload"]["you"] == {"id": "bob", "capabilities": CHAT + added}
            assert {each["id"] for each in welcome["payload"]["participants"]} == {"alice", "carol"}
            assert active_stream(welcome, stream)["description"] == "seen in the new welcome"
            assert await works(bob, "mcp/request", {"method": "x"})

            # The recipient acknowledges, whatever else it may send.
            await bob.send("capability/grant-ack", {"status": "accepted"}, correlation_id=[id])
            assert (await alice.receive("capability/grant-ack", of=id))["from"] == "bob"
            told = await carol.settle()
            assert "capability/grant" in kinds(told)
            assert "system/welcome" not in kinds(told), "that is for the recipient alone"

            await alice.send("capability/revoke", {"grant_id": id})
            welcome = await bob.receive("system/welcome")
            assert welcome["payload"]["you"]["capabilities"] == CHAT
            assert not await works(bob, "mcp/request", {"method": "x"})

    async def test_revoked_by_recipient_and_patterns(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            granted = [{"kind": "mcp/request"}, {"kind": "reasoning/*"}]
            await alice.send("capability/grant", {"recipient": "bob", "capabilities": granted})
            await bob.receive("system/welcome")
            await alice.send("capability/revoke", {"recipient": "bob", "capabilities": granted[:1]})
            welcome = await bob.receive("system/welcome")
            assert welcome["payload"]["you"]["capabilities"] == CHAT + granted[1:]
            assert await works(bob, "reasoning/start", {})
            await alice.send("capability/revoke", {"recipient": "bob", "capabilities": granted[1:]})
            welcome = await bob.receive("system/welcome")
            assert welcome["payload"]["you"]["capabilities"] == CHAT

    async def test_what_one_does_not_hold_one_cannot_give(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "dave", "bob") as (dave, bob):
            for pattern in ({"kind": "*"}, {"kind": "stream/request"}, {"kind": "space/*"}):
                id = await dave.send("capability/grant", {"recipient": "bob", "capabilities": [pattern]})
                error = await dave.error("capability_violation", of=id)
                assert error["payload"]["attempted_kind"] == pattern["kind"]
            assert await bob.settle() == []
            id = await dave.send("capability/grant", {"recipient": "bob", "capabilities": [{"kind": "mcp/request"}]})
            await bob.receive("system/welcome")
            await dave.send("capability/revoke", {"grant_id": id})
            await bob.receive("system/welcome")

    async def test_others_see_the_new_capabilities(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            added = [{"kind": "mcp/request"}]
            id = await alice.send("capability/grant", {"recipient": "bob", "capabilities": added})
            await bob.receive("system/welcome")
            async with joined(gateway, "carol") as (carol,):
                (seen,) = [each for each in carol.welcome["payload"]["participants"] if each["id"] == "bob"]
                assert seen["capabilities"] == CHAT + added
            await alice.send("capability/revoke", {"grant_id": id})
            await bob.receive("system/welcome")


class TestInvitations:
    async def test_the_token_works(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            name = f"guest-{next(_numbers)}"
            id = await alice.send("space/invite", {"participant_id": name, "capabilities": CHAT})
            ack = await alice.receive("space/invite-ack", of=id)
            assert ack["from"] == "system:gateway"
            assert ack["to"] == ["alice"]
            assert set(ack["payload"]) == {"status", "participant_id", "token", "connection_url"}
            assert ack["payload"]["participant_id"] == name
            token = ack["payload"]["token"]
            presence = await bob.receive("system/presence")
            assert presence["payload"]["event"] == "invited"
            assert presence["payload"]["participant"] == {"id": name, "capabilities": CHAT}
            told = [*await bob.settle(), *bob.got]
            assert "space/invite-ack" not in kinds(told)
            assert token not in json.dumps(told)

            guest = await join_by_token(gateway, name, token)
            welcome = await guest.receive("system/welcome")
            assert welcome["payload"]["you"] == {"id": name, "capabilities": CHAT}
            await bob.receive("system/presence", event="join")
            assert await works(guest, "chat", {"text": "hi"})
            assert not await works(guest, "mcp/request", {"method": "x"})
            await guest.close()

            thief = await join_by_token(gateway, "bob", token)
            assert await thief.closed() == 4500

    @pytest.mark.parametrize("kind", ["space/kick", "*", "s*", "*/*", "system/*"])
    async def test_no_privilege_that_the_inviter_lacks(self, gateway: GatewayProcess, kind: str) -> None:
        async with joined(gateway, "dave", "bob") as (dave, bob):
            invite = {"participant_id": f"guest-{next(_numbers)}", "capabilities": [{"kind": kind}]}
            id = await dave.send("space/invite", invite)
            error = await dave.error("capability_violation", of=id)
            ack = await dave.receive("space/invite-ack", of=id)
            assert ack["payload"] == {
                "status": "error",
                "error": "capability_violation",
                "message": error["payload"]["message"],
            }
            id = await bob.send("space/invite", {**invite, "capabilities": CHAT})
            await bob.error("capability_violation", of=id)

    async def test_ordinary_ones_may_be_given(self, gateway: GatewayProcess) -> None:
        """WIRE, "What the reference's own tools and scenarios rely on"."""
        async with joined(gateway, "dave") as (dave,):
            given = [{"kind": "stream/*"}, {"kind": "reasoning/*"}]
            name = f"guest-{next(_numbers)}"
            id = await dave.send("space/invite", {"participant_id": name, "initial_capabilities": given})
            token = (await dave.receive("space/invite-ack", of=id))["payload"]["token"]
            guest = await join_by_token(gateway, name, token)
            welcome = await guest.receive("system/welcome")
            assert welcome["payload"]["you"]["capabilities"] == given
            await guest.open_stream()
            await guest.close()

    async def test_somebody_who_is_known(self, gateway: GatewayProcess) -> None:
        """Spec 3.6.6: an acknowledgement that says so, beside the error."""
        invite = {"participant_id": "bob", "capabilities": CHAT}
        async with joined(gateway, "alice") as (alice,):
            id = await alice.send("space/invite", invite)
            error = await alice.error("already_exists", of=id)
            assert error["payload"]["participant_id"] == "bob"
            ack = await alice.receive("space/invite-ack", of=id)
            assert ack["to"] == ["alice"]
            assert ack["payload"]["status"] == ack["payload"]["error"] == "already_exists"
            assert ack["payload"]["participant_id"] == "bob"
            assert "token" not in ack["payload"]
            # The same message again is answered as before, in both ways.
            await alice.send("space/invite", invite, id=id)
            await alice.error("already_exists", of=id)
            assert (await alice.receive("space/invite-ack", of=id))["payload"] == ack["payload"]
            status, answer = await gateway.post("alice", {"kind": "space/invite", "payload": invite})
            assert (status, answer["payload"]["error"]) == (409, "already_exists")

    @pytest.mark.parametrize("name", ["a/b", "a..b", "x\\y", "../../etc/passwd", "a\x00b", "a\nb"])
    async def test_ids_that_lead_elsewhere(self, gateway: GatewayProcess, name: str) -> None:
        async with joined(gateway, "alice") as (alice,):
            invite = {"participant_id": name, "capabilities": CHAT}
            id = await alice.send("space/invite", invite)
            error = await alice.error("validation_error", of=id)
            assert "invalid characters" in error["payload"]["message"]
            assert (await alice.receive("space/invite-ack", of=id))["payload"]["status"] == "error"
            status, answer = await gateway.post("alice", {"kind": "space/invite", "payload": invite})
            assert (status, answer["payload"]["error"]) == (400, "validation_error")
            assert "invalid characters" in answer["payload"]["message"]
            # Nor may anyone claim to be one.
            path = f"/participants/{quote(name, safe='')}/messages"
            status, answer = await gateway.http("POST", path, "alice", json={"kind": "chat", "payload": {"text": "x"}})
            assert (status, answer["payload"]["error"]) == (400, "validation_error")
            stranger = await Client.connect(f"{gateway.ws_url}/ws")
            await stranger.send_raw(json.dumps({"type": "join", "participantId": name, "token": "x"}))
            await stranger.error("validation_error")
            assert await stranger.closed() == 4503

    async def test_it_outlives_the_gateway(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        """With a data directory, where tokens are kept hashed (DESIGN, "journal")."""
        directory = tmp_path_factory.mktemp("invited")
        gateway = GatewayProcess(directory, space_config("alice"), options=("--data", "data")).start()
        _, answer = await gateway.post("alice", {"kind": "space/invite", "payload": {"participant_id": "guest"}})
        gateway.stop()
        kept = [path.read_bytes() for path in (directory / "data").rglob("*") if path.is_file()]
        assert kept
        assert not any(answer["token"].encode() in each for each in kept)
        gateway = GatewayProcess(directory, space_config("alice"), options=("--data", "data")).start()
        try:
            guest = await join_by_token(gateway, "guest", answer["token"])
            await guest.receive("system/welcome")
            await guest.close()
        finally:
            gateway.stop()

    async def test_one_that_cannot_be_kept_is_refused(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        """The inviter is told, keeps its connection, and may try again when the disk is back."""
        directory = tmp_path_factory.mktemp("broken")
        gateway = GatewayProcess(directory, space_config("alice", "bob"), options=("--data", "data")).start()
        data, aside = directory / "data", directory / "aside"
        invite = {"kind": "space/invite", "payload": {"participant_id": "guest"}}
        try:
            async with joined(gateway, "alice") as (alice,):
                data.rename(aside)
                data.write_text("a file where the directory was")
                await alice.send(**invite)
                await alice.error("journal_unavailable")
                status, answer = await gateway.post("bob", invite)
                assert (status, answer["payload"]["error"]) == (503, "journal_unavailable")
                data.unlink()
                aside.rename(data)
                status, answer = await gateway.post("bob", invite)
                assert (status, answer["status"]) == (200, "created")
        finally:
            gateway.stop(expect_clean_log=False)
        assert "Traceback" not in gateway.log.read_text()


class TestKick:
    async def test_a_kick_disconnects_and_revokes(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob", "carol") as (alice, bob, carol):
            stream = await alice.open_stream()
            await grant_write(alice, stream, "bob")
            await carol.receive("stream/write-granted")
            id = await alice.send("space/kick", {"participant_id": "bob", "reason": "enough"})
            assert await bob.closed() == KICKED
            told_to_bob = [each for each in bob.got if isinstance(each, dict) and each["id"] == id]
            assert [each["payload"]["reason"] for each in told_to_bob] == ["enough"], "it is told why"
            left = await carol.receive("system/presence")
            assert left["payload"] == {"event": "leave", "participant": {"id": "bob"}}
            revoked = (await carol.receive("stream/write-revoked"))["payload"]
            assert (revoked["stream_id"], revoked["participant_id"]) == (stream, "bob")
            assert (revoked["reason"], revoked["authorized_writers"]) == ("kicked", ["alice"])
            assert kinds(await carol.settle()) == [], "one leave"

            back = await enter(gateway, "bob")
            assert active_stream(back.welcome, stream)["authorized_writers"] == ["alice"]
            await back.close()

    async def test_not_without_the_capability(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "bob", "carol") as (bob, carol):
            id = await bob.send("space/kick", {"participant_id": "carol"})
            await bob.error("capability_violation", of=id)
            assert kinds(await carol.settle()) == []

    async def test_somebody_absent(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice") as (alice,):
            id = await alice.send("space/kick", {"participant_id": "bob"})
            await alice.error("participant_not_found", of=id)

    async def test_oneself(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            await alice.send("space/kick", {"participant_id": "alice"})
            assert await alice.closed() == KICKED
            await bob.receive("system/presence", event="leave")


class TestPause:
    async def test_until_it_is_resumed(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            stream = await alice.open_stream()
            await grant_write(alice, stream, "bob")
            await alice.send("participant/pause", {"reason": "wait"}, to=["bob"])
            await bob.receive("participant/pause")
            id = await bob.send("chat", {"text": "but"})
            await bob.error("invalid_operation", of=id)
            await bob.frame(stream, "but")
            await bob.error("invalid_operation")
            assert await works(bob, "mcp/response", {"result": {}})
            # Held to what a paused one may do, and still within its capabilities.
            id = await bob.send("participant/status", {})
            await bob.error("capability_violation", of=id)
            await alice.send("participant/resume", {}, to=["bob"])
            await bob.receive("participant/resume")
            assert await works(bob, "chat", {"text": "again"})
            await bob.frame(stream, "again")
            assert await alice.receive_frame(stream) == "again"

    async def test_over_http_as_well(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            await alice.send("participant/pause", {}, to=["bob"])
            await bob.receive("participant/pause")
            status, answer = await gateway.post("bob", {"kind": "chat", "payload": {"text": "but"}})
            assert (status, answer["payload"]["error"]) == (400, "invalid_operation")
            await alice.send("participant/resume", {}, to=["bob"])
            await bob.receive("participant/resume")

    async def test_it_ends_by_itself(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            await alice.send("participant/pause", {"timeout_seconds": 0.5}, to=["bob"])
            await bob.receive("participant/pause")
            assert not await works(bob, "chat", {"text": "too early"})
            async with asyncio.timeout(TIMEOUT):
                while True:
                    if await works(bob, "chat", {"text": "now?"}):
                        break
                    await asyncio.sleep(0.05)

    async def test_reconnecting_is_no_way_out(self, gateway: GatewayProcess) -> None:
        """ "until the timeout or resume": who is paused cannot shake it off by leaving for a moment."""
        async with joined(gateway, "alice", "bob") as (alice, bob):
            await alice.send("participant/pause", {}, to=["bob"])
            await bob.receive("participant/pause")
            second = await enter(gateway, "bob")
            replaced = await works(second, "chat", {"text": "on a second connection"})
            await second.close()
            third = await enter(gateway, "bob")
            left = await works(third, "chat", {"text": "after leaving"})
            await alice.send("participant/resume", {}, to=["bob"])
            await third.receive("participant/resume")
            await third.close()
            assert (replaced, left) == (False, False)

    async def test_not_without_the_capability(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "bob", "carol") as (bob, carol):
            id = await bob.send("participant/pause", {}, to=["carol"])
            await bob.error("capability_violation", of=id)
            assert await works(carol, "chat", {"text": "free"})


class TestLeaving:
    """Without a grace (the default) a writer that disconnects loses its right at once."""

    @pytest.mark.parametrize("how", ["closes", "breaks"])
    async def test_a_writer(self, gateway: GatewayProcess, how: str) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            stream = await alice.open_stream()
            await grant_write(alice, stream, "bob")
            if how == "closes":
                await bob.close()
            else:
                bob.connection.transport.abort()
            revoked = (await alice.receive("stream/write-revoked"))["payload"]
            assert (revoked["participant_id"], revoked["reason"]) == ("bob", "disconnected")
            back = await enter(gateway, "bob")
            await back.frame(stream, "too late")
            await back.error("unauthorized_stream_write")
            await back.close()

    async def test_an_owner(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            stream = await alice.open_stream()
            await grant_write(alice, stream, "bob")
            await alice.close()
            await bob.receive("system/presence", event="leave")
            await bob.frame(stream, "goes on")
            assert await bob.receive_frame(stream) == "goes on"
            carol = await enter(gateway, "carol")
            assert active_stream(carol.welcome, stream)["owner_connected"] is False
            await carol.close()
            back = await enter(gateway, "alice")
            entry = active_stream(back.welcome, stream)
            assert (entry["owner"], entry["owner_connected"]) == ("alice", True)
            await back.close()


class TestGrace:
    async def test_rights_survive_a_quick_rejoin(self, patient: GatewayProcess) -> None:
        async with joined(patient, "alice", "bob") as (alice, bob):
            stream = await alice.open_stream()
            await grant_write(alice, stream, "bob")
            bob.connection.transport.abort()
            await self.disconnected(patient, "bob")
            # While it is away it counts as present, and gets nothing.
            await grant_write(alice, stream, "bob")
            carol = await enter(patient, "carol")
            assert "bob" in [each["id"] for each in carol.welcome["payload"]["participants"]]
            await alice.frame(stream, "nobody named bob is listening")
            await alice.receive_frame(stream)

            back = await enter(patient, "bob")
            assert active_stream(back.welcome, stream)["authorized_writers"] == ["alice", "bob"]
            await back.frame(stream, "back in time")
            assert await alice.receive_frame(stream) == "back in time"
            about_bob = [each for each in alice.got if _presence_of(each, "bob")]
            assert about_bob == [], "others did not notice"
            assert "stream/write-revoked" not in kinds(alice.got)
            assert "nobody named bob is listening" not in json.dumps(
                [each for each in back.got if isinstance(each, str)]
            )
            await back.close()
            await carol.close()

    async def test_they_are_revoked_after_it(self, patient: GatewayProcess) -> None:
        async with joined(patient, "alice", "carol") as (alice, carol):
            stream = await alice.open_stream()
            await grant_write(alice, stream, "carol")
            await carol.close()
            await alice.receive("system/presence", event="leave", participant={"id": "carol"})
            revoked = (await alice.receive("stream/write-revoked", participant_id="carol"))["payload"]
            assert (revoked["stream_id"], revoked["reason"]) == (stream, "disconnected")
            back = await enter(patient, "carol")
            await back.frame(stream, "too late")
            await back.error("unauthorized_stream_write")
            await alice.wait_for(lambda each: _presence_of(each, "carol"))
            await back.close()

    async def test_somebody_suspended_can_be_kicked(self, patient: GatewayProcess) -> None:
        async with joined(patient, "alice") as (alice,):
            name = "carol"
            carol = await enter(patient, name)
            stream = await alice.open_stream()
            await grant_write(alice, stream, name)
            await carol.close()
            await self.disconnected(patient, name)
            await alice.send("space/kick", {"participant_id": name})
            await alice.receive("system/presence", event="leave", participant={"id": name})
            revoked = (await alice.receive("stream/write-revoked", participant_id=name))["payload"]
            assert revoked["reason"] == "kicked"

    async def disconnected(self, gateway: GatewayProcess, participant: str) -> None:
        async with asyncio.timeout(TIMEOUT):
            while True:
                _, answer = await gateway.http("GET", "/participants", "alice")
                (entry,) = [each for each in answer["participants"] if each["id"] == participant]
                if not entry["connected"]:
                    return
                await asyncio.sleep(0.01)


def _presence_of(message: Any, participant: str) -> bool:
    if not isinstance(message, dict) or message["kind"] != "system/presence":
        return False
    return bool(message["payload"]["participant"]["id"] == participant)
