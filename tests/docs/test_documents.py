"""The documents say what the code does: examples are run, tables are compared, links are followed."""

from __future__ import annotations

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
import msgspec
import pytest

from mewstream.cli.main import cli
from mewstream.gateway.closing import CloseReason
from mewstream.gateway.config import _GATEWAY_KEYS, PROCESS_MANAGER_KEYS, GatewayConfig, load_config
from mewstream.gateway.http import FEATURES
from mewstream.gateway.metrics import Metrics
from mewstream.protocol import decide, diagram, kinds, records
from mewstream.protocol.errors import PeerError
from mewstream.protocol.policy import Delivery, Limits, Policies
from support import GatewayProcess

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = ROOT / "examples" / "space.yaml"
#: What the documents tell a reader to connect to; the tests use a free port instead.
ADDRESS = "127.0.0.1:8080"


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a document, as (language, content)."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


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

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, options=("--config", str(EXAMPLE)))

    def kill(self) -> None:
        """Not a drain: that would take its time to tell connections of scripts that have ended."""
        assert self.process is not None and self.process.stdout is not None
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


class TestTutorial:
    MARK = "--- end of a block ---"

    def test_prints_what_it_says(self, gateway: ExampleGateway) -> None:
        codes: list[str] = []
        expected: list[str] = []
        for language, content in blocks(read("docs/tutorial.md")):
            if language == "python":
                codes.append(content)
                expected.append("")
            elif language == "text":
                assert expected[-1] == "", "two outputs for one block"
                expected[-1] = content
        assert len(codes) > 10
        script = "".join(f"{code}\nprint({self.MARK!r}, flush=True)\n" for code in codes)
        printed = run_python(script, gateway, typed=True).split(f"{self.MARK}\n")
        assert printed[-1] == ""
        for code, says, prints in zip(codes, expected, printed[:-1], strict=True):
            assert prints == says, code

    async def test_its_curl_commands_are_accepted(self, gateway: ExampleGateway) -> None:
        await check_curl_commands(read("docs/tutorial.md"), gateway)


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


def test_every_yaml_block_of_operations_is_a_configuration(tmp_path: Path) -> None:
    found = [content for language, content in blocks(read("docs/operations.md")) if language == "yaml"]
    assert found
    (tmp_path / "cert.pem").touch()
    (tmp_path / "key.pem").touch()
    for content in found:
        file = tmp_path / "space.yaml"
        file.write_text(content)
        assert load_config([file], environ={}, cwd=tmp_path).spaces, content


# -- commands exist -------------------------------------------------------------------------------


def test_make_targets_exist() -> None:
    makefile = read("Makefile")
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]
    named = {target for file in DOCUMENTS for target in re.findall(r"\bmake ([a-z][a-z-]*)`", file.read_text())}
    named |= {words[1] for file in DOCUMENTS for words in commands(file.read_text()) if words[0] == "make"}
    assert {"serve", "test", "test-long"} <= named <= phony
    # The address that the documents tell a reader to use is the one that the target serves on.
    assert re.search(r"^serve: .*\n\t.* serve --config examples/space.yaml$", makefile, re.MULTILINE)
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
    acted_on = set(decide._RULES) | kinds.RESERVED | kinds.WHILE_PAUSED
    acted_on |= {kinds.WELCOME, kinds.PRESENCE, kinds.ERROR, kinds.NOTICE, kinds.JOIN, kinds.CHAT, kinds.MCP_REQUEST}
    acted_on |= {kinds.STREAM_MANAGE, kinds.SPACE_MANAGE_STREAMS}
    assert {kind for kind in acted_on if f"`{kind}`" not in text} == set()


def test_protocol_tells_of_every_feature() -> None:
    assert {feature for feature in FEATURES if f'"{feature}"' not in read("docs/protocol.md")} == set()


def shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("settings", [Limits, Policies, Delivery], ids=lambda settings: settings.__name__)
def test_operations_lists_every_setting_with_its_default(settings: type[msgspec.Struct]) -> None:
    listed = {row[0]: row[1] for row in rows(read("docs/operations.md")) if len(row) > 1}
    for name in settings.__struct_fields__:
        assert listed.get(name) == shown(getattr(settings(), name)), name


def test_operations_lists_every_gateway_key_with_its_default() -> None:
    listed = {row[0]: row[1] for row in rows(read("docs/operations.md")) if len(row) > 1}
    defaults = {name: field.default for name, field in GatewayConfig.__dataclass_fields__.items()}
    for key in _GATEWAY_KEYS:
        default = defaults.get(key)
        expected = "[]" if default == () else "none" if default is None else shown(default)
        assert listed.get(f"gateway.{key}") == expected, key


def test_operations_names_the_keys_that_are_accepted_and_not_used() -> None:
    text = read("docs/operations.md")
    assert {key for key in PROCESS_MANAGER_KEYS if f"`{key}`" not in text} == set()


def test_operations_lists_every_metric() -> None:
    metrics = {
        (f"{family.name}_total" if family.type == "counter" else family.name, family.type)
        for family in Metrics().registry.collect()
    }
    listed = {(row[0], row[1]) for row in rows(read("docs/operations.md")) if row[0].startswith("mewstream_")}
    assert listed == metrics


def test_architecture_lists_every_record() -> None:
    tags = {record.__struct_config__.tag for record in records.AnyRecord.__args__}
    listed = {row[0] for row in rows(read("docs/architecture.md"))}
    assert tags <= listed


def test_architecture_names_files_that_exist() -> None:
    for name in re.findall(r"`((?:src|tests|docs|examples)/[\w./-]*)`", read("docs/architecture.md")):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`((?:protocol|gateway|journal|cli)/\w+\.py)`", read("docs/architecture.md")):
        assert (ROOT / "src" / "mewstream" / name).exists(), name


def test_every_module_has_a_place_in_the_architecture() -> None:
    text = read("docs/architecture.md")
    package = ROOT / "src" / "mewstream"
    # Nothing outside journal/ knows how records are kept, and neither does that page.
    files = [file for layer in ("protocol", "gateway", "cli") for file in (package / layer).glob("*.py")]
    modules = {str(file.relative_to(package)) for file in files if file.name != "__init__.py"}
    assert {module for module in modules if f"`{module}`" not in text} == set(), "add a row: where to find what"


def test_the_states_of_a_stream_are_those_of_the_table() -> None:
    assert read("docs/stream-states.md") == diagram.document(), "stale: run `make docs`"


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


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_json_examples_are_json(file: Path) -> None:
    for language, content in blocks(file.read_text(encoding="utf-8")):
        if language == "json":
            msgspec.json.decode(content)
