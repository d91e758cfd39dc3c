"""Welcomes are large and mostly alike: what they say of each participant and each stream is encoded once, and again
when that has changed."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from mewstream.protocol.envelope import encode_json
from mewstream.protocol.state import SpaceState, Stream


class _Stream(NamedTuple):
    stream: Stream
    last_seq: int
    """Grows with whatever happens to the stream."""
    owner_connected: bool
    encoded: msgspec.Raw


class Welcomes:
    """Of one space."""

    def __init__(self, state: SpaceState) -> None:
        self._state = state
        self._streams: dict[str, _Stream] = {}

    def payload(self, participant: str) -> dict[str, Any]:
        """What :meth:`SpaceState.welcome` says, to be encoded."""
        state = self._state
        # Of those that have ended, never more is kept than of those that are here.
        if len(self._streams) > 2 * len(state.streams):
            self._streams.clear()
        others = state.descriptions.others(participant, state.participants, state.describe_participant)
        return state.welcome(participant, participants=others, described_stream=self._stream)

    def _stream(self, stream: Stream) -> msgspec.Raw:
        connected = self._state.is_connected(stream.owner)
        known = self._streams.get(stream.id)
        if (
            known is None
            or known.stream is not stream
            or known.last_seq != stream.last_seq
            or known.owner_connected is not connected
        ):
            encoded = msgspec.Raw(encode_json(self._state.describe_stream(stream)))
            known = _Stream(stream, stream.last_seq, connected, encoded)
            self._streams[stream.id] = known
        return known.encoded
