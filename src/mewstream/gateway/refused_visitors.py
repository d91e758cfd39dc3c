"""Log lines about those who were not let in."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mewstream.gateway.bounded_log import BoundedLog

#: How much of an origin is quoted. Those of browsers are shorter.
_ORIGIN_CHARACTERS = 100


class RefusedVisitors:
    """Says who was not let in, and how many more of them there were than lines."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._say = BoundedLog(logging.INFO, "were refused", now).say

    def page(self, origin: str, address: str) -> None:
        shown = "".join(char if char.isascii() and char.isprintable() else "?" for char in origin[:_ORIGIN_CHARACTERS])
        text = f"refused a page of {shown}{_from(address)}: see gateway.allowed_origins"
        self._say("origin_refused", text, origin=shown, address=address or None)

    def token(self, address: str, *, space: str | None, participant: str | None, connection: int | None = None) -> None:
        """``space`` and ``participant`` must be known names. Anything else may be a token in the wrong place."""
        who = f" of {participant}" if participant is not None else ""
        where = f" in {space}" if space is not None else ""
        text = f"refused a token{who}{where}{_from(address)}: it is unknown, malformed, or belongs to another"
        self._say(
            "token_refused",
            text,
            space=space,
            participant=participant,
            connection=connection,
            address=address or None,
        )

    def join(
        self, address: str, why: str, *, space: str | None, participant: str | None, connection: int | None
    ) -> None:
        """A join was refused for another reason than its token: ``why`` is the name of the reason to close."""
        who = participant if participant is not None else "somebody"
        where = f" to {space}" if space is not None else ""
        text = f"refused a join of {who}{where}{_from(address)}: {why}"
        self._say(
            "join_refused",
            text,
            space=space,
            participant=participant,
            connection=connection,
            address=address or None,
            reason=why,
        )


def _from(address: str) -> str:
    return f", from {address}" if address else ""
