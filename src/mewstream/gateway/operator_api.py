"""The part of the HTTP API for those who run or watch a gateway, such as the console: figures, refusals, spaces."""

from __future__ import annotations

from pathlib import Path

from mewstream.gateway.figures import Figures
from mewstream.gateway.gateway import Gateway
from mewstream.gateway.http_authentication import Authentication
from mewstream.gateway.http_message import Request, Response
from mewstream.gateway.http_routes import Route
from mewstream.gateway.listing import entry_limit
from mewstream.protocol import kinds
from mewstream.protocol.envelope import encode_json
from mewstream.protocol.errors import ValidationFailed
from mewstream.protocol.records import Refused
from mewstream.protocol.times import rfc3339

#: The description of the whole HTTP API, for people and for programs.
OPENAPI = Path(__file__).with_name("openapi.json")


class OperatorApi:
    def __init__(self, gateway: Gateway) -> None:
        self._authentication = Authentication(gateway)
        self._figures = Figures(gateway)
        self._openapi = OPENAPI.read_bytes()
        self.routes = [
            Route("GET", "/spaces", self.spaces),
            Route("GET", "/gateway", self.figures),
            Route("GET", "/refusals", self.refusals),
            Route("GET", "/openapi.json", self.openapi),
        ]

    def spaces(self, request: Request) -> Response:
        """The spaces that the token of the request is good for, so that nobody has to know their names."""
        found = [
            {
                "id": space.id,
                "name": space.config.name,
                "description": space.config.description,
                "participant": participant,
            }
            for space, participant in self._authentication.everywhere(request)
        ]
        return Response(encode_json({"spaces": found}))

    async def figures(self, request: Request) -> Response:
        self._authentication.holder(request, kinds.GATEWAY_OBSERVE)
        return Response(encode_json(await self._figures.current()))

    def refusals(self, request: Request) -> Response:
        """What was refused in the space lately. Nobody but the sender is told of a refusal otherwise."""
        space, _ = self._authentication.holder(request, kinds.GATEWAY_OBSERVE)
        after = request.query.get("after", "0")
        if not (after.isascii() and after.isdecimal() and len(after) < 19):
            raise ValidationFailed(f"after is {after[:40]!r}, expected a seq", field="after")
        limit = entry_limit(request.query.get("limit"))
        newer = [refused for refused in space.refusals.recent if refused.seq > int(after)]
        answer = {
            "epoch": space.state.epoch,
            "seq": space.state.seq,
            "refusals": [_refusal(each) for each in newer[-limit:]],
        }
        return Response(encode_json(answer))

    def openapi(self, request: Request) -> Response:
        return Response(self._openapi)


def _refusal(refused: Refused) -> dict[str, object]:
    described: dict[str, object] = {
        "seq": refused.seq,
        "ts": rfc3339(refused.ts),
        "participant": refused.sender,
        "kind": refused.kind,
        "error": refused.code,
        "message": refused.message,
        "count": refused.count,
    }
    if refused.stream_id is not None:
        described["stream_id"] = refused.stream_id
    return described
