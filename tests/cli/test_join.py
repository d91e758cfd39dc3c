"""``mewstream join`` in real pseudo-terminals, against a real gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from person import JOIN, Person
from plain_gateway import plain_gateway

import mewstream
from mewstream.cli.terminal.arguments import InvalidInput, last_word, quoted, values
from mewstream.cli.terminal.commands import COMMANDS, parse_line
from support import TIMEOUT, GatewayProcess, running_gateway, space_config, token_of

EVERYONE = ("ann", "bob", "agent", "server", "two words")


@pytest.fixture
def gateway() -> Iterator[GatewayProcess]:
    config = space_config(*EVERYONE)
    config["participants"]["two words"]["tokens"] = [token_of("two-words")]
    with running_gateway(config, options=("--data", "data")) as running:
        yield running


@pytest.fixture
def sit(gateway: GatewayProcess, tmp_path: Path) -> Iterator[Any]:
    """Sit somebody down at a terminal."""
    with contextlib.ExitStack() as stack:

        def sit_down(name: str, *options: str) -> Person:
            person = Person(gateway, name, tmp_path / name, *options)
            stack.callback(person.close)
            person.see(f"joined as {name}")
            return person

        yield sit_down


def connect(gateway: GatewayProcess, participant: str) -> mewstream.Connecting:
    return mewstream.connect(gateway.ws_url, participant=participant, token=token_of(participant))


def script(gateway: GatewayProcess, participant: str, lines: str | bytes, **options: Any) -> Any:
    return subprocess.run(
        [sys.executable, *JOIN, "--url", gateway.ws_url, "--as", participant],
        input=lines.encode() if isinstance(lines, str) else lines,
        capture_output=True,
        timeout=60,
        env={**os.environ, "MEW_TOKEN": token_of(participant)},
        **options,
    )


class TestTalking:
    def test_two_people_see_each_other_and_what_they_say(self, sit: Any) -> None:
        ann = sit("ann")
        bob = sit("bob")
        ann.see("+ bob joined")
        ann.enter("hello bob")
        ann.see("ann: hello bob")
        bob.see("ann: hello bob")
        bob.enter("//help is what I type")
        ann.see("bob: /help is what I type")
        bob.enter("/who")
        bob.see("bob (you) *")
        bob.see("ann *")
        bob.enter("/quit")
        assert bob.left() == 0
        ann.see("- bob left")

    def test_history_comes_back_with_the_arrow_and_is_private(self, sit: Any, tmp_path: Path) -> None:
        first = sit("ann")
        first.enter("said before")
        first.see("ann: said before")
        first.type("\x04")
        assert first.left() == 0
        (file,) = (tmp_path / "ann").rglob("history")
        assert file.stat().st_mode & 0o777 == 0o600
        second = sit("ann")
        # The history is read beside the input line: an arrow that is quicker finds nothing yet.
        second.press_until("\x1b[A", "said before")
        second.enter("")
        second.see("ann: said before")

    def test_a_history_that_cannot_be_written_is_said_and_no_obstacle(self, sit: Any, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        ann = sit("ann", "--history", str(tmp_path / "file" / "history"))
        assert "what you type is not kept for later" in ann.shown
        ann.enter("all the same")
        ann.see("ann: all the same")


class TestStreams:
    def test_a_stream_is_granted_and_handed_over_by_command(self, sit: Any) -> None:
        ann = sit("ann")
        bob = sit("bob")
        ann.see("bob joined")
        ann.enter("/open where the pieces are")
        bob.see("ann opened stream-1: where the pieces are")
        bob.enter("/write stream-1 too early")
        bob.see("may not write to stream-1")
        ann.enter("/grant stream-1 bob his turn")
        bob.see("bob may write to stream-1 by ann (his turn)")
        bob.enter("/watch stream-1")
        ann.enter("/watch stream-1")
        bob.enter("/write stream-1 e2 e4  # with blanks")
        bob.see("stream-1 bob | e2 e4  # with blanks")
        ann.see("stream-1 bob | e2 e4  # with blanks")
        ann.enter("/revoke stream-1 bob")
        bob.see("bob may not write to stream-1 by ann")
        bob.enter("/ask stream-1 one more move")
        ann.see("bob asks to write to stream-1 (one more move)")
        ann.enter("/stream stream-1")
        ann.see("asking       bob (one more move)")
        ann.enter("/deny stream-1 bob too late")
        bob.see("bob does not get to write to stream-1 by ann (too late)")
        ann.enter("/hand-over stream-1 bob")
        bob.see("bob may write to stream-1 by ann")
        ann.enter("/transfer stream-1 bob take over")
        bob.see("stream-1 now belongs to bob, before to ann by ann (take over)")
        bob.enter("/stream stream-1")
        assert bob.see("owner        bob")
        bob.see("writers      bob")
        bob.see("readers      everyone")
        bob.see("description  where the pieces are")
        ann.enter("/write stream-1 too late")
        ann.see("may not write to stream-1")
        bob.enter("/close stream-1 game over")
        ann.see("stream-1 closed by bob (game over)")
        ann.enter("/streams")
        ann.see("no stream is open")

    def test_announce_start_write_and_complete(self, sit: Any) -> None:
        ann = sit("ann")
        ann.enter("/announce movement how they move")
        ann.see("ann announced stream-1 (movement): how they move (not started: /start movement makes it live)")
        ann.enter("/write movement early")
        ann.see("announced and not started")
        ann.enter("/start movement")
        ann.see("stream-1 is live")
        ann.enter("/watch movement")
        ann.enter('/write movement {"x": 1}')
        ann.see('stream-1 ann #1 | {"x":1}')
        ann.enter("/write movement just words")
        ann.see('stream-1 ann #2 | "just words"')
        ann.enter("/streams")
        ann.see("stream-1 (movement) live, owner ann, writers ann, watched: how they move")
        ann.enter("/unwatch movement")
        ann.enter("/unwatch movement")
        ann.see("movement is not watched: watched are none")
        ann.enter("/complete movement")
        ann.see("stream-1 completed by ann")

    async def test_a_flood_is_summed_up_and_binary_is_shown_as_such(self, sit: Any, gateway: GatewayProcess) -> None:
        ann = sit("ann")
        ann.enter("/watch flood")
        await ann.sees("flood is not open: it is shown when somebody opens it")
        async with connect(gateway, "server") as space:
            stream = await space.announce(name="flood")
            await stream.start()
            await stream.send(b"\x00\x1b[2J")
            await ann.sees("stream-1 server | (5 bytes) 00 1b 5b 32 4a")
            for number in range(5000):
                await stream.send(f"frame {number}", numbered=False)
            await stream.flush()
            await ann.sees("frame 4999")
            assert " more] " in ann.shown
            assert ann.shown.count("| frame ") < 5000
            ann.enter("still here")
            await ann.sees("ann: still here")


class TestPeople:
    def test_kick_and_invite(self, sit: Any, gateway: GatewayProcess) -> None:
        ann = sit("ann")
        bob = sit("bob")
        ann.see("bob joined")
        ann.enter("/kick bob enough")
        ann.see("ann kicked bob (enough)")
        assert bob.left() == 3
        assert "kicked" in bob.shown
        ann.enter("/invite carl")
        ann.see("carl is invited. The token, which is shown only here:")
        ann.see("\n")
        token = ann.see("\n").strip()
        done = subprocess.run(
            [sys.executable, *JOIN, "--url", gateway.ws_url, "--as", "carl"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "MEW_TOKEN": token},
            timeout=TIMEOUT * 3,
        )
        assert done.returncode == 0, done
        ann.see("carl joined")

    async def test_tools_and_calls(self, sit: Any, gateway: GatewayProcess) -> None:
        ann = sit("ann")
        async with connect(gateway, "server") as space:
            await ann.sees("server joined")
            schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
            space.tool("add", lambda a, b: a + b, schema, description="Adds two numbers.")
            ann.enter("/tools server")
            await ann.sees("add(a, b)  Adds two numbers.")
            ann.type("/call server a\t")
            ann.type('{"a": 2, "b": 3}\r')
            await ann.sees("result of server: 5")
            ann.enter("/call server add nonsense")
            await ann.sees("the arguments are no JSON")
            ann.enter("/call server add [1]")
            await ann.sees("a JSON object")
            ann.enter("/call server add {}")
            await ann.sees("the arguments of add are wrong")
            ann.enter("/call server subtract")
            await ann.sees("unknown tool: 'subtract'")
            ann.enter("/tools ann")
            await ann.sees("ann serves no tools")

    async def test_a_proposal_is_approved_and_one_rejected(self, sit: Any, gateway: GatewayProcess) -> None:
        ann = sit("ann")
        async with connect(gateway, "server") as server, connect(gateway, "agent") as agent:
            server.tool("move", lambda to: f"moved to {to}")
            call = {"name": "move", "arguments": {"to": "e4"}}
            first = await agent.propose("tools/call", call, to="server")
            await ann.sees("proposal 1 by agent to server: tools/call")
            second = await agent.propose("tools/call", call)
            await ann.sees("proposal 2 by agent: tools/call")
            third = await agent.propose("tools/list", to="server")
            await ann.sees("(/approve 3 or /reject 3)")
            ann.enter("/proposals")
            await ann.sees("proposal 3 by agent")
            ann.enter("/approve 1")
            await ann.sees("result of server: moved to e4")
            assert (await first.result(timeout=TIMEOUT))["content"][0]["text"] == "moved to e4"
            ann.enter("/approve 2")
            await ann.sees("does not say who shall do it: /approve 2 WHO")
            ann.enter("/reject 2 not now")
            await ann.sees("ann rejected proposal 2 (not now)")
            with pytest.raises(mewstream.ProposalRejected, match="not now"):
                await second.result(timeout=TIMEOUT)
            await third.withdraw(reason="changed my mind")
            await ann.sees("agent withdrew proposal 3 (changed my mind)")
            ann.enter("/approve 1")
            await ann.sees("there is no open proposal 1: open are none")

    async def test_who_is_paused_and_shut_down(self, sit: Any, gateway: GatewayProcess) -> None:
        ann = sit("ann")
        async with connect(gateway, "server") as server, connect(gateway, "agent"):
            await server.send("participant/pause", {"timeout_seconds": 0.2, "reason": "busy"}, to="agent")
            await ann.sees("server pauses agent for 0.2 seconds (busy)")
            await ann.sees("the pause of agent is over")
            await server.send("participant/pause", {}, to=["agent", "ann"])
            await ann.sees("server pauses agent, ann")
            await server.send("participant/resume", {}, to=["agent", "ann"])
            await ann.sees("server resumes agent, ann")
            await server.send("participant/shutdown", {"reason": "enough"}, to="agent")
            await ann.sees("server shuts down agent (enough)")

    async def test_a_proposal_is_dropped_by_its_proposer_alone(self, tmp_path: Path) -> None:
        """At a gateway that believes everyone, as the reference does."""
        async with plain_gateway() as plain:
            ann = await asyncio.to_thread(Person, plain, "ann", tmp_path)
            try:
                await ann.sees("joined as ann")
                async with (
                    mewstream.connect(plain.url, participant="agent", token="t") as agent,
                    mewstream.connect(plain.url, participant="mallory", token="t") as mallory,
                ):
                    proposal = await agent.propose("tools/list", {"of": "all"}, to="server")
                    await ann.sees("proposal 1 by agent")
                    await mallory.send("mcp/withdraw", {"reason": "not mine"}, correlation_id=proposal.id)
                    await ann.sees("mallory cannot withdraw proposal 1 of another: it stays open")
                    # Nor does somebody fulfil it who asks for something else.
                    other = {"method": "tools/list", "params": {"of": "none"}}
                    await mallory.send("mcp/request", other, to="mallory", correlation_id=proposal.id)
                    await ann.sees("mallory asks mallory")
                    ann.enter("/proposals")
                    await ann.sees("proposal 1 by agent")
                    await proposal.withdraw(reason="changed my mind")
                    await ann.sees("agent withdrew proposal 1 (changed my mind)")
                    ann.enter("/proposals")
                    await ann.sees("no proposal is open")
            finally:
                ann.close()

    async def test_ctrl_c_on_an_empty_line_stops_waiting(self, sit: Any, gateway: GatewayProcess) -> None:
        ann = sit("ann")
        async with connect(gateway, "server") as server:

            @server.tool
            async def never() -> None:
                await asyncio.Event().wait()

            await ann.sees("server joined")
            ann.enter("/call server never")
            await ann.sees("> /call server never")
            ann.enter("the input line does not wait")
            await ann.sees("ann: the input line does not wait")
            ann.type("\x03")
            await ann.sees("no longer waiting for '/call server never'")


class TestOnce:
    """Most operations are told by two messages, and shown by one line."""

    async def test_what_is_asked_and_answered(self, sit: Any, gateway: GatewayProcess) -> None:
        ann, bob = sit("ann"), sit("bob")
        async with connect(gateway, "server") as server:
            server.tool("walk", lambda steps: {"x": steps})
            await ann.sees("server joined")
            ann.enter('/call server walk {"steps": 3}')
            await ann.sees('result of server: {"x":3}')
            await bob.sees('ann asks server: tools/call {"name":"walk","arguments":{"steps":3}}')
            await bob.sees("server answers ann: ")
            # Another program under the same name is answered elsewhere: this terminal shows what it hears.
            request = {"kind": "mcp/request", "to": ["server"], "payload": {"method": "tools/list"}}
            assert (await gateway.post("ann", request))[0] == 200
            await ann.sees("ann asks server: tools/list")
            await ann.sees("server answers ann: ")
            assert "tools/call" not in ann.shown and ann.shown.count("server answers ann") == 1

    def test_who_is_kicked_has_left(self, sit: Any) -> None:
        ann, bob, agent = sit("ann"), sit("bob"), sit("agent")
        ann.see("agent joined")
        ann.enter("/kick bob too loud")
        agent.see("ann kicked bob (too loud)")
        assert bob.left() == 3
        agent.enter("who is left")
        agent.see("agent: who is left")
        assert "bob left" not in agent.shown
        again = sit("bob")
        agent.see("+ bob joined")
        again.enter("/quit")
        agent.see("- bob left")

    async def test_what_we_are_granted(self, sit: Any, gateway: GatewayProcess) -> None:
        ann, bob = sit("ann"), sit("bob")
        async with connect(gateway, "server") as server:
            grant = await server.grant_capabilities("ann", [{"kind": "custom/*"}], reason="try it")
            for person in (ann, bob):
                await person.sees("server lets ann: custom/* (try it)")
            await server.revoke_capabilities("ann", grant_id=grant)
            for person in (ann, bob):
                await person.sees(f"server takes from ann: what was granted as {grant}")
            ann.enter("that was all")
            await ann.sees("ann: that was all")
            assert "grant-ack" not in ann.shown + bob.shown and "you may now do" not in ann.shown

    def test_everything_is_shown_to_those_who_want_it(self, sit: Any) -> None:
        ann = sit("ann", "--all")
        ann.enter("/open all of it")
        ann.see("ann stream/request {")
        ann.see("ann opened stream-1: all of it")


class TestCompletion:
    def test_commands_streams_aliases_and_people(self, sit: Any) -> None:
        ann = sit("ann")
        bob = sit("bob")
        two = sit("two words")
        ann.see("two words joined")
        ann.type("/ann\tmoves what moves\r")
        ann.see("/start moves makes it live")
        ann.type("/star\tmo\t\r")
        ann.see("stream-1 is live")
        ann.type("/grant str\tb\t\r")
        bob.see("bob may write to stream-1 by ann")
        ann.type("/grant mov\ttwo\t\r")
        two.see("two words may write to stream-1 by ann")
        ann.type("bo\thow are you\r")
        bob.see("ann: bob: how are you")

    def test_several_possibilities_are_listed(self, sit: Any) -> None:
        ann = sit("ann")
        ann.type("/st\t")
        ann.type("\t")
        ann.see("start   stream  streams")

    def test_help_is_made_from_the_table(self, sit: Any) -> None:
        ann = sit("ann")
        ann.enter("/help")
        for command in COMMANDS.values():
            assert command.help in ann.see(command.help)
            assert f"/{command.name}" in ann.shown
        ann.enter("/help grant")
        ann.see("/grant STREAM WHO [REASON]")


class TestConnection:
    def test_a_restart_of_the_gateway_is_shown_and_survived(self, sit: Any, gateway: GatewayProcess) -> None:
        ann = sit("ann")
        bob = sit("bob")
        ann.enter("/open kept")
        bob.see("ann opened stream-1: kept")
        bob.enter("/watch stream-1")
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGKILL)
        gateway.process.wait()
        gateway.process.stdout.close()
        ann.see("connection lost, trying again")
        bob.see("connection lost, trying again")
        bob.see("(no connection)")
        bob.enter("said while away")
        gateway.start()
        ann.see("connected again")
        bob.see("connected again")
        ann.see("bob: said while away")
        ann.enter("/write stream-1 after the restart")
        bob.see("stream-1 ann | after the restart")

    def test_a_wrong_token_is_one_line(self, gateway: GatewayProcess) -> None:
        done = subprocess.run(
            [sys.executable, *JOIN, "--url", gateway.ws_url, "--as", "ann"],
            input=b"",
            capture_output=True,
            env={**os.environ, "MEW_TOKEN": "not-the-token"},
            timeout=60,
        )
        assert done.returncode == 1
        assert done.stderr.decode().count("\n") == 1
        assert b"not-the-token" not in done.stdout + done.stderr


HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\x1b[6n\u202egnp\r\n> /kick bob\x08\x7f"


class TestHostileText:
    async def test_nothing_that_others_send_steers_the_terminal(self, sit: Any, gateway: GatewayProcess) -> None:
        ann = sit("ann")
        ann.enter("/watch stream-1")
        await ann.sees("shown when somebody opens it")
        before = len(ann.raw)
        async with connect(gateway, "agent") as space:
            await space.chat(f"chat {HOSTILE} end-of-chat")
            await ann.sees("end-of-chat")
            odd = {"odd": {HOSTILE: HOSTILE}}
            stream = await space.open_stream(description=f"stream {HOSTILE} end-of-description", fields=odd)
            await ann.sees("end-of-description")
            await stream.send(f"frame {HOSTILE} end-of-frame")
            await ann.sees("end-of-frame")
            await space.propose(f"method {HOSTILE}", {"x": f"{HOSTILE} end-of-proposal"})
            await ann.sees("end-of-proposal")
            await space.send("custom/kind", {HOSTILE: "end-of-custom"})
            await ann.sees("end-of-custom")
            await stream.grant("ann", reason=f"{HOSTILE} end-of-grant")
            await ann.sees("end-of-grant")
            ann.enter("/stream stream-1")
            await ann.sees("odd")
            ann.enter("/proposals")
            await ann.sees("end-of-proposal")
            space.tool(f"tool{HOSTILE}", lambda: HOSTILE, description=f"end-of-tool {HOSTILE}")
            ann.enter("/tools agent")
            await ann.sees("end-of-tool")
            await stream.close(reason=f"{HOSTILE} end-of-close")
            await ann.sees("end-of-close")
        written = ann.raw[before:]
        for sequence in ("\x1b]", "\x1b[2J", "\x1b[6n", "\x9b", "\x07", "\u202e", "\x7f"):
            assert sequence not in written, f"{sequence!r} came through"
        # Nobody can put a line on the screen that looks as if it were typed.
        assert not any(line.startswith("> /kick") for line in ann.shown.splitlines())
        assert "\\x1b[2J" in ann.shown

    def test_nor_where_there_is_no_terminal(self, sit: Any, gateway: GatewayProcess) -> None:
        done = script(gateway, "bob", "a \x1b[2J \x9b31m b\n".encode())
        assert done.returncode == 0
        assert b"\x1b" not in done.stdout
        assert "\x9b" not in done.stdout.decode()
        assert b"bob: a \\x1b[2J \\x9b31m b" in done.stdout


class TestLeaving:
    """Ctrl-C clears, Ctrl-D and SIGTERM leave, and the terminal is as it was."""

    def spawn(self, gateway: GatewayProcess, home: Path) -> tuple[subprocess.Popen[bytes], int, list[Any]]:
        """In a terminal that we hold too, so that its modes can be read afterwards."""
        ours, theirs = pty.openpty()
        before = termios.tcgetattr(theirs)
        process = subprocess.Popen(
            [sys.executable, *JOIN, "--url", gateway.ws_url, "--as", "ann"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={
                **os.environ,
                "MEW_TOKEN": token_of("ann"),
                "TERM": "xterm",
                "XDG_STATE_HOME": str(home),
            },
        )
        self.theirs = theirs
        self.unread = b""
        return process, ours, before

    def read_until(self, descriptor: int, text: bytes) -> None:
        while text not in self.unread:
            assert select.select([descriptor], [], [], TIMEOUT)[0], f"no {text!r} in {self.unread!r}"
            self.unread += os.read(descriptor, 4096)
        _, _, self.unread = self.unread.partition(text)

    @pytest.mark.parametrize(
        ("leave", "code"),
        [("\x04", 0), ("/quit\r", 0), (signal.SIGTERM, 143), (signal.SIGKILL, -9)],
        ids=["ctrl-d", "quit", "sigterm", "sigkill"],
    )
    def test_the_terminal_is_restored(self, gateway: GatewayProcess, tmp_path: Path, leave: Any, code: int) -> None:
        process, ours, before = self.spawn(gateway, tmp_path)
        try:
            self.read_until(ours, b"/help says")
            self.read_until(ours, b"ann")
            os.write(ours, b"half a line")
            self.read_until(ours, b"half a line")
            during = termios.tcgetattr(self.theirs)
            assert during[3] & termios.ICANON == 0
            if isinstance(leave, str):
                os.write(ours, b"\x03")
                self.read_until(ours, b"\x1b[K")
                os.write(ours, leave.encode())
            else:
                process.send_signal(leave)
            assert process.wait(timeout=TIMEOUT) == code
            os.set_blocking(ours, False)
            rest = self.unread
            with contextlib.suppress(BlockingIOError):
                while chunk := os.read(ours, 65536):
                    rest += chunk
            assert b"Traceback" not in rest
            if leave is not signal.SIGKILL:
                assert termios.tcgetattr(self.theirs) == before
                # Bracketed paste is off again, and the cursor is shown.
                assert rest.rfind(b"\x1b[?2004l") > rest.rfind(b"\x1b[?2004h")
        finally:
            process.kill()
            process.wait()
            os.close(ours)
            os.close(self.theirs)

    def test_ctrl_c_clears_the_line_and_leaves_nobody(self, sit: Any) -> None:
        ann = sit("ann")
        ann.type("never said\x03")
        ann.enter("said instead")
        ann.see("ann: said instead")
        assert "ann: never said" not in ann.shown
        os.kill(ann.child.pid, signal.SIGINT)
        # The signal clears what is typed before it arrives.
        ann.press_until("a signal is no key to leave either\r", "ann: a signal is no key to leave either")

    def test_others_are_told_when_it_is_terminated(self, sit: Any) -> None:
        ann = sit("ann")
        bob = sit("bob")
        ann.see("bob joined")
        bob.child.kill(signal.SIGTERM)
        ann.see("- bob left")
        assert bob.left() == 143

    def test_a_terminal_that_goes_away_takes_it_along(self, sit: Any) -> None:
        ann = sit("ann")
        bob = sit("bob")
        ann.see("bob joined")
        bob.close()
        ann.see("- bob left")


class TestScripts:
    """Without a terminal it works line by line."""

    def test_lines_are_carried_out_in_order(self, gateway: GatewayProcess) -> None:
        lines = "hello\n\n/open a log\n/watch stream-1\n/write stream-1 one\n/write stream-1 two\n/close stream-1\n/who"
        done = script(gateway, "ann", lines)
        assert done.returncode == 0, done
        shown = done.stdout.decode()
        expected = ["joined as ann", "ann: hello", "ann opened stream-1: a log", "| one", "| two", "ann (you)"]
        places = [shown.index(each) for each in expected]
        assert places == sorted(places)
        assert "stream-1 closed by ann" in shown
        assert "\x1b" not in shown
        assert done.stderr == b""

    def test_a_line_that_fails_is_told_and_the_next_is_carried_out(self, gateway: GatewayProcess) -> None:
        done = script(gateway, "ann", "/kick nobody-here\n/nonsense\n/write\nlast words\n")
        shown = done.stdout.decode()
        assert done.returncode == 1
        assert "nobody-here" in shown
        assert "/nonsense is no command" in shown
        assert "STREAM is missing: /write STREAM TEXT" in shown
        assert "ann: last words" in shown

    def test_quit_ends_it_before_the_end_of_the_input(self, gateway: GatewayProcess) -> None:
        done = script(gateway, "ann", "first\n/quit\nsecond\n")
        assert done.returncode == 0
        assert b"ann: first" in done.stdout
        assert b"second" not in done.stdout

    def test_files_and_devices_are_read_too(self, gateway: GatewayProcess, tmp_path: Path) -> None:
        (tmp_path / "lines").write_bytes(b"from a file \xff\n")
        command = [sys.executable, *JOIN, "--url", gateway.ws_url, "--as", "ann"]
        environment = {**os.environ, "MEW_TOKEN": token_of("ann")}
        with (tmp_path / "lines").open("rb") as lines:
            done = subprocess.run(command, stdin=lines, capture_output=True, env=environment, timeout=60)
        assert done.returncode == 0
        assert "ann: from a file \ufffd" in done.stdout.decode()
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=60)
        assert done.returncode == 0

    def test_a_reader_that_goes_away_is_no_traceback(self, gateway: GatewayProcess) -> None:
        command = [sys.executable, *JOIN, "--url", gateway.ws_url, "--as", "ann"]
        environment = {**os.environ, "MEW_TOKEN": token_of("ann")}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        ) as process:
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            assert b"joined as ann" in process.stdout.readline()
            process.stdout.close()
            process.stdin.write(b"into the void\n")
            process.stdin.flush()
            assert process.wait(timeout=TIMEOUT) == 0
            assert process.stderr.read() == b""


class TestWords:
    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("/grant s bob because of  this", ["s", "bob", "because of  this"]),
            ("/grant s bob", ["s", "bob", None]),
            ('/grant s "two words" why', ["s", "two words", "why"]),
            ("/write  s   a 'b' ", ["s", "a 'b'"]),
            ("plain text", ["plain text"]),
            ("//slash", ["/slash"]),
        ],
    )
    def test_lines_are_understood(self, line: str, expected: list[str | None]) -> None:
        assert parse_line(line).values == expected

    @pytest.mark.parametrize(
        ("line", "hint"),
        [
            ("/grant s", "WHO is missing: /grant STREAM WHO [REASON]"),
            ("/start a b", "'b' is too much: /start STREAM"),
            ("/start 'a", "not closed"),
            ("/", "is no command"),
            ("/ who", "is no command"),
        ],
    )
    def test_mistakes_say_what_was_expected(self, line: str, hint: str) -> None:
        with pytest.raises(InvalidInput) as mistake:
            parse_line(line)
        assert hint in str(mistake.value)

    @pytest.mark.parametrize("name", ["plain", "two words", 'a "quoted" one', "'", "tab\there"])
    def test_a_quoted_name_is_read_as_it_was(self, name: str) -> None:
        (argument, *_) = COMMANDS["start"].arguments
        assert values((argument,), quoted(name), "") == [name]
        assert last_word(f"{quoted(name)} ") == ([name], "")
