"""Who a token belongs to: the tokens of each space, those of invited participants, and signed tokens.

A token of a space's own is looked for first. Only a text that is none of them, and has the form of a signed token, is
verified as one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from mewstream.gateway.claims import Claims, TokenFlaw, TokenRefused
from mewstream.gateway.config import GatewayConfig, SpaceConfig
from mewstream.gateway.identity import InvitedTokens, TokenBook
from mewstream.io.log_lines import event
from mewstream.protocol.state import SpaceState
from mewstream.settings.tokens import new_token

if TYPE_CHECKING:
    from mewstream.gateway.signed_tokens import SignedTokens

log = logging.getLogger("mewstream.gateway")


class Identity(NamedTuple):
    participant: str
    claims: Claims | None = None
    """What a signed token says. None: it was a token of the space."""


class Identities:
    def __init__(self, config: GatewayConfig, recovered: Mapping[str, SpaceState]) -> None:
        self._config = config
        self._invited = InvitedTokens(config.data / "invited.json" if config.data else None)
        self._books = {
            id: self._book(space, recovered[id].invited if id in recovered else {})
            for id, space in config.spaces.items()
        }
        self._signed: SignedTokens | None = None
        if config.jwt is not None:
            # Its packages are an extra of their own.
            from mewstream.gateway.signed_tokens import SignedTokens

            self._signed = SignedTokens(config.jwt)
            self._signed.keys.renew()

    def _book(self, space: SpaceConfig, invited: Mapping[str, object]) -> TokenBook:
        book = TokenBook({each.id: each.tokens for each in space.participants.values()})
        for participant, digests in self._invited.for_space(space.id).items():
            if participant in space.participants or participant not in invited:
                # A token from an invitation must not become that of a participant configured under the same name
                # later.
                log.warning(
                    "the invitation of %s to %s is not valid any more",
                    participant,
                    space.id,
                    extra=event("invitation_void", space=space.id, participant=participant),
                )
                continue
            for digest in digests:
                book.add_digest(participant, digest)
        return book

    def identify(self, space: str, token: str | None) -> Identity:
        """Raises :class:`TokenRefused`."""
        participant = self._books[space].identify(token)
        if participant is not None:
            return Identity(participant)
        if token is None or self._signed is None or not self._signed.is_signed(token):
            raise TokenRefused(TokenFlaw.UNKNOWN)
        claims = self._signed.verify(token)
        self._signed.check(claims, space, self._config.spaces[space].limits)
        return Identity(claims.participant, claims)

    def newer_keys(self, tokens: Iterable[str | None]) -> asyncio.Task[None] | None:
        """The reading of newer keys, if one of these tokens needs that and it may be tried now. Identify after it."""
        if self._signed is None or not any(token and self._signed.wants_newer_keys(token) for token in tokens):
            return None
        return self._signed.keys.renew()

    def mint(self, space: str, participant: str) -> str:
        """Make the token of an invited participant. It replaces one that a crash may have left behind."""
        token = new_token()
        earlier = self._invited.put(space, participant, token)
        self._books[space].forget(earlier)
        self._books[space].add(participant, token)
        return token

    def forget(self, space: str, participant: str) -> None:
        """Make the token of an invited participant invalid. Raises OSError if it stays in the file."""
        self._books[space].forget(self._invited.for_space(space).get(participant, ()))
        self._invited.remove(space, participant)

    def close(self) -> None:
        if self._signed is not None:
            self._signed.keys.close()
