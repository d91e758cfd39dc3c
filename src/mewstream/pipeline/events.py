"""The control records of a batch as typed rows: what stands in ``detail`` becomes a struct.

Frames are many and their columns say everything. All other records are few, and most of what they
say is JSON; here it is read, once, by the names that :mod:`mewstream.protocol.records` gives it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.sql import query

#: The fields that tables are made from, of all kinds of records. A name means the same in all of them.
_DETAIL = """
    participant string, by string, reason string, request_id string, id string,
    capabilities string, transport string, resumed boolean, replaced boolean, continues boolean, until bigint,
    sender string, kind string, code string, message string, http_status int, details string, excerpt string,
    count bigint, stream_id string,
    status string, owner string, request string, policy string, alias string,
    authorized_writers array<string>, authorized_readers array<string>,
    formats array<struct<id:string,mime_type:string,schema_hash:string,schema:string,description:string>>,
    how string, expires_at bigint, max_frames bigint, previous_owner string, new_owner string
"""

#: Records whose meaning this version knows; others are kept in bronze, counted, and without effect.
KNOWN = frozenset(
    {
        *("space-started", "clock-jumped", "joined", "left", "suspended", "envelope", "refused"),
        *("capabilities-granted", "capabilities-revoked", "invited", "paused", "unpaused", "shut-down"),
        *("stream-opened", "stream-started", "stream-ended"),
        *("write-granted", "write-revoked", "ownership-transferred", "read-granted", "read-revoked"),
        *("subscribed", "unsubscribed"),
        *("frame", "frames-dropped"),
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


_CONTROL = """
SELECT space, seq, ts, record, kind, sender, stream_id, cause_seq, from_json(detail, '{detail}') AS d, data
FROM {records}
WHERE record <> 'frame'
"""


def control_records(records: DataFrame) -> DataFrame:
    """Everything but frames. ``d`` is the detail, and ``data`` an envelope or null."""
    return query(_CONTROL, detail=_DETAIL, records=records)
