"""The control records of a batch as typed rows: what stands in ``detail`` becomes columns.

Frames are many and their columns say everything. All other records are few, and most of what they
say is JSON; here it is read, once, by the names that :mod:`mewstream.protocol.records` gives it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_STREAM = "stream_id string"
_RIGHT = f"{_STREAM}, participant string, by string, reason string, request_id string"

_DETAILS = {
    "joined": "participant string, capabilities string, transport string, resumed boolean, replaced boolean, "
    "continues boolean",
    "left": "participant string, reason string",
    "suspended": "participant string, until bigint, reason string",
    "refused": "sender string, kind string, code string, message string, http_status int, details string, id string, "
    f"{_STREAM}, excerpt string, count bigint",
    "stream-opened": f"{_STREAM}, status string, owner string, request_id string, request string, policy string, "
    "authorized_writers array<string>, authorized_readers array<string>, auto_grant array<string>, alias string, "
    "formats array<struct<id:string,mime_type:string,schema_hash:string,schema:string,description:string>>",
    "stream-started": f"{_STREAM}, by string",
    "stream-ended": f"{_STREAM}, how string, by string, code string, message string, reason string",
    "write-granted": f"{_RIGHT}, expires_at bigint, max_frames bigint",
    "write-revoked": _RIGHT,
    "ownership-transferred": f"{_STREAM}, previous_owner string, new_owner string, authorized_writers array<string>, "
    "by string, reason string, request_id string",
    "read-granted": f"{_RIGHT}, authorized_readers array<string>",
    "read-revoked": f"{_RIGHT}, authorized_readers array<string>",
    "frames-dropped": f"participant string, {_STREAM}, count bigint",
}

#: Records whose meaning this version knows; others are kept in bronze, counted, and without effect.
KNOWN = frozenset(
    {
        *_DETAILS,
        *("space-started", "envelope", "capabilities-granted", "capabilities-revoked", "invited"),
        *("paused", "unpaused", "frame"),
    }
)

SESSION_RECORDS = frozenset({"joined", "left", "suspended"})
STREAM_RECORDS = frozenset({"stream-opened", "stream-started", "stream-ended", "ownership-transferred"})
RIGHT_RECORDS = frozenset(
    {
        *("stream-opened", "stream-ended", "write-granted", "write-revoked", "ownership-transferred"),
        *("read-granted", "read-revoked"),
    }
)


def events(control: DataFrame, record: str) -> DataFrame:
    """The records of one kind: ``space``, ``seq``, ``ts``, ``cause_seq``, and the fields of the kind."""
    return (
        control.where(F.col("record") == record)
        .select("space", "seq", "ts", "cause_seq", F.from_json("detail", _DETAILS[record]).alias("detail"))
        .select("space", "seq", "ts", "cause_seq", "detail.*")
    )


def micros(column: str) -> Column:
    """A time of the log, microseconds since 1970, as a timestamp."""
    return F.timestamp_micros(F.col(column))
