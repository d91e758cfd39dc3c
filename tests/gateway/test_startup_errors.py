"""An operator's mistake is one clear line on stderr and exit code 2: no traceback, no token."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import mewstream
from support import space_config

SECRET = "s3cret-token"


def run(directory: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A gateway that starts after all is stopped, and the test fails."""
    command = [sys.executable, "-m", "mewstream.cli.main", *arguments]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MEW_", "ENVELOPE_"))}
    try:
        return subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=8,
            check=False,
            env={**clean, **environ},
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as expired:
        raise AssertionError(f"it started instead of refusing to: {expired.stdout!r}") from None


def mistake(directory: Path, *options: str, **environ: str) -> str:
    """The one line that ``serve`` ends with."""
    result = run(directory, "serve", *options, **environ)
    assert result.returncode == 2, result
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert SECRET not in result.stderr
    assert "token-of-" not in result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr.strip()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A working directory with a good ``space.yaml`` that listens on any free port."""
    config = space_config("alice", gateway={"port": 0})
    config["participants"]["alice"]["tokens"] = [SECRET]
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


def write(directory: Path, text: str, name: str = "space.yaml") -> str:
    (directory / name).write_text(text)
    return name


class TestConfiguration:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (f"space: {{id: demo\nparticipants: {{alice: {{tokens: [{SECRET}]}}}}", "line 2"),
            (f"space: {{id: demo}}\nparticipants:\n  alice:\n\ttokens: [{SECRET}]\n", "line 4"),
            (f"space: {{id: demo}}\nparticipants: {{alice: {{tokens: [{SECRET}], colour: red}}}}", "colour"),
            (
                f"space: {{id: demo}}\nparticipants: {{alice: {{tokens: [{SECRET}]}}}}\nmewstream: {{limit: {{}}}}",
                "limit",
            ),
            ("space: {id: demo}\nparticipants: {alice: {capabilities: []}}", "MEW_TOKEN_ALICE"),
            (f"space: {{id: demo}}\nparticipants: {{alice: {{tokens: {SECRET}}}}}", "participants.alice.tokens"),
            (
                f"space: {{id: demo}}\nparticipants: {{alice: {{tokens: [{SECRET}]}}, bob: {{tokens: [{SECRET}]}}}}",
                "participants.bob",
            ),
            (f"participants: {{alice: {{tokens: [{SECRET}]}}}}", "space"),
            ("", "space"),
            (f"- {SECRET}", "a list"),
        ],
        ids=[
            "not closed",
            "a tab",
            "unknown key",
            "unknown section",
            "missing token",
            "tokens no list",
            "token of two",
            "no space",
            "empty",
            "a list",
        ],
    )
    def test_a_mistake_in_the_file(self, directory: Path, text: str, expected: str) -> None:
        line = mistake(directory, "--config", write(directory, text))
        assert "space.yaml" in line
        assert expected in line

    def test_a_missing_file(self, directory: Path) -> None:
        assert "missing.yaml" in mistake(directory, "--config", "missing.yaml")

    def test_a_missing_default_file(self, directory: Path) -> None:
        (directory / "space.yaml").unlink()
        assert "space.yaml" in mistake(directory)

    def test_a_directory_as_file(self, directory: Path) -> None:
        assert mistake(directory, "--config", ".")

    def test_the_same_space_twice(self, directory: Path) -> None:
        line = mistake(directory, "--config", "space.yaml", "--config", write(directory, _other(), "other.yaml"))
        assert "demo" in line
        assert "other.yaml" in line

    def test_a_switch_in_the_environment_that_is_none(self, directory: Path) -> None:
        assert "ENVELOPE_HISTORY" in mistake(directory, ENVELOPE_HISTORY="perhaps")


class TestListening:
    def test_a_port_that_is_taken(self, directory: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            line = mistake(directory, "--port", port)
        assert port in line
        assert "taken" in line

    def test_an_address_that_is_not_ours(self, directory: Path) -> None:
        assert "192.0.2.1" in mistake(directory, "--host", "192.0.2.1")


class TestDataDirectory:
    def test_below_a_file(self, directory: Path) -> None:
        assert "space.yaml" in mistake(directory, "--data", "space.yaml/data")

    def test_a_file(self, directory: Path) -> None:
        assert "space.yaml" in mistake(directory, "--data", "space.yaml")

    def test_a_file_named_in_the_configuration(self, directory: Path) -> None:
        config = yaml.safe_load((directory / "space.yaml").read_text())
        config["gateway"]["data"] = "space.yaml"
        write(directory, yaml.safe_dump(config))
        assert "space.yaml" in mistake(directory)

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory that not even root may write to")
    @pytest.mark.parametrize("path", ["/proc", "/proc/mewstream"], ids=["existing", "to be made"])
    def test_one_that_cannot_be_written(self, directory: Path, path: str) -> None:
        """Not when the first invitation must be kept: then it is too late."""
        assert "/proc" in mistake(directory, "--data", path)

    def test_tokens_that_cannot_be_understood(self, directory: Path) -> None:
        (directory / "data").mkdir()
        (directory / "data" / "invited.json").write_text("{")
        assert "invited.json" in mistake(directory, "--data", "data")


class TestCommand:
    def test_a_tls_certificate_without_its_key(self, directory: Path) -> None:
        assert "--tls-key" in mistake(directory, "--tls-cert", "cert.pem")

    @pytest.mark.parametrize(
        "options", [("--port", "http"), ("--port", "70000"), ("--no-such-option",), ("--log-level", "loud")]
    )
    def test_a_mistaken_option(self, directory: Path, options: tuple[str, ...]) -> None:
        """``main``: "A user's mistake is one line and exit code 2"."""
        assert options[0] in mistake(directory, *options)

    @pytest.mark.parametrize("option", ["--help", "-h"])
    def test_help(self, directory: Path, option: str) -> None:
        result = run(directory, option)
        assert result.returncode == 0
        assert result.stderr == ""
        assert "serve" in result.stdout

    def test_help_of_serve(self, directory: Path) -> None:
        result = run(directory, "serve", "--help")
        assert result.returncode == 0
        assert result.stderr == ""
        for option in ("--config", "--host", "--port", "--data", "--tls-cert", "--tls-key", "--log-level"):
            assert option in result.stdout

    def test_version(self, directory: Path) -> None:
        result = run(directory, "--version")
        assert result.returncode == 0
        assert mewstream.__version__ in result.stdout

    def test_an_unknown_command(self, directory: Path) -> None:
        result = run(directory, "sevre")
        assert result.returncode == 2
        assert "Traceback" not in result.stderr
        assert "sevre" in result.stderr


def _other() -> str:
    return f"space: {{id: demo}}\nparticipants: {{bob: {{tokens: [{SECRET}-2]}}}}\n"
