"""The documents say what the code does: examples are run, tables are compared, links are followed."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import click
import modules
import msgspec
import pytest
import stream_states
import yaml

import mewstream
from mewstream.cli.main import cli
from mewstream.client.connection import Receiver
from mewstream.gateway.config import PROCESS_MANAGER_KEYS, GatewayConfig, load_config
from mewstream.gateway.http import FEATURES
from mewstream.gateway.journal_usage import JournalUsage
from mewstream.gateway.metrics import Metrics
from mewstream.gateway.recorder import Recorder
from mewstream.journal.retention import Retention
from mewstream.journal.schema import SCHEMA, SCHEMA_VERSION
from mewstream.journal.settings import JournalSettings
from mewstream.protocol import kinds, records
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.errors import PeerError
from mewstream.protocol.policy import Delivery, Limits, Policies
from support import GatewayProcess

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))

from person import Person

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
EXAMPLE = ROOT / "examples" / "space.yaml"
#: What the documents tell a reader to connect to; the tests use a free port instead.
ADDRESS = "127.0.0.1:8080"
MEWSTREAM = [sys.executable, "-m", "mewstream.cli.main"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a document, as (language, content)."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next of any level."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The rows of every table of a document, as the plain text of their cells."""
    return [
        [cell.strip().replace("`", "") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def commands(text: str) -> Iterator[list[str]]:
    """What a reader is told to type into a shell, word by word."""
    for language, content in blocks(text):
        if language == "sh":
            for line in re.sub(r"\\\n\s*", "", content).splitlines():
                if words := shlex.split(line, comments=True):
                    yield words


class ExampleGateway(GatewayProcess):
    """The gateway of ``make serve``, on a free port and in a directory of its own."""

    def __init__(self, directory: Path, *options: str, config: Path = EXAMPLE) -> None:
        super().__init__(directory, options=("--config", str(config), *options))

    def kill(self) -> None:
        """Not a drain: that would take its time to tell connections of scripts that have ended."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=30)
        self.process.stdout.close()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ExampleGateway]:
    gateway = ExampleGateway(tmp_path)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.kill()
    assert "Traceback" not in gateway.log.read_text()


def run_python(code: str, gateway: ExampleGateway, *, typed: bool = False) -> str:
    """Run code of a document in a process of its own; what it prints. ``typed``: as somebody would type
    it into an interactive Python, where a blank line ends a block and a bare expression is shown."""
    code = code.replace(ADDRESS, f"127.0.0.1:{gateway.port}")
    command = [sys.executable, "-I", *(["-q", "-i"] if typed else ["-"])]
    done = subprocess.run(command, input=code, cwd=gateway.directory, capture_output=True, text=True, timeout=120)
    # An interactive Python goes on after an error, and a reader should not be met by warnings either.
    assert done.returncode == 0 and not re.search("Error|Warning", done.stderr), (
        f"{done.stdout}\n{done.stderr}\n{gateway.log.read_text()}"
    )
    return done.stdout


# -- examples are run -----------------------------------------------------------------------------


class TestByHand:
    def test_prints_what_it_says(self, gateway: ExampleGateway) -> None:
        type_python("docs/by-hand.md", gateway)

    async def test_its_curl_commands_are_accepted(self, gateway: ExampleGateway) -> None:
        await check_curl_commands(read("docs/by-hand.md"), gateway)


class TestTutorial:
    PAGE = "docs/tutorial.md"

    def test_a_newcomer_who_types_it_sees_what_it_says(self, tmp_path: Path) -> None:
        """The commands, two people at real terminals, and then the Python, in the order of the page. Everything that
        is shown is compared, and not only that something is among it."""
        gateway = ExampleGateway(tmp_path, "--data", "data", config=tmp_path / "space.yaml")
        newcomer = Newcomer(gateway)
        try:
            for (language, content), (next_language, says) in itertools.pairwise([*blocks(read(self.PAGE)), ("", "")]):
                if language == "python":
                    break
                if language == "sh":
                    newcomer.types(content.strip(), says if next_language == "" else None)
                elif language in newcomer.people:
                    newcomer.goes_on(language, content.splitlines())
            for person in newcomer.people.values():
                assert person.left() == 0
                assert steady(person.screen) == newcomer.seen[person.name], person.name
            type_python(self.PAGE, gateway)
        finally:
            newcomer.leaves()
        assert "Traceback" not in gateway.log.read_text()


class Newcomer:
    """Types what a page says, in a shell and at the terminals of ``mewstream join``."""

    def __init__(self, gateway: ExampleGateway) -> None:
        self.gateway = gateway
        self.people: dict[str, Person] = {}
        self.seen: dict[str, list[str]] = {}
        """Name -> all that its terminal should show so far, but for the input line."""

    def types(self, command: str, says: str | None) -> None:
        """A command into a shell, which shows exactly what the page says."""
        match shlex.split(command):
            case ["mewstream", "serve", "--data", "data"]:
                self.gateway.start()
                assert says == f"mewstream listening on http://{ADDRESS}\n"
            case ["mewstream", "join", "--as", name]:
                directory = self.gateway.directory
                self.people[name] = Person(self.gateway, name, directory / name, directory=directory)
                self.seen[name] = []
            case ["mewstream", *arguments]:
                environment = {key: value for key, value in os.environ.items() if not key.startswith("MEW_")}
                if self.gateway.port:
                    environment["MEW_URL"] = self.gateway.ws_url
                done = subprocess.run(
                    [*MEWSTREAM, *arguments],
                    cwd=self.gateway.directory,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                assert (done.returncode, done.stderr) == (0, ""), done
                assert steady(done.stdout.splitlines()) == steady((says or "").splitlines()), command

    def goes_on(self, name: str, lines: list[str]) -> None:
        """What a terminal shows next: lines that somebody types, and lines that come by themselves."""
        person, seen = self.people[name], self.seen[name]
        is_lost = any("connection lost" in line for line in lines)
        if is_lost and not any("connection lost" in line for each in self.seen.values() for line in each):
            # Ctrl-C in the terminal of the gateway, and the same command again.
            self.gateway.stop()
            self.gateway.start()
        for line in lines:
            if line.startswith("> "):
                person.enter(line.removeprefix("> "))
            elif said := re.fullmatch(rf"12:00:00 {name}: (.*)", line):
                person.enter(said[1])
            seen.append(line)
            if line == "> /quit":
                return  # it is compared when the command has ended
            # What others do may be there already, and the input line comes last.
            person.sees_screen(lambda screen: steady(screen)[: len(seen)] == seen)

    def leaves(self) -> None:
        for person in self.people.values():
            person.close()
        self.gateway.kill()


def steady(lines: list[str]) -> list[str]:
    """With the times that the page shows in place of the real ones; without empty lines at the end."""
    lines = [re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "2026-01-31T12:00:00.000000Z", line) for line in lines]
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "12:00:00 ", line).rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines


MARK = "--- end of a block ---"


def type_python(page: str, gateway: ExampleGateway) -> None:
    """Type the Python of a page into one interactive Python, and compare what each block prints."""
    codes: list[str] = []
    expected: list[str] = []
    for language, content in blocks(read(page)):
        if language == "python":
            codes.append(content)
            expected.append("")
        elif language == "text":
            assert expected[-1] == "", "two outputs for one block"
            expected[-1] = content
    assert len(codes) > 5
    script = "".join(f"{code}\nprint({MARK!r}, flush=True)\n" for code in codes)
    printed = run_python(script, gateway, typed=True).split(f"{MARK}\n")
    assert printed[-1] == ""
    for code, says, prints in zip(codes, expected, printed[:-1], strict=True):
        assert prints == says, code


class TestSdk:
    PAGE = "docs/sdk.md"

    def test_its_programs_print_what_they_say(self, gateway: ExampleGateway) -> None:
        found = [each for each in blocks(read(self.PAGE)) if each[0] in ("python", "text")]
        assert len(found) > 10
        for (language, code), (output, says) in zip(found[::2], found[1::2], strict=True):
            assert (language, output) == ("python", "text"), code
            assert run_python(code, gateway) == says, code

    def test_it_names_everything_that_the_package_has(self) -> None:
        page = read(self.PAGE)
        for name in mewstream.__all__:
            assert name.startswith("_") or re.search(rf"\b{name}\b", page), name
        for kind in (mewstream.Space, mewstream.Stream, mewstream.Frame, mewstream.Subscription):
            for name in (
                name for part in kind.__mro__ if part.__module__.startswith("mewstream") for name in vars(part)
            ):
                if not name.startswith("_") and not hasattr(Receiver, name):
                    assert re.search(rf"\b{name}\b", page), f"{kind.__name__}.{name}"


class TestReadme:
    def test_its_python_runs_and_prints_what_it_says(self, gateway: ExampleGateway) -> None:
        (code,) = [content for language, content in blocks(read("README.md")) if language == "python"]
        (says,) = [content for language, content in blocks(read("README.md")) if language == "text"]
        assert run_python(code, gateway) == says

    async def test_its_curl_commands_are_accepted(self, gateway: ExampleGateway) -> None:
        await check_curl_commands(read("README.md"), gateway)


async def check_curl_commands(text: str, gateway: ExampleGateway) -> None:
    """Send what a curl command would send: not every machine has curl."""
    requests = [words for words in commands(text) if words[0] == "curl"]
    assert requests
    for words in requests:
        headers, data, url = {}, None, ""
        arguments = iter(words[1:])
        for word in arguments:
            if word == "-H":
                name, _, value = next(arguments).partition(": ")
                headers[name] = value
            elif word == "-d":
                data = next(arguments)
            else:
                url = word.replace(ADDRESS, f"127.0.0.1:{gateway.port}")
        assert url.startswith(gateway.url), words
        method = "GET" if data is None else "POST"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, data=data) as response,
        ):
            assert response.status == 200, (words, await response.text())
            answer = await response.json()
            shown = [msgspec.json.decode(content) for language, content in blocks(text) if language == "json"]
            assert not shown or {**answer, **dict.fromkeys(("id", "timestamp"))} in [
                {**each, **dict.fromkeys(("id", "timestamp"))} for each in shown
            ]


def test_every_yaml_block_of_operations_is_a_configuration(tmp_path: Path) -> None:
    found = [content for language, content in blocks(read("docs/operations.md")) if language == "yaml"]
    assert found
    (tmp_path / "cert.pem").touch()
    (tmp_path / "key.pem").touch()
    assert any("journal:" in content for content in found)
    for content in found:
        file = tmp_path / "space.yaml"
        file.write_text(content)
        assert load_config([file], environ={}, cwd=tmp_path).spaces, content


# -- the journal: a real one, made by the program of the README -----------------------------------


@pytest.fixture(scope="module")
def journal_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ``data`` is, as docs/journal.md describes it: the README's program has run, the gateway has stopped."""
    gateway = ExampleGateway(tmp_path_factory.mktemp("journal"), "--data", "data")
    gateway.start()
    try:
        (program,) = [content for language, content in blocks(read("README.md")) if language == "python"]
        run_python(program, gateway)
    finally:
        gateway.stop()
    return gateway.directory


def run_in(directory: Path, *arguments: str, code: str = "") -> str:
    """Run Python of this environment, with mewstream; what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments], input=code, cwd=directory, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and not done.stderr, f"{arguments} {done.stdout}\n{done.stderr}"
    return done.stdout


def comparable(output: str) -> str:
    """Without what differs from run to run: times, ids, sizes, and the width of columns."""
    output = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", output)
    output = re.sub(r"\b[0-9a-f]{32}\b", "ID", output)
    output = re.sub(r"\b[0-9a-f]{8}-(\d+)-[0-9a-f]{6}\b", r"ID-\1", output)
    output = re.sub(r'"[0-9a-f]{1,8}\.\.\.', '"ID...', output)
    output = re.sub(r"\b\d{3,19}\b", "NUMBER", output)
    return re.sub(r" +", " ", output)


class TestJournal:
    def test_commands_print_what_it_says(self, journal_directory: Path) -> None:
        found = blocks(section(read("docs/journal.md"), "Commands"))
        shown = list(zip(found[::2], found[1::2], strict=True))
        assert len(shown) >= 5
        for (language, command), (says_language, says) in shown:
            assert (language, says_language) == ("sh", "text"), command
            name, *arguments = shlex.split(command)
            assert name == "mewstream"
            printed = run_in(journal_directory, "-m", "mewstream.cli.main", *arguments)
            assert comparable(printed) == comparable(says), command

    def test_lists_every_command(self) -> None:
        group = cli.commands["journal"]
        assert isinstance(group, click.Group)
        listed = {row[0] for row in rows(section(read("docs/journal.md"), "Commands"))} - {"command", "---"}
        assert listed == {f"mewstream journal {name}" for name in group.commands}

    def test_segments_are_read_without_mewstream(self, journal_directory: Path) -> None:
        found = blocks(section(read("docs/journal.md"), "Reading segments without mewstream"))
        (language, first), (_, says), *others = found
        assert language == "python" and "mewstream" not in first
        # -I -S would hide pyarrow; -I alone hides PYTHONPATH, and the program imports nothing of ours anyway.
        done = subprocess.run(
            [sys.executable, "-I", "-"], input=first, cwd=journal_directory, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0 and done.stdout == says, f"{done.stdout}\n{done.stderr}"
        assert [language for language, _ in others] == ["python", "python"]

    @pytest.mark.parametrize("library", ["polars", "duckdb"])
    def test_other_readers(self, library: str, journal_directory: Path) -> None:
        """Run where the library is installed. Elsewhere the program must at least be Python that uses it."""
        found = blocks(section(read("docs/journal.md"), "Reading segments without mewstream"))
        programs = [content for language, content in found if language == "python"]
        (program,) = [each for each in programs if f"import {library}" in each]
        imported = {
            alias.name for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Import) for alias in node.names
        }
        assert imported == {library}
        if importlib.util.find_spec(library) is not None:
            printed = run_in(journal_directory, "-", code=programs[0] + program)
            assert "frame" in printed or "stream-1" in printed

    def test_a_consumer_says_how_far_it_is(self, journal_directory: Path) -> None:
        text = section(read("docs/journal.md"), "Retention and named consumers")
        ((language, program),) = blocks(text)
        assert language == "python"
        (file,) = set(re.findall(r"`(journal/consumers/[\w.-]+)`", text))
        try:
            run_in(journal_directory, "-", code=program)
            assert (journal_directory / "data" / file).exists()
            listed = run_in(journal_directory, "-m", "mewstream.cli.main", "journal", "ls", "--data", "data")
            assert "nightly-export" in listed
            run_in(journal_directory, "-m", "mewstream.cli.main", "journal", "verify", "--data", "data")
        finally:
            (journal_directory / "data" / file).unlink(missing_ok=True)

    def test_lists_every_column(self) -> None:
        text = section(read("docs/journal.md"), "Columns")
        listed = [row[:3] for row in rows(text)][2:]
        assert listed == [[field.name, str(field.type), "yes" if field.nullable else "no"] for field in SCHEMA]
        assert f"Schema version {SCHEMA_VERSION}." in text

    def test_lists_every_record_with_its_kind(self, journal_directory: Path) -> None:
        listed = {row[0]: row[2] for row in rows(section(read("docs/journal.md"), "Records"))[2:]}
        assert set(listed) == record_tags() | {"erased"}
        for kind in re.findall(r"\w+/[\w-]+", " ".join(listed.values())):
            assert kind in known_kinds(), kind
        # What a real journal holds agrees with the table.
        arguments = ("-m", "mewstream.cli.main", "journal", "cat", "--data", "data", "--json")
        written = [msgspec.json.decode(line) for line in run_in(journal_directory, *arguments).splitlines()]
        assert len(written) > 10
        for record in written:
            expected = listed[record["record"]]
            assert expected == "its own kind" or record.get("kind", "null") in re.split(", or | or |, ", expected)

    def test_gives_every_reason_for_not_resuming(self) -> None:
        text = section(read("docs/journal.md"), "Resume")
        gateway = ROOT / "src" / "mewstream" / "gateway"
        sources = "".join(file.read_text(encoding="utf-8") for file in gateway.glob("*.py"))
        reasons = re.findall(r'(?:ResumeRefused\(|"reason": )\s*f?"([^"]+)"', sources)
        assert len(reasons) >= 9
        too_old = "the position is too old: "
        for reason in reasons:
            for piece in re.split(r"\{[^}]*\}", too_old if reason.startswith(too_old) else reason):
                assert piece.strip() in text, reason

    def test_lists_what_retention_can_be_told(self) -> None:
        listed = {row[0]: row[1] for row in rows(section(read("docs/journal.md"), "Retention and named consumers"))}
        for name in Retention.__struct_fields__:
            assert listed.get(name) == shown(getattr(Retention(), name)), name

    def test_names_every_durability(self) -> None:
        listed = {row[0].split()[0] for row in rows(section(read("docs/journal.md"), "Durability"))[2:]}
        (option,) = [each for each in cli.commands["serve"].params if each.name == "durability"]
        assert isinstance(option.type, click.Choice)
        assert listed == set(option.type.choices)


def record_tags() -> set[str]:
    return {record.__struct_config__.tag for record in records.AnyRecord.__args__}


def known_kinds() -> set[str]:
    """The kinds that mean something to the gateway: every name of ``kinds`` that is one."""
    named = {value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, str)}
    return {
        each for each in named | kinds.RESERVED | kinds.WHILE_PAUSED | kinds.ALWAYS_ALLOWED if each not in _NOT_KINDS
    }


_NOT_KINDS = {kinds.PROTOCOL, kinds.GATEWAY, kinds.WRITE_PROJECTION, kinds.READ_PROJECTION}


# -- commands exist -------------------------------------------------------------------------------


def test_make_targets_exist() -> None:
    makefile = read("Makefile")
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]
    named = {target for file in DOCUMENTS for target in re.findall(r"\bmake ([a-z][a-z-]*)`", file.read_text())}
    named |= {words[1] for file in DOCUMENTS for words in commands(file.read_text()) if words[0] == "make"}
    assert {"serve", "test", "test-long"} <= named <= phony
    # The address that the documents tell a reader to use is the one that the target serves on.
    assert re.search(r"^serve: .*\n\t.* serve --config examples/space.yaml --data data$", makefile, re.MULTILINE)
    assert f"{GatewayConfig.__dataclass_fields__['host'].default}:8080" == ADDRESS


def test_commands_and_their_options_exist() -> None:
    shown = [words for file in DOCUMENTS for words in commands(file.read_text()) if words[0].endswith("mewstream")]
    assert shown
    for _, *arguments in shown:
        command: click.Command = cli
        while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
            command = command.commands[arguments.pop(0)]
        known = {name for option in command.params for name in option.opts} | {"--help"}
        assert {word.partition("=")[0] for word in arguments if word.startswith("-")} <= known, arguments


def test_operations_names_every_option_of_serve() -> None:
    listed = {name for row in rows(read("docs/operations.md")) for name in row[0].replace(",", "").split()}
    for option in cli.commands["serve"].params:
        assert set(option.opts) <= listed, option.opts


# -- tables are those of the code -----------------------------------------------------------------


@pytest.mark.parametrize("reason", CloseReason, ids=lambda reason: reason.name)
def test_protocol_lists_every_close_reason(reason: CloseReason) -> None:
    close = reason.value
    may_reconnect = "yes" if reason.may_reconnect else "no"
    expected = [reason.name, str(close.code), str(close.standard), may_reconnect, close.text]
    assert expected in [row[:5] for row in rows(read("docs/protocol.md"))]


def test_protocol_lists_no_close_reason_that_does_not_exist() -> None:
    listed = {row[0] for row in rows(read("docs/protocol.md")) if len(row) > 4 and re.fullmatch(r"\d{4}", row[1])}
    assert listed == {reason.name for reason in CloseReason}


def peer_errors() -> set[tuple[str, int]]:
    """Every wire code with its HTTP status."""
    found: set[type[PeerError]] = set()
    pending: list[type[PeerError]] = [PeerError]
    while pending:
        error = pending.pop()
        found.add(error)
        pending += error.__subclasses__()
    return {(error.code, error.http_status) for error in found}


def test_protocol_lists_every_error_code_with_its_status() -> None:
    listed = {(row[0], int(row[1])) for row in rows(read("docs/protocol.md")) if re.fullmatch(r"[45]\d\d", row[1])}
    assert listed == peer_errors()


def test_protocol_tells_of_every_kind_that_the_gateway_acts_on() -> None:
    text = read("docs/protocol.md")
    assert {kind for kind in known_kinds() if f"`{kind}`" not in text} == set()


def test_protocol_tells_of_every_feature() -> None:
    assert {feature for feature in FEATURES if f'"{feature}"' not in read("docs/protocol.md")} == set()


def shown(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize(
    ("heading", "settings"),
    [("Limits", Limits), ("Policies", Policies), ("Slow readers", Delivery), ("The journal", JournalSettings)],
)
def test_operations_lists_every_setting_with_its_default(heading: str, settings: type[msgspec.Struct]) -> None:
    listed = {row[0]: row[1] for row in rows(section(read("docs/operations.md"), heading)) if len(row) > 1}
    defaults = {name: shown(getattr(settings(), name)) for name in settings.__struct_fields__}
    if settings is JournalSettings:
        defaults["retention"] = "none"  # its own table is in docs/journal.md
    assert {name: listed.get(name) for name in defaults} == defaults
    assert set(listed) - {"key", "---", "on_slow", *defaults} == set()


def test_the_example_shows_every_setting_of_a_space_with_its_default() -> None:
    """Those that are commented out: they become settings when a user removes the ``#``."""
    text = EXAMPLE.read_text(encoding="utf-8")
    (block,) = re.findall(r"^#mewstream:\n(?:#  .*\n)+", text, re.MULTILINE)
    shown = yaml.safe_load(re.sub(r"^#", "", block, flags=re.MULTILINE))["mewstream"]
    shown["policies"]["validate"] = "off" if shown["policies"]["validate"] is False else shown["policies"]["validate"]
    assert shown == {
        name: msgspec.to_builtins(settings())
        for name, settings in {"limits": Limits, "policies": Policies, "delivery": Delivery}.items()
    }


def test_operations_lists_every_gateway_key_with_its_default() -> None:
    listed = {row[0]: row[1] for row in rows(section(read("docs/operations.md"), "The gateway"))}
    fields = {name: field.default for name, field in GatewayConfig.__dataclass_fields__.items()}
    for name in ("spaces", "unused", "tls_cert", "tls_key"):  # not keys of the section, but for tls: {cert, key}
        del fields[name]
    fields["tls"] = None
    expected = {
        f"gateway.{name}": "[]" if default == () else "none" if default is None else shown(default)
        for name, default in fields.items()
    }
    expected["gateway.journal"] = "see [the journal](#the-journal)"
    assert {key: value for key, value in listed.items() if key.startswith("gateway.")} == expected


def test_operations_names_every_status_of_health() -> None:
    """As ``Gateway.status`` gives them; tests of the gateway see each of them."""
    listed = {row[0] for row in rows(section(read("docs/operations.md"), "Health"))[2:]}
    assert listed == {"ok", "journal_unavailable", "draining"}
    assert all(f"`{status}`" in section(read("docs/protocol.md"), "HTTP") for status in listed)


def test_operations_names_the_keys_that_are_accepted_and_not_used() -> None:
    text = read("docs/operations.md")
    assert {key for key in PROCESS_MANAGER_KEYS if f"`{key}`" not in text} == set()


def test_operations_lists_every_event_of_the_log() -> None:
    """With the level at which the sources log it, as far as it stands there as a name."""
    listed = {
        name: set(re.split(r", ", level))
        for events, level, _ in rows(section(read("docs/operations.md"), "Logs"))[2:]
        for name in events.split(", ")
    }
    found: set[str] = set()
    for package in ("gateway", "journal"):
        for file in (ROOT / "src" / "mewstream" / package).glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and _called(node) in ("event", "_event", "say", "_say") and node.args:
                    name = node.args[0]
                    if isinstance(name, ast.Constant):
                        found.add(name.value)
                if isinstance(node, ast.Call) and _called(node) in ("debug", "info", "warning", "error", "exception"):
                    level = {"exception": "ERROR"}.get(_called(node), _called(node).upper())
                    for keyword in node.keywords:
                        if keyword.arg == "extra" and isinstance(keyword.value, ast.Call):
                            assert level in listed[keyword.value.args[0].value], ast.unparse(node)  # type: ignore[attr-defined]
    assert found == set(listed)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_operations_lists_every_metric() -> None:
    exported = Metrics()
    exported.watch_journal(JournalUsage(Recorder()))
    metrics = {
        (f"{family.name}_total" if family.type == "counter" else family.name, family.type)
        for family in exported.registry.collect()
    }
    text = read("docs/operations.md")
    listed = {(row[0], row[1]) for row in rows(text) if row[0].startswith("mewstream_")}
    of_process = set(re.findall(r"`(process_\w+)`", section(text, "Metrics")))
    assert listed == {each for each in metrics if each[0].startswith("mewstream_")}
    assert of_process == {name for name, _ in metrics if name.startswith("process_")}


def test_architecture_lists_every_record() -> None:
    listed = {row[0] for row in rows(section(read("docs/architecture.md"), "Records"))[2:]}
    assert listed == record_tags()


def test_architecture_names_files_that_exist() -> None:
    for name in re.findall(r"`((?:src|tests|docs|examples)/[\w./-]*)`", read("docs/architecture.md")):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`((?:protocol|gateway|journal|cli)/\w+\.py)`", read("docs/architecture.md")):
        assert (ROOT / "src" / "mewstream" / name).exists(), name


def test_the_list_of_modules_is_that_of_the_code() -> None:
    assert read("docs/modules.md") == modules.document(), "stale: run `make docs`"
    assert "|  |" not in read("docs/modules.md"), "a module without a docstring"


def test_the_states_of_a_stream_are_those_of_the_table() -> None:
    assert read("docs/stream-states.md") == stream_states.document(), "stale: run `make docs`"


# -- links lead somewhere -------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The names by which GitHub lets one link to the headings of a document."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_relative_links_resolve(file: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (file.parent / path) if path else file
        assert linked.exists(), f"{file.name}: {target}"
        if anchor:
            assert anchor in anchors(linked.read_text(encoding="utf-8")), f"{file.name}: {target}"


def test_the_index_leads_to_every_document() -> None:
    index = read("docs/index.md")
    for file in (ROOT / "docs").glob("*.md"):
        assert file.name == "index.md" or f"({file.name})" in index, file.name


def decisions_named_in(text: str) -> Iterator[int]:
    """The numbers of "decision 7", "decisions 1 and 2", "decisions 1 to 9, 13 and 14", also across a line break."""
    # The end of a line inside a comment or a docstring is not the end of the list.
    text = re.sub(r"\s*\n\s*(?:#:?\s*)?", " ", text)
    for listed in re.findall(r"\bdecisions? (\d+(?:(?:, and | and | to |, )\d+)*)", text, re.IGNORECASE):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", listed):
            yield from range(int(first), int(last or first) + 1)


def test_every_decision_that_the_code_names_is_written_down() -> None:
    numbers = [int(number) for number in re.findall(r"^## (\d+)\. ", read("docs/decisions.md"), re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    sources = [file for directory in ("src", "tests", "benchmarks", "docs") for file in (ROOT / directory).rglob("*.*")]
    named = {
        (number, file.relative_to(ROOT).as_posix())
        for file in sources
        if file.suffix in (".py", ".md")
        for number in decisions_named_in(file.read_text(encoding="utf-8"))
    }
    assert len({number for number, _ in named}) > 20
    assert {(number, file) for number, file in named if number not in numbers} == set()


def test_every_decision_has_its_reason() -> None:
    for decision in re.split(r"^## ", read("docs/decisions.md"), flags=re.MULTILINE)[1:]:
        assert "\nWhy: " in decision, decision.splitlines()[0]


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_json_examples_are_json(file: Path) -> None:
    for language, content in blocks(file.read_text(encoding="utf-8")):
        if language == "json":
            msgspec.json.decode(content)
