"""A state as bytes, and back: so that a start need not fold the whole log."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from mewstream.protocol.fold import digest_stream, index_stream
from mewstream.protocol.interest import InterestLog, Names
from mewstream.protocol.interest_state import connected
from mewstream.protocol.policy import Delivery, Limits, Policies
from mewstream.protocol.proposals import Proposals
from mewstream.protocol.records import AnyRecord
from mewstream.protocol.state import Admission, Answer, Participant, Pause, Rights, SpaceState, Stream
from mewstream.protocol.timers import Timers

SNAPSHOT_VERSION = 1


class _Answer(msgspec.Struct):
    digest: int
    seq: int
    ts: int
    records: list[AnyRecord]


class _Snapshot(msgspec.Struct):
    """The fields of :class:`SpaceState` in JSON's terms; what follows from others is left out."""

    version: int
    id: str
    epoch: str
    epochs: dict[str, int]
    seq: int
    ts: int
    config: dict[str, Any]
    roster: dict[str, list[dict[str, Any]]]
    invited: dict[str, list[dict[str, Any]]]
    capability_grants: dict[str, dict[str, list[dict[str, Any]]]]
    participants: dict[str, Participant]
    first_joins: dict[str, int]
    paused: dict[str, Pause | int]
    """A number: until when, or -1 for an open end, as earlier versions wrote it."""
    connected: int
    streams: dict[str, Stream]
    aliases: dict[str, str]
    rights: dict[str, Rights]
    stream_counter: int
    timers: list[tuple[str, str, str, int]]
    answers: dict[str, dict[str, _Answer]]
    shut_down: dict[str, None] = {}
    granters: dict[str, str] = {}
    proposals: list[tuple[str, str]] = []
    interests: dict[str, InterestLog] = {}
    ended: dict[str, tuple[int, Names]] = {}
    ended_before: int = 0
    admitted: dict[str, Admission] = {}
    banned: dict[str, int] = {}


#: What is written in another form, and what follows from the rest.
_OTHERWISE = {
    *("timers", "answers", "used_ids", "proposals", "paused", "opened_by", "standing"),
    *("limits", "policies", "delivery", "compiled", "descriptions", "audiences", "welcome_digest"),
}
_SHARED = {field.name for field in dataclasses.fields(SpaceState)} - _OTHERWISE
assert set(_Snapshot.__struct_fields__) >= _SHARED, "a snapshot must hold the whole state"


def dump(state: SpaceState) -> bytes:
    return msgspec.json.encode(
        {
            "version": SNAPSHOT_VERSION,
            "timers": [(*timer, due) for timer, due in state.timers.items()],
            "answers": state.answers,
            "paused": state.paused,
            "proposals": list(state.proposals.proposers.items()),
            **{name: getattr(state, name) for name in _SHARED},
        }
    )


def load(data: bytes) -> SpaceState:
    """Raises :class:`ValueError` if this is no snapshot, or one of another version."""
    try:
        snapshot = msgspec.json.decode(data, type=_Snapshot)
    except (msgspec.MsgspecError, UnicodeDecodeError) as flaw:
        raise ValueError(f"not a snapshot: {flaw}") from None
    if snapshot.version != SNAPSHOT_VERSION:
        raise ValueError(f"a snapshot of version {snapshot.version}, this is {SNAPSHOT_VERSION}")
    state = SpaceState(
        **{name: getattr(snapshot, name) for name in _SHARED},
        limits=msgspec.convert(snapshot.config.get("limits", {}), Limits),
        policies=msgspec.convert(snapshot.config.get("policies", {}), Policies),
        delivery=msgspec.convert(snapshot.config.get("delivery", {}), Delivery),
    )
    for stream in state.streams.values():
        stream.request = stream.request.copy()  # or it would keep the whole snapshot in memory
        index_stream(state, stream)
        digest_stream(state.welcome_digest.add, stream)
    for participant in state.participants:
        state.welcome_digest.add("participant", participant)
        connected(state, participant)
    state.timers = Timers({(what, name, other): due for what, name, other, due in snapshot.timers})
    state.answers = {
        sender: {id: Answer(each.digest, each.seq, each.ts, list(each.records)) for id, each in answers.items()}
        for sender, answers in snapshot.answers.items()
    }
    for sender, answers in state.answers.items():
        state.used_ids.update({id: sender for id, each in answers.items() if not each.is_private})
    state.proposals = Proposals.of(snapshot.proposals)
    for participant, pause in snapshot.paused.items():
        if isinstance(pause, int):
            pause = Pause(None if pause < 0 else pause)
            if pause.until is not None:
                state.timers["pause", participant, ""] = pause.until
        state.paused[participant] = pause
    return state
