"""Nobody becomes somebody else: not by a second join in the same breath, not by an old invitation."""

from __future__ import annotations

import json
from pathlib import Path

from raw_socket import RawSocket, ws_frame

from support import GatewayProcess, running_gateway, space_config, token_of

TEXT = 1


async def test_a_second_join_while_the_first_is_carried_out() -> None:
    """A resume is looked up beside the loop; what is pipelined behind it must not change who joins."""
    one = space_config("low", "admin", space="one")
    two = space_config("admin", space="two")
    two["participants"]["admin"]["tokens"] = ["token-of-another-admin"]
    with running_gateway(one, two) as gateway:
        admin = await gateway.join("admin", space="one")
        low = await gateway.join("low", space="one", extensions=["positions"])
        position = {key: low.welcome["payload"][key] for key in ("epoch", "seq")}
        await low.close()
        await admin.receive("system/presence", event="leave")
        first = {
            "type": "join", "participantId": "low", "space": "one", "token": token_of("low"),
            "extensions": ["positions"], "resume": position,
        }  # fmt: skip
        second = {"type": "join", "participantId": "admin", "space": "two", "token": "token-of-another-admin"}
        async with await RawSocket.upgraded(gateway.port) as raw:
            await raw.send(b"".join(ws_frame(TEXT, json.dumps(each).encode()) for each in (first, second)))
            frames = await raw.read_until(lambda frame: b"system/welcome" in frame.payload)
            assert frames[-1].json["payload"]["you"]["id"] == "low"
        await admin.receive("system/presence", event="join")
        await admin.settle()  # and admin is still who it was
        await admin.close()


async def test_what_is_sent_with_a_resume_is_heard_after_the_welcome() -> None:
    with running_gateway(space_config("low", "admin")) as gateway:
        low = await gateway.join("low", extensions=["positions"])
        position = {key: low.welcome["payload"][key] for key in ("epoch", "seq")}
        await low.close()
        join = {"type": "join", "participantId": "low", "token": token_of("low"), "extensions": ["positions"]}
        chat = {"id": "c1", "kind": "chat", "payload": {"text": "at once"}}
        async with await RawSocket.upgraded(gateway.port) as raw:
            messages = ({**join, "resume": position}, chat)
            await raw.send(b"".join(ws_frame(TEXT, json.dumps(each).encode()) for each in messages))
            frames = await raw.read_until(lambda frame: b"at once" in frame.payload)
            assert b"system/welcome" in frames[0].payload


async def test_an_invitation_does_not_become_who_is_configured_later(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    gateway = GatewayProcess(tmp_path, space_config("admin"), options=data).start()
    status, invited = await gateway.post(
        "admin", {"kind": "space/invite", "payload": {"participant_id": "boss", "capabilities": [{"kind": "chat"}]}}
    )
    assert status == 200
    gateway.stop()
    gateway = GatewayProcess(tmp_path, space_config("admin", "boss"), options=data).start()
    headers = {"Authorization": f"Bearer {invited['token']}"}
    status, _ = await gateway.http("GET", "/participants", headers=headers)
    assert status == 403
    gateway.stop()
