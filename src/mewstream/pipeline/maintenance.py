"""Living with the tables: small files are put together, what is too old is dropped, and files that nobody needs go.

What changes a table happens before a batch, so that the newest version of ``records`` is that of a batch as soon as one
is begun. Old commits are forgotten after it, when no reader is sent to an earlier version than the newest.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from deltalake import WriterProperties
from deltalake.exceptions import CommitFailedError

from mewstream.pipeline.committing import Tables
from mewstream.pipeline.delta import DeltaLog, told
from mewstream.pipeline.files import DataFile
from mewstream.pipeline.tables import Layout

log = logging.getLogger("mewstream.pipeline")

#: Files smaller than this are put together, to files of about this size. A row is rewritten a few times at most, for
#: so many files of one size have to be there before they become one of the next.
SIZES = (1 << 20, 16 << 20, 128 << 20)
FAN_IN = 8
#: How often to look, in batches.
COMPACT_EVERY = 8
#: Every commit and every reader lists the log, so that it must not become long. Who follows a table as a stream may be
#: so far behind.
KEPT_COMMITS = 1000
KEPT_COMMITS_FOR = timedelta(days=1)
_VACUUM = "mewstream-vacuum"
_PROPERTIES = WriterProperties(compression="SNAPPY")

#: How long rows are kept, for tables by their names; ``*`` is for those that are not named.
Retention = Mapping[str, timedelta]


def before_batch(tables: Tables, *, now: datetime | None = None) -> None:
    """What is due: compaction every so many batches, vacuum once a day."""
    day = (now or datetime.now(UTC)).toordinal()
    logs = [*tables.logs.values(), tables.commits]
    if tables.batch % COMPACT_EVERY == 0:
        for each in logs:
            compact(each)
    if tables.commits.committed(_VACUUM) < day:
        for each in logs:
            vacuum(each)
        tables.commits.commit([], transactions={_VACUUM: day})


def after_batch(tables: Tables) -> None:
    """Forget old commits."""
    if tables.batch % COMPACT_EVERY == 0:
        for each in (*tables.logs.values(), tables.commits):
            with told(each.store):
                each.forget(KEPT_COMMITS, KEPT_COMMITS_FOR)


# -- compaction -----------------------------------------------------------------------------------


def compact(table: DeltaLog) -> None:
    """Put small files together where there are enough of them."""
    for value, size in list(_due(table)):
        try:
            table.delta.optimize.compact(
                partition_filters=[(column.name, "=", value)] if (column := table.table.partition) and value else None,
                target_size=size,
                max_concurrent_tasks=1,
                writer_properties=_PROPERTIES,
            )
        except CommitFailedError:
            # Somebody else has put them together, with an engine of their own.
            log.info("%s was changed while its files were put together", table.table.name)
            with told(table.store):
                table.delta.update_incremental()


def _due(table: DeltaLog) -> Iterator[tuple[str | None, int]]:
    """Which partitions, and to files of which size. Open rows are replaced soon enough."""
    parts: dict[str | None, list[DataFile]] = defaultdict(list)
    for file in table.files():
        if not file.is_open:
            parts[file.partition].append(file)
    newest = max(parts, default=None, key=lambda value: value or "")
    for value, files in parts.items():
        for size in SIZES:
            small = [file.size for file in files if file.size < size]
            least = math.ceil(sum(small) / size)
            # To a day that is over nothing more is added, and it may be put together for good.
            if len(small) >= (FAN_IN if value == newest or size < SIZES[-1] else 2) and len(small) >= 2 * least:
                yield value, size
                break


# -- what goes ------------------------------------------------------------------------------------


def vacuum(table: DeltaLog) -> None:
    """Remove files that no version of the last days needs: replaced ones, and what killed runs have left."""
    with told(table.store):
        table.delta.vacuum(dry_run=False, full=True)
        table.delta.update_incremental()


def retain(tables: Tables, retention: Retention, *, now: datetime | None = None) -> int:
    """Drop final rows that are too old. Returns how many; where there were any, that is a commit of its own."""
    dropped = 0
    for name, table in tables.logs.items():
        kept = retention.get(name, retention.get("*"))
        if kept is not None and table.table.time is not None:
            dropped += _drop_before(table, (now or datetime.now(UTC)) - kept)
    if dropped:
        tables.record("retain", tables.newest.position)
        tables.reload()
    return dropped


def _drop_before(table: DeltaLog, moment: datetime) -> int:
    if table.table.layout is Layout.DATES:
        # Whole days, without a look into the files.
        gone = [file for file in table.files() if str(file.partition) < moment.date().isoformat()]
        if gone:
            table.commit([], gone)
        return sum(file.rows for file in gone)
    condition = f"{table.table.time} < arrow_cast('{moment.isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    if table.table.has_open_rows:
        condition += " AND is_open = false"
    with told(table.store):
        before = table.version
        deleted = table.delta.delete(condition, writer_properties=_PROPERTIES)["num_deleted_rows"]
        if table.version != before:
            table.sync()
    return int(deleted)
