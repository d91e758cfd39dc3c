"""The gateway of the demo: ``mewstream serve`` in a process of its own, with a space made for the occasion."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from mewstream.protocol.errors import MewError

SPACE = "arena"
#: Participant -> what it may do. Whoever is granted a stream may write to it, whatever is written here.
PEOPLE: dict[str, list[dict[str, Any]]] = {
    "character-server": [{"kind": "stream/*"}, {"kind": "space/*"}, {"kind": "mcp/*"}, {"kind": "chat"}],
    "alice": [{"kind": "chat"}, {"kind": "mcp/*"}],
    "bob": [{"kind": "chat"}, {"kind": "mcp/*"}],
    "scout-ai": [{"kind": "chat"}, {"kind": "reasoning/*"}, {"kind": "mcp/*"}, {"kind": "stream/*"}],
    "commentator": [{"kind": "chat"}],
    "old-sensor": [],
    "slow-screen": [],
    "mallory": [{"kind": "chat"}],
}
_SETTINGS = {
    "policies": {"reconnect_grace": 3, "owner_leave_grace": 0.5},
    # Small, so that one slow screen shows what happens to slow ones.
    "delivery": {"soft_queue_bytes": 65536, "queue_bytes": 262144, "writer_pause": 0.05},
}


class GatewayFailed(MewError):
    pass


class DemoGateway:
    """``with DemoGateway(directory) as gateway:`` its journal is in ``gateway.data``."""

    def __init__(self, directory: Path, *, guests: Collection[str] = ()) -> None:
        """``guests`` may join besides the players, and may do everything."""
        self._people = {**PEOPLE, **{guest: [{"kind": "*"}] for guest in guests}}
        self.data = directory / "data"
        self.log = directory / "gateway.log"
        self.tokens = {id: secrets.token_urlsafe(18) for id in self._people}
        self.port = 0
        self._config = directory / "space.yaml"
        self._process: subprocess.Popen[str] | None = None

    @property
    def console(self) -> str:
        """Where the console is."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def __enter__(self) -> DemoGateway:
        self._config.touch(mode=0o600)
        participants = {id: {"tokens": [self.tokens[id]], "capabilities": may} for id, may in self._people.items()}
        space = {"space": {"id": SPACE, "name": "The arena"}, "participants": participants, "mewstream": _SETTINGS}
        self._config.write_text(yaml.safe_dump(space, sort_keys=False), encoding="utf-8")
        command = [sys.executable, "-m", "mewstream.cli.main", "serve", "--port", "0"]
        command += ["--config", str(self._config), "--data", str(self.data)]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "listening on" not in line:
            self._process.wait()
            raise GatewayFailed(f"the gateway did not start, see {self.log}")
        self.port = int(line.rsplit(":", 1)[1])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """It drains: whoever is still here may come back later, and everything is on the disk."""
        assert self._process is not None and self._process.stdout is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process.stdout.close()
        if code != 0 and error is None:
            raise GatewayFailed(f"the gateway ended with exit code {code}, see {self.log}")
