"""Hand-offs that one watches, and those that one makes by a click, with their effect on real participants."""

from __future__ import annotations

import pytest
from console_page import ConsolePage
from participants import event_of, joined
from playwright.async_api import expect

import mewstream
from support import GatewayProcess

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_watching_a_hand_off(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server, joined(gateway, "alice") as alice:
        hero = await server.open_stream(name="watched", description="the hero")
        await console.enter("you")
        await hero.grant("alice", reason="your turn")
        await (await alice.stream(hero.id)).send({"x": 1})
        await hero.revoke("alice", reason="the turn is over")
        await expect(console.event("server let alice write to watched (your turn)")).to_have_count(1)
        await expect(console.event("took the right to write to watched from alice (the turn is over)")).to_have_count(1)
        await console.open_stream("watched")
        writers = console.page.locator(".writers li")
        await expect(writers).to_have_count(1)
        await hero.grant("alice")
        await expect(writers).to_have_count(2)
        await hero.transfer("alice", reason="yours")
        await expect(writers).to_have_count(1)
        await expect(console.page.locator(".facts")).to_contain_text("alice")
        await alice.streams[hero.id].close(reason="the end")
        await expect(console.page.locator(".detail")).to_contain_text("by alice the end")


async def test_granting_and_revoking_by_click(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server, joined(gateway, "bob") as bob:
        hero = await server.open_stream(name="clicked")
        await console.enter("you")
        await console.open_stream("clicked")
        bobs = await bob.stream(hero.id)
        with bob.events() as news:
            await console.choose("bob", reason="asked nicely")
            await console.button("grant").click()
            granted = await event_of(news, mewstream.WriteGranted)
            assert (granted.participant, granted.by, granted.reason) == ("bob", "you", "asked nicely")
            await bobs.send({"x": 1})
            await bobs.flush()
            await expect(console.page.locator(".frame")).to_contain_text('{"x":1}')
            await console.button("revoke-bob").click()
            await event_of(news, mewstream.WriteRevoked)
        with pytest.raises(mewstream.UnauthorizedStreamWrite):
            await bobs.send({"x": 2})


async def test_transferring_and_closing_by_click(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server, joined(gateway, "bob") as bob:
        hero = await server.open_stream(name="moved")
        await console.enter("you")
        await console.open_stream("moved")
        with bob.events() as news:
            await console.choose("bob")
            await console.button("transfer").click()
            assert (await event_of(news, mewstream.OwnershipTransferred)).new_owner == "bob"
            await console.button("close").click()
            await console.button("close-now").click()
            assert (await event_of(news, mewstream.StreamClosed)).stream == hero.id


async def test_who_may_not_is_told_why(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server:
        await server.open_stream(name="guarded")
        await console.enter("viewer")
        await console.open_stream("guarded")
        grant = console.button("grant")
        await expect(grant).to_have_attribute("aria-disabled", "true")
        await grant.click(force=True)  # a real person can click it too
        await expect(console.page.get_by_role("status")).to_contain_text("only server, who owns it")


async def test_answering_who_asks_and_asking_oneself(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server, joined(gateway, "alice") as alice, joined(gateway, "bob") as bob:
        hero = await server.open_stream(name="wanted")
        await console.enter("you")
        await console.open_stream("wanted")
        await (await bob.stream(hero.id)).ask(reason="let me try")
        wish = console.page.locator(".wish")
        await expect(wish).to_contain_text("let me try")
        with bob.events() as news:
            await console.button("deny-bob").click()
            assert (await event_of(news, mewstream.WriteDenied)).by == "you"
            await expect(wish).to_have_count(0)
            await (await alice.stream(hero.id)).ask()
            await console.button("grant-alice").click()
            await event_of(news, mewstream.WriteGranted)
            # Alice's place goes to bob, at one point of the log.
            await console.choose("bob", reason="next one")
            await console.button("hand-over").click()
            assert (await event_of(news, mewstream.WriteRevoked)).participant == "alice"
            assert (await event_of(news, mewstream.WriteGranted)).participant == "bob"
        with server.events() as news:
            await console.button("ask").click()
            assert (await event_of(news, mewstream.WriteRequested)).participant == "you"
        await expect(wish).to_contain_text("you")


async def test_the_tree_of_delegations(console: ConsolePage, gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as server, joined(gateway, "viewer") as viewer, joined(gateway, "bob"):
        hero = await server.open_stream(name="delegated")
        await hero.grant("viewer", delegate=1)
        await (await viewer.stream(hero.id)).grant("bob")
        await console.enter("you")
        await console.open_stream("delegated")
        writers = console.page.locator(".writers li")
        await expect(writers).to_have_count(3)
        await expect(writers.nth(1)).to_contain_text("may pass it on")
        await expect(writers.nth(2)).to_contain_text("↳bob")
        await console.button("revoke-viewer").click()
        await expect(writers).to_have_count(1)
