"""Whatever others write: markup in names, a frame of a megabyte, bytes that are no text. Nothing of it runs."""

from __future__ import annotations

import json

import pytest
from console_page import ConsolePage
from participants import joined
from playwright.async_api import expect

from support import GatewayProcess

pytestmark = pytest.mark.asyncio(loop_scope="session")

MARKUP = '<img src=x onerror="window.injected=1"><script>window.injected=1</script>'


async def nothing_was_injected(console: ConsolePage) -> None:
    assert await console.page.evaluate("window.injected") is None
    assert await console.page.locator("main img, main script, main iframe").count() == 0


async def test_markup_in_names_and_words(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server, joined(gateway, "scout") as scout:
        stream = await server.open_stream(description=MARKUP, content_type=MARKUP, metadata={MARKUP: MARKUP})
        await console.enter("you")
        await server.chat(MARKUP)
        await scout.propose("tools/call", {"name": MARKUP, "arguments": {MARKUP: MARKUP}}, to="server")
        await stream.send({MARKUP: MARKUP})
        await expect(console.event(MARKUP)).not_to_have_count(0)
        await console.open_stream(MARKUP)
        await stream.send({MARKUP: MARKUP})
        await console.page.locator(".frame").first.click()
        await expect(console.page.locator(".tree")).to_contain_text(MARKUP)
        await console.page.locator("summary", has_text="What its request said").click()
        await nothing_was_injected(console)
        await console.go_to("Inbox")
        await expect(console.page.locator(".message")).to_contain_text(MARKUP)
        await nothing_was_injected(console)
        await stream.close(reason=MARKUP)
        await console.go_to("Timeline")
        await expect(console.event(f"({MARKUP})")).to_have_count(1)
        await nothing_was_injected(console)


async def test_a_megabyte_and_bytes_that_are_no_text(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server:
        stream = await server.open_stream(name="odd")
        await console.enter("you")
        await console.open_stream("odd")
        frames = console.page.locator(".frame")
        await stream.send(json.dumps({"large": "x" * 1_000_000}))
        await expect(frames.first).to_contain_text("976.6 KiB")
        await frames.first.click()
        await expect(console.page.locator("pre.text")).to_contain_text("characters in all")
        await stream.send(b"\xff\xfe\x00<b>bold</b>")
        await expect(frames.first).to_contain_text("ff fe 00 3c 62 3e")
        await frames.first.click()
        await expect(console.page.locator("pre.hex")).to_contain_text("<b>bold</b>")
        await console.page.get_by_role("button", name="text", exact=True).click()
        await expect(console.page.locator("pre.text")).to_contain_text("<b>bold</b>")
        await nothing_was_injected(console)
        await stream.send("[" * 60_000 + "]" * 4_000)
        await stream.send("[" * 5_000 + "]" * 5_000)
        await expect(frames.first).to_contain_text("9.8 KiB")
        await stream.close()
