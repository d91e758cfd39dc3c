"""What the audit says of frames: each was written by one who might, to a stream that was live, for its readers.

The rules are looked at for all frames of a writer of a stream at once. A frame is judged by what the control records
before it say; its time counts as the latest of the log until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mewstream.history.attendance import Attendance, Change, Presence, as_of
from mewstream.history.facts import Regression
from mewstream.history.flow import OfStream, grouped, placed
from mewstream.history.records import Integers
from mewstream.history.state import Counting, Key, ReaderSet, Right, Stream
from mewstream.protocol.times import rfc3339

RULES = {
    "seq_gap": "records of a space are missing",
    "seq_repeat": "a record of a space is present twice, or out of order",
    "stream_seq_gap": "frames of a stream are missing",
    "stream_seq_repeat": "a frame of a stream is present twice, or out of order",
    "frame_no_stream": "a frame was accepted for a stream that was not open",
    "frame_not_live": "a frame was accepted for a stream that had not been started",
    "frame_no_right": "its writer never had the right, or it had been revoked",
    "frame_expired": "its writer's right had expired, also if time ran back since",
    "frame_spent": "its writer's right was good for fewer frames",
    "frame_absent": "its writer was not connected; `stream/data`: was not here and did not own the stream",
    "frame_paused": "its writer was paused",
    "frame_readers": "it was not addressed to exactly the readers of its stream, or not to as many as were connected",
    "frame_sequence": "the writer's own number in `stream/data` did not grow",
    "refusal": "a number was refused as not growing, and it did, or the last one of the session was another",
    "frame_clock": "its time is earlier than that of a record before it",
}
"""By name: what is found."""

#: Rules of which a frame breaks the first alone.
_ORDER = ("frame_no_stream", "frame_not_live", "frame_no_right", "frame_expired", "frame_absent", "frame_paused")
Broken = NDArray[np.bool_]


class Finding(NamedTuple):
    """A row of the table ``audit``, without its space."""

    seq: int
    ts: int
    rule: str
    severity: str
    stream_id: str | None
    participant: str | None
    reason: str
    evidence_seq: int | None


class Known(NamedTuple):
    """What the control records of a space say, for a batch."""

    attendance: Attendance
    lives: dict[str, list[Stream]]
    writing: dict[Key, list[Right]]
    owning: dict[str, list[Right]]
    lost: dict[str, dict[str, list[int]]]
    """By stream and participant the records that ended a right to write."""
    readers: dict[str, list[ReaderSet]]
    lowest_stream: int | None
    """The lowest number of a stream that was opened in this log."""
    is_whole: bool

    def knows(self, stream_id: str) -> bool:
        """Whether all that ever happened to a stream is in the log. The gateway numbers the streams."""
        if self.is_whole:
            return True
        number = stream_id.removeprefix("stream-")
        return self.lowest_stream is not None and number.isdecimal() and int(number) >= self.lowest_stream


# -- the frames of one stream ---------------------------------------------------------------------


class Judged(NamedTuple):
    findings: list[Finding]
    unjudged: int
    """Frames of which the log does not say enough."""


def judge(frames: OfStream, life: Integers, known: Known) -> Judged:
    """``life`` is the life of the stream that each frame is in. To be asked for before the frames are counted."""
    if not known.knows(frames.stream_id) and not (life >= 0).any():
        return Judged([], frames.number)
    findings: list[Finding] = []
    unjudged = 0
    if not known.knows(frames.stream_id):
        inside = life >= 0
        unjudged = int(np.count_nonzero(~inside))
        frames, life = frames.taken(inside), life[inside]
    lives = known.lives.get(frames.stream_id, [])
    findings += _numbers(frames, life, lives)
    for place in np.flatnonzero(frames.ts < frames.now).tolist():
        back = (int(frames.now[place]) - int(frames.ts[place])) / 1_000_000
        reason = f"it is {back:g} s earlier than what came before it"
        findings.append(finding(frames, "frame_clock", place, None, reason))
    for number, places in grouped(frames.sender):
        mine = frames if len(places) == frames.number else frames.taken(places)
        findings += _Writer(frames.senders[number], mine, life[places], lives, known).findings()
    return Judged(findings, unjudged)


class _Writer:
    """The frames of one writer of a stream."""

    def __init__(self, who: str, frames: OfStream, life: Integers, lives: Sequence[Stream], known: Known) -> None:
        self.who, self.frames, self.known = who, frames, known
        self.life, self.lives = life, lives
        self.rights = known.writing.get((frames.stream_id, who), [])
        seqs = frames.seq
        self.right = placed(
            seqs, [each.from_seq for each in self.rights], [each.until_seq for each in self.rights], after=True
        )
        presence = known.attendance.presence(who, seqs)
        self.presence, self.presence_since = presence
        self.paused, self.paused_since = known.attendance.paused(who, seqs, frames.now)

    def findings(self) -> Iterator[Finding]:
        said = np.zeros(self.frames.number, np.bool_)
        for rule, broken in zip(_ORDER, self._broken(), strict=True):
            for place in np.flatnonzero(broken & ~said).tolist():
                yield self._found(rule, place)
            said |= broken
        yield from self._readers(said)
        yield from self._spent()

    def _broken(self) -> Iterator[Broken]:
        frames = self.frames
        no_stream = self.life < 0
        yield no_stream
        live_since = np.array([_far(each.live_seq) for each in self.lives] or [0], np.int64)
        yield ~no_stream & (frames.seq <= live_since[self.life])
        yield self.right < 0
        expires = np.array([_far(each.expires_at) for each in self.rights] or [0], np.int64)
        yield (self.right >= 0) & (expires[self.right] <= frames.now)
        yield self._absent()
        yield self.paused

    def _absent(self) -> Broken:
        """``stream/data`` comes by HTTP too, from an owner who is not here, and from one who is suspended."""
        is_raw = self.frames.is_raw
        broken: Broken = is_raw & (self.presence >= 0) & (self.presence < Presence.HERE)
        gone = ~is_raw & (self.presence == Presence.GONE)
        if gone.any():
            owned = [each for each in self.known.owning.get(self.frames.stream_id, ()) if each.participant == self.who]
            begins, ends = [each.from_seq for each in owned], [each.until_seq for each in owned]
            broken = broken | (gone & (placed(self.frames.seq, begins, ends, after=True) < 0))
        return broken

    def _found(self, rule: str, place: int) -> Finding:
        evidence: int | None = None
        match rule:
            case "frame_no_stream":
                reason = "the stream was not open"
            case "frame_not_live":
                reason = "the stream had not been started"
            case "frame_no_right":
                reason, evidence = self._no_right(int(self.frames.seq[place]))
            case "frame_expired":
                right = self.rights[self.right[place]]
                reason = f"the right of the writer had expired at {rfc3339(right.expires_at or 0)}"
                evidence = right.from_seq
            case "frame_absent":
                reason, evidence = "the writer was not here", int(self.presence_since[place]) or None
            case _:
                reason, evidence = "the writer was paused", int(self.paused_since[place])
        return self._finding(rule, place, reason, evidence)

    def _no_right(self, seq: int) -> tuple[str, int | None]:
        ends = [each for each in self.known.lost.get(self.frames.stream_id, {}).get(self.who, ()) if each < seq]
        if not ends:
            return "the writer never had the right", None
        return "the right of the writer had been revoked", ends[-1]

    def _finding(self, rule: str, place: int, reason: str, evidence: int | None = None) -> Finding:
        return finding(self.frames, rule, place, self.who, f"a frame was accepted: {reason}", evidence)

    # -- whom they were for -----------------------------------------------------------------------

    def _readers(self, said: Broken) -> Iterator[Finding]:
        """Frames of which nothing was ``said`` yet. Of each, the set is that of its stream, and so many are told."""
        frames = self.frames
        sets = self.known.readers.get(frames.stream_id, [])
        if not sets:
            return
        changes: list[Change] = [(each.seq, place) for place, each in enumerate(sets)]
        in_force = as_of(changes, frames.seq, -1).value
        for number, places in grouped(in_force):
            if number < 0:
                continue
            known = sets[number]
            names = None if known.names is None else tuple(known.names)
            right = np.array([each in (known.names, known.seq if names is not None else None) for each in frames.named])
            is_right = right[frames.readers[places]]
            least, most = self.known.attendance.reached(names, frames.seq[places])
            for at, place in enumerate(places.tolist()):
                if said[place]:
                    continue
                if not is_right[at]:
                    told = _named(frames.named[frames.readers[place]])
                    reason = f"addressed to {told}, but the readers were {_named(known.names)}"
                    yield self._finding("frame_readers", place, reason, known.seq)
                elif self.known.is_whole and not least[at] <= frames.recipients[place] <= most[at]:
                    expected = f"{least[at]} to {most[at]}" if least[at] < most[at] else str(most[at])
                    reason = f"addressed to {frames.recipients[place]} participants, but {expected} were connected"
                    yield self._finding("frame_readers", place, reason, known.seq)

    # -- rights that are good for a number of frames ------------------------------------------------

    def _spent(self) -> Iterator[Finding]:
        for number, places in grouped(self.right):
            right = self.rights[number] if number >= 0 else None
            if right is not None and right.max_frames is not None:
                for place in places[max(0, right.max_frames - right.frames_used) :].tolist():
                    reason = f"the right of the writer was good for {right.max_frames} frames"
                    yield self._finding("frame_spent", place, reason, right.from_seq)


def _far(value: int | None) -> int:
    return np.iinfo(np.int64).max if value is None else value


def _named(readers: list[str] | int | None) -> str:
    if isinstance(readers, int):
        return f"the readers of seq {readers}"
    return "everyone" if readers is None else f"[{', '.join(readers)}]"


def finding(
    frames: OfStream, rule: str, place: int, who: str | None, reason: str, evidence: int | None = None
) -> Finding:
    severity = "flaw" if rule in ("stream_seq_gap", "stream_seq_repeat", "frame_clock") else "breach"
    seq, ts = int(frames.seq[place]), int(frames.ts[place])
    return Finding(seq, ts, rule, severity, frames.stream_id, who, reason, evidence)


# -- numbers --------------------------------------------------------------------------------------


def _numbers(frames: OfStream, life: Integers, lives: Sequence[Stream]) -> Iterator[Finding]:
    """Each frame of a stream has a number that is one more than the greatest before it."""
    for number, inside in grouped(life):
        if number < 0:
            continue
        found = frames.stream_seq[inside]
        before = np.maximum.accumulate(np.concatenate([[lives[number].last_number], found]))[:-1]
        for place in np.flatnonzero(found != before + 1).tolist():
            said, expected = int(found[place]), int(before[place]) + 1
            rule = "stream_seq_gap" if said > expected else "stream_seq_repeat"
            reason = f"stream_seq is {said}, expected {expected}: the frames of the stream have no gaps"
            yield finding(frames, rule, int(inside[place]), None, reason)


def steps_back(frames: OfStream, who: str, before: Counting | None, anew: Sequence[int]) -> Iterator[Finding]:
    """``frames`` are the numbered ones of a writer in one life of a stream, ``before`` is what it had counted up to,
    and ``anew`` are the joins after which it may count from the beginning."""
    previous = np.concatenate([[-1 if before is None else before.sequence], frames.sequence[:-1]])
    places = np.concatenate([[0 if before is None else before.seq], frames.seq[:-1]])
    joins = np.asarray(anew, dtype=np.int64)
    for place in np.flatnonzero(frames.sequence <= previous).tolist():
        between = np.searchsorted(joins, frames.seq[place]) - np.searchsorted(joins, places[place])
        if not between:
            reason = f"its sequence is {frames.sequence[place]}, that before it was {previous[place]}: it must grow"
            yield finding(frames, "frame_sequence", place, who, f"a frame was accepted: {reason}", int(places[place]))


def refused_number(
    refused: Regression, before: tuple[int, int] | None, life: Stream, anew: Sequence[int]
) -> Iterator[Finding]:
    """``before`` is the place and the number of the last frame of the sender that had one."""
    place = None if before is None or before[0] < life.ready_seq else before[0]
    begun = np.searchsorted(np.asarray(anew, dtype=np.int64), [place or 0, refused.seq])
    last = None if before is None or place is None or begun[0] != begun[1] else before[1]
    reason = None
    if last != refused.last_sequence:
        said = "there was none" if last is None else f"the last was {last}"
        reason = f"refused because the last number of the session was {refused.last_sequence}, but {said}"
    elif refused.sequence is not None and refused.sequence > last:
        reason = f"refused because the number did not grow, but it was {refused.sequence} after {last}"
    if reason is not None:
        where = (refused.stream_id, refused.sender, reason, place)
        yield Finding(refused.seq, refused.ts, "refusal", "flaw", *where)


def of_space(offsets: Integers, seqs: Integers, times: Integers, last: int | None) -> Iterator[Finding]:
    """Each record of a space has a ``seq`` that is one more than the greatest before it. ``last`` is that of before the
    batch; None: any may be the first."""
    order = np.argsort(offsets, kind="stable")
    found = seqs[order]
    before = np.maximum.accumulate(np.concatenate([[found[0] - 1 if last is None else last], found]))[:-1]
    for place in np.flatnonzero(found != before + 1).tolist():
        said, expected = int(found[place]), int(before[place]) + 1
        rule = "seq_gap" if said > expected else "seq_repeat"
        reason = f"seq is {said}, expected {expected}: the records of the space have no gaps"
        yield Finding(said, int(times[order[place]]), rule, "flaw", None, None, reason, None)
