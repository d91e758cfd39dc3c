"""Getting in: addresses, tokens, TLS, refusals, and the state that one finds."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from sdk_helping import QUICK, Script, enter, eventually, scripted, until

import mewstream
from mewstream import ConnectError, JoinRefused, events
from mewstream.client.connection import websocket_url
from support import GatewayProcess, running_gateway, space_config, token_of


async def test_the_example_of_the_issue(gateway: GatewayProcess) -> None:
    async with (
        enter(gateway, "ann", space="demo") as space,
        enter(gateway, "bob", space="demo") as player,
        enter(gateway, "cy", space="demo") as ai,
    ):
        await eventually(lambda: {"bob", "cy"} <= set(space.participants))
        news = player.events()
        async with space.open_stream(description="positions", content_type="application/json") as stream:
            positions = await player.subscribe(stream.id, on_slow="latest")
            await until(news, events.StreamOpened, stream=stream.id, owner="ann")
            await stream.send({"x": 1})
            frame = await positions.receive(5)
            assert (frame.data, frame.json(), frame.stream, frame.writer) == (b'{"x":1}', {"x": 1}, stream.id, "ann")
            assert (frame.sequence, frame.gap) == (None, 0)
            await stream.grant("bob", reason="your turn", max_frames=3)
            granted = await until(news, events.WriteGranted)
            assert (granted.participant, granted.reason, granted.by) == ("bob", "your turn", "ann")
            await player.streams[stream.id].send("from the player")
            await stream.revoke("bob")
            assert (await until(news, events.WriteRevoked)).participant == "bob"
            await stream.transfer("cy")
            assert (await until(news, events.OwnershipTransferred)).new_owner == "cy"
        assert ai.streams[stream.id].is_open  # it was not ours any more
        assert player.streams[stream.id].owner == "cy"
        await ai.streams[stream.id].close()
        await until(news, events.StreamClosed, stream=stream.id, how="closed")
        announced = await space.announce(formats=[{"id": "move"}], name="movement")
        assert announced.alias == "movement"
        assert announced.status == "ready"
        movement = await player.subscribe("movement")
        await announced.start()
        await announced.send({"dx": 1})
        assert (await movement.receive(5)).sequence == 1
        await announced.complete()
        assert [frame async for frame in movement] == []
        await space.chat("hi")
        assert (await until(news, events.Chat)).text == "hi"
        player.tool("greet", lambda name: f"hello {name}", {"type": "object", "required": ["name"]})
        listed = await space.request("tools/list", to="bob")
        assert [tool["name"] for tool in listed["tools"]] == ["greet"]


async def test_a_late_joiner_sees_everything(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob"):
        custom = {"custom": 7}
        stream = await ann.open_stream(description="old", metadata={"unit": "m"}, fields=custom, target=["bob", "cy"])
        await stream.grant("bob", max_frames=5)
        announced = await ann.announce(name="later", formats=[{"id": "a"}])
        async with enter(gateway, "cy") as cy:
            seen = cy.streams[stream.id]
            assert seen.owner == "ann"
            assert seen.authorized_writers == ["ann", "bob"]
            assert seen.authorized_readers == ["bob", "cy"]
            assert seen.conditions["bob"]["max_frames"] == 5
            assert (seen.metadata["unit"], seen.metadata["custom"]) == ("m", 7)
            assert (seen.description, seen.status, seen.is_mine, seen.owner_connected) == ("old", "live", False, True)
            assert seen.namespace == f"demo/{stream.id}"
            assert seen.created
            assert cy.streams["later"].id == announced.id
            assert (cy.streams["later"].status, cy.streams["later"].is_announced) == ("ready", True)
            assert set(cy.participants) == {"ann", "bob"}
            assert cy.participants["ann"].capabilities
            assert cy.features == {"active_streams", "positions", "resume"}
            assert stream.id in repr(cy.streams)
            assert "nothing-of-the-kind" not in cy.streams
        await stream.close()
        await announced.close()


async def test_views_follow(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        news = ann.events()
        async with enter(gateway, "cy"):
            await until(news, events.Joined, participant="cy")
            assert "cy" in ann.participants
        await until(news, events.Left, participant="cy")
        assert "cy" not in ann.participants
        stream = await bob.open_stream()
        await until(news, events.StreamOpened)
        seen = ann.streams[stream.id]
        await bob.close()
        await until(news, events.Left, participant="bob")
        assert seen.owner_connected is False
        async with enter(gateway, "bob") as again:
            await until(news, events.Joined, participant="bob")
            assert seen.owner_connected is True
            assert ann.streams[stream.id] is seen
            await again.streams[stream.id].close(reason="done")
            closed = await until(news, events.StreamClosed)
            assert (closed.reason, closed.by, seen.status, seen.is_open) == ("done", "bob", "closed", False)
            assert stream.id not in ann.streams


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("ws://h:1", "ws://h:1/ws"),
        ("ws://h:1/", "ws://h:1/ws"),
        ("wss://h/other?space=a", "wss://h/other?space=a"),
        ("http://h:1", "ws://h:1/ws"),
        ("https://h", "wss://h/ws"),
        ("h:8080", "ws://h:8080/ws"),
        ("[::1]:8080", "ws://[::1]:8080/ws"),
    ],
)
def test_addresses(given: str, meant: str) -> None:
    assert websocket_url(given) == meant


@pytest.mark.parametrize("given", ["", "ftp://h", "ws://", "ws://h:99999", "ws://h:x", "://"])
def test_addresses_that_are_none(given: str) -> None:
    with pytest.raises(ConnectError, match="no address of a gateway"):
        mewstream.connect(given)


@pytest.mark.parametrize("given", ["ws://me:geheim@h", "ws://h/?token=geheim", "ftp://me:geheim@h"])
def test_a_secret_in_an_address_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(ConnectError, match="secret") as caught:
        mewstream.connect(given)
    assert "geheim" not in str(caught.value)


async def test_http_and_bare_addresses_connect(gateway: GatewayProcess) -> None:
    for url in (gateway.url, f"127.0.0.1:{gateway.port}", f"{gateway.ws_url}/anything"):
        async with enter(gateway, "ann", url=url) as space:
            assert space.is_connected


async def test_nobody_there(unused_tcp_port: int) -> None:
    with pytest.raises(ConnectError, match="Is the gateway running"):
        await mewstream.connect(f"ws://127.0.0.1:{unused_tcp_port}", token="t")
    with pytest.raises(ConnectError, match="no-such-host"):
        await mewstream.connect("ws://no-such-host.invalid", token="t")
    with pytest.raises(ConnectError):
        await mewstream.connect(f"ws://{'a' * 70}.example", token="t")


async def test_others_that_are_no_gateway(gateway: GatewayProcess) -> None:
    async def serve(answer: bytes) -> ConnectError:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ConnectError) as caught:
                await mewstream.connect(f"ws://127.0.0.1:{port}", token="t", connect_timeout=5)
            return caught.value

    assert "at once" in str(await serve(b""))
    assert "HTTP 404" in str(await serve(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))
    refused = await serve(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    assert isinstance(refused, JoinRefused)
    assert refused.code == 403
    assert "WebSocket" in str(await serve(b"SMTP hello\r\n\r\n"))
    assert "HTTP 302" in str(
        await serve(b"HTTP/1.1 302 Found\r\nLocation: ws://elsewhere/\r\nContent-Length: 0\r\n\r\n")
    )


async def test_one_who_never_answers() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        with pytest.raises(ConnectError, match=r"within 0.2 seconds"):
            await mewstream.connect(
                f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", token="t", connect_timeout=0.2
            )

    async def act(script: Script) -> None:
        await script.connection.wait_closed()

    async with scripted(act) as url:
        with pytest.raises(ConnectError, match=r"join within 0.2 seconds"):
            await mewstream.connect(url, token="t", connect_timeout=0.2)


# -- tokens ---------------------------------------------------------------------------------------


async def test_a_wrong_token_is_refused_at_once(gateway: GatewayProcess) -> None:
    asked = 0

    def token() -> str:
        nonlocal asked
        asked += 1
        return "geheim-und-falsch"

    with pytest.raises(JoinRefused) as caught:
        await enter(gateway, "ann", token=token)
    assert caught.value.code == "unauthorized"
    assert "geheim" not in str(caught.value)
    assert asked == 1


async def test_an_unknown_space_and_another_name(gateway: GatewayProcess) -> None:
    with pytest.raises(JoinRefused):
        await enter(gateway, "ann", space="elsewhere")
    with pytest.raises(JoinRefused):
        await enter(gateway, "ann", token=token_of("bob"))


async def test_the_token_says_who_we_are(gateway: GatewayProcess) -> None:
    async with mewstream.connect(gateway.ws_url, token=token_of("dee")) as space:
        assert space.participant == "dee"
        assert repr(space) == "Space(participant='dee', connected)", "the name of the space is not known"
    assert repr(space) == "Space(participant='dee', closed)"
    async with enter(gateway, "dee", space="demo") as space:
        assert repr(space) == "Space('demo', participant='dee', connected)"


async def test_tokens_of_all_kinds(gateway: GatewayProcess) -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return token_of("ann")

    for token in (token_of("ann"), lambda: token_of("ann"), later):
        async with enter(gateway, "ann", token=token) as space:
            assert space.participant == "ann"


async def test_a_token_that_is_no_text_or_cannot_be_had(gateway: GatewayProcess) -> None:
    with pytest.raises(TypeError, match="token is of the type int"):
        await enter(gateway, "ann", token=lambda: 7)

    def broken() -> str:
        raise KeyError("the vault is shut")

    with pytest.raises(KeyError):
        await enter(gateway, "ann", token=broken)


async def test_tokens_appear_nowhere(gateway: GatewayProcess, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    caplog.set_level(1, logger="mewstream.client")
    secret = token_of("ann")
    async with enter(gateway, "ann") as space:
        news = space.events()
        invitation = await space.invite("guest-of-the-test", capabilities=[{"kind": "chat"}])
        assert invitation.token
        assert invitation.token not in repr(invitation)
        assert invitation.token not in str(invitation.__rich_repr__())
        await space.chat("mark")
        told = []
        async for event in news:
            told.append(repr(event))
            if isinstance(event, events.Chat):
                break
        with pytest.raises(mewstream.AlreadyExists) as caught:
            await space.invite("guest-of-the-test")
        shown = [repr(space), repr(space.streams), repr(space.participants), repr(vars(space)), *told]
        shown += [str(caught.value), repr(caught.value)]
    async with mewstream.connect(invitation.url or gateway.ws_url, token=invitation.token) as guest:
        assert guest.participant == "guest-of-the-test"
    for text in (*shown, caplog.text):
        assert secret not in text
        assert invitation.token not in text


# -- refusals while joining -----------------------------------------------------------------------


async def test_a_welcome_and_more_in_one_breath() -> None:
    """Some gateways greet before they are asked, and what follows the welcome may be in the same packet."""

    async def act(script: Script) -> None:
        await script.welcome({"active_streams": [{"stream_id": "s", "owner": "o"}], "epoch": "e", "seq": 1}, seq=1)
        await script.connection.send(b"#s|2|o#first")
        await script.connection.wait_closed()

    async with scripted(act) as url, mewstream.connect(url, participant="me") as space:
        assert space.streams["s"].owner == "o"
        assert space.position is not None


async def test_a_space_that_is_full_may_be_tried_again() -> None:
    async def act(script: Script) -> None:
        await script.connection.close(4005, "full")

    async with scripted(act) as url:
        with pytest.raises(ConnectError, match="full") as caught:
            await mewstream.connect(url)
        assert not isinstance(caught.value, JoinRefused)


async def test_a_refusal_without_an_error_has_its_close_code() -> None:
    async def act(script: Script) -> None:
        await script.connection.close(4500, "no")

    async with scripted(act) as url:
        with pytest.raises(JoinRefused) as caught:
            await mewstream.connect(url)
        assert caught.value.code == 4500


# -- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls_gateway(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    directory: Path = tmp_path_factory.mktemp("tls")
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(directory / "key.pem")
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(directory / "cert.pem", append=number > 0)
    options = ("--tls-cert", str(directory / "cert.pem"), "--tls-key", str(directory / "key.pem"))
    with running_gateway(space_config("ann"), options=options) as running:
        yield running


async def test_tls(tls_gateway: GatewayProcess, authority: trustme.CA) -> None:
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    options: dict[str, Any] = {"token": token_of("ann"), "reconnect": QUICK}
    async with (
        mewstream.connect(f"wss://localhost:{tls_gateway.port}", ssl=trust, **options) as space,
        space.open_stream() as stream,
    ):
        # A reader that stops the reading again and again, and gets everything all the same.
        subscription = stream.subscribe(on_slow="pause", max_pending=2)

        async def send_all() -> None:
            for number in range(2000):
                await stream.send(b"%d" % number * 50)

        sending = asyncio.create_task(send_all())
        for number in range(2000):
            frame = await subscription.receive(10)
            assert (frame.data, frame.gap) == (b"%d" % number * 50, 0)
        await sending
        # The same in bursts of many TLS records, with silence after each: nothing may wait for what comes next.
        for number in range(40):
            burst = [b"%d,%d" % (number, each) * 300 for each in range(30 + number)]
            for data in burst:
                await stream.send(data)
            time.sleep(0.02)  # noqa: ASYNC251 - so that it is read at once
            assert [(await subscription.receive(10)).data for _ in burst] == burst
        await stream.flush()
    with pytest.raises(ConnectError, match="not trusted"):
        await mewstream.connect(f"wss://localhost:{tls_gateway.port}", **options)
    with pytest.raises(ConnectError, match="not trusted"):
        await mewstream.connect(f"wss://127.0.0.1:{tls_gateway.port}", ssl=trust, **options)
    with pytest.raises(ConnectError):
        await mewstream.connect(f"ws://localhost:{tls_gateway.port}", connect_timeout=3, **options)
