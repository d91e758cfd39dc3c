"""Formatting frames and events as lines: JSON for programs, text for people."""

from __future__ import annotations

import base64
import dataclasses
import re
from typing import Any

import click
import msgspec

from mewstream.cli.output import printable
from mewstream.client import events
from mewstream.client.frame import Frame

#: Fields that are written in another form.
_REPLACED_FIELDS = frozenset({"message", "handle", "error"})
_FOR_PROGRAMS = frozenset({"event", "id", "seq", "ts", "capabilities", "details"})
_COLOURS = {
    events.Joined: "green",
    events.Left: "green",
    events.Received: "bright_black",
    events.Refused: "red",
    events.Gap: "red",
    events.Disconnected: "red",
}


def frame_json(frame: Frame) -> bytes:
    """A frame as one JSON object, with ``data`` for text and ``data_base64`` for bytes."""
    line: dict[str, Any] = {"stream": frame.stream, "seq": frame.seq, "writer": frame.writer}
    try:
        if not frame.is_text:
            raise ValueError
        line["data"] = frame.data.decode()
    except ValueError:
        line["data_base64"] = base64.b64encode(frame.data).decode()
    if frame.sequence is not None:
        line["sequence"] = frame.sequence
    if frame.gap:
        line["gap"] = frame.gap
    return msgspec.json.encode(line)


def frame_text(frame: Frame, *, colours: bool = False) -> str:
    data = frame.data.decode(errors="backslashreplace") if frame.is_text else f"({len(frame)} bytes)"
    stream, writer = printable(frame.stream), printable(frame.writer or "somebody")
    if colours:
        stream, writer = click.style(stream, fg="cyan"), click.style(writer, bold=True)
    return f"{stream} {writer}: {printable(data)}"


def event_name(event: events.Event) -> str:
    """The name of an event as in the journal: ``write-granted`` for ``WriteGranted``."""
    return re.sub(r"(?<!^)([A-Z])", r"-\1", type(event).__name__).lower()


def event_object(event: events.Event) -> dict[str, Any]:
    found: dict[str, Any] = {"event": event_name(event)}
    for field in dataclasses.fields(event):
        if field.name not in _REPLACED_FIELDS:
            found[field.name] = getattr(event, field.name)
    match event:
        case events.StreamOpened(handle=stream):
            found |= {"alias": stream.alias, "description": stream.description, "writers": stream.authorized_writers}
        case events.Refused(error=error):
            found |= {"error": error.code, "text": error.message, "details": error.details}
        case events.Received(message=message) if message is not None:
            found |= {"to": message.to, "payload": message.payload}
    if event.message is not None:
        found |= {"id": event.message.id, "seq": event.message.seq, "ts": event.message.ts}
    return found


def event_json(event: events.Event) -> bytes:
    return msgspec.json.encode(event_object(event), enc_hook=str)


def event_text(event: events.Event, *, colours: bool = False) -> str:
    """An event as one line of text for people."""
    match event:
        case events.Chat(sender=sender, text=text):
            said = printable(sender)
            return f"{click.style(said, bold=True) if colours else said} says: {printable(text)}"
        case events.Joined(participant=name) | events.Left(participant=name):
            line = f"* {printable(name)} {event_name(event)}"
        case _:
            found = {key: value for key, value in event_object(event).items() if key not in _FOR_PROGRAMS}
            said = ", ".join(
                f"{key} {_short(value)}" for key, value in found.items() if value not in (None, [], {}, "")
            )
            line = f"* {event_name(event)}: {said}" if said else f"* {event_name(event)}"
    return click.style(line, fg=_COLOURS.get(type(event), "yellow")) if colours else line


def _short(value: Any) -> str:
    return printable(value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode())
