"""Fan-out: what a space sends in one tick of the event loop, as one ordered list.

A message is encoded once and its recipients are fixed when it is decided. At the end of the tick
the bytes are built once for each distinct set of recipients, in order, and every connection of
that set is handed the same bytes object: one write per connection and tick. Control messages are
in the same list as frames, so nothing overtakes anything.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from mewstream.gateway.wsframes import MAX_HEADER, header
from mewstream.protocol import frames
from mewstream.protocol.records import FrameBlock

log = logging.getLogger("mewstream.gateway")

#: So many times as much of control messages as of frames may be put together in a tick.
_CONTROL_TOGETHER = 16
#: And of those that are for one alone. In a storm of joins these are long welcomes, and what comes between them
#: is for everyone: the more welcomes there are in a tick, the fewer times everyone is written to.
_PRIVATE_TOGETHER = 256
#: In place of an opcode: the body is whole WebSocket messages already, each with its header.
FRAMED = 0


class Parcel:
    """One message for one audience. ``stream`` None marks a control message: never dropped."""

    __slots__ = ("audience", "body", "on_slow", "opcode", "position", "sender", "seq", "size", "stream")

    def __init__(
        self,
        audience: Audience,
        opcode: int,
        body: bytes,
        position: bytes | None,
        seq: int,
        stream: str | None = None,
        sender: str | None = None,
        on_slow: str = "",
    ) -> None:
        self.audience = audience
        self.opcode = opcode
        self.body = body
        self.position = position
        """What those get who asked for positions; None: the same as everyone."""
        self.seq = seq
        self.stream = stream
        self.sender = sender
        self.on_slow = on_slow
        self.size = len(body) + MAX_HEADER

    @property
    def count(self) -> int:
        """How many messages it holds."""
        return 1

    @property
    def last_seq(self) -> int:
        return self.seq

    def each(self) -> Sequence[Parcel]:
        """Message by message."""
        return (self,)

    def pieces(self, positions: bool) -> tuple[bytes, bytes]:
        """The WebSocket header and the message."""
        if self.opcode == FRAMED:
            return b"", self.body
        body = self.position if positions and self.position is not None else self.body
        return header(self.opcode, len(body)), body


class FrameParcel(Parcel):
    """Raw frames that were accepted together."""

    __slots__ = ("_block", "_bodies", "_built")

    def __init__(self, audience: Audience, block: FrameBlock, bodies: Sequence[bytes], size: int, on_slow: str) -> None:
        super().__init__(audience, block.opcode, b"", None, block.seq, block.stream_id, block.sender, on_slow)
        self.size = size + len(bodies) * MAX_HEADER
        self._block = block
        self._bodies = bodies
        self._built: dict[bool, bytes] = {}

    @property
    def count(self) -> int:
        return len(self._block)

    @property
    def last_seq(self) -> int:
        return self._block.last_seq

    def each(self) -> Sequence[Parcel]:
        with_positions = self._with_positions() if self.audience.wants_positions else itertools.repeat(None)
        return [
            Parcel(self.audience, self.opcode, body, position, seq, self.stream, self.sender, self.on_slow)
            for seq, body, position in zip(itertools.count(self.seq), self._bodies, with_positions, strict=False)
        ]

    def pieces(self, positions: bool) -> tuple[bytes, bytes]:
        # Connections that are behind ask for it one by one: it is built once for all of them.
        built = self._built.get(positions)
        if built is None:
            built = _framed(self.opcode, self._with_positions() if positions else self._bodies)
            self._built[positions] = built
        return b"", built

    def _with_positions(self) -> Sequence[bytes]:
        block = self._block
        return frames.frames_with_positions(block.stream_id, block.seq, block.sender, block.data)


def _framed(opcode: int, bodies: Sequence[bytes]) -> bytes:
    """Each body with its header. Bodies of a run are often of one size, and then share a header."""
    size = len(bodies[0])
    if all(len(body) == size for body in bodies):
        common = header(opcode, size)
        return common + common.join(bodies)
    return b"".join([part for body in bodies for part in (header(opcode, len(body)), body)])


class Endpoint(Protocol):
    """Somewhere a participant's messages go: a WebSocket, or the output log of an absent one."""

    @property
    def positions(self) -> bool: ...

    def push(self, data: bytes, parcels: Sequence[Parcel]) -> None:
        """Take what one tick has for this endpoint: as bytes for a socket, and one by one."""
        ...


class Part(NamedTuple):
    """Endpoints that have asked for the same: the first ``size`` of a list."""

    positions: bool
    shared: list[Endpoint]
    size: int


class Audience:
    """A fixed set of endpoints, parted by what they asked for.

    One that has grown out of another shares its lists. So it costs nothing to keep the one of everyone while many
    join, and what is told to some of these in a tick is put together for all who were there before as for one."""

    __slots__ = ("parts", "size", "wants_positions")

    def __init__(self, endpoints: Iterable[Endpoint] = ()) -> None:
        plain: list[Endpoint] = []
        positioned: list[Endpoint] = []
        for endpoint in endpoints:
            (positioned if endpoint.positions else plain).append(endpoint)
        self.wants_positions = bool(positioned)
        self.size = len(plain) + len(positioned)
        self.parts = (Part(False, plain, len(plain)), Part(True, positioned, len(positioned)))

    def grown(self, endpoint: Endpoint) -> Audience:
        """The same and one more."""
        audience = Audience()
        audience.parts = (
            self.parts[0] if endpoint.positions else _grown(self.parts[0], endpoint),
            _grown(self.parts[1], endpoint) if endpoint.positions else self.parts[1],
        )
        audience.size = self.size + 1
        audience.wants_positions = self.wants_positions or endpoint.positions
        return audience

    def __bool__(self) -> bool:
        return self.size > 0


def _grown(part: Part, endpoint: Endpoint) -> Part:
    # Another has grown out of it already: that one has the list.
    shared = part.shared if part.size == len(part.shared) else part.shared[: part.size]
    shared.append(endpoint)
    return Part(part.positions, shared, part.size + 1)


Gate = Callable[[Callable[[], None]], None]
"""Calls back, now or later, when all that was recorded before is as safe as was asked for."""


class Outbox:
    """The ordered list of one space. Not bounded by itself: it is empty after every tick, or waits
    for the journal, which lets nothing new happen while it cannot be written.

    A control message is told to nobody before it is recorded, and whatever comes after it in the
    space waits behind it, so that order holds."""

    __slots__ = (
        "_asking",
        "_control",
        "_flush_bytes",
        "_gate",
        "_held",
        "_loop",
        "_mixed",
        "_parcels",
        "_scheduled",
        "_size",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, flush_bytes: int, gate: Gate) -> None:
        self._loop = loop
        self._flush_bytes = flush_bytes
        self._gate = gate
        self._control = False
        self._asking = False
        self._held: deque[tuple[bool, Callable[[], None]]] = deque()
        """What waits for the journal, in order; True for ticks that have control messages."""
        self._parcels: list[Parcel] = []
        self._size = 0
        self._mixed = False
        self._scheduled = False

    def add(self, parcel: Parcel) -> None:
        parcels = self._parcels
        if parcels and parcel.audience is not parcels[-1].audience:
            self._mixed = True
        if parcel.stream is None:
            self._control = True
        parcels.append(parcel)
        if parcel.stream is not None:
            self._size += parcel.size
        else:  # it waits for the journal, and many in one tick wait for it together
            self._size += parcel.size // (_CONTROL_TOGETHER if parcel.audience.size > 1 else _PRIVATE_TOGETHER)
        if self._size >= self._flush_bytes:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Hand everything over now."""
        parcels = self._parcels
        if not parcels:
            return
        mixed, control = self._mixed, self._control
        self._parcels = []
        self._size = 0
        self._mixed = self._control = False
        self._pass_gate(control, partial(_distribute, parcels, mixed))

    def then(self, action: Callable[[], None]) -> None:
        """Do something when everything before it has been handed over."""
        self.flush()
        self._pass_gate(False, action)

    def when_recorded(self, action: Callable[[], None]) -> None:
        """The same, and not before everything that has happened so far is recorded."""
        self.flush()
        self._pass_gate(True, action)

    def _pass_gate(self, control: bool, action: Callable[[], None]) -> None:
        if not control and not self._held:
            action()
            return
        self._held.append((control, action))
        if not self._asking:
            self._ask()

    def _ask(self) -> None:
        """Ask the gate for all that waits now: one answer is good for all of it."""
        self._asking = True
        while self._held:
            covered = len(self._held)
            answer = _Answer()
            self._gate(partial(self._opened, answer, covered))
            if not answer.given:
                answer.late = True
                return
            self._release(covered)
        self._asking = False

    def _opened(self, answer: _Answer, covered: int) -> None:
        answer.given = True
        if answer.late:
            self._release(covered)
            self._ask()

    def _release(self, covered: int) -> None:
        """What was asked for goes, and whatever follows it without control messages."""
        while self._held and (covered > 0 or not self._held[0][0]):
            covered -= 1
            _, action = self._held.popleft()
            try:
                action()
            except Exception:
                # One that cannot be told must not keep the others waiting for ever.
                log.exception("an error of our own in a fan-out")


class _Answer:
    """Whether a gate has called back, and whether that was after it had returned."""

    __slots__ = ("given", "late")

    def __init__(self) -> None:
        self.given = False
        self.late = False


def _distribute(parcels: list[Parcel], mixed: bool) -> None:
    if mixed:
        for positions, members, theirs in _by_members(parcels):
            _hand_over(positions, members, theirs)
    else:
        for positions, shared, size in parcels[0].audience.parts:
            if size:
                _hand_over(positions, shared[:size], parcels)


def _hand_over(positions: bool, members: Sequence[Endpoint], parcels: Sequence[Parcel]) -> None:
    """``positions`` is what the members had asked for when the parcels were made."""
    pieces: list[bytes] = []
    for parcel in parcels:
        pieces += parcel.pieces(positions)
    data = b"".join(pieces)
    for member in members:
        member.push(data, parcels)


def _by_members(parcels: list[Parcel]) -> list[tuple[bool, list[Endpoint], list[Parcel]]]:
    """Endpoints that get the same messages, and those messages in order.

    Each distinct audience of the tick is a bit; endpoints with the same bits share their bytes.
    """
    bits: dict[int, int] = {}
    lists: dict[int, tuple[Part, dict[int, int]]] = {}
    for parcel in parcels:
        key = id(parcel.audience)
        if key not in bits:
            bits[key] = 1 << len(bits)
            for part in parcel.audience.parts:
                _, sizes = lists.setdefault(id(part.shared), (part, {}))
                sizes[part.size] = sizes.get(part.size, 0) | bits[key]
    belongs: dict[tuple[Endpoint, bool], int] = {}
    for (positions, shared, _), sizes in lists.values():
        common = 0
        # From the end: who is among the first so many is among any more of them too.
        for size, smaller in itertools.pairwise((*sorted(sizes, reverse=True), 0)):
            common |= sizes[size]
            for member in shared[smaller:size]:
                belongs[member, positions] = belongs.get((member, positions), 0) | common
    groups: dict[tuple[int, bool], list[Endpoint]] = {}
    for (member, positions), signature in belongs.items():
        groups.setdefault((signature, positions), []).append(member)
    return [
        (positions, members, [parcel for parcel in parcels if bits[id(parcel.audience)] & signature])
        for (signature, positions), members in groups.items()
    ]
