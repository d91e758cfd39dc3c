"""Spark for a command: started without a word on the terminal, and its errors as one line."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from mewstream.extras import require
from mewstream.protocol.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: ``[TABLE_OR_VIEW_NOT_FOUND] The table ... cannot be found. SQLSTATE: 42P01; line 1 pos 14; 'Project ...``
_OF_SPARK = re.compile(
    r"\[[A-Z_0-9.]+\] (?P<text>.+?)\s*(?:SQLSTATE: \w+)(?:[;\s(]*(?P<place>line \d+,? pos \d+))?", re.DOTALL
)
_LONGEST = 500
#: Spark's own leaves half of the digits out.
_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"


@contextlib.contextmanager
def session(master: str | None = None, *, is_short: bool = True) -> Iterator[SparkSession]:
    """A session until the end of the block."""
    require("query", "spark")
    without_warnings()
    from mewstream.pipeline.session import spark_session

    with tempfile.TemporaryFile() as said:
        try:
            with _outputs_to(said):
                spark = spark_session(master, is_short=is_short)
        except Exception as error:
            if type(error).__module__.startswith(("pyspark", "py4j")):
                raise ConfigError(f"Spark did not start: {_last_words(said) or _one_line(str(error))}") from None
            raise
        try:
            with one_line_errors():
                yield spark
        finally:
            spark.stop()


def without_warnings() -> None:
    """What libraries say to programmers is nothing for those who type commands."""
    warnings.simplefilter("ignore")
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _outputs_to(file: BinaryIO) -> Iterator[None]:
    """What is started meanwhile says what it has to say to a file, for as long as it lives: a JVM is talkative."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in kept:
            os.dup2(file.fileno(), number)
        yield
    finally:
        for number, before in kept:
            os.dup2(before, number)
            os.close(before)


def _last_words(file: BinaryIO) -> str:
    file.seek(0)
    lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else ""


def json_rows(found: DataFrame) -> Iterator[str]:
    """Rows as JSON, made by Spark, which knows its types; a few at a time, however many there are."""
    from pyspark.sql import functions as F

    whole = F.to_json(F.struct("*"), {"ignoreNullFields": "false", "timestampFormat": _MICROSECONDS})
    for row in found.select(whole).toLocalIterator():
        yield row[0]


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """An error of Spark, or one of ours that Spark carries, as one line."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from mewstream.pipeline.errors import PipelineError, own_words

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise PipelineError(own_words(error) or _one_line(str(error))) from None


def _one_line(text: str) -> str:
    found = _OF_SPARK.search(text)
    if found is None:
        return next((line.strip() for line in text.splitlines() if line.strip()), "unknown error")[:_LONGEST]
    said = " ".join(found["text"].split())[:_LONGEST]
    return f"{said} ({found['place']})" if found["place"] else said
