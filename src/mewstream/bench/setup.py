"""Joining the participants of a measurement, and waiting until the space is quiet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from mewstream.bench import wire
from mewstream.bench.errors import CheckFailed
from mewstream.bench.peer import Peer
from mewstream.bench.resource_usage import need_files
from mewstream.bench.roster import Participant
from mewstream.bench.target import Live


@contextlib.contextmanager
def joined(live: Live, people: Sequence[Participant]) -> Iterator[list[Peer]]:
    """Join participants one after the other, and disconnect them at the end of the block."""
    need_files(len(people))
    peers: list[Peer] = []
    try:
        for each in people:
            peers.append(Peer.join(live.address, each))
        yield peers
    finally:
        for peer in peers:
            peer.close()


def settle(writer: Peer, stream: str, peers: Sequence[Peer], *, opcode: int = wire.TEXT) -> tuple[list[Peer], int]:
    """Discard all messages so far, until a frame of the writer and the message after it have reached everyone.

    Returns the peers that get its frames, which may or may not include the writer, and their opcode on arrival."""
    writer.socket.sendall(wire.client_message(opcode, b"#%b#ready?" % stream.encode()))
    marker = writer.send("chat", {"text": "ready?"})
    got = {peer.id: peer.settle(marker) for peer in dict.fromkeys([*peers, writer])}
    for peer in peers:
        if got[peer.id] is None and peer is not writer:
            raise CheckFailed(f"{peer.id} did not get a frame that was sent to everyone")
    recipients = [peer for peer in dict.fromkeys([*peers, writer]) if got[peer.id] is not None]
    return recipients, next(each for each in got.values() if each is not None)
