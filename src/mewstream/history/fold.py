"""One space: its state before a batch, the records of the batch, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mewstream.history import facts, handoffs
from mewstream.history.flow import by_stream, in_lives, under_rights
from mewstream.history.gaps import Gaps
from mewstream.history.records import ControlRecord, Detail, Frames, detail_of
from mewstream.history.rights import Rights
from mewstream.history.sessions import Sessions
from mewstream.history.state import State, Stream, read_state, written
from mewstream.history.streams import Streams
from mewstream.history.windows import Windows

Rows = dict[str, list[dict[str, Any]]]
"""By the name of the table."""

KNOWN = frozenset(
    {
        *("space-started", "clock-jumped", "joined", "left", "suspended", "envelope", "refused"),
        *("capabilities-granted", "capabilities-revoked", "invited", "paused", "unpaused", "shut-down"),
        *("stream-opened", "stream-started", "stream-ended"),
        *("write-granted", "write-revoked", "ownership-transferred", "read-granted", "read-revoked"),
        *("frame", "frames-dropped"),
    }
)
"""Records whose meaning this version knows; others are kept in bronze, counted, and without effect."""


class SpaceHistory:
    """``see`` every control record of a batch in the order of the log, then ``place`` its frames, then take ``rows``
    and ``carried``."""

    def __init__(self, space: str, carried: bytes | None) -> None:
        state = read_state(carried)
        self.space = space
        self.sessions = Sessions(state.sessions, state.joined)
        self.streams = Streams(space, state.streams)
        self.rights = Rights(state.rights, state.handoffs)
        self.windows = Windows(state.windows)
        self.gaps = Gaps(state.gaps, state.counting)
        self.refusals = 0
        self.drops = 0
        self._envelopes: list[dict[str, Any]] = []
        self._refusals: list[dict[str, Any]] = []
        self._answered: list[handoffs.Answered] = []
        self._silent: dict[int, int] = {}
        self._now = 0
        self._effects: dict[str, Callable[[ControlRecord, Detail], None]] = {
            "joined": self.sessions.join,
            "left": self.sessions.leave,
            "suspended": self.sessions.suspend,
            "envelope": self._envelope,
            "refused": self._refused,
            "stream-opened": self._opened,
            "stream-started": lambda record, _: self.streams.starts(record),
            "stream-ended": self._ended,
            "write-granted": self.rights.grant_write,
            "write-revoked": self.rights.revoke_write,
            "ownership-transferred": self._transferred,
            "read-granted": self.rights.set_readers,
            "read-revoked": self.rights.set_readers,
            "frames-dropped": self._dropped,
        }

    # -- control records --------------------------------------------------------------------------

    def see(self, record: ControlRecord) -> None:
        self._now = max(self._now, record.ts)
        effect = self._effects.get(record.record)
        detail = detail_of(record) if effect is not None else None
        if effect is not None and detail is not None:
            effect(record, detail)

    def _envelope(self, record: ControlRecord, detail: Detail) -> None:
        self._envelopes.append(facts.envelope(record, detail))

    def _refused(self, record: ControlRecord, detail: Detail) -> None:
        row = facts.refusal(record, detail)
        self.refusals += row["count"]
        self._refusals.append(row)

    def _opened(self, record: ControlRecord, detail: Detail) -> None:
        self.streams.opens(record, detail)
        self.rights.open_stream(record, detail)

    def _ended(self, record: ControlRecord, detail: Detail) -> None:
        self.streams.ends(record, detail)
        self.rights.end_stream(record, detail)

    def _transferred(self, record: ControlRecord, detail: Detail) -> None:
        self.streams.passes_on(record, detail)
        self.rights.transfer(record, detail)

    def _dropped(self, record: ControlRecord, detail: Detail) -> None:
        self.drops += detail.count or 0
        self.windows.drop(record.stream_id or "", record.ts, detail.count or 0)

    # -- frames -----------------------------------------------------------------------------------

    def place(self, frames: Frames) -> None:
        """All frames of the batch, once and after all control records."""
        if frames.number:
            self._now = max(self._now, int(frames.ts.max()))
        streams = list(by_stream(frames))
        firsts: dict[tuple[str, str, int], tuple[int, int]] = {}
        for each in streams:
            under_rights(each, self.rights.writing, firsts)
        self._answered = list(handoffs.answered(self.rights.handoffs, self.rights.writing, firsts))
        asked: dict[str, list[int]] = {}
        for told in self._answered:
            if told.first is not None:
                asked.setdefault(told.handoff.stream_id, []).append(told.first[0])
        for each in streams:
            lives: list[Stream] = self.streams.lives.get(each.stream_id, [])
            last_ts = {number: life.last_frame_ts for number, life in enumerate(lives)}
            found = in_lives(each, lives)
            self.windows.add(each, found, lives, last_ts)
            self.gaps.add(each, found, lives, self.sessions.counted_anew)
            if each.stream_id in asked:
                self._silent |= handoffs.silences(each, found, last_ts, asked[each.stream_id])

    # -- what follows -----------------------------------------------------------------------------

    def rows(self) -> Rows:
        made: Rows = {
            "envelopes": self._envelopes,
            "refusals": self._refusals,
            "formats": self.streams.formats,
            "sessions": list(self.sessions.rows()),
            "streams": list(self.streams.rows()),
            "authorizations": list(self.rights.rows()),
            "handoffs": list(handoffs.rows(self._answered, self._silent)),
            "stream_metrics": list(self.windows.rows(self._now)),
            "sequence_gaps": list(self.gaps.rows(self.streams.open, self._now)),
        }
        for rows in made.values():
            for row in rows:
                row["space"] = self.space
        return made

    def carried(self) -> bytes:
        """To be asked for after ``rows``."""
        streams = self.streams.open
        self.gaps.forget(streams)
        return written(
            State(
                joined=self.sessions.joined,
                sessions=self.sessions.open,
                streams=streams,
                rights=self.rights.open,
                handoffs=[told.handoff for told in self._answered if told.is_open],
                windows=self.windows.open_until(self._now),
                gaps=[gap for gap in self.gaps.all if self.gaps.may_heal(gap, streams, self._now)],
                counting=self.gaps.counting,
            )
        )
