"""The state of a space: its participants, its streams, and the rights on them.

It is a fold over the records and nothing else: only :mod:`mewstream.protocol.fold` changes it.
What is computed from it (welcome, projections, recipients) is in this module too, in one place.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mewstream.protocol import kinds
from mewstream.protocol.capabilities import EMPTY, Capabilities
from mewstream.protocol.delegation import Delegation
from mewstream.protocol.descriptions import Descriptions
from mewstream.protocol.envelope import encode_json
from mewstream.protocol.errors import ValidationFailed
from mewstream.protocol.identifiers import stream_names
from mewstream.protocol.interest import EXTENSION, Audiences, InterestLog, Names
from mewstream.protocol.policy import Delivery, Limits, Policies
from mewstream.protocol.proposals import Proposals
from mewstream.protocol.records import (
    Record,
    Refused,
    StreamOpened,
    StreamPolicy,
    StreamReused,
    Subscribed,
    Unsubscribed,
)
from mewstream.protocol.timers import Timers
from mewstream.protocol.times import rfc3339
from mewstream.protocol.transitions import Status
from mewstream.protocol.welcome_digest import WelcomeDigest

#: How many rights of one participant are shown as capabilities. The writer and reader sets of streams show all.
MAX_PROJECTIONS = 256
#: How many of its capabilities a participant is shown in a refusal.
_REPEATED_PATTERNS = 16
_REPEATED_BYTES = 2 << 10


class Participant(msgspec.Struct):
    """A participant that is present. ``session`` is the seq of its latest join, ``counting_since`` that of the join
    since which its sequence numbers grow."""

    id: str
    session: int
    transport: str
    counting_since: int
    connected: bool = True
    extensions: list[str] | None = None
    """What its client asked for beyond v0.4. None: it knows v0.4 alone."""


class Pause(msgspec.Struct):
    """A participant may only send acknowledgements, whether it is present or not. ``until`` is None if only another
    participant can end the pause."""

    until: int | None
    request_id: str | None = None


class Admission(msgspec.Struct):
    """What a signed token gives a participant until ``until``, whether it is present or not."""

    capabilities: list[dict[str, Any]]
    until: int


class WriteRight(msgspec.Struct):
    """One writer's right on one stream. ``frames_left`` None: no bound."""

    since: int
    expires_at: int | None = None
    frames_left: int | None = None
    conditions: dict[str, Any] | None = None
    by: str | None = None
    """Who has granted it last; None if it came with the opening or a transfer."""
    parent: str | None = None
    """The delegate that has granted it, and with whose right it ends. None: the owner or a manager has."""
    delegate: Delegation | None = None
    is_bounded: bool = False
    """Whether a frame has to be judged by conditions, its own or those of a right above it."""

    def __post_init__(self) -> None:
        self.is_bounded = self.conditions is not None or self.parent is not None

    @property
    def on_disconnect(self) -> str | float | None:
        """What becomes of it when the connection is lost: ``revoke``, ``keep``, or the seconds for which it stays. It
        is None if the right ends when the writer leaves."""
        return None if self.conditions is None else self.conditions.get("on_disconnect")


class PendingRight(msgspec.Struct):
    """A right to write that waits for somebody to join."""

    by: str
    reason: str | None = None
    conditions: dict[str, Any] | None = None
    expires_at: int | None = None
    max_frames: int | None = None


class WriteRequest(msgspec.Struct):
    """What a participant that wants to write has said. ``ts`` is when it asked first."""

    ts: int
    reason: str | None = None


class Stream(msgspec.Struct):
    id: str
    owner: str
    status: Status
    created: int
    request_id: str
    open_id: str
    request: msgspec.Raw
    """The payload that opened it, as JSON: decoded, thousands of small values would take many times the memory, and a
    snapshot many times as long."""
    policy: StreamPolicy
    writers: dict[str, WriteRight]
    readers: tuple[str, ...] | None
    auto_grant: list[str]
    alias: str | None
    announced: bool
    formats: list[dict[str, Any]]
    pending: dict[str, PendingRight] = {}
    """What is granted to participants when they join."""
    frames: int = 0
    last_seq: int = 0
    last_ts: int = 0
    """When it had its last frame or change, in microseconds."""
    sequences: dict[str, tuple[int, int]] = {}
    """Writer -> (counting since, last sequence) of its ``stream/data``. This outlives a revoke: a writer that is
    granted again within its session continues its numbers."""
    version: int = 0
    """Grows with every change of rights or status, so that caches know when they are stale."""
    readers_seq: int | None = None
    """The record that made the reader set. None if there is no set, and for a set from a snapshot of version 1 of the
    journal, which did not say."""
    opened_seq: int = 0
    """The record that opened it; 0 if a snapshot of an earlier version did not say."""
    write_requests: dict[str, WriteRequest] = {}
    """Those who have asked for the right to write and have no answer yet, in the order in which they asked."""

    def authorized_writers(self) -> list[str]:
        """The owner first, then the others in the order they were granted."""
        return [self.owner, *(writer for writer in self.writers if writer != self.owner)]

    def format(self, format_id: str) -> dict[str, Any] | None:
        return next((each for each in self.formats if each["id"] == format_id), None)

    @classmethod
    def opened(cls, record: StreamOpened, *, open_id: str = "") -> Stream:
        """The stream that a record opens. ``open_id`` is the id of the message that tells of it."""
        return cls(
            id=record.stream_id,
            owner=record.owner,
            status=Status(record.status),
            created=record.ts,
            request_id=record.request_id,
            open_id=open_id,
            request=msgspec.Raw(encode_json(record.request)),
            policy=record.policy,
            writers={writer: WriteRight(record.seq) for writer in record.authorized_writers},
            readers=None if record.authorized_readers is None else tuple(record.authorized_readers),
            auto_grant=list(record.auto_grant),
            alias=record.alias,
            announced=record.status != Status.LIVE,
            formats=record.formats,
            last_seq=record.seq,
            last_ts=record.ts,
            readers_seq=None if record.authorized_readers is None else record.seq,
            opened_seq=record.seq,
        )

    def describe(self, space: str, *, owner_connected: bool) -> dict[str, Any]:
        """One shape for ``stream/open``, ``stream/ready`` and ``active_streams``: every field of the request, then the
        gateway's own, which nothing in a request can override (decision 23)."""
        request = msgspec.json.decode(self.request)
        described: dict[str, Any] = {
            **request,
            "direction": request.get("direction") or "upload",
            **stream_names(space, self.id),
            "owner": self.owner,
            "owner_connected": owner_connected,
            "authorized_writers": self.authorized_writers(),
            "created": rfc3339(self.created),
            "status": str(self.status),
            "encoding": encoding_of(request),
            "last_seq": self.last_seq,
        }
        if self.announced:
            described["capabilities"] = {
                "read": kinds.READ_PROJECTION + self.id,
                "write": kinds.WRITE_PROJECTION + self.id,
            }
        conditions = {
            writer: {**right.conditions, **_frames_left(right)}
            for writer, right in self.writers.items()
            if right.conditions
        }
        for key, value in (
            ("alias", self.alias),
            ("authorized_readers", None if self.readers is None else list(self.readers)),
            ("formats", self.formats or None),
            ("conditions", conditions or None),
            ("pending_writers", list(self.pending) or None),
            ("delegations", self._described_delegations() or None),
            # These are told once, in the answer to a request.
            ("reused", None),
            ("alias_taken_by", None),
            ("write_requests", self._described_requests() or None),
        ):
            if value is None:
                described.pop(key, None)
            else:
                described[key] = value
        return described

    def _described_delegations(self) -> list[dict[str, Any]]:
        return [
            {
                "participant_id": writer,
                "by": right.parent or right.by,
                "depth": 0 if right.delegate is None else right.delegate.depth,
            }
            for writer, right in self.writers.items()
            if right.parent is not None or right.delegate is not None
        ]

    def _described_requests(self) -> list[dict[str, Any]]:
        return [
            {"participant_id": participant, "reason": request.reason, "ts": rfc3339(request.ts)}
            for participant, request in self.write_requests.items()
        ]


class Rights(msgspec.Struct):
    """The rights of one participant, and those it asks for, as ordered sets of stream ids."""

    owns: dict[str, None] = {}
    writes: dict[str, None] = {}
    reads: dict[str, None] = {}
    asks: dict[str, None] = {}


class Answer(msgspec.Struct):
    """How an envelope was answered, kept so that a repetition is answered the same."""

    digest: int
    seq: int
    ts: int
    records: list[Record] = []

    @property
    def is_private(self) -> bool:
        """The envelope reached nobody: others may use its id."""
        private = Refused | StreamReused | Subscribed | Unsubscribed
        return any(isinstance(record, private) for record in self.records)


@dataclass(slots=True)
class SpaceState:
    id: str
    epoch: str = ""
    epochs: dict[str, int] = field(default_factory=dict)
    """The runs of the gateway that this log knows, each with its first seq here."""
    seq: int = 0
    ts: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    policies: Policies = field(default_factory=Policies)
    delivery: Delivery = field(default_factory=Delivery)
    roster: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Everyone who may join, with the capabilities from the configuration, the invitation or a signed token."""
    invited: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    admitted: dict[str, Admission] = field(default_factory=dict)
    """Those who may join because a signed token has named them."""
    banned: dict[str, int] = field(default_factory=dict)
    """Those who may neither join nor send anything, and until when."""
    capability_grants: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    """participant -> grant id -> what was granted at run time."""
    granters: dict[str, str] = field(default_factory=dict)
    """grant id -> who granted it."""
    participants: dict[str, Participant] = field(default_factory=dict)
    paused: dict[str, Pause] = field(default_factory=dict)
    shut_down: dict[str, None] = field(default_factory=dict)
    """Participants from whom nothing is accepted until they join again."""
    first_joins: dict[str, int] = field(default_factory=dict)
    """The seq of each participant's first join. Nothing older is ever replayed to it."""
    connected: int = 0
    """How many of the participants are connected, and not suspended."""
    streams: dict[str, Stream] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    rights: dict[str, Rights] = field(default_factory=dict)
    """An index of the rights in ``streams``, by participant."""
    opened_by: dict[str, dict[str, None]] = field(default_factory=dict)
    """Streams by the ids of the messages that opened them: of the request, and of the answer."""
    standing: dict[str, dict[str, None]] = field(default_factory=dict)
    """Streams by the participants that their ``auto_grant`` names, present or not."""
    stream_counter: int = 0
    hidden_streams: dict[int, None] = field(default_factory=dict)
    """The numbers of streams that have ended and whose history may not be read."""
    hidden_below: int = 0
    """Of streams that have ended, those with a lower number are hidden too: there were too many to tell them apart."""
    timers: Timers = field(default_factory=Timers)
    answers: dict[str, dict[str, Answer]] = field(default_factory=dict)
    used_ids: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Envelope id -> who used it, of all that were accepted and are remembered: the same as in ``answers``."""
    proposals: Proposals = field(default_factory=Proposals)
    interests: dict[str, InterestLog] = field(default_factory=dict)
    """What those participants have subscribed to, now and before, whose clients have ever used interest."""
    ended: dict[str, tuple[int, Names]] = field(default_factory=dict)
    """Streams that have ended, with the seq of their end: by their names it is known who wanted their frames."""
    ended_before: int = 0
    """The end of the last stream that is forgotten there."""
    audiences: Audiences = field(default_factory=Audiences, compare=False, repr=False)
    """The connected participants that use interest, by stream."""
    compiled: dict[str, Capabilities] = field(default_factory=dict, compare=False, repr=False)
    descriptions: Descriptions = field(default_factory=Descriptions, compare=False, repr=False)
    welcome_digest: WelcomeDigest = field(default_factory=WelcomeDigest)
    """Of the participants, the streams and the rights, for the record of the next join."""

    # -- capabilities -------------------------------------------------------------------------

    def capability_list(self, participant: str) -> list[dict[str, Any]]:
        """Configured, invited and granted capabilities, without the projections of rights."""
        configured = self.roster.get(participant, [])
        grants = self.capability_grants.get(participant)
        if not grants:
            return configured
        return configured + [pattern for granted in grants.values() for pattern in granted]

    def roster_without_admission(self, participant: str) -> list[dict[str, Any]] | None:
        """The capabilities that the configuration or an invitation gives. None: neither names the participant."""
        configured = self.config.get("participants", {}).get(participant)
        return self.invited.get(participant) if configured is None else list(configured["capabilities"])

    def capabilities(self, participant: str) -> Capabilities:
        compiled = self.compiled.get(participant)
        if compiled is None:
            # Both together may be beyond the bounds, if the configuration has grown since something was granted, or
            # an older version has recorded more: what is configured holds then.
            compiled = (
                _compiled(self.capability_list(participant)) or _compiled(self.roster.get(participant, [])) or EMPTY
            )
            self.compiled[participant] = compiled
        return compiled

    def effective_capabilities(self, participant: str) -> list[dict[str, Any]]:
        """What a participant is told it may do: with ``stream/write:{id}`` and ``stream/read:{id}``
        as projections of the writer and reader sets (decision 2), up to ``MAX_PROJECTIONS``."""
        listed = self.capability_list(participant)
        rights = self.rights.get(participant)
        if rights is None:
            return listed
        projected = itertools.chain(
            (kinds.WRITE_PROJECTION + stream_id for stream_id in rights.writes),
            (kinds.READ_PROJECTION + stream_id for stream_id in rights.reads),
        )
        return listed + [{"kind": kind} for kind in itertools.islice(projected, MAX_PROJECTIONS)]

    def repeated_capabilities(self, participant: str) -> dict[str, Any]:
        """The capabilities as a refusal shows them: the first ones, and their number if these are not all. The
        projections of rights are left out, because there may be many and refusals are recorded."""
        listed = self.capability_list(participant)
        shown = listed[:_REPEATED_PATTERNS]
        while len(encode_json(shown)) > _REPEATED_BYTES:
            shown = shown[: len(shown) // 2]
        return {"your_capabilities": shown} | ({"your_capabilities_total": len(listed)} if shown != listed else {})

    # -- participants -------------------------------------------------------------------------

    def is_present(self, participant: str) -> bool:
        """Connected, or suspended and expected back."""
        return participant in self.participants

    def knows_extensions(self, participant: str) -> bool:
        """Whether its client has sent ``extensions``. What it does not mean as we do stays metadata otherwise."""
        present = self.participants.get(participant)
        return present is not None and present.extensions is not None

    def uses_interest(self, participant: str) -> bool:
        """Whether its client gets frames of nothing but what it has subscribed to."""
        present = self.participants.get(participant)
        return present is not None and EXTENSION in (present.extensions or ())

    def is_paused(self, participant: str, now: int) -> bool:
        pause = self.paused.get(participant)
        return pause is not None and (pause.until is None or now < pause.until)

    def is_connected(self, participant: str) -> bool:
        present = self.participants.get(participant)
        return present is not None and present.connected

    # -- streams ------------------------------------------------------------------------------

    def find_stream(self, reference: str) -> Stream | None:
        """Find a stream by its id or alias."""
        stream = self.streams.get(reference)
        if stream is None and (aliased := self.aliases.get(reference)) is not None:
            stream = self.streams[aliased]
        return stream

    def is_history_hidden(self, stream_id: str) -> bool:
        """Whether the frames of a stream that has ended are hidden from those who poll."""
        number = stream_number(stream_id)
        return number < self.hidden_below or number in self.hidden_streams

    def recipients(self, stream: Stream) -> list[str]:
        """The participants that get the frames of a stream now: its readers that are connected and interested."""
        present, choosing = self.participants, self.audiences.choosing
        listeners = self.audiences.listeners.get(stream.id, {})
        return [
            each
            for each in (present if stream.readers is None else stream.readers)
            if each in present and present[each].connected and (each not in choosing or each in listeners)
        ]

    def recipient_count(self, stream: Stream) -> int:
        """``len(recipients(stream))``, at no cost if everyone may read."""
        if stream.readers is not None:
            return len(self.recipients(stream))
        audiences = self.audiences
        if not audiences.choosing:
            return self.connected
        return self.connected - len(audiences.choosing) + len(audiences.listeners.get(stream.id, ()))

    def describe_stream(self, stream: Stream) -> dict[str, Any]:
        """A stream as ``active_streams`` shows it."""
        return stream.describe(self.id, owner_connected=self.is_connected(stream.owner))

    # -- the welcome --------------------------------------------------------------------------

    def describe_participant(self, participant: str) -> dict[str, Any]:
        return {"id": participant, "capabilities": self.effective_capabilities(participant)}

    def welcome(
        self,
        participant: str,
        *,
        participants: list[Any] | None = None,
        active_streams: list[Any] | None = None,
    ) -> dict[str, Any]:
        """The payload of ``system/welcome``: the state at this very ``seq``. A caller that makes many welcomes may
        pass the parts that are the same in all of them."""
        if participants is None:
            participants = [self.describe_participant(each) for each in self.participants if each != participant]
        if active_streams is None:
            active_streams = [self.describe_stream(stream) for stream in self.streams.values()]
        return {
            "you": self.describe_participant(participant),
            "participants": participants,
            "active_streams": active_streams,
            "epoch": self.epoch,
            "seq": self.seq,
        }

    def next_deadline(self) -> int | None:
        """The earliest time at which something falls due, or None if nothing does."""
        earliest = self.timers.earliest()
        return None if earliest is None else earliest[0]


def stream_number(id: str) -> int:
    """The number in the id of a stream. Streams are numbered in the order in which they were opened."""
    return int(id.removeprefix("stream-"))


def _compiled(patterns: list[dict[str, Any]]) -> Capabilities | None:
    try:
        return Capabilities(patterns)
    except ValidationFailed:
        return None


def encoding_of(request: dict[str, Any]) -> str:
    """``text`` or ``binary``: a hint for readers, from what the request says of its content."""
    asked = request.get("encoding")
    if asked in ("text", "binary"):
        return str(asked)
    content_type = request.get("content_type")
    if not isinstance(content_type, str):
        return "text"
    essence = content_type.partition(";")[0].strip().lower()
    textual = essence.startswith("text/") or essence.endswith(("json", "jsonl", "json-seq", "xml", "yaml"))
    return "text" if textual else "binary"


def _frames_left(right: WriteRight) -> dict[str, int]:
    return {} if right.frames_left is None else {"frames_left": right.frames_left}
