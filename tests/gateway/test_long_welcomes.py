"""A welcome has a bound; what does not fit is listed page by page, over the socket and over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support import Client, GatewayProcess, Message, joined, running_gateway, space_config

WELCOME_BYTES = 20_000
PAGE_BYTES = 256 << 10
MANY = tuple(f"p{number:03}" for number in range(300))


@pytest.fixture
def gateway() -> Iterator[GatewayProcess]:
    limits = {"welcome_bytes": WELCOME_BYTES, "streams_per_participant": 1_000}
    config = space_config("ann", "bob", "cy", gateway={"drain_seconds": 0}, mewstream={"limits": limits})
    with running_gateway(config) as running:
        yield running


def size(message: Message) -> int:
    return len(json.dumps(message, separators=(",", ":")))


async def pages(client: Client, what: str, **first: Any) -> list[list[Message]]:
    """All pages of ``stream`` or ``participant``."""
    found: list[list[Message]] = []
    name = f"{what}s"
    payload = first
    while True:
        id = await client.send(f"{what}/list", payload)
        page = await client.receive(f"{what}/listed", of=id)
        assert page["to"] == [client.participant]
        assert page["from"] == "system:gateway"
        found.append(page["payload"][name])
        if "next" not in page["payload"]:
            return found
        payload = {**first, "after": page["payload"]["next"]}


async def test_a_short_one_is_as_it_always_was(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", "bob") as (ann, _):
        await ann.open_stream(description="x" * 1_000)
        late = await gateway.join("cy")
        assert set(late.welcome["payload"]) == {"you", "participants", "active_streams", "epoch", "seq"}
        assert len(late.welcome["payload"]["active_streams"]) == 1
        await late.close()


async def test_the_first_streams_are_told_and_the_others_can_be_asked_for(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", "bob") as (ann, bob):
        streams = [await ann.open_stream(description=str(number) + "x" * 1_000) for number in range(300)]
        late = await gateway.join("cy")
        assert size(late.welcome) < WELCOME_BYTES + 1_000
        payload = late.welcome["payload"]
        told = [each["stream_id"] for each in payload["active_streams"]]
        assert told == streams[: len(told)]
        assert 5 < len(told) < 20
        assert payload["active_streams_total"] == 300
        assert "participants_total" not in payload
        rest = await pages(late, "stream", after=told[-1])
        assert len(rest) > 1, "one page would be too large"
        assert all(size({"streams": page}) < PAGE_BYTES + 2_000 for page in rest)
        assert told + [each["stream_id"] for page in rest for each in page] == streams
        everything = [each for page in await pages(late, "stream") for each in page]
        assert everything[: len(told)] == payload["active_streams"]
        status, page = await gateway.http("GET", "/streams", "cy")
        assert status == 200
        assert page["streams"] == everything[: len(page["streams"])]
        # Nobody else hears of it, and nothing of it is in the log.
        before = await bob.settle()
        assert not [each for each in before if isinstance(each, dict) and "list" in each["kind"]]
        status, history = await gateway.http("GET", "/participants/cy/messages", "cy", params={"since": "0"})
        assert not [each for each in history["messages"] if "list" in each["kind"]]
        await late.close()


async def test_a_page_is_the_state_at_its_place(gateway: GatewayProcess) -> None:
    """Streams come and go while somebody pages: what is told beside the pages makes up for it, exactly."""
    async with joined(gateway, "ann") as (ann,):
        streams = [await ann.open_stream(description="x" * 1_000) for _ in range(60)]
        late = await gateway.join("cy")
        known = {each["stream_id"]: each["owner"] for each in late.welcome["payload"]["active_streams"]}
        asked = await late.send("stream/list", {"after": max(known, key=streams.index), "limit": 10})
        changing = asyncio.create_task(change(ann, streams))
        while True:
            message = await late.next()
            assert isinstance(message, dict)
            payload = message["payload"]
            match message["kind"]:
                case "stream/listed":
                    assert message["correlation_id"] == [asked]
                    known |= {each["stream_id"]: each["owner"] for each in payload["streams"]}
                    if "next" not in payload:
                        break
                    asked = await late.send("stream/list", {"after": payload["next"], "limit": 10})
                case "stream/open":
                    known[payload["stream_id"]] = payload["owner"]
                case "stream/close":
                    known.pop(payload["stream_id"], None)
                case "stream/ownership-transferred":
                    if payload["stream_id"] in known:
                        known[payload["stream_id"]] = payload["new_owner"]
        await changing
        for message in await late.settle():
            assert isinstance(message, dict)
            payload = message["payload"]
            match message["kind"]:
                case "stream/open":
                    known[payload["stream_id"]] = payload["owner"]
                case "stream/close":
                    known.pop(payload["stream_id"], None)
                case "stream/ownership-transferred":
                    known[payload["stream_id"]] = payload["new_owner"]
        now = [each for page in await pages(late, "stream") for each in page]
        assert known == {each["stream_id"]: each["owner"] for each in now}
        await late.close()


async def change(ann: Client, streams: list[str]) -> None:
    for place in range(0, 60, 3):
        await ann.send("stream/close", {"stream_id": streams[place]})
        await ann.send("stream/transfer-ownership", {"stream_id": streams[place + 1], "new_owner": "cy"})
        await ann.open_stream(description="x" * 1_000)


async def test_participants_have_their_share() -> None:
    config = space_config(*MANY, "late", mewstream={"limits": {"welcome_bytes": WELCOME_BYTES}})
    for each in config["participants"].values():
        each["capabilities"] = [{"kind": "chat"}, {"kind": "k" * 100}]
    with running_gateway(config) as gateway:
        async with joined(gateway, *MANY) as (first, *_):
            await first.send("chat", {"text": "hi"})
            late = await gateway.join("late")
            assert size(late.welcome) < WELCOME_BYTES
            payload = late.welcome["payload"]
            assert payload["participants_total"] == len(MANY)
            told = [each["id"] for each in payload["participants"]]
            assert told == list(MANY[: len(told)])
            assert 40 < len(told) < 100
            everyone = [each for page in await pages(late, "participant", limit=70) for each in page]
            assert [each["id"] for each in everyone] == sorted(MANY), "but for oneself"
            assert everyone[: len(told)] == payload["participants"]
            # Who is among the first is left out of its own welcome, and of its own pages.
            again = await gateway.join(MANY[3])
            assert [each["id"] for each in again.welcome["payload"]["participants"]][:4] == [*MANY[:3], MANY[4]]
            assert again.welcome["payload"]["participants_total"] == len(MANY)
            assert MANY[3] not in [each["id"] for page in await pages(again, "participant") for each in page]
            await again.close()
            await late.close()


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("stream/list", {"after": 7}),
        ("stream/list", {"after": "nonsense"}),
        ("stream/list", {"limit": 0}),
        ("stream/list", {"limit": True}),
        ("participant/list", {"after": ["ann"]}),
        ("participant/list", {"limit": "many"}),
    ],
)
async def test_questions_that_make_no_sense(gateway: GatewayProcess, kind: str, payload: dict[str, Any]) -> None:
    async with joined(gateway, "ann") as (ann,):
        await ann.error("validation_error", of=await ann.send(kind, payload))


async def test_answers_cannot_be_forged_and_http_has_its_own(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann") as (ann,):
        for kind in ("stream/listed", "participant/listed"):
            await ann.error("reserved_kind", of=await ann.send(kind, {}))
        await ann.error("unauthorized", of=await ann.send("stream/list", {}, **{"from": "bob"}))
    status, answer = await gateway.post("ann", {"kind": "stream/list", "payload": {}})
    assert (status, answer["payload"]["error"]) == (400, "invalid_request")


async def test_many_large_streams_make_no_large_welcome() -> None:
    """250 streams of 64 KB made a welcome of 16 MB."""
    with running_gateway(space_config("ann", "bob", gateway={"drain_seconds": 0})) as gateway:
        async with joined(gateway, "ann") as (ann,):
            for _ in range(250):
                await ann.open_stream(description="x" * 65_000)
        bob = await gateway.join("bob")
        assert size(bob.welcome) < (1 << 20) + 1_000
        assert bob.welcome["payload"]["active_streams_total"] == 250
        rest = await pages(bob, "stream", after=bob.welcome["payload"]["active_streams"][-1]["stream_id"])
        assert len(bob.welcome["payload"]["active_streams"]) + sum(map(len, rest)) == 250
        assert all(size({"streams": page}) < PAGE_BYTES + 2_000 for page in rest)
        await bob.close()
