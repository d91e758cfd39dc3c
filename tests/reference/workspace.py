"""A workspace as the reference's tools know it: ``.mew/space.yaml``, logs below it, agents that are processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from forked import ForkedCommand

AGENT = Path(__file__).with_name("agent.py")
PATIENCE = 30.0

Message = dict[str, Any]


def wait_until(is_so: Callable[[], Any], what: str) -> Any:
    """As the scripts of the reference wait: they look again and again."""
    deadline = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.05)
    return found


class Workspace:
    """``directory`` holds ``.mew``; the gateway is started somewhere else."""

    def __init__(
        self,
        directory: Path,
        space: str,
        participants: dict[str, Any],
        *,
        token_files: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.space = space
        (directory / ".mew" / "tokens").mkdir(parents=True)
        (directory / "logs").mkdir()
        for id, token in (token_files or {}).items():
            (directory / ".mew" / "tokens" / f"{id}.token").write_text(f"{token}\n")
        self._tokens = {id: each["tokens"][0] for id, each in participants.items() if "tokens" in each}
        config = {
            "space": {"id": space, "name": space},
            "participants": participants,
            "defaults": {"capabilities": [{"kind": "chat"}]},
            "gateway_logging": {
                "enabled": True,
                "envelope_history": {"enabled": True},
                "capability_decisions": {"enabled": True},
            },
        }
        file = directory / ".mew" / "space.yaml"
        file.write_text(yaml.safe_dump(config))
        elsewhere = directory / "elsewhere"
        elsewhere.mkdir()
        self.gateway_log = elsewhere / "gateway.log"
        arguments = ["serve", "--config", str(file), "--port", "0"]
        self._gateway = ForkedCommand(arguments, elsewhere, self.gateway_log)
        line = self._gateway.stdout.readline()
        assert "listening on http" in line, self.gateway_log.read_text()
        self.port = int(line.rsplit(":", 1)[1])
        self._agents: dict[str, subprocess.Popen[bytes]] = {}

    def close(self) -> None:
        self._gateway.send_signal(15)
        self._gateway.wait(timeout=PATIENCE)
        self._gateway.stdout.close()
        for agent in self._agents.values():
            agent.wait(timeout=PATIENCE)
        assert "Traceback" not in self.gateway_log.read_text()

    # -- those who take part ------------------------------------------------------------------------

    def start(self, role: str, id: str) -> None:
        """An agent, and wait until it has joined."""
        options = {"gateway": f"ws://127.0.0.1:{self.port}", "space": self.space, "id": id}
        options |= {"token": self._tokens[id], "log": str(self.agent_log(id))}
        self.agent_log(id).write_text("")
        command = [sys.executable, str(AGENT), role, *(part for each in options.items() for part in _option(*each))]
        self._agents[id] = subprocess.Popen(command, cwd=self.directory)
        wait_until(lambda: "connected" in self.agent_log(id).read_text(), f"{id} joins")

    def agent_log(self, id: str) -> Path:
        return self.directory / "logs" / f"{id}.log"

    def noted(self, id: str, **fields: Any) -> Message:
        """An entry of an agent's log that has these fields."""
        return self._line(self.agent_log(id), lambda entry: fields.items() <= entry.items(), f"{id}: {fields}")

    def has_ended(self, id: str) -> bool:
        return self._agents[id].poll() is not None

    def post(self, participant: str, body: Message | str, *, token: str | None = None) -> tuple[int, str]:
        """The status and the text of the answer, as curl would show them."""
        data = body if isinstance(body, str) else json.dumps(body)
        request = urllib.request.Request(
            f"http://localhost:{self.port}/participants/{participant}/messages?space={self.space}",
            data=data.encode(),
            headers={
                "Authorization": f"Bearer {token or self._tokens[participant]}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def accepted(self, participant: str, kind: str, payload: Message, **fields: Any) -> str:
        """Post an envelope; its id."""
        status, text = self.post(participant, {"kind": kind, "payload": payload, **fields})
        assert (status, json.loads(text)["status"]) == (200, "accepted"), text
        return str(json.loads(text)["id"])

    # -- the logs -----------------------------------------------------------------------------------

    def output(self, participant: str) -> Path:
        return self.directory / "logs" / f"{participant}-output.log"

    def sees(self, participant: str, text: str) -> str:
        """A line of an output log that contains a text, found as ``grep -F`` finds it."""
        file = self.output(participant)
        return str(
            wait_until(
                lambda: next((line for line in file.read_text().splitlines() if text in line), None),
                f"{participant} sees {text}; it has seen {file.read_text()[-2000:]}",
            )
        )

    def told(self, participant: str, kind: str, is_so: Callable[[Message], Any] = lambda message: True) -> Message:
        file = self.output(participant)
        return self._line(file, lambda each: each.get("kind") == kind and is_so(each), f"{participant} is told {kind}")

    def clear(self, participant: str) -> None:
        """As ``: > log`` does it."""
        with self.output(participant).open("w"):
            pass

    @property
    def history(self) -> Path:
        return self.directory / ".mew" / "logs" / "envelope-history.jsonl"

    @property
    def decisions(self) -> Path:
        return self.directory / ".mew" / "logs" / "capability-decisions.jsonl"

    def received(self, id: str, participant: str) -> None:
        self._grep(self.history, rf'"event":"received".*"id":"{id}".*"participant":"{participant}"')

    def delivered(self, id: str, participant: str) -> None:
        self._grep(self.history, rf'"event":"delivered".*"id":"{id}".*"participant":"{participant}"')

    def allowed(self, participant: str, capability: str, id: str | None = None) -> None:
        self._grep(
            self.decisions,
            rf'"participant":"{participant}".*"result":"allowed".*"required_capability":"{re.escape(capability)}"',
        )
        if id is not None:
            self._line(
                self.decisions,
                lambda each: (
                    (each.get("envelope_id"), each["participant"], each["result"], each["required_capability"])
                    == (id, participant, "allowed", capability)
                ),
                f"{participant} is allowed {capability} for {id}",
            )

    def _grep(self, file: Path, pattern: str) -> None:
        wait_until(lambda: file.exists() and re.search(pattern, file.read_text()), f"{file.name} has {pattern}")

    def _line(self, file: Path, is_so: Callable[[Message], Any], what: str) -> Message:
        def find() -> Message | None:
            lines = file.read_text().splitlines() if file.exists() else []
            return next((each for each in map(json.loads, lines) if is_so(each)), None)

        found: Message = wait_until(find, what)
        return found


def _option(name: str, value: str) -> tuple[str, str]:
    return f"--{name}", value
