"""Nobody exhausts a gateway: each attack of :mod:`exhaustion_attacks`, against a real one, within stated bounds.

Measured are the longest turn of the event loop in CPU time, the memory of the process, and what is on the disk. Beside
each attack somebody talks in another space, and every word is answered. ``docs/operations.md`` states the bounds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from exhaustion_attacks import ATTACKS, MUTE, ORDINARY, ROSTER, SPACE, Attack, Scene

from instruments import TurnMeter, turn_meter
from mewstream.journal.reader import partition_of
from mewstream.journal.settings import JournalSettings
from support import GatewayProcess, space_config

#: Seconds of CPU time that a turn of the event loop may take, with messages of at most a megabyte.
LONGEST_TURN = 0.2
#: Bytes by which the process may grow.
MEMORY = 96 << 20
#: Bytes on the disk of what is refused: a burst, and so many a second.
DISK_BURST = 1 << 20
DISK_PER_SECOND = 64 << 10
#: Of what is accepted, beside that: so many for each byte that was sent, and half as much again as
#: ``caused_bytes_per_second`` allows, of which there may be four seconds' worth at once.
DISK_PER_BYTE = 8
CAUSED_PER_SECOND = 4 << 20
LONG_SCALE = 10


class Measured(NamedTuple):
    turn: float
    memory: int
    disk: int
    sent: int
    seconds: float


class Arena:
    def __init__(self, gateway: GatewayProcess, turns: TurnMeter) -> None:
        self.gateway = gateway
        self.turns = turns

    def disk(self) -> int:
        """Without the log of the bystander's space, which is in a partition of its own: it talks as fast as it can."""
        journal = self.gateway.directory / "data" / "journal"
        partitions = JournalSettings().partitions
        apart = journal / f"p{partition_of('calm', partitions)}"
        assert apart != journal / f"p{partition_of(SPACE, partitions)}"
        files = (self.gateway.directory / "data").rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file() and apart not in file.parents)

    def memory(self, name: str) -> int:
        status = Path(f"/proc/{self.gateway.pid}/status").read_text()
        return int(status.split(f"{name}:")[1].split()[0]) << 10

    def forget_peak(self) -> None:
        """Of the memory: ``VmHWM`` is counted from now on."""
        Path(f"/proc/{self.gateway.pid}/clear_refs").write_text("5")

    async def measure(self, attack: Attack, scale: int) -> Measured:
        scene = Scene(self.gateway)
        loop = asyncio.get_running_loop()
        async with _Bystander(self.gateway):
            before, disk = self.memory("VmRSS"), self.disk()
            self.forget_peak()
            self.turns.reset()
            started = loop.time()
            await attack.run(scene, scale)
            seconds = loop.time() - started
            turn = self.turns.longest
        return Measured(turn, self.memory("VmHWM") - before, self.disk() - disk, scene.sent, seconds)


class _Bystander:
    """Talks in another space, and is answered."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._enough = asyncio.Event()

    async def __aenter__(self) -> None:
        self._client = await self._gateway.join("wendy", space="calm")
        self._talking = asyncio.create_task(self._talk())

    async def _talk(self) -> None:
        number = 0
        while not self._enough.is_set() or number < 5:
            number += 1
            await self._client.send("chat", {"text": str(number)})
            await self._client.receive("chat", timeout=60, text=str(number))
            await asyncio.sleep(0.005)

    async def __aexit__(self, *_: object) -> None:
        self._enough.set()
        await self._talking
        await self._client.close()


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    config = space_config(
        *(MUTE, ORDINARY, *ROSTER),
        space=SPACE,
        capabilities={MUTE: [], ORDINARY: [{"kind": "chat"}, {"kind": "mcp/*"}, {"kind": "stream/*"}]},
        gateway={"drain_seconds": 0},
    )
    # As it is for everyone: the tests of other modules come and go more often than that.
    del config["mewstream"]
    calm = space_config("wendy", space="calm")
    with turn_meter() as turns, tempfile.TemporaryDirectory() as directory:
        options = ("--data", str(Path(directory) / "data"))
        gateway = GatewayProcess(Path(directory), config, calm, options=options, prepare=turns.prepare).start()
        try:
            yield Arena(gateway, turns)
        finally:
            gateway.stop()


async def check(arena: Arena, attack: Attack, scale: int) -> None:
    found = await arena.measure(attack, scale)
    print(f"{attack.who:10} {attack.name:55} {json.dumps(found._asdict())}", file=sys.stderr)
    assert found.turn < LONGEST_TURN
    assert found.memory < MEMORY
    most = DISK_BURST + DISK_PER_SECOND * found.seconds
    if attack.who == ORDINARY:
        most += DISK_PER_BYTE * found.sent + 1.5 * CAUSED_PER_SECOND * (found.seconds + 4)
    assert found.disk < most


@pytest.mark.parametrize("attack", ATTACKS, ids=[each.name for each in ATTACKS])
async def test_attack(arena: Arena, attack: Attack) -> None:
    await check(arena, attack, 1)


@pytest.mark.long
@pytest.mark.parametrize("attack", ATTACKS, ids=[each.name for each in ATTACKS])
async def test_long_attack(arena: Arena, attack: Attack) -> None:
    await check(arena, attack, LONG_SCALE)
