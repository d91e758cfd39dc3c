"""A refusal is a record like any other: what was refused, with which code, and a bounded excerpt."""

from __future__ import annotations

import re

from mewstream.protocol.errors import PeerError, UnauthorizedStreamWrite
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.records import Refused
from mewstream.protocol.right_rules import write_revoke
from mewstream.protocol.state import SpaceState, Stream


class RightSpent(UnauthorizedStreamWrite):
    """The right of a writer, or that of ``holder`` above it, has run out and was not revoked yet: the revoke is written
    before the refusal (decision 17)."""

    def __init__(self, stream: Stream, writer: str, holder: str, reason: str) -> None:
        why = reason if holder == writer else "delegation_ended"
        super().__init__(f"your right to write to {stream.id} has ended: {why}", stream_id=stream.id, reason=why)
        self.stream = stream
        self.holder = holder
        self.reason = reason


def write_refusal(
    ledger: Ledger,
    flaw: PeerError,
    *,
    sender: str,
    kind: str,
    id: str | None = None,
    remember: bool = True,
    digest: int = 0,
    payload: bytes = b"",
) -> None:
    if isinstance(flaw, RightSpent):
        write_revoke(ledger, flaw.stream, flaw.holder, flaw.reason)
    ledger.write(
        Refused,
        sender=sender,
        kind=kind,
        id=id,
        remember=remember,
        digest=digest,
        stream_id=flaw.details.get("stream_id"),
        excerpt=excerpt(payload, ledger.state),
        **flaw.fields,
    )


def excerpt(payload: bytes, state: SpaceState) -> str:
    """A bounded prefix of what was refused, enough to recognise it. It is empty if the payload may hold a secret,
    as a join in the wrong place does."""
    size = state.limits.refused_excerpt_bytes
    if _may_hold_a_secret(payload[: size * _LOOK_AHEAD]):
        return ""
    return payload[:size].decode("utf-8", "replace")


#: Words that name secrets, in lower case and without separators (``API-Key`` and ``api_key`` are ``apikey``).
_SECRETS = (
    *(b"token", b"secret", b"passw", b"passphrase", b"passcode", b"pwd", b"credential", b"authorization", b"bearer"),
    *(b'"auth"', b"apikey", b"accesskey", b"privatekey", b"signingkey"),
    *(b"cookie", b"jwt", b"beginrsa", b"beginopenssh"),
)
#: How many times the excerpt is searched for such words: a secret may come before the word that names it.
_LOOK_AHEAD = 16
_ESCAPED = re.compile(rb"\\u00([2-7][0-9a-fA-F])")


def _may_hold_a_secret(text: bytes) -> bool:
    if b"\\u00" in text:  # JSON may spell any letter as a number
        text = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), text)
    plain = text.lower().translate(None, b"-_ ")
    return any(word in plain for word in _SECRETS)
