from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from console_page import ConsolePage, console_page, running_browser
from playwright.async_api import Browser

from support import GatewayProcess, running_gateway, space_config

PEOPLE = ("server", "alice", "bob", "you", "viewer", "scout")
#: Everyone else may do everything.
MODEST = {
    "viewer": [{"kind": "chat"}],
    "scout": [{"kind": "chat"}, {"kind": "mcp/proposal"}, {"kind": "mcp/withdraw"}],
}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """One for a module; each test opens streams of its own."""
    with running_gateway(space_config(*PEOPLE, capabilities=MODEST)) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def console(browser: Browser, gateway: GatewayProcess) -> AsyncIterator[ConsolePage]:
    async with console_page(browser, gateway) as page:
        yield page
