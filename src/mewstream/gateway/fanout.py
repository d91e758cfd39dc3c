"""Fan-out: what a space sends in one turn of the event loop, as one ordered list.

A message is encoded once and its recipients are fixed when it is decided. At the end of the turn
the bytes are built once for each distinct set of recipients, in order, and every connection of
that set is handed the same bytes object: one write per connection and turn. Control messages are
in the same list as frames, so nothing overtakes anything.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from mewstream.gateway.wsframes import MAX_HEADER, header
from mewstream.io.log_lines import event
from mewstream.protocol.frames import TEXT

log = logging.getLogger("mewstream.gateway")

#: How many times more bytes of control messages than of frames may be collected in a turn.
_CONTROL_TOGETHER = 16
#: The same for messages to one member. When many join at once these are long welcomes, with messages for everyone
#: between them: the more welcomes fit into a turn, the fewer writes everyone gets.
_PRIVATE_TOGETHER = 256
#: In place of an opcode: the body consists of whole WebSocket messages, with their headers.
FRAMED = 0


class Parcel(msgspec.Struct, eq=False):
    """Messages for one audience that are delivered together: raw frames of one stream, or one control message."""

    audience: Audience
    opcode: int
    bodies: Sequence[bytes]
    positioned: Sequence[bytes] | None
    """Whole messages for clients that asked for positions, or None if everyone gets the same."""
    seq: int
    """The position of the first message. Those of the others count up from it."""
    stream: str | None = None
    """None for a control message, which is never dropped."""
    sender: str | None = None
    on_slow: str = ""
    head: bytes = b""
    """What each message begins with: ``#<stream_id>#`` for raw frames, whose bodies are their data."""
    body_bytes: int | None = None
    """The size of all bodies, if the caller knows it."""
    built: dict[bool, bytes] | None = None
    """What :meth:`pieces` has built for several messages, by whether it has positions."""

    @property
    def size(self) -> int:
        """An upper bound of its bytes on the wire."""
        size = sum(map(len, self.bodies)) if self.body_bytes is None else self.body_bytes
        return size + len(self.bodies) * (len(self.head) + MAX_HEADER)

    @property
    def count(self) -> int:
        """How many messages it holds."""
        return len(self.bodies)

    @property
    def last_seq(self) -> int:
        return self.seq + len(self.bodies) - 1

    def each(self) -> Sequence[Parcel]:
        """The same messages as parcels of one."""
        if len(self.bodies) == 1:
            return (self,)
        positioned = self.positioned or ()
        return [
            Parcel(
                self.audience,
                self.opcode,
                (body,),
                positioned[place : place + 1] or None,
                self.seq + place,
                self.stream,
                self.sender,
                self.on_slow,
                self.head,
            )
            for place, body in enumerate(self.bodies)
        ]

    def pieces(self, positions: bool) -> tuple[bytes, bytes]:
        """What is written to a socket, in two pieces so that a single long message is not copied."""
        head, bodies = self.head, self.bodies
        if positions and self.positioned is not None:
            head, bodies = b"", self.positioned
        if len(bodies) == 1:
            return b"" if self.opcode == FRAMED else header(self.opcode, len(head) + len(bodies[0])) + head, bodies[0]
        # Connections that are behind ask for it one by one: it is built once for all of them.
        if self.built is None:
            self.built = {}
        if positions not in self.built:
            self.built[positions] = _framed(self.opcode, head, bodies)
        return b"", self.built[positions]


def _framed(opcode: int, head: bytes, bodies: Sequence[bytes]) -> bytes:
    """Each body behind its WebSocket header and ``head``, which are the same for bodies of one size."""
    size = len(bodies[0])
    if all(len(body) == size for body in bodies):
        common = header(opcode, len(head) + size) + head
        return common + common.join(bodies)
    return b"".join([part for body in bodies for part in (header(opcode, len(head) + len(body)), head, body)])


class Endpoint(Protocol):
    """Somewhere a participant's messages go: a WebSocket, or the output log of an absent one."""

    @property
    def positions(self) -> bool: ...

    def push(self, data: bytes, parcels: Sequence[Parcel]) -> None:
        """Take the messages of one turn: as bytes for a socket, and as the parcels that they were made of."""
        ...


class Part(NamedTuple):
    """Endpoints that get the same form of messages: the first ``size`` of a list."""

    positions: bool
    shared: list[Endpoint]
    size: int


class Audience:
    """A fixed set of endpoints, in two parts: those that asked for positions and those that did not.

    An audience that has grown out of another shares its lists. So it costs nothing to have a new one of everyone with
    each join, and the bytes for several of them in a turn are built once for all members that they have in common."""

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
        """The same audience with one endpoint more."""
        audience = Audience()
        audience.parts = (
            self.parts[0] if endpoint.positions else _grown(self.parts[0], endpoint),
            _grown(self.parts[1], endpoint) if endpoint.positions else self.parts[1],
        )
        audience.size = self.size + 1
        audience.wants_positions = self.wants_positions or endpoint.positions
        return audience

    def __iter__(self) -> Iterator[Endpoint]:
        return itertools.chain.from_iterable(part.shared[: part.size] for part in self.parts)

    def __bool__(self) -> bool:
        return self.size > 0


def _grown(part: Part, endpoint: Endpoint) -> Part:
    # Another audience has grown out of this one already, and has appended to the list.
    shared = part.shared if part.size == len(part.shared) else part.shared[: part.size]
    shared.append(endpoint)
    return Part(part.positions, shared, part.size + 1)


def push_past_outbox(endpoint: Endpoint, body: bytes, seq: int = 0) -> None:
    """Send one control message now, whatever waits in an outbox."""
    parcel = Parcel(Audience((endpoint,)), TEXT, [body], None, seq)
    endpoint.push(b"".join(parcel.pieces(False)), [parcel])


Gate = Callable[[Callable[[], None]], None]
"""Calls back, now or later, when everything that was recorded before is as durable as was asked for."""


class Outbox:
    """The messages of one space, in order, until they are handed to their endpoints at the end of a turn.

    No control message is sent before it is recorded, and everything after it in the space waits behind it, so that
    order holds. The outbox needs no bound: it is empty after every turn, or waits for the journal, and while that
    cannot be written nothing new happens."""

    __slots__ = (
        *("_flush_bytes", "_gate", "_has_control", "_held", "_awaits_commit", "_is_mixed", "_is_scheduled", "_loop"),
        *("_parcels", "_size"),
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, flush_bytes: int, gate: Gate) -> None:
        self._loop = loop
        self._flush_bytes = flush_bytes
        self._gate = gate
        self._awaits_commit = False
        """The gate was asked and has not answered yet."""
        self._held: deque[tuple[bool, Callable[[], None]]] = deque()
        """What waits for the journal, in order: whether it has control messages, and what to do."""
        self._parcels: list[Parcel] = []
        self._size = 0
        self._has_control = False
        self._is_mixed = False
        """The parcels are not all for the same audience."""
        self._is_scheduled = False

    def add(self, parcel: Parcel) -> None:
        parcels = self._parcels
        if parcels and parcel.audience is not parcels[-1].audience:
            self._is_mixed = True
        parcels.append(parcel)
        if parcel.stream is not None:
            self._size += parcel.size
        else:  # it waits for the journal, and one wait is enough for all of a turn
            self._has_control = True
            self._size += parcel.size // (_CONTROL_TOGETHER if parcel.audience.size > 1 else _PRIVATE_TOGETHER)
        if self._size >= self._flush_bytes:
            self.flush()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hand everything over now."""
        self._is_scheduled = False
        parcels = self._parcels
        if not parcels:
            return
        is_mixed, has_control = self._is_mixed, self._has_control
        self._parcels = []
        self._size = 0
        self._is_mixed = self._has_control = False
        self._pass_gate(has_control, partial(_distribute, parcels, is_mixed))

    def then(self, action: Callable[[], None]) -> None:
        """Call ``action`` when everything before it has been handed over."""
        self.flush()
        self._pass_gate(False, action)

    def when_recorded(self, action: Callable[[], None]) -> None:
        """The same, and not before everything that has happened so far is recorded."""
        self.flush()
        self._pass_gate(True, action)

    def _pass_gate(self, has_control: bool, action: Callable[[], None]) -> None:
        if not has_control and not self._held:
            action()
            return
        self._held.append((has_control, action))
        if not self._awaits_commit:
            self._opened(0)

    def _opened(self, covered: int) -> None:
        """Do what an answer of the gate covers, and whatever follows it without control messages. Then ask once for
        everything that waits."""
        while self._held and (covered > 0 or not self._held[0][0]):
            covered -= 1
            _, action = self._held.popleft()
            try:
                action()
            except Exception:
                # An endpoint that fails must not keep the others waiting for ever.
                log.exception("internal error in a fan-out", extra=event("internal_error"))
        self._awaits_commit = bool(self._held)
        if self._held:
            self._gate(partial(self._opened, len(self._held)))


def _distribute(parcels: list[Parcel], is_mixed: bool) -> None:
    if is_mixed:
        for positions, members, theirs in _by_members(parcels):
            _hand_over(positions, members, theirs)
    else:
        for positions, shared, size in parcels[0].audience.parts:
            if size:
                _hand_over(positions, shared[:size], parcels)


def _hand_over(positions: bool, members: Sequence[Endpoint], parcels: Sequence[Parcel]) -> None:
    """``positions`` says which form the members get; they may have asked for another since."""
    pieces: list[bytes] = []
    for parcel in parcels:
        pieces += parcel.pieces(positions)
    data = b"".join(pieces)
    for member in members:
        member.push(data, parcels)


def _by_members(parcels: list[Parcel]) -> list[tuple[bool, list[Endpoint], list[Parcel]]]:
    """Endpoints that get the same messages, and those messages in order.

    Each distinct audience of the turn is a bit; endpoints with the same bits share their bytes. If one message is for
    Alice and Bob (bit 1) and one for Bob and Carol (bit 2), then Alice has 1, Bob 3 and Carol 2: three groups, of which
    Bob's gets both messages.
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
        # From the longest to the shortest: a member of a short prefix is also in every longer one.
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
