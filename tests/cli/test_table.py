"""The table of commands, their help, and the exit codes."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from shell import Shell

import mewstream
from mewstream.cli.commands import COMMANDS
from mewstream.cli.main import cli, exit_code
from mewstream.cli.output import quietly
from mewstream.client.errors import AnswerLost
from mewstream.protocol.errors import MewError, PeerError

#: What `mewstream --help` has no use for. Each costs more than the help itself.
HEAVY = {"aiohttp", "pyarrow", "rich", "uvloop", "yaml", "picows", "pyspark", "asyncio", "prompt_toolkit", "msgspec"}


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from leaves(each, (*path, name))
    else:
        yield path, command


def test_every_name_of_the_table_is_a_command() -> None:
    for entries in COMMANDS.values():
        for name, entry in entries.items():
            assert cli.commands[name].name == name
            assert entry.summary.endswith(".") and len(entry.summary) < 70, name


def test_every_command_has_help_with_examples_that_parse() -> None:
    for path, command in leaves(cli):
        shown = CliRunner().invoke(cli, [*path, "--help"])
        assert shown.exit_code == 0, path
        examples = list(examples_of(command, path))
        assert examples, path
        for words in examples:
            # Raises for an option that does not exist, or one without its value.
            command.make_parser(click.Context(command)).parse_args(words)
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None), (path, parameter.name)


def examples_of(command: click.Command, path: tuple[str, ...]) -> Iterator[list[str]]:
    """The arguments that the examples in a help give to its command."""
    assert command.help is not None
    for line in command.help.partition("Examples:")[2].splitlines():
        lexer = shlex.shlex(line.replace('"$(', "").replace(')"', ""), posix=True, punctuation_chars="|<>&;")
        lexer.whitespace_split = True
        words = list(lexer)
        called = ["mewstream", *path]
        for start in range(len(words)):
            if words[start : start + len(called)] == called:
                rest = words[start + len(called) :]
                end = next((place for place, word in enumerate(rest) if set(word) <= set("|<>&;")), len(rest))
                yield rest[:end]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from mewstream.cli.main import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "print('modules:', *sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, _, modules = done.stdout.partition("modules:")
    assert "publish" in shown
    assert HEAVY & set(modules.split()) == set()
    assert not any(module.startswith(("mewstream.client", "mewstream.gateway")) for module in modules.split())


def test_help_tells_the_exit_codes() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output
    for code in ("0", "1", "2", "3", "130"):
        assert f"\n    {code} " in shown, shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (mewstream.ConfigError("x"), 2),
        (MewError("x"), 2),
        *((each("x"), 1) for each in PeerError.__subclasses__() if each.code not in ("limit_exceeded",)),
        (mewstream.LimitExceeded("x", limit="y"), 1),
        (mewstream.JoinRefused("x", code=4500), 1),
        (mewstream.McpError("x"), 1),
        (mewstream.ProposalRejected("x", by="y"), 1),
        (mewstream.ConnectError("x"), 3),
        (mewstream.ConnectionClosed("x"), 3),
        (mewstream.FramesUnconfirmed(1), 3),
        (mewstream.RequestTimeout("x"), 3),
        (AnswerLost("x"), 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_errors_have_exit_codes(error: MewError, code: int) -> None:
    assert exit_code(error) == code


def test_a_timeout_of_a_request_is_no_file_that_cannot_be_read() -> None:
    """Python's TimeoutError is an OSError."""

    @quietly
    def command() -> None:
        raise mewstream.RequestTimeout("nobody answered")

    with pytest.raises(mewstream.RequestTimeout):
        command()


def test_no_command_takes_a_token_that_others_could_see() -> None:
    """The arguments of a process are there for everyone to read."""
    for path, command in leaves(cli):
        for parameter in command.params:
            assert "--token" not in parameter.opts, path


def test_mistakes_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for arguments in (["nosuch"], ["send", "--nosuch"], ["send", "hi"], ["grant", "stream-1"], ["tail", "--raw"]):
        done = shell.run(*arguments, code=2)
        assert done.out == "" and done.err.count("\n") == 1 and done.err.startswith("mewstream: "), done
    assert "Usage:" in shell.run(code=2).err
