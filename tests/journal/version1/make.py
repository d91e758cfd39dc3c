"""Made the journals beside it with the code of commit 2480705, the last one that wrote version 1:

    mkdir /tmp/old && git archive 2480705 | tar -x -C /tmp/old
    PYTHONPATH=/tmp/old/src:/tmp/old/tests/pipeline python tests/journal/version1/make.py tests/journal/version1

``whole`` has everything from the first record on, sealed segments and open ones. ``pruned`` has lost its beginning, and
with it the records that made the reader sets of streams that are still open. ``NAME.jsonl`` has the records of each, as
the old code read them back: the space, and the record as JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from journals import Play, append, opened, prune_before, seal_segments

from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader


def beginning(space: str) -> Play:
    play = Play(space, begin=True)
    play.open("ann", desired_id="private", target=["ann", "bob"])
    play.open("ann", desired_id="public")
    play.send("ann", "stream/grant-write", stream_id="stream-2", participant_id="bob")
    write_some(play)
    return play


def write_some(play: Play) -> None:
    for number in range(4):
        play.frame("ann", "stream-1", b"secret %d" % number)
        play.frame("bob", "stream-2", b"open %d" % number)
        play.data("ann", "stream-1", {"secret": number})
        play.send("cy", "chat", text=f"{play.space} {number}")


def change_readers(play: Play) -> None:
    play.send("ann", "stream/grant-read", stream_id="stream-1", participant_id="cy")
    write_some(play)
    play.send("ann", "stream/revoke-read", stream_id="stream-1", participant_id="bob")
    write_some(play)


def snapshot(journal: LocalJournal, *plays: Play) -> None:
    for number in range(len(journal.partitions)):
        states = {play.space: play.state for play in plays}
        journal.write_snapshot(*journal.encode_snapshot(number, states))


def whole(data: Path) -> None:
    demo, other = beginning("demo"), beginning("other")
    with opened(data, partitions=2, segment_bytes=20_000) as journal:
        append(journal, demo, other, per_batch=6)
        snapshot(journal, demo, other)
        seal_segments(journal)
        for play in (demo, other):
            change_readers(play)
        append(journal, demo, other, per_batch=6)


def pruned(data: Path) -> None:
    demo = beginning("demo")
    with opened(data, partitions=1, segment_bytes=8_000) as journal:
        append(journal, demo, per_batch=6)
        change_readers(demo)
        append(journal, demo, per_batch=6)
        seal_segments(journal)
        made_at = demo.state.seq
        write_some(demo)
        write_some(demo)
        append(journal, demo, per_batch=6)
        snapshot(journal, demo)
        assert prune_before(journal, 0, journal.partitions[0].next_offset) > made_at
        write_some(demo)
        append(journal, demo, per_batch=6)


def told(data: Path) -> bytes:
    reader = JournalReader(data / "journal")
    lines = [
        msgspec.json.encode([entry.space, entry.record])
        for number in range(reader.identity().partitions)
        for entry in reader.entries(number, reader.identity().pruned.get(number, 0))
    ]
    return b"\n".join(lines) + b"\n"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for make in (whole, pruned):
        data = target / make.__name__
        make(data)
        (data / "lock").unlink()
        (target / f"{make.__name__}.jsonl").write_bytes(told(data))
