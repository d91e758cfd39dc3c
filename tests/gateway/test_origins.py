"""Web pages: which of them may use the gateway, what their scripts may read, and names that are not the gateway's."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest
from http_socket import Answer, HttpSocket
from raw_socket import RawSocket, upgrade_head

from mewstream.gateway.config import GatewayConfig
from mewstream.gateway.http_message import HttpError, Request
from mewstream.gateway.origins import Origins
from mewstream.protocol.close_codes import CloseReason
from support import GatewayProcess, running_gateway, space_config, token_of

LISTED = "https://play.example.org:8443"
STRANGE = "https://evil.example"


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway(space_config("alice", gateway={"allowed_origins": [LISTED]})) as gateway:
        yield gateway


async def ask(
    gateway: GatewayProcess, method: str = "GET", path: str = "/streams", *lines: str, host: str | None = None
) -> Answer:
    """A request with the token of alice."""
    head = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host or f'127.0.0.1:{gateway.port}'}",
        f"Authorization: Bearer {token_of('alice')}",
        *lines,
    ]
    async with await HttpSocket.connected(gateway.port) as raw:
        await raw.send("\r\n".join([*head, "", ""]).encode())
        return await raw.answer(has_body=method != "HEAD")


class TestSharing:
    """CORS: what a script of another origin may read (Fetch standard, 3.2)."""

    @pytest.mark.parametrize(
        ("path", "status"),
        [("/health", 200), ("/streams", 200), ("/streams?limit=x", 400), ("/streams?space=nowhere", 404), ("/no", 404)],
    )
    async def test_a_listed_origin_reads_answers_and_errors(
        self, gateway: GatewayProcess, path: str, status: int
    ) -> None:
        answer = await ask(gateway, "GET", path, f"Origin: {LISTED}")
        assert answer.status == status
        assert answer.headers["access-control-allow-origin"] == LISTED
        assert answer.headers["vary"] == "Origin"
        assert "Retry-After" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers, "a token is no cookie"

    async def test_programs_get_no_such_headers(self, gateway: GatewayProcess) -> None:
        assert not [name for name in (await ask(gateway)).headers if name.startswith("access-control")]

    @pytest.mark.parametrize("origin", [STRANGE, "null", "http://127.0.0.1:1", LISTED + ".evil.example", "ü"])
    async def test_another_origin_is_refused(self, gateway: GatewayProcess, origin: str) -> None:
        answer = await ask(gateway, "GET", "/streams", f"Origin: {origin}")
        assert (answer.status, answer.error) == (403, "unauthorized")
        assert "access-control-allow-origin" not in answer.headers

    async def test_what_it_may_send(self, gateway: GatewayProcess) -> None:
        wish = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type")
        answer = await ask(gateway, "OPTIONS", "/participants/alice/messages", f"Origin: {LISTED}", *wish)
        assert answer.status == 204
        assert "content-length" not in answer.headers
        assert answer.headers["access-control-allow-origin"] == LISTED
        assert set(answer.headers["access-control-allow-methods"].split(", ")) == {"POST", "GET", "HEAD"}
        allowed = answer.headers["access-control-allow-headers"].lower()
        assert "authorization" in allowed
        assert "content-type" in allowed

    async def test_a_strange_origin_may_send_nothing(self, gateway: GatewayProcess) -> None:
        wish = "Access-Control-Request-Method: POST"
        answer = await ask(gateway, "OPTIONS", "/participants/alice/messages", f"Origin: {STRANGE}", wish)
        assert answer.status == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]

    async def test_any_other_options_are_no_route(self, gateway: GatewayProcess) -> None:
        assert (await ask(gateway, "OPTIONS", "/streams")).status == 405
        assert (await ask(gateway, "OPTIONS", "/streams", f"Origin: {LISTED}")).status == 405

    async def test_after_a_refused_page_the_connection_goes_on(self, gateway: GatewayProcess) -> None:
        async with await HttpSocket.connected(gateway.port) as raw:
            head = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            assert (await raw.ask(f"{head}Origin: {STRANGE}\r\n\r\n".encode())).status == 403
            assert (await raw.ask(f"{head}Origin: {LISTED}\r\n\r\n".encode())).status == 200
            answer = await raw.ask(f"{head}\r\n".encode())
            assert (answer.status, answer.headers.get("access-control-allow-origin")) == (200, None)

    async def test_any_origin(self) -> None:
        with running_gateway(space_config("alice", gateway={"allowed_origins": ["*"]})) as gateway:
            answer = await ask(gateway, "GET", "/streams", f"Origin: {STRANGE}")
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")

    async def test_every_answer_says_that_its_type_is_not_to_be_guessed(self, gateway: GatewayProcess) -> None:
        for path in ("/health", "/metrics", "/streams", "/nowhere"):
            assert (await ask(gateway, "GET", path)).headers["x-content-type-options"] == "nosniff"


class TestSockets:
    async def closed(self, gateway: GatewayProcess, head: bytes) -> tuple[Any, bytes]:
        """The error and the close that follow a handshake."""
        async with await RawSocket.open(gateway.port) as raw:
            await raw.send(head)
            status, answer = await raw.read_head()
            assert status == 101, answer
            error, close = await raw.read_frame(), await raw.read_frame()
            assert error is not None
            assert close is not None
            assert await raw.read_all() == b""
            return error.json["payload"], close.payload

    async def test_a_strange_page_is_told_why(self, gateway: GatewayProcess) -> None:
        log = gateway.log.read_text()
        error, close = await self.closed(gateway, upgrade_head(Origin=STRANGE))
        assert (error["error"], "allowed_origins" in error["message"]) == ("unauthorized", True)
        assert close == (4505).to_bytes(2) + CloseReason.ORIGIN_REFUSED.value.text.encode()
        (line,) = gateway.log.read_text().removeprefix(log).splitlines()
        assert line.endswith(f"refused a page of {STRANGE}, from 127.0.0.1: see gateway.allowed_origins")

    async def test_nothing_that_it_sends_is_heard(self, gateway: GatewayProcess) -> None:
        head = upgrade_head(Origin=STRANGE, Authorization=f"Bearer {token_of('alice')}")
        error, _ = await self.closed(gateway, head)
        assert error["error"] == "unauthorized"
        assert (await gateway.http("GET", "/participants", "alice"))[1]["participants"][0]["connected"] is False

    async def test_a_page_with_two_tokens_is_told_why(self, gateway: GatewayProcess) -> None:
        offers = f"mew.v0.4, {token_of('alice')}, another"
        error, close = await self.closed(gateway, upgrade_head(Origin=LISTED, Sec_WebSocket_Protocol=offers))
        assert (error["error"], "more than one token" in error["message"]) == ("unauthorized", True)
        assert close[:2] == (4500).to_bytes(2)
        assert token_of("alice") not in gateway.log.read_text()

    async def test_a_wrong_token_is_a_line_in_the_log(self, gateway: GatewayProcess) -> None:
        log = gateway.log.read_text()
        offers = "mew.v0.4, mistyped"
        _, close = await self.closed(gateway, upgrade_head(Origin=LISTED, Sec_WebSocket_Protocol=offers))
        assert close[:2] == (4500).to_bytes(2)
        (line,) = gateway.log.read_text().removeprefix(log).splitlines()
        assert "refused a token in demo, from 127.0.0.1" in line
        assert "mistyped" not in line

    async def test_the_log_names_participants_that_exist_and_nothing_else(self, gateway: GatewayProcess) -> None:
        for claimed, shown in (("alice", " of alice in demo"), ("sesame", " in demo")):
            log = gateway.log.read_text()
            status, _ = await gateway.http(
                "GET", f"/participants/{claimed}/messages", headers={"Authorization": "Bearer mistyped"}
            )
            assert status == 403
            (line,) = gateway.log.read_text().removeprefix(log).splitlines()
            assert f"refused a token{shown}, from 127.0.0.1" in line
            assert "sesame" not in line


class TestStrangeNames:
    """DNS rebinding: a strange page whose name the browser takes for 127.0.0.1."""

    HOST = "evil.example:8080"
    BROWSERS = ("Accept-Language: en", "Sec-Fetch-Site: same-origin")

    @pytest.mark.parametrize("path", ["/", "/streams", "/health", "/metrics", "/openapi.json"])
    @pytest.mark.parametrize("line", BROWSERS)
    async def test_a_browser_is_not_answered_under_them(self, gateway: GatewayProcess, path: str, line: str) -> None:
        answer = await ask(gateway, "GET", path, line, host=self.HOST)
        assert (answer.status, answer.error) == (421, "validation_error")
        assert "public_url" in answer.json["payload"]["message"]

    async def test_nor_if_it_pretends_to_be_a_proxy(self, gateway: GatewayProcess) -> None:
        lines = ("X-Forwarded-For: 192.0.2.1", "Via: 1.1 proxy", self.BROWSERS[0])
        assert (await ask(gateway, "GET", "/streams", *lines, host=self.HOST)).status == 421

    async def test_it_can_send_nothing(self, gateway: GatewayProcess) -> None:
        lines = (f"Origin: http://{self.HOST}", "Content-Length: 2")
        answer = await ask(gateway, "POST", "/participants/alice/messages", *lines, host=self.HOST)
        assert (answer.status, answer.error) == (403, "unauthorized")

    async def test_nor_join(self, gateway: GatewayProcess) -> None:
        async with await RawSocket.open(gateway.port) as raw:
            await raw.send(upgrade_head(host=self.HOST, Origin=f"http://{self.HOST}"))
            assert (await raw.read_head())[0] == 101
            _, code = await raw.read_to_close()
            assert code == 4505

    @pytest.mark.parametrize(
        "host", ["127.0.0.1", "127.0.0.1:80", "[::1]:8080", "localhost", "LOCALHOST:99", "a.localhost", "192.0.2.7"]
    )
    async def test_names_of_this_machine_and_addresses_are_not_strange(
        self, gateway: GatewayProcess, host: str
    ) -> None:
        answer = await ask(gateway, "GET", "/streams", *self.BROWSERS, f"Origin: http://{host}", host=host)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, f"http://{host}")

    async def test_programs_may_use_any_name(self, gateway: GatewayProcess) -> None:
        assert (await ask(gateway, host=self.HOST)).status == 200


def origins(**settings: Any) -> Origins:
    is_local = settings.pop("is_local", True)
    return Origins(GatewayConfig(spaces={}, **settings), is_local=is_local)


def request(*headers: tuple[bytes, bytes]) -> Request:
    return Request(b"GET", b"/streams", headers)


PAGE = request((b"Host", b"play.example.org"), (b"Origin", b"https://play.example.org"), (b"Accept-Language", b"en"))


class TestRules:
    @pytest.mark.parametrize(
        "settings",
        [
            {"public_url": "wss://play.example.org"},
            {"allowed_origins": ("https://play.example.org:99",)},
            {"host": "play.example.org"},
            {"is_local": False},
        ],
        ids=["public_url", "allowed_origins", "host", "not local"],
    )
    def test_configured_names_are_the_gateways_own(self, settings: dict[str, Any]) -> None:
        origins(**settings).check(PAGE, is_proxied=False)

    def test_others_are_not(self) -> None:
        with pytest.raises(HttpError) as caught:
            origins().check(PAGE, is_proxied=False)
        assert caught.value.status == 403

    def test_a_trusted_proxy_passes_on_the_name_that_it_was_asked_by(self) -> None:
        origins(trusted_proxies=(ip_network("127.0.0.1"),)).check(PAGE, is_proxied=True)

    def test_a_name_of_the_gateway_is_no_permission_for_pages_of_other_ports(self) -> None:
        page = request((b"Host", b"localhost:8080"), (b"Origin", b"http://localhost:3000"))
        assert not origins().allows(page, is_proxied=False)

    def test_a_request_without_a_host_comes_from_no_browser(self) -> None:
        origins().check(request(), is_proxied=False)
        assert not origins().allows(request((b"Origin", b"http://")), is_proxied=False)

    def test_an_origin_that_is_no_text_is_not_repeated(self) -> None:
        strange = request((b"Host", b"\xff"), (b"Origin", b"http://\xff"))
        assert origins(is_local=False).headers(strange) == ()
