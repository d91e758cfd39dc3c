"""Lists and details of participants, streams and tools."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mewstream.cli.terminal.event_formatter import named, summary, terms
from mewstream.cli.terminal.lines import Line, as_json, listed, short
from mewstream.client.space import Space
from mewstream.client.stream import Stream

_LABEL_WIDTH = 12


def people_lines(space: Space) -> list[Line]:
    lines: list[Line] = [
        [("me", space.participant), ("dim", " (you) "), ("plain", summary(space.capabilities))],
    ]
    for each in space.participants.values():
        lines.append([("who", each.id), ("dim", " "), ("plain", summary(each.capabilities))])
    return lines


def stream_lines(space: Space, watched: Collection[str]) -> list[Line]:
    lines: list[Line] = []
    for stream in space.streams.values():
        line = [*named(stream.id, stream), ("plain", f" {stream.status}, owner {stream.owner}")]
        line.append(("plain", f", writers {listed(stream.authorized_writers)}"))
        if stream.id in watched:
            line.append(("good", ", watched"))
        if stream.description:
            line.append(("plain", f": {short(stream.description)}"))
        lines.append(line)
    return lines or [[("dim", "no stream is open: /open DESCRIPTION opens one")]]


def detail_lines(stream: Stream) -> list[Line]:
    conditions = stream.conditions
    writers = [each + terms(conditions.get(each)) for each in stream.authorized_writers]
    readers = stream.authorized_readers
    facts: dict[str, str | None] = {
        "stream": stream.id,
        "alias": stream.alias,
        "namespace": stream.namespace,
        "status": stream.status,
        "owner": stream.owner if stream.owner_connected else f"{stream.owner} (not connected)",
        "writers": listed(writers),
        "delegates": ", ".join(
            f"{each.get('participant_id')} from {each.get('by')}, depth {each.get('depth')}"
            for each in stream.delegations
        ),
        "readers": "everyone" if readers is None else listed(readers),
        "asking": ", ".join(f"{who} ({reason})" if reason else who for who, reason in stream.write_requests.items()),
        "created": stream.created,
        "formats": ", ".join(each.id for each in stream.formats) or None,
    }
    lines = [_fact(label, value) for label, value in facts.items() if value]
    for key, value in stream.metadata.items():
        if key not in ("metadata", *facts):
            lines.append(_fact(key, value if isinstance(value, str) else as_json(value)))
    return lines


def _fact(label: str, value: str) -> Line:
    return [("dim", f"{label:<{_LABEL_WIDTH}} "), ("plain", short(value))]


def tool_lines(who: str, tools: list[dict[str, Any]]) -> list[Line]:
    lines: list[Line] = []
    for tool in tools:
        schema = tool.get("inputSchema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        arguments = ", ".join(map(str, properties)) if isinstance(properties, dict) else ""
        line: Line = [("head", f"{tool.get('name', '?')}({arguments})")]
        if tool.get("description"):
            line.append(("plain", f"  {short(str(tool['description']).splitlines()[0])}"))
        lines.append(line)
    return lines or [[("dim", f"{who} serves no tools")]]
