"""``mewstream publish``: send a file or stdin into a stream."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from mewstream.cli.daemon_thread import DaemonThread
from mewstream.cli.frame_splitter import MAX_FRAME_BYTES, Cut, FrameSplitter, frames_of
from mewstream.cli.identity import Identity, participant_options
from mewstream.cli.name_suggestions import suggest_participants, suggest_streams
from mewstream.cli.output import complain, print_json, printable, quietly
from mewstream.cli.runner import connection_reports, run
from mewstream.cli.status_line import progress
from mewstream.cli.values import size_in_bytes
from mewstream.protocol.errors import MewError, StreamNotFound
from mewstream.protocol.policy import IfExists

if TYPE_CHECKING:
    from mewstream.client import Space, Stream

DEFAULT_CHUNK_BYTES = 16384


@dataclass(slots=True, kw_only=True)
class Job:
    """What to publish, where, and how much has been sent."""

    stream: str | None
    request: dict[str, Any]
    """The options of a new stream."""
    grants: tuple[str, ...]
    keep_open: bool
    cut: Cut
    rate: float | None
    id: str = ""
    """The id of the stream, once it is known."""
    sent: int = 0
    bytes: int = 0
    unconfirmed: int = 0
    """Frames that were in transit when the connection was lost. They may or may not be recorded."""


@click.command()
@click.argument("file", default="-", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--stream",
    metavar="ID",
    shell_complete=suggest_streams,
    help="Write to this stream, by id or alias.  [default: open a new one]",
)
@click.option("--description", help="Of the new stream.")
@click.option("--content-type", metavar="TYPE", help="Of the new stream, such as application/json.")
@click.option("--alias", metavar="NAME", help="Another name for the new stream.")
@click.option(
    "--if-exists",
    type=click.Choice(get_args(IfExists)),
    help="If a stream has the --alias: open one without it, write to it (if it is yours), close it, or fail.  "
    "[default: new]",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="PARTICIPANT",
    shell_complete=suggest_participants,
    help="Who reads the new stream; may be repeated.  [default: everyone]",
)
@click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="PARTICIPANT",
    shell_complete=suggest_participants,
    help="Let this connected participant write to the stream too; may be repeated.",
)
@click.option("--keep-open", is_flag=True, help="Do not close the new stream at the end.")
@click.option("--lines", "cut", flag_value="lines", help="A frame for each line of text (the default).")
@click.option(
    "--jsonl", "cut", flag_value="jsonl", help="A frame for each line, which must be JSON; empty lines are skipped."
)
@click.option("--raw", "cut", flag_value="raw", help="Binary frames of --chunk-bytes each.")
@click.option(
    "--chunk-bytes",
    metavar="SIZE",
    callback=size_in_bytes(least=1, most=MAX_FRAME_BYTES),
    help=f"The size of raw frames, such as 64KiB; the last may be shorter.  [default: {DEFAULT_CHUNK_BYTES}]",
)
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), metavar="FRAMES", help="The maximum number of frames per second."
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@participant_options
@quietly
def publish(
    identity: Identity,
    file: str,
    stream: str | None,
    description: str | None,
    content_type: str | None,
    alias: str | None,
    if_exists: IfExists | None,
    targets: tuple[str, ...],
    grants: tuple[str, ...],
    keep_open: bool,
    cut: Cut | None,
    chunk_bytes: int | None,
    rate: float | None,
    as_json: bool,
) -> None:
    """Send FILE or stdin into a stream, and print how many frames the gateway has recorded.

    It connects by WebSocket, which replaces any other connection of the same participant. A new stream is
    closed at the end. Ctrl-C stops reading; the frames sent so far are recorded and counted, and the exit
    code is 130. If the gateway refuses a frame, the exit code is 1.

    \b
    Examples:
      mewstream publish --as server --description 'the log' /var/log/app.log
      tail -f positions.jsonl | mewstream publish --as server --stream movement --jsonl
      mewstream publish --as server --raw --chunk-bytes 1024 --rate 50 music.opus
      mewstream publish --as server --keep-open --grant player1 --alias movement /dev/null
      mewstream publish --as server --alias movement --if-exists reuse positions.txt
    """
    request: dict[str, Any] = {"description": description, "content_type": content_type, "target": targets or None}
    request |= {"name": alias, "if_exists": if_exists}
    request = {key: value for key, value in request.items() if value is not None}
    if stream is not None and (request or keep_open):
        raise click.UsageError(
            "--description, --content-type, --alias, --if-exists, --target and --keep-open are for a new stream, "
            "not with --stream"
        )
    if if_exists is not None and alias is None:
        raise click.UsageError("--if-exists is for --alias")
    if chunk_bytes is not None and cut != "raw":
        raise click.UsageError("--chunk-bytes is for --raw")
    if cut == "raw":
        request["fields"] = {"encoding": "binary"}
    job = Job(stream=stream, request=request, grants=grants, keep_open=keep_open, cut=cut or "lines", rate=rate)
    with _opened(file) as (descriptor, total):
        cutter = FrameSplitter(job.cut, chunk_bytes or DEFAULT_CHUNK_BYTES, "stdin" if file == "-" else file)
        try:
            run(_publish(identity, job, descriptor, cutter, total))
        except MewError:
            if job.sent:
                complain(
                    f"{job.sent} frames were sent to {printable(job.id)} before this; perhaps not all are recorded"
                )
            raise
        except (KeyboardInterrupt, SystemExit):
            _report(job, as_json)
            raise
    _report(job, as_json)
    if job.unconfirmed:
        from mewstream.client.errors import FramesUnconfirmed

        raise FramesUnconfirmed(job.unconfirmed)


def _report(job: Job, as_json: bool) -> None:
    recorded = job.sent - job.unconfirmed
    if as_json:
        counts = {"sent": job.sent, "recorded": recorded, "unconfirmed": job.unconfirmed, "bytes": job.bytes}
        print_json({"stream": job.id, **counts})
    elif job.id:
        click.echo(f"{printable(job.id)}: {recorded} frames recorded, {job.bytes} bytes sent")


@contextlib.contextmanager
def _opened(file: str) -> Iterator[tuple[int, int | None]]:
    """The file descriptor of the input, and its size if it is a regular file."""
    descriptor = 0 if file == "-" else os.open(file, os.O_RDONLY)
    try:
        found = os.fstat(descriptor)
        yield descriptor, found.st_size if stat.S_ISREG(found.st_mode) else None
    finally:
        if file != "-":
            os.close(descriptor)


async def _publish(identity: Identity, job: Job, descriptor: int, cutter: FrameSplitter, total: int | None) -> None:
    async with identity.connect() as space, connection_reports(space):
        stream = await _stream(space, job)
        job.id = stream.id
        if job.stream is None:
            complain(f"publishing to {printable(stream.id)}")
            if stream.alias_taken_by is not None:
                complain(f"it has no alias: that is the name of {printable(stream.alias_taken_by)}")
        try:
            for name in job.grants:
                await stream.grant(name)
            try:
                with progress(stream.id, total) as advance:
                    await _send_all(stream, job, frames_of(descriptor, cutter, DaemonThread()), advance)
            finally:
                await _confirm(space, stream, job)
        finally:
            # Also after Ctrl-C and after a refusal, so that readers do not wait for more frames.
            if job.stream is None and not (job.keep_open or stream.reused) and stream.is_open and stream.is_mine:
                await stream.close()


async def _confirm(space: Space, stream: Stream, job: Job) -> None:
    """Wait until every frame is recorded or known to be unconfirmed. Raises a PeerError for a refused frame."""
    from mewstream.client.errors import FramesUnconfirmed

    while True:
        try:
            await stream.flush()
            break
        except FramesUnconfirmed as unsure:
            job.unconfirmed += unsure.count
    with contextlib.suppress(FramesUnconfirmed):  # already counted above
        await space.flush()


async def _stream(space: Space, job: Job) -> Stream:
    """Return the existing stream to write to, or a new one."""
    if job.stream is None:
        return await space.open_stream(**job.request)
    stream = space.streams.get(job.stream)
    if stream is None:
        known = ", ".join(space.streams) or "none"
        raise StreamNotFound(f"there is no stream {job.stream!r}; open are: {known}", stream_id=job.stream)
    if stream.status == "ready" and stream.is_mine:
        await stream.start()
    return stream


async def _send_all(stream: Stream, job: Job, frames: AsyncIterator[bytes], advance: Callable[[int], None]) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async for frame in frames:
        if job.rate is not None:
            # Measured from the start, so that a delay is made up for.
            await asyncio.sleep(began + job.sent / job.rate - loop.time())
        await stream.send(_data(frame, job.cut, stream))
        job.sent += 1
        job.bytes += len(frame)
        advance(len(frame))


def _data(frame: bytes, cut: Cut, stream: Stream) -> Any:
    if cut == "raw":
        return frame
    if cut == "jsonl" and stream.is_announced:
        return msgspec.json.decode(frame)  # the content of a numbered message
    return frame.decode()
