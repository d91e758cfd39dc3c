"""The log of every space, read at scale by Spark: the source, the tables, the audit.

``register(spark)`` makes ``spark.read.format("mew")`` known to a session. Spark is imported when it is first needed, so
that importing this package costs nothing without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the data source ``mew`` known to a session, whoever made that."""
    from mewstream.pipeline.source import register as register_source

    register_source(spark)
