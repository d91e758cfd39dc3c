"""Asking a gateway by HTTP. A participant has one socket, and a short command must not take it from a
program that runs under the same name: so it posts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import yarl

from mewstream.cli.connecting import Who
from mewstream.client.errors import ConnectError, refusal

TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)


async def health(who: Who) -> dict[str, Any]:
    return await _ask(who, "GET", "/health", with_token=False)


async def participants(who: Who) -> list[dict[str, Any]]:
    return await _all_pages(who, "participants")


async def streams(who: Who) -> list[dict[str, Any]]:
    return await _all_pages(who, "streams")


async def _all_pages(who: Who, name: str) -> list[dict[str, Any]]:
    """A page ends with ``next``, which the next page comes after."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        answer = await _ask(who, "GET", f"/{name}", after=after)
        found += answer.get(name) or ()
        after = answer.get("next")
        if after is None:
            return found


async def post(
    who: Who,
    kind: str,
    payload: Mapping[str, Any],
    *,
    to: list[str] | None = None,
    correlation_id: list[str] | None = None,
) -> dict[str, Any]:
    """Send an envelope; the answer comes when it is recorded. Raises what the gateway refuses."""
    envelope: dict[str, Any] = {"kind": kind, "payload": payload}
    if to:
        envelope["to"] = to
    if correlation_id:
        envelope["correlation_id"] = correlation_id
    return await _ask(who, "POST", f"/participants/{quote(who.id, safe='')}/messages", body=envelope)


async def _ask(
    who: Who,
    method: str,
    path: str,
    *,
    body: dict[str, Any] | None = None,
    with_token: bool = True,
    after: str | None = None,
) -> dict[str, Any]:
    url = yarl.URL(who.http_url + path, encoded=True)  # or a quoted slash would become one
    headers = {"Authorization": f"Bearer {who.token()}"} if with_token else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
            session.request(
                method,
                url,
                params={name: value for name, value in (("space", who.space), ("after", after)) if value},
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
        raise ConnectError(f"cannot connect to {who.url}: {reason}. Is the gateway running there?") from None
    except (aiohttp.ClientError, OSError) as error:
        raise ConnectError(f"the connection to {who.url} failed: {error}") from None
    try:
        answer = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConnectError(f"{url} answered with status {status} and no JSON: is that a MEW gateway?") from None
    if status == 200:
        return answer
    payload = answer.get("payload")
    raise refusal(payload if isinstance(payload, dict) else {"error": f"status {status}"})
