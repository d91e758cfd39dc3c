"""The audit: nothing is found in logs that the core has written, and every planted fault is, however it is batched."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from faults import CHAT_ONLY, FAULTS, planted
from journals import POSITION_FORMAT, Play, lively, rows_of

from mewstream.history.reading import by_space, narrow
from mewstream.journal.rows import Rows
from mewstream.journal.schema import SCHEMA
from mewstream.pipeline.spaces import Carried, fold
from mewstream.protocol import kinds
from mewstream.protocol.records import SpaceStarted
from mewstream.protocol.times import SECOND, rfc3339
from support import running_gateway, space_config

JUDGED_CODES = {
    *("capability_violation", "format_required", "format_violation", "invalid_operation", "limit_exceeded"),
    *("participant_not_found", "reserved_kind", "sequence_regression", "stream_not_found", "target_not_found"),
    *("unauthorized", "unauthorized_stream_write"),
}


def rows(*plays: Play) -> pa.Table:
    """The logs of spaces that share a partition of a journal."""
    made = []
    offset = 0
    epochs = {play.space: "" for play in plays}
    for together in itertools.zip_longest(*[play.records for play in plays]):
        batch = Rows()
        for play, record in zip(plays, together, strict=True):
            if isinstance(record, SpaceStarted):
                epochs[play.space] = record.epoch
            if record is not None:
                batch.append(play.space, epochs[play.space], record)
        made.append(batch.encode(offset))
        offset += batch.count
    return pa.Table.from_batches(made, SCHEMA)


class Judge:
    """Batches of records, one after the other."""

    def __init__(self) -> None:
        self._carried: dict[str, Carried] = {}
        self.findings: list[dict[str, Any]] = []
        self.counts: dict[str, Counter[str]] = {}

    def batch(self, table: pa.Table) -> Judge:
        rows = pa.Table.from_batches([narrow(each) for each in table.combine_chunks().to_batches()])
        for each in by_space(rows):
            folded = fold(each, self._carried.get(each.space, Carried()))
            self.findings += folded.rows["audit"]
            self.counts.setdefault(each.space, Counter()).update(folded.told.sums)
            self._carried[each.space] = folded.carried
        return self

    def found(self) -> set[tuple[Any, ...]]:
        return {tuple(each.values()) for each in self.findings}


# -- what the core writes -------------------------------------------------------------------------


def busy(space: str, **options: Any) -> Play:
    """Everything that ends well or is refused for a good reason: the gateway's own acts and every code."""
    play = Play(
        space,
        capabilities={
            "cy": CHAT_ONLY,
            "dee": [{"kind": "stream/*"}, {"kind": "!stream/request"}],
            "eve": [{"kind": kind} for kind in ("space/*", "!stream/grant-*", "stream/manage", "!stream/announce")],
        },
        limits={"streams_per_space": 6, "writers_per_stream": 3},
        **options,
    )
    for each in ("ann", "bob", "cy"):
        play.join(each)
    play.open("ann", desired_id="main", auto_grant=["bob", "dee"])
    for stream in ("main", "stream-1"):
        for who in ("ann", "bob", "cy"):
            play.frame(who, stream)
    play.join("dee")
    play.frame("dee", "stream-1")
    play.data("dee", "stream-1", "x", sequence=3)
    play.data("dee", "stream-1", "x", sequence=3)
    play.join("dee", continues=True)
    play.data("dee", "stream-1", "x", sequence=2)
    play.join("dee")
    play.data("dee", "stream-1", "x", sequence=0)
    for conditions in ({"max_frames": 2}, {"expires_at": rfc3339(play.now + SECOND)}):
        play.send("ann", kinds.REVOKE_WRITE, stream_id="stream-1", participant_id="dee")
        play.send("ann", kinds.GRANT_WRITE, stream_id="stream-1", participant_id="cy", conditions=conditions)
        for _ in range(4):
            play.frame("cy", "stream-1")
            play.wait(0.4)
    for sender in ("cy", "dee"):
        play.send(sender, kinds.GRANT_WRITE, stream_id="stream-1", participant_id=sender)
        play.send(sender, kinds.TRANSFER_OWNERSHIP, stream_id="stream-1", new_owner=sender)
        play.send(sender, kinds.STREAM_CLOSE, stream_id="stream-1")
        play.send(sender, kinds.STREAM_REQUEST)
        play.send(sender, kinds.STREAM_ANNOUNCE)
        play.send(sender, kinds.WRITE_GRANTED, stream_id="stream-1")
    play.send("ann", kinds.REVOKE_WRITE, stream_id="stream-1", participant_id="ann")
    play.send("ann", kinds.GRANT_WRITE, stream_id="stream-1", participant_id="nobody")
    play.send("ann", kinds.STREAM_REQUEST, target=["nobody"])
    play.send("ann", kinds.GRANT_WRITE, stream_id="stream-9", participant_id="bob")
    play.send("bob", "capability/grant", recipient="cy", capabilities=[{"kind": "space/manage-*"}])
    play.send("cy", kinds.GRANT_READ, stream_id="stream-1", participant_id="cy")
    play.send("cy", kinds.TRANSFER_OWNERSHIP, stream_id="stream-1", new_owner="bob", retain_write=True)
    play.send("bob", "capability/revoke", recipient="cy", capabilities=[{"kind": "space/manage-*"}])
    play.send("cy", kinds.REVOKE_READ, stream_id="stream-1", participant_id="ann")
    play.send("bob", kinds.REVOKE_READ, stream_id="stream-1", participant_id="cy")
    play.frame("ann", "stream-1")
    stream = play.announce("ann", start=False, formats=[POSITION_FORMAT], validate="enforce")
    play.frame("ann", stream)
    play.send("ann", kinds.STREAM_COMPLETE, stream_id=stream)
    play.send("ann", kinds.STREAM_START, stream_id=stream)
    play.send("ann", kinds.STREAM_START, stream_id=stream)
    play.frame("ann", stream, b'{"x":1}', opcode=1)
    play.frame("ann", stream, b'{"x":"no"}', opcode=1)
    play.data("ann", stream, {"x": 1}, format_id="other")
    two = [POSITION_FORMAT, {"id": "text", "mime_type": "text/plain"}]
    play.frame("ann", play.announce("ann", formats=two), b"x")
    play.send("bob", kinds.PAUSE, envelope={"to": ["ann"]}, timeout_seconds=5)
    play.frame("ann", stream)
    play.send("ann", kinds.GRANT_WRITE, stream_id=stream, participant_id="bob")
    play.wait(6)
    play.data("ann", stream, {"x": 2})
    play.send("bob", kinds.KICK, participant_id="dee")
    for _ in range(6):
        play.send("bob", kinds.STREAM_ANNOUNCE)
    play.wait(70)
    for each in ("cy", "dee"):
        play.join(each)
        play.send("bob", kinds.GRANT_WRITE, stream_id="stream-1", participant_id=each)
    play.leave("bob")
    play.data("bob", "stream-1", "from afar", sequence=1)
    play.wait(70)
    play.restart(after=2.0)
    play.wait(60)
    play.join("ann")
    play.frame("ann", "stream-1")
    play.send("ann", kinds.STREAM_CLOSE, stream_id="main")
    play.frame("ann", "main")
    play.open("ann", desired_id="main")
    play.frame("ann", "main")
    for each in ("bob", "eve"):
        play.join(each)
    last = play.open("ann")
    # A denial wins over what another capability allows; what it does not name is allowed.
    play.send("eve", kinds.STREAM_ANNOUNCE)
    for kind in (kinds.GRANT_WRITE, kinds.GRANT_READ, kinds.REVOKE_WRITE):
        play.send("eve", kind, stream_id=last, participant_id="bob")
    # A paused owner may close, and one who was shut down may not.
    play.send("bob", kinds.PAUSE, envelope={"to": ["ann"]})
    play.send("ann", kinds.STREAM_CLOSE, stream_id=last)
    play.send("bob", kinds.RESUME, envelope={"to": ["ann"]})
    play.send("bob", kinds.SHUTDOWN, envelope={"to": ["ann"]})
    play.frame("ann", "main")
    play.send("ann", kinds.REVOKE_WRITE, stream_id="main", participant_id="bob")
    play.join("ann")
    play.frame("ann", "main")
    return play


def sound_plays() -> list[Play]:
    played = [busy(f"busy-{policy}", policies={"on_owner_leave": policy}) for policy in ("keep", "transfer", "close")]
    played += [lively(250, space=f"lively-{seed}", seed=seed) for seed in range(4)]
    played.append(lively(250, space="heirs", seed=9, policies={"on_owner_leave": "transfer", "owner_leave_grace": 1}))
    return played


def cut(table: pa.Table, *places: float) -> Iterable[pa.Table]:
    edges = [0, *(int(place * table.num_rows) for place in places), table.num_rows]
    return [table.slice(start, end - start) for start, end in itertools.pairwise(edges)]


def test_nothing_is_found_in_what_the_core_writes() -> None:
    table = rows(*sound_plays())
    whole = Judge().batch(table)
    assert whole.findings == []
    assert set(table["outcome"].to_pylist()) - {"accepted"} == JUDGED_CODES
    for space, counts in whole.counts.items():
        assert counts["frames_not_judged"] == 0
        assert counts["frames_judged"] >= 10, space
        # The content that a format forbids is not in the log, nor is all of what a limit or a pattern looks at.
        assert counts["refusals_judged"] > 8 * counts["refusals_not_judged"], (space, counts)
    pieces = Judge()
    for piece in cut(table, 0.45):
        pieces.batch(piece)
    assert pieces.findings == []
    assert pieces.counts == whole.counts


# -- what it would never write --------------------------------------------------------------------


def test_every_planted_fault_is_found_at_its_place_whatever_the_batches() -> None:
    faults = {name: planted(name) for name in FAULTS}
    whole = Judge().batch(rows(*(play for play, _ in faults.values())))
    found = {(each["space"], each["seq"], each["rule"]) for each in whole.findings}
    assert found == {(name, seq, rule) for name, (_, (seq, rule)) in faults.items()}
    assert all(each["reason"] and each["severity"] in ("breach", "flaw") for each in whole.findings)

    for name, (play, _) in faults.items():
        table = rows(play)
        found = {each for each in whole.found() if each[0] == name}
        for place in range(1, table.num_rows):
            pieces = Judge().batch(table.slice(0, place)).batch(table.slice(place))
            assert pieces.found() == found, (name, place)
            assert pieces.counts[name] == whole.counts[name], (name, place)


def test_a_log_without_its_beginning_is_judged_as_far_as_it_goes() -> None:
    play = Play("pruned", begin=True)
    play.open("ann")
    play.frame("ann", "stream-1")
    lost = len(play.records)
    play.frame("ann", "stream-1")
    stream = play.open("ann")
    play.frame("ann", stream)
    play.frame("cy", stream)
    play.send("cy", kinds.GRANT_WRITE, stream_id="stream-1", participant_id="nobody")
    judged = Judge().batch(rows(play).slice(lost))
    assert judged.findings == []
    counts = judged.counts["pruned"]
    assert (counts["frames_judged"], counts["frames_not_judged"]) == (1, 1)


# -- a real gateway -------------------------------------------------------------------------------


async def misbehave(gateway: Any) -> None:
    ann, bob = await gateway.join("ann"), await gateway.join("bob")
    stream = await ann.open_stream(direction="upload")
    for _ in range(20):
        await ann.frame(stream, "x")
        await bob.frame(stream, "forged")
        await bob.frame("stream-99", "nowhere")
    stolen = await bob.send(kinds.GRANT_WRITE, {"stream_id": stream, "participant_id": "bob"})
    await bob.error("unauthorized", of=stolen)
    forged = await bob.send(kinds.OWNERSHIP_TRANSFERRED, {"stream_id": stream, "new_owner": "bob"})
    await bob.error("reserved_kind", of=forged)
    await ann.send(kinds.GRANT_WRITE, {"stream_id": stream, "participant_id": "bob", "conditions": {"max_frames": 5}})
    await bob.receive(kinds.WRITE_GRANTED)
    for _ in range(10):
        await bob.frame(stream, "mine")
    await bob.receive(kinds.WRITE_REVOKED)
    data = {"kind": kinds.STREAM_DATA, "payload": {"stream_id": stream, "sequence": 1, "content": 1}}
    for sender in ("bob", "ann", "ann"):
        await gateway.post(sender, data)
    await ann.close()
    data["payload"] = {"stream_id": stream, "sequence": 2, "content": 1}
    await gateway.post("ann", data)
    await bob.frame(stream, "still not")
    await bob.settle()
    await bob.close()


def test_nothing_is_found_in_the_journal_of_a_gateway(tmp_path: Path) -> None:
    config = space_config("ann", "bob", capabilities={"bob": [{"kind": "chat"}, {"kind": "stream/*"}]})
    with running_gateway(config, options=("--data", str(tmp_path / "data"))) as gateway:
        asyncio.run(misbehave(gateway))
    table = rows_of(tmp_path / "data").drop_columns(["partition"])
    judged = Judge().batch(table)
    assert judged.findings == []
    counts = judged.counts["demo"]
    assert counts["frames_judged"] >= 26
    assert counts["refusals_judged"] >= 5
