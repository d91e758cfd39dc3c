"""The payloads of welcomes. They are large and mostly alike, so the description of each participant and each stream is
encoded once, and again only when it has changed. Their size is bounded: clients fetch the rest page by page."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from mewstream.protocol.envelope import encode_json
from mewstream.protocol.interest import NOTHING
from mewstream.protocol.interest_state import current_interest
from mewstream.protocol.state import SpaceState, Stream


class _Stream(NamedTuple):
    stream: Stream
    last_seq: int
    """Grows with everything that happens to the stream."""
    owner_connected: bool
    encoded: msgspec.Raw
    size: int


class Welcomes:
    """The welcomes of one space."""

    def __init__(self, state: SpaceState) -> None:
        self._state = state
        self._streams: dict[str, _Stream] = {}

    def payload(self, participant: str) -> dict[str, Any]:
        """The payload of a welcome, as :meth:`SpaceState.welcome` makes it. If that would be too large, it has the
        first participants and streams, and the number of all."""
        state = self._state
        # Streams that have ended never take more room than those that are active.
        if len(self._streams) > 2 * len(state.streams):
            self._streams.clear()
        room = state.limits.welcome_bytes
        others = state.descriptions.others(
            participant, state.participants, state.describe_participant, max_bytes=room // 2
        )
        room -= others.size
        streams: list[msgspec.Raw] = []
        for stream in state.streams.values():
            described = self._described(stream)
            room -= described.size
            if room < 0:
                break
            streams.append(described.encoded)
        payload = state.welcome(participant, participants=others.parts, active_streams=streams)
        if state.uses_interest(participant):
            payload["interest"] = (current_interest(state, participant) or NOTHING).as_lists()
        if not others.is_everyone:
            payload["participants_total"] = len(state.participants) - (participant in state.participants)
        if len(streams) < len(state.streams):
            payload["active_streams_total"] = len(state.streams)
        return payload

    def stream(self, stream: Stream) -> bytes:
        """One stream, as a welcome describes it."""
        return bytes(self._described(stream).encoded)

    def _described(self, stream: Stream) -> _Stream:
        connected = self._state.is_connected(stream.owner)
        known = self._streams.get(stream.id)
        if (
            known is None
            or known.stream is not stream
            or known.last_seq != stream.last_seq
            or known.owner_connected is not connected
        ):
            encoded = encode_json(self._state.describe_stream(stream))
            known = _Stream(stream, stream.last_seq, connected, msgspec.Raw(encoded), len(encoded) + 1)
            self._streams[stream.id] = known
        return known
