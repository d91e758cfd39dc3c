"""Takes a picture of every view of the console, light and dark, narrow and wide: ``make screenshots``.

The demo plays meanwhile, so that there is something to see.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

from mewstream.demo.gateway import DemoGateway
from mewstream.demo.play import perform
from mewstream.protocol.errors import MewError

WATCHER = "you"
SIZES = {"narrow": (400, 820), "wide": (1600, 1000)}
SCHEMES = ("light", "dark")
VIEWS = ("timeline", "streams", "people", "inbox", "gateway")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: After this many seconds, enough has happened to be worth a picture.
SECONDS = 25


async def play(gateway: DemoGateway) -> None:
    while True:
        with contextlib.suppress(MewError):
            await perform(gateway, lambda who, what: None, pace=1.5)


async def sign_in(browser: Browser, gateway: DemoGateway, scheme: str, size: tuple[int, int]) -> Page:
    width, height = size
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = await context.new_page()
    await page.goto(gateway.console)
    await page.get_by_label("Participant").fill(WATCHER)
    return page


async def take(page: Page, gateway: DemoGateway, out: Path, name: str, picture: Path | None) -> None:
    """``page`` is at the form to sign in."""
    await page.screenshot(path=out / f"sign-in-{name}.png")
    await page.get_by_label("Token").fill(gateway.tokens[WATCHER])
    await page.get_by_role("button", name="Sign in").click()
    await page.locator("#timeline-title").wait_for()
    await asyncio.sleep(SECONDS)
    if picture is not None:
        await page.set_viewport_size({"width": 1280, "height": 720})
        await page.get_by_role("button", name="Show less time").click()
        await asyncio.sleep(1)
        await page.screenshot(path=picture)
        width, height = SIZES["wide"]
        await page.set_viewport_size({"width": width, "height": height})
    for view in VIEWS:
        await page.goto(f"{gateway.console}#/{view}")
        await asyncio.sleep(6 if view == "gateway" else 1)
        await page.screenshot(path=out / f"{view}-{name}.png")
    await page.goto(f"{gateway.console}#/streams")
    await page.locator(".card").first.click()
    await asyncio.sleep(2)
    await page.screenshot(path=out / f"stream-{name}.png")
    await page.context.close()


async def main(out: Path, picture: Path | None) -> None:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise SystemExit(f"none of {', '.join(BROWSERS)} is installed")
    with tempfile.TemporaryDirectory() as directory, DemoGateway(Path(directory), guests=[WATCHER]) as gateway:
        playing = asyncio.create_task(play(gateway))
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
            # One after the other: the same participant has one connection.
            for scheme in SCHEMES:
                for size, pixels in SIZES.items():
                    page = await sign_in(browser, gateway, scheme, pixels)
                    is_best = (scheme, size) == ("light", "wide")
                    await take(page, gateway, out, f"{size}-{scheme}", picture if is_best else None)
            await browser.close()
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--picture", type=Path, help="where the picture of the README goes")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(given.out, given.picture))
