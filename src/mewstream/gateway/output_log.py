"""A participant without a connection, whose messages are appended to a file, one per line."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from mewstream.gateway.fanout import Parcel
from mewstream.io.log_lines import event
from mewstream.protocol import frames
from mewstream.protocol.close_codes import CloseReason

log = logging.getLogger("mewstream.gateway")


class OutputLog:
    """A member whose messages go to a file, or nowhere if it has none. The file is opened for each batch, so that other
    programs may truncate, rotate or remove it at any time."""

    transport_name = "output_log"
    positions = False
    is_reconnect = False
    connection: int | None = None
    extensions: list[str] | None = None
    interest = None

    def __init__(self, participant: str, path: Path | None) -> None:
        self.participant = participant
        self.session = 0
        self.is_listening = path is not None
        self._path = path
        self._failing = False

    def push(self, data: bytes, parcels: Sequence[Parcel]) -> None:
        if self._path is not None:
            self._write(self._path, b"".join(_line(each) + b"\n" for parcel in parcels for each in parcel.each()))

    def _write(self, path: Path, lines: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # O_NONBLOCK, because it may be a pipe that nobody reads.
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
            try:
                written = os.write(file, lines)
            finally:
                os.close(file)
            if written < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            if not self._failing:
                log.error(
                    "the output_log of %s: cannot write %s: %s",
                    self.participant,
                    path,
                    error,
                    extra=event("output_log_unwritable", participant=self.participant),
                )
            self._failing = True
        else:
            self._failing = False

    def ask_for_positions(self) -> None:
        """Only a join message can ask, and a file sends none."""

    def close(self, reason: CloseReason, text: str | None = None) -> None:
        """There is nothing to close."""

    def hold_reading(self, why: object) -> None:
        """Nothing is read from a file; HTTP answers each message by itself."""

    def release_reading(self, why: object) -> None:
        """See ``hold_reading``."""


def _line(parcel: Parcel) -> bytes:
    (body,) = parcel.bodies
    if parcel.stream is None or parcel.sender is None or not parcel.head:
        return body
    return frames.as_json(parcel.stream, parcel.sender, body, parcel.opcode)
