"""How the payloads of a format are decoded, by what its announcement says: in SQL that Spark and DuckDB both know."""

from __future__ import annotations

#: How a format is decoded, from ``mime_type``: json, lines or text; null for what is opaque.
DECODES = """
    CASE
        WHEN regexp_like(lower(mime_type), '^ *application/(x-)?(ndjson|jsonl|jsonlines) *(;.*)?$') THEN 'lines'
        WHEN regexp_like(lower(mime_type), '^ *[^/;]*/([^;]*[+])?json *(;.*)?$') THEN 'json'
        WHEN trim(coalesce(mime_type, '')) = '' AND schema_hash IS NOT NULL THEN 'json'
        WHEN regexp_like(lower(mime_type), '^ *text/') AND (
            NOT lower(mime_type) LIKE '%charset=%'
            OR regexp_like(lower(mime_type), 'charset="?(utf-?8|us-ascii)"? *(;|$)')
        ) THEN 'text'
    END
"""
