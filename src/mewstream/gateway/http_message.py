"""HTTP requests and responses as plain values, and the errors that become responses."""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_to_bytes

from mewstream.protocol import kinds
from mewstream.protocol.errors import LimitExceeded, PeerError, ValidationFailed
from mewstream.protocol.render import gateway_envelope

if TYPE_CHECKING:
    from mewstream.gateway.unsent_answers import Reservation

MAX_QUERY_FIELDS = 32

_ABSOLUTE_FORM = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
#: Statuses whose answers have neither a body nor a length (RFC 9110, 8.6).
_WITHOUT_BODY = frozenset({204, 304})
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


class HttpError(Exception):
    """A response other than 200. Its body is the error envelope that a socket would have been sent.

    Keyword arguments are headers, with underscores for hyphens."""

    def __init__(self, status: int, flaw: PeerError, **headers: str) -> None:
        super().__init__(flaw.message)
        self.status = status
        self.flaw = flaw
        self.headers = tuple((name.replace("_", "-"), value) for name, value in headers.items())

    def answer(self) -> Response:
        return error_answer(self.status, self.flaw, self.headers)


class BadRequest(HttpError):
    """A request whose end cannot be found, so that no other can follow it on the connection.

    Neither the answer nor a log quotes anything of it, because it may hold a token."""

    def __init__(self, flaw: str | PeerError, *, status: int = 400) -> None:
        super().__init__(status, ValidationFailed(flaw) if isinstance(flaw, str) else flaw)


class Request:
    """One request. ``path`` is split at its slashes and then decoded, so that a segment may hold any character."""

    __slots__ = (
        *("_fields", "address", "body", "caller", "is_http_1_1", "method", "params", "path", "query", "reservation"),
    )

    def __init__(
        self, method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]], *, is_http_1_1: bool = True
    ) -> None:
        self.method = method.decode("ascii")
        self.is_http_1_1 = is_http_1_1
        self.path, self.query = _split(target.decode("ascii"))
        self._fields: dict[bytes, list[bytes]] = {}
        """The values of each header, by its name in lower case."""
        for name, value in headers:
            self._fields.setdefault(name.lower(), []).append(value)
        self.params: dict[str, str] = {}
        """The values of the variable segments of the route."""
        self.address = ""
        """Where it comes from, for the log."""
        self.body = b""
        self.caller: Any = None
        """The authenticated caller, if the route has authenticated it before the body was read."""
        self.reservation: Reservation | None = None
        """Made by handlers whose answer may be large."""

    def values(self, name: bytes) -> Sequence[bytes]:
        """The values of a header, one for each line; ``name`` is in lower case."""
        return self._fields.get(name, ())

    def tokens(self, name: bytes) -> list[bytes]:
        """The members of a list-valued header, from all of its lines, in lower case."""
        values = self._fields.get(name)
        if values is None:
            return []
        return [token for part in b",".join(values).lower().split(b",") if (token := part.strip())]

    def credentials(self) -> Iterator[tuple[str, str]]:
        """The headers that may hold a token."""
        for name in ("authorization", "sec-websocket-protocol"):
            for value in self.values(name.encode()):
                yield name, value.decode("ascii", "surrogateescape")

    @property
    def content_length(self) -> int | None:
        """None if there is no body, or if it is chunked."""
        length = self._fields.get(b"content-length")
        return None if length is None else int(length[0])

    @property
    def is_chunked(self) -> bool:
        return b"transfer-encoding" in self._fields

    @property
    def has_body(self) -> bool:
        return self.is_chunked or bool(self.content_length)

    @property
    def wants_close(self) -> bool:
        return not self.is_http_1_1 or b"close" in self.tokens(b"connection")


def _split(target: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """The decoded segments of the path, and the query. If a field is repeated, the first counts."""
    if not target.startswith("/"):
        absolute = _ABSOLUTE_FORM.match(target)
        if absolute is None:  # the asterisk of OPTIONS or the authority of CONNECT, which no route has
            return (), {}
        target = target[absolute.end() :]
        if not target.startswith("/"):
            target = f"/{target}"
    path, _, query = target.partition("?")
    segments = path.split("/")[1:]
    if "%" in path:
        segments = [_decoded(segment) for segment in segments]
    return tuple(segments), _fields(query) if query else {}


def _decoded(segment: str) -> str:
    if _BAD_ESCAPE.search(segment):
        raise BadRequest("a % in the path is not followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise BadRequest("the path is not UTF-8") from None


def _fields(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise BadRequest(f"the query is not UTF-8, or has more than {MAX_QUERY_FIELDS} fields") from None
    return dict(reversed(pairs))


class Response:
    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        content_type: str = "application/json",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers

    def head(self, *, close: bool) -> bytes:
        lines = [
            b"HTTP/1.1 %d %b\r\nDate: %b\r\nX-Content-Type-Options: nosniff\r\n"
            % (self.status, _REASONS.get(self.status, b""), _date(int(time.time())))
        ]
        if self.status not in _WITHOUT_BODY:
            lines.append(b"Content-Length: %d\r\n" % len(self.body))
        if self.body:
            lines.append(b"Content-Type: %b\r\n" % self.content_type.encode("ascii"))
        lines += [b"%b: %b\r\n" % (name.encode("ascii"), value.encode("ascii")) for name, value in self.headers]
        lines.append(b"Connection: close\r\n\r\n" if close else b"\r\n")
        return b"".join(lines)


def error_answer(status: int, flaw: PeerError, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """A response with the error envelope that a socket would have been sent."""
    if status == 401:
        headers = (*headers, ("WWW-Authenticate", "Bearer"))
    if (wait := flaw.details.get("retry_after")) is not None:
        headers = (*headers, ("Retry-After", str(math.ceil(wait))))
    body = gateway_envelope(kinds.ERROR, flaw.payload, id=f"gw-http-{time.time_ns()}", ts=time.time_ns() // 1000)
    return Response(body, status=status, headers=headers)


def too_large(max_bytes: int) -> LimitExceeded:
    return LimitExceeded(f"the body is larger than {max_bytes} bytes", limit="message_bytes")


@functools.lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    """The value of the Date header, made once for all answers of a second."""
    return formatdate(second, usegmt=True).encode("ascii")
