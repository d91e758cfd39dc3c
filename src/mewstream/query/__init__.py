"""Queries of the tables: SQL, the state at a point of a log, the report. DuckDB reads them as Arrow, without Spark."""
