"""Names that the shell suggests when Tab is pressed.

A suggestion must be fast and must never print an error, so every function gives up quietly.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from mewstream.cli.identity import Identity

_TIMEOUT = 2.0


def suggest_own_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The participants whose tokens are found here."""
    from mewstream.protocol.errors import MewError
    from mewstream.settings.tokens import known_participants

    with contextlib.suppress(MewError, OSError):
        return [CompletionItem(name) for name in known_participants(os.environ) if name.startswith(incomplete)]
    return []


def suggest_streams(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The open streams, by id and by alias."""
    from mewstream.cli import http_api

    found = []
    for stream in _fetch(context, http_api.streams):
        described = f"{stream.get('description') or ''} (of {stream.get('owner')})".strip()
        for name in (stream.get("stream_id"), stream.get("alias")):
            if isinstance(name, str) and name.startswith(incomplete):
                found.append(CompletionItem(name, help=described))
    return found


def suggest_participants(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Everyone who may join the space."""
    from mewstream.cli import http_api

    ids = [each.get("id") for each in _fetch(context, http_api.participants)]
    return [CompletionItem(id) for id in ids if isinstance(id, str) and id.startswith(incomplete)]


def _fetch(
    context: click.Context, request: Callable[[Identity], Coroutine[Any, Any, list[dict[str, Any]]]]
) -> list[dict[str, Any]]:
    """Return the answer of the gateway that the typed options name; nothing if there is none in time."""
    from mewstream.cli.identity import Identity
    from mewstream.protocol.errors import MewError

    given = context.params
    file = given.get("token_file")
    if file == "-":
        return []  # during completion, stdin belongs to the shell
    named = {name: given.get(name) for name in ("url", "space", "participant", "profile")}
    identity = Identity(**named, token_file=file)
    with contextlib.suppress(MewError, OSError):
        return asyncio.run(asyncio.wait_for(request(identity), _TIMEOUT))
    return []
