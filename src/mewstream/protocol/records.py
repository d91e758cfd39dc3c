"""The records: everything that happens in a space, as facts in the order they happened.

``decide`` writes them, ``apply`` folds them into the state, the journal stores them, and
``render`` says what the participants are told. A record holds all that those three need, so that
a message can be sent again years later as it was sent the first time.

``seq`` is gap-free in a space, ``ts`` never decreases, ``cause_seq`` names the record that this
one follows from.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import msgspec

from mewstream.protocol.delegation import Delegation
from mewstream.protocol.interest import Interest

Conditions = dict[str, Any]
"""``{"expires_at": RFC 3339, "max_frames": int, "on_disconnect": str | float}``, each key optional."""


class Record(msgspec.Struct, tag_field="record", kw_only=False, omit_defaults=True):
    seq: int
    ts: int
    cause_seq: int | None


# -- the space and its participants ---------------------------------------------------------------


class SpaceStarted(Record, tag="space-started"):
    """A run of the gateway begins. ``config`` is its configuration, without secrets."""

    epoch: str
    config: dict[str, Any]


class ClockJumped(Record, tag="clock-jumped"):
    """The clock of the machine was set by ``by`` microseconds, which is negative if it was set back.

    The time of a space never runs back. If the clock was set forward, deadlines that were given in seconds have moved
    by ``shift``. ``ahead`` is how far the time of the space is ahead of the machine since then."""

    by: int
    shift: int = 0
    ahead: int = 0


class Joined(Record, tag="joined"):
    """A participant has joined. ``resumed``: it came back within its grace period. ``replaced``: its second connection
    replaced the first. In both cases the others are not told."""

    participant: str
    capabilities: list[dict[str, Any]]
    transport: str
    resumed: bool = False
    replaced: bool = False
    continues: bool = False
    """It continues its session, and so do the sequence numbers of its data."""
    extensions: list[str] | None = None
    """What its client asked for beyond v0.4, sorted. None: it sent no extensions, so it knows v0.4 alone."""
    welcome_digest: str | None = None
    """The digest of what it is told (:mod:`.welcome_digest`). None: an older version has written it."""
    interest: Interest | None = None
    """What it is interested in from here on. None: its client does not use interest."""


class Left(Record, tag="left"):
    participant: str
    reason: str


class Suspended(Record, tag="suspended"):
    """The connection is lost, the rights are kept until ``until`` (microseconds)."""

    participant: str
    until: int
    reason: str


class EnvelopeAccepted(Record, tag="envelope"):
    """An envelope that everyone gets; ``data`` is its normalised JSON."""

    sender: str
    kind: str
    id: str
    digest: int
    data: bytes
    stream_id: str | None = None


class Refused(Record, tag="refused"):
    """Something was refused. ``count`` is how many refusals this record stands for; its sender was told of ``told`` of
    them before. ``ids`` are those of the others, if these are frames that have ids."""

    sender: str
    kind: str
    code: str
    message: str
    http_status: int
    details: dict[str, Any] = {}
    id: str | None = None
    remember: bool = True
    digest: int = 0
    stream_id: str | None = None
    excerpt: str = ""
    count: int = 1
    told: int = 0
    ids: list[str] = []


class CapabilitiesGranted(Record, tag="capabilities-granted"):
    grant_id: str
    participant: str
    capabilities: list[dict[str, Any]]
    by: str


class CapabilitiesRevoked(Record, tag="capabilities-revoked"):
    """``remaining`` is what is left of each touched grant; an empty list ends the grant."""

    participant: str
    remaining: dict[str, list[dict[str, Any]]]
    by: str


class Invited(Record, tag="invited"):
    participant: str
    capabilities: list[dict[str, Any]]
    by: str
    request_id: str
    expires_at: int | None = None
    """When the invitation ends, if nobody has joined by it. None: never."""


class Uninvited(Record, tag="uninvited"):
    """An invitation was taken back (``withdrawn``) or has ended (``expired``), and with it everything that was granted
    to the participant at run time."""

    participant: str
    by: str
    reason: str


class Banned(Record, tag="banned"):
    """A participant may not join, nor send anything over HTTP, until ``until``."""

    participant: str
    until: int
    by: str
    reason: str | None = None


class Unbanned(Record, tag="unbanned"):
    """A ban has ended: by a participant, or by the gateway when its time was over."""

    participant: str
    by: str


class Admitted(Record, tag="admitted"):
    """A signed token has named a participant, which may join with these capabilities until ``until``. ``issuer`` is
    who has signed it. A later record replaces this one."""

    participant: str
    capabilities: list[dict[str, Any]]
    until: int
    issuer: str | None = None


class AdmissionEnded(Record, tag="admission-ended"):
    """A participant may not join by its signed token any more: ``expired``, or it has joined by another way
    (``replaced``)."""

    participant: str
    reason: str


class Paused(Record, tag="paused"):
    """``until`` is None for a pause that lasts until somebody ends it. ``request_id`` names the envelope that asked for
    it."""

    participant: str
    until: int | None
    by: str
    request_id: str | None = None


class Unpaused(Record, tag="unpaused"):
    """A pause has ended. If ``by`` is a participant, its envelope (``cause_seq``) has told everyone. If it is the
    gateway, the time of the pause is over, and this record has a message. ``request_id`` names the envelope that asked
    for the pause."""

    participant: str
    by: str
    request_id: str | None = None


class ShutDown(Record, tag="shut-down"):
    """Nothing more is accepted from a participant until it joins again."""

    participant: str
    by: str


# -- the life of a stream -------------------------------------------------------------------------


class StreamPolicy(msgspec.Struct, frozen=True):
    """The policies of one stream, fixed when it was opened."""

    on_owner_leave: str
    owner_leave_grace: float
    on_slow: str
    validate: str
    history: str = "joined"
    idle_timeout: float = 0.0


class StreamOpened(Record, tag="stream-opened"):
    """A stream exists: ``live`` after a request, ``ready`` after an announcement."""

    stream_id: str
    status: str
    owner: str
    request_id: str
    request: dict[str, Any]
    policy: StreamPolicy
    authorized_writers: list[str]
    authorized_readers: list[str] | None = None
    auto_grant: list[str] = []
    alias: str | None = None
    formats: list[dict[str, Any]] = []
    start_by: int | None = None
    owner_connected: bool = True
    alias_taken_by: str | None = None
    """The stream that has the desired name, if the requester is told."""


class StreamReused(Record, tag="stream-reused"):
    """The owner of a stream asked for its name again (``if_exists: reuse``). Nothing changes, and the owner alone is
    told: ``described`` is the stream as it was then. The request itself is not relayed."""

    stream_id: str
    owner: str
    kind: str
    request_id: str
    digest: int
    described: dict[str, Any]


class StreamStarted(Record, tag="stream-started"):
    stream_id: str
    by: str


class StreamEnded(Record, tag="stream-ended"):
    """A stream has ended. ``how`` is closed, completed or failed. If ``by`` is a participant, its envelope
    (``cause_seq``) has told everyone. If it is the gateway, this record has a message."""

    stream_id: str
    how: str
    by: str
    code: str | None = None
    message: str | None = None
    reason: str | None = None


# -- rights ---------------------------------------------------------------------------------------


class WriteGranted(Record, tag="write-granted"):
    stream_id: str
    participant: str
    authorized_writers: list[str]
    by: str
    reason: str | None = None
    conditions: Conditions | None = None
    expires_at: int | None = None
    max_frames: int | None = None
    request_id: str | None = None
    replaces: str | None = None
    """The writer in whose place it was granted, whose right a record before took away."""
    parent: str | None = None
    """The delegate that has granted it, and with whose right it ends. None for grants of the owner and of managers."""
    delegate: Delegation | None = None
    """The participant may grant the right in turn."""
    pending: bool = False
    """It waits until the participant joins, who is not a writer yet."""


class WriteRevoked(Record, tag="write-revoked"):
    """It takes away the rights below that of ``participant`` too. A record for each of them follows."""

    stream_id: str
    participant: str
    authorized_writers: list[str]
    by: str
    reason: str | None = None
    request_id: str | None = None
    replaced_by: str | None = None
    """Who got the right in its place, by the record that follows."""


class WriteRequested(Record, tag="write-requested"):
    """A participant asks for the right to write. Its envelope (``cause_seq``) has told everyone. The request is pending
    until it is answered by a grant or a denial, or until the participant leaves."""

    stream_id: str
    participant: str
    reason: str | None = None


class WriteDenied(Record, tag="write-denied"):
    """A pending request to write was answered with no."""

    stream_id: str
    participant: str
    by: str
    reason: str | None = None
    request_id: str | None = None


class OwnershipTransferred(Record, tag="ownership-transferred"):
    stream_id: str
    previous_owner: str
    new_owner: str
    authorized_writers: list[str]
    by: str
    reason: str | None = None
    request_id: str | None = None


class ReadGranted(Record, tag="read-granted"):
    """``authorized_readers`` None: there is no set and everyone reads."""

    stream_id: str
    participant: str
    authorized_readers: list[str] | None
    by: str
    reason: str | None = None
    request_id: str | None = None


class ReadRevoked(Record, tag="read-revoked"):
    stream_id: str
    participant: str
    authorized_readers: list[str]
    by: str
    reason: str | None = None
    request_id: str | None = None


# -- interest -------------------------------------------------------------------------------------


class Subscribed(Record, tag="subscribed"):
    """A participant is interested in more. ``streams`` are the open streams that match and that it may read, or the
    first of them, ``total`` how many these are. Only it is told."""

    participant: str
    interest: Interest
    streams: list[str]
    total: int
    digest: int = 0
    request_id: str | None = None


class Unsubscribed(Record, tag="unsubscribed"):
    """A participant is interested in less. ``streams`` and ``total`` are those that it does not get any more."""

    participant: str
    interest: Interest
    streams: list[str]
    total: int
    digest: int = 0
    request_id: str | None = None


# -- frames ---------------------------------------------------------------------------------------


class Frame(Record, tag="frame", gc=False):
    """One accepted frame. ``kind`` is ``frame`` for a raw one, whose ``data`` is what follows the
    second ``#``; for a ``stream/data`` envelope ``data`` is the whole normalised envelope.

    ``readers`` None: everyone. ``recipients`` is how many were connected and addressed.
    ``gap`` is how many sequence numbers the writer skipped. ``readers_seq`` is the record that made
    the reader set: a journal holds that in place of the set, and a frame that was just read from one
    has no ``readers`` until somebody has looked them up.
    """

    stream_id: str
    sender: str
    stream_seq: int
    opcode: int
    recipients: int
    data: bytes
    kind: str = "frame"
    readers: tuple[str, ...] | None = None
    id: str | None = None
    digest: int = 0
    sequence: int | None = None
    gap: int = 0
    format_id: str | None = None
    readers_seq: int | None = None


class FrameBlock(msgspec.Struct, frozen=True):
    """Raw frames of one sender on one stream that were accepted together; one frame is a block of one.

    On its way through the gateway a raw frame is always part of a block. In the log the block is as many
    :class:`Frame` records, whose numbers count up from ``seq`` and ``stream_seq``."""

    seq: int
    ts: int
    stream_id: str
    sender: str
    stream_seq: int
    opcode: int
    recipients: int
    data: Sequence[bytes]
    readers: tuple[str, ...] | None
    format_id: str | None
    readers_seq: int | None = None

    def __len__(self) -> int:
        return len(self.data)

    @property
    def last_seq(self) -> int:
        return self.seq + len(self.data) - 1

    def frames(self) -> list[Frame]:
        """The records that this block stands for."""
        return [
            Frame(
                *(self.seq + place, self.ts, None, self.stream_id, self.sender, self.stream_seq + place),
                *(self.opcode, self.recipients, data),
                readers=self.readers,
                format_id=self.format_id,
                readers_seq=self.readers_seq,
            )
            for place, data in enumerate(self.data)
        ]


class FramesDropped(Record, tag="frames-dropped"):
    """A slow reader did not get ``count`` frames of a stream, between these positions."""

    participant: str
    stream_id: str
    count: int
    first_seq: int
    last_seq: int
    policy: str


class HistoryRead(Record, tag="history-read"):
    """A participant reads frames of a stream again: those from ``from_seq`` to ``to_seq`` that it may see, which are
    this many. Over a socket the live ones follow."""

    participant: str
    stream_id: str
    from_seq: int
    to_seq: int
    frames: int
    transport: str
    request_id: str | None = None


#: The type of any record, for decoders.
AnyRecord: Any = functools.reduce(operator.or_, Record.__subclasses__())
