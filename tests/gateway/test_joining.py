"""Who may come in, how, and what everyone is told of it (WIRE, "Connecting"; DESIGN, decisions 10, 11, 20, 22, 24)."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from mewstream.protocol.close_codes import CloseReason
from support import AT_ONCE, TIMEOUT, Client, GatewayProcess, Message, running_gateway, space_config, token_of

EVERYTHING = [{"kind": "*"}]
BOB_ONLY = [{"kind": "chat"}]
ORIGIN = "https://play.example.org:8443"

BAD_TOKEN, REPLACED, REPLACED_BY_RECONNECT, PROTOCOL_ERROR, UNKNOWN_SPACE = 4500, 4502, 4002, 4503, 4504
ORIGIN_REFUSED = 4505


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """One space, so that its name may be left out."""
    config = space_config(
        "alice",
        "bob",
        "carol",
        capabilities={"bob": BOB_ONLY},
        gateway={"allowed_origins": [ORIGIN]},
        mewstream=AT_ONCE,
    )
    with running_gateway(config) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def several() -> Iterator[GatewayProcess]:
    """Two spaces; ``alice`` of each has a token of her own. Joins must come quickly."""
    north = space_config("alice", "bob", space="north", gateway={"join_timeout": 1.5})
    south = space_config("alice", "bob", space="süd & co")
    south["participants"]["alice"]["tokens"] = ["southern-alice"]
    with running_gateway(north, south) as gateway:
        yield gateway


Connect = Callable[..., Awaitable[Client]]
#: Begins the ids of a client's envelopes: the gateway is shared, and a repeated id would be a repetition.
_numbers = itertools.count()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Open a connection and send what is given; everything is closed at the end of the test."""
    clients: list[Client] = []

    async def connect(gateway: GatewayProcess, *messages: Message, path: str = "/ws", **options: Any) -> Client:
        client = await Client.connect(gateway.ws_url + path, **options)
        client.participant = f"client-{next(_numbers)}"
        clients.append(client)
        for message in messages:
            await client.send_raw(json.dumps(message))
        return client

    yield connect
    for client in clients:
        await client.close()


def join_of(participant: str, **fields: Any) -> Message:
    return {"type": "join", "participantId": participant, "token": token_of(participant), **fields}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def first(client: Client) -> Message:
    message = await client.next()
    assert isinstance(message, dict)
    return message


async def refusal(client: Client) -> tuple[str, int]:
    """What a stranger is told, and the code that its connection is closed with."""
    told = await first(client)
    assert told["kind"] == "system/error", told
    assert told["from"] == "system:gateway"
    assert told["payload"]["message"]
    return told["payload"]["error"], await client.closed()


async def http_status(gateway: GatewayProcess, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as caught:
        await Client.connect(f"{gateway.ws_url}/ws", **options)
    return caught.value.response.status_code


def kinds(messages: list[Any]) -> list[str]:
    return [each["kind"] for each in messages if isinstance(each, dict)]


class TestSpellings:
    @pytest.mark.parametrize("name", ["participantId", "participant_id", "participant"])
    @pytest.mark.parametrize("form", ["type", "kind"])
    async def test_every_spelling_of_a_join_is_answered_by_a_welcome(
        self, gateway: GatewayProcess, connect: Connect, form: str, name: str
    ) -> None:
        fields = {name: "bob", "space": "demo", "token": token_of("bob"), "capabilities": []}
        message = {"type": "join", **fields} if form == "type" else {"kind": "system/join", "payload": fields}
        welcome = await first(await connect(gateway, message))
        assert welcome["kind"] == "system/welcome"
        assert welcome["payload"]["you"] == {"id": "bob", "capabilities": BOB_ONLY}

    async def test_a_join_as_a_whole_envelope(self, gateway: GatewayProcess, connect: Connect) -> None:
        envelope = {
            "protocol": "mew/v0.4",
            "id": "join-1",
            "ts": "2026-01-31T12:00:00Z",
            "from": "bob",
            "kind": "system/join",
            "payload": {"participantId": "bob", "space": "demo", "token": token_of("bob")},
        }
        assert (await first(await connect(gateway, envelope)))["kind"] == "system/welcome"

    async def test_capabilities_that_a_client_claims_are_ignored(
        self, gateway: GatewayProcess, connect: Connect
    ) -> None:
        client = await connect(gateway, join_of("bob", capabilities=EVERYTHING))
        welcome = await first(client)
        assert welcome["payload"]["you"]["capabilities"] == BOB_ONLY
        id = await client.send("mcp/request", {"method": "tools/list"})
        error = await client.error("capability_violation", of=id)
        assert error["payload"]["attempted_kind"] == "mcp/request"
        assert error["payload"]["your_capabilities"] == BOB_ONLY

    async def test_unknown_fields_and_extensions_are_no_mistake(
        self, gateway: GatewayProcess, connect: Connect
    ) -> None:
        client = await connect(gateway, join_of("bob", version="9", extensions=["from-the-future"]))
        assert (await first(client))["kind"] == "system/welcome"


class TestWelcome:
    async def test_its_shape(self, gateway: GatewayProcess, connect: Connect) -> None:
        alice = await connect(gateway, join_of("alice"))
        alice.welcome = await first(alice)
        stream = await alice.open_stream(description="seen by late joiners")
        bob = await connect(gateway, join_of("bob"))
        welcome = await first(bob)
        assert welcome["protocol"] == "mew/v0.4"
        assert welcome["from"] == "system:gateway"
        assert welcome["to"] == ["bob"]
        assert welcome["id"]
        assert welcome["ts"]
        payload = welcome["payload"]
        assert payload["you"] == {"id": "bob", "capabilities": BOB_ONLY}
        (other,) = payload["participants"]
        assert other["id"] == "alice"
        assert other["capabilities"][0] == {"kind": "*"}
        (entry,) = [each for each in payload["active_streams"] if each["stream_id"] == stream]
        assert entry["owner"] == "alice"
        assert entry["description"] == "seen by late joiners"

    async def test_it_is_the_first_message_however_busy_the_space_is(
        self, gateway: GatewayProcess, connect: Connect
    ) -> None:
        alice = await connect(gateway, join_of("alice"))
        await first(alice)
        stream = await alice.open_stream()
        busy = True

        async def chatter() -> None:
            while busy:
                for _ in range(10):
                    await alice.frame(stream, "noise")
                id = await alice.send("chat", {"text": "noise"})
                await alice.wait_for(lambda each, id=id: isinstance(each, dict) and each["id"] == id)

        async with asyncio.TaskGroup() as group:
            group.create_task(chatter())
            for _ in range(20):
                bob = await connect(gateway, join_of("bob"))
                assert (await first(bob))["kind"] == "system/welcome"
                await bob.receive("chat")
                bob.connection.transport.abort()
            busy = False

    async def test_a_plain_client_gets_no_seq(self, gateway: GatewayProcess, connect: Connect) -> None:
        client = await connect(gateway, join_of("bob"))
        assert "seq" not in await first(client)
        await client.send("chat", {"text": "hi"})
        assert "seq" not in await first(client)


class TestHeader:
    async def test_a_bearer_token_and_the_space_are_enough(self, gateway: GatewayProcess, connect: Connect) -> None:
        client = await connect(gateway, path="/ws?space=demo", additional_headers=bearer(token_of("bob")))
        welcome = await first(client)
        assert welcome["kind"] == "system/welcome"
        assert welcome["payload"]["you"]["id"] == "bob"

    async def test_where_there_is_one_space_its_name_may_be_left_out(
        self, gateway: GatewayProcess, connect: Connect
    ) -> None:
        client = await connect(gateway, path="/", additional_headers=bearer(token_of("bob")))
        assert (await first(client))["payload"]["you"]["id"] == "bob"

    async def test_the_name_of_a_space_may_need_escapes(self, several: GatewayProcess, connect: Connect) -> None:
        path = "/ws?space=s%C3%BCd%20%26+co"
        client = await connect(several, path=path, additional_headers=bearer("southern-alice"))
        assert (await first(client))["payload"]["you"]["id"] == "alice"

    @pytest.mark.parametrize(
        "join",
        [
            {"type": "join"},
            {"type": "join", "participantId": "bob"},
            {"type": "join", "participantId": "bob", "space": "demo", "token": token_of("bob"), "capabilities": []},
            {"kind": "system/join", "payload": {"participant": "bob", "token": token_of("bob")}},
        ],
    )
    async def test_header_and_join_give_one_welcome(
        self, gateway: GatewayProcess, connect: Connect, join: Message
    ) -> None:
        client = await connect(gateway, join, path="/?space=demo", additional_headers=bearer(token_of("bob")))
        assert kinds(await client.settle()) == ["system/welcome"]

    @pytest.mark.parametrize(
        "join",
        [
            {"type": "join", "participantId": "alice"},
            {"type": "join", "participantId": "bob", "token": token_of("alice")},
            {"type": "join", "participantId": "alice", "token": token_of("alice")},
            {"type": "join", "participantId": "bob", "token": "wrong"},
            {"kind": "system/join", "payload": {"participant_id": "alice"}},
        ],
    )
    async def test_both_must_name_the_same_participant(
        self, gateway: GatewayProcess, connect: Connect, join: Message
    ) -> None:
        client = await connect(gateway, join, path="/?space=demo", additional_headers=bearer(token_of("bob")))
        assert await client.closed() == BAD_TOKEN
        errors = [each for each in client.got if isinstance(each, dict) and each["kind"] == "system/error"]
        assert [each["payload"]["error"] for each in errors] == ["unauthorized"]

    async def test_and_the_same_space(self, several: GatewayProcess, connect: Connect) -> None:
        join = {"type": "join", "space": "süd & co"}
        client = await connect(several, join, path="/?space=north", additional_headers=bearer(token_of("bob")))
        assert await client.closed() == UNKNOWN_SPACE

    async def test_the_join_may_name_the_space_that_the_url_left_out(
        self, several: GatewayProcess, connect: Connect
    ) -> None:
        join = {"type": "join", "participantId": "alice", "space": "süd & co"}
        client = await connect(several, join, additional_headers=bearer("southern-alice"))
        assert kinds(await client.settle()) == ["system/welcome"]

    async def test_the_join_may_ask_for_positions(self, gateway: GatewayProcess, connect: Connect) -> None:
        join = {"type": "join", "participantId": "alice", "extensions": ["positions"]}
        client = await connect(gateway, join, path="/?space=demo", additional_headers=bearer(token_of("alice")))
        stream = await client.open_stream()
        await client.frame(stream, "data#1")
        frame = await client.wait_for(lambda each: isinstance(each, str))
        name, seq, writer = frame.split("#")[1].split("|")
        assert (name, writer, frame.split("#", 2)[2]) == (stream, "alice", "data#1")
        assert kinds(client.got)[0] == "system/welcome"
        with_seq = [each for each in client.got if isinstance(each, dict) and "seq" in each]
        assert with_seq[0]["kind"] == "system/welcome", "a welcome says from where the positions count"
        assert with_seq[0]["seq"] == with_seq[0]["payload"]["seq"] < int(seq)
        after = client.got[client.got.index(with_seq[0]) :]
        assert all("seq" in each for each in after if isinstance(each, dict))

    async def test_a_wrong_token(self, gateway: GatewayProcess, connect: Connect) -> None:
        client = await connect(gateway, path="/?space=demo", additional_headers=bearer("wrong"))
        assert await refusal(client) == ("unauthorized", BAD_TOKEN)

    async def test_an_unknown_space(self, several: GatewayProcess, connect: Connect) -> None:
        """A client that sends no join must not wait for the timeout to learn it."""
        client = await connect(several, path="/?space=elsewhere", additional_headers=bearer(token_of("bob")))
        assert await refusal(client) == ("validation_error", UNKNOWN_SPACE)

    @pytest.mark.parametrize("value", ["Basic abc", "Bearer", "Bearer ", "Bearer a b"])
    async def test_a_malformed_header_is_refused_before_the_upgrade(self, gateway: GatewayProcess, value: str) -> None:
        assert await http_status(gateway, additional_headers={"Authorization": value}) == 401


class TestSubprotocol:
    @pytest.mark.parametrize("offer", ["{}", "bearer.{}", "token.{}", "mew.token.{}"])
    async def test_a_browser_may_offer_its_token(self, gateway: GatewayProcess, connect: Connect, offer: str) -> None:
        offers = ["mew.v0.4", offer.format(token_of("bob"))]
        client = await connect(gateway, path="/?space=demo", subprotocols=offers)
        assert (await first(client))["payload"]["you"]["id"] == "bob"
        assert client.connection.subprotocol == "mew.v0.4"

    async def test_the_token_is_never_echoed(self, gateway: GatewayProcess, connect: Connect) -> None:
        client = await connect(gateway, path="/?space=demo", subprotocols=[token_of("bob")])
        assert (await first(client))["payload"]["you"]["id"] == "bob"
        assert client.connection.subprotocol is None
        assert client.connection.response is not None
        assert token_of("bob") not in str(client.connection.response.headers)

    async def test_a_subprotocol_without_a_token_is_no_identity(
        self, gateway: GatewayProcess, connect: Connect
    ) -> None:
        client = await connect(gateway, join_of("bob"), subprotocols=["mew.v0.4"])
        assert (await first(client))["kind"] == "system/welcome"
        assert client.connection.subprotocol == "mew.v0.4"

    async def test_a_token_waits_for_a_join_that_is_to_follow(self, gateway: GatewayProcess, connect: Connect) -> None:
        """So that a browser can resume. The join needs no token, and the first message is its one welcome."""
        offers = ["mew.v0.4", "mew.join", f"mew.token.{token_of('bob')}"]
        join: Message = {"type": "join", "participantId": "bob", "extensions": ["positions"]}
        client = await connect(gateway, join, path="/?space=demo", subprotocols=offers)
        assert client.connection.subprotocol == "mew.v0.4"
        welcome = await first(client)
        position = {"epoch": welcome["payload"]["epoch"], "seq": welcome["payload"]["seq"]}
        alice = await gateway.join("alice")
        await alice.send("chat", {"text": "missed"})
        await alice.receive("chat")
        again = await connect(gateway, {**join, "resume": position}, path="/?space=demo", subprotocols=offers)
        assert (await first(again))["payload"]["resume"]["recovered"] is True
        assert (await again.receive("chat"))["payload"]["text"] == "missed"
        await alice.close()

    async def test_a_join_that_follows_must_name_the_same(self, gateway: GatewayProcess, connect: Connect) -> None:
        offers = ["mew.v0.4", "mew.join", token_of("bob")]
        join: Message = {"type": "join", "participantId": "alice"}
        client = await connect(gateway, join, path="/?space=demo", subprotocols=offers)
        assert await refusal(client) == ("unauthorized", BAD_TOKEN)

    async def test_a_wrong_one(self, gateway: GatewayProcess, connect: Connect) -> None:
        client = await connect(gateway, path="/?space=demo", subprotocols=["mew.v0.4", "wrong"])
        assert await refusal(client) == ("unauthorized", BAD_TOKEN)

    async def test_two_tokens_are_ambiguous(self, gateway: GatewayProcess) -> None:
        assert await http_status(gateway, subprotocols=["mew.v0.4", token_of("bob"), token_of("alice")]) == 401
        options = {"subprotocols": ["mew.v0.4", token_of("bob")], "additional_headers": bearer(token_of("alice"))}
        assert await http_status(gateway, **options) == 401


class TestRefusals:
    @pytest.mark.parametrize(
        "fields",
        [
            {"token": "wrong"},
            {"token": ""},
            {"token": None},
            {"token": token_of("alice")},
            {"token": "southern-alice"},
            {"participantId": "alice"},
            {"participantId": "nobody"},
            {"participantId": "system:gateway"},
        ],
    )
    async def test_the_token_says_who_it_is(
        self, gateway: GatewayProcess, connect: Connect, fields: dict[str, Any]
    ) -> None:
        client = await connect(gateway, join_of("bob", **fields))
        assert await refusal(client) == ("unauthorized", BAD_TOKEN)

    async def test_a_missing_token(self, gateway: GatewayProcess, connect: Connect) -> None:
        client = await connect(gateway, {"type": "join", "participantId": "bob", "space": "demo"})
        assert await refusal(client) == ("unauthorized", BAD_TOKEN)

    async def test_the_token_of_another_space(self, several: GatewayProcess, connect: Connect) -> None:
        client = await connect(several, join_of("alice", space="north", token="southern-alice"))
        assert await refusal(client) == ("unauthorized", BAD_TOKEN)

    async def test_a_token_in_the_url_is_not_believed(self, gateway: GatewayProcess, connect: Connect) -> None:
        join = {"type": "join", "participantId": "bob"}
        client = await connect(gateway, join, path=f"/ws?space=demo&token={token_of('bob')}")
        assert await refusal(client) == ("unauthorized", BAD_TOKEN)

    async def test_an_unknown_space(self, gateway: GatewayProcess, connect: Connect) -> None:
        client = await connect(gateway, join_of("bob", space="elsewhere"))
        assert await refusal(client) == ("validation_error", UNKNOWN_SPACE)

    async def test_a_join_and_a_url_that_name_different_spaces(self, several: GatewayProcess, connect: Connect) -> None:
        client = await connect(several, join_of("bob", space="north"), path="/ws?space=s%C3%BCd%20%26%20co")
        assert await refusal(client) == ("validation_error", UNKNOWN_SPACE)

    async def test_several_spaces_and_none_named(self, several: GatewayProcess, connect: Connect) -> None:
        client = await connect(several, join_of("bob"))
        assert await refusal(client) == ("validation_error", UNKNOWN_SPACE)

    @pytest.mark.parametrize("message", ["hello", "[]", "1", "{}", '{"kind":"chat","payload":{"text":"hi"}}', "#s#x"])
    async def test_the_first_message_must_be_a_join(
        self, gateway: GatewayProcess, connect: Connect, message: str
    ) -> None:
        client = await connect(gateway)
        await client.send_raw(message)
        assert await refusal(client) == ("validation_error", PROTOCOL_ERROR)

    @pytest.mark.parametrize(
        "fields",
        [{"participantId": 5}, {"token": ["x"]}, {"space": {}}, {"extensions": "positions"}, {"extensions": [1]}],
    )
    async def test_a_join_of_the_wrong_shape(
        self, gateway: GatewayProcess, connect: Connect, fields: dict[str, Any]
    ) -> None:
        client = await connect(gateway, join_of("bob", **fields))
        assert await refusal(client) == ("validation_error", PROTOCOL_ERROR)

    async def test_a_stranger_may_not_send_much(self, gateway: GatewayProcess, connect: Connect) -> None:
        client = await connect(gateway, join_of("bob", padding="x" * 200_000))
        assert await refusal(client) == ("limit_exceeded", 1009)

    async def test_nobody_is_told_of_a_stranger(self, gateway: GatewayProcess, connect: Connect) -> None:
        alice = await connect(gateway, join_of("alice"))
        await first(alice)
        await refusal(await connect(gateway, join_of("bob", token="wrong")))
        assert await alice.settle() == []

    async def test_silence_until_the_join_timeout(self, several: GatewayProcess, connect: Connect) -> None:
        """A client that has said nothing knows the standard codes only: 1008, policy."""
        assert await refusal(await connect(several)) == ("validation_error", 1008)

    async def test_who_has_joined_may_be_silent_longer(self, several: GatewayProcess, connect: Connect) -> None:
        member = await connect(several, join_of("bob", space="north"))
        await first(member)
        await refusal(await connect(several))
        assert await member.settle() == []

    async def test_no_token_is_in_the_log(self, gateway: GatewayProcess, connect: Connect) -> None:
        """Whatever the tests before this one have sent (decision 20)."""
        await refusal(await connect(gateway, join_of("bob", token="mistyped-secret")))
        log = gateway.log.read_text()
        assert "token-of-" not in log
        assert "mistyped-secret" not in log


class TestTwice:
    """Decision 22."""

    async def test_the_old_connection_is_told_that_it_was_replaced(
        self, gateway: GatewayProcess, connect: Connect
    ) -> None:
        old = await connect(gateway, join_of("bob"))
        await first(old)
        new = await connect(gateway, join_of("bob"))
        assert (await first(new))["kind"] == "system/welcome"
        assert await old.closed() == REPLACED

    async def test_by_its_own_reconnect_it_may_come_back(self, gateway: GatewayProcess, connect: Connect) -> None:
        old = await connect(gateway, join_of("bob", extensions=["positions"]))
        position = (await first(old))["payload"]
        resume = {"epoch": position["epoch"], "seq": position["seq"]}
        new = await connect(gateway, join_of("bob", extensions=["positions"], resume=resume))
        welcome = await first(new)
        assert welcome["kind"] == "system/welcome"
        assert "recovered" in welcome["payload"]["resume"]
        assert await old.closed() == REPLACED_BY_RECONNECT

    async def test_the_old_ones_close_takes_nothing_away(self, gateway: GatewayProcess, connect: Connect) -> None:
        alice = await connect(gateway, join_of("alice"))
        await first(alice)
        old = await connect(gateway, join_of("bob"))
        await first(old)
        stream = await alice.open_stream()
        id = await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
        await alice.receive("stream/write-granted", of=id)

        new = await connect(gateway, join_of("bob"))
        welcome = await first(new)
        assert {"kind": f"stream/write:{stream}"} in welcome["payload"]["you"]["capabilities"]
        assert await old.closed() == REPLACED
        await old.close()
        await new.frame(stream, "still a writer")
        assert await alice.receive_frame(stream) == "still a writer"
        told = await alice.settle()
        assert told == []
        leaves = [each for each in alice.got if isinstance(each, dict) and each["payload"].get("event") == "leave"]
        assert leaves == []
        assert "stream/write-revoked" not in kinds(alice.got)

    async def test_others_are_not_told_of_a_second_join(self, gateway: GatewayProcess, connect: Connect) -> None:
        alice = await connect(gateway, join_of("alice"))
        await first(alice)
        await first(await connect(gateway, join_of("bob")))
        await alice.receive("system/presence", event="join")
        await first(await connect(gateway, join_of("bob")))
        assert await alice.settle() == []

    async def test_what_the_old_one_still_sends_is_lost_with_it(
        self, gateway: GatewayProcess, connect: Connect
    ) -> None:
        old = await connect(gateway, join_of("bob"))
        await first(old)
        new = await connect(gateway, join_of("bob"))
        await first(new)
        assert await old.closed() == REPLACED
        assert await new.settle() == []

    async def test_a_storm_of_joins_leaves_one(self, gateway: GatewayProcess, connect: Connect) -> None:
        clients = await asyncio.gather(*(connect(gateway, join_of("bob")) for _ in range(20)))
        codes = [asyncio.create_task(each.closed()) for each in clients]
        done, _ = await asyncio.wait(codes, timeout=TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        assert done
        async with asyncio.timeout(TIMEOUT):
            while True:
                if sum(task.done() for task in codes) == 19:
                    break
                await asyncio.sleep(0.01)
        (last,) = [task for task in codes if not task.done()]
        last.cancel()
        assert {task.result() for task in codes if task is not last} == {REPLACED}
        status, answer = await gateway.http("GET", "/participants", "alice")
        assert status == 200
        assert [each["connected"] for each in answer["participants"] if each["id"] == "bob"] == [True]


class TestPresence:
    async def test_joining_and_leaving(self, gateway: GatewayProcess, connect: Connect) -> None:
        alice = await connect(gateway, join_of("alice"))
        await first(alice)
        bob = await connect(gateway, join_of("bob"))
        joined = await alice.receive("system/presence")
        assert joined["from"] == "system:gateway"
        assert joined["payload"] == {"event": "join", "participant": {"id": "bob", "capabilities": BOB_ONLY}}
        await first(bob)
        assert await bob.settle() == [], "nobody is told of the own join"
        await bob.close()
        left = await alice.receive("system/presence")
        assert left["payload"] == {"event": "leave", "participant": {"id": "bob"}}

    async def test_a_connection_that_breaks_is_a_leave_too(self, gateway: GatewayProcess, connect: Connect) -> None:
        alice = await connect(gateway, join_of("alice"))
        await first(alice)
        bob = await connect(gateway, join_of("bob"))
        await first(bob)
        bob.connection.transport.abort()
        left = await alice.receive("system/presence", event="leave")
        assert left["payload"]["participant"] == {"id": "bob"}


class TestEnvelopes:
    async def test_to_is_an_address_and_not_a_secret(self, gateway: GatewayProcess, connect: Connect) -> None:
        """Decision 10; the sender gets an echo (WIRE, "Envelopes")."""
        clients = [await connect(gateway, join_of(each)) for each in ("alice", "bob", "carol")]
        for client in clients:
            await first(client)
        alice, bob, carol = clients
        id = await bob.send("chat", {"text": "for alice"}, to=["alice"])
        got = [await each.receive("chat") for each in (alice, bob, carol)]
        assert got[0] == got[1] == got[2]
        assert (got[0]["id"], got[0]["from"], got[0]["to"]) == (id, "bob", ["alice"])

    async def test_what_a_sender_leaves_out_is_filled_in(self, gateway: GatewayProcess, connect: Connect) -> None:
        bob = await connect(gateway, join_of("bob"), {"kind": "chat", "payload": {"text": "hi"}, "correlation_id": "x"})
        echo = await bob.receive("chat")
        assert echo["protocol"] == "mew/v0.4"
        assert echo["id"]
        assert echo["ts"].endswith("Z")
        assert echo["from"] == "bob"
        assert echo["correlation_id"] == ["x"]

    async def test_private_messages_of_the_gateway_reach_one(self, gateway: GatewayProcess, connect: Connect) -> None:
        alice = await connect(gateway, join_of("alice"))
        await first(alice)
        bob = await connect(gateway, join_of("bob"))
        await first(bob)
        id = await bob.send("stream/request", {"direction": "upload"})
        error = await bob.error("capability_violation", of=id)
        assert error["to"] == ["bob"]
        await bob.settle()
        told = await alice.settle()
        assert set(kinds(told)) <= {"system/presence", "mcp/response"}

    @pytest.mark.parametrize(
        "envelope",
        [
            '{"id":"wrong-1","payload":{}}',
            '{"id":"wrong-2","kind":"chat","payload":"text"}',
            '{"id":"wrong-3","kind":"chat","to":"alice","payload":{"text":"hi"}}',
            '{"id":"wrong-4","kind":"chat","ts":"yesterday","payload":{"text":"hi"}}',
            '{"id":"wrong-5","kind":"chat","payload":{}}',
        ],
        ids=["no kind", "payload no object", "to no list", "ts no time", "no text"],
    )
    async def test_an_error_is_correlated_where_there_is_an_id(
        self, gateway: GatewayProcess, connect: Connect, envelope: str
    ) -> None:
        """WIRE, "Errors": a client must be able to tell which of its messages was refused."""
        bob = await connect(gateway, join_of("bob"))
        await first(bob)
        await bob.send_raw(envelope)
        error = await bob.error("validation_error")
        assert error.get("correlation_id") == [json.loads(envelope)["id"]]


class TestDoor:
    @pytest.mark.parametrize(
        "path", ["/", "/ws", "/ws?space=demo", "/ws/?a=b", "/any/where", "/participants/bob/messages", "/%F0%9F%90%B1"]
    )
    async def test_any_path_is_accepted(self, gateway: GatewayProcess, connect: Connect, path: str) -> None:
        assert (await first(await connect(gateway, join_of("bob"), path=path)))["kind"] == "system/welcome"

    async def test_a_page_of_the_gateways_own_host_may_connect(self, gateway: GatewayProcess, connect: Connect) -> None:
        client = await connect(gateway, join_of("bob"), origin=f"http://127.0.0.1:{gateway.port}")
        assert (await first(client))["kind"] == "system/welcome"

    async def test_and_one_of_a_listed_origin(self, gateway: GatewayProcess, connect: Connect) -> None:
        client = await connect(gateway, join_of("bob"), origin=ORIGIN)
        assert (await first(client))["kind"] == "system/welcome"

    @pytest.mark.parametrize(
        "origin",
        [
            "https://evil.example",
            "http://play.example.org:8443",
            "https://play.example.org",
            "https://play.example.org:8443.evil.example",
            "http://127.0.0.1",
            "http://127.0.0.1:1",
            "null",
        ],
    )
    async def test_no_page_from_elsewhere(self, gateway: GatewayProcess, connect: Connect, origin: str) -> None:
        """It is refused after the upgrade, because a script cannot see why an upgrade failed."""
        client = await connect(gateway, origin=origin, additional_headers=bearer(token_of("bob")))
        assert await refusal(client) == ("unauthorized", ORIGIN_REFUSED)
        assert client.connection.close_reason == CloseReason.ORIGIN_REFUSED.value.text

    @pytest.mark.parametrize("connection", ["Upgrade", "keep-alive, Upgrade", "upgrade"])
    async def test_browsers_spell_the_upgrade_in_different_ways(self, gateway: GatewayProcess, connection: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        key = base64.b64encode(os.urandom(16)).decode()
        request = [
            "GET /ws?space=demo HTTP/1.1",
            f"Host: 127.0.0.1:{gateway.port}",
            f"Connection: {connection}",
            "Upgrade: WebSocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        ]
        writer.write("\r\n".join([*request, "", ""]).encode())
        async with asyncio.timeout(TIMEOUT):
            assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
        writer.close()
        await writer.wait_closed()
