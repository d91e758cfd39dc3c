"""What an operator can set for a space: limits, policies and delivery.

Every field has its unit in its name or its comment. Unknown keys are refused by the decoder, so
that a misspelt limit is an error and not a silent default.
"""

from __future__ import annotations

from typing import Literal

import msgspec

OwnerLeave = Literal["keep", "transfer", "close"]
OnSlow = Literal["drop-oldest", "latest", "disconnect"]
Validate = Literal["off", "enforce"]
Invites = Literal["ordinary", "held"]
History = Literal["none", "joined", "all"]
IfExists = Literal["new", "reuse", "replace", "error"]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Upper bounds. Each is named in the ``limit`` field of a ``limit_exceeded`` error."""

    message_bytes: int = 1 << 20
    """One WebSocket message or HTTP body, after reassembly."""
    id_bytes: int = 128
    """A participant id, an alias or an envelope id, in UTF-8."""
    control_bytes: int = 64 << 10
    """The payload of a message that the gateway itself acts on, such as a grant."""
    participants_per_space: int = 10_000
    streams_per_space: int = 10_000
    streams_per_participant: int = 256
    subscriptions_per_participant: int = 256
    """Streams, formats and namespaces that one participant is subscribed to."""
    namespaces_per_participant: int = 16
    """Namespaces among them: each is compared with the names of every stream."""
    writers_per_stream: int = 10_000
    readers_per_stream: int = 10_000
    delegation_depth: int = 8
    """How often a right to write may be passed on. Each frame of a writer at the end of a chain looks at all of it."""
    write_requests_per_stream: int = 64
    """Participants that ask for the right to write and have no answer yet. Every later joiner is told of them."""
    stream_metadata_bytes: int = 64 << 10
    """The payload of a request or announcement: every later joiner gets it again."""
    stream_metadata_values: int = 4_096
    """Values in it. Each takes far more memory than the two bytes that it may have in JSON."""
    welcome_bytes: int = 1 << 20
    """A welcome. Clients fetch what does not fit page by page."""
    auto_grants_per_stream: int = 128
    """Participants that a stream names as writers when it is opened. Each is announced, with the list of all."""
    formats_per_stream: int = 16
    schema_bytes: int = 32 << 10
    capability_list_bytes: int = 8 << 10
    """The capabilities of one participant, as JSON. Everyone gets them."""
    capability_grants: int = 1_024
    """Runtime capability grants that a space remembers."""
    invitations: int = 10_000
    bans: int = 10_000
    """Participants that are banned at once."""
    admissions: int = 20_000
    """Signed tokens of different participants that are in use at once."""
    remembered_ids: int = 128
    """Envelope ids per participant within which a repetition is recognised."""
    proposals_per_participant: int = 128
    """The newest proposals of each that are remembered: an older one can be neither withdrawn nor rejected."""
    proposals_per_space: int = 10_000
    refused_excerpt_bytes: int = 256
    """How much of a refused payload is recorded."""
    resume_records: int = 10_000
    """Records that are replayed to a participant that resumes."""
    reads_waiting: int = 64
    """Reads of history that wait while another read of the same connection is under way."""
    envelopes_per_second: float = 5_000.0
    """Per connection; reading pauses above it. 0: no limit."""
    frames_per_second: float = 0.0
    """Per connection; reading pauses above it. 0: no limit (back-pressure still holds)."""
    bytes_per_second: float = 0.0
    """Per connection; reading pauses above it. 0: no limit."""
    caused_bytes_per_second: float = 4.0 * (1 << 20)
    """What the gateway sends because of a participant's messages, beyond these: long lists of writers, welcomes after a
    grant. Per participant; reading pauses above it. 0: no limit."""
    joins_per_second: float = 2.0
    """Per participant, after a burst of a hundred. 0: no limit."""


class Policies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Defaults of a space. A stream may set its own ``on_owner_leave``, ``owner_leave_grace``,
    ``on_slow``, ``validate``, ``history`` and ``idle_timeout`` when it is requested or announced."""

    on_owner_leave: OwnerLeave = "keep"
    owner_leave_grace: float = 10.0
    """Seconds between the owner's leave and a ``transfer`` or ``close``."""
    reconnect_grace: float = 15.0
    """Seconds for which a connection that is lost without a close keeps its rights. 0: it leaves at once."""
    suspend_for: float = 30.0
    """Seconds for which those connected keep their rights when the gateway restarts or drains."""
    start_timeout: float = 60.0
    """Seconds from ``stream/ready`` to ``stream/start``. 0: no limit."""
    idle_timeout: float = 0.0
    """Seconds after which a stream is closed if it had no frame and no change. 0: no limit."""
    on_slow: OnSlow = "drop-oldest"
    validate: Validate = "off"
    history: History = "joined"
    """Which earlier frames a reader may read: ``none``, those since it ``joined`` that it was a reader of, or
    ``all``."""
    invites: Invites = "ordinary"
    """What an invitation may give that the inviter does not hold: ``ordinary`` capabilities, or none (``held``)."""


class Delivery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much may wait for a slow connection, and for how long it may slow down writers."""

    flush_bytes: int = 64 << 10
    """The output of one turn of the event loop is written early when it has reached this size."""
    write_buffer_bytes: int = 256 << 10
    """Unsent bytes in the transport at which a connection counts as behind."""
    soft_queue_bytes: int = 1 << 20
    """Queued bytes at which reading from the writers that feed the connection pauses."""
    queue_bytes: int = 4 << 20
    """Queued bytes at which the slow-consumer policy applies."""
    writer_pause: float = 0.25
    """Seconds that one slow connection may hold up its writers, before its policy applies."""
