"""The wheel has what users need, and nothing that only tests, benchmarks or documents need."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mewstream.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
#: Where users begin: ``import mewstream``, ``import mewstream.sync``, and the commands.
ENTRY_POINTS = {"mewstream", "mewstream.sync", "mewstream.audit", "mewstream.cli.main", "mewstream.__main__"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (file,) = directory.glob("*.whl")
    return zipfile.ZipFile(file)


def modules_in(wheel: zipfile.ZipFile) -> dict[str, ast.Module]:
    return {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): ast.parse(wheel.read(name))
        for name in wheel.namelist()
        if name.endswith(".py")
    }


def imports_of(module: ast.Module) -> Iterator[str]:
    """Every name that may be a module: imports anywhere in it, also within functions."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_it_has_nothing_but_the_package(wheel: zipfile.ZipFile) -> None:
    places = {name.partition("/")[0] for name in wheel.namelist()}
    assert {place for place in places if not place.endswith(".dist-info")} == {"mewstream"}
    assert "mewstream/py.typed" in wheel.namelist()


def test_every_module_is_used_by_what_users_begin_with(wheel: zipfile.ZipFile) -> None:
    modules = modules_in(wheel)
    pending = set(ENTRY_POINTS)
    for entries in COMMANDS.values():
        for entry in entries.values():
            module = entry.target.partition(":")[0]
            pending.add(module if module.startswith("mewstream.") else f"mewstream.cli.{module}")
    used: set[str] = set()
    while pending:
        name = pending.pop()
        used.add(name)
        parents = {name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1)}
        pending |= {each for each in {*imports_of(modules[name]), *parents} if each in modules} - used
    assert set(modules) - used == set()
