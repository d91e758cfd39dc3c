"""The HTTP API for those who watch a gateway: figures, refusals, spaces, and the document that describes the API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema_rs
import pytest

import mewstream
from mewstream.gateway.http import HttpApi
from mewstream.gateway.operator_api import OPENAPI, OperatorApi
from mewstream.gateway.refusals import RECENT
from support import GatewayProcess, running_gateway, space_config, token_of

DOCUMENT: dict[str, Any] = json.loads(OPENAPI.read_text())
OBSERVE = [{"kind": "gateway/observe"}]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    data = tmp_path_factory.mktemp("data")
    north = space_config("alice", "oscar", "carol", space="north", capabilities={"oscar": OBSERVE, "carol": []})
    south = space_config("alice", "bob", space="south")
    south["space"] |= {"name": "The south", "description": "where it is warm"}
    south["participants"]["oscar"] = {"tokens": [token_of("oscar")], "role": "observer"}
    with running_gateway(north, south, options=("--data", str(data))) as gateway:
        yield gateway


def conforms(path: str, answer: Any, method: str = "get", status: str = "200") -> None:
    """The answer is what the document says."""
    response = DOCUMENT["paths"][path][method]["responses"][status]
    schema = response["content"]["application/json"]["schema"]
    jsonschema_rs.validator_for({**schema, "components": DOCUMENT["components"]}).validate(answer)


class TestSpaces:
    async def test_those_that_a_token_is_good_for(self, gateway: GatewayProcess) -> None:
        status, answer = await gateway.http("GET", "/spaces", "bob")
        assert (status, answer) == (
            200,
            {"spaces": [{"id": "south", "name": "The south", "description": "where it is warm", "participant": "bob"}]},
        )
        conforms("/spaces", answer)
        _, answer = await gateway.http("GET", "/spaces", "alice")
        assert [space["id"] for space in answer["spaces"]] == ["north", "south"]

    async def test_strangers_learn_nothing(self, gateway: GatewayProcess) -> None:
        assert (await gateway.http("GET", "/spaces"))[0] == 401
        status, error = await gateway.http("GET", "/spaces", headers={"Authorization": "Bearer mistyped"})
        assert (status, error["payload"]["error"]) == (403, "unauthorized")
        assert "north" not in json.dumps(error)


class TestFigures:
    async def test_of_the_whole_gateway(self, gateway: GatewayProcess) -> None:
        alice = await gateway.join("alice", space="south")
        stream = await alice.open_stream()
        for _ in range(10):
            await alice.frame(stream, "12345")
        await alice.send("stream/close", {"stream_id": "stream-99"})
        await alice.error("stream_not_found")
        await alice.settle()
        stranger = await gateway.join("bob", space="south")
        await stranger.send("system/welcome")
        await stranger.error("reserved_kind")
        await stranger.close()
        status, figures = await gateway.http("GET", "/gateway", "oscar", space="north")
        assert status == 200, figures
        conforms("/gateway", figures)
        assert (figures["version"], figures["status"]) == (mewstream.__version__, "ok")
        assert figures["process"]["cpu_seconds"] > 0
        south = next(space for space in figures["spaces"] if space["id"] == "south")
        assert south["name"] == "The south"
        assert (south["participants"], south["connected"], south["streams"]) == (1, 1, 1)
        assert (south["frames"], south["frame_bytes"], south["deliveries"], south["refusals"]) == (10, 50, 10, 2)
        journal = figures["journal"]
        assert (journal["status"], journal["durability"]) == ("ok", "flush")
        assert journal["bytes"] > 0
        assert journal["free_bytes"] > 0
        assert figures["slow_readers"] == []
        assert figures["connections"]["websocket"] >= 1
        await alice.close()

    async def test_they_need_the_capability(self, gateway: GatewayProcess) -> None:
        status, error = await gateway.http("GET", "/gateway", "carol", space="north")
        assert (status, error["payload"]["error"]) == (403, "capability_violation")
        assert error["payload"]["attempted_kind"] == "gateway/observe"
        assert (await gateway.http("GET", "/gateway", space="north"))[0] == 401

    async def test_an_observer_by_its_role_alone_sees_its_space_and_no_figures(self, gateway: GatewayProcess) -> None:
        assert (await gateway.http("GET", "/streams", "oscar", space="south"))[0] == 200
        assert (await gateway.http("GET", "/gateway", "oscar", space="south"))[0] == 403

    async def test_without_a_journal(self) -> None:
        with running_gateway(space_config("alice")) as gateway:
            _, figures = await gateway.http("GET", "/gateway", "alice")
            assert figures["journal"] == {"status": "none"}
            conforms("/gateway", figures)

    async def test_why_connections_were_closed(self) -> None:
        with running_gateway(space_config("alice", "bob")) as gateway:
            bob, alice = await gateway.join("bob"), await gateway.join("alice")
            await alice.send("space/kick", {"participant_id": "bob"})
            assert await bob.closed() == 4501
            _, figures = await gateway.http("GET", "/gateway", "alice")
            assert figures["connections"]["closed"] == {"kicked": 1}
            await alice.close()


class TestRefusals:
    @pytest.fixture
    async def busy(self) -> AsyncIterator[GatewayProcess]:
        capabilities: dict[str, list[Any]] = {"oscar": OBSERVE, "carol": []}
        with running_gateway(space_config("carol", "oscar", "dave", capabilities=capabilities)) as gateway:
            yield gateway

    async def test_what_was_refused(self, busy: GatewayProcess) -> None:
        carol = await busy.join("carol")
        await carol.send("chat", {"text": "<b>secret</b>"})
        await carol.error("capability_violation")
        await carol.frame("stream-7", "x")
        await carol.error("stream_not_found")
        _, answer = await busy.http("GET", "/refusals", "oscar")
        conforms("/refusals", answer)
        assert [(each["participant"], each["kind"], each["error"]) for each in answer["refusals"]] == [
            ("carol", "chat", "capability_violation"),
            ("carol", "frame", "stream_not_found"),
        ]
        assert answer["refusals"][1]["stream_id"] == "stream-7"
        assert "secret" not in json.dumps(answer), "what somebody tried to say stays with the journal"
        last = answer["refusals"][-1]["seq"]
        _, answer = await busy.http("GET", "/refusals", "oscar", params={"after": str(last)})
        assert answer["refusals"] == []
        assert answer["seq"] >= last
        await carol.close()

    async def test_the_newest_are_kept(self, busy: GatewayProcess) -> None:
        dave = await busy.join("dave")
        for _ in range(150):
            await dave.send("system/welcome")
        await dave.settle()
        _, answer = await busy.http("GET", "/refusals", "oscar", params={"limit": "3"})
        seqs = [each["seq"] for each in answer["refusals"]]
        assert len(seqs) == 3 < RECENT
        assert seqs == sorted(seqs)
        await dave.close()

    @pytest.mark.parametrize("query", [{"after": "x"}, {"after": "-1"}, {"after": "9" * 40}, {"limit": "0"}])
    async def test_malformed(self, busy: GatewayProcess, query: dict[str, str]) -> None:
        status, error = await busy.http("GET", "/refusals", "oscar", params=query)
        assert (status, error["payload"]["error"]) == (400, "validation_error")

    async def test_they_need_the_capability(self, busy: GatewayProcess) -> None:
        assert (await busy.http("GET", "/refusals", "carol"))[0] == 403


class TestDocument:
    async def test_is_served_to_everyone(self, gateway: GatewayProcess) -> None:
        async with aiohttp.ClientSession() as session, session.get(f"{gateway.url}/openapi.json") as response:
            assert (response.status, response.content_type) == (200, "application/json")
            assert await response.json() == DOCUMENT

    def test_has_the_routes_of_the_code(self) -> None:
        class Anything:
            def __getattr__(self, name: str) -> Any:
                return self

            def __call__(self, *arguments: object) -> Any:
                return self

        anything: Any = Anything()
        routes = [*HttpApi(anything, anything).routes, *OperatorApi(anything).routes]
        described = {
            (method.upper(), path)
            for path, item in DOCUMENT["paths"].items()
            for method in item
            if method in ("get", "post", "put", "delete", "patch")
        }
        assert described == {(route.method, route.path) for route in routes}

    def test_is_of_this_version(self) -> None:
        assert DOCUMENT["info"]["version"] == mewstream.__version__
        assert DOCUMENT["openapi"].startswith("3.1.")

    def test_every_schema_is_one(self) -> None:
        for schema in DOCUMENT["components"]["schemas"].values():
            jsonschema_rs.meta.validate(schema)

    def test_every_operation_says_what_it_needs(self) -> None:
        for path, item in DOCUMENT["paths"].items():
            for method in {"get", "post"} & item.keys():
                operation = item[method]
                assert operation["summary"], path
                assert operation["operationId"]
                assert {"200", "default"} <= operation["responses"].keys()

    def test_the_wheel_has_it(self) -> None:
        assert OPENAPI.parent == Path(mewstream.__file__).parent / "gateway"
