"""SQL over the tables of a warehouse, with DuckDB: no JVM, no Spark, and only what a query needs is read."""

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
"""Returns a table by its name, as any Arrow object that DuckDB can scan."""
_WORD = re.compile(r"\w+")
_ROWS_AT_ONCE = 10_000


class WarehouseDatabase:
    """A DuckDB connection in which the tables of a warehouse are views with their plain names."""

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
        # Spark's name for it, so that the same SQL runs in both.
        self.connection.execute("CREATE MACRO regexp_like(text, pattern) AS regexp_matches(text, pattern)")

    def __enter__(self) -> WarehouseDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self._scratch.cleanup()

    # -- tables -----------------------------------------------------------------------------------

    def table_names(self) -> list[str]:
        """Return the names of all tables, and of the views of announced formats."""
        return [*(table.name for table in SHOWN), *(view.name for view in self.typed_views())]

    def register(self, *names: str) -> None:
        """Create the views of these tables. A table is opened only when a query first needs it."""
        for name in names:
            if name not in self._registered:
                rows = self._table(name)
                columns = ", ".join(map(DUCKDB.quoted, rows.schema.names))
                self.connection.register(f"_{name}", _counted_quickly(rows))
                self.connection.execute(f"CREATE VIEW {DUCKDB.quoted(name)} AS SELECT {columns} FROM _{name}")
                self._registered.add(name)

    def register_named_in(self, sql: str) -> None:
        """Register every table that a query names. A word that only looks like a table does no harm."""
        words = {word.lower() for word in _WORD.findall(sql)}
        self.register(*(table.name for table in SHOWN if table.name in words))
        if any(word.startswith("content_") for word in words):
            for view in self.typed_views():
                if view.name.lower() in words and view.name not in self._registered:
                    self.register("content")
                    self.connection.execute(f'CREATE VIEW "{view.name}" AS {view.select(DUCKDB)}')
                    self._registered.add(view.name)

    def typed_views(self) -> list[TypedView]:
        if self._views is None:
            self.register("formats")
            self._views = typed_views(self.rows(FORMATS_QUERY))
        return self._views

    # -- queries ----------------------------------------------------------------------------------

    def rows(self, sql: str, **parameters: object) -> Rows:
        """Return all rows of an internal query with a small result. ``parameters`` holds its ``$name`` parameters."""
        self.register_named_in(sql)
        result = self.connection.execute(sql, parameters or None)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def batches(self, sql: str, **parameters: object) -> pa.RecordBatchReader:
        """The same, in batches; finish reading before the next query."""
        self.register_named_in(sql)
        return self.connection.sql(sql, params=parameters).to_arrow_reader(_ROWS_AT_ONCE)

    def query(self, sql: str) -> pa.RecordBatchReader:
        """Run a user's query. Raises :class:`PipelineError` with one line."""
        with self.one_line_errors():
            statements = self.connection.extract_statements(sql)
            if len(statements) != 1:
                raise PipelineError(f"expected one statement, found {len(statements)}")
            if statements[0].expected_result_type != [duckdb.ExpectedResultType.QUERY_RESULT]:
                raise PipelineError("this gives no rows: expected a SELECT")
            self.register_named_in(sql)
            return self.connection.sql(sql).to_arrow_reader(_ROWS_AT_ONCE)

    @contextlib.contextmanager
    def one_line_errors(self) -> Iterator[None]:
        """Turn errors of DuckDB into a :class:`PipelineError` of one line."""
        try:
            yield
        except duckdb.CatalogException as error:
            names = ", ".join(self.table_names())
            raise PipelineError(f"{_first_line(error)}. Tables are {names}") from None
        except duckdb.Error as error:
            raise PipelineError(_first_line(error)) from None


def _counted_quickly(rows: Any) -> Any:
    """Put a column first that no file has: DuckDB counts rows by reading the first column, and so reads nothing."""
    if not isinstance(rows, ds.Dataset):
        return rows
    return rows.replace_schema(pa.schema([pa.field("_", pa.null()), *rows.schema]))


def _first_line(error: Exception) -> str:
    """Return the message as one line, with the line of SQL to which DuckDB points in a drawing below it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    found = next((at for at, line in enumerate(lines) if line.startswith("LINE ")), None)
    if found is None or found + 1 >= len(lines):
        return lines[0] if lines else "unknown error"
    return f"{' '.join(lines[:found])} ({lines[found]})"


def open_database(warehouse: Warehouse) -> WarehouseDatabase:
    return WarehouseDatabase(warehouse.dataset)


def plain_rows(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Return rows of values that JSON can hold."""
    columns = [[plain(value) for value in column.to_pylist(maps_as_pydicts="strict")] for column in batch.columns]
    return map(list, zip(*columns, strict=True))


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: a time becomes a text, with all its digits."""
    match value:
        case datetime():
            moment = value if value.tzinfo is None else value.astimezone(UTC)
            return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
    return value
