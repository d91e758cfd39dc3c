"""Streams, from their request to their end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mewstream.audit.records import ControlRecord
from mewstream.history.facts import text_in
from mewstream.history.records import Detail, text_of
from mewstream.history.state import Announced, Owner, Stream


class Streams:
    """``lives`` are all lives of a batch, by the name of the stream and in their order."""

    def __init__(self, space: str, open_ones: dict[str, Stream], lowest: int | None) -> None:
        self._space = space
        self.open = open_ones
        self.lives: dict[str, list[Stream]] = {name: [stream] for name, stream in open_ones.items()}
        self.formats: list[dict[str, Any]] = []
        self.lowest = lowest
        """The lowest number of a stream that was opened in this log."""

    def opens(self, record: ControlRecord, detail: Detail) -> None:
        name, owner = record.stream_id or "", detail.owner
        before = self.open.get(name)
        if before is not None:
            # The log has lost the end of the one before it.
            before.ended_seq, before.ended_ts, before.ended_how = record.seq, record.ts, "vanished"
        number = name.removeprefix("stream-")
        if number.isdecimal():
            self.lowest = int(number) if self.lowest is None else min(self.lowest, int(number))
        is_live = detail.status == "live"
        stream = Stream(
            stream_id=name,
            ready_seq=record.seq,
            ready_ts=record.ts,
            intent_seq=record.seq if record.cause_seq is None else record.cause_seq,
            status=detail.status,
            alias=detail.alias,
            owner=owner,
            owners=[Owner(owner, record.seq, record.ts, owner, None)],
            formats=[
                Announced(each.id, each.mime_type, each.schema_hash, text_of(each.schema), each.description)
                for each in detail.formats or []
            ],
            metadata=text_of(detail.request),
            policy=text_of(detail.policy),
            live_seq=record.seq if is_live else None,
            live_ts=record.ts if is_live else None,
        )
        self.open[name] = stream
        self.lives.setdefault(name, []).append(stream)
        place = {"space": self._space, "seq": record.seq, "ts": record.ts, "stream_id": name}
        self.formats += [place | msgspec.structs.asdict(each) for each in stream.formats]

    def starts(self, record: ControlRecord) -> None:
        stream = self.open.get(record.stream_id or "")
        if stream is not None:
            stream.is_started = True
            if stream.live_seq is None:
                stream.live_seq, stream.live_ts = record.seq, record.ts

    def ends(self, record: ControlRecord, detail: Detail) -> None:
        """Whatever a log says of a stream after its end, nothing of it happened."""
        stream = self.open.pop(record.stream_id or "", None)
        if stream is not None:
            stream.ended_seq, stream.ended_ts, stream.ended_how = record.seq, record.ts, detail.how
            stream.ended_by, stream.end_reason = detail.by, detail.reason
            stream.end_code, stream.end_message = detail.code, detail.message

    def passes_on(self, record: ControlRecord, detail: Detail) -> None:
        stream = self.open.get(record.stream_id or "")
        if stream is not None:
            stream.owner = detail.new_owner
            stream.owners.append(Owner(detail.new_owner, record.seq, record.ts, detail.by, detail.reason))

    def rows(self) -> Iterator[dict[str, Any]]:
        for lives in self.lives.values():
            for stream in lives:
                yield self._row(stream)

    def _row(self, stream: Stream) -> dict[str, Any]:
        status = "live" if stream.is_started else stream.status
        asked = _request(stream.metadata)
        row = {
            **msgspec.structs.asdict(stream),
            "namespace": f"{self._space}/{stream.stream_id}",
            "status": status if stream.ended_seq is None else stream.ended_how,
            "announced": stream.status != "live",
            "intent_ts": stream.ready_ts,
            "owners": [msgspec.structs.asdict(each) for each in stream.owners],
            "formats": [
                {"format_id": each.format_id, "mime_type": each.mime_type, "schema_hash": each.schema_hash}
                for each in stream.formats
            ],
            "is_open": stream.ended_seq is None,
        }
        return row | {
            name: text_in(asked.get(name, msgspec.Raw())) for name in ("description", "content_type", "direction")
        }


def _request(metadata: str | None) -> dict[str, msgspec.Raw]:
    try:
        return _decode_request(metadata or "{}")
    except (msgspec.MsgspecError, RecursionError):
        return {}


_decode_request = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
