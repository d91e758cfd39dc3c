"""What users type is typed: ``mypy --strict`` on a script that uses every public name, and on a wrong one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mewstream

GOOD = """
import asyncio
import dataclasses
import ssl
from datetime import UTC, datetime, timedelta

import mewstream
import mewstream.sync
from mewstream import events


@dataclasses.dataclass
class Point:
    x: int


async def token() -> str:
    return "t"


async def main() -> None:
    context = ssl.create_default_context()
    backoff = mewstream.Backoff(first=0.1, most=5.0, attempts=3)
    connecting = mewstream.connect("ws://h", space="s", participant="p", token=token, ssl=context, reconnect=backoff)
    async with connecting as space:
        ids: list[str] = [*space.participants, *space.streams]
        format = mewstream.Format("f", schema={"type": "object"})
        async with space.open_stream(description=ids[0], formats=[format], validate=True) as stream:
            await stream.send(b"x")
            await stream.grant("p", reason="r", expires_at=datetime.now(UTC) + timedelta(hours=1), max_frames=3)
            await stream.transfer("p")
        announced: mewstream.Stream = await space.announce(formats=[{"id": "f"}], name="d")
        await announced.fail("code", "message")
        async for frame in space.subscribe("s", on_slow="latest"):
            point: Point = frame.json(Point)
            gap: int = frame.gap + point.x
            print(frame.text, frame.sequence, frame.writer, gap)
        with space.events(max_pending=10) as news:
            async for event in news:
                match event:
                    case mewstream.WriteGranted(stream=name, participant=who):
                        print(name.upper(), who.upper())
                    case events.Resumed(recovered=recovered):
                        print(recovered is True)
                    case mewstream.StreamOpened(handle=handle):
                        print(handle.authorized_writers[0].upper())
        message: mewstream.Message = await space.chat("hi")
        proposal: mewstream.Proposal = await space.propose(message.kind)
        await proposal.withdraw()
        invitation: mewstream.Invitation = await space.invite("g")
        print(invitation.token.upper())
        space.tool("t", lambda a: a, {"type": "object"})
        try:
            await space.flush()
        except mewstream.FramesUnconfirmed as error:
            print(error.count + 1)
        except mewstream.PeerError as error:
            print(error.code.upper())


def script() -> None:
    with mewstream.sync.connect("ws://h", token="t") as space, space.open_stream() as stream:
        stream.send({"x": 1})
        for frame in stream.subscribe():
            print(frame.data.decode())
        for event in space.events():
            print(event.seq)


asyncio.run(main())
"""

WRONG = """
import mewstream


async def main() -> None:
    async with mewstream.connect("ws://h", tokn="t") as space:
        stream = await space.open_stream()
        await stream.grant(7)
        space.subscribe("s", on_slow="wait")
        async for frame in space.subscribe("s"):
            frame.gap.upper()
        space.chatt("hi")
"""


def check(directory: Path, code: str) -> list[str]:
    file = directory / "script.py"
    file.write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(directory / "cache"), str(file)]
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    return [line for line in result.stdout.splitlines() if "error:" in line]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("typing")


def test_a_users_script_is_clean(directory: Path) -> None:
    # Every public name is there, and none of them is an untyped surprise.
    uses = "".join(f"reveal_used({number}, mewstream.{name})\n" for number, name in enumerate(mewstream.__all__))
    every = f"{GOOD}\ndef reveal_used(number: int, value: object) -> None: ...\n\n\n{uses}"
    assert check(directory, every) == []


def test_a_users_mistakes_are_found(directory: Path) -> None:
    found = check(directory, WRONG)
    lines = {int(line.split(":")[1]) for line in found}
    wrong = [
        number
        for number, line in enumerate(WRONG.splitlines(), 1)
        if any(each in line for each in ("tokn", "grant(7)", '"wait"', "upper", "chatt"))
    ]
    assert lines == set(wrong), found


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(mewstream.__file__).parent / "py.typed").is_file()


def test_every_name_is_there_and_loaded_late() -> None:
    for name in mewstream.__all__:
        assert getattr(mewstream, name) is not None
    assert set(dir(mewstream)) >= set(mewstream.__all__)
    with pytest.raises(AttributeError, match="no attribute"):
        _ = mewstream.unheard_of
    code = "import sys, mewstream; assert not [m for m in sys.modules if m.startswith('mewstream.client')]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
