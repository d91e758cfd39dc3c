"""Each extra brings what its commands need, and the others still say what they lack."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from installation import ROOT, Done, Installation

SPACE = ROOT / "examples" / "space.yaml"
#: The tokens of the example, which are public.
ENVIRONMENT = {"MEW_TOKEN": "dev-character-server"}


def tell_size(name: str, installed: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n  pip install mewstream[{name}]: {len(installed.packages)} packages, {installed.size / 1e6:.0f} MB")


def follow_advice(installed: Installation, done: Done) -> None:
    """Run the command that an error tells to run."""
    advice = re.search(r"run: (.*)$", done.err.strip())
    assert advice is not None, done
    python, *module, install, what = shlex.split(advice[1])
    assert (python, module, install) == (installed.python, ["-m", "pip"], "install")
    installed.pip("install", what)


@contextmanager
def serving(installed: Installation, *options: str) -> Iterator[str]:
    """``mewstream serve`` of the example space: its address, and an orderly end."""
    command = [installed.mewstream_command, "serve", "--config", str(SPACE), "--port", "0", *options]
    with (installed.home / "gateway.log").open("w") as log:
        process = subprocess.Popen(command, cwd=installed.home, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert "listening on http" in line, (installed.home / "gateway.log").read_text()
        yield line.split()[-1]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        process.stdout.close()
        assert "Traceback" not in (installed.home / "gateway.log").read_text()


@pytest.fixture(scope="module")
def with_gateway(wheel: Path, environment: Callable[[str], Installation]) -> Installation:
    """A plain install, and then what ``mewstream serve`` says is missing."""
    installed = environment("gateway")
    installed.install(str(wheel))
    follow_advice(installed, installed.mewstream("serve", code=2))
    return installed


class TestGateway:
    def test_serves_and_records(self, with_gateway: Installation, capsys: pytest.CaptureFixture[str]) -> None:
        tell_size("gateway", with_gateway, capsys)
        assert "uvloop" in with_gateway.packages
        assert with_gateway.packages.keys() & {"aiohttp", "duckdb", "pyspark"} == set()
        with serving(with_gateway, "--data", "data") as url:
            with_gateway.mewstream("send", "--as", "character-server", "--url", url, "hello", **ENVIRONMENT)
        assert "hello" in with_gateway.mewstream("journal", "cat", "--data", "data", "--json").out
        assert with_gateway.mewstream("journal", "verify", "--data", "data").out.startswith("sound: ")
        assert json.loads(with_gateway.mewstream("state", "--data", "data", "--json").out)["active_streams"] == []

    def test_serves_without_uvloop(self, with_gateway: Installation) -> None:
        """As where it cannot be installed: the marker of the requirement leaves it out there."""
        with_gateway.pip("uninstall", "--yes", "uvloop")
        try:
            found = json.loads(with_gateway.mewstream("doctor", "--json", "--port", "0").out)
            (uvloop,) = [each for each in found if each["what"] == "uvloop"]
            assert uvloop["level"] == "warn"
            with serving(with_gateway, "--data", "slower") as url:
                done = with_gateway.mewstream(
                    "publish", "--as", "character-server", "--url", url, "--json", input="1\n2\n", **ENVIRONMENT
                )
            assert json.loads(done.out)["recorded"] == 2
            assert with_gateway.mewstream("journal", "verify", "--data", "slower").out.startswith("sound: ")
        finally:
            with_gateway.install("uvloop")

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["query", "--warehouse", "w"], "[query]"),
            (["pipeline", "run", "--data", "d", "--warehouse", "w"], "[query,spark]"),
            (["demo"], "[query,spark]"),
        ],
    )
    def test_says_what_else_is_missing(self, with_gateway: Installation, arguments: list[str], told: str) -> None:
        done = with_gateway.mewstream(*arguments, code=2)
        assert done.err.count("\n") == 1 and told in done.err
        assert not (with_gateway.home / "demo").exists()


@pytest.fixture(scope="module")
def played(wheel: Path, environment: Callable[[str], Installation]) -> Installation:
    """Everything, and a demo that was played with it."""
    installed = environment("all")
    installed.install(f"{wheel}[all]")
    assert "sound" in installed.mewstream("demo").out
    return installed


@pytest.mark.long
@pytest.mark.spark
class TestTheOthers:
    def test_all(self, played: Installation, capsys: pytest.CaptureFixture[str]) -> None:
        tell_size("all", played, capsys)
        assert (played.home / "demo" / "report.html").stat().st_size > 100_000

    def test_query(
        self,
        wheel: Path,
        environment: Callable[[str], Installation],
        played: Installation,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        installed = environment("query")
        installed.install(f"{wheel}[query]")
        tell_size("query", installed, capsys)
        warehouse, data = str(played.home / "demo" / "warehouse"), str(played.home / "demo" / "data")
        rows = installed.mewstream("query", "--warehouse", warehouse, "--json", "SELECT verdict FROM space_summary").out
        assert json.loads(rows) == {"verdict": "sound"}
        assert "\nsound: " in installed.mewstream("audit", "--warehouse", warehouse).out
        installed.mewstream("report", "--warehouse", warehouse, "--out", "report.html")
        of_tables = installed.mewstream("state", "--warehouse", warehouse, "--json").out
        assert "active_streams" in json.loads(of_tables)
        assert "active_streams" in json.loads(installed.mewstream("state", "--data", data, "--json").out)
        for arguments, told in ((["serve"], "prometheus-client"), (["demo"], "mewstream[gateway,spark]")):
            done = installed.mewstream(*arguments, code=2)
            assert done.err.count("\n") == 1 and told in done.err, done

    def test_spark(
        self,
        wheel: Path,
        environment: Callable[[str], Installation],
        played: Installation,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        installed = environment("spark")
        installed.install(f"{wheel}[spark]")
        tell_size("spark", installed, capsys)
        data = str(played.home / "demo" / "data")
        assert "up to date" in installed.mewstream("pipeline", "run", "--data", data, "--warehouse", "warehouse").out
        assert "sound" in installed.mewstream("audit", "--warehouse", "warehouse").out
