"""The tables of a warehouse for Spark SQL: its dialect, without jars."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from mewstream.pipeline.batch_writer import read_with_spark
from mewstream.pipeline.errors import PipelineError
from mewstream.pipeline.tables import SHOWN, Table
from mewstream.pipeline.warehouse import Warehouse
from mewstream.query.asking import questions
from mewstream.query.dialects import SPARK


def register_views(spark: SparkSession, warehouse: Warehouse) -> list[str]:
    """Make every table known to SQL by its plain name, and every format by its typed view. Returns the names."""
    for table in SHOWN:
        spark_table(spark, warehouse, table).createOrReplaceTempView(table.name)
    with questions(warehouse) as asked:
        views = asked.typed_views()
    for view in views:
        spark.sql(f"CREATE OR REPLACE TEMP VIEW {SPARK.quoted(view.name)} AS {view.select(SPARK)}")
    return [*(table.name for table in SHOWN), *(view.name for view in views)]


def spark_table(spark: SparkSession, warehouse: Warehouse, table: Table) -> DataFrame:
    """A table with all its columns, of the batch that the warehouse was opened at."""
    return read_with_spark(spark, warehouse.store, table, warehouse.files(table.name), columns=table.all_columns)


def ask(spark: SparkSession, sql: str, known: list[str]) -> DataFrame:
    try:
        found = spark.sql(sql)
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        missing = (error.getMessageParameters() or {}).get("relationName", "that").strip("`")
        raise PipelineError(f"there is no table {missing}: there are {', '.join(known)}") from None
    if not found.columns:
        raise PipelineError("this gives no rows: expected a SELECT")
    return found
