"""Signed tokens (JWT): who is let in, as whom, with what, until when, and why somebody is not. Real keys, real sockets,
and a real server of keys."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import websockets
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

import mewstream
from support import Client, GatewayProcess, running_gateway, space_config, token_of

ISSUER, AUDIENCE = "https://login.example.org", "mewstream"
SECRET = b"a-secret-of-forty-bytes-made-for-a-test!"
KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
OTHER_KEY = rsa.generate_private_key(65537, 2048)
CHAT = [{"kind": "chat"}]


def pem(key: Any) -> bytes:
    public: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return public


def token(
    key: Any = None,
    *,
    algorithm: str = "RS256",
    head: dict[str, Any] | None = None,
    seconds: float = 600,
    **claims: Any,
) -> str:
    """A token for "ann" in the space "demo", unless ``claims`` say otherwise; None leaves a claim out."""
    said = {
        "sub": "ann",
        "iss": ISSUER,
        "aud": AUDIENCE,
        "spaces": ["demo"],
        "exp": time.time() + seconds,
        **claims,
    }
    key = key or (SECRET if algorithm.startswith("HS") else KEYS[algorithm])
    return jwt.encode({name: value for name, value in said.items() if value is not None}, key, algorithm, headers=head)


def config(directory: Path, **settings: Any) -> dict[str, Any]:
    files = []
    for name, key in KEYS.items():
        file = directory / f"{name}.pem"
        file.write_bytes(pem(key))
        files.append(str(file))
    secret = directory / "secret"
    secret.write_bytes(SECRET + b"\n")
    section: dict[str, Any] = {
        "algorithms": [*KEYS, "HS256"],
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "keys": files,
        "secret_file": str(secret),
        "leeway": 0,
    }
    section = {key: value for key, value in {**section, **settings}.items() if value is not None}
    return space_config("bob", defaults={"capabilities": CHAT}, gateway={"jwt": section})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running_gateway(config(tmp_path_factory.mktemp("keys"))) as process:
        yield process


async def enter(gateway: GatewayProcess, credential: str, **fields: Any) -> Client:
    client = await Client.connect(f"{gateway.ws_url}/ws")
    await client.send_raw(json.dumps({"type": "join", "token": credential, "extensions": [], **fields}))
    client.welcome = await client.receive("system/welcome")
    client.participant = client.welcome["payload"]["you"]["id"]
    return client


async def refused(gateway: GatewayProcess, credential: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    client = await Client.connect(f"{gateway.ws_url}/ws")
    await client.send_raw(json.dumps({"type": "join", "token": credential, "extensions": [], **fields}))
    error = await client.receive("system/error")
    await client.connection.wait_closed()
    return client.connection.close_code or 0, error["payload"]


class TestWhoIsLetIn:
    @pytest.mark.parametrize("algorithm", [*KEYS, "HS256"])
    async def test_each_kind_of_key(self, gateway: GatewayProcess, algorithm: str) -> None:
        ann = await enter(gateway, token(algorithm=algorithm))
        you = ann.welcome["payload"]["you"]
        assert you == {"id": "ann", "capabilities": CHAT}
        await ann.close()

    async def test_by_header_and_by_subprotocol(self, gateway: GatewayProcess) -> None:
        headers = {"Authorization": f"Bearer {token()}"}
        async with websockets.connect(f"{gateway.ws_url}/ws", additional_headers=headers) as socket:
            assert json.loads(await socket.recv())["kind"] == "system/welcome"
        offered: Any = ["mew.v0.4", token()]
        async with websockets.connect(f"{gateway.ws_url}/ws", subprotocols=offered) as socket:
            assert socket.subprotocol == "mew.v0.4"
            assert json.loads(await socket.recv())["kind"] == "system/welcome"

    async def test_capabilities_of_the_token_are_those_of_its_holder(self, gateway: GatewayProcess) -> None:
        given = [{"kind": "stream/request"}, {"kind": "mcp/request", "payload": {"method": "tools/*"}}]
        ann = await enter(gateway, token(capabilities=given))
        assert ann.welcome["payload"]["you"]["capabilities"] == given
        await ann.send("chat", {"text": "no"})
        assert (await ann.receive("system/error"))["payload"]["error"] == "capability_violation"
        await ann.send("stream/request", {"direction": "upload"})
        await ann.receive("stream/open")
        await ann.close()

    async def test_a_configured_participant_keeps_what_is_configured(self, gateway: GatewayProcess) -> None:
        bob = await enter(gateway, token(sub="bob"))
        assert bob.welcome["payload"]["you"]["capabilities"] == [{"kind": "*"}]
        await bob.close()
        narrow = await enter(gateway, token(sub="bob", capabilities=CHAT))
        assert narrow.welcome["payload"]["you"]["capabilities"] == CHAT
        await narrow.close()
        again = await gateway.join("bob")  # by its own token, and so with everything again
        assert again.welcome["payload"]["you"]["capabilities"] == [{"kind": "*"}]
        await again.close()

    async def test_spaces_as_a_text_and_everywhere(self, gateway: GatewayProcess) -> None:
        for spaces in ("other demo", ["*"], "*"):
            await (await enter(gateway, token(spaces=spaces))).close()

    async def test_over_http(self, gateway: GatewayProcess) -> None:
        headers = {"Authorization": f"Bearer {token(sub='cy')}"}
        chat = {"kind": "chat", "payload": {"text": "hello"}}
        bob = await gateway.join("bob")
        status, answer = await gateway.http("POST", "/participants/cy/messages", headers=headers, json=chat)
        assert (status, answer["status"]) == (200, "accepted")
        assert (await bob.receive("chat"))["from"] == "cy"
        status, answer = await gateway.http("POST", "/participants/dee/messages", headers=headers, json=chat)
        assert (status, answer["payload"]["error"]) == (403, "unauthorized")
        assert await gateway.http("GET", "/spaces", headers=headers) == (
            200,
            {"spaces": [{"id": "demo", "name": "demo", "description": "", "participant": "cy"}]},
        )
        await bob.close()


def forged_without_algorithm() -> str:
    _head, body, _signature = token().split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    return f"{none}.{body}."


def forged_with_public_key() -> str:
    """The classic: the public key, used as the secret of HS256."""
    head, body, _ = token(algorithm="HS256").split(".")
    mac = hmac.new(pem(KEYS["RS256"]), f"{head}.{body}".encode(), hashlib.sha256).digest()
    return f"{head}.{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def altered() -> str:
    head, _, signature = token().split(".")
    body = base64.urlsafe_b64encode(json.dumps({"sub": "bob", "exp": time.time() + 60}).encode()).rstrip(b"=").decode()
    return f"{head}.{body}.{signature}"


REFUSED: dict[str, tuple[Any, str, str | None]] = {
    "no algorithm": (forged_without_algorithm, "wrong_algorithm", None),
    "another algorithm": (lambda: token(KEYS["RS256"], algorithm="RS512"), "wrong_algorithm", None),
    "public key as secret": (forged_with_public_key, "bad_signature", None),
    "altered": (altered, "bad_signature", None),
    "another key": (lambda: token(OTHER_KEY), "bad_signature", None),
    "expired": (lambda: token(seconds=-1), "expired", None),
    "not yet valid": (lambda: token(nbf=time.time() + 100), "not_yet_valid", None),
    "issuer": (lambda: token(iss="https://evil.example.org"), "wrong_issuer", None),
    "no issuer": (lambda: token(iss=None), "wrong_issuer", None),
    "audience": (lambda: token(aud="somebody-else"), "wrong_audience", None),
    "no audience": (lambda: token(aud=None), "wrong_audience", None),
    "no end": (lambda: token(exp=None), "malformed_claim", "exp"),
    "no participant": (lambda: token(sub=None), "malformed_claim", "sub"),
    "participant": (lambda: token(sub="a|b"), "malformed_claim", "sub"),
    "the gateway's name": (lambda: token(sub="system:gateway"), "malformed_claim", "sub"),
    "spaces": (lambda: token(spaces={"demo": 1}), "malformed_claim", "spaces"),
    "no spaces": (lambda: token(spaces=None), "other_space", None),
    "another space": (lambda: token(spaces=["other"]), "other_space", None),
    "capabilities": (lambda: token(capabilities="chat"), "malformed_claim", "capabilities"),
    "capability": (lambda: token(capabilities=[{"payload": 1}]), "malformed_claim", "capabilities"),
    "too many capabilities": (
        lambda: token(capabilities=[{"kind": f"x/{n}{'y' * 100}"} for n in range(100)]),
        "malformed_claim",
        "capabilities",
    ),
    "form": (lambda: "ey.ey.ey", "malformed_token", None),
    "size": (lambda: token(pad="x" * 20_000), "malformed_token", None),
}


class TestWhoIsNot:
    @pytest.mark.parametrize("why", REFUSED)
    async def test_one_clear_reason(self, gateway: GatewayProcess, why: str) -> None:
        make, reason, claim = REFUSED[why]
        code, error = await refused(gateway, make())
        assert code == 4500
        assert (error["error"], error["reason"], error.get("claim")) == ("unauthorized", reason, claim)
        if why == "size":
            return  # over HTTP, a head of that size is refused before anybody looks at its token
        status, answer = await gateway.http(
            "GET", "/participants", headers={"Authorization": f"Bearer {make()}"}, params={"space": "demo"}
        )
        assert (status, answer["payload"]["error"], answer["payload"]["reason"]) == (403, "unauthorized", reason)

    async def test_another_name_than_the_token_has(self, gateway: GatewayProcess) -> None:
        code, error = await refused(gateway, token(), participantId="bob")
        assert (code, error["error"]) == (4500, "unauthorized")

    async def test_two_tokens_of_different_people(self, gateway: GatewayProcess) -> None:
        headers = {"Authorization": f"Bearer {token_of('bob')}"}
        async with websockets.connect(f"{gateway.ws_url}/ws", additional_headers=headers) as socket:
            await socket.recv()
            await socket.send(json.dumps({"type": "join", "token": token()}))
            async with asyncio.timeout(10):
                await socket.wait_closed()
            assert socket.close_code == 4500

    def test_the_log_and_the_journal_hold_no_token(self, tmp_path: Path) -> None:
        good, bad = token(), token(OTHER_KEY)
        with running_gateway(config(tmp_path), options=("--data", str(tmp_path / "data"))) as gateway:

            async def visit() -> None:
                await (await enter(gateway, good)).close()
                await refused(gateway, bad)

            asyncio.run(visit())
            log = gateway.stop()
        assert "refused a token" in log
        kept = [file.read_bytes() for file in (tmp_path / "data").rglob("*") if file.is_file()]
        assert kept
        for each in (good, bad):
            for part in each.split(".")[1:]:
                assert part not in log
                assert not any(part.encode() in data for data in kept)


class TestTheEnd:
    async def test_who_does_not_refresh_is_told_and_closed(self, gateway: GatewayProcess) -> None:
        bob = await gateway.join("bob")
        ann = await enter(gateway, token(seconds=3))
        notice = await ann.receive("system/notice")
        assert notice["payload"]["notice"] == "token_expiring"
        await ann.connection.wait_closed()
        assert ann.connection.close_code == 4506
        left = await bob.receive("system/presence", event="leave")
        assert left["payload"]["participant"]["id"] == "ann"
        await bob.close()

    async def test_a_refresh_in_place(self, gateway: GatewayProcess) -> None:
        ann = await enter(gateway, token(seconds=3))
        await ann.receive("system/notice")
        await ann.send_raw(json.dumps({"type": "join", "token": token(seconds=600)}))
        accepted = await ann.receive("system/notice")
        assert accepted["payload"]["notice"] == "token_accepted"
        await asyncio.sleep(4)  # beyond the end of the first token
        await ann.send("chat", {"text": "still here"})
        assert (await ann.receive("chat"))["payload"]["text"] == "still here"
        await ann.close()

    async def test_a_refresh_may_change_what_one_may_do(self, gateway: GatewayProcess) -> None:
        ann = await enter(gateway, token(sub="dee", capabilities=CHAT))
        wider = [{"kind": "chat"}, {"kind": "x/y"}]
        await ann.send_raw(json.dumps({"type": "join", "token": token(sub="dee", seconds=700, capabilities=wider)}))
        assert (await ann.receive("system/welcome"))["payload"]["you"]["capabilities"] == wider
        await ann.close()

    async def test_a_refresh_by_the_token_of_somebody_else(self, gateway: GatewayProcess) -> None:
        ann = await enter(gateway, token())
        await ann.send_raw(json.dumps({"type": "join", "token": token(sub="eve")}))
        await ann.connection.wait_closed()
        assert ann.connection.close_code == 4500

    async def test_the_sdk_refreshes_by_itself(self, gateway: GatewayProcess) -> None:
        made: list[str] = []
        was_asked_again = asyncio.Event()

        def fresh() -> str:
            made.append(token(seconds=3 if not made else 600))
            if len(made) == 2:
                was_asked_again.set()
            return made[-1]

        async with mewstream.connect(gateway.ws_url, token=fresh) as space:
            async with asyncio.timeout(20):
                await was_asked_again.wait()
            await asyncio.sleep(3)
            await space.chat("still here")
            assert space.is_connected
        assert len(made) == 2

    async def test_the_sdk_without_a_newer_token(self, gateway: GatewayProcess) -> None:
        async with mewstream.connect(gateway.ws_url, token=token(seconds=2)) as space:
            await space.wait_closed()
            with pytest.raises(mewstream.ConnectionClosed) as closed:
                await space.chat("too late")
            assert closed.value.code == 4506

    def test_it_survives_a_restart(self, tmp_path: Path) -> None:
        """The end of a token is a time of the log, so it comes also for those who were there before a kill -9."""
        credential = token(seconds=6)
        until = int(time.time()) + 6  # the times of tokens are whole seconds
        with running_gateway(config(tmp_path), options=("--data", str(tmp_path / "data")), clean_log=False) as gateway:

            async def first() -> None:
                ann = await enter(gateway, credential, extensions=["positions"])
                await ann.send("chat", {"text": "one"})
                await ann.receive("chat")
                assert gateway.process is not None
                gateway.process.kill()
                gateway.process.wait()
                gateway.process.stdout.close()

            async def second() -> None:
                ann = await enter(gateway, credential)
                await ann.connection.wait_closed()
                assert ann.connection.close_code == 4506
                assert time.time() >= until
                status, listed = await gateway.http("GET", "/participants", "bob")
                assert status == 200
                assert [each["id"] for each in listed["participants"]] == ["bob"]

            asyncio.run(first())
            gateway.start()
            asyncio.run(second())


class KeyServer:
    """Publishes a set of keys, which the test changes."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.asked = 0
        self.is_broken = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                body = b"nonsense" if outer.is_broken else json.dumps({"keys": outer.published()}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/jwks.json"

    def published(self) -> list[dict[str, Any]]:
        return [
            {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": id, "use": "sig"}
            for id, key in self.keys.items()
        ]


@contextlib.asynccontextmanager
async def with_key_server(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[KeyServer, GatewayProcess]]:
    server = KeyServer()
    server.keys["one"] = KEYS["RS256"]
    section = {"algorithms": ["RS256"], "keys": None, "secret_file": None, "jwks": server.url, **settings}
    try:
        with running_gateway(config(tmp_path, **section)) as gateway:
            yield server, gateway
    finally:
        server.server.shutdown()
        server.server.server_close()


class TestKeysThatRotate:
    async def test_from_a_url(self, tmp_path: Path) -> None:
        async with with_key_server(tmp_path) as (server, gateway):
            await (await enter(gateway, token(head={"kid": "one"}))).close()
            await (await enter(gateway, token(head={"kid": "one"}))).close()
            assert server.asked == 1

    async def test_a_new_key_counts_from_the_moment_it_is_published(self, tmp_path: Path) -> None:
        """The gateway may have asked a moment ago, and then asks again only after a while: until then it says so."""
        async with with_key_server(tmp_path) as (server, gateway):
            await (await enter(gateway, token(head={"kid": "one"}))).close()
            server.keys["two"] = OTHER_KEY
            credential = token(OTHER_KEY, head={"kid": "two"})
            while True:
                client = await Client.connect(f"{gateway.ws_url}/ws")
                await client.send_raw(json.dumps({"type": "join", "token": credential}))
                first: Any = await client.next()
                await client.close()
                if first["kind"] == "system/welcome":
                    break
                assert first["payload"]["reason"] == "unknown_key"
                await asyncio.sleep(0.5)
            assert server.asked == 2

    async def test_strangers_cannot_make_it_ask_again_and_again(self, tmp_path: Path) -> None:
        async with with_key_server(tmp_path) as (server, gateway):
            for number in range(30):
                code, error = await refused(gateway, token(OTHER_KEY, head={"kid": f"unknown-{number}"}))
                assert (code, error["reason"]) == (4500, "unknown_key")
            assert server.asked <= 2

    async def test_a_server_that_fails_takes_nothing_away(self, tmp_path: Path) -> None:
        async with with_key_server(tmp_path, refresh=0.1) as (server, gateway):
            await (await enter(gateway, token(head={"kid": "one"}))).close()
            server.is_broken = True
            await refused(gateway, token(OTHER_KEY, head={"kid": "two"}))
            await (await enter(gateway, token(head={"kid": "one"}))).close()

    async def test_from_a_file(self, tmp_path: Path) -> None:
        server = KeyServer()
        server.keys["one"] = KEYS["RS256"]
        file = tmp_path / "jwks.json"
        file.write_text(json.dumps({"keys": server.published()}))
        server.server.server_close()
        section = {"algorithms": ["RS256"], "keys": None, "secret_file": None, "jwks": str(file)}
        with running_gateway(config(tmp_path, **section)) as gateway:
            await (await enter(gateway, token(head={"kid": "one"}))).close()
            code, error = await refused(gateway, token(OTHER_KEY, head={"kid": "one"}))
            assert (code, error["reason"]) == (4500, "bad_signature")
