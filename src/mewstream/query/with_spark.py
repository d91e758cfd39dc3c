"""The tables of a warehouse for Spark SQL: its dialect, without jars."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from mewstream.pipeline.batch_writer import read_with_spark
from mewstream.pipeline.errors import PipelineError
from mewstream.pipeline.tables import SHOWN, Table
from mewstream.pipeline.warehouse import Warehouse
from mewstream.query.database import open_database
from mewstream.query.dialects import SPARK


def register_views(spark: SparkSession, warehouse: Warehouse) -> list[str]:
    """Create a view of every table by its plain name, and the typed view of every format. Returns the names."""
    for table in SHOWN:
        spark_table(spark, warehouse, table).createOrReplaceTempView(table.name)
    with open_database(warehouse) as database:
        views = database.typed_views()
    for view in views:
        spark.sql(f"CREATE OR REPLACE TEMP VIEW {SPARK.quoted(view.name)} AS {view.select(SPARK)}")
    return [*(table.name for table in SHOWN), *(view.name for view in views)]


def spark_table(spark: SparkSession, warehouse: Warehouse, table: Table) -> DataFrame:
    """A table with all its columns, of the batch that the warehouse was opened at."""
    return read_with_spark(spark, warehouse.store, table, warehouse.files(table.name), columns=table.all_columns)


def run_query(spark: SparkSession, sql: str, table_names: list[str]) -> DataFrame:
    """Run a user's query. Raises :class:`PipelineError` with one line for a table that does not exist."""
    try:
        found = spark.sql(sql)
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        missing = (error.getMessageParameters() or {}).get("relationName", "that").strip("`")
        raise PipelineError(f"there is no table {missing}: there are {', '.join(table_names)}") from None
    if not found.columns:
        raise PipelineError("this gives no rows: expected a SELECT")
    return found
