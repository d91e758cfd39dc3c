"""Findings reach somebody: once, and also where a run was killed, or the command failed, in between."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import click
import pytest
from committed import commit, new_tables

from mewstream.cli.pipeline_alerts import PipelineMetrics, told_by
from mewstream.pipeline.alerting import MOST_TOLD, Alerts
from mewstream.pipeline.files import DataFile
from mewstream.pipeline.maintenance import FAN_IN, compact
from mewstream.pipeline.runner import Progress
from mewstream.protocol.errors import ConfigError


class Somebody:
    """Is told, or does not listen."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.listens = True

    def __call__(self, findings: list[dict[str, Any]]) -> bool:
        if self.listens:
            self.heard += [row["seq"] for row in findings]
        return self.listens


def find(root: Path, *seqs: int) -> list[DataFile]:
    """A batch with findings, which nobody is told of: the run was killed."""
    tables = new_tables(root)
    before = {file.path for file in tables.logs["audit"].files()}
    commit(tables, audit=[{"seq": seq, "rule": "frame_no_right"} for seq in seqs])
    return [file for file in tables.logs["audit"].files() if file.path not in before]


def test_once(tmp_path: Path) -> None:
    somebody, tables = Somebody(), new_tables(tmp_path)
    alerts = Alerts(tables, somebody)
    commit(tables, audit=[{"seq": 7}])
    alerts.found(tables.logs["audit"].files(), tables.batch)
    commit(tables, refusals=[{"seq": 8}])
    Alerts(new_tables(tmp_path), somebody)
    assert somebody.heard == [7]


def test_what_was_found_before_is_not_told(tmp_path: Path) -> None:
    somebody = Somebody()
    find(tmp_path, 1)
    Alerts(new_tables(tmp_path), somebody)
    find(tmp_path, 2)
    Alerts(new_tables(tmp_path), somebody)
    assert somebody.heard == [2]


def test_killed_before_it_was_told(tmp_path: Path) -> None:
    """Also of the first finding that there is."""
    somebody = Somebody()
    Alerts(new_tables(tmp_path), somebody)
    find(tmp_path, 1, 2)
    find(tmp_path, 3)
    Alerts(new_tables(tmp_path), somebody)
    Alerts(new_tables(tmp_path), somebody)
    assert sorted(somebody.heard) == [1, 2, 3]


def test_nobody_listened_for_a_while(tmp_path: Path) -> None:
    somebody, tables = Somebody(), new_tables(tmp_path)
    alerts = Alerts(tables, somebody)
    somebody.listens = False
    for seq in range(FAN_IN):
        before = {file.path for file in tables.logs["audit"].files()}
        commit(tables, audit=[{"seq": seq}])
        alerts.found([file for file in tables.logs["audit"].files() if file.path not in before], tables.batch)
    compact(tables.logs["audit"])
    assert len(tables.logs["audit"].files()) == 1
    somebody.listens = True
    Alerts(new_tables(tmp_path), somebody)
    assert sorted(somebody.heard) == list(range(FAN_IN))


def test_listened_again_with_the_next(tmp_path: Path) -> None:
    somebody, tables = Somebody(), new_tables(tmp_path)
    alerts = Alerts(tables, somebody)
    somebody.listens = False
    alerts.found(find(tmp_path, 1), 1)
    somebody.listens = True
    alerts.found(find(tmp_path, 2), 2)
    assert somebody.heard == [1, 2]


def test_a_flood_is_cut(tmp_path: Path) -> None:
    somebody = Somebody()
    Alerts(new_tables(tmp_path), somebody)
    find(tmp_path, *range(MOST_TOLD + 10))
    Alerts(new_tables(tmp_path), somebody)
    assert len(somebody.heard) == MOST_TOLD


class TestCommand:
    def test_gets_a_line_for_each(self, tmp_path: Path) -> None:
        tell = told_by(f"tee '{tmp_path / 'a file'}'")
        assert tell([{"seq": 1, "rule": "refusal"}, {"seq": 2, "rule": "seq_gap"}])
        lines = (tmp_path / "a file").read_text().splitlines()
        assert [json.loads(line)["seq"] for line in lines] == [1, 2]

    @pytest.mark.parametrize("command", ["false", "/nowhere/at-all"])
    def test_fails(self, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert told_by(command)([{"seq": 1}]) is False
        said = capsys.readouterr().err
        assert said.startswith("mewstream: --on-finding: ") and said.count("\n") == 1

    def test_does_not_read_what_it_gets(self) -> None:
        """A pipe that nobody reads is no failure of the command."""
        assert told_by(f"{sys.executable} -c pass")([{"seq": seq, "reason": "x" * 1000} for seq in range(1000)])

    def test_is_no_command(self) -> None:
        with pytest.raises(click.UsageError, match="cannot be read as a command"):
            told_by("'")

    @pytest.mark.parametrize("command", ["", "  "])
    def test_is_nothing(self, command: str) -> None:
        with pytest.raises(click.UsageError, match="names no command"):
            told_by(command)


def test_metrics(unused_tcp_port: int) -> None:
    metrics = PipelineMetrics("127.0.0.1", unused_tcp_port)
    metrics.note(Progress(3, 100, 2.0, 7, 1000, findings=5))
    with urllib.request.urlopen(f"http://127.0.0.1:{unused_tcp_port}/metrics") as answer:
        text = answer.read().decode()
    assert "mewstream_pipeline_findings 5.0" in text and "mewstream_pipeline_lag_records 7.0" in text
    assert "mewstream_pipeline_records_total 100.0" in text
    with pytest.raises(ConfigError, match=f"127.0.0.1:{unused_tcp_port}"):
        PipelineMetrics("127.0.0.1", unused_tcp_port)
