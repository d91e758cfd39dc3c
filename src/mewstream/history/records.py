"""What a fold reads: control records one by one, and frames as columns."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from mewstream.audit.records import ControlRecord

Integers = NDArray[np.int64]


Readers = list[str] | int | None
"""A set of readers: by name, or by the record that made it; None: everyone."""


class Frames(NamedTuple):
    """Frames of one space in the order of the log, a column each."""

    offset: Integers
    seq: Integers
    ts: Integers
    now: Integers
    """The latest time until then."""
    stream: Integers
    """A number for each stream: its place in ``streams``."""
    sender: Integers
    """The same for senders."""
    size: Integers
    stream_seq: Integers
    sequence: Integers
    """The writer's own number, where ``numbered``."""
    numbered: NDArray[np.bool_]
    formatted: NDArray[np.bool_]
    """They have a format."""
    is_raw: NDArray[np.bool_]
    """The others are ``stream/data``."""
    recipients: Integers
    readers: Integers
    """Whom they were for: the place in ``named``."""
    streams: list[str]
    senders: list[str]
    named: list[Readers]

    @property
    def number(self) -> int:
        """How many they are."""
        return len(self.seq)

    def taken(self, places: Integers) -> Frames:
        columns = {name: getattr(self, name)[places] for name in self._fields if name not in _NAMES}
        return self._replace(**columns)


_NAMES = ("streams", "senders", "named")


class Format(msgspec.Struct):
    id: str | None = None
    mime_type: str | None = None
    schema_hash: str | None = None
    schema: msgspec.Raw = msgspec.Raw()
    description: str | None = None


class Detail(msgspec.Struct):
    """The fields of all kinds of records that tables are made from. A name means the same in all of them, and what is
    JSON in a table stays as it was written."""

    participant: str | None = None
    by: str | None = None
    reason: str | None = None
    request_id: str | None = None
    id: str | None = None
    capabilities: msgspec.Raw = msgspec.Raw()
    transport: str | None = None
    resumed: bool = False
    replaced: bool = False
    continues: bool = False
    interest: msgspec.Raw = msgspec.Raw()
    until: int | None = None
    sender: str | None = None
    kind: str | None = None
    code: str | None = None
    message: str | None = None
    http_status: int | None = None
    details: msgspec.Raw = msgspec.Raw()
    excerpt: str | None = None
    count: int | None = None
    status: str | None = None
    owner: str | None = None
    request: msgspec.Raw = msgspec.Raw()
    policy: msgspec.Raw = msgspec.Raw()
    alias: str | None = None
    authorized_writers: list[str] | None = None
    authorized_readers: list[str] | None = None
    formats: list[Format] | None = None
    how: str | None = None
    expires_at: int | None = None
    max_frames: int | None = None
    previous_owner: str | None = None
    new_owner: str | None = None


_decode = msgspec.json.Decoder(Detail).decode


def detail_of(record: ControlRecord) -> Detail | None:
    """None where it is of another shape than this version knows: then the record is without effect."""
    try:
        return _decode(record.detail or "{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def text_of(json: msgspec.Raw) -> str | None:
    """JSON as the text that it is; null is none, and so is what is not there."""
    text = bytes(json).decode()
    return None if text in ("", "null") else text
