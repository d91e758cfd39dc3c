"""``mewstream replay``: play a recorded stream into a live space."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mewstream.cli.identity import Identity, participant_options
from mewstream.cli.output import printable, quietly
from mewstream.cli.runner import run
from mewstream.cli.status_line import progress
from mewstream.cli.values import moment
from mewstream.extras import require_journal
from mewstream.protocol.errors import StreamNotFound

if TYPE_CHECKING:
    from mewstream.cli.playback import Played, Player
    from mewstream.cli.recording import Range, RecordedFrame, RecordedStream, Recording
    from mewstream.client.space import Space
    from mewstream.client.stream import Stream

#: Seconds after an interruption in which the frame that is being sent may still be confirmed.
_GRACE_SECONDS = 5.0


@click.command()
@participant_options
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The data directory of the gateway that recorded it, running or not.",
)
@click.option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Instead of --data: a file of `mewstream journal export --format jsonl`.",
)
@click.option(
    "--source-space", metavar="SPACE", help="The space in which it was recorded, if several have such a stream."
)
@click.option("--stream", metavar="STREAM", help="The recorded stream, by id or alias; without it, they are listed.")
@click.option("--into", metavar="STREAM", help="An open stream to write to, by id or alias.  [default: a new one]")
@click.option("--description", help="Of the new stream.  [default: that of the recorded one]")
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="2 is twice as fast as it was, 0.5 half as fast, 0 as fast as possible.",
)
@click.option("--from-seq", type=click.IntRange(1), help="From this seq of the recorded space on.")
@click.option("--to-seq", type=click.IntRange(1), help="Up to this seq, included.")
@click.option(
    "--from-time", metavar="TIME", callback=moment, help="From this time on: RFC 3339, a day (UTC), or 15m (ago)."
)
@click.option("--until", metavar="TIME", callback=moment, help="Before this time.")
@quietly
def replay(
    identity: Identity,
    data: Path | None,
    export: Path | None,
    source_space: str | None,
    stream: str | None,
    into: str | None,
    description: str | None,
    speed: float,
    from_seq: int | None,
    to_seq: int | None,
    from_time: int | None,
    until: int | None,
) -> None:
    """Play a recorded stream into a live space, with its original timing.

    The frames come from the journal of a gateway, or from an export of it. They go into an open stream
    to which you may write, or into a new one that is described like the recorded one and closed at the
    end. Text stays text and binary stays binary; stream/data gets new numbers. Ctrl-C ends it properly.

    \b
    Examples:
      mewstream replay --as ann --data ./data
      mewstream replay --as ann --data ./data --stream stream-1
      mewstream replay --as ann --data ./data --stream movement --speed 10 --from-time 15m
      mewstream replay --as ann --export demo.jsonl --stream stream-1 --into stream-7 --speed 0
    """
    if (data is None) == (export is None):
        raise click.UsageError("say where the record is: --data DIRECTORY or --export FILE")
    from mewstream.cli.recording import ExportRecording, Range, find_stream

    recording: Recording = _journal(data) if data is not None else ExportRecording(export or Path())
    chosen = Range(from_seq=from_seq, to_seq=to_seq, since=from_time, until=until)
    recorded = find_stream(recording, chosen, space=source_space, stream=stream)
    interruption = run(_replay(identity, recording, recorded, chosen, into=into, description=description, speed=speed))
    if interruption is not None:
        sys.exit(128 + interruption)


def _journal(data: Path) -> Recording:
    require_journal()
    from mewstream.cli.journal_recording import JournalRecording

    return JournalRecording(data)


async def _replay(
    identity: Identity,
    recording: Recording,
    recorded: RecordedStream,
    chosen: Range,
    *,
    into: str | None,
    description: str | None,
    speed: float,
) -> int | None:
    """Play the stream, and return the signal that ended it, if any."""
    from mewstream.cli.playback import Player, open_again
    from mewstream.client.errors import FramesUnconfirmed

    async with identity.connect() as space:
        if into is None:
            stream = await open_again(space, recorded, description=description)
        else:
            stream = _existing(space, into)
        player = Player(space, stream, speed=speed)
        async with stream if into is None else contextlib.nullcontext():
            try:
                with progress("replaying", recorded.chosen_bytes) as advance:
                    interruption = await _until_interrupted(player, recording.frames(recorded, chosen), advance)
            finally:
                click.echo(_report(player.played, recorded, stream))
            if interruption is not None and not space.is_connected:
                await space.close()  # do not wait for a gateway that is gone
    if player.played.unconfirmed:
        raise FramesUnconfirmed(player.played.unconfirmed)
    return interruption


def _report(played: Played, recorded: RecordedStream, stream: Stream) -> str:
    source = printable(f"{recorded.space}/{recorded.id}")
    return (
        f"replayed {played.sent} of {recorded.chosen} frames of {source} into {printable(stream.id)}, "
        f"{played.confirmed} are recorded"
    )


def _existing(space: Space, name: str) -> Stream:
    if name not in space.streams:
        raise StreamNotFound(f"there is no open stream {name!r}: open are {', '.join(space.streams) or 'none'}")
    return space.streams[name]


async def _until_interrupted(
    player: Player, frames: Iterator[RecordedFrame], advance: Callable[[int], None]
) -> int | None:
    """Play until the end or until a signal, which lets the frame at hand finish and is returned."""
    interruption: int | None = None
    loop = asyncio.get_running_loop()
    playing = asyncio.create_task(player.play(frames, advance))

    def interrupt(number: int) -> None:
        nonlocal interruption
        interruption = number
        player.stop()
        # If nothing can be sent, it would never end by itself.
        loop.call_later(_GRACE_SECONDS, playing.cancel)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt, number)
    try:
        await asyncio.wait({playing})
        if not playing.cancelled():
            playing.result()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        playing.cancel()
    return interruption
