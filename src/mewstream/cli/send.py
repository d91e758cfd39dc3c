"""``mewstream send``: send a message to a space without joining it."""

from __future__ import annotations

import sys
from typing import Any

import click

from mewstream.cli.identity import Identity, participant_options
from mewstream.cli.name_suggestions import suggest_participants
from mewstream.cli.output import print_json, printable, quietly
from mewstream.cli.runner import run
from mewstream.cli.streams import json_option
from mewstream.cli.values import json_object
from mewstream.protocol import kinds


@click.command()
@click.argument("text", nargs=-1)
@click.option("--kind", default=kinds.CHAT, show_default=True, help="The kind of the message.")
@click.option(
    "--payload", metavar="JSON", callback=json_object, help='Its payload, such as \'{"text": "hi"}\', instead of TEXT.'
)
@click.option(
    "--to",
    multiple=True,
    metavar="PARTICIPANT",
    shell_complete=suggest_participants,
    help="The addressee; may be repeated.",
)
@click.option(
    "--correlation-id",
    "correlated",
    multiple=True,
    metavar="ID",
    help="The id of the message that this one refers to, such as a proposal; may be repeated.",
)
@json_option
@participant_options
@quietly
def send(
    identity: Identity,
    text: tuple[str, ...],
    kind: str,
    payload: dict[str, Any] | None,
    to: tuple[str, ...],
    correlated: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send a message: TEXT as chat, or any kind with any payload.

    With neither TEXT nor --payload, the text is read from stdin. The message is sent by HTTP, so a program
    that is connected under the same name stays connected. Nothing is printed, unless a stream was opened.

    \b
    Examples:
      mewstream send --as alice 'hello everyone'
      fortune | mewstream send --as alice --to bob
      mewstream send --as alice --kind mcp/request --to server --payload '{"method": "tools/list"}'
      mewstream send --as alice --kind mcp/reject --correlation-id 3f2a-1 --payload '{"reason": "unsafe"}'
      mewstream send --as alice --kind stream/request --payload '{"direction": "upload"}' --json
    """
    from mewstream.cli import http_api

    said = _payload(text, kind, payload)
    answer = run(http_api.post(identity, kind, said, to=list(to), correlation_id=list(correlated)))
    if as_json:
        print_json(answer)
    elif "stream_id" in answer:
        click.echo(printable(str(answer["stream_id"])))


def _payload(text: tuple[str, ...], kind: str, payload: dict[str, Any] | None) -> dict[str, Any]:
    if payload is not None:
        if text:
            raise click.UsageError("give TEXT or --payload, not both")
        return payload
    if kind != kinds.CHAT and not text:
        raise click.UsageError(f"{kind} needs --payload JSON; an empty one is '{{}}'")
    if text:
        return {"text": " ".join(text)}
    if sys.stdin.isatty():
        raise click.UsageError("give the TEXT to send, or pipe it in")
    try:
        said = sys.stdin.buffer.read().decode().rstrip("\n")
    except UnicodeDecodeError:
        raise click.UsageError("stdin is not UTF-8: a chat is text") from None
    if not said:
        raise click.UsageError("there is nothing to send: stdin is empty")
    return {"text": said}
