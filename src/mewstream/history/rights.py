"""Who had which right on which stream: every change begins a right or ends one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mewstream.audit.records import ControlRecord
from mewstream.history.records import Detail
from mewstream.history.state import Handoff, Key, ReaderSet, Right

#: Ends of rights that the gateway gives a reason of its own.
_CONDITIONS = ("expired", "max_frames")
_Held = dict[tuple[str, str | None], Right]


class Rights:
    """``writing`` are all rights to write of a batch, by stream and participant, in their order."""

    def __init__(
        self,
        open_ones: Iterable[Right],
        handoffs: list[Handoff],
        readers: Mapping[str, ReaderSet],
        lost: Mapping[str, Mapping[str, int]],
    ) -> None:
        self._held: dict[str, _Held] = {}
        self.owning: dict[str, list[Right]] = {}
        self.readers: dict[str, list[ReaderSet]] = {stream: [each] for stream, each in readers.items()}
        """All sets of readers of a batch, by stream and in their order."""
        self.lost: dict[str, dict[str, list[int]]] = {
            stream: {who: [seq] for who, seq in by_whom.items()} for stream, by_whom in lost.items()
        }
        """By stream and participant the records that ended a right to write."""
        self.all: list[Right] = []
        self.writing: dict[Key, list[Right]] = {}
        self.handoffs = handoffs
        for right in open_ones:
            self._held.setdefault(right.stream_id, {})[right.right, right.participant] = right
            self._note(right)

    @property
    def open(self) -> list[Right]:
        return [right for right in self.all if right.until_seq is None]

    # -- what records say -------------------------------------------------------------------------

    def open_stream(self, record: ControlRecord, detail: Detail) -> None:
        owner, stream = detail.owner, record.stream_id or ""
        self._end_all(stream, record, "vanished")
        self._begin("own", owner, record, "open", by=owner)
        for who in detail.authorized_writers or []:
            if who == owner:
                self._begin("write", who, record, "open", by=owner)
            else:
                self._begin("write", who, record, "auto_grant", by=owner, reason="auto_grant")
        self.readers.setdefault(stream, []).append(ReaderSet(record.seq, detail.authorized_readers))
        for reader in _each_once(_readers(detail)):
            self._begin("read", reader, record, "open", by=owner, reason=detail.reason)

    def end_stream(self, record: ControlRecord, detail: Detail) -> None:
        self._end_all(record.stream_id or "", record, "stream_ended", by=detail.by, reason=detail.reason)

    def grant_write(self, record: ControlRecord, detail: Detail) -> None:
        stands = detail.reason == "auto_grant" and detail.request_id is None
        held = self._of(record.stream_id).get(("write", detail.participant))
        if stands and held is not None and held.from_seq == record.cause_seq:
            return  # Whoever is granted with the opening is told so in a record of its own, which gives nothing new.
        self._begin(
            "write",
            detail.participant,
            record,
            "auto_grant" if stands else "grant",
            by=detail.by,
            reason=detail.reason,
            expires_at=detail.expires_at,
            max_frames=detail.max_frames,
        )

    def revoke_write(self, record: ControlRecord, detail: Detail) -> None:
        by_gateway = detail.reason if detail.reason in _CONDITIONS else "left"
        how = by_gateway if detail.request_id is None else "revoked"
        self._end("write", detail.participant, record, how, by=detail.by, reason=detail.reason)

    def transfer(self, record: ControlRecord, detail: Detail) -> None:
        before, after = detail.previous_owner, detail.new_owner
        told = {"by": detail.by, "reason": detail.reason}
        self._end("own", before, record, "transferred", **told)
        if before not in (detail.authorized_writers or ()):
            self._end("write", before, record, "transferred", **told)
        self._begin("own", after, record, "transfer", **told)
        self._begin("write", after, record, "transfer", previous_owner=before, **told)

    def set_readers(self, record: ControlRecord, detail: Detail) -> None:
        """The record holds the whole set; what differs from the set before begins or ends."""
        if detail.authorized_readers is None:
            return
        before = {who: None for right, who in self._of(record.stream_id) if right == "read"}
        now = _each_once(detail.authorized_readers)
        self.readers.setdefault(record.stream_id or "", []).append(ReaderSet(record.seq, detail.authorized_readers))
        told = {"by": detail.by, "reason": detail.reason}
        for who in [each for each in before if each not in now]:
            how = "revoked" if who == detail.participant else "reader_set"
            self._end("read", who, record, how, **told)
        for who in now:
            if who not in before:
                self._begin("read", who, record, "grant" if who == detail.participant else "reader_set", **told)

    # -- rights -----------------------------------------------------------------------------------

    def _of(self, stream: str | None) -> _Held:
        return self._held.setdefault(stream or "", {})

    def _begin(
        self,
        right: str,
        who: str | None,
        record: ControlRecord,
        how: str,
        *,
        previous_owner: str | None = None,
        **given: Any,
    ) -> None:
        held = self._of(record.stream_id)
        before = held.get((right, who))
        made = Right(record.stream_id or "", who, right, record.seq, record.ts, record.seq, how, **_given(given))
        if before is not None:
            self._end(right, who, record, "replaced", by=made.granted_by, reason=made.reason)
            made.since_seq = before.since_seq
        held[right, who] = made
        self._note(made)
        # A grant to somebody who can write already, and a transfer to oneself, hand nothing on.
        is_new = how == "transfer" or (how != "open" and made.since_seq == record.seq)
        if right == "write" and is_new and previous_owner != who:
            self.handoffs.append(
                Handoff(
                    *(made.stream_id, record.seq, record.ts, how, made.granted_by, previous_owner, who or ""),
                    *(made.reason, made.since_seq),
                )
            )

    def _note(self, right: Right) -> None:
        self.all.append(right)
        if right.right == "write":
            self.writing.setdefault((right.stream_id, right.participant or ""), []).append(right)
        elif right.right == "own":
            self.owning.setdefault(right.stream_id, []).append(right)

    def _end(
        self,
        right: str,
        who: str | None,
        record: ControlRecord,
        how: str,
        *,
        by: str | None = None,
        reason: str | None = None,
    ) -> None:
        ended = self._of(record.stream_id).pop((right, who), None)
        if ended is not None:
            _ends(ended, record, how, by, reason)
            if right == "write" and how != "replaced":
                self.lost.setdefault(ended.stream_id, {}).setdefault(who or "", []).append(record.seq)

    def _end_all(
        self, stream: str, record: ControlRecord, how: str, *, by: str | None = None, reason: str | None = None
    ) -> None:
        for right in self._held.pop(stream, {}).values():
            _ends(right, record, how, by, reason)

    def rows(self) -> Iterator[dict[str, Any]]:
        for right in self.all:
            row = msgspec.structs.asdict(right)
            if right.right != "write":
                row["frames_used"] = None
            row["is_open"] = right.until_seq is None
            yield row


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {"granted_by" if name == "by" else name: value for name, value in fields.items()}


def _ends(right: Right, record: ControlRecord, how: str, by: str | None, reason: str | None) -> None:
    right.until_seq, right.until_ts, right.ended_how = record.seq, record.ts, how
    right.ended_by, right.end_reason = by, reason


def _readers(detail: Detail) -> Sequence[str | None]:
    """None stands for everyone."""
    return [None] if detail.authorized_readers is None else detail.authorized_readers


def _each_once(names: Iterable[str | None]) -> dict[str | None, None]:
    return dict.fromkeys(names)
