"""``apply``: the only place where the state of a space changes, live and in recovery alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from mewstream.protocol import delegation, interest_state, kinds
from mewstream.protocol import transitions as table
from mewstream.protocol.identifiers import gateway_message_id
from mewstream.protocol.policy import Delivery, Limits, Policies
from mewstream.protocol.records import (
    AdmissionEnded,
    Admitted,
    Banned,
    CapabilitiesGranted,
    CapabilitiesRevoked,
    ClockJumped,
    EnvelopeAccepted,
    Frame,
    FrameBlock,
    Invited,
    Joined,
    Left,
    OwnershipTransferred,
    Paused,
    ReadGranted,
    ReadRevoked,
    Record,
    Refused,
    ShutDown,
    SpaceStarted,
    StreamEnded,
    StreamOpened,
    StreamReused,
    StreamStarted,
    Subscribed,
    Suspended,
    Unbanned,
    Uninvited,
    Unpaused,
    Unsubscribed,
    WriteDenied,
    WriteGranted,
    WriteRequested,
    WriteRevoked,
)
from mewstream.protocol.state import (
    Admission,
    Answer,
    Participant,
    Pause,
    PendingRight,
    Rights,
    SpaceState,
    Stream,
    WriteRequest,
    WriteRight,
    stream_number,
)
from mewstream.protocol.times import SECOND

#: Participants whose answers are remembered. The one that has been silent for longest is forgotten first.
MAX_REMEMBERED_PARTICIPANTS = 10_000
#: Streams that have ended and whose history may not be read, which are remembered one by one.
MAX_HIDDEN_STREAMS = 10_000
#: Runs of the gateway whose positions are still understood.
MAX_EPOCHS = 1_000


def apply(state: SpaceState, record: Record | FrameBlock) -> None:
    """Fold one record, or a block of frames, into the state. They come in the order of their ``seq``."""
    state.seq = record.seq
    state.ts = record.ts
    change = _CHANGES.get(type(record))
    if change is not None:
        change(state, record)


def fold(space: str, records: Iterable[Record]) -> SpaceState:
    """The state that a log describes."""
    state = SpaceState(space)
    for record in records:
        apply(state, record)
    return state


# -- frames and envelopes -------------------------------------------------------------------------


def _frames(state: SpaceState, record: Frame | FrameBlock) -> None:
    count = len(record.data) if isinstance(record, FrameBlock) else 1
    state.seq = record.seq + count - 1
    stream = state.streams[record.stream_id]
    stream.frames = record.stream_seq + count - 1
    stream.last_seq = state.seq
    stream.last_ts = record.ts
    if stream.policy.idle_timeout:
        _await_idle(state, stream)
    right = stream.writers[record.sender]
    if right.is_bounded:
        delegation.spend(stream, record.sender, count)


def _frame(state: SpaceState, record: Frame) -> None:
    _frames(state, record)
    if record.sequence is not None:
        sender = state.participants.get(record.sender)
        stream = state.streams[record.stream_id]
        stream.sequences[record.sender] = (sender.counting_since if sender else 0, record.sequence)
    if record.id is not None:
        _remember(state, record.sender, record.id, Answer(record.digest, record.seq, record.ts))


def _envelope(state: SpaceState, record: EnvelopeAccepted) -> None:
    _remember(state, record.sender, record.id, Answer(record.digest, record.seq, record.ts))
    if record.kind == kinds.MCP_PROPOSAL:
        limits = state.limits
        state.proposals.remember(
            record.id, record.sender, most_of_one=limits.proposals_per_participant, most=limits.proposals_per_space
        )


def _refused(state: SpaceState, record: Refused) -> None:
    if record.id is not None and record.remember:
        _remember(state, record.sender, record.id, Answer(record.digest, record.seq, record.ts, [record]))


def _remember(state: SpaceState, sender: str, id: str, answer: Answer) -> None:
    answers = state.answers.pop(sender, None)
    if answers is None:
        answers = {}
        if len(state.answers) >= MAX_REMEMBERED_PARTICIPANTS:
            silent = next(iter(state.answers))
            for forgotten in state.answers.pop(silent):
                _forget_id(state, silent, forgotten)
    state.answers[sender] = answers
    answers[id] = answer
    if not answer.is_private:
        state.used_ids.setdefault(id, sender)
    while len(answers) > state.limits.remembered_ids:
        oldest = next(iter(answers))
        del answers[oldest]
        _forget_id(state, sender, oldest)


def _subscribed(state: SpaceState, record: Subscribed | Unsubscribed) -> None:
    if isinstance(record, Subscribed):
        interest_state.subscribed(state, record)
    else:
        interest_state.unsubscribed(state, record)
    if record.request_id is not None:
        answer = Answer(record.digest, record.seq, record.ts, [record])
        _remember(state, record.participant, record.request_id, answer)


def _forget_id(state: SpaceState, sender: str, id: str) -> None:
    if state.used_ids.get(id) == sender:
        del state.used_ids[id]


def _answered_by(state: SpaceState, sender: str, request_id: str | None, record: Record) -> None:
    """``record`` is (part of) the answer to an envelope: a repetition gets it again."""
    if request_id is not None:
        answer = state.answers.get(sender, {}).get(request_id)
        if answer is not None:
            answer.records.append(record)


# -- the space and its participants ---------------------------------------------------------------


def _space_started(state: SpaceState, record: SpaceStarted) -> None:
    state.epoch = record.epoch
    state.epochs[record.epoch] = record.seq
    while len(state.epochs) > MAX_EPOCHS:
        del state.epochs[next(iter(state.epochs))]
    state.config = record.config
    state.limits = msgspec.convert(record.config.get("limits", {}), Limits)
    state.policies = msgspec.convert(record.config.get("policies", {}), Policies)
    state.delivery = msgspec.convert(record.config.get("delivery", {}), Delivery)
    configured = record.config.get("participants", {})
    state.roster = {id: list(each["capabilities"]) for id, each in configured.items()}
    # An invitation outlives a restart, but configuration has the last word on a name.
    for id, capabilities in state.invited.items():
        state.roster.setdefault(id, capabilities)
    for id, admission in state.admitted.items():
        state.roster[id] = admission.capabilities
    state.compiled.clear()
    state.descriptions.forget_all()
    for stream in state.streams.values():
        if stream.policy.idle_timeout:
            # Nobody could write while the gateway was down.
            state.timers["idle", stream.id, ""] = record.ts + round(stream.policy.idle_timeout * SECOND)


def _clock_jumped(state: SpaceState, record: ClockJumped) -> None:
    """Deadlines that were given as a number of seconds move with the clock; those that were given as a time, such as
    the expiry of a right, do not. The new ends of pauses are records of their own."""
    before = record.ts - record.shift
    for timer, due in list(state.timers.items()):
        if timer[0] not in ("expire", "pause", "admission", "invitation", "ban") and due > before:
            state.timers[timer] = due + record.shift


def _joined(state: SpaceState, record: Joined) -> None:
    present = state.participants.get(record.participant)
    state.first_joins.setdefault(record.participant, record.seq)
    if present is None or not present.connected:
        state.connected += 1
    if present is None:
        id, seq = record.participant, record.seq
        present = state.participants[id] = Participant(id, seq, record.transport, counting_since=seq)
        state.welcome_digest.add("participant", id)
    else:
        present.session = record.seq
        if not record.continues:
            present.counting_since = record.seq
        present.transport = record.transport
        present.connected = True
    present.extensions = record.extensions
    interest_state.joined(state, record)
    state.shut_down.pop(record.participant, None)
    state.timers.pop(("rejoin", record.participant, ""), None)
    state.timers.pop(("invitation", record.participant, ""), None)
    for stream_id in _owned(state, record.participant):
        state.timers.pop(("owner", stream_id, ""), None)
    for stream_id in _written(state, record.participant):
        state.timers.pop(("absent", stream_id, record.participant), None)


def _left(state: SpaceState, record: Left) -> None:
    present = state.participants.pop(record.participant)
    state.connected -= present.connected
    state.welcome_digest.remove("participant", record.participant)
    state.audiences.leave(record.participant)
    state.descriptions.forget(record.participant)
    state.timers.pop(("rejoin", record.participant, ""), None)
    for stream_id in _asked(state, record.participant):
        stream = state.streams[stream_id]
        _drop_request(state, stream, record.participant)
        stream.last_seq = record.seq
    _await_return(state, record)
    for stream_id in _owned(state, record.participant):
        stream = state.streams[stream_id]
        if stream.policy.on_owner_leave != "keep":
            due = record.ts + round(stream.policy.owner_leave_grace * SECOND)
            state.timers["owner", stream_id, ""] = due


def _suspended(state: SpaceState, record: Suspended) -> None:
    present = state.participants[record.participant]
    state.connected -= present.connected
    present.connected = False
    state.audiences.leave(record.participant)
    state.timers["rejoin", record.participant, ""] = record.until
    if record.reason == "disconnected":
        _await_return(state, record)


def _await_return(state: SpaceState, record: Left | Suspended) -> None:
    """A right that stays for some seconds begins to run out, unless it does already."""
    for stream_id in _written(state, record.participant):
        seconds = state.streams[stream_id].writers[record.participant].on_disconnect
        timer = ("absent", stream_id, record.participant)
        if isinstance(seconds, int | float) and timer not in state.timers:
            state.timers[timer] = record.ts + round(seconds * SECOND)


def _capabilities_granted(state: SpaceState, record: CapabilitiesGranted) -> None:
    state.capability_grants.setdefault(record.participant, {})[record.grant_id] = record.capabilities
    state.granters[record.grant_id] = record.by
    _capabilities_changed(state, record.participant)


def _capabilities_revoked(state: SpaceState, record: CapabilitiesRevoked) -> None:
    grants = state.capability_grants.get(record.participant, {})
    for grant_id, remaining in record.remaining.items():
        if remaining:
            grants[grant_id] = remaining
        else:
            del grants[grant_id]
            state.granters.pop(grant_id, None)
    if not grants:
        state.capability_grants.pop(record.participant, None)
    _capabilities_changed(state, record.participant)


def _invited(state: SpaceState, record: Invited) -> None:
    state.invited[record.participant] = record.capabilities
    state.roster[record.participant] = record.capabilities
    _capabilities_changed(state, record.participant)
    _answered_by(state, record.by, record.request_id, record)
    if record.expires_at is not None:
        state.timers["invitation", record.participant, ""] = record.expires_at


def _uninvited(state: SpaceState, record: Uninvited) -> None:
    id = record.participant
    del state.invited[id]
    state.timers.pop(("invitation", id, ""), None)
    for grant_id in state.capability_grants.pop(id, {}):
        state.granters.pop(grant_id, None)
    if id not in state.admitted and id not in state.config.get("participants", {}):
        del state.roster[id]
    _capabilities_changed(state, id)


def _banned(state: SpaceState, record: Banned) -> None:
    state.banned[record.participant] = record.until
    state.timers["ban", record.participant, ""] = record.until


def _unbanned(state: SpaceState, record: Unbanned) -> None:
    state.banned.pop(record.participant, None)
    state.timers.pop(("ban", record.participant, ""), None)


def _admitted(state: SpaceState, record: Admitted) -> None:
    state.admitted[record.participant] = Admission(record.capabilities, record.until)
    state.roster[record.participant] = record.capabilities
    state.timers["admission", record.participant, ""] = record.until
    _capabilities_changed(state, record.participant)


def _admission_ended(state: SpaceState, record: AdmissionEnded) -> None:
    id = record.participant
    del state.admitted[id]
    del state.timers["admission", id, ""]
    without = state.roster_without_admission(id)
    if without is None:
        del state.roster[id]
    else:
        state.roster[id] = without
    _capabilities_changed(state, id)


def _capabilities_changed(state: SpaceState, participant: str) -> None:
    state.compiled.pop(participant, None)
    state.descriptions.forget(participant)


def _paused(state: SpaceState, record: Paused) -> None:
    state.paused[record.participant] = Pause(record.until, record.request_id)
    timer = ("pause", record.participant, "")
    if record.until is None:
        state.timers.pop(timer, None)
    else:
        state.timers[timer] = record.until


def _unpaused(state: SpaceState, record: Unpaused) -> None:
    state.paused.pop(record.participant, None)
    state.timers.pop(("pause", record.participant, ""), None)


def _shut_down(state: SpaceState, record: ShutDown) -> None:
    state.shut_down[record.participant] = None


# -- the life of a stream -------------------------------------------------------------------------


def _stream_opened(state: SpaceState, record: StreamOpened) -> None:
    stream = Stream.opened(record, open_id=gateway_message_id(state.epoch, record.seq))
    state.streams[stream.id] = stream
    state.stream_counter += 1
    index_stream(state, stream)
    digest_stream(state.welcome_digest.add, stream)
    _add_right(state, stream.owner, "owns", stream.id)
    for writer in stream.writers:
        _add_right(state, writer, "writes", stream.id)
    for reader in stream.readers or ():
        _add_right(state, reader, "reads", stream.id)
    if record.alias is not None:
        state.aliases[record.alias] = stream.id
    interest_state.stream_opened(state, stream)
    if record.start_by is not None:
        state.timers["start", stream.id, ""] = record.start_by
    _await_idle(state, stream)
    _answered_by(state, record.owner, record.request_id, record)


def _stream_reused(state: SpaceState, record: StreamReused) -> None:
    _remember(state, record.owner, record.request_id, Answer(record.digest, record.seq, record.ts, [record]))


def _touched(state: SpaceState, stream: Stream, record: Record) -> None:
    """Something of a stream has changed, so that it is not idle."""
    stream.last_seq = record.seq
    stream.last_ts = record.ts
    _await_idle(state, stream)


def _await_idle(state: SpaceState, stream: Stream) -> None:
    if stream.policy.idle_timeout:
        state.timers["idle", stream.id, ""] = stream.last_ts + round(stream.policy.idle_timeout * SECOND)


def index_stream(state: SpaceState, stream: Stream) -> None:
    """Add a stream to the indexes. A snapshot leaves them out."""
    for opened_by in (stream.request_id, stream.open_id):
        state.opened_by.setdefault(opened_by, {})[stream.id] = None
    for participant in (*stream.auto_grant, *stream.pending):
        state.standing.setdefault(participant, {})[stream.id] = None


def digest_stream(add_or_remove: Callable[..., None], stream: Stream) -> None:
    """Tell the digest of the welcome of a whole stream."""
    add_or_remove("stream", stream.id, stream.owner, stream.status)
    for writer, right in stream.writers.items():
        add_or_remove("writer", stream.id, writer, right.conditions)
    if stream.readers is not None:
        add_or_remove("readers", stream.id)
    for reader in stream.readers or ():
        add_or_remove("reader", stream.id, reader)


def _drop_indexed(index: dict[str, dict[str, None]], key: str, stream_id: str) -> None:
    streams = index.get(key)
    if streams is not None:
        streams.pop(stream_id, None)
        if not streams:
            del index[key]


def _end_standing(state: SpaceState, stream: Stream, participant: str) -> None:
    stream.auto_grant.remove(participant)
    if participant not in stream.pending:
        _drop_indexed(state.standing, participant, stream.id)


def _drop_pending(state: SpaceState, stream: Stream, participant: str) -> None:
    if stream.pending.pop(participant, None) is not None:
        state.timers.pop(("expire", stream.id, participant), None)
        if participant not in stream.auto_grant:
            _drop_indexed(state.standing, participant, stream.id)


def _stream_started(state: SpaceState, record: StreamStarted) -> None:
    stream = state.streams[record.stream_id]
    state.welcome_digest.remove("stream", stream.id, stream.owner, stream.status)
    stream.status = table.BY_EVENT_AND_STATE[kinds.STREAM_START, stream.status].target
    state.welcome_digest.add("stream", stream.id, stream.owner, stream.status)
    stream.version += 1
    _touched(state, stream, record)
    state.timers.pop(("start", stream.id, ""), None)


def _stream_ended(state: SpaceState, record: StreamEnded) -> None:
    stream = state.streams.pop(record.stream_id)
    stream.version += 1
    if stream.policy.history == "none":
        _hide(state, stream)
    digest_stream(state.welcome_digest.remove, stream)
    if stream.alias is not None:
        state.aliases.pop(stream.alias, None)
    interest_state.stream_ended(state, stream)
    for opened_by in (stream.request_id, stream.open_id):
        _drop_indexed(state.opened_by, opened_by, stream.id)
    for participant in (*stream.auto_grant, *stream.pending):
        _drop_indexed(state.standing, participant, stream.id)
        state.timers.pop(("expire", stream.id, participant), None)
    _drop_right(state, stream.owner, "owns", stream.id)
    for writer in stream.writers:
        _drop_right(state, writer, "writes", stream.id)
        for what in ("expire", "absent"):
            state.timers.pop((what, stream.id, writer), None)
    for reader in stream.readers or ():
        _drop_right(state, reader, "reads", stream.id)
    for what in ("start", "owner", "idle"):
        state.timers.pop((what, stream.id, ""), None)
    for participant in stream.write_requests:
        _drop_right(state, participant, "asks", stream.id)


def _hide(state: SpaceState, stream: Stream) -> None:
    hidden = state.hidden_streams
    hidden[stream_number(stream.id)] = None
    if len(hidden) > MAX_HIDDEN_STREAMS:
        lowest = min(hidden)
        del hidden[lowest]
        state.hidden_below = lowest + 1


# -- rights ---------------------------------------------------------------------------------------


def _write_granted(state: SpaceState, record: WriteGranted) -> None:
    stream = state.streams[record.stream_id]
    if record.pending:
        _await_join(state, stream, record)
        _right_changed(state, stream, record)
        return
    _drop_pending(state, stream, record.participant)
    held = stream.writers.get(record.participant)
    right = WriteRight(
        since=held.since if held else record.seq,
        expires_at=record.expires_at,
        frames_left=record.max_frames,
        conditions=record.conditions,
        by=record.by,
        parent=record.parent,
        delegate=record.delegate,
    )
    if held is not None and held.delegate is not None:
        # What a right that is granted again with less depth does not cover any more ends at this very record.
        depth = record.delegate.depth if record.delegate is not None else 0
        for each in delegation.below(stream, record.participant, beyond=depth):
            _drop_writer(state, stream, each)
    _set_writer(state, stream, record.participant, right)
    if record.delegate is not None:
        delegation.narrow(stream, record.participant)
    if record.conditions is not None and record.participant in stream.auto_grant:
        # What was granted under conditions must not come back without them.
        _end_standing(state, stream, record.participant)
    _right_changed(state, stream, record)


def _write_revoked(state: SpaceState, record: WriteRevoked) -> None:
    stream = state.streams[record.stream_id]
    _drop_pending(state, stream, record.participant)
    for each in (*delegation.below(stream, record.participant), record.participant):
        _drop_writer(state, stream, each)
    # An explicit revoke ends a standing grant; one that time or a lost connection caused does not.
    if record.request_id is not None and record.participant in stream.auto_grant:
        _end_standing(state, stream, record.participant)
    _right_changed(state, stream, record)


def _ownership_transferred(state: SpaceState, record: OwnershipTransferred) -> None:
    stream = state.streams[record.stream_id]
    state.welcome_digest.remove("stream", stream.id, stream.owner, stream.status)
    stream.owner = record.new_owner
    state.welcome_digest.add("stream", stream.id, stream.owner, stream.status)
    _drop_right(state, record.previous_owner, "owns", stream.id)
    _add_right(state, record.new_owner, "owns", stream.id)
    held = stream.writers.get(record.new_owner)
    _drop_pending(state, stream, record.new_owner)
    delegation.release(stream, record.new_owner)
    # The right of an owner is never conditional.
    _set_writer(state, stream, record.new_owner, WriteRight(held.since if held else record.seq))
    if record.previous_owner not in record.authorized_writers:
        _drop_writer(state, stream, record.previous_owner)
        if record.previous_owner in stream.auto_grant:
            _end_standing(state, stream, record.previous_owner)
    stream.writers = {writer: stream.writers[writer] for writer in record.authorized_writers}
    state.timers.pop(("owner", stream.id, ""), None)
    if stream.policy.on_owner_leave != "keep" and not state.is_present(record.new_owner):
        state.timers["owner", stream.id, ""] = record.ts + round(stream.policy.owner_leave_grace * SECOND)
    _right_changed(state, stream, record)


def _readers_changed(state: SpaceState, record: ReadGranted | ReadRevoked) -> None:
    stream = state.streams[record.stream_id]
    if record.authorized_readers is not None:
        before, after = dict.fromkeys(stream.readers or ()), dict.fromkeys(record.authorized_readers)
        digest = state.welcome_digest
        if stream.readers is None:
            digest.add("readers", stream.id)
        for reader in before:
            _drop_right(state, reader, "reads", stream.id)
            if reader not in after:
                digest.remove("reader", stream.id, reader)
        stream.readers = tuple(record.authorized_readers)
        stream.readers_seq = record.seq
        for reader in after:
            _add_right(state, reader, "reads", stream.id)
            if reader not in before:
                digest.add("reader", stream.id, reader)
    _right_changed(state, stream, record)


def _write_requested(state: SpaceState, record: WriteRequested) -> None:
    stream = state.streams[record.stream_id]
    request = stream.write_requests.setdefault(record.participant, WriteRequest(record.ts))
    request.reason = record.reason
    _touched(state, stream, record)
    _add_right(state, record.participant, "asks", stream.id)


def _write_denied(state: SpaceState, record: WriteDenied) -> None:
    stream = state.streams[record.stream_id]
    _drop_request(state, stream, record.participant)
    _touched(state, stream, record)
    _answered_by(state, record.by, record.request_id, record)


def _drop_request(state: SpaceState, stream: Stream, participant: str) -> None:
    if stream.write_requests.pop(participant, None) is not None:
        _drop_right(state, participant, "asks", stream.id)


def _right_changed(
    state: SpaceState,
    stream: Stream,
    record: WriteGranted | WriteRevoked | OwnershipTransferred | ReadGranted | ReadRevoked,
) -> None:
    stream.version += 1
    _touched(state, stream, record)
    _answered_by(state, record.by, record.request_id, record)


def _set_writer(state: SpaceState, stream: Stream, writer: str, right: WriteRight) -> None:
    held = stream.writers.get(writer)
    if held is not None:
        state.welcome_digest.remove("writer", stream.id, writer, held.conditions)
    state.welcome_digest.add("writer", stream.id, writer, right.conditions)
    stream.writers[writer] = right
    if stream.write_requests:
        _drop_request(state, stream, writer)
    _add_right(state, writer, "writes", stream.id)
    state.timers.pop(("absent", stream.id, writer), None)
    if isinstance(right.on_disconnect, int | float) and not state.is_connected(writer):
        state.timers["absent", stream.id, writer] = state.ts + round(right.on_disconnect * SECOND)
    _set_expiry(state, stream, writer, right.expires_at)


def _await_join(state: SpaceState, stream: Stream, record: WriteGranted) -> None:
    stream.pending[record.participant] = PendingRight(
        record.by, record.reason, record.conditions, record.expires_at, record.max_frames
    )
    state.standing.setdefault(record.participant, {})[stream.id] = None
    _set_expiry(state, stream, record.participant, record.expires_at)


def _set_expiry(state: SpaceState, stream: Stream, writer: str, expires_at: int | None) -> None:
    timer = ("expire", stream.id, writer)
    if expires_at is None:
        state.timers.pop(timer, None)
    else:
        state.timers[timer] = expires_at


def _drop_writer(state: SpaceState, stream: Stream, writer: str) -> None:
    held = stream.writers.pop(writer, None)
    if held is not None:
        state.welcome_digest.remove("writer", stream.id, writer, held.conditions)
        for what in ("expire", "absent"):
            state.timers.pop((what, stream.id, writer), None)
        _drop_right(state, writer, "writes", stream.id)


def _asked(state: SpaceState, participant: str) -> list[str]:
    rights = state.rights.get(participant)
    return list(rights.asks) if rights is not None else []


def _owned(state: SpaceState, participant: str) -> Iterable[str]:
    rights = state.rights.get(participant)
    return rights.owns if rights is not None else ()


def _written(state: SpaceState, participant: str) -> Iterable[str]:
    rights = state.rights.get(participant)
    return rights.writes if rights is not None else ()


def _add_right(state: SpaceState, participant: str, which: str, stream_id: str) -> None:
    """``which`` is ``owns``, ``writes``, ``reads`` or ``asks``."""
    getattr(state.rights.setdefault(participant, Rights()), which)[stream_id] = None
    state.descriptions.forget(participant)


def _drop_right(state: SpaceState, participant: str, which: str, stream_id: str) -> None:
    rights = state.rights.get(participant)
    if rights is not None:
        getattr(rights, which).pop(stream_id, None)
        state.descriptions.forget(participant)
        if not (rights.owns or rights.writes or rights.reads or rights.asks):
            del state.rights[participant]


_CHANGES: dict[type[Record | FrameBlock], Callable[[SpaceState, Any], None]] = {
    FrameBlock: _frames,
    Frame: _frame,
    SpaceStarted: _space_started,
    ClockJumped: _clock_jumped,
    Joined: _joined,
    Left: _left,
    Suspended: _suspended,
    EnvelopeAccepted: _envelope,
    Refused: _refused,
    CapabilitiesGranted: _capabilities_granted,
    CapabilitiesRevoked: _capabilities_revoked,
    Invited: _invited,
    Uninvited: _uninvited,
    Banned: _banned,
    Unbanned: _unbanned,
    Admitted: _admitted,
    AdmissionEnded: _admission_ended,
    Paused: _paused,
    Unpaused: _unpaused,
    ShutDown: _shut_down,
    StreamOpened: _stream_opened,
    StreamReused: _stream_reused,
    StreamStarted: _stream_started,
    StreamEnded: _stream_ended,
    WriteGranted: _write_granted,
    WriteRevoked: _write_revoked,
    OwnershipTransferred: _ownership_transferred,
    WriteRequested: _write_requested,
    WriteDenied: _write_denied,
    ReadGranted: _readers_changed,
    ReadRevoked: _readers_changed,
    Subscribed: _subscribed,
    Unsubscribed: _subscribed,
}
