"""What the gateway logs: an event and ids in each line, and never a secret."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path
from typing import Any

import pytest

import mewstream
from mewstream.io.log_lines import JsonFormatter, TextFormatter, event
from support import Client, GatewayProcess, running_gateway, space_config, token_of

SOURCES = Path(mewstream.__file__).parent
WRONG = "mistyped-token-of-alice"


def record(text: str, *args: object, **extra: Any) -> logging.LogRecord:
    return logging.getLogger("mewstream.gateway").makeRecord(
        "mewstream.gateway", logging.INFO, __file__, 1, text, args, None, extra=extra
    )


class TestLines:
    def test_json(self) -> None:
        line = JsonFormatter().format(record("%s joined", "ann", **event("joined", participant="ann", space=None)))
        found = json.loads(line)
        assert found.pop("ts").endswith("+00:00")
        assert found == {
            "level": "info",
            "logger": "mewstream.gateway",
            "event": "joined",
            "message": "ann joined",
            "participant": "ann",
        }

    def test_json_of_another_library_and_of_an_error(self) -> None:
        other = record("something\nelse")
        try:
            raise ValueError("no")
        except ValueError as error:
            other.exc_info = (ValueError, error, error.__traceback__)
        line = JsonFormatter().format(other)
        assert "\n" not in line
        found = json.loads(line)
        assert (found["event"], found["message"]) == ("other", "something\nelse")
        assert found["traceback"].endswith("ValueError: no")

    @pytest.mark.parametrize("name", ["x\n2026 CRITICAL everything is lost", "\x1b[31mred", "\u202ereversed"])
    def test_a_name_cannot_forge_a_line(self, name: str) -> None:
        line = TextFormatter().format(record("%s joined", name))
        assert line.isprintable()

    def test_every_line_of_the_gateway_and_of_the_journal_has_an_event(self) -> None:
        """In the sources: a call of a logger has ``extra``."""
        calls = [
            (file, node)
            for file in [*(SOURCES / "gateway").glob("*.py"), *(SOURCES / "journal").glob("*.py")]
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "log"
        ]
        assert len(calls) > 30
        without = [f"{file}:{node.lineno}" for file, node in calls if not any(k.arg == "extra" for k in node.keywords)]
        assert not without


def events_of(gateway: GatewayProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gateway.log.read_text().splitlines()]


async def test_a_day_of_a_gateway() -> None:
    """Who came, who was refused and why, who left: by names that programs can act on."""
    config = space_config("alice", "bob", "eve", capabilities={"eve": [{"kind": "chat"}]})
    config["mewstream"]["limits"]["participants_per_space"] = 2
    options = ("--log-format", "json", "--log-level", "debug")
    with running_gateway(config, options=options) as gateway:
        alice = await gateway.join("alice")
        eve = await gateway.join("eve")
        await eve.send("space/kick", {"participant_id": "alice", "reason": token_of("eve")})
        await eve.receive("system/error")
        bob = await try_to_join(gateway, "bob", token_of("bob"))
        stranger = await try_to_join(gateway, "alice", WRONG)
        assert (bob, stranger) == (4005, 4500)
        invited = await alice.send("space/invite", {"participant_id": "guest", "capabilities": [{"kind": "chat"}]})
        token = (await alice.receive("space/invite-ack", of=invited))["payload"]["token"]
        status, _ = await gateway.http("GET", "/streams", headers={"Origin": "https://evil.example"})
        assert status == 403
        await alice.close()
        await eve.close()
        gateway.stop()
        text = gateway.log.read_text()
        for secret in (token_of("alice"), token_of("bob"), token_of("eve"), WRONG, token):
            assert secret not in text
        lines = events_of(gateway)
    assert all({"ts", "level", "logger", "event", "message"} <= set(line) for line in lines)
    assert all(line["event"] != "other" for line in lines if line["logger"].startswith("mewstream"))

    def of(name: str, **fields: Any) -> dict[str, Any]:
        (found,) = [each for each in lines if each["event"] == name and fields.items() <= each.items()]
        return found

    joined = of("joined", participant="alice")
    assert (joined["space"], joined["level"]) == ("demo", "info")
    assert of("connected", connection=joined["connection"])["address"] == "127.0.0.1"
    assert of("left", participant="alice")["reason"]
    refused = of("message_refused", participant="eve")
    assert (refused["code"], refused["level"]) == ("capability_violation", "debug")
    assert of("join_refused", participant="bob")["reason"] == "space_full"
    assert of("token_refused")["participant"] == "alice"
    assert of("origin_refused")["origin"] == "https://evil.example"
    assert of("closed", participant="bob")["reason"] == "space_full"
    assert of("draining")


async def try_to_join(gateway: GatewayProcess, participant: str, token: str) -> int:
    """Try to join. Returns the code with which the connection is closed."""
    client = await Client.connect(f"{gateway.ws_url}/ws")
    await client.send_raw(json.dumps({"type": "join", "participantId": participant, "token": token}))
    return await client.closed()
