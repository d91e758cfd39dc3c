"""The declaration of the tables: it is sound, it is what is written, and its document is not stale."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from table_pages import document

from mewstream.journal.schema import SCHEMA
from mewstream.pipeline.source import spark_schema
from mewstream.pipeline.tables import ALL, BY_NAME, COMMITS, PUBLIC, RECORDS, REFRESH, Layer, Layout

DOCUMENT = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_document_is_not_stale() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run make docs"


def test_every_table_and_column_is_explained() -> None:
    for table in ALL:
        assert table.meaning.endswith("."), table.name
        assert len(set(table.names)) == len(table.names), table.name
        assert set(table.keys) <= set(table.names), table.name
        for column in table.columns:
            assert column.meaning, column.name
            assert not column.meaning.removesuffix("...").endswith("."), column.name


def test_names_are_unique_and_tell_state_apart() -> None:
    assert len(BY_NAME) == len({table.name for table in (*ALL, COMMITS, REFRESH)})
    for table in ALL:
        assert table.name.startswith("state_") == (table.layer is Layer.STATE)
        assert table.layout is Layout.CURRENT or table.layer is not Layer.STATE


def test_the_tables_of_the_issue() -> None:
    layers = {layer: {table.name for table in PUBLIC if table.layer is layer} for layer in Layer}
    assert layers[Layer.BRONZE] == {"records"}
    assert layers[Layer.SILVER] >= {
        "envelopes",
        "frames",
        "streams",
        "authorizations",
        "sessions",
        "refusals",
        "content",
    }
    assert layers[Layer.SILVER] >= {"content", "quarantine"}
    assert layers[Layer.GOLD] == {
        "stream_metrics",
        "sequence_gaps",
        "handoffs",
        "audit",
        "audit_unjudged",
        "space_summary",
    }


def test_bronze_has_exactly_the_columns_of_the_journal(spark: SparkSession) -> None:
    assert RECORDS.names == SCHEMA.names
    declared = spark.createDataFrame([], RECORDS.schema).schema
    assert [(each.name, each.dataType) for each in declared] == [(each.name, each.dataType) for each in spark_schema()]


def test_spark_understands_every_declaration(spark: SparkSession) -> None:
    for table in ALL:
        assert spark.createDataFrame([], table.schema).columns == table.names
