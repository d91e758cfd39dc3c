"""The HTTP API, route by route and status by status (WIRE, "HTTP")."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support import Client, GatewayProcess, Message, running_gateway, space_config, token_of

CHAT = [{"kind": "chat"}]
MESSAGE_BYTES = 20_000
_numbers = itertools.count()


@contextlib.asynccontextmanager
async def joined(gateway: GatewayProcess, *participants: str, **fields: Any) -> AsyncIterator[list[Client]]:
    """Clients whose envelopes have ids of their own: the gateway is shared by all tests."""
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for participant in participants:
            client = await gateway.join(participant, **fields)
            stack.push_async_callback(client.close)
            client.participant = f"{participant}-{next(_numbers)}"
            clients.append(client)
        yield clients


ALWAYS_HERE = ("pia", "quinn")


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """``alice`` may do everything, ``carol`` only chat; ``dave`` and ``erin`` never have a socket. Nor have ``pia`` and
    ``quinn``, who are here all the same, and poll."""
    config = space_config(
        "alice",
        "bob",
        "carol",
        "dave",
        "erin",
        "frank",
        capabilities={"carol": CHAT},
        always_here=ALWAYS_HERE,
        mewstream={"limits": {"message_bytes": MESSAGE_BYTES, "envelopes_per_second": 0.0}},
    )
    with running_gateway(config) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def several() -> Iterator[GatewayProcess]:
    with running_gateway(space_config("alice", space="north"), space_config("alice", space="south")) as gateway:
        yield gateway


@pytest.fixture
async def bob(gateway: GatewayProcess) -> AsyncIterator[Client]:
    async with joined(gateway, "bob") as (client,):
        yield client


class Answer:
    """A response as it came: status, headers and the very text."""

    def __init__(self, status: int, headers: Any, text: str) -> None:
        self.status = status
        self.headers = headers
        self.text = text

    @property
    def json(self) -> Any:
        assert self.headers["Content-Type"].startswith("application/json")
        decoded = json.loads(self.text)
        assert self.text == json.dumps(decoded, separators=(",", ":"), ensure_ascii=False), "compact"
        return decoded

    @property
    def error(self) -> Message:
        """The payload of the error envelope that every error carries."""
        envelope = self.json
        assert envelope["kind"] == "system/error", envelope
        assert envelope["from"] == "system:gateway"
        assert envelope["protocol"] == "mew/v0.4"
        assert envelope["id"]
        assert envelope["ts"]
        assert envelope["payload"]["error"]
        assert envelope["payload"]["message"]
        return dict(envelope["payload"])


async def ask(gateway: GatewayProcess, method: str, path: str, token: str | None = None, **options: Any) -> Answer:
    headers = {**options.pop("headers", {}), **({"Authorization": f"Bearer {token}"} if token else {})}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, gateway.url + path, headers=headers, **options) as response,
    ):
        return Answer(response.status, response.headers, await response.text())


async def post(gateway: GatewayProcess, participant: str, envelope: Any, **options: Any) -> Answer:
    body = envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode()
    path = f"/participants/{participant}/messages"
    return await ask(gateway, "POST", path, token_of(participant), data=body, **options)


async def accepted(gateway: GatewayProcess, participant: str, kind: str, payload: Any, **fields: Any) -> Message:
    answer = await post(gateway, participant, {"kind": kind, "payload": payload, **fields})
    assert answer.status == 200, answer.text
    return dict(answer.json)


async def poll(gateway: GatewayProcess, participant: str, since: int | str) -> Message:
    path = f"/participants/{participant}/messages"
    answer = await ask(gateway, "GET", path, token_of(participant), params={"since": str(since)})
    assert answer.status == 200, answer.text
    return dict(answer.json)


async def end_of_log(gateway: GatewayProcess) -> int:
    """The position after everything so far."""
    position = -1
    while True:
        answer = await poll(gateway, "pia", max(position, 0))
        if answer["seq"] == position:
            return position
        position = answer["seq"]


async def drained(gateway: GatewayProcess, participant: str, since: int) -> list[Message]:
    """Poll until nothing more comes."""
    messages: list[Message] = []
    while True:
        answer = await poll(gateway, participant, since)
        messages += answer["messages"]
        if answer["seq"] == since:
            return messages
        since = answer["seq"]


def is_rfc3339(text: str) -> bool:
    return datetime.fromisoformat(text).tzinfo is not None


class TestHealth:
    async def test_its_fields(self, gateway: GatewayProcess, bob: Client) -> None:
        answer = await ask(gateway, "GET", "/health")
        assert answer.status == 200
        health = answer.json
        assert health["status"] == "ok"
        assert health["spaces"] == 1
        assert health["clients"] == 1 + len(ALWAYS_HERE)
        assert health["uptime"] >= 0
        assert "active_streams" in health["features"]
        assert all(isinstance(each, str) for each in health["features"])

    async def test_it_counts_clients_and_spaces(self, several: GatewayProcess) -> None:
        assert (await ask(several, "GET", "/health")).json["spaces"] == 2
        async with joined(several, "alice", space="north"):
            assert (await ask(several, "GET", "/health")).json["clients"] == 1
        assert (await ask(several, "GET", "/health")).json["clients"] == 0


class TestMetrics:
    async def test_prometheus_can_parse_them(self, gateway: GatewayProcess, bob: Client) -> None:
        stream = await bob.open_stream()
        before = await self.samples(gateway)
        for _ in range(3):
            await bob.frame(stream, "12345")
        await bob.settle()
        after = await self.samples(gateway)

        def grown(name: str) -> float:
            return after[name, "demo"] - before[name, "demo"]

        assert grown("mewstream_frames_total") == 3
        assert grown("mewstream_frame_bytes_total") == 15
        assert grown("mewstream_deliveries_total") == 3 * (1 + len(ALWAYS_HERE))
        assert after["mewstream_connected_participants", "demo"] == 1 + len(ALWAYS_HERE)
        assert after["mewstream_connections", None] == 1

    async def samples(self, gateway: GatewayProcess) -> dict[tuple[str, str | None], float]:
        answer = await ask(gateway, "GET", "/metrics")
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        families = list(text_string_to_metric_families(answer.text))
        assert families
        assert all(each.name.startswith(("mewstream_", "process_")) and each.documentation for each in families)
        assert "token-of-" not in answer.text
        samples = [sample for family in families for sample in family.samples]
        return {(each.name, each.labels.get("space")): each.value for each in samples}


class TestParticipants:
    async def test_everyone_who_may_come(self, gateway: GatewayProcess, bob: Client) -> None:
        answer = await ask(gateway, "GET", "/participants", token_of("carol"), params={"space": "demo"})
        assert answer.status == 200
        assert list(answer.json) == ["participants"]
        listed = {each["id"]: each for each in answer.json["participants"]}
        assert set(listed) >= {"alice", "bob", "carol", "dave", "erin"}
        assert all(set(each) == {"id", "connected", "capabilities"} for each in listed.values())
        assert listed["bob"]["connected"] is True
        assert listed["alice"]["connected"] is False
        assert listed["carol"]["capabilities"] == CHAT

    async def test_without_a_token(self, gateway: GatewayProcess) -> None:
        answer = await ask(gateway, "GET", "/participants")
        assert answer.status == 401
        assert answer.error["error"] == "unauthorized"
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


class TestStreams:
    async def test_they_are_those_of_a_welcome(self, gateway: GatewayProcess, bob: Client) -> None:
        stream = await bob.open_stream(description="shown", desired_id="listed", auto_grant=["carol"])
        async with joined(gateway, "alice") as (alice,):
            answer = await ask(gateway, "GET", "/streams", token_of("carol"), params={"space": "demo"})
            assert answer.status == 200
            welcome = alice.welcome["payload"]
            assert list(answer.json) == ["epoch", "seq", "streams"]
            assert answer.json["streams"] == welcome["active_streams"]
            assert (answer.json["epoch"], answer.json["seq"]) == (welcome["epoch"], welcome["seq"])
        (entry,) = [each for each in answer.json["streams"] if each["stream_id"] == stream]
        assert entry["alias"] == "listed" and entry["owner"] == "bob"
        closed = await bob.send("stream/close", {"stream_id": stream})
        await bob.wait_for(lambda each: isinstance(each, dict) and each.get("id") == closed)
        after = await ask(gateway, "GET", "/streams", token_of("carol"))
        assert stream not in [each["stream_id"] for each in after.json["streams"]]

    async def test_each_space_has_its_own(self, several: GatewayProcess) -> None:
        options = {"params": {"space": "north"}}
        opened = await post(several, "alice", {"kind": "stream/request", "payload": {}}, **options)
        assert opened.status == 200
        north = await ask(several, "GET", "/streams", token_of("alice"), **options)
        south = await ask(several, "GET", "/streams", token_of("alice"), params={"space": "south"})
        assert [each["namespace"] for each in north.json["streams"]] == [f"north/{opened.json['stream_id']}"]
        assert south.json["streams"] == []


class TestWhoIsAsking:
    ROUTES = (
        ("GET", "/participants"),
        ("GET", "/streams"),
        ("GET", "/participants/alice/messages"),
        ("POST", "/participants/alice/messages"),
    )

    @pytest.mark.parametrize(("method", "path"), ROUTES)
    async def test_no_token(self, gateway: GatewayProcess, method: str, path: str) -> None:
        answer = await ask(gateway, method, path, params={"token": token_of("alice")})
        assert answer.status == 401
        assert answer.error["error"] == "unauthorized"

    @pytest.mark.parametrize(("method", "path"), ROUTES)
    @pytest.mark.parametrize("value", ["Basic YWxpY2U6eA==", "Bearer", "token-of-alice"])
    async def test_a_header_of_another_kind(self, gateway: GatewayProcess, method: str, path: str, value: str) -> None:
        answer = await ask(gateway, method, path, headers={"Authorization": value})
        assert answer.status == 401
        assert "token-of-" not in answer.text

    @pytest.mark.parametrize(("method", "path"), ROUTES)
    async def test_a_wrong_token(self, gateway: GatewayProcess, method: str, path: str) -> None:
        answer = await ask(gateway, method, path, "mistyped-secret")
        assert answer.status == 403
        assert answer.error["error"] == "unauthorized"
        assert "mistyped-secret" not in answer.text

    @pytest.mark.parametrize(("method", "path"), ROUTES[2:])
    async def test_the_token_of_another(self, gateway: GatewayProcess, method: str, path: str) -> None:
        answer = await ask(gateway, method, path, token_of("bob"))
        assert answer.status == 403
        assert answer.error["error"] == "unauthorized"

    @pytest.mark.parametrize(("method", "path"), ROUTES)
    async def test_an_unknown_space(self, gateway: GatewayProcess, method: str, path: str) -> None:
        answer = await ask(gateway, method, path, token_of("alice"), params={"space": "elsewhere"})
        assert answer.status == 404
        assert answer.error["error"]

    @pytest.mark.parametrize(("method", "path"), ROUTES)
    async def test_several_spaces_and_none_named(self, several: GatewayProcess, method: str, path: str) -> None:
        answer = await ask(several, method, path, token_of("alice"))
        assert answer.status == 400
        assert answer.error["error"] == "validation_error"

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [("GET", "/nowhere", 404), ("POST", "/health", 405), ("DELETE", "/participants", 405), ("GET", "/ws", 404)],
    )
    async def test_no_such_route(self, gateway: GatewayProcess, method: str, path: str, status: int) -> None:
        answer = await ask(gateway, method, path, token_of("alice"))
        assert answer.status == status
        assert answer.error["error"]


class TestPost:
    async def test_an_envelope_by_somebody_without_a_socket(self, gateway: GatewayProcess, bob: Client) -> None:
        answer = await accepted(gateway, "dave", "chat", {"text": "héllo"}, id="dave-1", context="c", extra=[1])
        assert set(answer) == {"id", "status", "timestamp"}
        assert (answer["id"], answer["status"]) == ("dave-1", "accepted")
        assert is_rfc3339(answer["timestamp"])
        got = await bob.receive("chat")
        assert (got["id"], got["from"], got["payload"]) == ("dave-1", "dave", {"text": "héllo"})
        assert (got["context"], got["extra"], got["protocol"]) == ("c", [1], "mew/v0.4")

    async def test_an_id_is_given_to_what_has_none(self, gateway: GatewayProcess, bob: Client) -> None:
        answer = await accepted(gateway, "dave", "chat", {"text": "hi"})
        assert (await bob.receive("chat"))["id"] == answer["id"]

    async def test_posting_does_not_make_one_present(self, gateway: GatewayProcess, bob: Client) -> None:
        await accepted(gateway, "dave", "chat", {"text": "hi"})
        assert [each["kind"] for each in await bob.settle() if isinstance(each, dict)] == ["chat"]

    async def test_the_life_of_a_stream(self, gateway: GatewayProcess, bob: Client) -> None:
        opened = await accepted(gateway, "dave", "stream/request", {"direction": "upload"}, id="open-1")
        assert set(opened) == {"id", "status", "stream_id", "timestamp"}
        assert (opened["id"], opened["status"]) == ("open-1", "stream_opened")
        assert is_rfc3339(opened["timestamp"])
        stream = opened["stream_id"]
        told = await bob.receive("stream/open", of="open-1")
        assert told["payload"]["stream_id"] == stream
        assert told["payload"]["owner_connected"] is False

        about = {"stream_id": stream, "participant_id": "bob"}
        granted = await accepted(gateway, "dave", "stream/grant-write", about, id="grant-1")
        assert granted == {
            "id": "grant-1",
            "status": "granted",
            "stream_id": stream,
            "authorized_writers": ["dave", "bob"],
        }
        await bob.receive("stream/write-granted", of="grant-1")
        await bob.frame(stream, "now I may")
        assert await bob.receive_frame(stream) == "now I may"

        revoked = await accepted(gateway, "dave", "stream/revoke-write", about, id="revoke-1")
        assert revoked == {"id": "revoke-1", "status": "revoked", "stream_id": stream, "authorized_writers": ["dave"]}

        about = {"stream_id": stream, "new_owner": "bob"}
        transferred = await accepted(gateway, "dave", "stream/transfer-ownership", about, id="transfer-1")
        assert transferred == {
            "id": "transfer-1",
            "status": "transferred",
            "stream_id": stream,
            "previous_owner": "dave",
            "new_owner": "bob",
            "authorized_writers": ["bob"],
        }
        await bob.receive("stream/ownership-transferred", of="transfer-1")
        closed = await accepted(gateway, "bob", "stream/close", {"stream_id": stream}, id="close-1")
        assert closed["status"] == "accepted"
        await bob.receive("stream/close")

    async def test_an_announced_stream(self, gateway: GatewayProcess, bob: Client) -> None:
        ready = await accepted(gateway, "dave", "stream/announce", {"intent": "x"})
        assert ready["status"] == "stream_opened"
        stream = {"stream_id": ready["stream_id"]}
        assert (await accepted(gateway, "dave", "stream/start", {"stream": stream}))["status"] == "accepted"
        data = {"stream": stream, "sequence": 1, "content": {"a": 1}}
        sent = await accepted(gateway, "dave", "stream/data", data, id="data-1")
        assert (sent["id"], sent["status"]) == ("data-1", "accepted")
        assert (await bob.receive("stream/data"))["payload"]["content"] == {"a": 1}
        assert (await accepted(gateway, "dave", "stream/complete", {"stream": stream}))["status"] == "accepted"

    async def test_reader_sets(self, gateway: GatewayProcess, bob: Client) -> None:
        opened = await accepted(gateway, "dave", "stream/request", {"direction": "upload", "target": ["erin"]})
        about = {"stream_id": opened["stream_id"], "participant_id": "bob"}
        granted = await accepted(gateway, "dave", "stream/grant-read", about)
        assert (granted["status"], granted["authorized_readers"]) == ("granted", ["erin", "bob"])
        revoked = await accepted(gateway, "dave", "stream/revoke-read", about)
        assert (revoked["status"], revoked["authorized_readers"]) == ("revoked", ["erin"])

    async def test_an_invitation(self, gateway: GatewayProcess, bob: Client) -> None:
        invite = {"participant_id": "guest", "capabilities": CHAT}
        answer = await accepted(gateway, "dave", "space/invite", invite, id="invite-1")
        assert set(answer) == {"id", "status", "participant_id", "token", "connection_url"}
        assert (answer["id"], answer["status"], answer["participant_id"]) == ("invite-1", "created", "guest")
        assert answer["connection_url"].startswith(f"ws://127.0.0.1:{gateway.port}/")
        guest = await Client.connect(
            answer["connection_url"], additional_headers={"Authorization": f"Bearer {answer['token']}"}
        )
        welcome = await guest.receive("system/welcome")
        assert welcome["payload"]["you"] == {"id": "guest", "capabilities": CHAT}
        await guest.close()
        await bob.receive("system/presence", event="invited")
        await bob.settle()
        assert answer["token"] not in json.dumps(bob.got)
        assert answer["token"] not in gateway.log.read_text()

    async def test_somebody_who_is_known_cannot_be_invited(self, gateway: GatewayProcess) -> None:
        answer = await post(gateway, "dave", {"kind": "space/invite", "payload": {"participant_id": "carol"}})
        assert answer.status == 409
        assert answer.error["participant_id"] == "carol"

    @pytest.mark.parametrize(
        ("envelope", "status", "code"),
        [
            (
                {"kind": "stream/grant-write", "payload": {"stream_id": "stream-0", "participant_id": "bob"}},
                404,
                "stream",
            ),
            ({"kind": "stream/close", "payload": {"stream_id": "stream-0"}}, 404, "stream"),
            ({"kind": "space/kick", "payload": {"participant_id": "erin"}}, 404, "participant"),
            ({"kind": "stream/request", "payload": {"target": ["nobody"]}}, 404, "target"),
        ],
    )
    async def test_what_is_not_there(self, gateway: GatewayProcess, envelope: Message, status: int, code: str) -> None:
        answer = await post(gateway, "dave", envelope)
        assert answer.status == status
        assert answer.error["error"] == f"{code}_not_found"

    async def test_granting_to_somebody_absent(self, gateway: GatewayProcess) -> None:
        opened = await accepted(gateway, "dave", "stream/request", {})
        about = {"stream_id": opened["stream_id"], "participant_id": "erin"}
        answer = await post(gateway, "dave", {"kind": "stream/grant-write", "payload": about})
        assert answer.status == 404
        assert answer.error["error"] == "participant_not_found"

    async def test_what_is_not_allowed(self, gateway: GatewayProcess) -> None:
        opened = await accepted(gateway, "dave", "stream/request", {})
        refused = await post(gateway, "carol", {"kind": "stream/request", "payload": {}})
        assert (refused.status, refused.error["error"]) == (403, "capability_violation")
        assert refused.error["your_capabilities"] == CHAT
        closing = {"kind": "stream/close", "payload": {"stream_id": opened["stream_id"]}}
        refused = await post(gateway, "carol", closing)
        assert (refused.status, refused.error["error"]) == (403, "unauthorized")

    @pytest.mark.parametrize("size", [MESSAGE_BYTES + 1, 10 * MESSAGE_BYTES])
    async def test_a_body_that_is_too_large(self, gateway: GatewayProcess, size: int) -> None:
        answer = await post(gateway, "dave", _chat_of_size(size))
        assert answer.status == 413
        assert (answer.error["error"], answer.error["limit"]) == ("limit_exceeded", "message_bytes")

    async def test_the_refusal_of_a_large_body_says_how_much_is_allowed(self, gateway: GatewayProcess) -> None:
        answer = await post(gateway, "dave", _chat_of_size(MESSAGE_BYTES + 1))
        assert str(MESSAGE_BYTES) in answer.error["message"]

    async def test_the_largest_body(self, gateway: GatewayProcess, bob: Client) -> None:
        body = _chat_of_size(MESSAGE_BYTES)
        answer = await post(gateway, "dave", body)
        assert answer.status == 200, answer.text
        await bob.send_raw(body.decode())
        assert [(await bob.receive("chat"))["from"] for _ in range(2)] == ["dave", "bob"]

    async def test_bytes_that_are_not_utf8(self, gateway: GatewayProcess) -> None:
        answer = await post(gateway, "dave", b'{"kind":"chat","payload":{"text":"\xff"}}')
        assert answer.status == 400
        assert answer.error["error"] == "validation_error"


def _chat_of_size(size: int) -> bytes:
    empty = json.dumps({"kind": "chat", "payload": {"text": ""}})
    return json.dumps({"kind": "chat", "payload": {"text": "x" * (size - len(empty))}}).encode()


def _formats(count: int) -> list[Message]:
    return [{"id": f"f{number}"} for number in range(count)]


BAD = {
    "empty": "",
    "not JSON": "hello",
    "half an object": '{"kind":"chat"',
    "an array": "[]",
    "a string": '"chat"',
    "null": "null",
    "deeply nested": '{"kind":"chat","payload":' + '{"a":' * 2500 + "1" + "}" * 2500 + "}",
    "nothing in it": {},
    "kind missing": {"payload": {"text": "hi"}},
    "kind empty": {"kind": ""},
    "kind a number": {"kind": 5},
    "kind too long": {"kind": "k" * 129},
    "payload a string": {"kind": "chat", "payload": "hi"},
    "payload a list": {"kind": "chat", "payload": []},
    "another protocol": {"protocol": "mew/v9", "kind": "chat", "payload": {"text": "hi"}},
    "ts no time": {"ts": "yesterday", "kind": "chat", "payload": {"text": "hi"}},
    "ts a number": {"ts": 1, "kind": "chat", "payload": {"text": "hi"}},
    "id a number": {"id": 1, "kind": "chat", "payload": {"text": "hi"}},
    "id too long": {"id": "x" * 129, "kind": "chat", "payload": {"text": "hi"}},
    "to a string": {"to": "bob", "kind": "chat", "payload": {"text": "hi"}},
    "to of numbers": {"to": [1], "kind": "chat", "payload": {"text": "hi"}},
    "correlation a number": {"correlation_id": 1, "kind": "chat", "payload": {"text": "hi"}},
    "from another": {"from": "alice", "kind": "chat", "payload": {"text": "hi"}},
    "from the gateway": {"from": "system:gateway", "kind": "chat", "payload": {"text": "hi"}},
    "reserved welcome": {"kind": "system/welcome", "payload": {}},
    "reserved unknown": {"kind": "system/anything", "payload": {}},
    "reserved open": {"kind": "stream/open", "payload": {}},
    "reserved granted": {"kind": "stream/write-granted", "payload": {}},
    "reserved invite-ack": {"kind": "space/invite-ack", "payload": {}},
    "chat without text": {"kind": "chat", "payload": {}},
    "chat with a number": {"kind": "chat", "payload": {"text": 1}},
    "request without method": {"kind": "mcp/request", "payload": {}},
    "direction unknown": {"kind": "stream/request", "payload": {"direction": "sideways"}},
    "target no list": {"kind": "stream/request", "payload": {"target": "bob"}},
    "target unknown": {"kind": "stream/request", "payload": {"target": ["nobody", "bob"]}},
    "formats no list": {"kind": "stream/announce", "payload": {"formats": {}}},
    "too many formats": {"kind": "stream/announce", "payload": {"formats": _formats(17)}},
    "grant without stream": {"kind": "stream/grant-write", "payload": {"participant_id": "bob"}},
    "grant without whom": {"kind": "stream/grant-write", "payload": {"stream_id": "stream-0"}},
    "grant on no stream": {"kind": "stream/grant-write", "payload": {"stream_id": "stream-0", "participant_id": "bob"}},
    "close nothing": {"kind": "stream/close", "payload": {}},
    "close no stream": {"kind": "stream/close", "payload": {"stream_id": "stream-0"}},
    "data without sequence": {"kind": "stream/data", "payload": {"stream": {"stream_id": "stream-0"}}},
    "start a name": {"kind": "stream/start", "payload": {"stream": "stream-0"}},
    "capability for nobody": {"kind": "capability/grant", "payload": {"capabilities": [{"kind": "chat"}]}},
    "capability for one absent": {
        "kind": "capability/grant",
        "payload": {"recipient": "erin", "capabilities": [{"kind": "chat"}]},
    },
    "capability not a pattern": {"kind": "capability/grant", "payload": {"recipient": "bob", "capabilities": [5]}},
    "revoke of no grant": {"kind": "capability/revoke", "payload": {"grant_id": "none"}},
    "invite one known": {"kind": "space/invite", "payload": {"participant_id": "carol"}},
    "invite the gateway": {"kind": "space/invite", "payload": {"participant_id": "system:gateway"}},
    "invite with a hash": {"kind": "space/invite", "payload": {"participant_id": "a#b"}},
    "kick one absent": {"kind": "space/kick", "payload": {"participant_id": "erin"}},
    "pause nobody": {"kind": "participant/pause", "payload": {}},
    "pause for no time": {"kind": "participant/pause", "to": ["bob"], "payload": {"timeout_seconds": 0}},
}
NOT_FOR_CAROL = {
    "request": {"kind": "stream/request", "payload": {}},
    "announce": {"kind": "stream/announce", "payload": {}},
    "mcp": {"kind": "mcp/request", "payload": {"method": "x"}},
    "unknown kind": {"kind": "something/else", "payload": {}},
    "kick": {"kind": "space/kick", "payload": {"participant_id": "bob"}},
    "invite": {"kind": "space/invite", "payload": {"participant_id": "carols-friend"}},
    "capability": {
        "kind": "capability/grant",
        "payload": {"recipient": "bob", "capabilities": [{"kind": "chat"}]},
    },
}


class TestSameRules:
    """What is refused on the socket is refused over HTTP, in the same words."""

    CASES = (
        *[pytest.param("bob", each, id=name) for name, each in BAD.items()],
        *[pytest.param("carol", each, id=f"not for carol: {name}") for name, each in NOT_FOR_CAROL.items()],
    )

    @pytest.mark.parametrize(("participant", "envelope"), CASES)
    async def test_a_bad_envelope(self, gateway: GatewayProcess, participant: str, envelope: Message | str) -> None:
        text = envelope if isinstance(envelope, str) else json.dumps(envelope)
        async with joined(gateway, participant) as (client,):
            await client.send_raw(text)
            over_socket = await client.receive("system/error")
            answer = await post(gateway, participant, text.encode())
            assert 400 <= answer.status < 500
            assert answer.error == over_socket["payload"]
            # A socket is told of what its participant posts as well: it is the same participant.
            await client.receive("system/error", error=answer.error["error"])

    @pytest.mark.parametrize(
        ("code", "status"),
        [
            ("kind missing", 400),
            ("not JSON", 400),
            ("chat without text", 400),
            ("from another", 403),
            ("reserved open", 400),
            ("grant on no stream", 404),
            ("kick one absent", 404),
            ("target unknown", 404),
            ("invite one known", 409),
        ],
    )
    async def test_the_status_goes_with_the_code(self, gateway: GatewayProcess, code: str, status: int) -> None:
        envelope = BAD[code]
        body = envelope.encode() if isinstance(envelope, str) else envelope
        assert (await post(gateway, "bob", body)).status == status


class TestRepetition:
    """A repeated envelope id is answered as before and changes nothing (DESIGN, "protocol")."""

    async def test_of_a_relayed_envelope(self, gateway: GatewayProcess, bob: Client) -> None:
        once = await accepted(gateway, "dave", "chat", {"text": "once"}, id="again-1")
        await accepted(gateway, "dave", "chat", {"text": "between"})
        twice = await accepted(gateway, "dave", "chat", {"text": "once"}, id="again-1")
        assert (twice["id"], twice["status"]) == (once["id"], once["status"])
        texts = [each["payload"]["text"] for each in await bob.settle() if isinstance(each, dict)]
        assert texts == ["once", "between"]
        assert twice == once, "the time at which it was accepted does not change"

    @pytest.mark.parametrize(
        ("kind", "payload"),
        [
            ("stream/request", {"direction": "upload"}),
            ("stream/announce", {}),
            ("capability/revoke", {"grant_id": "no-such-grant"}),
            ("chat", {}),
        ],
    )
    async def test_of_what_was_answered(
        self, gateway: GatewayProcess, bob: Client, kind: str, payload: Message
    ) -> None:
        envelope = {"id": f"again-{kind}", "kind": kind, "payload": payload}
        once = await post(gateway, "dave", envelope)
        await accepted(gateway, "dave", "chat", {"text": "between"})
        await bob.settle()
        twice = await post(gateway, "dave", envelope)
        assert (twice.status, twice.text) == (once.status, once.text)
        assert await bob.settle() == []

    async def test_of_rights(self, gateway: GatewayProcess, bob: Client) -> None:
        stream = (await accepted(gateway, "dave", "stream/request", {}))["stream_id"]
        about = {"stream_id": stream, "participant_id": "bob"}
        once = await accepted(gateway, "dave", "stream/grant-write", about, id="again-grant")
        await accepted(gateway, "dave", "stream/revoke-write", about, id="again-revoke")
        await bob.settle()
        assert await accepted(gateway, "dave", "stream/grant-write", about, id="again-grant") == once
        assert await bob.settle() == []
        await bob.frame(stream, "not any more")
        await bob.error("unauthorized_stream_write")

    async def test_of_an_invitation(self, gateway: GatewayProcess) -> None:
        """The same token, or another one that is valid."""
        invite = {"participant_id": "twice-invited", "capabilities": CHAT}
        once = await accepted(gateway, "dave", "space/invite", invite, id="again-invite")
        twice = await accepted(gateway, "dave", "space/invite", invite, id="again-invite")
        assert {**twice, "token": ""} == {**once, "token": ""}
        for token in (once["token"], twice["token"]):
            assert (await ask(gateway, "GET", "/streams", token)).status == 200

    async def test_another_message_under_the_same_id(self, gateway: GatewayProcess) -> None:
        await accepted(gateway, "dave", "chat", {"text": "mine"}, id="clash-1")
        answer = await post(gateway, "dave", {"id": "clash-1", "kind": "chat", "payload": {"text": "other"}})
        assert answer.status == 400
        assert answer.error["error"] == "invalid_request"

    async def test_across_transports(self, gateway: GatewayProcess, bob: Client) -> None:
        id = await bob.send("stream/request", {"direction": "upload"}, id="across-1")
        opened = await bob.receive("stream/open", of=id)
        envelope = {"id": id, "kind": "stream/request", "payload": {"direction": "upload"}}
        answer = await post(gateway, "bob", envelope)
        assert answer.json["stream_id"] == opened["payload"]["stream_id"]


class TestPolling:
    async def test_by_position(self, gateway: GatewayProcess) -> None:
        start = await end_of_log(gateway)
        for number in range(3):
            await accepted(gateway, "dave", "chat", {"text": f"poll {number}"})
        answer = await poll(gateway, "pia", start)
        assert set(answer) >= {"messages", "seq"}
        messages = answer["messages"]
        assert [each["payload"]["text"] for each in messages] == ["poll 0", "poll 1", "poll 2"]
        positions = [each["seq"] for each in messages]
        assert positions == sorted(set(positions))
        assert positions[0] > start
        assert answer["seq"] >= positions[-1]
        assert (await poll(gateway, "pia", positions[0]))["messages"] == messages[1:]
        assert (await poll(gateway, "pia", answer["seq"]))["messages"] == []

    async def test_until_drained(self, gateway: GatewayProcess, bob: Client) -> None:
        start = await end_of_log(gateway)
        for number in range(2500):
            await bob.send("chat", {"text": str(number)})
        await bob.settle()
        messages = await drained(gateway, "pia", start)
        chats = [each["payload"]["text"] for each in messages if each["kind"] == "chat"]
        complete = chats == [str(number) for number in range(2500)]
        assert complete, f"{len(chats)} of 2500, from {chats[:1]} to {chats[-1:]}"

    async def test_by_time(self, gateway: GatewayProcess) -> None:
        await accepted(gateway, "dave", "chat", {"text": "before"})
        moment = (await accepted(gateway, "dave", "chat", {"text": "at"}))["timestamp"]
        await accepted(gateway, "dave", "chat", {"text": "after"})
        texts = [each["payload"].get("text") for each in (await poll(gateway, "pia", moment))["messages"]]
        assert texts == ["at", "after"]
        local = datetime.fromisoformat(moment).astimezone(UTC) + timedelta(days=1)
        assert (await poll(gateway, "pia", local.isoformat()))["messages"] == []
        everything = (await poll(gateway, "pia", "1970-01-01T00:00:00+01:00"))["messages"]
        assert everything[0]["seq"] == (await poll(gateway, "pia", 0))["messages"][0]["seq"]

    @pytest.mark.parametrize("since", ["", "-1", "1.5", "yesterday", "2026-01-31", "2026-01-31T12:00:00", "9" * 30])
    async def test_anything_else_is_malformed(self, gateway: GatewayProcess, since: str) -> None:
        path = "/participants/pia/messages"
        answer = await ask(gateway, "GET", path, token_of("pia"), params={"since": since})
        assert answer.status == 400
        assert answer.error["error"] == "validation_error"

    async def test_what_is_private_to_another_is_not_in_it(self, gateway: GatewayProcess) -> None:
        # Of somebody whom no other test uses: those who are refused often have sums in the log.
        start = await end_of_log(gateway)
        async with joined(gateway, "frank") as (frank,):
            id = await frank.send("chat", {})
            await frank.error("validation_error", of=id)
            await frank.send("space/invite", {"participant_id": "polled", "capabilities": CHAT})
            ack = await frank.receive("space/invite-ack")
            await frank.settle()
            own = await drained(gateway, "frank", start)
        theirs = await drained(gateway, "pia", start)
        kinds = [each["kind"] for each in theirs]
        assert "system/error" not in kinds
        assert "system/welcome" not in kinds
        assert "space/invite-ack" not in kinds
        assert kinds.count("system/presence") == 3, "join, invited, leave"
        assert ack["payload"]["token"] not in json.dumps(theirs)
        errors = [each for each in own if each["kind"] == "system/error"]
        assert [each["correlation_id"] for each in errors] == [[id]]

    async def test_frames_are_in_it_for_those_who_may_read_them(self, gateway: GatewayProcess) -> None:
        start = await end_of_log(gateway)
        async with joined(gateway, "bob") as (bob,):
            open = await bob.open_stream()
            secret = await bob.open_stream(target=["quinn"])
            await bob.frame(open, "for #everyone")
            await bob.frame(open, b"\x00\xff")
            await bob.frame(secret, "for quinn alone")
            data = {"stream": {"stream_id": secret}, "sequence": 1, "content": "quinn's data"}
            await bob.send("stream/data", data)
            await bob.settle()
        pia, quinn = [await drained(gateway, each, start) for each in ("pia", "quinn")]
        assert [_data_of(each) for each in pia if each["kind"] == "frame"] == [
            (open, "bob", "for #everyone"),
            (open, "bob", "AP8="),
        ]
        assert "quinn alone" not in json.dumps(pia)
        assert "quinn's data" not in json.dumps(pia)
        assert _data_of([each for each in quinn if each["kind"] == "frame"][-1]) == (secret, "bob", "for quinn alone")
        assert [each["payload"]["content"] for each in quinn if each["kind"] == "stream/data"] == ["quinn's data"]
        # What everyone is told of a targeted stream is no secret.
        assert [each["payload"]["stream_id"] for each in pia if each["kind"] == "stream/open"] == [open, secret]

    async def test_a_socket_and_a_poll_tell_the_same(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "bob", "carol", extensions=["positions"]) as (bob, carol):
            start = carol.welcome["seq"]
            stream = await bob.open_stream()
            await bob.send("chat", {"text": "to all"})
            await bob.send("stream/close", {"stream_id": stream})
            await bob.settle()
            await carol.receive("mcp/response")
            live = [each for each in carol.got[1:] if isinstance(each, dict)]
            assert await drained(gateway, "carol", start) == live


def _data_of(frame: Message) -> tuple[str, str, str]:
    return frame["stream_id"], frame["from"], frame.get("data", frame.get("data_base64"))
