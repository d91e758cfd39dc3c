"""Who gets in, who does not and is told why, and who is put out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from console_page import ConsolePage, console_page
from playwright.async_api import Browser, expect

from support import GatewayProcess, running_gateway, space_config, token_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_signing_in_and_out(console: ConsolePage, gateway: GatewayProcess) -> None:
    await console.enter("alice")
    page = console.page
    await expect(page.locator(".bar")).to_contain_text("demo")
    await expect(page.locator(".bar .who")).to_contain_text("alice")
    stored = await page.evaluate("[JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie]")
    assert token_of("alice") not in "".join(stored), "nobody asked to keep it"
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_role("button", name="Sign in").wait_for()
    assert await is_gone(gateway, "alice")


async def is_gone(gateway: GatewayProcess, participant: str) -> bool:
    async with asyncio.timeout(30):
        while True:
            _, answer = await gateway.http("GET", "/participants", "bob")
            if not next(each for each in answer["participants"] if each["id"] == participant)["connected"]:
                return True


async def test_the_token_alone_says_who_one_is(console: ConsolePage) -> None:
    await console.sign_in("", token=token_of("bob"))
    await expect(console.page.locator(".bar .who")).to_contain_text("bob")


async def test_a_wrong_token(console: ConsolePage) -> None:
    await console.sign_in("alice", token="wrong")
    await expect(console.page.get_by_role("alert")).to_contain_text("the token is")


async def test_the_token_of_another(console: ConsolePage) -> None:
    await console.sign_in("alice", token=token_of("bob"))
    await expect(console.page.get_by_role("alert")).to_have_text("this token belongs to bob, not to alice")


async def test_kept_for_the_tab_if_asked(console: ConsolePage) -> None:
    await console.enter("alice", is_kept=True)
    page = console.page
    await page.reload()
    await console.heading("Timeline").wait_for()
    assert token_of("alice") in json.loads(await page.evaluate("sessionStorage.mewstream"))["token"]
    assert token_of("alice") not in page.url
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_role("button", name="Sign in").wait_for()
    assert await page.evaluate("sessionStorage.length") == 0
    await page.reload()
    await page.get_by_role("button", name="Sign in").wait_for()


async def test_one_of_several_spaces(browser: Browser) -> None:
    spaces = [space_config("alice", "bob", space="lobby"), space_config("alice", space="arena")]
    with running_gateway(*spaces) as gateway:
        async with console_page(browser, gateway) as console:
            await console.sign_in("alice")
            await console.page.get_by_role("button", name="arena").click()
            await expect(console.page.locator(".bar strong")).to_have_text("arena")
        async with console_page(browser, gateway) as console:
            await console.sign_in("bob")
            await expect(console.page.locator(".bar strong")).to_have_text("lobby")


async def test_who_is_kicked_is_told(console: ConsolePage, gateway: GatewayProcess) -> None:
    await console.enter("alice", is_kept=True)
    server = await gateway.join("server")
    await server.send("space/kick", {"participant_id": "alice", "reason": "enough"})
    await expect(console.page.get_by_role("alert")).to_contain_text("You were removed from the space.")
    assert await console.page.evaluate("sessionStorage.length") == 0, "it would come back by itself"
    await server.connection.close()


async def test_who_signs_in_elsewhere_is_told(console: ConsolePage, gateway: GatewayProcess) -> None:
    await console.enter("alice")
    elsewhere = await gateway.join("alice")
    await expect(console.page.get_by_role("alert")).to_contain_text("the same participant")
    await elsewhere.connection.close()


async def test_a_refused_origin_is_told(browser: Browser) -> None:
    """The page comes through a proxy that hides its own name, so that it looks like the page of another site."""
    with running_gateway(space_config("alice", gateway={"console": True})) as gateway:
        async with (
            renaming_proxy(gateway.port) as port,
            console_page(browser, gateway, address=f"http://127.0.0.1:{port}") as console,
        ):
            await console.sign_in("alice")
            await expect(console.page.get_by_role("alert")).to_contain_text("pages of this origin may not")


@contextlib.asynccontextmanager
async def renaming_proxy(target: int) -> AsyncIterator[int]:
    """Passes everything on, with the address of the target in the place of its own in ``Host``."""
    connections: set[asyncio.StreamWriter] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        connections.update((writer, far_writer))
        names = f"Host: 127.0.0.1:{port}".encode(), f"Host: 127.0.0.1:{target}".encode()

        async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    to.write(data.replace(*names))
            to.close()

        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    try:
        yield port
    finally:
        server.close()
        for each in connections:
            each.close()
