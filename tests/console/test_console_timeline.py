"""The timeline: what it shows, stopping it, and going back in time, by pointer and by keyboard."""

from __future__ import annotations

import asyncio

import pytest
from console_page import ConsolePage
from participants import TIMEOUT, joined
from playwright.async_api import expect

from support import GatewayProcess

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_scrolling_back_and_returning_to_now(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server:
        stream = await server.open_stream(name="past")
        await console.enter("you")
        head = console.page.locator(".view-head")
        await expect(head).to_contain_text("live")
        await stream.grant("you", reason="long ago")
        await console.event("long ago").click()
        await expect(head).to_contain_text("until ")
        canvas = console.page.locator("canvas").first
        await console.page.get_by_role("button", name="Show less time").click()
        await console.page.get_by_role("button", name="Show less time").click()
        await expect(head).to_contain_text("15 s")
        for _ in range(4):
            await console.page.get_by_role("button", name="Back in time").click()
        # Far back, the same event is chosen again: the time in which it was comes back.
        before = await console.page.locator(".paused-badge").text_content()
        await console.event("long ago").click()
        await expect(console.page.locator(".paused-badge")).not_to_have_text(before or "")
        await canvas.focus()
        await console.page.keyboard.press("End")
        await expect(head).to_contain_text("live")
        await console.page.keyboard.press(" ")
        await expect(head).to_contain_text("until ")
        await console.page.keyboard.press("-")
        await expect(head).to_contain_text("30 s")
        await console.page.keyboard.press("]")
        await expect(console.page.locator(".event.chosen")).to_have_count(1)
        await stream.close()


async def test_its_picture_shows_who_writes(console: ConsolePage, gateway: GatewayProcess) -> None:
    """The colour of the writer is on the canvas once frames have come, and was not before."""
    async with joined(gateway, "server") as server:
        stream = await server.open_stream(name="drawn")
        await console.enter("you")
        await console.event("server joined").or_(console.heading("Timeline")).first.wait_for()
        before = await bars(console)
        for place in range(200):
            await stream.send({"x": place})
        await stream.flush()
        async with asyncio.timeout(TIMEOUT):
            while await bars(console) <= before + 50:
                await console.page.evaluate("new Promise(requestAnimationFrame)")
        await stream.close()


BARS = """() => {
  const canvas = document.querySelector("canvas");
  const probe = document.body.appendChild(document.createElement("i"));
  const colours = new Set();
  for (let number = 0; number < 10; number++) {
    probe.style.color = `var(--person-${number})`;
    colours.add(getComputedStyle(probe).color.match(/\\d+/g).slice(0, 3).join());
  }
  probe.remove();
  const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    const isTime = (at / 4) % width > width * 0.25;
    if (isTime && colours.has([data[at], data[at + 1], data[at + 2]].join())) found++;
  }
  return found;
}"""


async def bars(console: ConsolePage) -> int:
    found: int = await console.page.evaluate(BARS)
    return found
