"""``mewstream init`` and ``token new``: files that work, and that nobody else can read."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from shell import TIMEOUT, Running, Shell

from mewstream.gateway.config import load_config
from support import GatewayProcess


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


def tokens(file: Path) -> dict[str, tuple[str, ...]]:
    (space,) = load_config([file], environ={}, cwd=file.parent).spaces.values()
    return {each.id: each.tokens for each in space.participants.values()}


class TestInit:
    def test_writes_a_space_with_fresh_tokens(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            done = Shell(tmp_path).run("init")
        finally:
            os.umask(before)
        file = tmp_path / "space.yaml"
        assert mode(file) == 0o600
        made = tokens(file)
        assert list(made) == ["server", "alice", "bob"]
        assert all(len(token) >= 43 for (token,) in made.values()) and len(set(made.values())) == 3
        assert not any(token in done.out + done.err for (token,) in made.values())

    def test_takes_names(self, tmp_path: Path) -> None:
        names = ["röd", "a b", 'q"uote', "x: y", "no"]
        options = [word for name in names for word in ("--participant", name)]
        Shell(tmp_path).run("init", "--space", "arena: [1]", *options, "--output", "deep/er/arena.yaml")
        (space,) = load_config([tmp_path / "deep/er/arena.yaml"], environ={}, cwd=tmp_path).spaces.values()
        assert space.id == "arena: [1]" and list(space.participants) == names

    def test_does_not_overwrite(self, tmp_path: Path) -> None:
        shell = Shell(tmp_path)
        shell.run("init")
        before = (tmp_path / "space.yaml").read_text()
        assert "exists already" in shell.run("init", code=2).err
        assert (tmp_path / "space.yaml").read_text() == before
        shell.run("init", "--force")
        after = tokens(tmp_path / "space.yaml")
        assert all(token not in before for (token,) in after.values())
        assert mode(tmp_path / "space.yaml") == 0o600

    @pytest.mark.parametrize(
        "options",
        [
            ["--space", "a/b"],
            ["--space", ""],
            ["--participant", "a|b"],
            ["--participant", "gateway"],
            ["--participant", "a", "--participant", "a"],
        ],
    )
    def test_refuses_names_that_no_gateway_takes(self, tmp_path: Path, options: list[str]) -> None:
        Shell(tmp_path).run("init", *options, code=2)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("options", [[], ["--output", "spaces/my arena.yaml", "--participant", "the host"]])
    def test_what_it_tells_to_type_works(self, tmp_path: Path, options: list[str]) -> None:
        shell = Shell(tmp_path)
        said = shell.run("init", *options).out
        typed = list(dict.fromkeys(re.findall(r"^  (.*)$", said, re.MULTILINE)))
        (serve,) = [line for line in typed if line.startswith("mewstream serve")]
        rest = [line for line in typed if line != serve]
        assert len(rest) >= 4

        # As a shell would run them, but on a free port.
        scripts = tmp_path / "bin"
        scripts.mkdir()
        (scripts / "mewstream").write_text(f'#!/bin/sh\nexec {sys.executable} -m mewstream.cli.main "$@"\n')
        (scripts / "mewstream").chmod(0o755)
        environment = shell.environment | {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path}
        with subprocess.Popen(["sh", "-c", f"exec {serve} --port 0"], env=environment, **pipes) as process:  # type: ignore[call-overload]
            gateway = Running(process)
            try:
                line, console = gateway.prints(2)
                environment["MEW_URL"] = line.split()[-1]
                assert console == f"the console is at {line.split()[-1]}/"
                # What comes before it listens, it does not see.
                listening = "--count 3 2> tail.log &\nuntil grep -q listening tail.log; do sleep 0.1; done"
                script = "\n".join(f"{each} {listening}" if " tail " in each else each for each in rest)
                done = subprocess.run(
                    ["sh", "-ec", f"{script}\nwait"],
                    env=environment,
                    cwd=tmp_path,
                    capture_output=True,
                    text=True,
                    timeout=TIMEOUT,
                )
                assert done.returncode == 0, done
                assert "1 frames recorded" in done.stdout and "Traceback" not in done.stderr
            finally:
                gateway.signal(signal.SIGTERM)
                gateway.ends(0)

    def test_everyone_in_it_may_open_announce_and_talk(self, tmp_path: Path) -> None:
        shell = Shell(tmp_path)
        shell.run("init")
        gateway = GatewayProcess(tmp_path, options=("--config", "space.yaml")).start()
        try:
            shell.environment["MEW_URL"] = gateway.ws_url
            for name in ("server", "alice", "bob"):
                script = f"hello\n/open log\n/announce {name}s\n/start {name}s\n/write {name}s 1\n/complete {name}s\n"
                done = shell.run("join", "--as", name, input=script)
                assert "refused" not in done.out and "do not allow" not in done.out, done.out
        finally:
            gateway.stop()


class TestToken:
    def test_prints_a_new_one_each_time(self, tmp_path: Path) -> None:
        shell = Shell(tmp_path)
        first, second = shell.run("token", "new").out, shell.run("token", "new").out
        assert first != second and re.fullmatch(r"[\w-]{43}\n", first)

    def test_writes_where_the_gateway_looks(self, tmp_path: Path) -> None:
        shell = Shell(tmp_path)
        done = shell.run("token", "new", "alice")
        file = tmp_path / ".mew" / "tokens" / "alice.token"
        assert mode(file) == 0o600 and mode(file.parent) == 0o700
        assert file.read_text().strip() not in done.out + done.err
        (tmp_path / "space.yaml").write_text("space: {id: demo}\nparticipants: {alice: {}}\n")
        before = tokens(tmp_path / "space.yaml")
        assert before == {"alice": (file.read_text().strip(),)}
        assert "--force" in shell.run("token", "new", "alice", code=2).err
        assert tokens(tmp_path / "space.yaml") == before
        shell.run("token", "new", "alice", "--force")
        assert tokens(tmp_path / "space.yaml") != before

    def test_names_lead_nowhere_else(self, tmp_path: Path) -> None:
        Shell(tmp_path).run("token", "new", "../../x", code=2)
        assert list(tmp_path.rglob("*")) == []
