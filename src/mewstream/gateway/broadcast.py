"""The messages of a space: each record is rendered once, and sent in order to the participants it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mewstream.gateway.fanout import FRAMED, Audience, Outbox, Parcel, push_past_outbox
from mewstream.gateway.membership import Member, Membership
from mewstream.gateway.reference_logs import SpaceLogs
from mewstream.gateway.replay import Replayed, chunks
from mewstream.gateway.welcomes import Welcomes
from mewstream.protocol import frames, kinds
from mewstream.protocol.identifiers import gateway_message_id
from mewstream.protocol.records import EnvelopeAccepted, Frame, FrameBlock, Record
from mewstream.protocol.render import excluded_from, gateway_envelope, needs_extensions, private_to, render, with_seq
from mewstream.protocol.state import SpaceState


class Sink(Protocol):
    """Takes messages in order: an outbox, or what stands in its place to measure it."""

    def add(self, parcel: Parcel) -> None: ...


class Broadcast:
    def __init__(
        self,
        state: SpaceState,
        members: Membership,
        outbox: Outbox,
        logs: SpaceLogs,
        on_welcome: Callable[[int], None],
    ) -> None:
        """``on_welcome`` is called with the size of each welcome."""
        self._state = state
        self._members = members
        self.outbox: Sink = outbox
        self._logs = logs
        self._on_welcome = on_welcome
        self.welcomes = Welcomes(state)
        self.caused_bytes = 0
        """Bytes of messages that the last command caused, beyond the message that it was."""

    # -- records ----------------------------------------------------------------------------------

    def frames(self, block: FrameBlock, data_bytes: int) -> None:
        """Send frames to the readers of their stream. ``data_bytes`` is the size of all their data."""
        stream = self._state.streams[block.stream_id]
        audience = self._members.readers_of(stream)
        if not audience.size:
            return
        positioned = None
        if audience.wants_positions:
            positioned = frames.frames_with_positions(stream.id, block.seq, block.sender, block.data)
        self.outbox.add(
            Parcel(  # positional: with keywords it takes a fifth longer
                audience,
                block.opcode,
                block.data,
                positioned,
                block.seq,
                stream.id,
                block.sender,
                stream.policy.on_slow,
                b"#%b#" % stream.id.encode(),
                data_bytes,
                block.ts,
            )
        )

    def data(self, record: Frame) -> None:
        """Send a ``stream/data`` envelope to the readers of its stream."""
        stream = self._state.streams[record.stream_id]
        audience = self._members.readers_of(stream)
        if not audience.size:
            return
        self.outbox.add(
            Parcel(
                audience,
                record.opcode,
                [record.data],
                [with_seq(record.data, record.seq)] if audience.wants_positions else None,
                record.seq,
                stream=stream.id,
                sender=record.sender,
                on_slow=stream.policy.on_slow,
            )
        )

    def record(self, record: Record) -> None:
        """Send the message of any other record, to everyone or to the one participant it is for."""
        body = render(self._state.id, self._state.epoch, record)
        if body is None:
            return
        if not isinstance(record, EnvelopeAccepted):
            self.caused_bytes += len(body)
        private = private_to(record)
        if private is not None:
            member = self._members.get(private)
            if member is not None:
                self.send(member, body, record.seq)
            return
        excluded = self._members.get(excluded_from(record))
        if needs_extensions(record):
            audience = self._members.knowing_extensions()
        elif excluded is None:
            audience = self._members.everyone
        else:
            audience = self._members.everyone_but(excluded)
        if audience.size:
            self._add(audience, body, record.seq)
        if self._logs.enabled:
            for member in self._members:
                if member is not excluded and (member.extensions is not None or not needs_extensions(record)):
                    self._logs.delivered(member.participant, member.transport_name, body, record, record.ts)

    # -- one member -------------------------------------------------------------------------------

    def send(self, member: Member, body: bytes, seq: int, *, is_secret: bool = False) -> None:
        """Send a message to one member, in order with all others. ``is_secret``: it holds a token, so that it must not
        be in any log."""
        self._add(Audience((member,)), body, seq)
        if self._logs.enabled and not is_secret:
            self._logs.delivered(member.participant, member.transport_name, body, None, self._state.ts)

    def send_unrecorded(self, member: Member, body: bytes, seq: int, *, overtakes: bool = False) -> None:
        """Send a message without a position, because it has no record. ``overtakes``: it does not wait in the outbox
        for the journal."""
        if overtakes:
            push_past_outbox(member, body, seq)
        else:
            self.outbox.add(Parcel(Audience((member,)), frames.TEXT, [body], None, seq))

    def welcome(self, member: Member, resume: dict[str, Any] | None = None) -> None:
        """Send the state of the space at the current ``seq``. ``resume`` is the answer to a request to resume."""
        state = self._state
        payload = self.welcomes.payload(member.participant)
        if member.positions:
            payload["limits"] = {"message_bytes": state.limits.message_bytes}
        if resume is not None:
            payload["resume"] = resume
        body = gateway_envelope(
            kinds.WELCOME,
            payload,
            id=f"{gateway_message_id(state.epoch, state.seq)}-welcome",
            ts=state.ts,
            to=[member.participant],
        )
        self.caused_bytes += len(body)
        self._on_welcome(len(body))
        self.send(member, body, state.seq)

    def replay(self, member: Member, messages: list[Replayed]) -> None:
        audience = Audience((member,))
        for framed, last_seq in chunks(messages):
            self.outbox.add(Parcel(audience, FRAMED, [framed], None, last_seq))

    def _add(self, audience: Audience, body: bytes, seq: int) -> None:
        positioned = [with_seq(body, seq)] if audience.wants_positions else None
        self.outbox.add(Parcel(audience, frames.TEXT, [body], positioned, seq))
