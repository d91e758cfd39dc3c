"""What a journal says, found out without the code that wrote it.

The Arrow files are read with plain ``pyarrow``, ``detail`` is parsed as JSON, and the rows are folded
by rules written down here once more. Nothing of ``mewstream`` is imported.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
_DATA = re.compile(r"(\d{20})(\.sealed)?\.arrow\Z")


def data_files(partition: Path) -> list[Path]:
    """The segments of a partition in order. A sealed one counts once its index is there."""
    found: dict[int, Path] = {}
    for file in sorted(partition.iterdir()):
        match = _DATA.match(file.name)
        if match is None:
            continue
        if match[2] is None:
            found.setdefault(int(match[1]), file)
        elif file.with_name(f"{match[1]}.sealed.index").exists():
            found[int(match[1])] = file
    return [found[first] for first in sorted(found)]


def rows_of_file(file: Path) -> Iterator[Row]:
    sealed = file.with_suffix(".sealed.arrow")
    try:
        # It may be sealed meanwhile, by a gateway that runs: the new file is there before the old one goes.
        with pa.OSFile(str(file if file.exists() else sealed)) as source:
            for batch in pa.ipc.open_stream(source):
                yield from batch.to_pylist()
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError):
        return  # the tail of a file that is being written


def rows(data: Path) -> list[Row]:
    """All rows of a data directory, by partition and offset; ``detail`` is decoded. Checks that offsets
    have neither gap nor repeat."""
    found: list[Row] = []
    for partition in sorted((data / "journal").glob("p[0-9]*")):
        for attempt in range(20):
            try:
                found += _rows_of_partition(partition)
                break
            except FileNotFoundError:  # sealed meanwhile, by a gateway that runs: look again
                if attempt == 19:
                    raise
    return found


def _rows_of_partition(partition: Path) -> list[Row]:
    found: list[Row] = []
    expected: int | None = None
    for file in data_files(partition):
        for row in rows_of_file(file):
            assert expected is None or row["offset"] == expected, f"{file}: offset {row['offset']}, expected {expected}"
            expected = row["offset"] + 1
            row["partition"] = partition.name
            row["detail"] = json.loads(row["detail"]) if row["detail"] is not None else {}
            found.append(row)
    return found


def space_rows(data: Path, space: str = "demo", *, from_start: bool = True) -> list[Row]:
    """The rows of one space. Checks that ``seq`` has neither gap nor repeat and that time never runs back."""
    found = [row for row in rows(data) if row["space"] == space]
    assert len({row["partition"] for row in found}) <= 1, "a space is in two partitions"
    if from_start and found:
        assert found[0]["seq"] == 1, found[0]
    for before, after in itertools.pairwise(found):
        assert after["seq"] == before["seq"] + 1, (
            f"seq {after['seq']} ({after['record']}) follows {before['seq']} ({before['record']})"
        )
        assert after["ts"] >= before["ts"], f"time runs back at seq {after['seq']}"
        assert after["cause_seq"] is None or after["cause_seq"] < after["seq"]
    return found


@dataclass
class OracleStream:
    owner: str
    writers: list[str]
    readers: list[str] | None
    status: str
    alias: str | None
    frames: int = 0
    left: dict[str, int] = field(default_factory=dict)
    """Frames that a conditional writer may still send."""


@dataclass
class Oracle:
    present: dict[str, bool] = field(default_factory=dict)
    """Who is here -> connected (True) or suspended."""
    streams: dict[str, OracleStream] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    """Every stream id that was ever given out, in order."""
    seq: int = 0

    def summary(self) -> dict[str, Any]:
        return {
            "present": sorted(self.present),
            "streams": {
                id: {
                    "owner": each.owner,
                    "writers": sorted(each.writers),
                    "readers": None if each.readers is None else sorted(each.readers),
                    "status": each.status,
                    "alias": each.alias,
                }
                for id, each in sorted(self.streams.items())
            },
        }


def fold(found: Iterable[Row]) -> Oracle:
    state = Oracle()
    for row in found:
        state.seq = row["seq"]
        _step(state, row)
    return state


def _step(state: Oracle, row: Row) -> None:
    detail, who, stream_id = row["detail"], row["sender"], row["stream_id"]
    match row["record"]:
        case "joined":
            state.present[who] = True
        case "left":
            assert who in state.present, f"seq {row['seq']}: {who} left and was not here"
            del state.present[who]
        case "suspended":
            assert who in state.present, f"seq {row['seq']}: {who} was suspended and was not here"
            state.present[who] = False
        case "stream-opened":
            assert stream_id not in state.opened, f"{stream_id} was given out twice"
            state.opened.append(stream_id)
            state.streams[stream_id] = OracleStream(
                owner=detail["owner"],
                writers=list(detail["authorized_writers"]),
                readers=detail.get("authorized_readers"),
                status=detail["status"],
                alias=detail.get("alias"),
            )
        case "stream-started":
            state.streams[stream_id].status = "live"
        case "stream-ended":
            del state.streams[stream_id]
        case "write-granted":
            stream = state.streams[stream_id]
            if row["participant"] not in stream.writers:
                stream.writers.append(row["participant"])
            stream.left.pop(row["participant"], None)
            if detail.get("max_frames") is not None:
                stream.left[row["participant"]] = detail["max_frames"]
            _agree(row, stream.writers, detail["authorized_writers"])
        case "write-revoked":
            stream = state.streams[stream_id]
            assert row["participant"] != stream.owner, f"seq {row['seq']}: the owner lost the right to write"
            if row["participant"] in stream.writers:
                stream.writers.remove(row["participant"])
            stream.left.pop(row["participant"], None)
            _agree(row, stream.writers, detail["authorized_writers"])
        case "ownership-transferred":
            stream = state.streams[stream_id]
            assert detail["previous_owner"] == stream.owner
            stream.owner = detail["new_owner"]
            stream.left.pop(stream.owner, None)
            if stream.owner not in stream.writers:
                stream.writers.append(stream.owner)
            previous = detail["previous_owner"]
            if previous != stream.owner and previous not in detail["authorized_writers"]:
                stream.writers.remove(previous)
            _agree(row, stream.writers, detail["authorized_writers"])
        case "read-granted":
            stream = state.streams[stream_id]
            if stream.readers is not None and row["participant"] not in stream.readers:
                stream.readers.append(row["participant"])
            if stream.readers is not None:
                _agree(row, stream.readers, detail["authorized_readers"])
        case "read-revoked":
            stream = state.streams[stream_id]
            before = list(state.present) if stream.readers is None else stream.readers
            stream.readers = [each for each in before if each != row["participant"]]
            _agree(row, stream.readers, detail["authorized_readers"])
        case "frame":
            stream = state.streams[stream_id]
            assert who in stream.writers, f"seq {row['seq']}: {who} wrote to {stream_id} without a right"
            stream.frames += 1
            assert row["stream_seq"] == stream.frames, f"seq {row['seq']}: frame {row['stream_seq']} of {stream_id}"
            if who in stream.left:
                assert stream.left[who] > 0, f"seq {row['seq']}: {who} wrote more than granted"
                stream.left[who] -= 1


def _agree(row: Row, ours: list[str], theirs: list[str]) -> None:
    assert sorted(ours) == sorted(theirs), f"seq {row['seq']}: {row['record']} says {theirs}, the log says {ours}"


def of_welcome(welcome: dict[str, Any]) -> dict[str, Any]:
    """A ``system/welcome`` in the shape of :meth:`Oracle.summary`."""
    payload = welcome["payload"]
    return {
        "present": sorted([payload["you"]["id"], *(each["id"] for each in payload["participants"])]),
        "streams": {
            each["stream_id"]: {
                "owner": each["owner"],
                "writers": sorted(each["authorized_writers"]),
                "readers": sorted(each["authorized_readers"]) if "authorized_readers" in each else None,
                "status": each["status"],
                "alias": each.get("alias"),
            }
            for each in payload["active_streams"]
        },
    }


def at(data: Path, seq: int, space: str = "demo") -> Oracle:
    """The state of a space at a position."""
    found = [row for row in space_rows(data, space) if row["seq"] <= seq]
    assert found[-1]["seq"] == seq, f"the journal ends at {found[-1]['seq']}, expected {seq}"
    return fold(found)
