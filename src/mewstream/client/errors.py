"""The exceptions of the SDK.

MewError
├── ConnectError           there is no connection, or the gateway refused the join
│   └── JoinRefused        wrong token, unknown space, ...: trying again will not help
├── ConnectionClosed       the connection has ended for good
├── FramesUnconfirmed      the connection was lost before the gateway confirmed what we sent
├── AnswerLost             the connection was lost before a request was answered, and it cannot be repeated
├── RequestTimeout         nobody answered in time
├── SubscriptionEnded      there is nothing more to receive
├── McpError               the other side answered a request with an error
├── ToolError              a tool failed, or returned something else than expected
├── ProposalRejected       another participant rejected a proposal
└── PeerError              the gateway refused something; one class for each wire code,
                           see :mod:`mewstream.protocol.errors`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mewstream.protocol.close_codes import ABNORMAL
from mewstream.protocol.errors import LimitExceeded, MewError, PeerError


class ConnectError(MewError):
    """There is no connection. The text says why."""


class JoinRefused(ConnectError):
    """The gateway refused the join, and would refuse it again. ``code`` is its error code or close code."""

    def __init__(self, message: str, *, code: str | int) -> None:
        super().__init__(message)
        self.code = code


class ConnectionClosed(MewError):
    """The connection has ended and will not be made again. ``code`` is the WebSocket close code."""

    def __init__(self, message: str, *, code: int = ABNORMAL) -> None:
        super().__init__(message)
        self.code = code

    def again(self) -> ConnectionClosed:
        """Return a copy, for an exception that is raised twice would collect both tracebacks."""
        return ConnectionClosed(str(self), code=self.code)


class FramesUnconfirmed(MewError):
    """The connection was lost before the gateway confirmed the last ``count`` frames: it may or may not have them."""

    def __init__(self, count: int, *, reason: str = "") -> None:
        frames = "frame" if count == 1 else f"{count} frames"
        why = f" ({reason})" if reason else ""
        super().__init__(f"the connection was lost before the gateway confirmed the last {frames}{why}")
        self.count = count


class AnswerLost(MewError):
    """The connection was lost before the answer came, and it is not known whether the request was carried out. The SDK
    repeats requests only to a mewstream gateway; another gateway would take the repetition for a new request."""


class SubscriptionEnded(MewError):
    """``receive()`` has nothing more to return: the stream has ended, or the subscription was closed."""


class RequestTimeout(MewError, TimeoutError):
    """Nobody answered in time. It is not known whether the request was carried out."""


class McpError(MewError):
    """The error in an ``mcp/response``, with the code, message and data of JSON-RPC."""

    def __init__(self, message: str, *, code: int = -32000, data: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.data = data


class ToolError(MewError):
    """A tool failed, and the text is what it says of that; or it returned something else than expected. ``result`` is
    its MCP result."""

    def __init__(self, message: str, *, result: dict[str, Any]) -> None:
        super().__init__(message)
        self.result = result


class ProposalRejected(MewError):
    """Somebody rejected our proposal; ``by`` is the participant who did."""

    def __init__(self, message: str, *, by: str) -> None:
        super().__init__(message)
        self.by = by


class UnknownRefusal(PeerError):
    """A refusal with an error code that this version does not know."""


def _classes() -> Iterator[type[PeerError]]:
    """Yield all classes of refusals that have a code of their own, the more general ones first."""
    found: list[type[PeerError]] = [each for each in PeerError.__subclasses__() if each is not UnknownRefusal]
    while found:
        yield from found
        found = [each for general in found for each in general.__subclasses__()]


#: Of classes with the same code the most general one: what is special about the others is not on the wire.
_BY_CODE = {each.code: each for each in reversed(list(_classes()))}


def refusal(payload: dict[str, Any]) -> PeerError:
    """Return the exception for the payload of a ``system/error``, which may contain anything."""
    code = str(payload.get("error", "unknown"))
    message = str(payload.get("message") or payload.get("reason") or code)
    kind = _BY_CODE.get(code, UnknownRefusal)
    error = kind(message, limit=str(payload.get("limit"))) if kind is LimitExceeded else kind(message)
    if kind is UnknownRefusal:
        error.code = code  # type: ignore[misc]  # instances of this class differ in it
    error.details = {key: value for key, value in payload.items() if key not in ("error", "message")}
    return error
