"""Recorded streams, read from the journal of a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mewstream.cli.recording import KINDS_OF_RECORD, Found, Range, RecordedFrame, RecordedStream, recorded_frame
from mewstream.journal.export import Scan, Selection
from mewstream.journal.reader import JournalReader
from mewstream.journal.schema import decode
from mewstream.protocol.records import Frame, StreamOpened

_ROWS_AT_A_TIME = 1024


class JournalRecording:
    """The journal in the data directory of a gateway, which may be running."""

    def __init__(self, data: Path) -> None:
        self._reader = JournalReader(data / "journal")
        self._reader.identity()
        self.name = str(data)

    def streams(self, chosen: Range, space: str | None) -> list[RecordedStream]:
        found = Found()
        in_range = _selection(chosen)
        spaces = (space,) if space is not None else ()
        for scanned in Scan(self._reader, Selection(spaces=spaces, records=KINDS_OF_RECORD)).read():
            rows = scanned.rows
            are_frames = pc.equal(rows.column("record"), "frame")
            frames = rows.filter(are_frames)
            if frames.num_rows:
                self._add_frames(found, frames, in_range)
            for entry in decode(rows.filter(pc.invert(are_frames))):
                if isinstance(entry.record, StreamOpened):
                    found[entry.space, entry.record.stream_id].opened = entry.record
        return found.all()

    def _add_frames(self, found: Found, frames: pa.RecordBatch, in_range: Selection) -> None:
        ts = frames.column("ts").cast(pa.int64())
        chosen = in_range.mask(frames).cast(pa.int64())
        bytes_ = pc.multiply(chosen, pc.binary_length(frames.column("data")).cast(pa.int64()))
        names = {"space": frames.column("space"), "stream": frames.column("stream_id")}
        table = pa.table({**names, "ts": ts, "chosen": chosen, "bytes": bytes_})
        wanted = [("ts", "count"), ("ts", "min"), ("ts", "max"), ("chosen", "sum"), ("bytes", "sum")]
        for each in table.group_by(["space", "stream"], use_threads=False).aggregate(wanted).to_pylist():
            found.add(
                (each["space"], each["stream"]),
                frames=each["ts_count"],
                chosen=each["chosen_sum"],
                chosen_bytes=each["bytes_sum"],
                first_ts=each["ts_min"],
                last_ts=each["ts_max"],
            )

    def frames(self, stream: RecordedStream, chosen: Range) -> Iterator[RecordedFrame]:
        selection = _selection(chosen, spaces=(stream.space,), streams=(stream.id,), records=("frame",))
        for scanned in Scan(self._reader, selection).read():
            rows = scanned.rows
            for start in range(0, rows.num_rows, _ROWS_AT_A_TIME):
                for entry in decode(rows.slice(start, _ROWS_AT_A_TIME)):
                    frame = entry.record
                    if isinstance(frame, Frame):
                        yield recorded_frame(frame.seq, frame.ts, frame.kind, frame.opcode, frame.data)


def _selection(chosen: Range, **more: Any) -> Selection:
    return Selection(from_seq=chosen.from_seq, to_seq=chosen.to_seq, since=chosen.since, until=chosen.until, **more)
