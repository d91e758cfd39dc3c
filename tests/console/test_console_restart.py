"""A gateway that is killed and started again: the page says so, comes back, and says what was missed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from console_page import console_page
from participants import joined
from playwright.async_api import Browser, expect

from support import GatewayProcess, running_gateway, space_config

pytestmark = pytest.mark.asyncio(loop_scope="session")


def kill(gateway: GatewayProcess) -> None:
    assert gateway.process is not None
    gateway.process.kill()
    gateway.process.wait(timeout=30)
    gateway.process.stdout.close()


async def test_the_page_comes_back_and_says_what_was_missed(browser: Browser, tmp_path: Path) -> None:
    options = ("--data", str(tmp_path / "data"))
    with running_gateway(space_config("server", "you"), options=options) as gateway:
        async with console_page(browser, gateway) as console, joined(gateway, "server") as server:
            stream = await server.open_stream(name="hero")
            await stream.send("before")
            await stream.flush()
            await console.enter("you")
            # The browser is offline at first, so that the other one is back before the page, and does something.
            kill(gateway)
            alert = console.page.get_by_role("alert")
            await expect(alert).to_contain_text("Disconnected for")
            await expect(console.page.locator(".connection")).to_contain_text("disconnected")
            await console.page.context.set_offline(True)
            await asyncio.to_thread(gateway.start)
            await stream.send("while you were away")
            await server.chat("did you see that?")
            await stream.flush()
            await console.page.context.set_offline(False)
            banner = console.page.get_by_role("status").filter(has_text="Connected again.")
            await expect(banner).to_contain_text("1 frame")
            await expect(banner).to_contain_text("all of it has come since")
            await expect(console.event("server: did you see that?")).to_have_count(1)
            await expect(console.page.locator(".connection")).to_contain_text("live")
            await banner.get_by_role("button", name="Dismiss").click()
            await expect(banner).to_have_count(0)
            await console.open_stream("hero")
            await stream.send("after")
            await expect(console.page.locator(".frame")).to_contain_text("after")


async def test_without_a_journal_it_says_that_nobody_knows(browser: Browser) -> None:
    with running_gateway(space_config("server", "you")) as gateway:
        async with console_page(browser, gateway) as console:
            await console.enter("you")
            kill(gateway)
            await expect(console.page.get_by_role("alert")).to_contain_text("Disconnected for")
            await asyncio.to_thread(gateway.start)
            banner = console.page.get_by_role("status").filter(has_text="Connected again.")
            await expect(banner).to_contain_text("What happened meanwhile is not known")
