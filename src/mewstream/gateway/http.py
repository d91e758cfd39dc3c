"""The HTTP API, on the same port and under the same rules as the socket."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import msgspec

import mewstream
from mewstream.gateway.gateway import Gateway
from mewstream.gateway.http_authentication import Authentication
from mewstream.gateway.http_message import HttpError, Request, Response
from mewstream.gateway.http_routes import Route
from mewstream.gateway.inbound import Throttle
from mewstream.gateway.listing import HTTP_PAGE_BYTES, entry_limit, participant_page, stream_page
from mewstream.gateway.replay import MAX_PAGE_BYTES
from mewstream.gateway.space import Space
from mewstream.gateway.unsent_answers import UnsentAnswers
from mewstream.protocol.decide import Decision
from mewstream.protocol.envelope import encode_json
from mewstream.protocol.errors import JournalUnavailable, Unauthorized, ValidationFailed
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
    StreamReused,
    Subscribed,
    Unsubscribed,
    WriteDenied,
    WriteGranted,
    WriteRevoked,
)
from mewstream.protocol.render import render
from mewstream.protocol.state import Stream
from mewstream.protocol.times import parse_rfc3339, rfc3339
from mewstream.protocol.utf8 import is_utf8

FEATURES = (
    "active_streams",
    "stream-ownership",
    "stream-handshake",
    "reader-sets",
    "conditional-grants",
    "auto-grant",
    "positions",
    "resume",
    "lists",
    "sync",
    "interest",
)
MAX_MESSAGES = 1_000
MAX_THROTTLES = 10_000
#: Seconds for which the metrics wait for the size of the journal.
USAGE_TIMEOUT = 2.0


class HttpApi:
    def __init__(self, gateway: Gateway, unsent: UnsentAnswers) -> None:
        self._gateway = gateway
        self._unsent = unsent
        self._authenticate = Authentication(gateway).participant
        self._throttles: dict[tuple[str, str], Throttle] = {}
        self.routes = [
            # Monitoring must still work while much is unsent.
            Route("GET", "/health", self.health, patience=math.inf),
            Route("GET", "/ready", self.ready, patience=math.inf),
            Route("GET", "/metrics", self.metrics, patience=2.0),
            Route("GET", "/participants", self.participants),
            Route("GET", "/streams", self.streams),
            Route("POST", "/participants/{id}/messages", self.post_message, body_limit=self._may_post),
            Route("GET", "/participants/{id}/messages", self.get_messages),
        ]

    # -- routes -----------------------------------------------------------------------------------

    def health(self, request: Request) -> Response:
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

    def ready(self, request: Request) -> Response:
        """Whether new participants should be sent here: 503 if not."""
        status = self._gateway.status
        return Response(encode_json({"status": status}), status=200 if status == "ok" else 503)

    async def metrics(self, request: Request) -> Response:
        # A disk that does not answer must not keep the other metrics from being seen.
        await asyncio.wait([self._gateway.spawn(self._gateway.journal_usage.measure())], timeout=USAGE_TIMEOUT)
        self._gateway.publish_metrics()
        return Response(self._gateway.metrics.exposition(), content_type="text/plain; version=0.0.4; charset=utf-8")

    async def participants(self, request: Request) -> Response:
        space, participant = self._authenticate(request)
        state = space.state

        def describe(id: str) -> bytes:
            return encode_json(
                {"id": id, "connected": state.is_connected(id), "capabilities": state.effective_capabilities(id)}
            )

        def page() -> Response:
            ids = {*state.roster, *state.participants}
            limit = entry_limit(request.query.get("limit"))
            found = participant_page(ids, request.query.get("after"), limit, HTTP_PAGE_BYTES, describe)
            return _listing(b"{", "participants", *found)

        request.reservation = self._unsent.reserve_large((space.id, participant), HTTP_PAGE_BYTES)
        return await self._gateway.work.run((space.id, participant), page)

    async def streams(self, request: Request) -> Response:
        """The streams as a welcome describes them, for clients that have not joined."""
        space, participant = self._authenticate(request)
        state = space.state
        with_activity = request.query.get("activity") == "true"

        def describe(stream: Stream) -> bytes:
            activity = {"last_active": rfc3339(stream.last_ts)} if with_activity else {}
            return encode_json({**state.describe_stream(stream), **activity})

        def page() -> Response:
            limit = entry_limit(request.query.get("limit"))
            found = stream_page(
                state,
                request.query.get("after"),
                limit,
                HTTP_PAGE_BYTES,
                describe,
            )
            head = encode_json({"epoch": state.epoch, "seq": state.seq})[:-1] + b","
            return _listing(head, "streams", *found)

        request.reservation = self._unsent.reserve_large((space.id, participant), HTTP_PAGE_BYTES)
        return await self._gateway.work.run((space.id, participant), page)

    def _may_post(self, request: Request) -> int:
        """Authenticate a request before its body is read. Returns how large the body may be."""
        request.caller = space, _ = self._authenticate(request, request.params["id"])
        return space.config.limits.message_bytes

    async def post_message(self, request: Request) -> Response:
        space, participant = request.caller
        body = request.body
        throttle = self._throttle(space, participant)
        throttle.charge(len(body))
        output_log = self._gateway.output_log(space, participant)
        if output_log is not None and not space.state.is_connected(participant):
            refused = space.join(output_log)
            if refused is not None:
                raise HttpError(refused.flaw.http_status, refused.flaw)
        if not is_utf8(body):
            raise ValidationFailed("the body is not UTF-8")

        def post() -> Decision:
            decision: Decision = space.post(participant, body)
            throttle.caused(space.broadcast.caused_bytes)
            return decision

        decision = await self._gateway.work.run((space.id, participant), post)
        # A refusal that was only counted has changed nothing, so there is no record to wait for.
        if decision.is_recorded and not await space.committed():
            raise JournalUnavailable("this was done and cannot be recorded at the moment: ask again with the same id")
        return _answer(space, decision)

    async def get_messages(self, request: Request) -> Response:
        """What was sent since ``since``: a position (``seq``) or an RFC 3339 time."""
        space, participant = self._authenticate(request, request.params["id"])
        _require_presence(space, participant)
        request.reservation = self._unsent.reserve_large((space.id, participant), MAX_PAGE_BYTES)
        since = request.query.get("since", "0")
        if since.isdecimal() and len(since) < 19:
            after = int(since)
        elif (micros := parse_rfc3339(since)) is not None:
            after = await space.replay.position_at(participant, micros)
        else:
            raise ValidationFailed(f"since is {since[:40]!r}, expected a seq or an RFC 3339 time")
        messages, position = await space.messages_since(participant, after, MAX_MESSAGES)
        _require_presence(space, participant)  # it may have been removed meanwhile
        head = encode_json({"epoch": space.state.epoch, "seq": position})[:-1]
        return _listing(head + b",", "messages", messages, None)

    def _throttle(self, space: Space, participant: str) -> Throttle:
        key = (space.id, participant)
        throttle = self._throttles.get(key)
        if throttle is None:
            if len(self._throttles) >= MAX_THROTTLES:
                del self._throttles[next(iter(self._throttles))]
            throttle = self._throttles[key] = space.throttle(participant, None)
        return throttle


def _require_presence(space: Space, participant: str) -> None:
    """Only participants that are present may read messages."""
    if not space.state.is_present(participant):
        raise HttpError(403, Unauthorized("you are not in this space: join it first, messages are for those who are"))


# -- answers --------------------------------------------------------------------------------------


def _answer(space: Space, decision: Decision) -> Response:
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
            if not decision.is_recorded:
                return Response(space.refusals.message(record), status=record.http_status)
            body = render(space.id, space.state.epoch, record)
            assert body is not None
            return Response(body, status=record.http_status)
    return _json(_outcome(space, records))


#: The status of an envelope that changed rights, and the fields of the record that the answer shows.
_OUTCOMES: dict[type[Record], tuple[str, tuple[str, ...]]] = {
    WriteGranted: ("granted", ("authorized_writers",)),
    WriteRevoked: ("revoked", ("authorized_writers",)),
    WriteDenied: ("denied", ()),
    ReadGranted: ("granted", ("authorized_readers",)),
    ReadRevoked: ("revoked", ("authorized_readers",)),
    OwnershipTransferred: ("transferred", ("previous_owner", "new_owner", "authorized_writers")),
}


def _outcome(space: Space, records: list[Record]) -> dict[str, Any]:
    outcome: dict[str, Any] = {}
    for record in records:
        match record:
            case EnvelopeAccepted() | Frame():
                outcome = {"id": record.id, "status": "accepted", "timestamp": rfc3339(record.ts)}
                if isinstance(record, Frame):
                    return outcome
            case StreamReused(request_id=id, stream_id=stream_id, ts=ts):
                opened = {"id": id, "status": "stream_opened", "stream_id": stream_id, "timestamp": rfc3339(ts)}
                return {**opened, "reused": True}
            case StreamOpened(request_id=id, stream_id=stream_id, ts=ts):
                return {"id": id, "status": "stream_opened", "stream_id": stream_id, "timestamp": rfc3339(ts)}
            case Subscribed() | Unsubscribed():
                status = "subscribed" if isinstance(record, Subscribed) else "unsubscribed"
                return {"id": record.request_id, "status": status, "streams": record.streams}
            case Invited():
                return {"id": record.request_id, **space.invitations.answer(record)}
        if isinstance(record, WriteRevoked) and record.replaced_by is not None:
            continue  # the grant that follows is what was asked for
        if type(record) in _OUTCOMES:
            status, shown = _OUTCOMES[type(record)]
            fields = msgspec.structs.asdict(record)
            outcome = {"id": fields["request_id"], "status": status, "stream_id": fields["stream_id"]}
            outcome |= {name: fields[name] for name in shown}
            return outcome | ({"pending": True} if isinstance(record, WriteGranted) and record.pending else {})
    return outcome


def _json(value: Any) -> Response:
    return Response(encode_json(value))


def _listing(head: bytes, name: str, entries: list[bytes], next: str | None) -> Response:
    """``next`` is what the next page comes after."""
    tail = b"]}" if next is None else b'],"next":%b}' % encode_json(next)
    return Response(b'%b"%b":[%b%b' % (head, name.encode(), b",".join(entries), tail))
