"""What one batch must know of those before it: what is open in a space, and who was ever here.

A space in which nothing is open leaves the names of its participants and nothing else.
"""

from __future__ import annotations

import msgspec

Key = tuple[str, str]
"""A stream and a participant."""


class Suspension(msgspec.Struct, array_like=True):
    seq: int
    ts: int
    until: int | None
    reason: str | None
    resumed_seq: int | None = None
    resumed_ts: int | None = None


class Session(msgspec.Struct, array_like=True):
    """From joining to leaving."""

    participant: str
    joined_seq: int
    joined_ts: int
    transport: str | None
    capabilities: str | None
    connections: int = 1
    suspensions: list[Suspension] = []
    is_waiting: bool = False
    """The last thing that happened to it is that its connection was lost."""
    left_seq: int | None = None
    left_ts: int | None = None
    ended_how: str | None = None


class Owner(msgspec.Struct, array_like=True):
    owner: str | None
    from_seq: int
    from_ts: int
    by: str | None
    reason: str | None


class Announced(msgspec.Struct, array_like=True):
    """A format of a stream."""

    format_id: str | None
    mime_type: str | None
    schema_hash: str | None
    schema: str | None
    description: str | None


class Stream(msgspec.Struct, array_like=True):
    """One life of a stream: a name that is opened again, because the log has lost its end, is another life."""

    stream_id: str
    ready_seq: int
    ready_ts: int
    intent_seq: int
    status: str | None
    """As it was opened."""
    alias: str | None
    owner: str | None
    owners: list[Owner]
    formats: list[Announced]
    metadata: str | None
    policy: str | None
    live_seq: int | None = None
    live_ts: int | None = None
    is_started: bool = False
    ended_seq: int | None = None
    ended_ts: int | None = None
    ended_how: str | None = None
    ended_by: str | None = None
    end_code: str | None = None
    end_message: str | None = None
    end_reason: str | None = None
    frames: int = 0
    bytes: int = 0
    last_frame_seq: int | None = None
    last_frame_ts: int | None = None
    last_number: int = 0
    """The greatest ``stream_seq``."""

    def is_alive(self, seq: int) -> bool:
        return self.ready_seq < seq and (self.ended_seq is None or seq < self.ended_seq)


class ReaderSet(msgspec.Struct, array_like=True):
    """Who may read a stream from the record ``seq`` on; None: everyone."""

    seq: int
    names: list[str] | None


class Right(msgspec.Struct, array_like=True):
    """A right that somebody holds, from the record that gave it to the one that ended it."""

    stream_id: str
    participant: str | None
    right: str
    from_seq: int
    from_ts: int
    since_seq: int
    given_how: str
    granted_by: str | None = None
    reason: str | None = None
    expires_at: int | None = None
    max_frames: int | None = None
    frames_used: int = 0
    until_seq: int | None = None
    until_ts: int | None = None
    ended_how: str | None = None
    ended_by: str | None = None
    end_reason: str | None = None


class Handoff(msgspec.Struct, array_like=True):
    """A right to write that was passed on, and nobody has written under it."""

    stream_id: str
    seq: int
    ts: int
    how: str
    by: str | None
    previous_owner: str | None
    writer: str
    reason: str | None
    since_seq: int


class Window(msgspec.Struct, array_like=True):
    """What is in a window of time that is not over. ``ready_seq`` is the life of the stream, or None for drops and for
    frames of a stream without one."""

    stream_id: str
    ready_seq: int | None
    start: int
    frames: int = 0
    bytes: int = 0
    writers: list[str] = []
    times: list[int] = []
    drops: int = 0
    previous: int | None = None
    """When the last frame before the window came."""


class Counting(msgspec.Struct, array_like=True):
    """The numbers of a writer of a stream that lives."""

    seq: int
    """Its last frame with a number."""
    sequence: int
    highest: int


class Gap(msgspec.Struct, array_like=True):
    """Numbers that a writer has skipped, and that may still come."""

    stream_id: str
    sender: str
    seq: int
    ts: int
    after_sequence: int
    sequence: int
    ranges: list[tuple[int, int]]
    healed_seq: int | None = None
    healed_ts: int | None = None


class State(msgspec.Struct, array_like=True):
    joined: dict[str, int] = {}
    """Everyone who ever joined, with the join since which the numbers of its ``stream/data`` grow; 0: never."""
    sessions: dict[str, Session] = {}
    streams: dict[str, Stream] = {}
    rights: list[Right] = []
    handoffs: list[Handoff] = []
    windows: list[Window] = []
    gaps: list[Gap] = []
    counting: dict[str, dict[str, Counting]] = {}
    """By stream and writer."""
    readers: dict[str, ReaderSet] = {}
    lost: dict[str, dict[str, int]] = {}
    """By stream and participant the last record that ended a right to write."""
    people: dict[str, tuple[int, int]] = {}
    """Since when each is here, suspended or gone: see :mod:`.attendance`."""
    pauses: dict[str, tuple[int, int]] = {}
    first_seq: int | None = None
    """The first record that was seen of the space."""
    last_seq: int | None = None
    last_ts: int = 0
    lowest_stream: int | None = None
    """The lowest number of a stream that was opened in this log."""


_decoder = msgspec.msgpack.Decoder(State)
_encoder = msgspec.msgpack.Encoder()


def read_state(carried: bytes | None) -> State:
    return State() if carried is None else _decoder.decode(carried)


def written(state: State) -> bytes:
    return _encoder.encode(state)
