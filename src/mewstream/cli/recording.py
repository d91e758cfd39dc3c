"""Recorded streams, and how they are read from a JSON-lines export of a journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from mewstream.cli.output import printable
from mewstream.journal.errors import JournalError
from mewstream.protocol import kinds
from mewstream.protocol.frames import TEXT
from mewstream.protocol.records import StreamOpened
from mewstream.protocol.times import parse_rfc3339, rfc3339

KINDS_OF_RECORD = ("frame", "stream-opened")
_STREAMS_NAMED = 20


class RecordedFrame(NamedTuple):
    seq: int
    ts: int
    """Time of the record in microseconds."""
    data: str | bytes | msgspec.Raw
    """Text, bytes, or the content of a ``stream/data`` envelope as JSON."""
    is_numbered: bool
    format_id: str | None
    size: int
    """Size of the data in the record, in bytes."""


@dataclass(slots=True)
class RecordedStream:
    space: str
    id: str
    opened: StreamOpened | None = None
    """None if the record of its opening was pruned or is not in the export."""
    frames: int = 0
    chosen: int = 0
    """Frames in the selected range."""
    chosen_bytes: int = 0
    first_ts: int = 0
    last_ts: int = 0

    @property
    def description(self) -> str:
        said = self.opened.request.get("description") if self.opened is not None else None
        return str(said) if said else ""

    def __str__(self) -> str:
        alias = f" ({self.opened.alias})" if self.opened is not None and self.opened.alias else ""
        when = f", {rfc3339(self.first_ts)} to {rfc3339(self.last_ts)}" if self.frames else ""
        what = f": {self.description}" if self.description else ""
        return printable(f"{self.space}/{self.id}{alias}, {self.frames} frames{when}{what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Selects frames by seq, both ends included, and by time in microseconds, the end excluded."""

    from_seq: int | None = None
    to_seq: int | None = None
    since: int | None = None
    until: int | None = None

    def includes(self, seq: int, ts: int) -> bool:
        return (
            (self.from_seq is None or seq >= self.from_seq)
            and (self.to_seq is None or seq <= self.to_seq)
            and (self.since is None or ts >= self.since)
            and (self.until is None or ts < self.until)
        )


class Recording(Protocol):
    name: str

    def streams(self, chosen: Range, space: str | None) -> list[RecordedStream]:
        """Every recorded stream of a space, or of all spaces."""

    def frames(self, stream: RecordedStream, chosen: Range) -> Iterator[RecordedFrame]:
        """Yield the frames of a stream in the order in which they were accepted."""


class Found:
    """Streams by space and id, in the order in which they are found."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], RecordedStream] = {}

    def __getitem__(self, key: tuple[str, str]) -> RecordedStream:
        return self._streams.setdefault(key, RecordedStream(*key))

    def all(self) -> list[RecordedStream]:
        return list(self._streams.values())

    def add(
        self, key: tuple[str, str], *, frames: int, chosen: int, chosen_bytes: int, first_ts: int, last_ts: int
    ) -> None:
        stream = self[key]
        stream.first_ts = min(stream.first_ts, first_ts) if stream.frames else first_ts
        stream.last_ts = max(stream.last_ts, last_ts)
        stream.frames += frames
        stream.chosen += chosen
        stream.chosen_bytes += chosen_bytes


class _Line(msgspec.Struct):
    """The fields of a line of ``mewstream journal export`` that are used here."""

    record: str
    space: str
    seq: int
    ts: str
    stream_id: str | None = None
    kind: str = "frame"
    opcode: int = TEXT
    data: str | None = None
    data_base64: bytes | None = None
    detail: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def recorded(self) -> bytes:
        return self.data.encode() if self.data is not None else self.data_base64 or b""


class ExportRecording:
    """A file written by ``mewstream journal export`` or ``mewstream journal cat --json``."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.name = str(file)

    def _lines(self) -> Iterator[tuple[_Line, int]]:
        decoder = msgspec.json.Decoder(_Line)
        with self._file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    found = decoder.decode(line)
                    ts = parse_rfc3339(found.ts)
                    if ts is None:
                        raise ValueError(f"{found.ts!r} is no time")
                except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as flaw:
                    raise JournalError(
                        f"{self.name}:{number}: {flaw}. Expected a line of `mewstream journal export --format jsonl`"
                    ) from None
                if found.record in KINDS_OF_RECORD and found.stream_id is not None:
                    yield found, ts

    def streams(self, chosen: Range, space: str | None) -> list[RecordedStream]:
        found = Found()
        for line, ts in self._lines():
            if space is not None and line.space != space:
                continue
            key = (line.space, line.stream_id or "")
            if line.record == "frame":
                is_chosen = chosen.includes(line.seq, ts)
                size = len(line.recorded) if is_chosen else 0
                found.add(key, frames=1, chosen=int(is_chosen), chosen_bytes=size, first_ts=ts, last_ts=ts)
            else:
                try:
                    found[key].opened = msgspec.json.decode(line.detail, type=StreamOpened)
                except msgspec.MsgspecError:
                    pass  # the stream is replayed without its description
        return found.all()

    def frames(self, stream: RecordedStream, chosen: Range) -> Iterator[RecordedFrame]:
        for line, ts in self._lines():
            is_ours = line.record == "frame" and (line.space, line.stream_id) == (stream.space, stream.id)
            if is_ours and chosen.includes(line.seq, ts):
                yield recorded_frame(line.seq, ts, line.kind, line.opcode, line.recorded)


class _Payload(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"null")
    format_id: str | None = None


class _Envelope(msgspec.Struct):
    payload: _Payload


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def recorded_frame(seq: int, ts: int, kind: str, opcode: int, data: bytes) -> RecordedFrame:
    try:
        if kind == kinds.STREAM_DATA:
            payload = _decode_envelope(data).payload
            return RecordedFrame(seq, ts, payload.content, True, payload.format_id, len(data))
        return RecordedFrame(seq, ts, data.decode() if opcode == TEXT else data, False, None, len(data))
    except (msgspec.MsgspecError, UnicodeDecodeError) as flaw:
        raise JournalError(f"the frame with seq {seq} is not what it is recorded to be ({kind}): {flaw}") from None


def find_stream(recording: Recording, chosen: Range, *, space: str | None, stream: str | None) -> RecordedStream:
    """Return the stream with an id or alias. Raises JournalError, which lists the streams, if it is not exactly one."""
    known = recording.streams(chosen, space)
    where = f"{recording.name}, space {space}" if space is not None else recording.name
    if not known:
        raise JournalError(f"there is no stream in {where}")
    if stream is None:
        raise JournalError(f"say which stream by --stream. In {where} there are:{_list(known)}")
    fitting = [each for each in known if each.id == stream] or [
        each for each in known if each.opened is not None and each.opened.alias == stream
    ]
    if not fitting:
        raise JournalError(f"there is no stream {stream!r} in {where}. There are:{_list(known)}")
    if len(fitting) > 1:
        spaces = len({each.space for each in fitting}) > 1
        how = "say of which space by --source-space" if spaces else "name it by its id"
        raise JournalError(f"{stream!r} is not the name of one stream: {how}. There are:{_list(fitting)}")
    return fitting[0]


def _list(streams: Iterable[RecordedStream]) -> str:
    lines = [f"\n  {each}" for each in streams]
    more = [f"\n  and {len(lines) - _STREAMS_NAMED} more"] if len(lines) > _STREAMS_NAMED else []
    return "".join([*lines[:_STREAMS_NAMED], *more])
