"""One attempt to get into a space: connect, join, and wait for the welcome."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from mewstream.client.connection import Connection, Receiver, open_connection
from mewstream.client.errors import ConnectError, JoinRefused, refusal
from mewstream.client.messages import Message, parse
from mewstream.protocol import kinds

Token = str | Callable[[], str | Awaitable[str]]

#: From here on a close code says that coming back changes nothing; so do these of the standard's.
_FINAL_CODES = 4500
_FINAL_STANDARD = frozenset({1002, 1003, 1007, 1008, 1010})


def may_reconnect(code: int) -> bool:
    return code < _FINAL_CODES and code not in _FINAL_STANDARD


class Door:
    """Where to go and who we are."""

    def __init__(
        self,
        url: str,
        *,
        space: str | None,
        participant: str | None,
        token: Token | None,
        ssl_context: ssl.SSLContext | None,
        timeout: float,
    ) -> None:
        self.url = url
        self.space = space
        self.participant = participant
        self._token = token
        self._ssl_context = ssl_context
        self._timeout = timeout

    async def enter(
        self, welcomed: Callable[[Connection, Message], Receiver], position: dict[str, Any] | None
    ) -> Connection:
        """Join. ``welcomed`` is called with the welcome and says who hears what comes right after it."""
        token = self._token() if callable(self._token) else self._token
        if inspect.isawaitable(token):
            token = await token
        waiting = _Waiting(welcomed)
        connection = await open_connection(
            self.url, lambda: waiting, ssl_context=self._ssl_context, timeout=self._timeout
        )
        waiting.connection = connection
        join: dict[str, Any] = {"type": "join", "capabilities": [], "extensions": ["positions"]}
        join |= {
            key: value
            for key, value in {
                "participantId": self.participant,
                "space": self.space,
                "token": token,
                "resume": position,
            }.items()
            if value is not None
        }
        connection.send(msgspec.json.encode(join), is_text=True)
        try:
            async with asyncio.timeout(self._timeout):
                await waiting.outcome
        except TimeoutError:
            connection.abort()
            raise ConnectError(f"{self.url} did not answer a join within {self._timeout:g} seconds") from None
        except BaseException:
            connection.abort()
            raise
        return connection


class _Waiting:
    """The receiver until there is a welcome or a refusal."""

    connection: Connection

    def __init__(self, welcomed: Callable[[Connection, Message], Receiver]) -> None:
        self._welcomed = welcomed
        self._error: str | None = None
        self._code = "refused"
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def message_received(self, message: bytes, is_text: bool) -> None:
        parsed = parse(message) if is_text else None
        if parsed is None or self.outcome.done():
            return
        if parsed.kind == kinds.WELCOME:
            # At once: the messages that follow may be in the same packet.
            self.connection.receiver = self._welcomed(self.connection, parsed)
            self.outcome.set_result(None)
        elif parsed.kind == kinds.ERROR:
            error = refusal(parsed.payload)
            self._error, self._code = error.message, error.code

    def pong_received(self, payload: bytes) -> None:
        pass

    def connection_lost(self, code: int, reason: str) -> None:
        if self.outcome.done():
            return
        text = self._error or reason or "the gateway closed the connection"
        if may_reconnect(code):
            self.outcome.set_exception(ConnectError(f"the gateway did not let us in: {text}"))
        else:
            self.outcome.set_exception(JoinRefused(f"the gateway did not let us in: {text}", code=self._code))
