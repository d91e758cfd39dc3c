"""The files of the console: to whom they are served, and with which headers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from http_socket import Answer, HttpSocket
from raw_socket import RawSocket

from mewstream.gateway.console_files import DIRECTORY
from support import GatewayProcess, running_gateway, space_config

LISTENING_EVERYWHERE = ("--host", "0.0.0.0")


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway(space_config("alice")) as gateway:
        yield gateway


async def get(gateway: GatewayProcess, path: str, *lines: str, method: str = "GET", host: str | None = None) -> Answer:
    head = [f"{method} {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{gateway.port}'}", *lines]
    async with await HttpSocket.connected(gateway.port) as raw:
        await raw.send("\r\n".join([*head, "", ""]).encode())
        return await raw.answer(has_body=method != "HEAD")


async def is_served(gateway: GatewayProcess, *lines: str, host: str | None = None) -> bool:
    page = await get(gateway, "/", *lines, host=host)
    script = await get(gateway, f"/assets/{asset('.js')}", *lines, host=host)
    assert {page.status, script.status} in ({200}, {404}), page
    return page.status == 200


def asset(suffix: str) -> str:
    return next(each.name for each in sorted((DIRECTORY / "assets").iterdir()) if each.suffix == suffix)


class TestWhoGetsIt:
    async def test_this_machine(self, gateway: GatewayProcess) -> None:
        assert await is_served(gateway)
        assert await is_served(gateway, host="localhost:1")

    @pytest.mark.parametrize(
        "line",
        [
            "X-Forwarded-For: 192.0.2.1",
            "X-Forwarded-Host: example.org",
            "X-Forwarded-Proto: https",
            "X-Real-IP: 192.0.2.1",
            "Forwarded: for=192.0.2.1",
            "Via: 1.1 proxy",
        ],
    )
    async def test_nobody_through_a_proxy(self, gateway: GatewayProcess, line: str) -> None:
        assert not await is_served(gateway, line)

    async def test_nobody_by_a_strange_name(self, gateway: GatewayProcess) -> None:
        assert not await is_served(gateway, host="evil.example")

    async def test_nobody_where_it_is_off(self) -> None:
        with running_gateway(space_config("alice", gateway={"console": False})) as gateway:
            assert not await is_served(gateway)
            assert (await get(gateway, "/", method="POST")).status == 404, "there is no such route"

    async def test_nobody_where_others_can_connect(self) -> None:
        with running_gateway(space_config("alice"), options=LISTENING_EVERYWHERE) as gateway:
            assert not await is_served(gateway)

    async def test_everyone_where_it_is_on(self) -> None:
        config = space_config("alice", gateway={"console": True})
        with running_gateway(config, options=LISTENING_EVERYWHERE) as gateway:
            assert await is_served(gateway)
            assert await is_served(gateway, "X-Forwarded-For: 192.0.2.1", host="play.example.org")

    async def test_a_socket_may_still_use_the_same_path(self, gateway: GatewayProcess) -> None:
        async with await RawSocket.upgraded(gateway.port, path="/"):
            pass


class TestHeaders:
    async def test_the_policy_lets_nothing_in(self, gateway: GatewayProcess) -> None:
        for path in ("/", f"/assets/{asset('.js')}", f"/assets/{asset('.css')}"):
            answer = await get(gateway, path)
            policy = dict(
                directive.strip().partition(" ")[::2]
                for directive in answer.headers["content-security-policy"].split(";")
            )
            assert policy["default-src"] == "'none'"
            assert {policy[each] for each in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
            assert {policy[each] for each in ("frame-ancestors", "base-uri", "form-action")} == {"'none'"}
            assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cross-origin-opener-policy"] == "same-origin"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"

    async def test_types(self, gateway: GatewayProcess) -> None:
        for path, expected in (("/", "text/html"), (f"/assets/{asset('.js')}", "text/javascript")):
            assert (await get(gateway, path)).headers["content-type"] == f"{expected}; charset=utf-8"

    async def test_files_with_a_hash_in_their_name_are_kept_for_ever(self, gateway: GatewayProcess) -> None:
        answer = await get(gateway, f"/assets/{asset('.js')}")
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.body == (DIRECTORY / "assets" / asset(".js")).read_bytes()
        for file in (DIRECTORY / "assets").iterdir():
            assert re.fullmatch(r"[\w-]+-[\w-]{8}\.(js|css|svg)", file.name)

    async def test_the_page_is_asked_for_again_and_sent_if_it_has_changed(self, gateway: GatewayProcess) -> None:
        answer = await get(gateway, "/")
        assert answer.headers["cache-control"] == "no-cache"
        again = await get(gateway, "/", f"If-None-Match: {answer.headers['etag']}")
        assert (again.status, again.body) == (304, b"")
        assert "content-length" not in again.headers
        assert (await get(gateway, "/", 'If-None-Match: "another"')).status == 200

    async def test_head(self, gateway: GatewayProcess) -> None:
        page = await get(gateway, "/")
        head = await get(gateway, "/", method="HEAD")
        assert (head.status, head.headers["content-length"]) == (200, str(len(page.body)))

    @pytest.mark.parametrize("name", ["nothing.js", "..%2Findex.html", "%2e%2e%2f%2e%2e%2fconfig.py", "index.html"])
    async def test_there_are_no_other_files(self, gateway: GatewayProcess, name: str) -> None:
        assert (await get(gateway, f"/assets/{name}")).status == 404

    async def test_the_page_has_nothing_inline_and_nothing_from_elsewhere(self, gateway: GatewayProcess) -> None:
        page = (await get(gateway, "/")).body.decode()
        for tag in re.findall(r"<(?:script|link|img|style|iframe)\b[^>]*>", page):
            assert re.search(r' (?:src|href)="/assets/[\w.-]+"', tag), tag
        assert not re.search(r"<style|\son\w+=|\sstyle=|javascript:", page)
        assert not re.search(r"<script[^>]*>[^<]", page)


async def test_the_address_is_printed_behind_the_ready_line(gateway: GatewayProcess) -> None:
    assert gateway.process is not None
    assert gateway.process.stdout.readline() == f"the console is at http://127.0.0.1:{gateway.port}/\n"
