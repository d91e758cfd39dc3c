"""mewstream as users install it: a wheel, in a virtual environment that has nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
#: For a command that must end: long, for the machine may be busy, and never waited for in full.
TIMEOUT = 600
#: What a virtual environment has before anything is installed.
_BROUGHT_BY_VENV = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")


class Done(NamedTuple):
    code: int
    out: str
    err: str


def build_wheel(directory: Path) -> Path:
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)], cwd=ROOT)
    (file,) = directory.glob("*.whl")
    return file


def run(command: list[str], *, cwd: Path, code: int | None = 0, input: str = "", **environment: str) -> Done:
    """Run to the end; with ``code`` None, whatever the exit code is."""
    # Neither variables of ours nor the packages of this process.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MEW", "PYTHON"))}
    done = subprocess.run(
        command, cwd=cwd, env=inherited | environment, input=input, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert code is None or done.returncode == code, (command, done.returncode, done.stdout, done.stderr)
    return Done(done.returncode, done.stdout, done.stderr)


class Installation:
    """A virtual environment, and a directory in which its commands are run."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.home.mkdir(parents=True)
        self._venv = directory / "venv"
        run([sys.executable, "-m", "venv", str(self._venv)], cwd=directory)
        self.python = str(self._venv / "bin" / "python")
        self.mewstream_command = str(self._venv / "bin" / "mewstream")

    def install(self, what: str) -> None:
        self.pip("install", what)

    def pip(self, *arguments: str) -> Done:
        # The versions of the constraints, so that two runs test the same.
        return run(
            [self.python, "-m", "pip", "--disable-pip-version-check", *arguments],
            cwd=self.home,
            PIP_CONSTRAINT=str(ROOT / "constraints.txt"),
        )

    def mewstream(self, *arguments: str, code: int | None = 0, input: str = "", **environment: str) -> Done:
        done = run([self.mewstream_command, *arguments], cwd=self.home, code=code, input=input, **environment)
        assert "Traceback" not in done.err, done.err
        return done

    def runs(self, program: str, **environment: str) -> Done:
        """Run Python code; a warning is an error."""
        return run([self.python, "-W", "error", "-c", program], cwd=self.home, **environment)

    @property
    def packages(self) -> dict[str, str]:
        """Everything that was installed, mewstream included, with its version."""
        listed = json.loads(self.pip("list", "--format", "json").out)
        return {each["name"].lower(): each["version"] for each in listed if each["name"] not in _BROUGHT_BY_VENV}

    @property
    def size(self) -> int:
        """The bytes of all files that were installed, compiled modules included."""
        (packages,) = (self._venv / "lib").glob("python*/site-packages")
        return sum(
            file.lstat().st_size
            for file in packages.rglob("*")
            if file.is_file() and not file.relative_to(packages).parts[0].startswith(_BROUGHT_BY_VENV)
        )
