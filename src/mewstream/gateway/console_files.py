"""The console: the built files of a web page, which ``console/`` in the repository is the source of.

By default the console is served only to browsers on this machine: where the gateway listens on loopback addresses only,
and no proxy stands in between. The page is public and holds no secret; who uses it has to sign in with a token.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from mewstream.gateway.http_message import HttpError, Request, Response
from mewstream.gateway.http_routes import Route
from mewstream.gateway.origins import Origins
from mewstream.io.log_lines import event
from mewstream.protocol.errors import ValidationFailed

log = logging.getLogger("mewstream.gateway")

DIRECTORY = Path(__file__).with_name("console")

_CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: Everything comes from this gateway, nothing is inline, and no text can become markup (Trusted Types).
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=(), usb=()"),
)
#: The names of all files but the page contain a hash of their content.
_FOR_EVER = ("Cache-Control", "public, max-age=31536000, immutable")
_ASK_AGAIN = ("Cache-Control", "no-cache")


class ConsoleFiles:
    """``setting`` is ``gateway.console``: on, off, or None for the default."""

    def __init__(self, setting: bool | None, origins: Origins, *, is_local: bool, directory: Path = DIRECTORY) -> None:
        self._setting = setting
        self._origins = origins
        self._page = b""
        self._assets: dict[str, tuple[bytes, str]] = {}
        self.routes: list[Route] = []
        if setting is False or (setting is None and not is_local):
            return
        try:
            self._page = (directory / "index.html").read_bytes()
            for file in sorted((directory / "assets").iterdir()):
                self._assets[file.name] = (file.read_bytes(), _CONTENT_TYPES[file.suffix])
        except OSError as error:
            log.error(
                "the console is not served, because its files cannot be read: %s",
                error,
                extra=event("console_unreadable"),
            )
            return
        self._etag = f'"{hashlib.sha256(self._page).hexdigest()[:32]}"'
        self.routes = [Route("GET", "/", self.page), Route("GET", "/assets/{name}", self.asset)]

    def page(self, request: Request) -> Response:
        self._require_served(request)
        headers = (*_HEADERS, _ASK_AGAIN, ("ETag", self._etag))
        if self._etag.encode() in b",".join(request.values(b"if-none-match")):
            return Response(status=304, headers=headers)
        return Response(self._page, content_type=_CONTENT_TYPES[".html"], headers=headers)

    def asset(self, request: Request) -> Response:
        self._require_served(request)
        found = self._assets.get(request.params["name"])
        if found is None:
            raise HttpError(404, ValidationFailed("Not Found: the console has no such file"))
        body, content_type = found
        return Response(body, content_type=content_type, headers=(*_HEADERS, _FOR_EVER))

    def _require_served(self, request: Request) -> None:
        is_served = self._setting or (self._origins.knows_host(request) and not self._origins.has_proxy_header(request))
        if not is_served:
            text = "Not Found: the console is off for visitors from elsewhere; gateway.console: on turns it on"
            raise HttpError(404, ValidationFailed(text))
