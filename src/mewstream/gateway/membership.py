"""The members of a space: its connected participants, and the audiences of messages.

A participant has at most one connection: a second one replaces the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Protocol

from mewstream.gateway.fanout import Audience, Endpoint
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.envelope import Envelope
from mewstream.protocol.interest import Interest
from mewstream.protocol.state import SpaceState, Stream


class Member(Endpoint, Protocol):
    """An endpoint by which a participant has joined: a WebSocket, or an output log."""

    participant: str
    connection: int | None
    """The number of the WebSocket in this run of the gateway; None for an output log."""
    session: int
    """The seq of its join."""
    transport_name: str
    is_listening: bool
    """False if everything that is sent to it would be lost."""
    is_reconnect: bool
    """It has joined with a position, so that the connection it replaces was an earlier one of the same client."""
    extensions: list[str] | None
    """What its client asked for beyond v0.4. None: it sent no extensions."""

    @property
    def interest(self) -> Interest | None:
        """What it subscribes to as it joins. None: it does not say."""

    def ask_for_positions(self) -> None: ...

    def read_history(self, envelope: Envelope, stream_id: str) -> None: ...

    def close(self, reason: CloseReason, text: str | None = None) -> None: ...

    def hold_reading(self, why: object) -> None: ...

    def release_reading(self, why: object) -> None: ...


class Membership:
    """The members of one space, and the audiences that are made of them.

    Audiences are kept from one message to the next: the fan-out is cheap for messages with the same audience object."""

    def __init__(self, state: SpaceState) -> None:
        self._state = state
        self._members: dict[str, Member] = {}
        self.everyone = Audience()
        self._unchoosing = Audience()
        """Everyone whose client does not use interest."""
        self._readers: dict[str, tuple[int, int, Audience, Audience]] = {}
        """For each stream with a reader set, or of which not everyone wants the frames: the versions of its rights and
        of its listeners, the audience that its own was made from, and that."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def get(self, participant: str | None) -> Member | None:
        return self._members.get(participant) if participant is not None else None

    def is_current(self, member: Member) -> bool:
        """Whether this connection is still its participant's: neither replaced nor removed."""
        return self._members.get(member.participant) is member

    def add(self, member: Member) -> Member | None:
        """Add a connection. Returns the one of the same participant that it replaces."""
        replaced = self._members.get(member.participant)
        self._members[member.participant] = member
        if replaced is not None:
            self.refresh()
        elif member.is_listening:
            self.everyone = self.everyone.grown(member)
            if member.participant not in self._state.audiences.choosing:
                self._unchoosing = self._unchoosing.grown(member)
        return replaced

    def remove(self, member: Member) -> None:
        del self._members[member.participant]
        self._readers.clear()
        self.refresh()

    def refresh(self) -> None:
        """Rebuild the audience of everyone, for instance because a member now asks for positions."""
        self.everyone = self._listening()
        choosing = self._state.audiences.choosing
        self._unchoosing = Audience(
            each for each in self._members.values() if each.is_listening and each.participant not in choosing
        )

    def everyone_but(self, member: Member) -> Audience:
        return self._listening(but=member)

    def knowing_extensions(self) -> Audience:
        """Those whose clients know more than v0.4."""
        return Audience(each for each in self._members.values() if each.is_listening and each.extensions is not None)

    def readers_of(self, stream: Stream) -> Audience:
        """The connections that get the frames of a stream: of its readers those that are interested."""
        audiences = self._state.audiences
        if stream.readers is not None:
            base = self.everyone
        elif audiences.choosing:
            base = self._unchoosing
        else:
            return self.everyone
        version = audiences.version(stream.id)
        known = self._readers.get(stream.id)
        if known is not None and known[0] == stream.version and known[1] == version and known[2] is base:
            return known[3]
        audience = self._audience(stream, base)
        self._readers[stream.id] = (stream.version, version, base, audience)
        return audience

    def _audience(self, stream: Stream, base: Audience) -> Audience:
        if stream.readers is not None:
            return Audience(
                self._members[reader] for reader in self._state.recipients(stream) if reader in self._members
            )
        listeners = self._state.audiences.listeners.get(stream.id)
        if not listeners:
            return base
        members = (self._members[each] for each in listeners if each in self._members)
        return Audience(itertools.chain(base, (each for each in members if each.is_listening)))

    def forget_stream(self, stream_id: str) -> None:
        """Drop the readers of a stream that has ended."""
        self._readers.pop(stream_id, None)

    def _listening(self, but: Member | None = None) -> Audience:
        return Audience(each for each in self._members.values() if each.is_listening and each is not but)
