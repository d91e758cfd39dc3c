"""Proposals, chat and tools, each with a real participant on the other side; invitations and pauses."""

from __future__ import annotations

import asyncio

import pytest
from console_page import ConsolePage
from participants import TIMEOUT, event_of, joined
from playwright.async_api import expect

import mewstream
from mewstream import Space
from support import GatewayProcess

pytestmark = pytest.mark.asyncio(loop_scope="session")


def serve_jump(server: Space) -> list[float]:
    """A tool, and what it was called with."""
    heights: list[float] = []

    async def jump(height: float) -> dict[str, float]:
        heights.append(height)
        return {"height": height}

    server.tool("jump", jump, description="Jumps.")
    return heights


async def test_approving_a_proposal(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server, joined(gateway, "scout") as scout:
        heights = serve_jump(server)
        await console.enter("you")
        proposal = await scout.propose("tools/call", {"name": "jump", "arguments": {"height": 3}}, to="server")
        await console.go_to("Inbox")
        await console.button("approve").click()
        async with asyncio.timeout(TIMEOUT):
            await proposal.result()
        assert heights == [3]
        await expect(console.page.locator(".proposal.settled")).to_contain_text("fulfilled")


async def test_rejecting_a_proposal(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server"), joined(gateway, "scout") as scout:
        await console.enter("you", "Inbox")
        proposal = await scout.propose("tools/call", {"name": "jump", "arguments": {"height": 3}}, to="server")
        await console.button("reject").click()
        with pytest.raises(mewstream.ProposalRejected):
            async with asyncio.timeout(TIMEOUT):
                await proposal.result()


async def test_always_allowing_a_tool(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server, joined(gateway, "scout") as scout:
        heights = serve_jump(server)
        await console.enter("you", "Inbox")
        with scout.events() as news:
            proposal = await scout.propose("tools/call", {"name": "jump", "arguments": {"height": 1}}, to="server")
            await console.button("always").click()
            changed = await event_of(news, mewstream.CapabilitiesChanged)
        granted = {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "jump"}}}
        assert granted in changed.capabilities
        async with asyncio.timeout(TIMEOUT):
            await proposal.result()
        await scout.call_tool("jump", {"height": 2}, to="server")
        assert heights == [1, 2]


async def test_chat_in_both_directions(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice") as alice:
        await console.enter("you", "Inbox")
        await alice.chat("hello there")
        await expect(console.page.locator(".message").last).to_contain_text("hello there")
        with alice.events() as news:
            await console.page.get_by_role("textbox", name="Message").fill("hello alice")
            await console.page.keyboard.press("Enter")
            said = await event_of(news, mewstream.Chat)
        assert (said.sender, said.text) == ("you", "hello alice")


async def test_calling_a_tool_by_its_form(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server:
        heights = serve_jump(server)
        await console.enter("you", "Inbox")
        await console.page.locator("[name=whose]").select_option("server")
        form = console.page.get_by_role("form", name="jump")
        await form.get_by_role("button", name="Call").click()
        await expect(console.page.get_by_role("status").filter(has_text="is needed")).to_have_count(1)
        await form.locator("[name=height]").fill("2.5")
        await form.get_by_role("button", name="Call").click()
        await expect(form.locator(".result")).to_contain_text("2.5")
        assert heights == [2.5]


async def test_inviting_somebody(console: ConsolePage, gateway: GatewayProcess) -> None:
    await console.enter("you", "People")
    await console.button("invite").click()
    await console.page.locator("[name=invitee]").fill("newcomer")
    await console.page.get_by_role("dialog").get_by_role("button", name="Invite", exact=True).click()
    token = await console.button("token").text_content()
    async with mewstream.connect(gateway.ws_url, space="demo", participant="newcomer", token=token) as newcomer:
        await newcomer.chat("here I am")
        person = console.page.locator(".person", has_text="newcomer")
        await expect(person.get_by_text("here", exact=True)).to_have_count(1)


async def test_pausing_and_kicking_somebody(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "bob") as bob:
        await console.enter("you", "People")
        person = console.page.locator(".person", has_text="bob")
        await console.button("pause-bob").click()
        await expect(person).to_contain_text("paused")
        await console.button("resume-bob").click()
        await expect(console.button("pause-bob")).to_have_count(1)
        await console.button("kick-bob").click()
        async with asyncio.timeout(TIMEOUT):
            await bob.wait_closed()
        await expect(person).to_contain_text("not here")


async def test_the_figures_are_for_those_who_may_see_them(console: ConsolePage, gateway: GatewayProcess) -> None:
    await console.enter("viewer", "Gateway")
    await expect(console.page.get_by_text("Not for everyone")).to_have_count(1)
    await console.enter("you", "Gateway")
    await expect(console.page.get_by_role("region", name="Spaces")).to_contain_text("demo")
    await expect(console.page.locator(".chart").first).to_contain_text("Frames in, a second")
