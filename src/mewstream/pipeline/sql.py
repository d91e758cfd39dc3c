"""Transforms as SQL over DataFrames.

One text is parsed and analysed once. The same as a chain of calls would be analysed once for each call, and a
small batch would take longer to plan than to run.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mewstream.pipeline.tables import Table


def query(text: str, **given: DataFrame | str) -> DataFrame:
    """``text`` has names in braces: of frames, and of parts of the text, which may hold names that come later."""
    text = filled(text, **{name: value for name, value in given.items() if isinstance(value, str)})
    frames: dict[str, Any] = {name: value for name, value in given.items() if not isinstance(value, str)}
    return next(iter(frames.values())).sparkSession.sql(text, **frames)  # type: ignore[no-any-return]


def filled(text: str, **parts: str) -> str:
    """``text`` with those parts in place of their names in braces."""
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


def columns(table: Table, **given: str) -> str:
    """The columns of a table in their order and types, for a SELECT: those ``given`` as SQL, others null."""
    unknown = given.keys() - set(table.names)
    assert not unknown, f"{table.name} has no {unknown}"
    return ", ".join(
        f"CAST({given.get(column.name, 'NULL')} AS {column.type}) AS `{column.name}`" for column in table.columns
    )


def same(table: Table, **changed: str) -> str:
    """The columns of a table for a SELECT: those ``changed`` as SQL, others as they are."""
    return columns(table, **{name: f"`{name}`" for name in table.names} | changed)


def is_for_small(spark: SparkSession) -> bool:
    """Whether everything in this session is to be one task: see :meth:`.warehouse.Writer.small_session`."""
    return spark.conf.get("spark.sql.shuffle.partitions") == "1"


def settled(rows: DataFrame) -> DataFrame:
    """The rows, computed here and now: what is asked of them more than once is not computed, nor planned, again."""
    if is_for_small(rows.sparkSession):
        # Rows in one partition are where every join and window wants them, if Spark knows that it is one.
        rows = rows.coalesce(1)
    return rows.localCheckpoint()
