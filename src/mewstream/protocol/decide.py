"""``decide``: which records follow from a command, given a state and a time. It changes nothing.

The rules about participants are here, those about streams in :mod:`stream_rules` and :mod:`right_rules`, those about
frames in :mod:`frame_rules`, and those about proposals in :mod:`proposal_rules`. Checks come in this order, and the
first that fails is reported: shape, stream exists, sender's right, operation valid, other participant present.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mewstream.protocol import commands, kinds
from mewstream.protocol.access_rules import ACCESS_RULES, access_timer_due, banned, leave
from mewstream.protocol.admission_rules import EXPIRED, REPLACED, TOKEN_EXPIRED, admit, end_admission
from mewstream.protocol.capabilities import Capabilities
from mewstream.protocol.envelope import Envelope
from mewstream.protocol.errors import (
    AlreadyExists,
    InvalidOperation,
    InvalidRequest,
    LimitExceeded,
    PeerError,
    ReservedKind,
    Unauthorized,
    ValidationFailed,
)
from mewstream.protocol.frame_rules import check_large_data, decide_data, decide_frames
from mewstream.protocol.giving import pattern_list, patterns_of, require_held
from mewstream.protocol.history_rules import check_read, read_history
from mewstream.protocol.identifiers import GATEWAY_IDS, describe, required_id
from mewstream.protocol.interest import EXTENSION
from mewstream.protocol.interest_rules import INTEREST_RULES, interest_on_join
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.proposal_rules import PROPOSAL_RULES
from mewstream.protocol.records import (
    CapabilitiesGranted,
    CapabilitiesRevoked,
    ClockJumped,
    EnvelopeAccepted,
    FrameBlock,
    FramesDropped,
    Joined,
    Paused,
    Record,
    Refused,
    ShutDown,
    SpaceStarted,
    Suspended,
    Unpaused,
)
from mewstream.protocol.refusals import excerpt, write_refusal
from mewstream.protocol.right_rules import (
    RIGHT_RULES,
    grants_on_join,
    require_present,
    revoke_on_suspension,
    stream_timer_due,
)
from mewstream.protocol.state import Answer, SpaceState
from mewstream.protocol.stream_rules import STREAM_RULES, capability_violation, require_capability
from mewstream.protocol.times import SECOND
from mewstream.protocol.write_request_rules import WRITE_REQUEST_RULES

MAX_PAUSE_SECONDS = 7 * 86_400
#: Bytes of a payload above which rights are checked before it is decoded. A smaller one takes no time to decode, so
#: that its sender can be told of flaws in it first.
LARGE_PAYLOAD = 16 << 10


class Repetition(msgspec.Struct, frozen=True):
    """An envelope id came a second time: nothing happens, and its sender is answered as before.

    ``answer.records`` are what answered it. If there are none, the envelope was relayed, and its sender gets it again.
    """

    sender: str
    envelope: Envelope
    answer: Answer


class Decision(msgspec.Struct, frozen=True):
    """What follows from a command."""

    written: Sequence[Record | FrameBlock]
    """In the order of the log. Raw frames are a block here."""
    repetition: Repetition | None = None
    is_recorded: bool = True
    """False if a refusal was only counted, because there were many or because the journal cannot be written."""
    undecided: Sequence[bytes] = ()
    """Frames of the command that can be judged only after ``written`` has been applied."""

    @property
    def records(self) -> list[Record]:
        """The same as ``written``, with a record for each frame."""
        return [
            record for each in self.written for record in (each.frames() if isinstance(each, FrameBlock) else (each,))
        ]


def decide(state: SpaceState, now: int, command: commands.Command) -> Decision:
    """What follows from a command. A peer's mistake is an outcome (``Refused``), not an exception."""
    if isinstance(command, commands.Send):
        return _send(state, now, command.sender, command.envelope)
    ledger = Ledger(state, now)
    if isinstance(command, commands.SendFrames):
        undecided = decide_frames(ledger, command.sender, command.stream, command.data, command.opcode, command.id)
        return Decision(ledger.records, undecided=undecided)
    _happen(ledger, command)
    return Decision(ledger.records)


def _happen(ledger: Ledger, command: commands.Command) -> None:
    state = ledger.state
    match command:
        case commands.Start():
            ledger.write(SpaceStarted, epoch=command.epoch, config=command.config)
        case commands.Admit():
            admit(ledger, command)
        case commands.EndAdmission():
            if command.participant in state.admitted:
                end_admission(ledger, command.participant, REPLACED)
        case commands.Join():
            _join(ledger, command)
        case commands.Disconnect():
            present = state.participants.get(command.participant)
            # A connection that was replaced or suspended has nothing left to take away.
            if present is not None and present.connected and present.session == command.session:
                grace = state.policies.reconnect_grace
                if grace > 0 and not command.is_final:
                    suspended = _suspend(ledger, command.participant, grace, command.reason)
                    revoke_on_suspension(ledger, command.participant, command.reason, suspended.seq)
                else:
                    leave(ledger, command.participant, command.reason)
        case commands.Suspend():
            if state.is_present(command.participant):
                _suspend(ledger, command.participant, state.policies.suspend_for, command.reason)
        case commands.Refuse():
            fields = msgspec.structs.asdict(command)
            fields["excerpt"] = excerpt(command.excerpt, state)
            ledger.write(Refused, remember=False, **fields)
        case commands.ReadHistory():
            read_history(ledger, command)
        case commands.ReportDrop():
            ledger.write(FramesDropped, **msgspec.structs.asdict(command))
        case commands.ClockJump():
            _jump(ledger, command)
        case commands.Tick():
            _tick(ledger)


# -- participants ---------------------------------------------------------------------------------


def _join(ledger: Ledger, command: commands.Join) -> None:
    state, id = ledger.state, command.participant
    if (until := state.banned.get(id)) is not None:
        write_refusal(ledger, banned(until), sender=id, kind=kinds.JOIN)
        return
    present = state.participants.get(id)
    if present is None and len(state.participants) >= state.limits.participants_per_space:
        flaw = LimitExceeded(
            f"this space has its {state.limits.participants_per_space} participants",
            limit="participants_per_space",
        )
        write_refusal(ledger, flaw, sender=id, kind=kinds.JOIN)
        return
    interest = None
    if EXTENSION in (command.extensions or ()):
        interest = interest_on_join(state, id, command.interest, continues=command.continues)
    ledger.write(
        Joined,
        participant=id,
        capabilities=state.effective_capabilities(id),
        transport=command.transport,
        resumed=present is not None and not present.connected,
        replaced=present is not None and present.connected,
        continues=present is not None and command.continues,
        extensions=command.extensions,
        welcome_digest=str(state.welcome_digest if present else state.welcome_digest.with_participant(id)),
        interest=interest,
    )
    grants_on_join(ledger, id)


def _suspend(ledger: Ledger, participant: str, seconds: float, reason: str) -> Suspended:
    until = ledger.now + round(seconds * SECOND)
    # A second reason to wait never shortens the first.
    until = max(until, ledger.state.timers.get(("rejoin", participant, ""), 0))
    return ledger.write(Suspended, participant=participant, until=until, reason=reason)


def _jump(ledger: Ledger, command: commands.ClockJump) -> None:
    """A pause that is not over still lasts as long as was asked for. Its new end is recorded for later readers."""
    jumped = ledger.write(ClockJumped, **msgspec.structs.asdict(command))
    if command.shift:
        for participant, pause in ledger.state.paused.items():
            if pause.until is not None and pause.until > jumped.ts - command.shift:
                ledger.write(
                    Paused,
                    jumped.seq,
                    participant=participant,
                    until=pause.until + command.shift,
                    by=kinds.GATEWAY,
                    request_id=pause.request_id,
                )


def _tick(ledger: Ledger) -> None:
    """Carry out the earliest deadline that has passed. More may have: call again after applying the records."""
    state = ledger.state
    earliest = state.timers.earliest()
    if earliest is None or earliest[0] > ledger.now:
        return
    timer = earliest[1]
    what, name, _ = timer
    if what == "rejoin":
        leave(ledger, name, "disconnected")
    elif what == "admission":
        ended = end_admission(ledger, name, EXPIRED)
        if state.is_present(name):
            leave(ledger, name, TOKEN_EXPIRED, ended.seq)
    elif what in ("ban", "invitation"):
        access_timer_due(ledger, what, name)
    elif what == "pause":
        request_id = state.paused[name].request_id
        ledger.write(Unpaused, participant=name, by=kinds.GATEWAY, request_id=request_id)
    else:
        stream_timer_due(ledger, timer)


# -- envelopes ------------------------------------------------------------------------------------


def _send(state: SpaceState, now: int, sender: str, envelope: Envelope) -> Decision:
    ledger = Ledger(state, now)
    try:
        if envelope.id is not None:
            answer = state.answers.get(sender, {}).get(envelope.id)
            if answer is not None:
                if answer.digest != envelope.digest:
                    raise InvalidRequest(f"the id {envelope.id!r} was used for another message of yours: use a new id")
                return Decision([], Repetition(sender, envelope, answer))
            _check_id_is_free(state, sender, envelope.id)
        _check_envelope(ledger, sender, envelope)
        rule = _RULES.get(envelope.kind, _relay)
        rule(ledger, sender, envelope)
    except PeerError as flaw:
        # Records that were written so far are dropped: nothing is accepted in part.
        ledger = Ledger(state, now)
        write_refusal(
            ledger,
            flaw,
            sender=sender,
            kind=envelope.kind,
            id=envelope.id,
            # A clash of ids must not overwrite the answer that is remembered for the id.
            remember=not isinstance(flaw, InvalidRequest),
            digest=envelope.digest,
            payload=envelope.payload_raw,
        )
    return Decision(ledger.records)


def _check_id_is_free(state: SpaceState, sender: str, id: str) -> None:
    """Participants refer to messages by id, so no two participants may use the same one."""
    if id.startswith(GATEWAY_IDS):
        raise InvalidRequest(f"ids that begin with {GATEWAY_IDS} are those of the gateway: use another id")
    for known in (state.used_ids, state.proposals.proposers):
        if known.get(id, sender) != sender:
            raise InvalidRequest(f"the id {id!r} was used by another participant: use a new id")


def _check_envelope(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    """Checks that are the same for every kind: shape, reserved kinds, identity, pause, shutdown."""
    kind = envelope.kind
    if envelope.sender is not None and envelope.sender != sender:
        raise Unauthorized(
            f"from is {envelope.sender[:40]!r}, but this connection is {sender!r}: leave from out or use that",
            expected_from=sender,
        )
    if kind in kinds.RESERVED or kind.startswith("system/"):
        raise ReservedKind(f"{kind} is reserved for the gateway", attempted_kind=kind)
    if len(envelope.payload_raw) > LARGE_PAYLOAD:
        _check_large(ledger, sender, envelope)
    if kind == kinds.CHAT:
        _require_text(envelope, "text")
    elif kind == kinds.MCP_REQUEST:
        _require_text(envelope, "method")
    if sender in ledger.state.banned:
        raise banned(ledger.state.banned[sender])
    if kind == kinds.STREAM_DATA:
        return  # it is judged as frames are, after the right to write
    if sender in ledger.state.shut_down and kind not in kinds.AFTER_SHUTDOWN:
        allowed = " and ".join(sorted(kinds.AFTER_SHUTDOWN))
        raise InvalidOperation(f"you were shut down: until you join again, only {allowed} are accepted", shut_down=True)
    if ledger.state.paused and kind not in kinds.WHILE_PAUSED and ledger.state.is_paused(sender, ledger.now):
        raise InvalidOperation(
            f"you are paused: until you are resumed, only {', '.join(sorted(kinds.WHILE_PAUSED))} are accepted"
        )


def _check_large(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    """Refuse a large payload without decoding it if its sender cannot be allowed to send it."""
    kind, state = envelope.kind, ledger.state
    limits = state.limits
    if kind == kinds.STREAM_DATA:
        check_large_data(ledger, sender, envelope)
        return
    if kind in _SMALL and len(envelope.payload_raw) > limits.control_bytes:
        raise LimitExceeded(f"the payload of {kind} is larger than {limits.control_bytes} bytes", limit="control_bytes")
    if kind in kinds.ALWAYS_ALLOWED or kind in _BY_RIGHT:
        return
    required = kinds.STREAM_MANAGE if kind == kinds.STREAM_ANNOUNCE else kind
    if not state.capabilities(sender).may_allow(required):
        raise capability_violation(state, sender, kind, required=required)


def _require_text(envelope: Envelope, key: str) -> None:
    value = envelope.payload.get(key)
    if not isinstance(value, str):
        raise ValidationFailed(f"{envelope.kind} needs payload.{key}, a string, got {describe(value)}", field=key)


def _relay(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    require_capability(ledger, sender, envelope)
    ledger.accept(sender, envelope)


def _capability_grant(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state, payload = ledger.state, envelope.payload
    recipient = required_id(payload, "recipient", max_bytes=state.limits.id_bytes)
    given = pattern_list(payload.get("capabilities"))
    require_capability(ledger, sender, envelope)
    patterns = patterns_of(given, state.limits, beside=state.capability_list(recipient)).as_list()
    for pattern in patterns:
        if pattern["kind"].startswith("!"):
            # It would silence the recipient, who could not even take it back.
            raise InvalidOperation(f"a grant gives, and {pattern['kind']} takes away: revoke instead")
    require_held(state, sender, patterns, "you cannot give what you do not hold")
    if any(envelope.id in grants for grants in state.capability_grants.values()):
        raise AlreadyExists(f"there is a capability grant with the id {envelope.id!r}: use another id")
    if sum(map(len, state.capability_grants.values())) >= state.limits.capability_grants:
        raise LimitExceeded("too many capability grants in this space", limit="capability_grants")
    require_present(state, recipient)
    accepted = ledger.accept(sender, envelope)
    ledger.write(
        CapabilitiesGranted,
        accepted.seq,
        grant_id=accepted.id,
        participant=recipient,
        capabilities=patterns,
        by=sender,
    )


def _capability_revoke(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    """Revoke by ``grant_id``, or by ``recipient`` and ``capabilities``. The latter takes everything that was granted to
    the recipient and that these patterns include, which may be nothing."""
    state, payload = ledger.state, envelope.payload
    max_bytes = state.limits.id_bytes
    named = payload.get("recipient")
    if named is not None or payload.get("grant_id") is None:
        named = required_id(payload, "recipient", max_bytes=max_bytes)
    if payload.get("grant_id") is not None:
        grant_id = required_id(payload, "grant_id", max_bytes=max_bytes)
        require_capability(ledger, sender, envelope)
        recipient = _holder_of(state, grant_id, named)
        remaining: dict[str, list[dict[str, Any]]] = {grant_id: []}
    else:
        assert named is not None
        recipient = named
        given = pattern_list(payload.get("capabilities"))
        require_capability(ledger, sender, envelope)
        remaining = _remaining(state, recipient, patterns_of(given, state.limits))
    _require_revocable(state, sender, recipient, remaining)
    accepted = ledger.accept(sender, envelope)
    ledger.write(CapabilitiesRevoked, accepted.seq, participant=recipient, remaining=remaining, by=sender)


def _holder_of(state: SpaceState, grant_id: str, named: str | None) -> str:
    holders = [who for who, grants in state.capability_grants.items() if grant_id in grants]
    if not holders or named not in (None, holders[0]):
        whom = f" to {named!r}" if named is not None else ""
        raise InvalidOperation(f"there is no capability grant{whom} with the id {grant_id!r}")
    return holders[0]


def _remaining(state: SpaceState, recipient: str, revoked: Capabilities) -> dict[str, list[dict[str, Any]]]:
    """What remains of each grant from which something is taken."""
    grants = state.capability_grants.get(recipient)
    if not grants:
        return {}
    taken = revoked.taking(Capabilities([pattern for granted in grants.values() for pattern in granted]))
    remaining = {}
    place = 0
    for grant_id, granted in grants.items():
        kept = [pattern for number, pattern in enumerate(granted, place) if number not in taken]
        if len(kept) < len(granted):
            remaining[grant_id] = kept
        place += len(granted)
    return remaining


def _require_revocable(
    state: SpaceState, sender: str, recipient: str, remaining: dict[str, list[dict[str, Any]]]
) -> None:
    """A participant may revoke what it has granted, what was granted to itself, and whatever it could have granted."""
    for grant_id, kept in remaining.items():
        if sender not in (recipient, state.granters.get(grant_id)):
            # By identity: True equals 1 in Python, and these are different rights.
            left = set(map(id, kept))
            taken = [pattern for pattern in state.capability_grants[recipient][grant_id] if id(pattern) not in left]
            require_held(state, sender, taken, "you cannot take what another has granted and you do not hold")


def _pause(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    seconds = envelope.payload.get("timeout_seconds")
    until = None
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
            raise ValidationFailed("payload.timeout_seconds must be a positive number", field="timeout_seconds")
        until = ledger.now + round(min(seconds, MAX_PAUSE_SECONDS) * SECOND)
    accepted, targets = _accept_for(ledger, sender, envelope)
    for target in targets:
        ledger.write(Paused, accepted.seq, participant=target, until=until, by=sender, request_id=accepted.id)


def _resume(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    accepted, targets = _accept_for(ledger, sender, envelope)
    for target in targets:
        if target in ledger.state.paused:
            ledger.write(Unpaused, accepted.seq, participant=target, by=sender)


def _shutdown(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    accepted, targets = _accept_for(ledger, sender, envelope)
    for target in targets:
        ledger.write(ShutDown, accepted.seq, participant=target, by=sender)


def _accept_for(ledger: Ledger, sender: str, envelope: Envelope) -> tuple[EnvelopeAccepted, list[str]]:
    """Accept an envelope that acts on the participants in ``to``, who must be present. One that resumes may leave them
    out, and then acts on its sender."""
    targets = list(dict.fromkeys(envelope.to or ()))
    if not targets and envelope.kind == kinds.RESUME and ledger.state.is_present(sender):
        targets = [sender]
    if not targets:
        raise ValidationFailed(f"{envelope.kind} needs to: the participants it is for", field="to")
    require_capability(ledger, sender, envelope)
    for target in targets:
        require_present(ledger.state, target)
    return ledger.accept(sender, envelope), targets


#: Kinds that take a right on the stream, and not a capability.
_BY_RIGHT = (STREAM_RULES.keys() | RIGHT_RULES.keys() | WRITE_REQUEST_RULES.keys() | INTEREST_RULES.keys()) - {
    kinds.STREAM_REQUEST,
    kinds.STREAM_ANNOUNCE,
}

_RULES = {
    kinds.CAPABILITY_GRANT: _capability_grant,
    kinds.CAPABILITY_REVOKE: _capability_revoke,
    kinds.PAUSE: _pause,
    kinds.RESUME: _resume,
    kinds.SHUTDOWN: _shutdown,
    kinds.STREAM_DATA: decide_data,
    kinds.STREAM_READ: check_read,
    **ACCESS_RULES,
    **PROPOSAL_RULES,
    **STREAM_RULES,
    **RIGHT_RULES,
    **INTEREST_RULES,
    **WRITE_REQUEST_RULES,
}

#: Kinds that the gateway acts on, whose payloads must be small. Opening a stream has a limit of its own.
_SMALL = _RULES.keys() - PROPOSAL_RULES.keys() - {kinds.STREAM_DATA, kinds.STREAM_REQUEST, kinds.STREAM_ANNOUNCE}
