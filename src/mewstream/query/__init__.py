"""Questions to the tables: SQL, the state at a point of a log, the report. DuckDB over Arrow answers, without Spark."""
