"""What a grant says of absence: what becomes of the right when its holder loses the connection (``on_disconnect``), and
whether it may wait for somebody who is not here (``when_absent``). Decisions 4 and 6."""

from __future__ import annotations

from typing import Any

from mewstream.protocol.errors import ValidationFailed
from mewstream.protocol.identifiers import describe
from mewstream.protocol.state import SpaceState

MAX_SECONDS = 7 * 86_400


def on_disconnect(state: SpaceState, sender: str, payload: dict[str, Any]) -> str | float | None:
    """``revoke``, ``keep``, a number of seconds, or None if the grant does not say."""
    value = payload.get("on_disconnect")
    if value is None or value in ("revoke", "keep"):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_SECONDS:
        return value
    if not state.knows_extensions(sender):
        return None  # it is metadata of the client's own
    raise ValidationFailed(
        f"payload.on_disconnect must be revoke, keep or seconds from 0 to {MAX_SECONDS}, got {describe(value)}",
        field="on_disconnect",
    )


def when_absent(state: SpaceState, sender: str, payload: dict[str, Any]) -> bool:
    """Whether the grant may wait."""
    value = payload.get("when_absent", False)
    if isinstance(value, bool):
        return value
    if not state.knows_extensions(sender):
        return False
    raise ValidationFailed(f"payload.when_absent must be true or false, got {describe(value)}", field="when_absent")
