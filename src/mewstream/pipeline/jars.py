"""Jars that the wheel of Spark does not carry: had once from Maven Central, and kept.

Spark itself resolves them (``spark.jars.packages``), in a process of its own: Ivy says a lot, and a session whose jars
cannot be had does not start at all. Later sessions are given the files, and ask nobody.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mewstream.pipeline.errors import JarsUnavailable
from mewstream.pipeline.java import cache_directory

_RESOLVE_SECONDS = 600
_RESOLVE = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder
for name, value in json.load(sys.stdin).items():
    builder = builder.config(name, value)
builder.getOrCreate().stop()
"""
_REASON = re.compile(r"RuntimeException: \[?(.+?)\]?$", re.MULTILINE)


def jars_of(package: str, settings: Mapping[str, str] | None = None) -> list[Path]:
    """The files of a Maven package and of all that it needs; Java must have been found. ``settings`` may say where they
    come from: ``spark.jars.repositories``, ``spark.jars.ivySettings``. Raises :class:`JarsUnavailable`."""
    cache = cache_directory(os.environ)
    kept = cache / f"jars-{hashlib.sha256(package.encode()).hexdigest()[:16]}"
    if not kept.is_dir():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache, prefix="jars-new-") as scratch:
                _resolve(package, settings or {}, Path(scratch))
                Path(scratch, "jars").rename(kept)
        except OSError as error:
            if not kept.is_dir():  # else another process was faster
                raise JarsUnavailable(f"the jars of {package} cannot be kept in {cache}: {error}") from None
    return sorted(kept.glob("*.jar"))


def _resolve(package: str, settings: Mapping[str, str], directory: Path) -> None:
    wanted = {name: value for name, value in settings.items() if name.startswith("spark.jars.")} | {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.jars.packages": package,
        "spark.jars.ivy": str(directory),
    }
    try:
        done = subprocess.run(  # noqa: S603 - this Python, and a script of ours
            [sys.executable, "-c", _RESOLVE],
            input=json.dumps(wanted),
            capture_output=True,
            text=True,
            timeout=_RESOLVE_SECONDS,
            check=False,
        )
        said = done.stderr
    except subprocess.TimeoutExpired:
        said = f"RuntimeException: no answer in {_RESOLVE_SECONDS} seconds"
    if not (directory / "jars").is_dir():
        reasons = _REASON.findall(said) or said.strip().splitlines() or ["no reason was given"]
        raise JarsUnavailable(
            f"the jars of {package} could not be had from Maven Central ({reasons[-1]}). They are needed once: "
            "try again with a connection, set spark.jars.repositories to a mirror, or use the table format parquet"
        )
