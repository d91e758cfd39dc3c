"""Commands that ask by HTTP: send, status, streams, grant, revoke, transfer, close, invite, kick."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from shell import Shell

from support import Client, GatewayProcess, active_stream, joined, running_gateway, space_config, token_of


async def run(shell: Shell, *arguments: str, **options: Any) -> Any:
    """Beside the clients of a test, which must go on answering."""
    return await asyncio.to_thread(lambda: shell.run(*arguments, **options))


async def opened(owner: Client, **request: Any) -> str:
    return await owner.open_stream(**request)


class TestSend:
    async def test_chat_is_sent_to_everyone(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "bob") as (bob,):
            done = await run(shell, "send", "--as", "alice", "hello", "there", "--to", "bob", "--to", "viewer")
            assert (done.out, done.err) == ("", "")
            got = await bob.receive("chat", text="hello there")
            assert got["from"] == "alice" and got["to"] == ["bob", "viewer"]

    async def test_text_from_stdin(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "bob") as (bob,):
            await run(shell, "send", "--as", "alice", input="two\nlines\n")
            await bob.receive("chat", text="two\nlines")

    async def test_any_kind(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "bob") as (bob,):
            payload = '{"method": "tools/list"}'
            done = await run(
                shell, "send", "-p", "alice", "--kind", "mcp/request", "--to", "bob", "--payload", payload, "--json"
            )
            got = await bob.receive("mcp/request", method="tools/list")
            assert done.json["status"] == "accepted" and done.json["id"] == got["id"]

    async def test_a_connected_participant_of_the_same_name_stays(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            stream = await opened(alice)
            await run(shell, "send", "--as", "alice", "it is me too")
            await run(shell, "grant", "--as", "alice", stream, "bob")
            await run(shell, "streams", "--as", "alice")
            await run(shell, "close", "--as", "alice", stream)
            await alice.receive("chat", text="it is me too")
            await alice.receive("stream/close", stream_id=stream)
            await alice.settle()
            assert not [m for m in bob.got if isinstance(m, dict) and m["kind"] == "system/presence"]

    def test_what_is_refused(self, shell: Shell) -> None:
        arguments = ("send", "--as", "chatter", "--kind", "space/kick", "--payload", '{"participant_id": "bob"}')
        assert "capabilities" in shell.run(*arguments, code=1).err

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--kind", "mcp/request"],
            ["hi", "--payload", "{}"],
            ["--payload", "[]"],
            ["--payload", "{"],
            [],
        ],
    )
    def test_wrong_usage(self, shell: Shell, arguments: list[str]) -> None:
        shell.run("send", "--as", "alice", *arguments, code=2)


class TestClosing:
    async def test_mine_and_idle(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server", "bob") as (server, bob):
            mine = [await opened(server), await opened(server)]
            others = await opened(bob)
            arguments = ("close", "--as", "server", "--mine")
            assert (await run(shell, *arguments, "--idle", "1h")).out == ""
            done = await run(shell, *arguments, "--reason", "over")
            assert done.out == "".join(f"{id}: closed\n" for id in mine)
            assert (await bob.receive("stream/close", stream_id=mine[1]))["payload"]["reason"] == "over"
            done = await run(shell, "close", "--as", "bob", "--idle", "0", "--json")
            assert done.json["status"] == "accepted"
            await bob.receive("stream/close", stream_id=others)

    async def test_what_is_refused_does_not_keep_the_others(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server", "chatter") as (server, chatter):
            stream = await opened(server)
            done = await run(shell, "close", "--as", "chatter", "--idle", "0", code=1)
            assert f"{stream}: " in done.err
            await run(shell, "close", "--as", "server", "--mine")
            await chatter.receive("stream/close", stream_id=stream)

    @pytest.mark.parametrize("arguments", [[], ["stream-1", "--mine"], ["stream-1", "--idle", "1h"], ["--idle", "x"]])
    def test_wrong_usage(self, shell: Shell, arguments: list[str]) -> None:
        shell.run("close", "--as", "server", *arguments, code=2)


class TestRights:
    async def test_grant_with_conditions_and_revoke(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server", "bob") as (server, bob):
            stream = await opened(server, desired_id="movement")
            done = await run(
                shell,
                *("grant", "--as", "server", "movement", "bob", "--reason", "your turn"),
                *("--expires-in", "1h", "--max-frames", "7"),
            )
            assert done.out == f"{stream}: granted, writers: server, bob\n"
            granted = (await bob.receive("stream/write-granted"))["payload"]
            assert granted["reason"] == "your turn" and granted["conditions"]["max_frames"] == 7
            expires = datetime.fromisoformat(granted["conditions"]["expires_at"])
            assert abs((expires - datetime.now(UTC)).total_seconds() - 3600) < 600

            done = await run(shell, "revoke", "--as", "server", stream, "bob", "--json")
            assert done.json["status"] == "revoked" and done.json["authorized_writers"] == ["server"]
            await bob.receive("stream/write-revoked", participant_id="bob")
            await run(shell, "close", "--as", "server", stream)

    async def test_the_right_to_read(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server", "bob", "viewer") as (server, _, viewer):
            stream = await opened(server, target=["bob"])
            assert (
                "readers: bob, viewer" in (await run(shell, "grant", "--as", "server", stream, "viewer", "--read")).out
            )
            await viewer.receive("stream/read-granted")
            done = await run(shell, "revoke", "--as", "server", stream, "bob", "--read")
            assert done.out == f"{stream}: revoked, readers: viewer\n"
            await run(shell, "grant", "--as", "server", stream, "bob", "--read", "--max-frames", "1", code=2)
            await run(shell, "close", "--as", "server", stream)

    async def test_transfer_and_close(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server", "bob") as (server, bob):
            stream = await opened(server)
            done = await run(shell, "transfer", "--as", "server", stream, "bob", "--retain-write", "--reason", "yours")
            assert done.out == f"{stream}: transferred, owner: bob, writers: bob, server\n"
            moved = (await bob.receive("stream/ownership-transferred"))["payload"]
            assert moved["reason"] == "yours" and moved["new_owner"] == "bob"
            done = await run(shell, "close", "--as", "bob", stream, "--reason", "over")
            assert done.out == f"{stream}: closed\n"
            await server.receive("stream/close", reason="over")

    async def test_an_owner_without_a_socket_does_not_lose_the_right_in_silence(
        self, gateway: GatewayProcess, shell: Shell
    ) -> None:
        stream = (await run(shell, "send", "--as", "server", "--kind", "stream/request", "--payload", "{}")).out.strip()
        async with joined(gateway, "bob"):
            done = await run(shell, "transfer", "--as", "server", stream, "bob", "--retain-write", code=1)
            assert "server" in done.err and "the right to write" in done.err and "not connected" in done.err

    def test_the_answer_is_looked_at(self, tmp_path: Path) -> None:
        """Whatever a gateway makes of it: where the right was not kept, that is told."""
        answer = {"status": "transferred", "stream_id": "s-1", "previous_owner": "server", "new_owner": "bob"}
        for writers, code in ((["bob", "server"], 0), (["bob"], 1)):
            with http_server({**answer, "authorized_writers": writers}) as url:
                shell = Shell(tmp_path)
                arguments = ("transfer", "--as", "server", "s-1", "bob", "--retain-write", "--url", url)
                done = shell.run(*arguments, code=code, MEW_TOKEN="x")
                assert done.out == f"s-1: transferred, owner: bob, writers: {', '.join(writers)}\n"
                told = "server has not kept the right to write: it is not connected. bob can grant it"
                assert (told in done.err) is (code == 1)
                assert shell.run(*arguments[:-3], "--url", url, MEW_TOKEN="x").err == "", "nothing was to be kept"

    def test_what_is_refused(self, shell: Shell) -> None:
        assert "stream-999" in shell.run("grant", "--as", "server", "stream-999", "bob", code=1).err
        shell.run("close", "--as", "server", "nosuch", code=1)


def test_a_missing_capability_is_named_with_the_way_to_it(shell: Shell) -> None:
    """What an announcement takes has another name than the message."""
    done = shell.run("join", "--as", "chatter", input="/announce x\n", code=1)
    expected = "your capabilities do not allow stream/manage, which stream/announce takes: it can be granted by"
    assert expected in done.out and "space.yaml" in done.out
    done = shell.run("invite", "--as", "chatter", "friend", code=1)
    assert "your capabilities do not allow space/invite: it can be granted by capability/grant" in done.err


class TestPeople:
    async def test_an_invited_one_can_come(self, gateway: GatewayProcess, shell: Shell, tmp_path: Path) -> None:
        patterns = ["--capability", "chat", "-c", '{"kind": "mcp/request", "payload": {"method": "tools/*"}}']
        done = await run(shell, "invite", "--as", "server", "guest", *patterns)
        (token,) = done.out.split()
        assert token not in done.err
        assert (await run(shell, "status", "--as", "guest", "--json", MEW_TOKEN=token)).json["participants"]
        status, listed = await gateway.http("GET", "/participants", "server")
        assert status == 200
        (guest,) = [each for each in listed["participants"] if each["id"] == "guest"]
        assert guest["capabilities"] == [
            {"kind": "chat"},
            {"kind": "mcp/request", "payload": {"method": "tools/*"}},
        ]

    def test_a_name_that_needs_quotes_in_an_address(self, shell: Shell) -> None:
        name = "a b %2F?c=ü"
        token = shell.run("invite", "--as", "server", name, "--capability", "chat").out.strip()
        shell.run("send", "--as", name, "hello", MEW_TOKEN=token)

    def test_the_token_in_a_file(self, shell: Shell, tmp_path: Path) -> None:
        done = shell.run("invite", "--as", "server", "filed", "--output", ".mew/tokens/filed.token")
        file = tmp_path / ".mew/tokens/filed.token"
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text().strip() not in done.out + done.err
        shell.run("send", "--as", "filed", "I am in")

    def test_no_invitation_without_a_place_for_its_token(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "taken").write_text("something else")
        shell.run("invite", "--as", "server", "lost", "--output", "taken", code=2)
        assert (tmp_path / "taken").read_text() == "something else"
        found = shell.run("status", "--as", "server", "--json").json
        assert "lost" not in [each["id"] for each in found["participants"]]

    def test_a_refused_invitation_leaves_no_file(self, shell: Shell, tmp_path: Path) -> None:
        shell.run("invite", "--as", "chatter", "friend", "--output", "friend.token", code=1)
        shell.run("invite", "--as", "server", "alice", "--output", "friend.token", code=1)
        assert not (tmp_path / "friend.token").exists()

    async def test_kick(self, gateway: GatewayProcess, shell: Shell) -> None:
        bob = await gateway.join("bob")
        done = await run(shell, "kick", "--as", "server", "bob", "--reason", "flooding")
        assert done.out == "bob is removed\n"
        assert await bob.closed() == 4501
        await run(shell, "kick", "--as", "server", "bob", code=1)

    async def test_ban_and_unban(self, gateway: GatewayProcess, shell: Shell) -> None:
        bob = await gateway.join("bob")
        done = await run(shell, "ban", "--as", "server", "bob", "--for", "1h", "--reason", "flooding")
        assert done.out == "bob is banned\n"
        assert await bob.closed() == 4507
        refused = await Client.connect(f"{gateway.ws_url}/ws")
        await refused.send_raw(json.dumps({"type": "join", "participantId": "bob", "token": token_of("bob")}))
        error = await refused.error("unauthorized")
        assert error["payload"]["banned_until"]
        assert await refused.closed() == 4507
        status, answer = await gateway.http("GET", "/participants", "bob")
        assert (status, answer["payload"]["error"]) == (403, "unauthorized")
        done = await run(shell, "unban", "--as", "server", "bob")
        assert done.out == "bob may join again\n"
        async with joined(gateway, "bob"):
            pass
        await run(shell, "unban", "--as", "server", "bob", code=1)
        await run(shell, "ban", "--as", "server", "bob", code=2)

    async def test_uninvite(self, gateway: GatewayProcess, shell: Shell) -> None:
        invited = await run(shell, "invite", "--as", "server", "passer-by", "--expires", "1d", "--json")
        assert invited.json["expires_at"]
        guest = await Client.connect(f"{gateway.ws_url}/ws")
        await guest.send_raw(json.dumps({"type": "join", "token": invited.json["token"]}))
        await guest.receive("system/welcome")
        done = await run(shell, "uninvite", "--as", "server", "passer-by")
        assert done.out == "passer-by is not invited any more\n"
        assert await guest.closed() == 4501
        again = await Client.connect(f"{gateway.ws_url}/ws")
        await again.send_raw(json.dumps({"type": "join", "token": invited.json["token"]}))
        assert await again.closed() == 4500
        await run(shell, "uninvite", "--as", "server", "passer-by", code=1)


class TestLooking:
    async def test_streams_are_those_of_a_welcome(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server") as (server,):
            hostile = "\x1b[31mred\nnew line"
            stream = await opened(server, desired_id="shown", description=hostile)
            async with joined(gateway, "viewer") as (viewer,):
                listed = (await run(shell, "streams", "--as", "alice", "--json")).json
                assert listed == viewer.welcome["payload"]["active_streams"]
                assert active_stream(viewer.welcome, stream)["description"] == hostile
            table = (await run(shell, "streams", "--as", "alice")).out
            assert "\x1b" not in table, "no colours in a pipe, and none of a peer's"
            (line,) = [line for line in table.splitlines() if "shown" in line]
            assert line.split()[:5] == [stream, "shown", "server", "server", "everyone"]
            await run(shell, "close", "--as", "server", "shown")

    def test_more_of_them_than_a_page_holds(self, tmp_path: Path) -> None:
        names = [f"guest-{number}" for number in range(1_100)]
        with running_gateway(space_config("alice", *names)) as gateway:
            shell = Shell(tmp_path, gateway, "alice")
            found = shell.run("status", "--as", "alice", "--json").json
            assert {each["id"] for each in found["participants"]} == {"alice", *names}

    async def test_status(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "bob"):
            alone = (await run(shell, "status")).out
            assert "ok" in alone and "Participants" not in alone
            full = (await run(shell, "status", "--as", "viewer")).out
            assert [line.split()[1] for line in full.splitlines() if line.startswith("  bob ")] == ["yes"]
            found = (await run(shell, "status", "--as", "viewer", "--json")).json
            assert found["health"]["status"] == "ok" and {"participants", "streams"} < found.keys()

    def test_several_spaces(self, tmp_path: Path) -> None:
        with running_gateway(space_config("alice", space="north"), space_config("alice", space="south")) as gateway:
            shell = Shell(tmp_path, gateway, "alice")
            shell.run("streams", "--as", "alice", code=1)
            shell.run("streams", "--as", "alice", "--space", "west", code=1)
            shell.run("send", "--as", "alice", "-s", "north", "--kind", "stream/request", "--payload", "{}")
            assert len(shell.run("streams", "--as", "alice", "--space", "north", "--json").json) == 1
            assert shell.run("streams", "--as", "alice", "--json", MEW_SPACE="south").json == []


class TestNoConnection:
    def test_nobody_listens(self, shell: Shell) -> None:
        for arguments in (["status"], ["send", "--as", "alice", "hi"], ["tail", "--as", "alice"]):
            done = shell.run(*arguments, "--url", "ws://127.0.0.1:1", code=3)
            assert "cannot connect to ws://127.0.0.1:1" in done.err and done.err.count("\n") == 1

    def test_no_address(self, shell: Shell) -> None:
        assert "no address" in shell.run("status", "--url", "ftp://x", code=3).err

    def test_something_else_listens(self, shell: Shell, other_server: str) -> None:
        assert "no JSON" in shell.run("status", "--url", other_server, code=3).err


@pytest.fixture
def other_server() -> Iterator[str]:
    with http_server("<h1>It works!</h1>") as url:
        yield url


@contextlib.contextmanager
def http_server(answer: object) -> Iterator[str]:
    """One that answers everything with a text, or with JSON."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class TestTokens:
    """From where a command takes the token of a participant."""

    def test_the_first_source_that_has_one(self, gateway: GatewayProcess, tmp_path: Path) -> None:
        shell = Shell(tmp_path, gateway)
        good = token_of("alice")
        say = ("send", "--as", "alice", "hi")
        assert "there is no token of 'alice'" in shell.run(*say, code=2).err

        space_file = tmp_path / "space.yaml"
        space_file.write_text(json.dumps({"participants": {"alice": {"tokens": [good]}, "x": {}}}))
        shell.run(*say)
        elsewhere = tmp_path / "other.yaml"
        space_file.rename(elsewhere)
        shell.run(*say, MEW_SPACE_FILE=str(elsewhere))

        file = tmp_path / ".mew" / "tokens" / "alice.token"
        file.parent.mkdir(parents=True)
        file.write_text("wrong")
        shell.run(*say, code=1, MEW_SPACE_FILE=str(elsewhere))
        file.write_text(f"\ufeff{good}\r\n")
        shell.run(*say)

        shell.run(*say, code=1, MEW_TOKEN="wrong")
        shell.run(*say, MEW_TOKEN="wrong", MEW_TOKEN_ALICE=good)
        file.write_text("wrong")
        shell.run(*say, MEW_TOKEN=good)

        # Also in the workspace of a space file that is elsewhere, and of one in .mew.
        file.unlink()
        other = tmp_path / "other" / ".mew"
        (other / "tokens").mkdir(parents=True)
        (other / "space.yaml").write_text("{}")
        (other / "tokens" / "alice.token").write_text(good)
        shell.run(*say, MEW_SPACE_FILE=str(other / "space.yaml"))
        (tmp_path / ".mew" / "space.yaml").write_text(json.dumps({"participants": {"alice": {"tokens": [good]}}}))
        shell.run(*say)

        (tmp_path / "given").write_text(good)
        shell.run(*say, "--token-file", "given", MEW_TOKEN_ALICE="wrong")
        shell.run(*say, "--token-file", "-", input=good + "\n", MEW_TOKEN_ALICE="wrong")
        # Asks twice, and reads stdin once.
        shell.run("status", "--as", "alice", "--token-file", "-", input=good)

    @pytest.mark.parametrize("content", ["", "two words", "ümlaut", "a\nb"])
    def test_what_is_no_token_is_not_shown(self, shell: Shell, tmp_path: Path, content: str) -> None:
        (tmp_path / "given").write_text(content)
        done = shell.run("send", "--as", "alice", "hi", "--token-file", "given", code=2)
        assert done.err.startswith("mewstream: given: expected a token") and (not content or content not in done.err)
        shell.run("send", "--as", "alice", "hi", "--token-file", "nosuch", code=2)

    def test_a_wrong_token_is_refused_and_not_shown(self, shell: Shell) -> None:
        for arguments in (["send", "hi"], ["tail"], ["publish"], ["streams"]):
            done = shell.run(*arguments, "--as", "alice", code=1, MEW_TOKEN_ALICE="secret-and-wrong")
            assert "secret" not in done.err + done.out

    def test_who_could_be_meant(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / ".mew" / "tokens").mkdir(parents=True)
        (tmp_path / ".mew" / "tokens" / "carol.token").write_text("x")
        assert "there are tokens of carol here" in shell.run("send", "hi", code=2).err
