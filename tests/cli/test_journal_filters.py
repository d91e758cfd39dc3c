"""Filters of ``mewstream journal cat`` and ``export``, and what ``state`` needs: a mistake is no empty answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import Done, Shell

from support import GatewayProcess, joined, space_config


@pytest.fixture
def recorded(tmp_path: Path) -> Shell:
    """A shell beside ``one`` and ``two``, which :func:`record` fills."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return Shell(tmp_path)


async def record(directory: Path, *spaces: str) -> None:
    configs = [space_config("ann", space=space) for space in spaces]
    gateway = GatewayProcess(directory, *configs, options=("--data", "data")).start()
    try:
        for space in spaces:
            async with joined(gateway, "ann", space=space) as (ann,):
                stream = await ann.open_stream()
                await ann.frame(stream, "x")
                await ann.settle()
    finally:
        gateway.stop()


async def test_an_unknown_record_is_an_error_that_lists_the_known_ones(recorded: Shell) -> None:
    await record(recorded.directory / "one", "demo")
    for command in ("cat", "export"):
        done = recorded.run("journal", command, "--data", "one/data", "--record", "nonsense", code=2)
        assert "'nonsense' is not one of" in done.err and done.err.count("\n") == 1
        for name in ("frame", "joined", "write-granted", "refused", "erased"):
            assert f"'{name}'" in done.err
        assert done.out == ""
    assert recorded.run("journal", "cat", "--data", "one/data", "--record", "frame").out.count("\n") == 1
    # A sort of record of which there is none yet is no mistake.
    assert recorded.run("journal", "cat", "--data", "one/data", "--record", "refused").out == ""


@pytest.mark.parametrize("command", ["cat", "export"])
async def test_a_name_that_the_journal_never_had_is_told_with_those_it_has(recorded: Shell, command: str) -> None:
    """It is no error, for it may be there tomorrow; but nobody shall take a typing mistake for an empty space."""
    await record(recorded.directory / "one", "demo", "arena")

    def run(*filters: str) -> Done:
        return recorded.run("journal", command, "--data", "one/data", *filters)

    for filters, says in (
        (["--space", "dmeo"], "no record of the space 'dmeo': there are arena, demo"),
        (["--stream", "stream-9"], "no record of the stream 'stream-9': there are stream-1"),
        (["--sender", "anne"], "no record of the sender 'anne': there are ann"),
        (["--kind", "stream/reqeust"], "no record of the kind 'stream/reqeust': there are "),
        (["--kind", "steam/*"], "no record of the kind 'steam/*': there are "),
    ):
        done = run(*filters)
        assert says in done.err and done.err.count("\n") == 1 and not done.out
    assert run("--space", "demo", "--space", "nowhere").err == "", "something was found"
    # What is there, and does not come together, is an empty answer.
    nothing = run("--space", "demo", "--sender", "ann", "--from-seq", "1000")
    assert (nothing.out, nothing.err) == ("", "")


async def test_state_needs_no_name_where_there_is_one_space(recorded: Shell) -> None:
    await record(recorded.directory / "one", "demo")
    await record(recorded.directory / "two", "demo", "arena")
    assert "demo at seq" in recorded.run("state", "--data", "one/data").out
    done = recorded.run("state", "--data", "two/data", code=2)
    assert "say which by --space. There are arena, demo" in done.err and done.err.count("\n") == 1
    assert "arena at seq" in recorded.run("state", "--data", "two/data", "--space", "arena").out
    assert "arena at seq" in recorded.run("state", "--data", "two/data", MEW_SPACE="arena").out
