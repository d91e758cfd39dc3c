"""The logs that tools of the reference gateway read, in the workspace of a space: one compact JSON object per line.

They are off by default. They contain neither frames nor messages that hold a token.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import msgspec

from mewstream.gateway.config import SpaceConfig
from mewstream.gateway.decision_log import decision_entries
from mewstream.io.log_lines import event
from mewstream.protocol.envelope import encode_json
from mewstream.protocol.records import EnvelopeAccepted, Frame, Record, Refused
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import rfc3339

log = logging.getLogger("mewstream.gateway")

HISTORY_FILE = Path(".mew/logs/envelope-history.jsonl")
DECISIONS_FILE = Path(".mew/logs/capability-decisions.jsonl")


class LineFile:
    """A file to which lines are appended at the end of each turn of the event loop. It is opened each time, so that
    other programs may rotate, truncate or remove it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self._failing = False

    def append(self, line: bytes) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_soon(self.flush)
        self._lines.append(line)

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "ab", opener=_private) as file:
                file.write(b"\n".join(lines) + b"\n")
        except OSError as error:
            if not self._failing:
                log.error(
                    "cannot write %s: %s; entries are lost until that is mended",
                    self._path,
                    error,
                    extra=event("envelope_history_unwritable"),
                )
            self._failing = True
        else:
            self._failing = False


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class ReferenceLogs:
    """The files of one gateway. Spaces with the same workspace share them."""

    def __init__(self) -> None:
        self._files: dict[Path, LineFile] = {}

    def for_space(self, config: SpaceConfig) -> SpaceLogs:
        return SpaceLogs(
            config.id,
            self._file(config.workspace / HISTORY_FILE) if config.envelope_history else None,
            self._file(config.workspace / DECISIONS_FILE) if config.capability_decisions else None,
        )

    def _file(self, path: Path) -> LineFile:
        return self._files.setdefault(path, LineFile(path))

    def close(self) -> None:
        for file in self._files.values():
            file.flush()


class SpaceLogs:
    """The logs of one space."""

    def __init__(self, space: str, envelopes: LineFile | None, decisions: LineFile | None) -> None:
        self.enabled = envelopes is not None or decisions is not None
        self._space = space
        self._envelopes = envelopes
        self._decisions = decisions

    def recorded(self, record: Record, transport: str, state: SpaceState) -> None:
        """Log a message that was accepted or refused. ``state`` is what it was judged by."""
        if isinstance(record, EnvelopeAccepted):
            self._entry("received", record.ts, record.id, record.data, record.sender, transport, {"seq": record.seq})
        elif isinstance(record, Refused) and record.kind != "frame":
            metadata = {"seq": record.seq, "reason": record.code, "error": record.code}
            metadata |= {"message": record.message, "kind": record.kind}
            if record.count > 1:
                metadata["count"] = record.count
            self._entry("rejected", record.ts, record.id, None, record.sender, transport, metadata)
        else:
            return
        if self._decisions is not None:
            for entry in decision_entries(state, record, transport):
                self._decisions.append(encode_json(entry))

    def delivered(self, participant: str, transport: str, envelope: bytes, record: Record | None, ts: int) -> None:
        """Log a message that was sent to a participant."""
        if isinstance(record, Frame):
            return
        id = record.id if isinstance(record, EnvelopeAccepted) else None
        self._entry("delivered", ts, id, envelope, participant, transport, {"seq": record.seq} if record else {})

    def _entry(
        self,
        event: str,
        ts: int,
        id: str | None,
        envelope: bytes | None,
        participant: str,
        transport: str,
        metadata: dict[str, Any],
    ) -> None:
        if self._envelopes is None:
            return
        if id is None and envelope is not None:
            id = msgspec.json.decode(envelope)["id"]
        entry = {
            "timestamp": rfc3339(ts),
            "event": event,
            "id": id,
            "envelope": msgspec.Raw(envelope) if envelope is not None else None,
            "participant": participant,
            "space_id": self._space,
            "direction": "outbound" if event == "delivered" else "inbound",
            "transport": transport,
            "metadata": metadata,
        }
        self._envelopes.append(encode_json(entry))
