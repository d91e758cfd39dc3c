"""docs/cli.md tells of every command and option, and of nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from test_table import leaves

from mewstream.cli.commands import COMMANDS
from mewstream.cli.event_format import event_name
from mewstream.cli.identity import participant_options
from mewstream.cli.main import cli
from mewstream.client import events

TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
#: Commands with a document of their own.
ELSEWHERE = {"serve", "journal", "bench"}
COMMON = {parameter.name: parameter for parameter in participant_options(lambda: None).__click_params__}  # type: ignore[attr-defined]


def section(heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/cli.md has no section '## {heading}'"
    return found[1]


def options_in(text: str) -> set[str]:
    """Those in the first column of its tables."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `-")]
    return {option for cell in cells for option in re.findall(r"`(-[-\w]+)`", cell)}


@pytest.mark.parametrize("name", [name for entries in COMMANDS.values() for name in entries])
def test_the_overview_has_every_command(name: str) -> None:
    assert f"| `mewstream {name}` |" in TEXT


def test_the_overview_has_no_other_command() -> None:
    listed = re.findall(r"^\| `mewstream ([\w-]+)` \|", TEXT, re.MULTILINE)
    assert listed == [name for entries in COMMANDS.values() for name in entries], "in the order of the table"


@pytest.mark.parametrize("path", [path for path, _ in leaves(cli) if path[0] not in ELSEWHERE], ids="-".join)
def test_every_command_has_its_options(path: tuple[str, ...]) -> None:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    options = [each for each in command.params if isinstance(each, click.Option)]
    text = section(f"mewstream {' '.join(path)}")
    told = options_in(text)
    assert {name for option in options for name in option.opts if not is_common(option)} - told == set()
    assert told - {name for option in options for name in option.opts} == set()
    assert "```sh" in text


def is_common(option: click.Option) -> bool:
    """One of those that every command of a participant has."""
    common = COMMON.get(option.name)
    return common is not None and common.opts == option.opts and getattr(common, "envvar", None) == option.envvar


def test_the_options_that_all_have() -> None:
    text = section("Who you are")
    assert options_in(text) == {name for option in COMMON.values() for name in option.opts}
    for option in COMMON.values():
        assert getattr(option, "envvar", None) is None or f"`{option.envvar}`" in text  # type: ignore[attr-defined]


def test_the_exit_codes_of_the_help() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output.partition("Exit codes:")[2]
    codes = re.findall(r"^ +(\d+) ", shown, re.MULTILINE)
    listed = re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)
    assert listed == codes


def test_every_event() -> None:
    kinds = [each for each in vars(events).values() if isinstance(each, type) and issubclass(each, events.Event)]
    names = {event_name(each.__new__(each)) for each in kinds if each is not events.Event and each.__name__[0] != "_"}
    rows = [line.split("|")[1] for line in section("mewstream tail").splitlines() if line.startswith("| `")]
    assert names <= {name for cell in rows for name in re.findall(r"`([\w-]+)`", cell)}
