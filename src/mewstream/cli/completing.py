"""Completion of names by the shell. It runs at every press of the key: quick, and silent whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from mewstream.cli.connecting import Who

SECONDS = 2.0


def complete_me(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Those whose token is here."""
    from mewstream.cli.tokens import known_participants
    from mewstream.protocol.errors import MewError

    with contextlib.suppress(MewError, OSError):
        return [CompletionItem(name) for name in known_participants() if name.startswith(incomplete)]
    return []


def complete_stream(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The open streams, by id and by alias."""
    from mewstream.cli import asking

    found = []
    for stream in _asked(context, asking.streams):
        described = f"{stream.get('description') or ''} (of {stream.get('owner')})".strip()
        for name in (stream.get("stream_id"), stream.get("alias")):
            if isinstance(name, str) and name.startswith(incomplete):
                found.append(CompletionItem(name, help=described))
    return found


def complete_participant(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Everyone who may come to the space."""
    from mewstream.cli import asking

    ids = [each.get("id") for each in _asked(context, asking.participants)]
    return [CompletionItem(id) for id in ids if isinstance(id, str) and id.startswith(incomplete)]


def _asked(
    context: click.Context, question: Callable[[Who], Coroutine[Any, Any, list[dict[str, Any]]]]
) -> list[dict[str, Any]]:
    from mewstream.cli.connecting import DEFAULT_URL, Who
    from mewstream.protocol.errors import MewError

    given = context.params
    file = given.get("token_file")
    if file == "-":
        return []  # stdin belongs to the shell now
    who = Who(given.get("url") or DEFAULT_URL, given.get("space"), given.get("participant"), file)
    with contextlib.suppress(MewError, OSError):
        return asyncio.run(asyncio.wait_for(question(who), SECONDS))
    return []
