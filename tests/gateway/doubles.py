"""Stand-ins for what lies around the parts of a gateway, so that each can be tested without a socket.

The parts themselves are real: a :func:`make_space` is a whole space without a journal, on a loop whose time is ours.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from picows import WSFrame, WSMsgType, WSTransport

from mewstream.gateway.clock import MachineClock
from mewstream.gateway.config import ParticipantConfig, SpaceConfig
from mewstream.gateway.fair_queue import FairQueue
from mewstream.gateway.fanout import Parcel
from mewstream.gateway.metrics import Metrics
from mewstream.gateway.recorder import Recorder
from mewstream.gateway.reference_logs import SpaceLogs
from mewstream.gateway.replay_threads import ReplayThreads
from mewstream.gateway.space import Space
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.decide import Decision
from mewstream.protocol.envelope import parse_envelope
from mewstream.protocol.interest import Interest
from mewstream.protocol.policy import Delivery, Limits, Policies


class ManualLoop:
    """The part of an event loop that calls back, by a clock that stands still unless :meth:`advance` moves it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._calls: list[tuple[float, int, _Call]] = []
        self._numbers = itertools.count()

    @property
    def as_loop(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., None], *arguments: Any) -> _Call:
        call = _Call(callback, arguments)
        heapq.heappush(self._calls, (self.now + delay, next(self._numbers), call))
        return call

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> _Call:
        return self.call_later(0.0, callback, *arguments)

    def advance(self, seconds: float = 0.0) -> None:
        """Everything that falls due meanwhile happens at its time."""
        end = self.now + seconds
        while self._calls and self._calls[0][0] <= end:
            due, _, call = heapq.heappop(self._calls)
            self.now = max(self.now, due)
            call.run()
        self.now = end


class _Call:
    def __init__(self, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._callback = callback
        self._arguments = arguments
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def run(self) -> None:
        if not self.is_cancelled:
            self._callback(*self._arguments)


class FakeMember:
    """A member that keeps what it is sent."""

    transport_name = "websocket"

    def __init__(self, participant: str, *, positions: bool = False, is_reconnect: bool = False) -> None:
        self.participant = participant
        self.connection: int | None = None
        self.session = 0
        self.positions = positions
        self.is_listening = True
        self.is_reconnect = is_reconnect
        self.extensions: list[str] | None = ["positions"] if positions else None
        self.interest: Interest | None = None
        self.parcels: list[Parcel] = []
        self.sent = b""
        self.closed: CloseReason | None = None
        self.held: set[object] = set()

    def push(self, data: bytes, parcels: Sequence[Parcel]) -> None:
        self.sent += data
        self.parcels += parcels

    def ask_for_positions(self) -> None:
        self.positions = True

    def close(self, reason: CloseReason, text: str | None = None) -> None:
        self.closed = reason

    def hold_reading(self, why: object) -> None:
        self.held.add(why)

    def release_reading(self, why: object) -> None:
        self.held.discard(why)

    # -- what it was sent -------------------------------------------------------------------------

    @property
    def bodies(self) -> list[bytes]:
        return [
            body
            for parcel in self.parcels
            for body in (
                parcel.positioned
                if self.positions and parcel.positioned is not None
                else [parcel.head + each for each in parcel.bodies]
            )
        ]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies if body.startswith(b"{")]

    @property
    def kinds(self) -> list[str]:
        return [each["kind"] for each in self.messages]

    @property
    def frames(self) -> list[bytes]:
        return [body for body in self.bodies if body.startswith(b"#")]


class FakeTransport:
    """A transport of asyncio and that of picows around it. ``is_full``: the peer takes nothing, so that everything
    that is written stays in the buffer."""

    def __init__(self) -> None:
        self.written = b""
        self.buffered = 0
        self.is_full = False
        self.is_paused = False
        self.is_closed = False
        self.is_aborted = False
        self.closes: list[tuple[int, bytes]] = []
        self.is_close_frame_sent = False
        self.close_handshake = self
        self.recv: object = None
        self.underlying_transport = self

    @property
    def as_transport(self) -> WSTransport:
        return cast(WSTransport, self)

    def write(self, data: bytes) -> None:
        assert not self.is_close_frame_sent, "nothing may follow a close"
        if self.is_full:
            self.buffered += len(data)
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_extra_info(self, name: str) -> None: ...

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def send_close(self, code: int, reason: bytes) -> None:
        self.closes.append((code, reason))
        self.is_close_frame_sent = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


class FakeFrame:
    """A WebSocket frame, as picows hands it over."""

    def __init__(self, kind: WSMsgType, payload: bytes, *, fin: bool = True, rsv1: bool = False, last: bool = True):
        self.msg_type = kind
        self.fin = fin
        self.rsv1 = rsv1
        self.rsv2 = self.rsv3 = False
        self.last_in_buffer = last
        self._payload = payload

    @property
    def as_frame(self) -> WSFrame:
        return cast(WSFrame, self)

    def get_payload_as_bytes(self) -> bytes:
        return self._payload


def space_settings(
    *people: str, limits: Limits | None = None, policies: Policies | None = None, delivery: Delivery | None = None
) -> SpaceConfig:
    """Everyone may do everything; the token of each is its id."""
    return SpaceConfig(
        id="demo",
        name="demo",
        description="",
        participants={
            each: ParticipantConfig(id=each, tokens=(each,), capabilities=[{"kind": "*"}]) for each in people
        },
        limits=limits or Limits(),
        policies=policies or Policies(),
        delivery=delivery or Delivery(),
        envelope_history=False,
        capability_decisions=False,
        default_capabilities=[],
        source=Path("space.yaml"),
    )


class FailingRecorder(Recorder):
    """Says that it fails, when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.recovered: list[Callable[[], None]] = []

    def on_recovery(self, action: Callable[[], None]) -> None:
        self.recovered.append(action)


def make_space(loop: ManualLoop, *people: str, recorder: Recorder | None = None, **settings: Any) -> Space:
    return Space(
        space_settings(*people, **settings),
        loop=loop.as_loop,
        recorder=recorder or Recorder(),
        recovered=None,
        metrics=Metrics().space("demo"),
        logs=SpaceLogs("demo", None, None),
        threads=ReplayThreads(loop.as_loop),
        mint_token=lambda participant: f"token-of-{participant}",
        forget_token=lambda participant: None,
        connection_url="ws://here",
        work=FairQueue(loop.as_loop),
        clock=MachineClock(),
    )


def joined(space: Space, participant: str, **fields: Any) -> FakeMember:
    member = FakeMember(participant, **fields)
    assert space.join(member) is None
    return member


def say(space: Space, sender: str, kind: str, **payload: Any) -> Decision:
    message = json.dumps({"kind": kind, "payload": payload}).encode()
    return space.envelope(sender, parse_envelope(message, max_id_bytes=128))


def send_frames(space: Space, loop: ManualLoop, member: FakeMember, stream: str, data: Sequence[bytes]) -> None:
    """Text frames that came together, in as many turns of the loop as they take on a busy machine."""
    while data := space.frames(member, stream, data, 1):
        loop.advance()
