"""Transforms as SQL over DataFrames.

One text is parsed and analysed once. The same as a chain of calls would be analysed once for each call, and a
small batch would take longer to plan than to run.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.tables import Table


def query(text: str, **frames: DataFrame) -> DataFrame:
    """``text`` names each of the frames in braces."""
    session = next(iter(frames.values())).sparkSession
    return session.sql(text, **frames)  # type: ignore[arg-type]  # frames are what braces stand for


def null(type: str) -> str:
    return f"CAST(NULL AS {type})"


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
