"""Asking the tables in SQL, with DuckDB: no JVM, no Spark, and nothing is read that a question does not need."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from mewstream.pipeline.errors import PipelineError
from mewstream.pipeline.tables import SHOWN
from mewstream.pipeline.warehouse import Warehouse
from mewstream.query.dialects import DUCKDB
from mewstream.query.typed_views import FORMATS_QUERY, TypedView, typed_views

Rows = list[dict[str, Any]]
TableOf = Callable[[str], Any]
"""A table by its name, as anything of Arrow that DuckDB can scan."""
_WORD = re.compile(r"\w+")
_ROWS_AT_ONCE = 10_000


class Questions:
    """A connection to DuckDB in which tables are views with their plain names."""

    def __init__(self, table: TableOf) -> None:
        self._table = table
        self._registered: set[str] = set()
        self._views: list[TypedView] | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="mewstream-")
        self.connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "temp_directory": self._scratch.name,
            }
        )
        self.connection.execute("SET TimeZone = 'UTC'")
        # As Spark calls it, so that one text serves both.
        self.connection.execute("CREATE MACRO regexp_like(text, pattern) AS regexp_matches(text, pattern)")

    def __enter__(self) -> Questions:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self._scratch.cleanup()

    # -- what can be asked ------------------------------------------------------------------------

    def known(self) -> list[str]:
        """All tables, and the views of announced formats."""
        return [*(table.name for table in SHOWN), *(view.name for view in self.typed_views())]

    def need(self, *names: str) -> None:
        """Make tables known to DuckDB. A table that is not needed is not even opened."""
        for name in names:
            if name not in self._registered:
                rows = self._table(name)
                columns = ", ".join(map(DUCKDB.quoted, rows.schema.names))
                self.connection.register(f"_{name}", _counted_quickly(rows))
                self.connection.execute(f"CREATE VIEW {DUCKDB.quoted(name)} AS SELECT {columns} FROM _{name}")
                self._registered.add(name)

    def need_all_in(self, sql: str) -> None:
        """Whatever is named in a text; a word that only looks like a table does no harm."""
        words = {word.lower() for word in _WORD.findall(sql)}
        self.need(*(table.name for table in SHOWN if table.name in words))
        if any(word.startswith("content_") for word in words):
            for view in self.typed_views():
                if view.name.lower() in words and view.name not in self._registered:
                    self.need("content")
                    self.connection.execute(f'CREATE VIEW "{view.name}" AS {view.select(DUCKDB)}')
                    self._registered.add(view.name)

    def typed_views(self) -> list[TypedView]:
        if self._views is None:
            self.need("formats")
            self._views = typed_views(self.rows(FORMATS_QUERY))
        return self._views

    # -- asking -----------------------------------------------------------------------------------

    def rows(self, sql: str, **given: object) -> Rows:
        """All rows; for a question of ours, whose answer is small. ``given`` are the values of ``$names`` in it."""
        self.need_all_in(sql)
        asked = self.connection.execute(sql, given or None)
        names = [column[0] for column in asked.description or ()]
        return [dict(zip(names, row, strict=True)) for row in asked.fetchall()]

    def batches(self, sql: str, **given: object) -> pa.RecordBatchReader:
        """The same, a part at a time. Nothing else can be asked before its end."""
        self.need_all_in(sql)
        return self.connection.sql(sql, params=given).to_arrow_reader(_ROWS_AT_ONCE)

    def answer(self, sql: str) -> pa.RecordBatchReader:
        """What somebody asks, in their own words. Raises :class:`PipelineError` with one line."""
        with self.one_line_errors():
            statements = self.connection.extract_statements(sql)
            if len(statements) != 1:
                raise PipelineError(f"expected one statement, found {len(statements)}")
            if statements[0].expected_result_type != [duckdb.ExpectedResultType.QUERY_RESULT]:
                raise PipelineError("this gives no rows: expected a SELECT")
            self.need_all_in(sql)
            return self.connection.sql(sql).to_arrow_reader(_ROWS_AT_ONCE)

    @contextlib.contextmanager
    def one_line_errors(self) -> Iterator[None]:
        try:
            yield
        except duckdb.CatalogException as error:
            known = ", ".join(self.known())
            raise PipelineError(f"{_first_line(error)}. Tables are {known}") from None
        except duckdb.Error as error:
            raise PipelineError(_first_line(error)) from None


def _counted_quickly(rows: Any) -> Any:
    """To count rows DuckDB reads the first column: let that be one that no file has, so that nothing is read for it."""
    if not isinstance(rows, ds.Dataset):
        return rows
    return rows.replace_schema(pa.schema([pa.field("_", pa.null()), *rows.schema]))


def _first_line(error: Exception) -> str:
    """With the place that DuckDB shows in a drawing, as words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    found = next((at for at, line in enumerate(lines) if line.startswith("LINE ")), None)
    if found is None or found + 1 >= len(lines):
        return lines[0] if lines else "unknown error"
    return f"{' '.join(lines[:found])} ({lines[found]})"


def questions(warehouse: Warehouse) -> Questions:
    return Questions(warehouse.dataset)


def plain_rows(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Rows as JSON can hold them."""
    columns = [[plain(value) for value in column.to_pylist(maps_as_pydicts="strict")] for column in batch.columns]
    return map(list, zip(*columns, strict=True))


def plain(value: Any) -> Any:
    """A value as JSON can hold it: a time is a text, with all its digits."""
    match value:
        case datetime():
            moment = value if value.tzinfo is None else value.astimezone(UTC)
            return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
    return value
