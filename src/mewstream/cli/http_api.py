"""The HTTP API of a gateway, as the short commands use it.

A participant has one WebSocket connection. A short command uses HTTP, so that it does not replace the connection of a
program that runs under the same name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import yarl

from mewstream.cli.identity import Identity
from mewstream.client.errors import ConnectError, refusal

TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)


async def health(identity: Identity) -> dict[str, Any]:
    """The answer of ``GET /health``."""
    return await _request(identity, "GET", "/health", with_token=False)


async def participants(identity: Identity) -> list[dict[str, Any]]:
    """Everyone who may join the space."""
    return await _all_pages(identity, "participants")


async def streams(identity: Identity) -> list[dict[str, Any]]:
    """The open streams, described as in a welcome."""
    return await _all_pages(identity, "streams")


async def _all_pages(identity: Identity, name: str) -> list[dict[str, Any]]:
    """Fetch page by page: an answer with ``next`` is followed by a request with ``after`` set to that value."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        answer = await _request(identity, "GET", f"/{name}", after=after)
        found += answer.get(name) or ()
        after = answer.get("next")
        if after is None:
            return found


async def post(
    identity: Identity,
    kind: str,
    payload: Mapping[str, Any],
    *,
    to: list[str] | None = None,
    correlation_id: list[str] | None = None,
) -> dict[str, Any]:
    """Send an envelope and return the gateway's answer, which comes when the envelope is recorded.

    Raises a PeerError if the gateway refuses it, and ConnectError if the gateway cannot be reached."""
    envelope: dict[str, Any] = {"kind": kind, "payload": payload}
    if to:
        envelope["to"] = to
    if correlation_id:
        envelope["correlation_id"] = correlation_id
    return await _request(identity, "POST", f"/participants/{quote(identity.id, safe='')}/messages", body=envelope)


async def _request(
    identity: Identity,
    method: str,
    path: str,
    *,
    body: dict[str, Any] | None = None,
    with_token: bool = True,
    after: str | None = None,
) -> dict[str, Any]:
    url = yarl.URL(identity.http_url + path, encoded=True)  # otherwise a percent-encoded slash would be decoded
    headers = {"Authorization": f"Bearer {identity.token}"} if with_token else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
            session.request(
                method,
                url,
                params={name: value for name, value in (("space", identity.space), ("after", after)) if value},
                headers=headers,
                data=msgspec.json.encode(body) if body is not None else None,
                allow_redirects=False,
            ) as response,
        ):
            status, content = response.status, await response.read()
    except TimeoutError:
        raise ConnectError(f"{url} did not answer within {TIMEOUT.total:g} seconds") from None
    except aiohttp.ClientConnectorError as error:
        reason = os.strerror(error.os_error.errno) if error.os_error.errno else str(error.os_error)
        raise ConnectError(f"cannot connect to {identity.url}: {reason}. Is the gateway running there?") from None
    except (aiohttp.ClientError, OSError) as error:
        raise ConnectError(f"the connection to {identity.url} failed: {error}") from None
    try:
        answer = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConnectError(f"{url} answered with status {status} and no JSON: is that a MEW gateway?") from None
    if status == 200:
        return answer
    payload = answer.get("payload")
    raise refusal(payload if isinstance(payload, dict) else {"error": f"status {status}"})
