"""``pip install mewstream``: the SDK and the command line, on plain asyncio, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from installation import Installation, run

from support import GatewayProcess, token_of

#: What only a gateway, queries or Spark need.
OF_EXTRAS = {
    *("aiohttp", "deltalake", "duckdb", "google-re2", "jsonschema-rs", "pandas", "plotly", "prometheus-client"),
    *("pyarrow", "pyspark", "rich", "uvloop"),
}
MOST_BYTES = 40_000_000


def settings(gateway: GatewayProcess) -> dict[str, str]:
    tokens = {f"MEW_TOKEN_{name.upper()}": token_of(name) for name in ("server", "ann", "bob")}
    return {"MEW_URL": gateway.ws_url, **tokens}


def test_it_is_small(plain: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    packages, size = plain.packages, plain.size
    with capsys.disabled():
        print(f"\n  pip install mewstream: {len(packages)} packages, {size / 1e6:.1f} MB")
    assert packages.keys() & OF_EXTRAS == set()
    assert size < MOST_BYTES


def test_the_types_are_there(plain: Installation) -> None:
    plain.runs("from importlib.resources import files; assert files('mewstream').joinpath('py.typed').is_file()")


def test_every_command_has_its_help(plain: Installation) -> None:
    """Also those that need an extra: their help tells what they would do."""
    program = """
import click
from click.testing import CliRunner
from mewstream.cli.main import cli

def leaves(command, path=()):
    yield path
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from leaves(each, (*path, name))

for path in leaves(cli):
    shown = CliRunner().invoke(cli, [*path, "--help"])
    assert shown.exit_code == 0 and "Usage:" in shown.output, (path, shown)
    print(*path)
"""
    shown = plain.runs(program).out.splitlines()
    assert {"serve", "journal cat", "pipeline run", "query", "demo"} <= set(shown)


@pytest.mark.parametrize(
    ("arguments", "extras"),
    [
        (["serve"], "gateway"),
        (["serve", "--config", "nosuch.yaml"], "gateway"),
        (["journal", "ls", "--data", "d"], "gateway"),
        (["journal", "cat", "--data", "d"], "gateway"),
        (["journal", "export", "--data", "d", "--output", "o"], "gateway"),
        (["journal", "verify", "--data", "d"], "gateway"),
        (["journal", "prune", "--data", "d", "--max-age", "1d"], "gateway"),
        (["journal", "erase", "--data", "d", "--space", "s", "--yes"], "gateway"),
        (["state", "--data", "d"], "gateway"),
        (["replay", "--as", "ann", "--data", "d", "--stream", "s"], "gateway"),
        (["bench", "fanout", "--spawn"], "gateway"),
        (["state", "--warehouse", "w"], "query"),
        (["query", "--warehouse", "w", "SELECT 1"], "query"),
        (["query", "--warehouse", "w", "--engine", "spark", "SELECT 1"], "query,spark"),
        (["audit", "--warehouse", "w"], "query"),
        (["report", "--warehouse", "w"], "query"),
        (["warehouse", "sql", "--warehouse", "w", "--dialect", "duckdb"], "query"),
        (["erase", "--space", "s", "--warehouse", "w", "--yes"], "query"),
        (["pipeline", "run", "--data", "d", "--warehouse", "w"], "query,spark"),
        (["demo"], "gateway,query,spark"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_what_is_missing_is_said_in_one_line_before_anything_is_done(
    plain: Installation, arguments: list[str], extras: str
) -> None:
    before = sorted(plain.home.rglob("*"))
    done = plain.mewstream(*arguments, code=2)
    assert done.out == "" and done.err.count("\n") == 1, done
    assert f" needs mewstream[{extras}], which is not installed: run: {plain.python} -m pip install" in done.err
    assert sorted(plain.home.rglob("*")) == before


def test_the_doctor_says_it_too(plain: Installation) -> None:
    done = plain.mewstream("doctor", "--json", "--port", "0", code=1)
    found = {each["what"]: each for each in json.loads(done.out)}
    assert found["packages"]["level"] == "ok"
    assert found["gateway"]["level"] == "missing" and "[gateway]" in found["gateway"]["remedy"]


def test_it_runs_as_a_module(plain: Installation) -> None:
    done = run([plain.python, "-m", "mewstream", "--version"], cwd=plain.home)
    assert done.out == plain.mewstream("--version").out == f"mewstream, version {plain.packages['mewstream']}\n"
    assert "Usage: python -m mewstream send" in run([plain.python, "-m", "mewstream", "send", "-h"], cwd=plain.home).out


SDK = """
import asyncio, json, sys
import mewstream

async def main():
    loop = asyncio.get_running_loop()
    assert type(loop).__module__.startswith("asyncio."), loop
    async with mewstream.connect(participant="server") as server, mewstream.connect(participant="ann") as ann:
        stream = await server.open_stream(description="numbers")
        frames = server.subscribe(stream)
        await stream.grant("ann")
        mine = await ann.stream(stream.id)
        for number in range(500):
            await mine.send(str(number))
        await mine.send(b"bytes" * 100_000)
        got = [await anext(frames) for _ in range(501)]
        assert [each.text for each in got[:500]] == [str(number) for number in range(500)]
        assert got[500].data == b"bytes" * 100_000
        await stream.close()
    print("done", *sorted({name.partition(".")[0] for name in sys.modules}))

asyncio.run(main())
"""


def test_the_sdk_works_on_plain_asyncio(plain: Installation, gateway: GatewayProcess) -> None:
    done = plain.runs(SDK, **settings(gateway))
    said, *modules = done.out.split()
    assert said == "done" and "mewstream" in modules and "uvloop" not in modules


def test_the_synchronous_sdk_too(plain: Installation, gateway: GatewayProcess) -> None:
    program = """
import mewstream.sync
with mewstream.sync.connect(participant="ann") as space:
    with space.open_stream(description="x") as stream:
        stream.send("1")
        stream.flush()
    print(stream.id)
"""
    assert plain.runs(program, **settings(gateway)).out.startswith("stream-")


def test_checking_against_a_schema_needs_an_extra(plain: Installation, gateway: GatewayProcess) -> None:
    """A stream that would be checked is not opened, and a tool that would be checked is not served."""
    program = """
import asyncio
import mewstream

async def main():
    async with mewstream.connect(participant="ann") as space:
        space.tool("free", lambda **arguments: sorted(arguments))
        for refused in (
            lambda: space.open_stream(formats=[{"id": "f", "schema": {"type": "object"}}], validate=True),
            lambda: space.tool("bound", print, {"type": "object", "required": ["x"]}),
        ):
            try:
                refused()
            except mewstream.ConfigError as error:
                print(error)
        print(len(space.streams))

asyncio.run(main())
"""
    first, second, streams = plain.runs(program, **settings(gateway)).out.splitlines()
    for told in (first, second):
        assert "a JSON Schema needs jsonschema-rs, which is not installed: run:" in told and "[schemas]" in told
    assert int(streams) == 0


def test_the_commands_of_a_participant_work(plain: Installation, gateway: GatewayProcess) -> None:
    environment = settings(gateway)

    def does(*arguments: str, input: str = "") -> Any:
        return plain.mewstream(*arguments, input=input, **environment).out

    assert json.loads(does("status", "--as", "ann", "--json"))["health"]["status"] == "ok"
    does("send", "--as", "ann", "hello")
    assert "recorded" in does("publish", "--as", "server", "--alias", "lines", "--keep-open", input="one\ntwo\n")
    (stream,) = json.loads(does("streams", "--as", "ann", "--json"))
    assert stream["alias"] == "lines"
    assert "lines" in does("join", "--as", "bob", input="/streams\n")
    does("close", "--as", "server", "lines")
    assert len(does("token", "new").strip()) > 40


def test_a_first_space_and_its_tokens(plain: Installation) -> None:
    """``init`` and ``token`` write files for a gateway that may be elsewhere."""
    plain.mewstream("init", "--output", "first.yaml")
    assert (plain.home / "first.yaml").stat().st_mode & 0o077 == 0
    (plain.home / "first.yaml").unlink()
