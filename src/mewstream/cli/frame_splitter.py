"""Splitting the input of ``publish`` into frames."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from mewstream.cli.daemon_thread import DaemonThread
from mewstream.protocol.errors import ConfigError

Cut = Literal["lines", "jsonl", "raw"]
READ_BYTES = 1 << 16
#: No gateway accepts a larger frame by default. Without this limit, input without line ends would fill the memory.
MAX_FRAME_BYTES = 16 << 20


@dataclass(slots=True)
class FrameSplitter:
    """Turns bytes into frames: one per line of text, one per line of JSON, or one per ``chunk_bytes`` bytes."""

    cut: Cut
    chunk_bytes: int
    name: str
    """The name of the input, for error messages."""
    rest: bytes = b""
    lines: int = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that these bytes complete. Raises ConfigError for a line that cannot be a frame."""
        buffer = self.rest + data
        if self.cut == "raw":
            end = len(buffer) - len(buffer) % self.chunk_bytes
            self.rest = buffer[end:]
            for start in range(0, end, self.chunk_bytes):
                yield buffer[start : start + self.chunk_bytes]
            return
        *lines, self.rest = buffer.split(b"\n")
        for line in lines:
            yield from self._line(line)
        if len(self.rest) > MAX_FRAME_BYTES:
            self.lines += 1
            raise self._flaw(f"longer than {MAX_FRAME_BYTES} bytes: cut it by bytes, with --raw")

    def finish(self) -> Iterator[bytes]:
        """The last frame, which may be shorter or have no line end."""
        rest, self.rest = self.rest, b""
        if rest:
            yield from [rest] if self.cut == "raw" else self._line(rest)

    def _line(self, line: bytes) -> Iterator[bytes]:
        self.lines += 1
        line = line.removesuffix(b"\r")
        if self.cut == "lines":
            try:
                line.decode()
            except UnicodeDecodeError:
                raise self._flaw("not UTF-8: send it as bytes, with --raw") from None
            yield line
        elif line.strip():
            try:
                msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise self._flaw(f"not JSON: {error}") from None
            yield line.strip()

    def _flaw(self, what: str) -> ConfigError:
        return ConfigError(f"{self.name}: line {self.lines} is {what}")


async def frames_of(descriptor: int, cutter: FrameSplitter, thread: DaemonThread) -> AsyncIterator[bytes]:
    """Read frames from a file descriptor. Each is yielded as soon as it is complete, even if the pipe is slow."""
    while data := await thread.call(os.read, descriptor, READ_BYTES):
        for frame in cutter.feed(data):
            yield frame
    for frame in cutter.finish():
        yield frame
