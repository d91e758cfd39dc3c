"""Raw frames with an id, to which a refusal refers (docs/protocol.md, Frames)."""

from __future__ import annotations

from typing import Any

import pytest

from mewstream.gateway.refusal_flood import MAX_IDS
from support import Client, GatewayProcess, joined, running_gateway, space_config

POSITIONS = {"extensions": ["positions"]}


@pytest.fixture(scope="module")
def gateway() -> Any:
    with running_gateway(space_config("ann", "bob")) as running:
        yield running


def errors(got: list[Any]) -> list[dict[str, Any]]:
    return [each for each in got if isinstance(each, dict) and each["kind"] == "system/error"]


async def told_until_synced(client: Client) -> list[Any]:
    """Everything that came before the answer to ``stream/sync``."""
    before = len(client.got)
    id = await client.send("stream/sync")
    await client.receive("stream/synced", of=id)
    return client.got[before:-1]


async def test_the_id_is_for_the_gateway_alone(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", **POSITIONS) as [ann], joined(gateway, "bob") as [bob]:
        stream = await ann.open_stream(desired_id="movement")
        await bob.receive("stream/open")
        await ann.frame(f"{stream}|first", "a#b|c")
        await ann.frame("movement|second", b"\x00#")
        assert await bob.receive_frame(stream) == "a#b|c"
        assert await bob.receive_frame(stream) == b"\x00#"
        own = await ann.wait_for(lambda each: isinstance(each, str) and each.startswith("#"))
        assert own.split("|")[0] == f"#{stream}"
        assert own.endswith("|ann#a#b|c")
        assert not errors(await told_until_synced(ann))


async def test_a_refusal_is_correlated(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", **POSITIONS) as [ann], joined(gateway, "bob", **POSITIONS) as [bob]:
        stream = await ann.open_stream()
        await bob.frame(f"{stream}|move-1", "x")
        refused = await bob.error("unauthorized_stream_write", of="move-1")
        assert refused["payload"]["stream_id"] == stream
        await bob.frame("stream-999|move-2", "x")
        await bob.error("stream_not_found", of="move-2")
        # An id may be used again: a frame is not remembered by it.
        await ann.frame(f"{stream}|same", "1")
        await ann.frame(f"{stream}|same", "2")
        assert [await ann.wait_for(lambda each: isinstance(each, str)) for _ in "12"]


async def test_summed_refusals_name_the_ids_that_were_not_told(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", **POSITIONS) as [ann], joined(gateway, "bob", **POSITIONS) as [bob]:
        stream = await ann.open_stream()
        ids = [f"id-{number}" for number in range(20)]
        for id in ids:
            await bob.frame(f"{stream}|{id}", "x")
        first, rest = errors(await told_until_synced(bob))
        assert first["correlation_id"] == ids[:1]
        assert rest["correlation_id"] == ids[1:]
        assert rest["payload"]["count"] == len(ids) - 1
        assert rest["payload"]["error"] == "unauthorized_stream_write"
        # They were told, so the record of the sum tells nothing again.
        assert not errors(await told_until_synced(bob))


async def test_without_a_question_the_sum_comes_by_itself(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", **POSITIONS) as [ann], joined(gateway, "bob", **POSITIONS) as [bob]:
        stream = await ann.open_stream()
        for id in ("one", "two", "three"):
            await bob.frame(f"{stream}|{id}", "x")
        await bob.error("unauthorized_stream_write", of="one")
        summed = await bob.error("unauthorized_stream_write", of="two")
        assert summed["correlation_id"] == ["two", "three"]
        assert "seq" in summed, "it is recorded"


async def test_a_flood_of_ids_is_told_in_bounded_sums(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", **POSITIONS) as [ann], joined(gateway, "bob", **POSITIONS) as [bob]:
        stream = await ann.open_stream()
        ids = [f"id-{number}" for number in range(3 * MAX_IDS)]
        for id in ids:
            await bob.frame(f"{stream}|{id}", "x")
        told = errors(await told_until_synced(bob))
        assert [id for each in told for id in each["correlation_id"]] == ids
        assert max(len(each["correlation_id"]) for each in told) <= MAX_IDS
        assert sum(each["payload"].get("count", 1) for each in told) == len(ids)


@pytest.mark.parametrize(
    ("id", "code"), [("", "validation_error"), ("a|b", "validation_error"), ("x" * 129, "limit_exceeded")]
)
async def test_malformed_ids(gateway: GatewayProcess, id: str, code: str) -> None:
    async with joined(gateway, "ann", **POSITIONS) as [ann]:
        stream = await ann.open_stream()
        await ann.frame(f"{stream}|{id}", "x")
        await ann.error(code)
        await ann.frame(stream, "y")
        assert (await ann.wait_for(lambda each: isinstance(each, str))).endswith("#y")


async def test_a_client_without_positions_has_none(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann") as [ann]:
        stream = await ann.open_stream()
        await ann.frame(f"{stream}|id", "x")
        refused = await ann.error("stream_not_found")
        assert "correlation_id" not in refused
        assert "limits" not in ann.welcome["payload"]


async def test_the_welcome_says_how_large_a_message_may_be(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", **POSITIONS) as [ann]:
        assert ann.welcome["payload"]["limits"] == {"message_bytes": 1 << 20}
