"""Acknowledges the capabilities that others grant us, as MEW v0.4 (section 3.6.3) asks for."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

from mewstream.protocol import kinds
from mewstream.protocol.errors import MewError

if TYPE_CHECKING:
    from mewstream.client.messages import Message
    from mewstream.client.space import Space

#: How many acknowledged grants are remembered; the oldest are forgotten.
_REMEMBERED = 1000

logger = logging.getLogger("mewstream.client")


class Acknowledgements:
    """Acknowledges each grant once, although a resume or a gateway that relays repetitions may bring it again."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._acknowledged: OrderedDict[str, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def received(self, grant: Message) -> None:
        """Acknowledge a grant if it is for us, without waiting."""
        if not grant.id or grant.payload.get("recipient") != self._space.participant or grant.id in self._acknowledged:
            return
        self._acknowledged[grant.id] = None
        if len(self._acknowledged) > _REMEMBERED:
            self._acknowledged.popitem(last=False)
        task = asyncio.get_running_loop().create_task(self._acknowledge(grant))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _acknowledge(self, grant: Message) -> None:
        """It is a request like any other, so that it is repeated if the connection is lost before it is relayed."""
        try:
            await self._space._call(
                kinds.CAPABILITY_GRANT_ACK, {"status": "accepted"}, to=grant.sender, correlation_id=grant.id
            )
        except MewError as failure:
            logger.info("the grant %s could not be acknowledged: %s", grant.id, failure)

    def cancel(self) -> None:
        """Give up those that are not relayed yet."""
        for task in self._tasks:
            task.cancel()
