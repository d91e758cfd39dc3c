"""Every view, in light and in dark, narrow and wide: nothing that keeps people out (axe-core), nothing cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
import pytest_asyncio
from console_page import ConsolePage, console_page
from participants import joined
from playwright.async_api import Browser, expect

import mewstream
from support import GatewayProcess

pytestmark = pytest.mark.asyncio(loop_scope="session")

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
SEVERE = {"serious", "critical"}
SIZES = {"narrow": {"width": 400, "height": 800}, "wide": {"width": 1600, "height": 1000}}
VIEWS = ("Timeline", "Streams", "People", "Inbox", "Gateway")


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def busy(gateway: GatewayProcess) -> AsyncIterator[None]:
    """A space in which every view has something to show."""
    async with joined(gateway, "server") as server, joined(gateway, "alice"), joined(gateway, "scout") as scout:
        hero = await server.open_stream(name="hero", description="the hero")
        await server.open_stream(name="a-stream-whose-name-is-much-longer-than-there-is-room-for-in-any-list")
        await hero.grant("alice", max_frames=40)
        for place in range(10):
            await hero.send({"x": place})
        with pytest.raises(mewstream.PeerError):
            await scout.open_stream()

        async def jump(height: float) -> str:
            return f"jumped {height}"

        server.tool("jump", jump, description="Jumps as high as you like.")
        await scout.propose("tools/call", {"name": "jump", "arguments": {"height": 2}}, to="server")
        await scout.chat("may I?")
        yield


async def violations(console: ConsolePage) -> list[Any]:
    await console.page.evaluate(AXE)
    found = await console.page.evaluate("axe.run()")
    return [
        (each["id"], [node["html"][:160] for node in each["nodes"]][:3])
        for each in found["violations"]
        if each["impact"] in SEVERE
    ]


async def overflow(console: ConsolePage) -> int:
    """By how many pixels the page is wider than its window."""
    found: int = await console.page.evaluate(
        "Math.max(...[document.documentElement, document.getElementById('main')].filter(Boolean)"
        ".map((each) => each.scrollWidth - each.clientWidth))"
    )
    return found


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        ("narrow", "dark"),
        ("wide", "light"),
        pytest.param("narrow", "light", marks=pytest.mark.long),
        pytest.param("wide", "dark", marks=pytest.mark.long),
    ],
)
async def test_nothing_keeps_people_out(
    browser: Browser, gateway: GatewayProcess, busy: None, scheme: str, size: str
) -> None:
    async with console_page(browser, gateway, viewport=SIZES[size], color_scheme=scheme) as console:
        await console.page.goto(console.address)
        await console.page.get_by_role("button", name="Sign in").wait_for()
        found = {"Sign in": (await violations(console), await overflow(console))}
        await console.enter("you")
        for view in VIEWS:
            await console.go_to(view)
            if view == "Inbox":
                await console.page.locator("[name=whose]").select_option("server")
                await console.page.locator("form.tool").wait_for()
            found[view] = (await violations(console), await overflow(console))
        await console.open_stream("hero")
        found["One stream"] = (await violations(console), await overflow(console))
        assert found == dict.fromkeys(found, ([], 0))


async def test_by_keyboard_alone(console: ConsolePage, busy: None) -> None:
    page = console.page
    await page.goto(console.address)
    await page.get_by_label("Participant").focus()
    await page.keyboard.type("you")
    await page.keyboard.press("Tab")
    await page.keyboard.type("token-of-you")
    await page.keyboard.press("Enter")
    await console.heading("Timeline").wait_for()
    await page.keyboard.press("Tab")
    await expect(page.locator(":focus")).to_have_text("Skip to the content")
    await page.keyboard.press("2")
    await console.heading("Streams").wait_for()
    await page.locator(".card").first.focus()
    await page.keyboard.press("Enter")
    await page.locator("[name=who]").focus()
    await page.keyboard.type("alice")
    await console.button("grant").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status").filter(has_text="alice may write to")).to_have_count(1)
