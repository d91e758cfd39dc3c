"""Who was here, from joining to leaving, and since when each participant counts its messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from mewstream.audit.records import ControlRecord
from mewstream.history.records import Detail, text_of
from mewstream.history.state import Session, Suspension


class Sessions:
    def __init__(self, open_ones: dict[str, Session], joined: dict[str, int]) -> None:
        self.open = open_ones
        self.ended: list[Session] = []
        self.joined = joined
        self.begun = 0
        self.beginnings: dict[str, list[int]] = {who: [each.joined_seq] for who, each in open_ones.items()}
        """For each participant the joins with which a session began."""
        self.counted_anew: dict[str, list[int]] = {who: [seq] for who, seq in joined.items() if seq}
        """For each participant the joins since which its numbers grow."""

    def join(self, record: ControlRecord, detail: Detail) -> None:
        """A join is a new session unless it goes on with one that the log knows."""
        who = detail.participant or ""
        if not detail.continues:
            self.joined[who] = record.seq
            self.counted_anew.setdefault(who, []).append(record.seq)
        else:
            self.joined.setdefault(who, 0)
        session = self.open.get(who)
        if session is not None and (detail.resumed or detail.replaced):
            session.connections += 1
            if session.is_waiting:
                last = session.suspensions[-1]
                last.resumed_seq, last.resumed_ts = record.seq, record.ts
                session.is_waiting = False
            return
        if session is not None:
            self._end(session, record, "vanished")
        self.begun += 1
        self.beginnings.setdefault(who, []).append(record.seq)
        capabilities = text_of(detail.capabilities)
        self.open[who] = Session(who, record.seq, record.ts, detail.transport, capabilities, suspensions=[])

    def leave(self, record: ControlRecord, detail: Detail) -> None:
        session = self.open.get(detail.participant or "")
        if session is not None:
            self._end(session, record, detail.reason)

    def suspend(self, record: ControlRecord, detail: Detail) -> None:
        session = self.open.get(detail.participant or "")
        if session is not None:
            session.suspensions.append(Suspension(record.seq, record.ts, detail.until, detail.reason))
            session.is_waiting = True

    def _end(self, session: Session, record: ControlRecord, how: str | None) -> None:
        session.left_seq, session.left_ts, session.ended_how = record.seq, record.ts, how
        self.ended.append(session)
        del self.open[session.participant]

    def rows(self) -> Iterator[dict[str, Any]]:
        return _rows([*self.ended, *self.open.values()])


def _rows(sessions: Iterable[Session]) -> Iterator[dict[str, Any]]:
    for each in sessions:
        row = msgspec.structs.asdict(each)
        row["suspensions"] = [msgspec.structs.asdict(suspension) for suspension in each.suspensions]
        row["is_open"] = each.left_seq is None
        yield row
