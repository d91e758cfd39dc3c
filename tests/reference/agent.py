"""Agents as the scenarios of the reference have them: plain v0.4 clients, each a process of its own.

python agent.py ROLE --gateway ws://127.0.0.1:8080 --space NAME --id NAME --token TOKEN --log FILE

What one sends has ``protocol``, ``id``, ``ts`` and ``from``; what it does is written to its log, a JSON object a line.
"""

from __future__ import annotations

import argparse
import itertools
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

Message = dict[str, Any]


class Agent:
    def __init__(self, options: argparse.Namespace) -> None:
        self.id: str = options.id
        self.space: str = options.space
        self._token: str = options.token
        self._log = Path(options.log)
        self._numbers = itertools.count(1)
        self.socket: ClientConnection = connect(options.gateway, ping_interval=None)
        self.waiting: dict[str, Callable[[Message], None]] = {}
        self.frames: list[str] = []
        self.streams: dict[str, Message] = {}

    def note(self, **entry: Any) -> None:
        with self._log.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def send(self, kind: str, payload: Message, **fields: Any) -> str:
        id = f"{self.id}-{next(self._numbers)}-{datetime.now(UTC).timestamp()}"
        head = {"protocol": "mew/v0.4", "id": id, "ts": datetime.now(UTC).isoformat(), "from": self.id}
        envelope = {**head, "kind": kind, "payload": payload, **fields}
        self.socket.send(json.dumps(envelope))
        self.note(sent=kind, id=id)
        return id

    def run(self) -> None:
        join = {"type": "join", "participantId": self.id, "space": self.space, "token": self._token}
        self.socket.send(json.dumps(join | {"capabilities": []}))
        try:
            for message in self.socket:
                self._received(message)
        except ConnectionClosed:
            pass
        self.note(event="disconnected")

    def _received(self, message: str | bytes) -> None:
        text = message if isinstance(message, str) else message.decode()
        if text.startswith("#"):
            self.frames.append(text)
            return
        envelope: Message = json.loads(text)
        if envelope["kind"] == "system/welcome":
            for stream in envelope["payload"].get("active_streams", []):
                self.streams[stream["stream_id"]] = stream
            self.note(event="connected", capabilities=envelope["payload"]["you"]["capabilities"])
        elif envelope["kind"] == "stream/open":
            self.streams[envelope["payload"]["stream_id"]] = envelope["payload"]
        if envelope["kind"] == "mcp/response":
            for id in envelope.get("correlation_id", []):
                if id in self.waiting:
                    self.waiting.pop(id)(envelope)
        to = envelope.get("to") or [self.id]
        if self.id in to and envelope["from"] != self.id:
            self.handle(envelope)

    def handle(self, message: Message) -> None:
        """A message for us, or for everyone."""

    def reply(self, to: Message, kind: str, payload: Message) -> str:
        return self.send(kind, payload, to=[to["from"]], correlation_id=[to["id"]])


class Echo(Agent):
    def handle(self, message: Message) -> None:
        if message["kind"] == "chat":
            self.reply(message, "chat", {"text": f"Echo: {message['payload']['text']}"})


class Calculator(Agent):
    def handle(self, message: Message) -> None:
        if message["kind"] != "mcp/request":
            return
        payload = message["payload"]
        if payload["method"] == "tools/list":
            self.reply(message, "mcp/response", {"result": {"tools": [{"name": "add"}, {"name": "multiply"}]}})
            return
        params = payload["params"]
        a, b = params["arguments"].get("a"), params["arguments"].get("b")
        known = {"add": lambda: a + b, "multiply": lambda: a * b}
        if params["name"] in known:
            self.reply(message, "mcp/response", {"result": known[params["name"]]()})
        else:
            self.reply(message, "mcp/response", {"error": {"code": -32601, "message": "Tool not found"}})


class Fulfiller(Agent):
    """Asks for what others propose, and tells them the result."""

    def handle(self, message: Message) -> None:
        if message["kind"] != "mcp/proposal":
            return
        self.note(event=f"Fulfilling proposal {message['id']}")
        request = self.send("mcp/request", message["payload"], to=["calculator"], correlation_id=[message["id"]])
        self.waiting[request] = lambda answer: self._answered(message, answer["payload"])

    def _answered(self, proposal: Message, payload: Message) -> None:
        text = str(payload["result"]) if "result" in payload else f"Error: {payload['error']['message']}"
        self.send("chat", {"text": text}, to=[proposal["from"]])


class Proposer(Agent):
    """Proposes what it may not do; when it is granted that, it acknowledges, and does it."""

    def handle(self, message: Message) -> None:
        call = {"method": "tools/call", "params": {"name": "multiply", "arguments": {"a": 6, "b": 7}}}
        if message["kind"] == "chat" and message["payload"]["text"] == "propose":
            self.send("mcp/proposal", call, to=["calculator"])
        elif message["kind"] == "capability/grant":
            self.reply(message, "capability/grant-ack", {"status": "accepted"})
            request = self.send("mcp/request", call, to=["calculator"])
            self.waiting[request] = lambda answer: self.note(event="direct", result=answer["payload"]["result"])
        elif message["kind"] == "system/error":
            self.note(event="refused", code=message["payload"]["error"])


class Controlled(Agent):
    """Does as it is told: acknowledges, cancels, pauses, and shuts down."""

    def handle(self, message: Message) -> None:
        kind, payload = message["kind"], message["payload"]
        if kind == "chat":
            self._chat(message, payload["text"])
        elif kind in ("participant/clear", "participant/restart", "participant/request-status"):
            self._status(message, kind.partition("/")[2])
        elif kind == "participant/compact":
            self._status(message, "compacting")
            self.reply(message, "participant/compact-done", {"status": "skipped"})
            self._status(message, "compacted")
        elif kind == "participant/pause":
            self._status(message, f"paused:{payload.get('reason')}")
            if seconds := payload.get("timeout_seconds"):
                threading.Timer(seconds, self._resume, [message]).start()
        elif kind == "participant/resume":
            self._status(message, "active")
        elif kind == "participant/shutdown":
            self._status(message, f"shutting_down:{payload.get('reason')}")
            threading.Timer(0.2, self.socket.close).start()

    def _resume(self, pause: Message) -> None:
        """It documents the change itself, to whoever asked for the pause."""
        self.reply(pause, "participant/resume", {"reason": "timeout"})
        self._status(pause, "active")

    def _status(self, message: Message, status: str) -> None:
        self.reply(message, "participant/status", {"status": status, "messages_in_context": 0})

    def _chat(self, message: Message, text: str) -> None:
        if text == "ack":
            self.reply(message, "chat/acknowledge", {"status": "received"})
        elif text == "cancel":
            self.reply(message, "chat/cancel", {"reason": "handled elsewhere"})
        elif text == "reason":
            context = self.reply(message, "reasoning/start", {"message": "thinking"})
            self.send("reasoning/thought", {"message": "still"}, context=context)
            self.send("reasoning/cancel", {"reason": "superseded"}, context=context)


class Streamer(Agent):
    """Opens streams, publishes, and reports what it has received, when it is told to by a chat ``cmd:ID:WORD:...``."""

    def handle(self, message: Message) -> None:
        if message["kind"] != "chat" or not message["payload"]["text"].startswith(f"cmd:{self.id}:"):
            return
        word, *rest = message["payload"]["text"].split(":")[2:]
        if word == "open":
            target = {"target": rest} if rest else {}
            self.send("stream/request", {"direction": "upload", "description": "positions", **target})
        elif word == "publish":
            self.socket.send(f"#{rest[0]}#{rest[1]}")
        elif word == "grant":
            self.send("stream/grant-write", {"stream_id": rest[0], "participant_id": rest[1]})
        elif word == "report":
            self.send(
                "chat", {"text": f"response:{self.id}", "frames": self.frames, "streams": list(self.streams.values())}
            )


ROLES: dict[str, type[Agent]] = {
    "echo": Echo,
    "calculator": Calculator,
    "fulfiller": Fulfiller,
    "proposer": Proposer,
    "controlled": Controlled,
    "streamer": Streamer,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=ROLES)
    for option in ("gateway", "space", "id", "token", "log"):
        parser.add_argument(f"--{option}", required=True)
    options = parser.parse_args()
    ROLES[options.role](options).run()


if __name__ == "__main__":
    main()
