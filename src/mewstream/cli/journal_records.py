"""``mewstream journal cat`` and ``export``: the records themselves."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click
import msgspec

from mewstream.cli.journal_options import data_option, record_names
from mewstream.cli.output import complain, printable, quietly
from mewstream.cli.values import moment
from mewstream.extras import require_journal
from mewstream.io import atomic_file
from mewstream.journal.errors import CorruptJournal, JournalError

if TYPE_CHECKING:
    from mewstream.journal.export import Chosen, Scan

F = TypeVar("F", bound=Callable[..., Any])

POLL_SECONDS = 0.1
_DATA_SHOWN = 120
#: Fields of the detail that have their own column.
_COLUMNS = frozenset({"record", "seq", "ts", "cause_seq", "stream_id", "digest"})
_STYLES: dict[str, dict[str, Any]] = {
    "refused": {"fg": "red"},
    "frames-dropped": {"fg": "yellow"},
    "frame": {"dim": True},
    "erased": {"fg": "red", "dim": True},
    "envelope": {},
}

_FILTERS = [
    click.option("--space", "spaces", multiple=True, help="Only this space; its records come by seq."),
    click.option("--stream", "streams", multiple=True, metavar="ID", help="Only this stream, such as stream-1."),
    click.option("--kind", "kinds", multiple=True, help="Only this kind; 'stream/*' is all that begin so."),
    click.option("--sender", "senders", multiple=True, metavar="ID", help="Only what this participant caused."),
    click.option(
        "--record",
        "records",
        multiple=True,
        metavar="RECORD",
        type=click.Choice(record_names()),
        help="Only such records: frame, joined, write-granted, ...",
    ),
    click.option("--from-seq", type=click.IntRange(1), help="From this seq on."),
    click.option("--to-seq", type=click.IntRange(1), help="Up to this seq, included."),
    click.option(
        "--since", metavar="TIME", callback=moment, help="From this time on: RFC 3339, a day (UTC), 15m (ago), or now."
    ),
    click.option("--until", metavar="TIME", callback=moment, help="Before this time."),
]


readers_option = click.option(
    "--readers", "with_readers", is_flag=True, help="In JSON: name the readers of each frame that was not for everyone."
)


def filter_options(command: F) -> F:
    """Add the filters of ``cat`` and ``export``. Those that name something may be repeated."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.command()
@data_option
@filter_options
@click.option("--limit", type=click.IntRange(1), help="Stop after this number of records.")
@click.option("--follow", "-f", is_flag=True, help="Continue with new records, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, with every column.")
@readers_option
@quietly
def cat(data: Path, limit: int | None, follow: bool, as_json: bool, with_readers: bool, **filters: Any) -> None:
    """Print records, oldest first.

    The records of one --space are in the order of their seq; those of several are printed partition by
    partition. A gateway may be running: its committed records are read.

    In JSON, nulls are left out; data is text if it is UTF-8, otherwise data_base64. A frame for a set of
    readers has readers_seq, the record that made that set; with --readers, it has their names too.

    \b
    Examples:
      mewstream journal cat --data ./data --space demo --since 15m
      mewstream journal cat --data ./data --space demo --record refused
      mewstream journal cat --data ./data --stream stream-1 --kind 'stream/*' --json | head
      mewstream journal cat --data ./data --space demo --since now --follow
    """
    if with_readers and not as_json:
        raise click.UsageError("--readers needs --json")
    require_journal()
    from mewstream.cli.journal_reading import open_reader, report_unknown_names
    from mewstream.journal.export import Scan, Selection, as_objects

    reader = open_reader(data)
    scan = Scan(reader, Selection(**filters))
    sets = reader.sets if with_readers else None
    show = _json_writer() if as_json else _line_writer()
    left = limit
    is_empty = True
    try:
        for chosen in _follow(scan, data / "journal") if follow else scan.read():
            for found in as_objects(chosen, sets):
                is_empty = False
                show(found)
                if follow:
                    sys.stdout.flush()
                if left is not None:
                    left -= 1
                    if left == 0:
                        return
        if is_empty:
            report_unknown_names(reader, **filters)
    except CorruptJournal as flaw:
        sys.stdout.flush()
        complain(flaw)
        sys.exit(1)


def _follow(scan: Scan, root: Path) -> Iterator[Chosen]:
    """Yield the existing records, and then new ones. Indexes are read again only when a file has changed."""
    before: object = None
    while not scan.is_over:
        now = _sizes(root, scan)
        if now == before:
            time.sleep(POLL_SECONDS)
            continue
        before = now
        yield from scan.read()


def _sizes(root: Path, scan: Scan) -> list[tuple[str, int]]:
    sizes = []
    for number in scan.positions:
        with os.scandir(root / f"p{number}") as found:
            for file in found:
                if file.name.endswith(".index"):
                    try:
                        sizes.append((file.path, file.stat().st_size))
                    except FileNotFoundError:
                        continue  # it was sealed or pruned meanwhile
    return sorted(sizes)


def _json_writer() -> Callable[[dict[str, Any]], None]:
    encode = msgspec.json.Encoder().encode
    write = sys.stdout.buffer.write

    def show(found: dict[str, Any]) -> None:
        write(encode(found) + b"\n")

    return show


def _line_writer() -> Callable[[dict[str, Any]], None]:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for locales that cannot write every character
    if not sys.stdout.isatty():
        return lambda found: print("  ".join(_words(found)))  # noqa: T201

    def show(found: dict[str, Any]) -> None:
        ts, space, seq, record, *rest = _words(found)
        styled = [
            click.style(ts, dim=True),
            click.style(space, fg="cyan"),
            click.style(seq, bold=True),
            click.style(record, **_STYLES.get(found["record"], {"fg": "green"})),
        ]
        click.echo("  ".join([*styled, *rest]))

    return show


def _words(found: dict[str, Any]) -> list[str]:
    """Return the columns of a record on one line: time, space, seq, record, kind, sender, stream and content."""
    who = found.get("sender", "")
    if "participant" in found:
        who += f" -> {found['participant']}"
    words = [found["ts"], found["space"], str(found["seq"]), found["record"]]
    words += [found.get("kind", ""), who, found.get("stream_id", "")]
    if found["outcome"] not in ("accepted", found["record"]):
        words.append(f"[{found['outcome']}]")
    if "readers_seq" in found:
        words.append(f"[readers of seq {found['readers_seq']}]")
    if "data" in found:
        words.append(_shortened(found["data"]))
    elif "data_base64" in found:
        words.append(f"({len(found['data_base64'])} bytes)")
    elif "detail" in found:
        words.append(_shortened(_remaining(found["detail"])))
    return [printable(word) for word in words if word]


def _remaining(detail: msgspec.Raw | str) -> str:
    """Return the detail of a record, without the fields that have their own column."""
    if isinstance(detail, str):
        return detail
    content = msgspec.json.decode(detail)
    if isinstance(content, dict):
        content = {key: value for key, value in content.items() if key not in _COLUMNS}
    return msgspec.json.encode(content).decode()


def _shortened(text: str) -> str:
    return text if len(text) <= _DATA_SHOWN else f"{text[:_DATA_SHOWN]}... ({len(text)} characters)"


@click.command()
@data_option
@filter_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "envelope-history", "parquet"]),
    default="jsonl",
    show_default=True,
    help="What to write.",
)
@click.option("--output", "-o", default="-", show_default=True, help="A file, put in place when complete; - is stdout.")
@readers_option
@quietly
def export(data: Path, form: str, output: str, with_readers: bool, **filters: Any) -> None:
    """Write records for other programs.

    \b
    jsonl             one JSON object per line, as `cat --json`
    envelope-history  the history of the reference gateway: one JSON object per line with timestamp,
                      event, id, envelope, participant, space_id, direction, transport, metadata.
                      There are only the events 'received' and 'rejected', because the journal does
                      not say who got what. It contains no frames. The envelope of a rejected
                      message is null, because it is not kept.
    parquet           every column, in row groups

    Only its owner can read the file. An older file is replaced only when the new one is complete.

    \b
    Examples:
      mewstream journal export --data ./data --format parquet -o records.parquet
      mewstream journal export --data ./data --space demo --since 2026-01-31 | gzip > demo.jsonl.gz
      mewstream journal export --data ./data --format envelope-history -o envelope-history.jsonl
    """
    if with_readers and form != "jsonl":
        raise click.UsageError("--readers is for JSON lines: leave --format out")
    require_journal()
    from mewstream.cli.journal_reading import open_reader, report_unknown_names
    from mewstream.journal.export import Scan, Selection, history_lines, json_lines, write_parquet

    reader = open_reader(data)
    scan = Scan(reader, Selection(**filters))
    if output == "-" and form == "parquet" and sys.stdout.isatty():
        raise click.UsageError("Parquet is nothing for a terminal: give --output, or a pipe")
    try:
        with _sink(output) as sink:
            counted = _Counted(scan.read())
            if form == "parquet":
                write_parquet(sink, counted)
            elif form == "jsonl":
                sink.writelines(json_lines(counted, reader.sets if with_readers else None))
            else:
                sink.writelines(history_lines(counted))
            if not counted.rows:
                report_unknown_names(reader, **filters)
    except CorruptJournal as flaw:
        complain(flaw if output == "-" else f"{flaw}; {output} is not written")
        sys.exit(1)


class _Counted:
    """Iterates over selected records and counts them."""

    def __init__(self, scanned: Iterable[Chosen]) -> None:
        self._scanned = scanned
        self.rows = 0

    def __iter__(self) -> Iterator[Chosen]:
        for chosen in self._scanned:
            self.rows += chosen.mask.true_count
            yield chosen


@contextmanager
def _sink(output: str) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears only when it is complete."""
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(output)
    if path.is_dir():
        raise JournalError(f"{path} is a directory: give a file")
    with atomic_file.replacing(path) as handle, os.fdopen(handle, "wb", closefd=False) as file:
        yield file
