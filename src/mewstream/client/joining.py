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
#: The same participant came back elsewhere. It was not us, for we leave a connection before we make the
#: next: two programs with one name would take the place from each other for ever.
_REPLACED_BY_RECONNECT = 4002


def may_reconnect(code: int) -> bool:
    return code < _FINAL_CODES and code not in _FINAL_STANDARD and code != _REPLACED_BY_RECONNECT


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
        join: dict[str, Any] = {"type": "join", "capabilities": [], "extensions": ["positions"]}
        join |= {
            key: value
            for key, value in {
                "participantId": self.participant,
                "space": self.space,
                "token": await self._current_token(),
                "resume": position,
            }.items()
            if value is not None
        }
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection = await open_connection(
            self.url,
            lambda connection: _Waiting(connection, welcomed, outcome),
            ssl_context=self._ssl_context,
            timeout=self._timeout,
        )
        connection.send(msgspec.json.encode(join), is_text=True)
        try:
            async with asyncio.timeout(self._timeout):
                await outcome
        except TimeoutError:
            connection.abort()
            raise ConnectError(f"the gateway did not answer a join within {self._timeout:g} seconds") from None
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _current_token(self) -> str | None:
        token = self._token() if callable(self._token) else self._token
        if inspect.isawaitable(token):
            token = await token
        if token is not None and not isinstance(token, str):
            raise TypeError(
                f"token is of the type {type(token).__name__}: expected text, or a function that returns it"
            )
        return token


class _Waiting:
    """The receiver until there is a welcome or a refusal."""

    def __init__(
        self,
        connection: Connection,
        welcomed: Callable[[Connection, Message], Receiver],
        outcome: asyncio.Future[None],
    ) -> None:
        self._connection = connection
        self._welcomed = welcomed
        self._outcome = outcome
        self._error: str | None = None
        self._code: str | None = None

    def message_received(self, message: bytes, is_text: bool) -> None:
        parsed = parse(message) if is_text else None
        if parsed is None or self._outcome.done():
            return
        if parsed.kind == kinds.WELCOME:
            # At once: the messages that follow may be in the same packet.
            self._connection.receiver = self._welcomed(self._connection, parsed)
            self._outcome.set_result(None)
        elif parsed.kind == kinds.ERROR:
            error = refusal(parsed.payload)
            self._error, self._code = error.message, error.code

    def pong_received(self, payload: bytes) -> None:
        pass

    def connection_lost(self, connection: Connection, code: int, reason: str) -> None:
        if self._outcome.done():
            return
        text = f"the gateway did not let us in: {self._error or reason or f'it closed the connection ({code})'}"
        if may_reconnect(code):
            self._outcome.set_exception(ConnectError(text))
        else:
            self._outcome.set_exception(JoinRefused(text, code=self._code or code))
        self._outcome.exception()  # whoever was to hear of it may be gone
