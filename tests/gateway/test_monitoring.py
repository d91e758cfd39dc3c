"""What a supervisor, a load balancer and Prometheus ask a gateway."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema_rs
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mewstream.gateway.operator_api import OPENAPI
from mewstream.journal.retention import commit_consumer
from support import TIMEOUT, GatewayProcess, running_gateway, space_config

DOCUMENT: dict[str, Any] = json.loads(OPENAPI.read_text())


async def asked(gateway: GatewayProcess, path: str) -> tuple[int, str]:
    status, answer = await gateway.http("GET", path)
    schema = DOCUMENT["paths"][path]["get"]["responses"][str(status)]["content"]["application/json"]["schema"]
    jsonschema_rs.validator_for({**schema, "components": DOCUMENT["components"]}).validate(answer)
    return status, answer["status"]


async def until_status(gateway: GatewayProcess, status: str) -> None:
    async with asyncio.timeout(3 * TIMEOUT):
        while (await asked(gateway, "/health"))[1] != status:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


class TestReady:
    async def test_as_long_as_the_journal_can_be_written(self, tmp_path: Path) -> None:
        data = tmp_path / "data"
        with running_gateway(space_config("alice"), options=("--data", str(data))) as gateway:
            assert await asked(gateway, "/ready") == (200, "ok")
            data.rename(tmp_path / "elsewhere")
            await until_status(gateway, "journal_unavailable")
            assert await asked(gateway, "/ready") == (503, "journal_unavailable")
            assert await asked(gateway, "/health") == (200, "journal_unavailable"), "it is alive"
            (tmp_path / "elsewhere").rename(data)
            await until_status(gateway, "ok")
            assert await asked(gateway, "/ready") == (200, "ok")

    async def test_not_during_a_drain(self) -> None:
        with running_gateway(space_config("alice", "bob", gateway={"drain_seconds": 5})) as gateway:
            alice, bob = await gateway.join("alice"), await gateway.join("bob")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{gateway.url}/ready") as response:
                    assert response.status == 200
                gateway.process.send_signal(signal.SIGTERM)
                # The first of the two is told at once, the other after half of the time.
                await asyncio.wait(
                    {asyncio.ensure_future(each.closed()) for each in (alice, bob)}, return_when="FIRST_COMPLETED"
                )
                async with session.get(f"{gateway.url}/ready") as response:
                    assert (response.status, await response.json()) == (503, {"status": "draining"})


class Samples:
    """What ``/metrics`` shows."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = [sample for family in self.families.values() for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        (found,) = [each for each in self._samples if each.name == name and labels.items() <= each.labels.items()]
        return found.value


async def scraped(gateway: GatewayProcess) -> Samples:
    status, text = await gateway.http("GET", "/metrics")
    assert status == 200
    return Samples(text)


class TestMetrics:
    async def test_latencies_and_sizes(self, tmp_path: Path) -> None:
        with running_gateway(space_config("alice", "bob"), options=("--data", str(tmp_path))) as gateway:
            alice, bob = await gateway.join("alice"), await gateway.join("bob")
            stream = await alice.open_stream()
            await bob.receive("stream/open")
            sizes = 0
            async with asyncio.timeout(3 * TIMEOUT):
                while True:  # samples are taken a tenth of a second apart
                    await alice.frame(stream, "x")
                    await bob.receive_frame(stream)
                    found = await scraped(gateway)
                    sizes += 1
                    if found.value("mewstream_delivery_latency_seconds_count", space="demo") >= 3:
                        break
            assert 0 < found.value("mewstream_delivery_latency_seconds_sum", space="demo") < 3 * TIMEOUT
            assert found.value("mewstream_welcome_bytes_count", space="demo") == 2
            length = len(json.dumps(alice.welcome)) + len(json.dumps(bob.welcome))
            assert found.value("mewstream_welcome_bytes_sum", space="demo") == pytest.approx(length, rel=0.2)
            assert found.value("mewstream_commit_latency_seconds_count") >= 3
            assert found.value("mewstream_frames_total", space="demo") == sizes, (
                "those that are measured are delivered too"
            )

    async def test_the_journal_and_its_consumers(self, tmp_path: Path) -> None:
        with running_gateway(space_config("alice"), options=("--data", str(tmp_path))) as gateway:
            await gateway.join("alice")
            root = tmp_path / "journal"
            commit_consumer(root, "slow", {0: 0})
            commit_consumer(root, "quick", dict.fromkeys(range(4), 1000))
            found = await scraped(gateway)
            assert found.value("mewstream_journal_bytes") > 1000
            assert found.value("mewstream_journal_free_bytes") > 1000
            assert found.value("mewstream_consumer_lag_records", consumer="slow") >= 2
            assert found.value("mewstream_consumer_lag_records", consumer="quick") == 0

    async def test_what_is_not_known_is_left_out(self) -> None:
        """Without a journal, a nought would be taken for a full disk."""
        with running_gateway(space_config("alice")) as gateway:
            found = await scraped(gateway)
            assert not found.families["mewstream_journal_free_bytes"].samples
            assert found.value("process_open_fds") > 3
            assert found.value("process_resident_memory_bytes") > 1e6
            assert found.value("mewstream_build_info") == 1

    async def test_no_times_of_creation(self) -> None:
        with running_gateway(space_config("alice")) as gateway:
            await gateway.join("alice")
            assert "_created" not in (await scraped(gateway)).text
