"""What the end-to-end scenarios of the reference do, done here with processes and workspaces of our own.

Each class is named after what its scenario is about. The gateway is started in another directory than the workspace.
Who has an ``output_log`` takes part by HTTP and reads that file; agents are plain v0.4 clients (``agent.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from workspace import Workspace, wait_until

TOOLS = {"kind": "mcp/request", "payload": {"method": "tools/*"}}


def without_socket(id: str, *capabilities: Any) -> dict[str, Any]:
    """A participant of a script: present from the start, and what it is told is in a file."""
    return {
        "tokens": [f"{id}-token"],
        "capabilities": [each if isinstance(each, dict) else {"kind": each} for each in capabilities],
        "output_log": f"./logs/{id}-output.log",
        "auto_connect": True,
    }


def agent(id: str, *capabilities: Any) -> dict[str, Any]:
    """With the keys of the reference's process manager, which mean nothing to a gateway."""
    return {
        "type": "local",
        "auto_start": True,
        "command": "node",
        "args": ["./agent.js", "--id", id],
        "tokens": [f"{id}-token"],
        "capabilities": [each if isinstance(each, dict) else {"kind": each} for each in capabilities],
    }


@pytest.fixture(scope="class")
def workspace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """With the ``participants`` of the class, of whom the ``agents`` are started, each in its role."""
    name = request.cls.__name__.lower()
    workspace = Workspace(tmp_path_factory.mktemp(name) / "workspace", name, request.cls.participants)
    try:
        for id, role in request.cls.agents.items():
            workspace.start(role, id)
        yield workspace
    finally:
        workspace.close()


class TestBasic:
    """Scenario 1: messages by HTTP, an agent that echoes, and the logs that tell of both."""

    participants: ClassVar[dict[str, Any]] = {
        "client": without_socket("client", "chat", "system/*"),
        "echo": agent("echo", "chat"),
    }
    agents: ClassVar[dict[str, str]] = {"echo": "echo"}

    def test_paths_start_at_the_workspace(self, workspace: Workspace) -> None:
        assert workspace.output("client").exists()
        assert not list((workspace.directory / "elsewhere").glob("**/*.jsonl"))
        assert json.loads(workspace.output("client").read_text().splitlines()[0])["kind"] == "system/welcome"

    def test_an_echo(self, workspace: Workspace) -> None:
        id = workspace.accepted("client", "chat", {"text": "Hello, echo!"}, id="msg-123")
        assert id == "msg-123"
        workspace.received(id, "client")
        workspace.delivered(id, "echo")
        workspace.allowed("client", "chat", id)
        workspace.sees("client", '"text":"Echo: Hello, echo!"')
        workspace.sees("client", '"correlation_id":["msg-123"]')

    def test_several_and_a_large_one(self, workspace: Workspace) -> None:
        for number in range(5):
            workspace.accepted("client", "chat", {"text": f"Rapid {number}"})
            workspace.sees("client", f'"text":"Echo: Rapid {number}"')
        workspace.accepted("client", "chat", {"text": "A" * 10_000})
        workspace.sees("client", '"text":"Echo: ' + "A" * 10_000 + '"')

    def test_the_keys_of_the_logs_and_their_order(self, workspace: Workspace) -> None:
        id = workspace.accepted("client", "chat", {"text": "in order"})
        workspace.delivered(id, "client")
        entries = [json.loads(line) for line in workspace.history.read_text().splitlines()]
        keys = ["timestamp", "event", "id", "envelope", "participant", "space_id", "direction", "transport", "metadata"]
        assert all(list(entry) == keys for entry in entries)
        mine = [each for each in entries if each["id"] == id]
        assert [each["event"] for each in mine].count("received") == 1
        assert {each["participant"] for each in mine if each["event"] == "delivered"} == {"client", "echo"}
        workspace.allowed("client", "chat", id)
        order = ["timestamp", "event", "envelope_id", "participant", "space_id", "result", "required_capability"]
        order += ["matched_capability", "matched_source", "granted_capabilities", "metadata"]
        for line in workspace.decisions.read_text().splitlines():
            decision = json.loads(line)
            assert list(decision) == [key for key in order if key in decision]
            assert list(decision["metadata"])[:2] == ["source", "transport"]

    def test_no_secret_in_any_log(self, workspace: Workspace) -> None:
        workspace.post("client", {"kind": "chat", "payload": {"token": "client-token"}})
        for file in workspace.directory.glob("**/*.*l*"):
            if file.name != "space.yaml":
                assert "client-token" not in file.read_text(), file


class TestMcp:
    """Scenarios 2 and 10: tools of another, by request and response."""

    participants: ClassVar[dict[str, Any]] = {
        "client": without_socket("client", "chat", "mcp/*", "system/*"),
        "calculator": agent("calculator", "mcp/response"),
    }
    agents: ClassVar[dict[str, str]] = {"calculator": "calculator"}

    def test_tools(self, workspace: Workspace) -> None:
        listed = workspace.accepted("client", "mcp/request", {"method": "tools/list"}, to=["calculator"])
        workspace.delivered(listed, "calculator")
        assert (
            "tools"
            in workspace.told("client", "mcp/response", lambda each: listed in each["correlation_id"])["payload"][
                "result"
            ]
        )
        for name, result in (("add", 8), ("multiply", 15), ("subtract", None)):
            call = {"method": "tools/call", "params": {"name": name, "arguments": {"a": 5, "b": 3}}}
            id = workspace.accepted("client", "mcp/request", call, to=["calculator"])
            workspace.allowed("client", "mcp/request", id)
            answer = workspace.told("client", "mcp/response", lambda each, id=id: id in each["correlation_id"])
            if result is None:
                assert answer["payload"]["error"]["message"] == "Tool not found"
            else:
                assert answer["payload"]["result"] == result


class TestProposals:
    """Scenario 3: somebody proposes, another fulfils."""

    participants: ClassVar[dict[str, Any]] = {
        "proposer": without_socket("proposer", "chat", "mcp/proposal", "mcp/withdraw"),
        "stranger": without_socket("stranger", "chat", "mcp/*"),
        "fulfiller": agent("fulfiller", "chat", "mcp/*"),
        "calculator": agent("calculator", "mcp/response"),
    }
    agents: ClassVar[dict[str, str]] = {"calculator": "calculator", "fulfiller": "fulfiller"}

    @pytest.mark.parametrize(
        ("name", "text"), [("add", "15"), ("multiply", "50"), ("not-a-tool", "Error: Tool not found")]
    )
    def test_fulfilled(self, workspace: Workspace, name: str, text: str) -> None:
        workspace.clear("proposer")
        call = {"method": "tools/call", "params": {"name": name, "arguments": {"a": 10, "b": 5}}}
        id = workspace.accepted("proposer", "mcp/proposal", call, id=f"proposal-{name}")
        workspace.delivered(id, "fulfiller")
        workspace.allowed("proposer", "mcp/proposal")
        workspace.noted("fulfiller", event=f"Fulfilling proposal {id}")
        fulfilled = workspace.told("proposer", "mcp/request")
        assert fulfilled["correlation_id"] == [id]
        workspace.told("proposer", "chat", lambda each: each["payload"]["text"] == text)

    def test_withdrawn_by_its_proposer_alone(self, workspace: Workspace) -> None:
        id = workspace.accepted("proposer", "mcp/proposal", {"method": "unknown"})
        status, text = workspace.post("stranger", {"kind": "mcp/withdraw", "payload": {}, "correlation_id": [id]})
        assert (status, json.loads(text)["payload"]["error"]) == (403, "unauthorized")
        workspace.accepted("proposer", "mcp/withdraw", {"reason": "timeout"}, correlation_id=[id])
        workspace.told("stranger", "mcp/withdraw", lambda each: each["from"] == "proposer")


class TestCapabilities:
    """Scenario 4: what only the gateway sends, and revokes by pattern."""

    participants: ClassVar[dict[str, Any]] = {
        "coordinator": without_socket("coordinator", "capability/grant", "capability/revoke", "system/*"),
        "limited": without_socket("limited", "chat", TOOLS),
        "calculator": agent("calculator", "mcp/response", "system/*"),
    }
    agents: ClassVar[dict[str, str]] = {"calculator": "calculator"}

    def test_register_is_reserved(self, workspace: Workspace) -> None:
        status, text = workspace.post(
            "limited", {"id": "sysreg-1", "kind": "system/register", "payload": {"capabilities": []}}
        )
        assert status == 400
        assert "system/register is reserved for the gateway" in text
        error = workspace.told("limited", "system/error")
        assert "system/register is reserved for the gateway" in error["payload"]["message"]
        assert error["correlation_id"] == ["sysreg-1"]

    def test_within_ones_capabilities(self, workspace: Workspace) -> None:
        call = {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 5, "b": 3}}}
        id = workspace.accepted("limited", "mcp/request", call, to=["calculator"])
        workspace.delivered(id, "calculator")
        workspace.allowed("limited", "mcp/request", id)
        workspace.sees("limited", '"result":8')
        status, _ = workspace.post("limited", {"kind": "mcp/request", "payload": {"method": "resources/read"}})
        assert status == 403

    def test_a_revoke_of_what_was_never_granted(self, workspace: Workspace) -> None:
        workspace.clear("limited")
        payload = {"recipient": "limited", "capabilities": [TOOLS]}
        id = workspace.accepted("coordinator", "capability/revoke", payload)
        workspace.delivered(id, "limited")
        workspace.allowed("coordinator", "capability/revoke", id)
        workspace.told("limited", "capability/revoke", lambda each: each["id"] == id)
        workspace.told("limited", "system/welcome")


class TestReasoning:
    """Scenario 5: a context that messages share."""

    participants: ClassVar[dict[str, Any]] = {
        "researcher": without_socket("researcher", "chat", "reasoning/*", "mcp/request")
    }
    agents: ClassVar[dict[str, str]] = {}

    def test_the_context_is_kept(self, workspace: Workspace) -> None:
        asked = workspace.accepted("researcher", "chat", {"text": "what does it cost?"})
        start = workspace.accepted("researcher", "reasoning/start", {"message": "let me see"}, correlation_id=[asked])
        for kind in ("reasoning/thought", "reasoning/thought", "reasoning/conclusion"):
            id = workspace.accepted("researcher", kind, {"message": "5 * 12"}, context=start)
            workspace.allowed("researcher", kind, id)
            workspace.sees("researcher", f'"context":"{start}"')
        assert workspace.told("researcher", "reasoning/conclusion")["context"] == start


class TestErrors:
    """Scenario 6: whatever is wrong is refused by a 4xx, and the gateway lives."""

    participants: ClassVar[dict[str, Any]] = {"client": without_socket("client", "chat")}
    agents: ClassVar[dict[str, str]] = {}

    @pytest.mark.parametrize(
        ("body", "statuses"),
        [
            ("This is not valid JSON", {400}),
            ('{"kind":"chat"', {400}),
            ("{}", {400}),
            ('{"payload":{"text":"no kind"}}', {400}),
            ('{"kind":"chat","payload":{}}', {400}),
            ('{"kind":"mcp/request","payload":{"method":"x"}}', {403}),
        ],
    )
    def test_refused(self, workspace: Workspace, body: str, statuses: set[int]) -> None:
        status, text = workspace.post("client", body)
        assert status in statuses
        assert json.loads(text)["kind"] == "system/error"
        workspace.accepted("client", "chat", {"text": "it lives"})

    def test_somebody_else(self, workspace: Workspace) -> None:
        chat = {"id": "ghost-msg", "kind": "chat", "payload": {"text": "hello"}}
        assert workspace.post("ghost", chat, token="client-token")[0] == 403
        assert workspace.post("client", chat, token="nobodys")[0] == 403

    def test_symbols_and_a_burst(self, workspace: Workspace) -> None:
        workspace.accepted("client", "chat", {"text": "Symbols: © ™ 漢字 😊"})
        workspace.sees("client", "Symbols: © ™ 漢字 😊")
        ids = [workspace.accepted("client", "chat", {"text": f"Message {number}"}) for number in range(20)]
        for id in ids:
            workspace.delivered(id, "client")


class TestGrant:
    """Scenario 8: a proposal, a grant, its acknowledgement by the recipient, and then the request itself."""

    participants: ClassVar[dict[str, Any]] = {
        "client": without_socket("client", "chat", TOOLS, "mcp/response", "capability/grant", "capability/revoke"),
        "worker": agent("worker", "mcp/proposal", "mcp/response", "chat", "capability/grant-ack"),
        "calculator": agent("calculator", "mcp/response", "chat"),
    }
    agents: ClassVar[dict[str, str]] = {"calculator": "calculator", "worker": "proposer"}

    def test_the_whole_way(self, workspace: Workspace) -> None:
        workspace.accepted("client", "chat", {"text": "propose"}, to=["worker"])
        proposal = workspace.told("client", "mcp/proposal")
        workspace.accepted(
            "client", "mcp/request", proposal["payload"], to=proposal["to"], correlation_id=[proposal["id"]]
        )
        workspace.told("client", "mcp/response", lambda each: each["payload"]["result"] == 42)
        pattern = {
            "kind": "mcp/request",
            "to": ["calculator"],
            "payload": {"method": "tools/call", "params": {"name": "multiply"}},
        }
        payload = {"recipient": "worker", "capabilities": [pattern], "reason": "it knows how"}
        grant = workspace.accepted("client", "capability/grant", payload, to=["worker"], id="grant-1")
        workspace.delivered(grant, "worker")
        workspace.allowed("client", "capability/grant", grant)
        workspace.noted("worker", event="direct", result=42)
        granted = [
            pattern for each in ["worker"] for pattern in workspace.noted(each, event="connected")["capabilities"]
        ]
        assert {"kind": "mcp/proposal"} in granted
        ack = workspace.told("client", "capability/grant-ack")
        assert (ack["from"], ack["correlation_id"]) == ("worker", [grant])
        direct = workspace.told("client", "mcp/request", lambda each: each["from"] == "worker")
        workspace.allowed("worker", "mcp/request", direct["id"])

    def test_revoked_by_a_wider_pattern(self, workspace: Workspace) -> None:
        """After it, the request is refused again."""
        workspace.accepted("client", "capability/revoke", {"recipient": "worker", "capabilities": [TOOLS]})
        workspace.accepted("client", "capability/grant", {"recipient": "worker", "capabilities": [TOOLS]})
        workspace.accepted("client", "capability/revoke", {"recipient": "worker", "capabilities": [TOOLS]})
        call = {"kind": "mcp/request", "payload": {"method": "tools/list"}}
        assert workspace.post("worker", call)[0] == 403


class TestControls:
    """Scenarios 11 and 13: acknowledgements, cancellations, and an agent that is paused and shut down."""

    participants: ClassVar[dict[str, Any]] = {
        "client": without_socket("client", "participant/*", "chat", "system/*"),
        "control": agent("control", "chat", "chat/*", "reasoning/*", "participant/*"),
    }
    agents: ClassVar[dict[str, str]] = {"control": "controlled"}

    def status(self, workspace: Workspace, status: str) -> dict[str, Any]:
        return workspace.told("client", "participant/status", lambda each: each["payload"]["status"] == status)

    def test_chat_and_reasoning(self, workspace: Workspace) -> None:
        for text, kind in (("ack", "chat/acknowledge"), ("cancel", "chat/cancel"), ("reason", "reasoning/start")):
            id = workspace.accepted("client", "chat", {"text": text}, to=["control"])
            workspace.told("client", kind, lambda each, id=id: each["correlation_id"] == [id])
        start = workspace.told("client", "reasoning/start")
        for kind in ("reasoning/thought", "reasoning/cancel"):
            assert workspace.told("client", kind)["context"] == start["id"]

    def test_clear_restart_and_compact(self, workspace: Workspace) -> None:
        for kind, statuses in (
            ("clear", ["clear"]),
            ("restart", ["restart"]),
            ("compact", ["compacting", "compacted"]),
        ):
            id = workspace.accepted("client", f"participant/{kind}", {"reason": "test"}, to=["control"])
            for status in statuses:
                told = workspace.told(
                    "client", "participant/status", lambda each, s=status: each["payload"]["status"] == s
                )
                assert told["correlation_id"] == [id]
        workspace.told("client", "participant/compact-done")

    def test_pause_with_a_timeout(self, workspace: Workspace) -> None:
        workspace.clear("client")
        payload = {"reason": "test_pause", "timeout_seconds": 1}
        id = workspace.accepted("client", "participant/pause", payload, to=["control"])
        workspace.sees("client", '"status":"paused:test_pause"')
        resumed = workspace.told("client", "participant/resume")
        assert resumed["correlation_id"] == [id]
        workspace.sees("client", '"status":"active"')
        for sender in ("system:gateway", "control"):
            workspace.told("client", "participant/resume", lambda each, sender=sender: each["from"] == sender)
        again = workspace.accepted("client", "chat", {"text": "ack"}, to=["control"])
        workspace.told("client", "chat/acknowledge", lambda each: each["correlation_id"] == [again])

    def test_shutdown(self, workspace: Workspace) -> None:
        id = workspace.accepted("client", "participant/shutdown", {"reason": "test_shutdown"}, to=["control"])
        assert self.status(workspace, "shutting_down:test_shutdown")["correlation_id"] == [id]
        wait_until(lambda: workspace.has_ended("control"), "the agent ends")
        status, text = workspace.post("control", {"kind": "chat", "payload": {"text": "still here"}})
        assert (status, json.loads(text)["payload"]["error"]) == (400, "invalid_operation")
        workspace.start("controlled", "control")
        workspace.accepted("control", "chat", {"text": "here again"})


class TestStreams:
    """Scenarios 15, 16 and 18: late joiners see streams, owners grant, and targets alone receive."""

    participants: ClassVar[dict[str, Any]] = {
        "controller": without_socket("controller", "chat"),
        **{id: agent(id, "chat", "stream/*") for id in ("publisher", "aggregator", "observer", "latecomer")},
    }
    agents: ClassVar[dict[str, str]] = {"publisher": "streamer", "aggregator": "streamer", "observer": "streamer"}

    def command(self, workspace: Workspace, id: str, *words: str) -> None:
        workspace.accepted("controller", "chat", {"text": ":".join(("cmd", id, *words))})

    def report(self, workspace: Workspace, id: str) -> dict[str, Any]:
        workspace.clear("controller")
        self.command(workspace, id, "report")
        told = workspace.told("controller", "chat", lambda each: each["payload"]["text"] == f"response:{id}")
        payload: dict[str, Any] = told["payload"]
        return payload

    def opened(self, workspace: Workspace, by: str, *target: str) -> dict[str, Any]:
        workspace.clear("controller")
        self.command(workspace, by, "open", *target)
        payload: dict[str, Any] = workspace.told("controller", "stream/open")["payload"]
        return payload

    def test_targets_alone_receive(self, workspace: Workspace) -> None:
        stream = self.opened(workspace, "publisher", "aggregator")
        assert stream["target"] == ["aggregator"]
        for number in range(3):
            self.command(workspace, "publisher", "publish", stream["stream_id"], f"position-{number}")
        positions = [f"#{stream['stream_id']}#position-{number}" for number in range(3)]
        wait_until(lambda: self.report(workspace, "aggregator")["frames"] == positions, "the target has all frames")
        assert self.report(workspace, "observer")["frames"] == []
        broadcast = self.opened(workspace, "aggregator")
        assert "target" not in broadcast
        self.command(workspace, "aggregator", "publish", broadcast["stream_id"], "world")
        for id in ("publisher", "aggregator", "observer"):
            wait_until(
                lambda id=id: f"#{broadcast['stream_id']}#world" in self.report(workspace, id)["frames"],
                f"{id} receives",
            )

    def test_late_joiners_and_rights(self, workspace: Workspace) -> None:
        stream = self.opened(workspace, "publisher")
        workspace.start("streamer", "latecomer")
        [seen] = [
            each for each in self.report(workspace, "latecomer")["streams"] if each["stream_id"] == stream["stream_id"]
        ]
        assert (seen["owner"], seen["authorized_writers"]) == ("publisher", ["publisher"])
        assert seen["description"] == "positions"
        self.command(workspace, "latecomer", "grant", stream["stream_id"], "latecomer")
        self.command(workspace, "publisher", "grant", stream["stream_id"], "latecomer")
        granted = workspace.told("controller", "stream/write-granted")
        assert granted["payload"]["authorized_writers"] == ["publisher", "latecomer"]
        self.command(workspace, "latecomer", "publish", stream["stream_id"], "late")
        wait_until(
            lambda: f"#{stream['stream_id']}#late" in self.report(workspace, "observer")["frames"], "it may write now"
        )


class TestInvite:
    """Scenario 17: somebody new is let in, once, under a name that leads nowhere else."""

    participants: ClassVar[dict[str, Any]] = {
        "admin": without_socket("admin", "chat", "space/invite", "mcp/response", "system/*"),
        "observer": without_socket("observer", "chat", "mcp/response", "system/*"),
    }
    agents: ClassVar[dict[str, str]] = {}
    GIVEN: ClassVar[list[Any]] = [{"kind": "chat"}, {"kind": "mcp/proposal"}, {"kind": "mcp/response"}]

    def invite(self, workspace: Workspace, name: str, **fields: Any) -> tuple[int, str]:
        payload = {"participant_id": name, "initial_capabilities": self.GIVEN, "reason": "a test"}
        return workspace.post("admin", {"kind": "space/invite", "payload": payload, **fields})

    def test_the_whole_way(self, workspace: Workspace) -> None:
        status, text = self.invite(workspace, "new-agent", id="invite-1")
        assert status == 200
        assert '"status":"created"' in text
        token = json.loads(text)["token"]
        ack = workspace.told("admin", "space/invite-ack")
        assert ack["payload"]["token"] == token
        workspace.sees("observer", '"event":"invited"')
        assert '"token"' not in workspace.output("observer").read_text()
        assert "space/invite-ack" not in workspace.output("observer").read_text()
        for log in (workspace.history, workspace.decisions, workspace.gateway_log):
            assert token not in log.read_text()
        for kind, payload in (("chat", {"text": "hello"}), ("mcp/proposal", {"method": "tools/call"})):
            status, text = workspace.post("new-agent", {"kind": kind, "payload": payload}, token=token)
            assert (status, json.loads(text)["status"]) == (200, "accepted")
        refused = {"kind": "mcp/request", "payload": {"method": "x"}}
        assert workspace.post("new-agent", refused, token=token)[0] == 403

    @pytest.mark.parametrize("name", ["new-agent", "observer", "admin"])
    def test_somebody_who_is_known(self, workspace: Workspace, name: str) -> None:
        self.invite(workspace, "new-agent")
        status, text = self.invite(workspace, name)
        assert status == 409
        assert '"already_exists"' in text

    @pytest.mark.parametrize("name", ["../../../etc/passwd", "foo/bar", "foo\\bar", "a..b", "a\x00b", "a\nb"])
    def test_a_name_that_leads_elsewhere(self, workspace: Workspace, name: str) -> None:
        status, text = self.invite(workspace, name)
        assert status == 400
        assert "invalid characters" in text

    def test_nothing_in_it(self, workspace: Workspace) -> None:
        assert workspace.post("admin", {"kind": "space/invite"})[0] == 400

    def test_no_privilege_is_given_away(self, workspace: Workspace) -> None:
        payload = {"participant_id": "puppet", "initial_capabilities": [{"kind": "capability/grant"}]}
        assert workspace.post("admin", {"kind": "space/invite", "payload": payload})[0] == 403


def test_tokens_in_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the reference's tools leave them: ``.mew/tokens/<id>.token`` of the workspace, and ``MEW_TOKEN_<ID>``."""
    monkeypatch.setenv("MEW_TOKEN_BY_VARIABLE", "variable-secret")
    capabilities = [{"kind": "chat"}]
    participants = {
        "by-file": {"capabilities": capabilities},
        "by-variable": {"capabilities": capabilities},
    }
    workspace = Workspace(tmp_path / "workspace", "tokens", participants, token_files={"by-file": "file-secret"})
    try:
        for id, token in (("by-file", "file-secret"), ("by-variable", "variable-secret")):
            status, _ = workspace.post(id, {"kind": "chat", "payload": {"text": "hi"}}, token=token)
            assert status == 200
    finally:
        workspace.close()
