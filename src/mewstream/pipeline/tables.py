"""Every table of the warehouse, declared once: columns with their Spark types and meaning, keys, layer, layout.

The pipeline writes by this declaration, ``mewstream query`` names its views by it, and
``docs/tables.md`` is made from it: ``make docs``.

Rows are *final*, written once, or *open*: what may still change (a stream that lives, a right that is held, a window
that is not over) and is replaced by each batch. A table has one sort or both, and then ``is_open`` tells them apart.
Tables of the layer ``state`` have open rows only, are no user's business, and hold what one batch must know of
those before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from mewstream.history.durations import GAP_HEALS_WITHIN_SECONDS, WINDOW_SECONDS

SCHEMA_VERSION = 4
"""Grows with every change of a declaration: a warehouse of another version must be refreshed."""


class Layer(StrEnum):
    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"
    STATE = "state"
    LOG = "log"


class Column(NamedTuple):
    name: str
    type: str
    """As Spark SQL writes it."""
    meaning: str


class Layout(StrEnum):
    """How the files of a table are partitioned, which follows from how its rows come about."""

    DATES = "dates"
    """Final rows, many: a directory for each day."""
    FINAL = "final"
    """Final rows, few."""
    OPEN_AND_FINAL = "open and final"
    """A directory for each of the two sorts."""
    CURRENT = "current"
    """Nothing but open rows."""


DATE = Column("date", "date", "its day (UTC), by which files are partitioned")
IS_OPEN = Column("is_open", "boolean", "it may still change; false: it has ended, and the row is final")
_PARTITION = {Layout.DATES: DATE, Layout.OPEN_AND_FINAL: IS_OPEN}
#: Beside keys and times, what questions are about: a file that holds nothing of it is not read.
_ASKED_FOR = frozenset({"offset", "record", "kind", "sender", "participant", "stream_id", "code", "rule", "batch"})


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    layer: Layer
    meaning: str
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    """Those that the files hold."""
    layout: Layout = Layout.FINAL
    time: str | None = "ts"
    """The column that says how old a final row is."""

    @property
    def schema(self) -> str:
        """The columns as Spark's readers take them."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def partition(self) -> Column | None:
        """The column by which files are partitioned. The path of a file says its value."""
        return _PARTITION.get(self.layout)

    @property
    def all_columns(self) -> tuple[Column, ...]:
        return (*self.columns, self.partition) if self.partition else self.columns

    @property
    def has_open_rows(self) -> bool:
        return self.layout in (Layout.OPEN_AND_FINAL, Layout.CURRENT)

    @property
    def statistics(self) -> list[str]:
        """The columns of which the log says the least and the greatest value in each file."""
        asked = _ASKED_FOR | {*self.keys, self.time, "ts"}
        return [column.name for column in self.columns if column.name in asked]


_SPACE = Column("space", "string", "the space")
_SEQ = Column("seq", "bigint", "position of the record in the space, gap-free")
_TS = Column("ts", "timestamp", "when it happened, by the gateway's clock; never runs back within a space")
_STREAM = Column("stream_id", "string", "the stream")
_SENDER = Column("sender", "string", "who wrote it")
_PLACE = (_SPACE, _SEQ, _TS)
_FORMAT = Column("format_id", "string", "the announced format, by its id")
_SCHEMA_HASH = Column("schema_hash", "string", "SHA-256 of the format's JSON Schema, if it has one")

# -- bronze ---------------------------------------------------------------------------------------

RECORDS = Table(
    "records",
    Layer.BRONZE,
    "Every record of the journal as it was. All other tables can be made from it again.",
    ("space", "seq"),
    (
        Column("offset", "bigint", "position in the partition of the journal, gap-free"),
        _SPACE,
        _SEQ,
        Column("epoch", "string", "the run of the gateway that wrote it"),
        _TS,
        Column("record", "string", "what happened: frame, joined, write-granted, ..."),
        Column("kind", "string", "the kind of the message that it was, or that told of it"),
        Column("sender", "string", "who caused it"),
        Column("participant", "string", "whom it concerns, if not the sender"),
        _STREAM,
        Column("stream_seq", "bigint", "frames: position in the stream, gap-free"),
        Column("opcode", "tinyint", "frames: 1 text, 2 binary"),
        Column("recipients", "int", "frames: how many were connected and addressed"),
        Column("outcome", "string", "accepted, or the code of the refusal"),
        Column("cause_seq", "bigint", "the record that this one follows from"),
        Column("sequence", "bigint", "the writer's own number in stream/data"),
        Column("gap", "bigint", "how many of those numbers were skipped before it"),
        Column("format_id", "string", "the format of a frame"),
        Column("detail", "string", "the rest of the record, as JSON"),
        Column("data", "binary", "the data of a raw frame, or a whole envelope"),
        Column("readers_seq", "bigint", "frames: the record that made the set of readers; null if everyone may read"),
    ),
    Layout.DATES,
)

# -- silver ---------------------------------------------------------------------------------------

ENVELOPES = Table(
    "envelopes",
    Layer.SILVER,
    "Every accepted envelope but `stream/data`, which is a frame.",
    ("space", "seq"),
    (
        *_PLACE,
        Column("id", "string", "the envelope's id"),
        Column("kind", "string", "its kind"),
        Column("sender", "string", "who sent it"),
        Column("addressed", "array<string>", "`to`: whom it addresses; null if it names nobody"),
        Column("correlation_id", "array<string>", "the envelopes that it answers"),
        Column("context", "string", "its context: a text as it is, anything else as JSON"),
        Column("stream_id", "string", "the stream that it is about"),
        Column("sent_at", "timestamp", "its `ts`, if the sender gave one"),
        Column("payload", "string", "its payload, as JSON"),
        Column("size", "int", "bytes of the whole envelope"),
    ),
    Layout.DATES,
)

FRAMES = Table(
    "frames",
    Layer.SILVER,
    "Every accepted frame, raw or `stream/data`. Its bytes are in `records`, what they mean in `content`.",
    ("space", "seq"),
    (
        *_PLACE,
        _STREAM,
        _SENDER,
        Column("stream_seq", "bigint", "position in the stream, gap-free, from 1"),
        Column("size", "int", "bytes of the data: of the whole envelope for `stream/data`"),
        Column("opcode", "tinyint", "1 text, 2 binary"),
        Column("kind", "string", "`frame`, or `stream/data`"),
        Column("sequence", "bigint", "the writer's own number in `stream/data`"),
        Column("gap", "bigint", "how many of those numbers the gateway says were skipped"),
        Column("format_id", "string", "the format, if its stream has formats or the writer named one"),
        Column("recipients", "int", "how many were connected and addressed"),
        Column("sent_at", "timestamp", "when its writer says it was sent, if the payload says so"),
        Column("latency_ms", "double", "from `sent_at` to `ts`; negative if the clocks differ"),
    ),
    Layout.DATES,
)

STREAMS = Table(
    "streams",
    Layer.SILVER,
    "One row for each stream, from its request to its end.",
    ("space", "stream_id", "ready_seq"),
    (
        _SPACE,
        _STREAM,
        Column("namespace", "string", "its name across spaces"),
        Column("alias", "string", "the name that its owner asked for, if it was granted"),
        Column("status", "string", "ready, live, completed, closed or failed; vanished if the log has no end of it"),
        Column("announced", "boolean", "it was announced; else requested, and live at once"),
        Column("description", "string", "from the request"),
        Column("content_type", "string", "from the request"),
        Column("direction", "string", "from the request: upload or download"),
        Column("intent_seq", "bigint", "the envelope that asked for it"),
        Column("intent_ts", "timestamp", "when it was asked for"),
        Column("ready_seq", "bigint", "the record since which it exists"),
        Column("ready_ts", "timestamp", "since when it exists"),
        Column("live_seq", "bigint", "the record since which it takes frames"),
        Column("live_ts", "timestamp", "since when it takes frames"),
        Column("ended_seq", "bigint", "the record that ended it; null while it lives"),
        Column("ended_ts", "timestamp", "when it ended"),
        Column("ended_by", "string", "who ended it"),
        Column("end_code", "string", "the error code of a failed one"),
        Column("end_message", "string", "the error message of a failed one"),
        Column("end_reason", "string", "the reason that was given"),
        Column("owner", "string", "the owner, the last one of an ended stream"),
        Column(
            "owners",
            "array<struct<owner:string,from_seq:bigint,from_ts:timestamp,by:string,reason:string>>",
            "all owners in their order: since when, by whom and why",
        ),
        Column(
            "formats",
            "array<struct<format_id:string,mime_type:string,schema_hash:string>>",
            "the announced formats; see the table `formats`",
        ),
        Column("metadata", "string", "the whole payload of its request, as JSON"),
        Column("policy", "string", "what holds for it, resolved when it was opened, as JSON"),
        Column("frames", "bigint", "accepted frames"),
        Column("bytes", "bigint", "bytes of those"),
        Column("last_frame_seq", "bigint", "its newest frame"),
        Column("last_frame_ts", "timestamp", "when that came"),
    ),
    Layout.OPEN_AND_FINAL,
    time="ended_ts",
)

FORMATS = Table(
    "formats",
    Layer.SILVER,
    "Every format that a stream was opened with. Each distinct one has a typed view over `content`.",
    ("space", "stream_id", "seq", "format_id"),
    (
        *_PLACE,
        _STREAM,
        _FORMAT,
        Column("mime_type", "string", "its media type"),
        _SCHEMA_HASH,
        Column("schema", "string", "the JSON Schema"),
        Column("description", "string", "its creator's description"),
    ),
)

AUTHORIZATIONS = Table(
    "authorizations",
    Layer.SILVER,
    "Who had which right on which stream, from when until when. A grant that is repeated under other conditions, and "
    "a transfer to somebody who could write already, begin a new row.",
    ("space", "stream_id", "participant", "right", "from_seq"),
    (
        _SPACE,
        _STREAM,
        Column("participant", "string", "who; null for `read` if there is no set of readers and everyone may read"),
        Column("right", "string", "own, write or read"),
        Column("from_seq", "bigint", "the record that gave it"),
        Column("from_ts", "timestamp", "when it was given"),
        Column("until_seq", "bigint", "the record that ended it, at which it no longer holds; null while held"),
        Column("until_ts", "timestamp", "when it ended"),
        Column("since_seq", "bigint", "since when it was held without interruption, over repeated grants"),
        Column("given_how", "string", "open, grant, auto_grant, transfer, or reader_set"),
        Column("granted_by", "string", "who gave it"),
        Column("reason", "string", "why, if a reason was given"),
        Column("expires_at", "timestamp", "the condition: until when it holds"),
        Column("max_frames", "bigint", "the condition: how many frames it is good for"),
        Column("frames_used", "bigint", "`write`: accepted frames under it"),
        Column(
            "ended_how",
            "string",
            "revoked, expired, max_frames, left, replaced, transferred, stream_ended, reader_set, or vanished if "
            "the log has no end of the stream; null while held",
        ),
        Column("ended_by", "string", "who ended it"),
        Column("end_reason", "string", "why it ended, if a reason was given"),
    ),
    Layout.OPEN_AND_FINAL,
    time="until_ts",
)

SESSIONS = Table(
    "sessions",
    Layer.SILVER,
    "Who was here, from joining to leaving. A connection that is replaced, or lost and resumed, is the same session.",
    ("space", "participant", "joined_seq"),
    (
        _SPACE,
        Column("participant", "string", "who"),
        Column("joined_seq", "bigint", "the record of the join"),
        Column("joined_ts", "timestamp", "when"),
        Column("transport", "string", "how the first connection came"),
        Column("capabilities", "string", "the effective capabilities at the join, as JSON"),
        Column("connections", "int", "how many connections it had, one after the other"),
        Column(
            "suspensions",
            "array<struct<seq:bigint,ts:timestamp,until:timestamp,reason:string,"
            "resumed_seq:bigint,resumed_ts:timestamp>>",
            "when the connection was lost and the rights were kept; `resumed` is null if nobody came back",
        ),
        Column("left_seq", "bigint", "the record of the leave; null while here"),
        Column("left_ts", "timestamp", "when"),
        Column("ended_how", "string", "the reason of the leave; vanished if the log has no leave"),
    ),
    Layout.OPEN_AND_FINAL,
    time="left_ts",
)

REFUSALS = Table(
    "refusals",
    Layer.SILVER,
    "Everything that was not accepted.",
    ("space", "seq"),
    (
        *_PLACE,
        Column("sender", "string", "whose message it was"),
        Column("kind", "string", "the refused kind; `frame` for a raw frame; null if it could not be read"),
        Column("stream_id", "string", "the stream that was meant, as far as it is known"),
        Column("code", "string", "the error code"),
        Column("message", "string", "what the sender was told"),
        Column("http_status", "int", "the same as an HTTP status"),
        Column("count", "bigint", "how many refusals this record stands for"),
        Column("id", "string", "the id of the refused envelope"),
        Column("details", "string", "the other fields of the error, as JSON"),
        Column("excerpt", "string", "the beginning of the refused payload"),
    ),
    Layout.DATES,
)

CONTENT = Table(
    "content",
    Layer.SILVER,
    "What frames say, decoded by their announced format. Frames without a format, and those of formats that are "
    "neither JSON nor text, have no row. What does not fit its format is in `quarantine`.",
    ("space", "seq"),
    (
        *_PLACE,
        _STREAM,
        _SENDER,
        _FORMAT,
        Column("mime_type", "string", "the format's media type"),
        _SCHEMA_HASH,
        Column("body", "string", "JSON: the value, as JSON. JSON lines: an array of the values. Null for text"),
        Column("text", "string", "text formats: the text. Null for JSON"),
    ),
    Layout.DATES,
)

QUARANTINE = Table(
    "quarantine",
    Layer.SILVER,
    "Frames that do not fit their announced format: why, and their bytes as they came.",
    ("space", "seq"),
    (
        *_PLACE,
        _STREAM,
        _SENDER,
        _FORMAT,
        Column("mime_type", "string", "the format's media type"),
        _SCHEMA_HASH,
        Column(
            "reasons",
            "array<struct<rule:string,path:string,message:string>>",
            "what is wrong: the rule (`utf8`, `json`, `size`, or a keyword of JSON Schema), where, and in words",
        ),
        Column("data", "binary", "the data of a raw frame, or the whole `stream/data` envelope"),
    ),
    Layout.DATES,
)

# -- gold -----------------------------------------------------------------------------------------

STREAM_METRICS = Table(
    "stream_metrics",
    Layer.GOLD,
    f"How lively each stream was, in windows of {WINDOW_SECONDS} seconds. Windows without frames and drops "
    "have no row.",
    ("space", "stream_id", "window_start"),
    (
        _SPACE,
        _STREAM,
        Column("window_start", "timestamp", "the window begins here"),
        Column("window_end", "timestamp", "and ends before this"),
        Column("frames", "bigint", "accepted frames"),
        Column("bytes", "bigint", "bytes of those"),
        Column("rate", "double", "frames per second"),
        Column("byte_rate", "double", "bytes per second"),
        Column("writers", "int", "how many different participants wrote"),
        Column("interarrival_p50_ms", "double", "time since the frame before it in the stream: the median, exactly"),
        Column("interarrival_p95_ms", "double", "the 95th percentile"),
        Column("interarrival_p99_ms", "double", "the 99th percentile"),
        Column("drops", "bigint", "frames that slow readers missed, summed over readers, by the time of the report"),
    ),
    Layout.OPEN_AND_FINAL,
    time="window_start",
)

SEQUENCE_GAPS = Table(
    "sequence_gaps",
    Layer.GOLD,
    "Jumps in the numbers that a writer gives its `stream/data`. A gap heals when the missing numbers come in a later "
    f"session of the writer, within {GAP_HEALS_WITHIN_SECONDS} seconds and before the stream ends.",
    ("space", "stream_id", "sender", "seq"),
    (
        _SPACE,
        _STREAM,
        _SENDER,
        Column("seq", "bigint", "the frame that came after the gap"),
        Column("ts", "timestamp", "when that came"),
        Column("after_sequence", "bigint", "the last number before the gap"),
        Column("sequence", "bigint", "the first number after it"),
        Column("missing", "bigint", "how many numbers are between the two"),
        Column("still_missing", "bigint", "how many of those have never come"),
        Column("ranges", "array<struct<first:bigint,last:bigint>>", "which have never come"),
        Column("healed", "boolean", "all have come"),
        Column("healed_seq", "bigint", "the frame that healed it"),
        Column("healed_ts", "timestamp", "when that came"),
    ),
    Layout.OPEN_AND_FINAL,
)

HANDOFFS = Table(
    "handoffs",
    Layer.GOLD,
    "A right to write passes on: from a grant or a transfer to the first frame of the new writer.",
    ("space", "stream_id", "seq"),
    (
        *_PLACE,
        _STREAM,
        Column("how", "string", "grant, auto_grant or transfer"),
        Column("by", "string", "who gave it"),
        Column("previous_owner", "string", "transfers: who owned it before"),
        Column("writer", "string", "the new writer"),
        Column("reason", "string", "why, if a reason was given"),
        Column("since_seq", "bigint", "since when the new writer holds the right without interruption"),
        Column("outcome", "string", "written, unused (the right ended before any frame) or pending"),
        Column("first_frame_seq", "bigint", "the first frame of the new writer under this right"),
        Column("first_frame_ts", "timestamp", "when that came"),
        Column("waited_ms", "double", "from the handoff to that frame"),
        Column("silent_ms", "double", "how long the stream had been silent before that frame, whoever wrote"),
    ),
    Layout.OPEN_AND_FINAL,
)

AUDIT = Table(
    "audit",
    Layer.GOLD,
    "One row for each finding of the audit: something in the log that the log itself does not justify.",
    ("space", "seq", "rule"),
    (
        *_PLACE,
        Column("rule", "string", "which rule is broken"),
        Column(
            "severity",
            "string",
            "breach: somebody did what they were not allowed to; flaw: the log or a refusal is wrong",
        ),
        Column("stream_id", "string", "the stream concerned"),
        Column("participant", "string", "the participant concerned"),
        Column("reason", "string", "what was found, and what was expected"),
        Column("evidence_seq", "bigint", "the record that shows it, such as the revoke"),
    ),
)

UNJUDGED = Table(
    "audit_unjudged",
    Layer.GOLD,
    "What the audit could not judge, and why.",
    ("space", "what", "reason"),
    (
        _SPACE,
        Column("what", "string", "frame, change, envelope, refusal, welcome or record"),
        Column("reason", "string", "why it could not be judged"),
        Column("count", "bigint", "how many"),
    ),
    Layout.CURRENT,
    time=None,
)

SPACE_SUMMARY = Table(
    "space_summary",
    Layer.GOLD,
    "Each space in one row.",
    ("space",),
    (
        _SPACE,
        Column("first_seq", "bigint", "the first record that the warehouse has; above 1 if older ones were pruned"),
        Column("first_ts", "timestamp", "when that was"),
        Column("last_seq", "bigint", "the newest record"),
        Column("last_ts", "timestamp", "when that was"),
        Column("records", "bigint", "records of all kinds"),
        Column("unknown_records", "bigint", "records of kinds that this version does not know, or erased ones"),
        Column("envelopes", "bigint", "accepted envelopes without `stream/data`"),
        Column("frames", "bigint", "accepted frames"),
        Column("bytes", "bigint", "bytes of those"),
        Column("refusals", "bigint", "refusals; a record that sums up several counts as that many"),
        Column("drops", "bigint", "frames that slow readers missed, summed over readers"),
        Column("participants", "bigint", "different participants who ever joined"),
        Column("present", "bigint", "participants who are here now"),
        Column("joins", "bigint", "sessions that began"),
        Column("streams", "bigint", "streams that were opened"),
        Column("open_streams", "bigint", "streams that have not ended"),
        Column("content", "bigint", "frames decoded by their format"),
        Column("quarantined", "bigint", "frames that do not fit their format"),
        Column("frames_judged", "bigint", "frames that the audit judged"),
        Column("frames_not_judged", "bigint", "frames of streams whose opening was pruned or erased"),
        Column("changes_judged", "bigint", "what the audit judged of changes, and of the requests that led to them"),
        Column("changes_not_judged", "bigint", "what of that cannot be judged from the log"),
        Column("refusals_judged", "bigint", "refusals that the audit judged"),
        Column("refusals_not_judged", "bigint", "refusals that cannot be judged from the log"),
        Column("welcomes_judged", "bigint", "welcomes that the audit compared with the log"),
        Column("welcomes_not_judged", "bigint", "welcomes of which the journal does not say what was told"),
        Column("findings", "bigint", "findings of the audit"),
        Column("verdict", "string", "sound, or flawed if the audit found anything"),
    ),
    Layout.CURRENT,
    time=None,
)

# -- state ----------------------------------------------------------------------------------------

SPACES = Table(
    "state_spaces",
    Layer.STATE,
    "What is open in each space, and who was ever there.",
    ("space",),
    (
        _SPACE,
        Column("history", "binary", "what :mod:`mewstream.history` carries from batch to batch"),
        Column("audit", "binary", "what :mod:`mewstream.audit` carries from batch to batch"),
    ),
    Layout.CURRENT,
    time=None,
)

# -- the log of the warehouse itself --------------------------------------------------------------

COMMITS = Table(
    "commits",
    Layer.LOG,
    "One row for each batch, written last: what every table was then. The newest pins all tables to one point.",
    ("batch",),
    (
        Column("batch", "bigint", "its number, without a hole"),
        Column("operation", "string", "what it did: create, run, refresh, retain, erase or rollback"),
        Column("committed_at", "timestamp", "when, by the clock of the pipeline"),
        Column("records", "bigint", "records that it read"),
        Column("journal", "string", "the id of the journal that the tables are made from"),
        Column("offsets", "map<int,bigint>", "for each partition of the journal the next offset to read"),
        Column("epochs", "map<int,string>", "for each partition the run of the gateway that wrote the last one read"),
        Column("versions", "map<string,bigint>", "the version of every table"),
        Column("schema_version", "int", "the version of these declarations"),
    ),
    time=None,
)

REFRESH = Table(
    "_refresh",
    Layer.STATE,
    "What a full refresh has written so far: see :mod:`mewstream.pipeline.refresh`.",
    ("portion",),
    (
        Column("portion", "bigint", "its number"),
        Column("position", "string", "how far bronze was read with it, as JSON"),
        Column("changes", "string", "the files that it wrote, as JSON"),
        Column("schema_version", "int", "the version of these declarations"),
        Column("published_as", "bigint", "the number of the batch as which everything is published"),
    ),
    time=None,
)

ALL: tuple[Table, ...] = (
    RECORDS,
    *(ENVELOPES, FRAMES, STREAMS, FORMATS, AUTHORIZATIONS, SESSIONS, REFUSALS, CONTENT, QUARANTINE),
    *(STREAM_METRICS, SEQUENCE_GAPS, HANDOFFS, AUDIT, UNJUDGED, SPACE_SUMMARY),
    SPACES,
)

BY_NAME: dict[str, Table] = {table.name: table for table in (*ALL, COMMITS, REFRESH)}

#: What users query.
PUBLIC: tuple[Table, ...] = tuple(table for table in ALL if table.layer is not Layer.STATE)
SHOWN = (*PUBLIC, COMMITS)
