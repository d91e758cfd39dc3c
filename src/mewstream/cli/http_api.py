"""The HTTP API of a gateway, as the short commands use it.

A participant has one WebSocket connection. A short command uses HTTP, so that it does not replace the connection of a
program that runs under the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from mewstream.cli.http_request import TIMEOUT_SECONDS, RequestFailed, request
from mewstream.cli.identity import Identity
from mewstream.client.errors import ConnectError, refusal


async def health(identity: Identity) -> dict[str, Any]:
    """Return the answer of ``GET /health``."""
    return await _request(identity, "GET", "/health", with_token=False)


async def participants(identity: Identity) -> list[dict[str, Any]]:
    """Everyone who may join the space."""
    return await _all_pages(identity, "participants")


async def streams(identity: Identity, *, activity: bool = False) -> list[dict[str, Any]]:
    """Return the open streams, described as in a welcome; with ``activity`` also when each was last active."""
    return await _all_pages(identity, "streams", activity="true" if activity else None)


async def _all_pages(identity: Identity, name: str, *, activity: str | None = None) -> list[dict[str, Any]]:
    """Fetch page by page: an answer with ``next`` is followed by a request with ``after`` set to that value."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        answer = await _request(identity, "GET", f"/{name}", after=after, activity=activity)
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
    activity: str | None = None,
) -> dict[str, Any]:
    url = identity.http_url + path
    if query := {
        name: value for name, value in (("space", identity.space), ("after", after), ("activity", activity)) if value
    }:
        url += f"?{urlencode(query)}"
    headers = {"Authorization": f"Bearer {identity.token}"} if with_token else {}
    try:
        content = msgspec.json.encode(body) if body is not None else b""
        status, content = await request(method, url, headers=headers, body=content)
    except TimeoutError:
        raise ConnectError(f"{url} did not answer within {TIMEOUT_SECONDS:g} seconds") from None
    except RequestFailed as error:
        if error.is_connected:
            raise ConnectError(f"the connection to {identity.url} failed: {error}") from None
        raise ConnectError(f"cannot connect to {identity.url}: {error}. Is the gateway running there?") from None
    try:
        answer = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConnectError(f"{url} answered with status {status} and no JSON: is that a MEW gateway?") from None
    if status == 200:
        return answer
    payload = answer.get("payload")
    raise refusal(payload if isinstance(payload, dict) else {"error": f"status {status}"})
