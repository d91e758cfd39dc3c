"""Which web pages may use this gateway: their origins, the gateway's own names, and the CORS headers of answers.

A browser says in ``Origin`` which page sends a request. Pages of the gateway's own host may use it, and those of
``allowed_origins``.

A page of a strange site can get the browser to take that site's name for 127.0.0.1 (DNS rebinding), and then looks like
a page of the gateway's own host. So a gateway that can only be reached from its own machine answers browsers only under
names that are known to be its own. An address is never the name of a strange site. Programs are not checked, because
nobody can make them visit a strange page.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from mewstream.gateway.config import GatewayConfig
from mewstream.gateway.http_message import HttpError, Request, Response
from mewstream.gateway.proxies import parse_address
from mewstream.protocol.errors import Unauthorized, ValidationFailed

#: Headers that every browser sends, whatever the page wants: with what is not a GET, to secure addresses, and always.
_OF_BROWSERS = (b"origin", b"sec-fetch-site", b"accept-language")
#: Headers that proxies add.
_OF_PROXIES = (b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"forwarded", b"via")

#: Headers that a page of another origin may send and read, beyond those that every page may.
_REQUEST_HEADERS = "Authorization, Content-Type, Content-Encoding, Last-Event-ID"
_RESPONSE_HEADERS = "Retry-After, WWW-Authenticate"
#: Seconds for which a browser may remember the answer to a preflight. More is cut by browsers.
_PREFLIGHT_SECONDS = 7200

REFUSED = "pages of this origin may not use this gateway: see gateway.allowed_origins"


class Origins:
    """``is_local``: the gateway listens on loopback addresses only."""

    def __init__(self, config: GatewayConfig, *, is_local: bool) -> None:
        self._allowed = frozenset(config.allowed_origins)
        self._is_local = is_local
        urls = [*self._allowed, config.public_url or ""]
        self._names = frozenset({config.host.lower(), *(urlsplit(url).hostname or "" for url in urls)}) - {""}

    @staticmethod
    def has_proxy_header(request: Request) -> bool:
        return any(request.values(name) for name in _OF_PROXIES)

    def knows_host(self, request: Request) -> bool:
        """Whether ``Host`` cannot be the name of a strange site."""
        hosts = request.values(b"host")
        if not self._is_local or not hosts:
            return True
        host = _text(hosts[0]).lower()
        if parse_address(host) is not None:
            return True
        name = host.partition(":")[0].removesuffix(".")
        return name == "localhost" or name.endswith(".localhost") or name in self._names

    def allows(self, request: Request, *, is_proxied: bool) -> bool:
        """Whether the page that sends a request may use this gateway. Requests that no page sends are allowed.
        ``is_proxied``: it comes from a trusted proxy, which passes on the names that it was asked by."""
        lines = request.values(b"origin")
        if not lines or "*" in self._allowed:
            return True
        origin = _text(lines[0]).lower()
        if origin in self._allowed:
            return True
        host = _text(next(iter(request.values(b"host")), b"")).lower()
        return origin.partition("://")[2] == host != "" and (is_proxied or self.knows_host(request))

    def check(self, request: Request, *, is_proxied: bool) -> None:
        """Check a request before it is answered. Raises :class:`HttpError`."""
        if not self.allows(request, is_proxied=is_proxied):
            raise HttpError(403, Unauthorized(REFUSED))
        is_of_browser = any(request.values(name) for name in _OF_BROWSERS)
        if is_of_browser and not is_proxied and not self.knows_host(request):
            text = "this gateway has no such name: use its address, or name the host in gateway.public_url"
            raise HttpError(421, ValidationFailed(text))

    def headers(self, request: Request) -> tuple[tuple[str, str], ...]:
        """The headers by which a page of another origin may read the answer to its request, which was checked."""
        lines = request.values(b"origin")
        if not lines or not lines[0].isascii():
            return ()
        return (
            ("Access-Control-Allow-Origin", "*" if "*" in self._allowed else _text(lines[0])),
            ("Access-Control-Expose-Headers", _RESPONSE_HEADERS),
            ("Vary", "Origin"),
        )


def is_preflight(request: Request) -> bool:
    """Whether a browser asks what a page of another origin may send."""
    return request.method == "OPTIONS" and bool(
        request.values(b"origin") and request.values(b"access-control-request-method")
    )


def preflight_answer(methods: Iterable[str]) -> Response:
    return Response(
        status=204,
        headers=(
            ("Access-Control-Allow-Methods", ", ".join(methods)),
            ("Access-Control-Allow-Headers", _REQUEST_HEADERS),
            ("Access-Control-Max-Age", str(_PREFLIGHT_SECONDS)),
        ),
    )


def _text(value: bytes) -> str:
    return value.decode("latin-1")
