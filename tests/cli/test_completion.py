"""Completion by the shell, as the shell asks for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shell import Shell

from support import GatewayProcess, joined


def complete(shell: Shell, line: str, **environment: str) -> list[str]:
    """What bash would offer; the last word is being typed."""
    words = line.split(" ")
    asked = {"_MEWSTREAM_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    # Its own name is what the variable is named after.
    scripts = shell.directory / "bin"
    scripts.mkdir(exist_ok=True)
    program = scripts / "mewstream"
    program.write_text("from mewstream.cli.main import main\nmain()\n")
    done = subprocess.run(
        [sys.executable, str(program)],
        env=shell.environment | asked | environment,
        cwd=shell.directory,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == "", done.stderr
    return [entry.partition(",")[2] for entry in done.stdout.splitlines() if entry]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_scripts(shell: Shell, name: str) -> None:
    script = shell.run("completion", name).out
    assert "_MEWSTREAM_COMPLETE" in script
    if program := shutil.which(name):
        subprocess.run([program, "-n"], input=script, text=True, check=True, capture_output=True)


def test_other_shells_are_named(shell: Shell) -> None:
    assert "bash" in shell.run("completion", "tcsh", code=2).err


def test_commands_and_options(shell: Shell) -> None:
    assert complete(shell, "mewstream tr") == ["transfer"]
    assert set(complete(shell, "mewstream ")) >= {"init", "serve", "tail", "journal"}
    assert complete(shell, "mewstream grant --max") == ["--max-frames", "--max-writers"]
    assert complete(shell, "mewstream journal ver") == ["verify"]


async def test_streams_and_participants(gateway: GatewayProcess, shell: Shell) -> None:
    async with joined(gateway, "server") as (server,):
        stream = await server.open_stream(desired_id="movement")
        assert complete(shell, "mewstream grant --as alice mov") == ["movement"]
        assert complete(shell, f"mewstream tail -p alice {stream}") == [stream]
        assert complete(shell, "mewstream grant movement vi", MEW_PARTICIPANT="alice") == ["viewer"]
        await server.send("stream/close", {"stream_id": stream})


def test_it_is_silent_where_nothing_is_known(shell: Shell) -> None:
    assert complete(shell, "mewstream grant mov") == []
    assert complete(shell, "mewstream grant --as alice mov", MEW_URL="ws://127.0.0.1:1") == []
    assert complete(shell, "mewstream grant --as alice mov", MEW_TOKEN_ALICE="wrong") == []


def test_those_whose_token_is_here(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / ".mew" / "tokens").mkdir(parents=True)
    (tmp_path / ".mew" / "tokens" / "carol.token").write_text("x")
    assert complete(shell, "mewstream send --as c") == ["carol"]
    shell.run("init", "--participant", "carl")
    assert complete(shell, "mewstream send --as c") == ["carol", "carl"]
    (tmp_path / "space.yaml").write_text("]")
    assert complete(shell, "mewstream send --as c") == []
