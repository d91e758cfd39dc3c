"""Interest within the state of a space: how records change it, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator

from mewstream.protocol.interest import (
    MAX_ENDED,
    NOTHING,
    Interest,
    InterestForgotten,
    InterestLog,
    Names,
)
from mewstream.protocol.records import Joined, StreamOpened, Subscribed, Unsubscribed
from mewstream.protocol.state import SpaceState, Stream


def names_of(stream: Stream) -> Names:
    return Names(stream.id, stream.alias, tuple(str(each["id"]) for each in stream.formats))


def streams_matching(state: SpaceState, interest: Interest) -> Iterator[Stream]:
    """The open streams that are of interest. Only formats and namespaces take a look at every stream."""
    if interest.formats or interest.namespaces:
        for stream in state.streams.values():
            if interest.rate(state.id, names_of(stream)) is not None:
                yield stream
        return
    found = (state.find_stream(name) for name in interest.streams)
    yield from {stream.id: stream for stream in found if stream is not None}.values()


def current_interest(state: SpaceState, participant: str) -> Interest | None:
    """What a participant has subscribed to, or None if its client does not use interest."""
    log = state.interests.get(participant)
    return None if log is None else log.current


# -- how records change it ------------------------------------------------------------------------


def joined(state: SpaceState, record: Joined) -> None:
    state.audiences.leave(record.participant)
    if record.interest is not None or record.participant in state.interests:
        _log(state, record.participant).change(record.seq, record.interest)
    connected(state, record.participant)


def connected(state: SpaceState, participant: str) -> None:
    """Count a participant as a recipient of what it is interested in."""
    interest = current_interest(state, participant)
    if interest is not None and state.is_connected(participant):
        streams = streams_matching(state, interest)
        rates = [(stream.id, interest.rate(state.id, names_of(stream))) for stream in streams]
        state.audiences.choose(participant, interest, rates)


def subscribed(state: SpaceState, record: Subscribed) -> None:
    before = current_interest(state, record.participant) or NOTHING
    interest = before.with_added(record.interest)
    _log(state, record.participant).change(record.seq, interest)
    if record.participant in state.audiences.choosing:
        streams = streams_matching(state, record.interest)
        rates = [(stream.id, interest.rate(state.id, names_of(stream))) for stream in streams]
        state.audiences.choose(record.participant, interest, rates)


def unsubscribed(state: SpaceState, record: Unsubscribed) -> None:
    before = current_interest(state, record.participant) or NOTHING
    interest = before.without(record.interest)
    _log(state, record.participant).change(record.seq, interest)
    if record.participant in state.audiences.choosing:
        streams = [state.streams[id] for id in state.audiences.streams_of(record.participant)]
        rates = [(stream.id, interest.rate(state.id, names_of(stream))) for stream in streams]
        state.audiences.choose(record.participant, interest, rates)


def stream_opened(state: SpaceState, stream: Stream) -> None:
    if state.audiences.choosing:
        state.audiences.opened(state.id, names_of(stream))


def stream_ended(state: SpaceState, stream: Stream) -> None:
    state.audiences.ended(stream.id)
    if state.interests and (stream.alias is not None or stream.formats):
        state.ended[stream.id] = state.seq, names_of(stream)
        if len(state.ended) > MAX_ENDED:
            state.ended_before, _ = state.ended.pop(next(iter(state.ended)))


def _log(state: SpaceState, participant: str) -> InterestLog:
    return state.interests.setdefault(participant, InterestLog())


# -- what follows from it -------------------------------------------------------------------------


def wants_frames(state: SpaceState, participant: str, stream: Stream) -> bool:
    """Whether a connected participant is interested in a stream, or gets everything that it may read."""
    audiences = state.audiences
    return participant not in audiences.choosing or participant in audiences.listeners.get(stream.id, ())


def remembered_since(state: SpaceState, participant: str) -> int:
    """The first seq from which on it is known which frames a participant was interested in."""
    log = state.interests.get(participant)
    return 0 if log is None else max(log.changes[0].seq, state.ended_before)


class PastInterest:
    """What a participant was interested in, for a reader of the log that goes on from some seq. It follows the records
    it is shown, and knows nothing of the state any more, so that it may go to a thread."""

    def __init__(self, state: SpaceState, participant: str, seq: int) -> None:
        """Raises :class:`InterestForgotten` if it is not remembered what held after ``seq``."""
        self._space = state.id
        self._participant = participant
        self._interest: Interest | None = None
        self._names: dict[str, Names] = {}
        self._wanted: dict[str, bool] = {}
        """What was answered since the interest has last changed."""
        log = state.interests.get(participant)
        if log is not None:
            since = remembered_since(state, participant)
            if seq < since:
                raise InterestForgotten(since)
            self._interest = log.at(seq)
            self._names = {id: names for id, (_, names) in state.ended.items()}
            self._names |= {each.id: names_of(each) for each in state.streams.values() if each.alias or each.formats}

    def follow(self, record: object) -> None:
        """Take notice of a record that is no frame."""
        match record:
            case Joined(participant=participant, interest=interest) if participant == self._participant:
                self._changed(interest)
            case Subscribed(participant=participant, interest=given) if participant == self._participant:
                self._changed((self._interest or NOTHING).with_added(given))
            case Unsubscribed(participant=participant, interest=given) if participant == self._participant:
                self._changed((self._interest or NOTHING).without(given))

            case StreamOpened(stream_id=id, alias=alias, formats=formats):
                self._names[id] = Names(id, alias, tuple(str(each["id"]) for each in formats))

    def _changed(self, interest: Interest | None) -> None:
        self._interest = interest
        self._wanted.clear()

    def wants(self, stream_id: str) -> bool:
        if self._interest is None:
            return True
        wanted = self._wanted.get(stream_id)
        if wanted is None:
            names = self._names.get(stream_id) or Names(stream_id)
            wanted = self._wanted[stream_id] = self._interest.rate(self._space, names) is not None
        return wanted
