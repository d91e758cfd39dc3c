"""Tables made by hand, for tests of what reads them: no journal, no pipeline.

    with tables(session(seed=1, streams=3)) as database: ...     # the WarehouseDatabase of the commands

Rows are dictionaries that name only what matters; the rest is null, as declared in ``mewstream.pipeline.tables``.
"""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from mewstream.pipeline.column_types import arrow_type
from mewstream.pipeline.tables import PUBLIC
from mewstream.query.database import WarehouseDatabase

START = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
CODES = (
    ("unauthorized_stream_write", "frame"),
    ("unauthorized", "stream/grant-write"),
    ("reserved_kind", "stream/open"),
    ("stream_not_found", "frame"),
    ("capability_violation", "stream/request"),
)
Rows = dict[str, list[dict[str, Any]]]


def tables(rows: Rows) -> WarehouseDatabase:
    made: dict[str, pa.Table] = {}
    for table in PUBLIC:
        columns = table.all_columns
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
        assert all(set(row) <= set(schema.names) for row in rows.get(table.name, [])), table.name
        made[table.name] = pa.Table.from_pylist(rows.get(table.name, []), schema)
    return WarehouseDatabase(made.__getitem__)


def session(
    *,
    seed: int = 0,
    space: str = "arena",
    people: tuple[str, ...] = ("character-server", "player1", "player2", "ai-agent", "viewer"),
    streams: int = 4,
    seconds: int = 60,
    findings: int = 0,
) -> Rows:
    """A session in which rights pass from one to another, with a little of everything."""
    chance = random.Random(seed)
    rows: Rows = defaultdict(list)
    at = lambda second: START + timedelta(seconds=second)  # noqa: E731
    seq = 0
    for number, who in enumerate(people):
        left = None if number % 2 else seconds - number
        moments = {"ts": at(seconds / 3), "until": at(seconds / 2), "resumed_ts": at(seconds / 2.5)}
        lost = [{"seq": 5, "reason": "lost", "resumed_seq": 9, **moments}] if number == 1 else []
        rows["sessions"].append(
            {
                "space": space,
                "participant": who,
                "joined_seq": number + 1,
                "joined_ts": at(number),
                "transport": "websocket",
                "connections": 1 + len(lost),
                "suspensions": lost,
                "left_seq": None if left is None else 900 + number,
                "left_ts": None if left is None else at(left),
                "ended_how": None if left is None else "disconnected",
            }
        )
    for number in range(streams):
        stream, owner = f"stream-{number + 1}", people[number % len(people)]
        begin = chance.uniform(2, seconds / 4)
        frames = size = 0
        turn, writer = begin, owner
        rows["authorizations"].append(_right(space, stream, owner, "own", at(begin), None, "open", owner, None))
        rows["authorizations"].append(_right(space, stream, owner, "write", at(begin), None, "open", owner, None))
        while turn < seconds - 4:
            until = min(turn + chance.uniform(3, seconds / 4), seconds - 1)
            rate = chance.choice([4, 10, 25])
            for place in range(int((until - turn) * rate)):
                seq += 1
                frames, size = frames + 1, size + 40
                when = turn + place / rate
                rows["frames"].append(
                    {
                        "space": space,
                        "seq": seq,
                        "ts": at(when),
                        "stream_id": stream,
                        "sender": writer,
                        "stream_seq": frames,
                        "size": 40,
                        "opcode": 1,
                        "kind": "frame",
                        "latency_ms": chance.lognormvariate(0.6, 0.6) if number % 2 == 0 else None,
                    }
                )
            turn = until + chance.uniform(0.2, 3)
            writer = chance.choice(people)
            if writer != owner:
                how, ended = chance.choice(["grant", "transfer"]), chance.choice(["revoked", "expired", "left"])
                held_until = at(min(turn + 8, seconds))
                right = _right(space, stream, writer, "write", at(until + 0.1), held_until, how, owner, ended)
                rows["authorizations"].append({**right, "reason": "your turn", "max_frames": 100, "frames_used": 12})
                if how == "transfer":
                    own = _right(space, stream, writer, "own", at(until + 0.1), held_until, how, owner, "transferred")
                    rows["authorizations"].append(own)
                waited = chance.lognormvariate(4, 1.2)
                rows["handoffs"].append(
                    {
                        "space": space,
                        "seq": 1000 + seq,
                        "ts": at(until + 0.1),
                        "stream_id": stream,
                        "how": how,
                        "by": owner,
                        "writer": writer,
                        "outcome": chance.choice(["written", "written", "unused"]),
                        "waited_ms": waited,
                        "silent_ms": waited + 100,
                    }
                )
        ended = chance.random() < 0.5
        rows["streams"].append(
            {
                "space": space,
                "stream_id": stream,
                "alias": f"hero-{number}" if number % 3 == 0 else None,
                "description": "positions of a character" if number % 2 == 0 else None,
                "status": "closed" if ended else "live",
                "ready_seq": number * 10,
                "ready_ts": at(begin),
                "ended_ts": at(seconds - 1) if ended else None,
                "owner": owner,
                "owners": [(owner, number * 10, at(begin), owner, None)],
                "frames": frames,
                "bytes": size,
            }
        )
        rows["stream_metrics"].append(
            {
                "space": space,
                "stream_id": stream,
                "window_start": START,
                "frames": frames,
                "rate": frames / 10,
                "interarrival_p99_ms": 250.0,
                "drops": chance.choice([0, 0, 17]),
            }
        )
    for place in range(40):
        code, kind = chance.choice(CODES)
        when = at(chance.uniform(1, seconds))
        refusal = {"space": space, "seq": 5000 + place, "ts": when, "sender": people[-1], "kind": kind, "code": code}
        rows["refusals"].append({**refusal, "message": "no", "count": chance.choice([1, 1, 1, 30])})
        rows["envelopes"].append({"space": space, "seq": 6000 + place, "ts": when, "kind": "chat", "sender": people[0]})
    gap = {"space": space, "stream_id": "stream-1", "sender": people[0], "seq": 77, "ts": at(9), "missing": 4}
    rows["sequence_gaps"] += [
        {**gap, "still_missing": 0, "healed": True},
        {**gap, "seq": 99, "sender": people[1], "missing": 12, "still_missing": 3, "healed": False},
    ]
    bad = {"space": space, "seq": 88, "ts": at(9), "stream_id": "stream-1", "sender": people[-1]}
    reasons = [("required", "/", '"x" is a required property')]
    rows["quarantine"].append({**bad, "format_id": "position", "reasons": reasons, "data": b"{}"})
    for place in range(findings):
        found = {"space": space, "seq": place + 1, "ts": at(place), "rule": "frame-after-revoke"}
        reason = f"{people[-1]} wrote after its right was revoked"
        rows["audit"].append({**found, "stream_id": "stream-1", "participant": people[-1], "reason": reason})
    rows["space_summary"].append(
        {
            "space": space,
            "first_seq": 1,
            "first_ts": START,
            "last_seq": seq,
            "last_ts": at(seconds),
            "records": seq,
            "envelopes": 40,
            "frames": len(rows["frames"]),
            "bytes": 40 * len(rows["frames"]),
            "refusals": sum(each["count"] for each in rows["refusals"]),
            "drops": 17,
            "participants": len(people),
            "present": len(people) // 2,
            "joins": len(people),
            "streams": streams,
            "open_streams": sum(each["status"] == "live" for each in rows["streams"]),
            "content": 10,
            "quarantined": 1,
            "frames_judged": len(rows["frames"]),
            "refusals_judged": 40,
            "findings": findings,
            "verdict": "flawed" if findings else "sound",
        }
    )
    return rows


def both(*sessions: Rows) -> Rows:
    """Several spaces in one warehouse."""
    rows: Rows = defaultdict(list)
    for each in sessions:
        for name, found in each.items():
            rows[name] += found
    return rows


def _right(
    space: str,
    stream: str,
    participant: str,
    right: str,
    begin: datetime,
    until: datetime | None,
    how: str,
    by: str,
    ended: str | None,
) -> dict[str, Any]:
    return {
        "space": space,
        "stream_id": stream,
        "participant": participant,
        "right": right,
        "from_seq": int((begin - START).total_seconds() * 100),
        "from_ts": begin,
        "until_seq": None if until is None else int((until - START).total_seconds() * 100),
        "until_ts": until,
        "given_how": how,
        "granted_by": by,
        "ended_how": ended,
        "ended_by": None if ended is None else by,
    }
