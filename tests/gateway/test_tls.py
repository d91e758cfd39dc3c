"""TLS: wss and https on the one port (DESIGN, "gateway")."""

from __future__ import annotations

import itertools
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
import trustme
import yaml
from raw_socket import RawSocket
from tls_socket import Certificates, issue_certificates

from support import TIMEOUT, Client, GatewayProcess, space_config, token_of

#: Begins the ids of a client's envelopes: the gateway is shared, and a repeated id would be a repetition.
_numbers = itertools.count()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return issue_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=["options", "gateway.tls"])
def gateway(
    request: pytest.FixtureRequest, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    directory = tmp_path_factory.mktemp("gateway")
    files = {"cert": str(certificates.cert), "key": str(certificates.key)}
    if request.param == "options":
        options = certificates.options
        config = space_config("alice", "bob")
    else:
        options = ()
        config = space_config("alice", "bob", gateway={"tls": files})
    gateway = GatewayProcess(directory, config, options=options).start()
    yield gateway
    gateway.stop()


async def enter(gateway: GatewayProcess, certificates: Certificates, participant: str) -> Client:
    client = await Client.connect(f"wss://localhost:{gateway.port}/ws", ssl=certificates.trust)
    client.participant = f"{participant}-{next(_numbers)}"
    join = {"type": "join", "participantId": participant, "token": token_of(participant)}
    await client.send_raw(json.dumps(join))
    client.welcome = await client.receive("system/welcome")
    return client


async def test_wss_and_https_on_one_port(gateway: GatewayProcess, certificates: Certificates) -> None:
    alice = await enter(gateway, certificates, "alice")
    bob = await enter(gateway, certificates, "bob")
    stream = await alice.open_stream()
    large = "x" * 500_000
    await alice.frame(stream, large)
    assert await bob.receive_frame(stream) == large
    assert bob.connection.transport.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
    async with aiohttp.ClientSession() as session:
        base = f"https://localhost:{gateway.port}"
        async with session.get(f"{base}/health", ssl=certificates.trust) as response:
            assert (await response.json())["clients"] == 2
        headers = {"Authorization": f"Bearer {token_of('alice')}"}
        envelope = {"kind": "chat", "payload": {"text": "over https"}}
        url = f"{base}/participants/alice/messages"
        async with session.post(url, json=envelope, headers=headers, ssl=certificates.trust) as response:
            assert response.status == 200
    assert (await bob.receive("chat"))["payload"]["text"] == "over https"
    await alice.close()
    await bob.close()


async def test_an_invitation_leads_to_wss(gateway: GatewayProcess, certificates: Certificates) -> None:
    alice = await enter(gateway, certificates, "alice")
    await alice.send("space/invite", {"participant_id": "guest", "capabilities": [{"kind": "chat"}]})
    ack = (await alice.receive("space/invite-ack"))["payload"]
    assert ack["connection_url"].startswith("wss://")
    headers = {"Authorization": f"Bearer {ack['token']}"}
    guest = await Client.connect(ack["connection_url"], ssl=certificates.trust, additional_headers=headers)
    await guest.receive("system/welcome")
    await guest.close()
    await alice.close()


async def test_a_page_of_the_same_host_may_connect(gateway: GatewayProcess, certificates: Certificates) -> None:
    origin = f"https://localhost:{gateway.port}"
    client = await Client.connect(f"wss://localhost:{gateway.port}/", ssl=certificates.trust, origin=origin)
    await client.close()


async def test_plain_http_gets_nowhere(gateway: GatewayProcess) -> None:
    with pytest.raises((aiohttp.ClientError, OSError)):
        await gateway.http("GET", "/health")
    with pytest.raises(Exception, match=r"."):
        await Client.connect(gateway.ws_url)


async def test_a_client_that_does_not_trust_it_disturbs_nobody(
    gateway: GatewayProcess, certificates: Certificates
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await Client.connect(f"wss://localhost:{gateway.port}/", ssl=ssl.create_default_context())
    alice = await enter(gateway, certificates, "alice")
    await alice.close()


class TestFront:
    """What holds for plain connections holds for these, from before their handshake on."""

    @pytest.fixture
    def impatient(self, certificates: Certificates, tmp_path: Path) -> Iterator[GatewayProcess]:
        files = {"cert": str(certificates.cert), "key": str(certificates.key)}
        settings = {"tls": files, "head_timeout": 0.5, "connections": 8, "connections_per_address": 8}
        gateway = GatewayProcess(tmp_path, space_config("alice", gateway={"drain_seconds": 0, **settings})).start()
        yield gateway
        gateway.stop()

    @pytest.mark.parametrize(
        "hello", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)]
    )
    async def test_a_handshake_that_does_not_end(self, impatient: GatewayProcess, hello: bytes) -> None:
        async with await RawSocket.open(impatient.port) as raw:
            await raw.send(hello)
            await raw.read_all(3 * TIMEOUT)

    async def test_connections_count_before_their_handshake(
        self, impatient: GatewayProcess, certificates: Certificates
    ) -> None:
        silent = [await RawSocket.open(impatient.port) for _ in range(8)]
        with pytest.raises(OSError):
            await Client.connect(f"wss://localhost:{impatient.port}/", ssl=certificates.trust)
        for raw in silent:
            await raw.read_all(3 * TIMEOUT)
            raw.sock.close()
        client = await Client.connect(f"wss://localhost:{impatient.port}/", ssl=certificates.trust)
        await client.close()

    async def test_an_upgrade_after_requests_and_large_answers(
        self, gateway: GatewayProcess, certificates: Certificates
    ) -> None:
        alice, bob = [await enter(gateway, certificates, each) for each in ("alice", "bob")]
        stream = await bob.open_stream()
        for _ in range(5):
            await bob.frame(stream, "x" * 900_000)
        await bob.settle()
        await bob.close()
        connector = aiohttp.TCPConnector(limit=1, ssl=certificates.trust)
        base = f"https://localhost:{gateway.port}"
        headers = {"Authorization": f"Bearer {token_of('alice')}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            for _ in range(3):
                async with session.get(f"{base}/participants/alice/messages?since=1") as response:
                    assert len((await response.json())["messages"]) > 4
            async with session.ws_connect(f"{base}/ws") as ws:
                assert (await ws.receive_json())["kind"] == "system/welcome"
        await alice.close()


class TestMistakes:
    """One line and exit code 2."""

    def mistake(self, directory: Path, *options: str, tls: dict[str, str] | None = None) -> str:
        file = directory / "space.yaml"
        file.write_text(yaml.safe_dump(space_config("alice", **({"gateway": {"tls": tls}} if tls else {}))))
        command = [sys.executable, "-m", "mewstream.cli.main", "serve", "--port", "0", "--config", str(file), *options]
        result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=30, check=False)
        assert result.returncode == 2, result
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert "Traceback" not in line
        assert "PRIVATE KEY" not in line
        return line

    def test_no_such_file(self, tmp_path: Path, certificates: Certificates) -> None:
        line = self.mistake(tmp_path, "--tls-cert", "missing.pem", "--tls-key", str(certificates.key))
        assert "missing.pem" in line

    def test_a_certificate_that_is_none(self, tmp_path: Path, certificates: Certificates) -> None:
        (tmp_path / "bad.pem").write_text("not a certificate\n")
        assert "bad.pem" in self.mistake(tmp_path, "--tls-cert", "bad.pem", "--tls-key", str(certificates.key))

    def test_a_key_that_is_none(self, tmp_path: Path, certificates: Certificates) -> None:
        (tmp_path / "bad.pem").write_text("not a key\n")
        self.mistake(tmp_path, "--tls-cert", str(certificates.cert), "--tls-key", "bad.pem")

    def test_the_key_of_another_certificate(self, tmp_path: Path, certificates: Certificates) -> None:
        trustme.CA().issue_cert("localhost").private_key_pem.write_to_path(tmp_path / "other.pem")
        self.mistake(tmp_path, "--tls-cert", str(certificates.cert), "--tls-key", "other.pem")

    def test_a_certificate_without_its_key(self, tmp_path: Path, certificates: Certificates) -> None:
        assert "key" in self.mistake(tmp_path, "--tls-cert", str(certificates.cert))
        assert "cert" in self.mistake(tmp_path, "--tls-key", str(certificates.key))

    def test_in_the_file(self, tmp_path: Path, certificates: Certificates) -> None:
        line = self.mistake(tmp_path, tls={"cert": "missing.pem", "key": str(certificates.key)})
        assert "gateway.tls.cert" in line
