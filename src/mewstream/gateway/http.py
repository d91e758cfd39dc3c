"""The HTTP API, on the same port and under the same rules as the socket."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

import mewstream
from mewstream.gateway.gateway import Gateway
from mewstream.gateway.identity import token_from_headers
from mewstream.gateway.inbound import Throttle
from mewstream.gateway.space import Space
from mewstream.protocol import kinds
from mewstream.protocol.decide import Decision
from mewstream.protocol.envelope import encode_json
from mewstream.protocol.errors import (
    InvalidRequest,
    JournalUnavailable,
    LimitExceeded,
    PeerError,
    Unauthorized,
    ValidationFailed,
)
from mewstream.protocol.records import (
    EnvelopeAccepted,
    Frame,
    Invited,
    OwnershipTransferred,
    ReadGranted,
    ReadRevoked,
    Record,
    Refused,
    StreamOpened,
    WriteGranted,
    WriteRevoked,
)
from mewstream.protocol.render import gateway_envelope, render
from mewstream.protocol.times import parse_rfc3339, rfc3339

log = logging.getLogger("mewstream.gateway")

FEATURES = (
    "active_streams",
    "stream-ownership",
    "stream-handshake",
    "reader-sets",
    "conditional-grants",
    "auto-grant",
    "positions",
    "resume",
)
MAX_MESSAGES = 1_000
MAX_THROTTLES = 10_000
_LARGEST = web.AppKey("largest", int)


class HttpError(Exception):
    """An answer other than 200; the body is the error envelope that a socket would have got."""

    def __init__(self, status: int, flaw: PeerError) -> None:
        super().__init__(flaw.message)
        self.status = status
        self.flaw = flaw


class HttpApi:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._throttles: dict[tuple[str, str], Throttle] = {}
        # aiohttp refuses what is larger than any space would take; each space then has its own limit.
        largest = max(space.limits.message_bytes for space in gateway.config.spaces.values())
        self.application = web.Application(client_max_size=largest, middlewares=[_errors_as_envelopes])
        self.application[_LARGEST] = largest
        routes = self.application.router
        routes.add_get("/health", self.health)
        routes.add_get("/metrics", self.metrics)
        routes.add_get("/participants", self.participants)
        routes.add_get("/streams", self.streams)
        routes.add_post("/participants/{id}/messages", self.post_message)
        routes.add_get("/participants/{id}/messages", self.get_messages)

    # -- routes -----------------------------------------------------------------------------------

    async def health(self, request: web.Request) -> web.Response:
        gateway = self._gateway
        return _json(
            {
                "status": gateway.status,
                "spaces": len(gateway.spaces),
                "clients": sum(len(space.members) for space in gateway.spaces.values()),
                "uptime": round(time.monotonic() - gateway.started, 3),
                "version": mewstream.__version__,
                "features": list(FEATURES),
            }
        )

    async def metrics(self, request: web.Request) -> web.Response:
        for space in self._gateway.spaces.values():
            space.metrics.publish(len(space.state.streams))
        return web.Response(
            body=self._gateway.metrics.exposition(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def participants(self, request: web.Request) -> web.Response:
        space, _ = self._authenticate(request)
        state = space.state
        ids = dict.fromkeys([*state.roster, *state.participants])
        listed = [
            {"id": id, "connected": state.is_connected(id), "capabilities": state.effective_capabilities(id)}
            for id in ids
        ]
        return _json({"participants": listed})

    async def streams(self, request: web.Request) -> web.Response:
        """The streams as a welcome would show them, for those who want to look without joining."""
        space, _ = self._authenticate(request)
        state = space.state
        listed = [state.describe_stream(stream) for stream in state.streams.values()]
        return _json({"epoch": state.epoch, "seq": state.seq, "streams": listed})

    async def post_message(self, request: web.Request) -> web.Response:
        space, participant = self._authenticate(request, request.match_info["id"])
        body = await request.read()
        if len(body) > space.config.limits.message_bytes:
            raise HttpError(413, _too_large(space.config.limits.message_bytes))
        self._throttle(space, participant).envelope(len(body))
        output_log = self._gateway.output_log(space, participant)
        if output_log is not None and not space.state.is_connected(participant):
            refused = space.join(output_log)
            if refused is not None:
                raise HttpError(refused.flaw.http_status, refused.flaw)
        try:
            body.decode()
        except UnicodeDecodeError:
            raise ValidationFailed("the body is not UTF-8") from None
        decision = space.post(participant, body)
        if not await space.committed(decision):
            raise JournalUnavailable("this was done and cannot be recorded at the moment: ask again with the same id")
        return _answer(space, decision)

    async def get_messages(self, request: web.Request) -> web.Response:
        """What was sent since ``since``: a position (``seq``) or an RFC 3339 time."""
        space, participant = self._authenticate(request, request.match_info["id"])
        since = request.query.get("since", "0")
        if since.isdecimal() and len(since) < 19:
            after = int(since)
        elif (micros := parse_rfc3339(since)) is not None:
            after = await space.position_at(micros)
        else:
            raise ValidationFailed(f"since is {since[:40]!r}, expected a seq or an RFC 3339 time")
        messages, position = await space.messages_since(participant, after, MAX_MESSAGES)
        head = encode_json({"epoch": space.state.epoch, "seq": position})[:-1]
        return web.Response(body=b'%b,"messages":[%b]}' % (head, b",".join(messages)), content_type="application/json")

    # -- who is asking ----------------------------------------------------------------------------

    def _authenticate(self, request: web.Request, claimed: str | None = None) -> tuple[Space, str]:
        presented = token_from_headers(request.headers)
        if presented.token is None:
            problem = presented.problem or "send Authorization: Bearer <token>"
            raise HttpError(401, Unauthorized(problem))
        name = request.query.get("space")
        space = self._gateway.find_space(name)
        if space is None:
            text = "there is no space of that name" if name else "name a space by ?space=: there are several"
            raise HttpError(404 if name else 400, ValidationFailed(text, field="space"))
        participant = self._gateway.participant_of(space, presented.token)
        if participant is None or (claimed is not None and claimed != participant):
            raise HttpError(403, Unauthorized("the token is not of this participant in this space"))
        return space, participant

    def _throttle(self, space: Space, participant: str) -> Throttle:
        key = (space.id, participant)
        throttle = self._throttles.get(key)
        if throttle is None:
            if len(self._throttles) >= MAX_THROTTLES:
                del self._throttles[next(iter(self._throttles))]
            throttle = self._throttles[key] = Throttle(self._gateway.loop, None, space.config.limits)
        return throttle


# -- answers --------------------------------------------------------------------------------------


def _answer(space: Space, decision: Decision) -> web.Response:
    """The outcome of an envelope: the same records that the socket would have been told of."""
    records: list[Record] = decision.records
    if decision.repetition is not None:
        repeated = decision.repetition
        records = repeated.answer.records
        if not records:
            accepted = {"id": repeated.envelope.id, "status": "accepted", "timestamp": rfc3339(repeated.answer.ts)}
            return _json(accepted)
    for record in records:
        if isinstance(record, Refused):
            body = render(space.id, space.state.epoch, record)
            return web.Response(status=record.http_status, body=body, content_type="application/json")
    return _json(_outcome(space, records))


def _outcome(space: Space, records: list[Record]) -> dict[str, Any]:
    outcome: dict[str, Any] = {}
    for record in records:
        match record:
            case EnvelopeAccepted():
                outcome = {"id": record.id, "status": "accepted", "timestamp": rfc3339(record.ts)}
            case Frame():
                return {"id": record.id, "status": "accepted", "timestamp": rfc3339(record.ts)}
            case StreamOpened():
                return {
                    "id": record.request_id,
                    "status": "stream_opened",
                    "stream_id": record.stream_id,
                    "timestamp": rfc3339(record.ts),
                }
            case WriteGranted() | WriteRevoked():
                return {
                    "id": record.request_id,
                    "status": "granted" if isinstance(record, WriteGranted) else "revoked",
                    "stream_id": record.stream_id,
                    "authorized_writers": record.authorized_writers,
                }
            case ReadGranted() | ReadRevoked():
                return {
                    "id": record.request_id,
                    "status": "granted" if isinstance(record, ReadGranted) else "revoked",
                    "stream_id": record.stream_id,
                    "authorized_readers": record.authorized_readers,
                }
            case OwnershipTransferred():
                return {
                    "id": record.request_id,
                    "status": "transferred",
                    "stream_id": record.stream_id,
                    "previous_owner": record.previous_owner,
                    "new_owner": record.new_owner,
                    "authorized_writers": record.authorized_writers,
                }
            case Invited():
                return {"id": record.request_id, **space.invitation(record)}
    return outcome


def _json(value: Any) -> web.Response:
    return web.Response(body=encode_json(value), content_type="application/json")


def _too_large(limit: int) -> LimitExceeded:
    return LimitExceeded(f"the body is larger than {limit} bytes", limit="message_bytes")


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _errors_as_envelopes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error has the body that a socket would have been sent."""
    try:
        return await handler(request)
    except HttpError as error:
        return _error(error.status, error.flaw)
    except PeerError as flaw:
        return _error(flaw.http_status, flaw)
    except web.HTTPRequestEntityTooLarge:
        return _error(413, _too_large(request.app[_LARGEST]))
    except web.HTTPException as error:
        return _error(error.status, ValidationFailed(f"{error.reason}: see docs/protocol.md for the routes"))
    except Exception:
        log.exception("an error of our own in %s %s", request.method, request.match_info.route.resource)
        return _error(500, InvalidRequest("an error of the gateway's own: it is in its log"))


def _error(status: int, flaw: PeerError) -> web.Response:
    payload = {"error": flaw.code, "message": flaw.message, **flaw.details}
    body = gateway_envelope(kinds.ERROR, payload, id=f"gw-http-{time.time_ns()}", ts=time.time_ns() // 1000)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
