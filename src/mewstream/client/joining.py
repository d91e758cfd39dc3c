"""One attempt to join a space: connect, send the join, and wait for the welcome."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mewstream.client.connection import Connection, Receiver, open_connection
from mewstream.client.errors import ConnectError, JoinRefused, refusal
from mewstream.client.messages import Message, parse, without_none
from mewstream.protocol import close_codes, kinds
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.errors import PeerError
from mewstream.protocol.position import Position

Token = str | Callable[[], str | Awaitable[str]]


def may_reconnect(code: int) -> bool:
    """Return whether the SDK reconnects by itself after a close with this code.

    It does not after a replacement, although the gateway would allow it: two programs with the same name would
    replace each other for ever. The SDK never replaces itself, because it leaves one connection before the next.
    """
    return close_codes.may_reconnect(code) and code != CloseReason.REPLACED_BY_RECONNECT.value.code


@dataclass(frozen=True, kw_only=True)
class Joiner:
    """Joins a space as one participant, as often as a connection is needed."""

    url: str
    space: str | None
    participant: str | None
    token: Token | Callable[[], Awaitable[str | None]] | None = field(repr=False)
    ssl_context: ssl.SSLContext | None
    timeout: float

    async def join(
        self,
        welcomed: Callable[[Connection, Message], Receiver],
        resume: Position | None,
        interest: Mapping[str, Any],
    ) -> Connection:
        """Connect, join, and wait for the welcome.

        ``welcomed`` is called with the welcome, and returns the receiver of everything that follows it.
        ``resume`` is the position to resume from, ``interest`` is what is subscribed to. Returns the connection. Raises
        :class:`JoinRefused` if trying again would not help, :class:`ConnectError` if it might, and whatever the
        function for the token raises.
        """
        join = without_none(
            type="join",
            participantId=self.participant,
            space=self.space,
            token=await self.current_token(),
            capabilities=[],
            extensions=["interest", "positions"],
            resume=resume,
            interest=interest,
        )
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection = await open_connection(
            self.url,
            lambda connection: _Joining(connection, welcomed, outcome),
            ssl_context=self.ssl_context,
            timeout=self.timeout,
        )
        connection.send(msgspec.json.encode(join), is_text=True)
        try:
            async with asyncio.timeout(self.timeout):
                await outcome
        except TimeoutError:
            connection.abort()
            raise ConnectError(f"the gateway did not answer a join within {self.timeout:g} seconds") from None
        except BaseException:
            connection.abort()
            raise
        return connection

    def may_join_again(self, code: int) -> bool:
        """Whether to reconnect after a close: also after the end of a token, if a function may give a newer one."""
        return may_reconnect(code) or (code == CloseReason.TOKEN_EXPIRED.value.code and callable(self.token))

    async def current_token(self) -> str | None:
        """Raises whatever the function for the token raises."""
        token = self.token() if callable(self.token) else self.token
        if inspect.isawaitable(token):
            token = await token
        if token is not None and not isinstance(token, str):
            raise TypeError(
                f"token is of the type {type(token).__name__}: expected text, or a function that returns it"
            )
        return token


@dataclass(eq=False)
class _Joining:
    """The receiver of a connection until it is welcomed or refused."""

    connection: Connection
    welcomed: Callable[[Connection, Message], Receiver]
    outcome: asyncio.Future[None]
    refusal: PeerError | None = None

    def message_received(self, message: bytes, is_text: bool) -> None:
        parsed = parse(message) if is_text else None
        if parsed is None or self.outcome.done():
            return
        if parsed.kind == kinds.WELCOME:
            # Before anything else is read: the messages that follow may be in the same packet.
            self.connection.joined(self.welcomed(self.connection, parsed))
            self.outcome.set_result(None)
        elif parsed.kind == kinds.ERROR:
            self.refusal = refusal(parsed.payload)

    def pong_received(self, payload: bytes) -> None:
        pass

    def connection_lost(self, connection: Connection, code: int, reason: str) -> None:
        if self.outcome.done():
            return
        refused = self.refusal
        why = (refused.message if refused else "") or reason or f"it closed the connection ({code})"
        text = f"the gateway did not let us in: {why}"
        if may_reconnect(code):
            self.outcome.set_exception(ConnectError(text))
        else:
            self.outcome.set_exception(JoinRefused(text, code=refused.code if refused else code))
        self.outcome.exception()  # marks it as retrieved, because the caller may be gone
