"""Frames that were sent with an id, whose sender waits to hear that they were not refused."""

from __future__ import annotations

from mewstream.client.errors import refusal
from mewstream.client.messages import Message
from mewstream.protocol import kinds
from mewstream.protocol.errors import PeerError


class Verdict:
    """What is known of one frame."""

    refusal: PeerError | None = None

    def raise_if_refused(self) -> None:
        """Raise the error with which the frame was refused, if it was."""
        if self.refusal is not None:
            raise self.refusal


class Confirmed:
    """The frames whose senders wait, by their ids."""

    def __init__(self) -> None:
        self._expected: dict[str, Verdict] = {}

    def expect(self, id: str) -> Verdict:
        """Wait for a refusal of the frame with this id."""
        verdict = self._expected[id] = Verdict()
        return verdict

    def forget(self, id: str) -> None:
        self._expected.pop(id, None)

    def received(self, message: Message) -> bool:
        """Note what an error refuses, which may be several frames. Returns whether that was all it refuses."""
        if message.kind != kinds.ERROR or not message.is_from_gateway or not message.correlation_id:
            return False
        expected = [self._expected[id] for id in message.correlation_id if id in self._expected]
        for verdict in expected:
            verdict.refusal = refusal(message.payload)
        return len(expected) == len(message.correlation_id)
