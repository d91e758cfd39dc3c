"""The console in a real browser: what a person does with it, and everything that goes wrong meanwhile."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Locator, Page, async_playwright, expect

from support import GatewayProcess, token_of

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: So long that it only ends a test that has failed. In milliseconds.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
#: What a browser says by itself: of an answer that is no 200, of a lost socket, of a test that looks at a picture.
_TOLD_ANYWAY = ("Failed to load resource", "WebSocket connection to", "Canvas2D: Multiple readback")


@contextlib.asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.fail(f"none of {', '.join(BROWSERS)} is installed, and this must be tested: apt-get install chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


class ConsolePage:
    """One page. ``problems`` are the errors of its scripts, what its policy blocked, and requests to other hosts."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.problems: list[str] = []
        self.addresses: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("request", lambda request: self._asked(request.url))
        page.on("websocket", lambda socket: self._asked(socket.url))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not text.startswith(_TOLD_ANYWAY):
            self.problems.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        self.addresses.append(url)
        if urlsplit(url).netloc != urlsplit(self.address).netloc:
            self.problems.append(f"a request to another host: {url}")

    async def sign_in(self, participant: str, token: str | None = None, *, is_kept: bool = False) -> None:
        """Fill in the form, and send it. What comes of it is for the test to see."""
        await self.page.goto(self.address)
        await self.page.get_by_label("Participant").fill(participant)
        await self.page.get_by_label("Token").fill(token_of(participant) if token is None else token)
        if is_kept:
            await self.page.get_by_label("Keep me signed in").check()
        await self.page.get_by_role("button", name="Sign in").click()

    async def enter(self, participant: str, view: str = "Timeline", **options: Any) -> ConsolePage:
        """Sign in, and open a view."""
        await self.sign_in(participant, **options)
        await self.heading("Timeline").wait_for()
        if view != "Timeline":
            await self.go_to(view)
        return self

    async def go_to(self, view: str) -> None:
        await self.page.get_by_role("navigation").get_by_role("link", name=view).click()
        await self.heading(view).wait_for()

    def heading(self, text: str) -> Locator:
        return self.page.get_by_role("heading", name=text, exact=True, level=1)

    def event(self, text: str) -> Locator:
        """A line of the list of events."""
        return self.page.locator(".event", has_text=text)

    async def open_stream(self, title: str) -> None:
        await self.go_to("Streams")
        await self.page.locator(".card", has_text=title).click()
        await self.page.get_by_role("heading", name=title, level=2).wait_for()

    async def choose(self, participant: str, *, reason: str = "") -> None:
        """Whom the buttons below the writers are about."""
        await self.page.locator("[name=who]").select_option(participant)
        await self.page.locator("[name=reason]").fill(reason)

    def button(self, name: str) -> Locator:
        return self.page.locator(f'[data-name="{name}"]')


@contextlib.asynccontextmanager
async def console_page(browser: Browser, gateway: GatewayProcess, **options: Any) -> AsyncIterator[ConsolePage]:
    """A page of its own, whose scripts must not have had any trouble."""
    address = options.pop("address", gateway.url)
    context = await browser.new_context(**options)
    try:
        console = ConsolePage(await context.new_page(), address)
        yield console
        assert console.problems == [], console.problems
        assert not any("token" in each.lower() for each in console.addresses), "a token in an address"
    finally:
        await context.close()
