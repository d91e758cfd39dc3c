"""``make demo`` ends by itself, finds nothing wrong, and leaves a report."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from mewstream.journal.reader import JournalReader
from mewstream.protocol.records import (
    FramesDropped,
    Joined,
    OwnershipTransferred,
    Record,
    Refused,
    Suspended,
    WriteRevoked,
)

TIMEOUT = 900


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"}
    return subprocess.run(
        [sys.executable, "-m", "mewstream.demo", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env=environment,
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    directory = tmp_path_factory.mktemp("demo")
    done = run(cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return directory / "demo", done.stdout


@pytest.mark.long
@pytest.mark.spark
def test_it_says_what_it_does_and_where_the_report_is(demo: tuple[Path, str]) -> None:
    directory, said = demo
    assert re.search(r"sound - \d+ frames, \d+ changes, \d+ refusals and \d+ welcomes judged", said)
    assert str(directory / "report.html") in said.replace("\n", "")
    text = (directory / "report.html").read_text()
    assert "<strong>Sound</strong>" in text and "<h1>Space arena</h1>" in text
    for name in ("activity", "timeline", "rates", "latency", "handoffs", "refusals-by-code", "sessions"):
        assert f'<div class="figure" id="{name}"' in text, name


@pytest.mark.long
@pytest.mark.spark
def test_the_session_has_everything(demo: tuple[Path, str]) -> None:
    directory, _ = demo
    records: list[Record] = [entry.record for entry in JournalReader(directory / "data" / "journal").read("arena")]
    refused = {(each.sender, each.code) for each in records if isinstance(each, Refused)}
    assert {code for sender, code in refused if sender == "mallory"} == {
        *("unauthorized_stream_write", "stream_not_found", "reserved_kind", "unauthorized", "capability_violation")
    }
    assert {"expired", "max_frames", "the turn is over"} <= {
        each.reason for each in records if isinstance(each, WriteRevoked)
    }
    transfers = [each for each in records if isinstance(each, OwnershipTransferred)]
    assert [(each.previous_owner, each.new_owner) for each in transfers] == [
        ("character-server", "alice"),
        ("scout-ai", "bob"),
    ]
    assert any(each.participant == "scout-ai" for each in records if isinstance(each, Suspended))
    assert any(each.participant == "scout-ai" and each.continues for each in records if isinstance(each, Joined))
    assert any(each.participant == "slow-screen" for each in records if isinstance(each, FramesDropped))


@pytest.mark.long
@pytest.mark.spark
def test_no_token_is_anywhere_but_in_the_configuration(demo: tuple[Path, str]) -> None:
    import yaml

    directory, said = demo
    config = yaml.safe_load((directory / "space.yaml").read_text())
    assert (directory / "space.yaml").stat().st_mode & 0o077 == 0
    tokens = [token for each in config["participants"].values() for token in each["tokens"]]
    for text in (said, (directory / "gateway.log").read_text(), (directory / "report.html").read_text()):
        assert not any(token in text for token in tokens)


@pytest.mark.long
@pytest.mark.spark
def test_asking_its_tables_takes_little(demo: tuple[Path, str]) -> None:
    """CPU seconds, of commands that could not start a JVM: there is no Java on their path."""
    directory, _ = demo
    told = {}
    for most, command, *more in (
        (2, "query", "SELECT stream_id, owner, frames FROM streams"),
        (2, "audit"),
        (2, "state"),
        (4, "report", "--out", str(directory / "again.html")),
    ):
        arguments = [sys.executable, "-m", "mewstream.cli.main", command, "--warehouse", str(directory / "warehouse")]
        environ = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
        process = subprocess.Popen([*arguments, *map(str, more)], env=environ, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, command
        told[command] = used.ru_utime + used.ru_stime
        assert told[command] <= most, told
    print(told)


def test_it_does_not_touch_what_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text(json.dumps({"precious": True}))
    done = run("--dir", "mine", cwd=tmp_path)
    assert done.returncode == 2 and "is not empty, and not of a demo" in done.stderr
    assert (tmp_path / "mine" / "file").exists()


def test_the_live_one_says_where_to_watch_it_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    """The console of its gateway is served, and the token that it prints is good for it."""
    command = [sys.executable, "-m", "mewstream.demo", "--live", "--dir", str(tmp_path / "demo")]
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True) as demo:
        assert demo.stdout is not None
        said = ""
        while "grants alice the hero" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)
        token = re.search(r"token +(\S+)", said)
        assert address is not None and token is not None
        with urllib.request.urlopen(address[0]) as page:
            assert b"mewstream console" in page.read()
        request = urllib.request.Request(f"{address[0]}spaces", headers={"Authorization": f"Bearer {token[1]}"})
        with urllib.request.urlopen(request) as spaces:
            assert json.load(spaces)["spaces"][0]["participant"] == "you"
        demo.send_signal(signal.SIGINT)
        assert "That was it." in demo.stdout.read()
    assert demo.returncode == 0
