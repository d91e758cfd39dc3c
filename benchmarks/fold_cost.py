"""What the fold of a space costs: CPU time of large batches, and what twice as much of the same costs.

python benchmarks/fold_cost.py [--size 100000]

``reconnects``: one space with so many lost and resumed connections of writers with standing grants, and a frame
after each. ``streams``: one batch that opens a tenth as many streams, which stay open and get frames. ``frames``:
twenty times as many frames of fifty streams. No Spark: a worker does exactly this.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

sys.path[:0] = [str(Path(__file__).parent.parent / "tests" / each) for each in ("", "pipeline", "history")]
WRITERS = 10


def main() -> None:
    from mewstream.history.reading import by_space
    from mewstream.pipeline.spaces import Carried, fold

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--size", type=int, default=100_000)
    size = parser.parse_args().size
    kinds: dict[str, tuple[Callable[[int], pa.Table], int]] = {
        "reconnects": (reconnects, size),
        "streams": (streams, size // 10),
        "frames": (frames, size * 20),
    }
    for name, (make, count) in kinds.items():
        cost = []
        for number in (count // 2, count):
            rows = make(number)
            began = time.process_time()
            [space] = by_space(rows)
            made = fold(space, Carried())
            cost.append(time.process_time() - began)
            assert not made.rows["audit"], made.rows["audit"][:3]
        print(f"{name}: {count // 2:,} take {cost[0]:.2f} s, {count:,} {cost[1]:.2f} s: {cost[1] / cost[0]:.2f} times")


def reconnects(count: int) -> pa.Table:
    from folding import table_of
    from journals import Play

    people = tuple(f"writer-{number}" for number in range(WRITERS))
    play = Play("reconnects", people=("ann", *people), begin=True)
    play.open("ann", auto_grant=list(people))
    for number in range(count):
        who = people[number % WRITERS]
        play.suspend(who)
        play.join(who)
        play.frame(who, "stream-1")
    return table_of(play.space, play.records)


def streams(count: int) -> pa.Table:
    from folding import table_of
    from journals import Play

    play = Play("streams", limits={"streams_per_space": count, "streams_per_participant": count}, begin=True)
    for _ in range(count):
        stream = play.open("ann", auto_grant=["bob"])
        play.frame("ann", stream)
        play.frame("bob", stream)
    return table_of(play.space, play.records)


def frames(count: int) -> pa.Table:
    from folding import table_of
    from journals import Play

    play = Play("frames", begin=True)
    opened = [play.open("ann") for _ in range(50)]
    [first] = play.frame("ann", opened[0])
    control = table_of(play.space, play.records[:-1])
    place = pa.array(range(count), pa.int64())
    number = pa.compute.divide(place, 50)
    one = table_of(play.space, [first], offset=control.num_rows)
    many = one.take(pa.array([0] * count))
    values = {
        "offset": pa.compute.add(place, control.num_rows),
        "seq": pa.compute.add(place, first.seq),
        "stream_id": pa.array(opened).take(pa.compute.subtract(place, pa.compute.multiply(number, 50))),
        "stream_seq": pa.compute.add(number, 1),
        "ts": pa.compute.add(one.column("ts").cast(pa.int64())[0], pa.compute.multiply(place, 100)).cast(
            one.schema.field("ts").type
        ),
    }
    for name, value in values.items():
        many = many.set_column(many.schema.get_field_index(name), name, value)
    return pa.concat_tables([control, many])


if __name__ == "__main__":
    main()
