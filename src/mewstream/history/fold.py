"""One space: its state before a batch, the records of the batch, and what follows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np

from mewstream.audit.records import ControlRecord
from mewstream.history import facts, frame_rules, handoffs
from mewstream.history.attendance import Attendance, as_of
from mewstream.history.flow import LastNumbers, OfStream, by_stream, in_lives, placed, under_rights
from mewstream.history.frame_rules import Finding
from mewstream.history.gaps import Gaps
from mewstream.history.records import Detail, Frames, detail_of
from mewstream.history.rights import Rights
from mewstream.history.sessions import Sessions
from mewstream.history.state import State, Stream, read_state, written
from mewstream.history.streams import Streams
from mewstream.history.windows import Windows
from mewstream.protocol.records import AnyRecord

Rows = dict[str, list[dict[str, Any]]]
"""By the name of the table."""

KNOWN = frozenset(str(each.__struct_config__.tag) for each in get_args(AnyRecord))
"""Records whose meaning this version knows; others are kept in bronze, counted, and without effect."""


class SpaceHistory:
    """``see`` every control record of a batch in the order of the log, then ``place`` its frames, then take ``rows``
    and ``carried``."""

    def __init__(self, space: str, carried: bytes | None, first_seq: int) -> None:
        """``first_seq`` is the first record of the batch."""
        state = read_state(carried)
        self.space = space
        self.sessions = Sessions(state.sessions, state.joined)
        self.streams = Streams(space, state.streams, state.lowest_stream)
        self.rights = Rights(state.rights, state.handoffs, state.readers, state.lost)
        self.findings: list[Finding] = []
        """Of frames."""
        self.frames_not_judged = 0
        self._first_seq = first_seq if state.first_seq is None else state.first_seq
        self._last_seq = state.last_seq
        self._control: list[tuple[int, int]] = []
        """The ``seq`` and the time of each control record."""
        self._attendance = Attendance(state.people, state.pauses, is_whole=self._first_seq == 1)
        self._clock: list[tuple[int, int]] = [(0, state.last_ts)]
        """The places in the log at which the time was later than ever before."""
        self.windows = Windows(state.windows)
        self.gaps = Gaps(state.gaps, state.counting)
        self.refusals = 0
        self.drops = 0
        self._envelopes: list[dict[str, Any]] = []
        self._refusals: list[dict[str, Any]] = []
        self._regressions: list[facts.Regression] = []
        self._answered: list[handoffs.Answered] = []
        self._silent: dict[int, int] = {}
        self._now = state.last_ts
        self._effects: dict[str, Callable[[ControlRecord, Detail], None]] = {
            "joined": self._joined,
            "left": self._left,
            "suspended": self._suspended,
            "subscribed": self._attendance.see,
            "unsubscribed": self._attendance.see,
            "paused": self._attendance.see,
            "unpaused": self._attendance.see,
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
        self._control.append((record.seq, record.ts))
        if record.ts > self._now:
            self._clock.append((record.seq, record.ts))
            self._now = record.ts
        effect = self._effects.get(record.record)
        detail = detail_of(record) if effect is not None else None
        if effect is not None and detail is not None:
            effect(record, detail)

    def _joined(self, record: ControlRecord, detail: Detail) -> None:
        self.sessions.join(record, detail)
        self._attendance.see(record, detail)

    def _left(self, record: ControlRecord, detail: Detail) -> None:
        self.sessions.leave(record, detail)
        self._attendance.see(record, detail)

    def _suspended(self, record: ControlRecord, detail: Detail) -> None:
        self.sessions.suspend(record, detail)
        self._attendance.see(record, detail)

    def _envelope(self, record: ControlRecord, detail: Detail) -> None:
        self._envelopes.append(facts.envelope(record, detail))

    def _refused(self, record: ControlRecord, detail: Detail) -> None:
        row = facts.refusal(record, detail)
        self.refusals += row["count"]
        self._refusals.append(row)
        if (found := facts.regression(record, detail)) is not None:
            self._regressions.append(found)

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

    def place(self, frames: Frames, offsets: Sequence[int]) -> None:
        """All frames of the batch, once and after all control records, of which these are the offsets."""
        self._number(frames, offsets)
        clock = as_of(self._clock, frames.seq, 0).value
        frames = frames._replace(now=np.maximum(np.maximum.accumulate(frames.ts), clock))
        if frames.number:
            self._now = max(self._now, int(frames.ts.max()))
        streams = list(by_stream(frames))
        for each in streams:
            self._judge(each)
        firsts: dict[tuple[str, str, int], tuple[int, int]] = {}
        for each in streams:
            under_rights(each, self.rights.writing, firsts)
        self._answered = list(handoffs.answered(self.rights.handoffs, self.rights.writing, firsts))
        asked: dict[str, list[int]] = {}
        for told in self._answered:
            if told.first is not None:
                asked.setdefault(told.handoff.stream_id, []).append(told.first[0])
        anew = functools.cache(self._counts_anew)
        self._judge_regressions(LastNumbers(frames), anew)
        for each in streams:
            lives: list[Stream] = self.streams.lives.get(each.stream_id, [])
            last_ts = {number: life.last_frame_ts for number, life in enumerate(lives)}
            found = in_lives(each, lives)
            self.windows.add(each, found, lives, last_ts)
            self.gaps.add(each, found, lives, self.sessions.counted_anew, anew)
            if each.stream_id in asked:
                self._silent |= handoffs.silences(each, found, last_ts, asked[each.stream_id])

    def _judge_regressions(self, numbers: LastNumbers, anew: Callable[[str], list[int]]) -> None:
        """Before the numbers are counted: they are still those of before the batch."""
        for each in self._regressions:
            life = next((life for life in self.streams.lives.get(each.stream_id, []) if life.is_alive(each.seq)), None)
            if life is not None:
                before = numbers.before((each.stream_id, each.sender), each.seq)
                known = self.gaps.counting.get(each.stream_id, {}).get(each.sender)
                if before is None and known is not None:
                    before = known.seq, known.sequence
                self.findings += frame_rules.refused_number(each, before, life, anew(each.sender))

    def _counts_anew(self, who: str) -> list[int]:
        """Where a session of somebody begins or ends, after which its numbers may be any."""
        begun = self.sessions.counted_anew.get(who, []), self.sessions.beginnings.get(who, [])
        return sorted({*begun[0], *begun[1], *self._attendance.leaves(who)})

    def _number(self, frames: Frames, offsets: Sequence[int]) -> None:
        control = np.array(self._control or np.empty((0, 2)), dtype=np.int64)
        seqs = np.concatenate([control[:, 0], frames.seq])
        times = np.concatenate([control[:, 1], frames.ts])
        order = np.concatenate([np.asarray(offsets, dtype=np.int64), frames.offset])
        self.findings += frame_rules.of_space(order, seqs, times, self._last_seq)
        self._last_seq = max(int(seqs.max()), self._last_seq or 0)

    def _known(self) -> frame_rules.Known:
        return frame_rules.Known(
            attendance=self._attendance,
            lives=self.streams.lives,
            writing=self.rights.writing,
            owning=self.rights.owning,
            lost=self.rights.lost,
            readers=self.rights.readers,
            lowest_stream=self.streams.lowest,
            is_whole=self._first_seq == 1,
        )

    def _judge(self, frames: OfStream) -> None:
        """Before they are counted."""
        lives = self.streams.lives.get(frames.stream_id, [])
        life = placed(frames.seq, [each.ready_seq for each in lives], [each.ended_seq for each in lives])
        told = frame_rules.judge(frames, life, self._known())
        self.findings += told.findings
        self.frames_not_judged += told.unjudged

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

    def all_findings(self) -> list[Finding]:
        return [*self.findings, *self.gaps.steps_back]

    def carried(self) -> bytes:
        """To be asked for after ``rows``."""
        streams = self.streams.open
        self.gaps.forget(streams)
        people, pauses = self._attendance.left()
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
                readers={name: sets[-1] for name, sets in self.rights.readers.items() if name in streams},
                lost={
                    name: {who: seqs[-1] for who, seqs in by_whom.items()}
                    for name, by_whom in self.rights.lost.items()
                    if name in streams
                },
                people=people,
                pauses=pauses,
                first_seq=self._first_seq,
                last_seq=self._last_seq,
                last_ts=self._now,
                lowest_stream=self.streams.lowest,
            )
        )
