"""Identity: tokens, how they are presented, and which participant each belongs to (decision 20).

A token belongs to one participant of one space. Tokens are kept as SHA-256 digests only. A plain, fast digest is enough
for the file, because only tokens made by :func:`mewstream.settings.tokens.new_token` are written to it, and 256 random
bits cannot be guessed from their digest.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from mewstream.io import atomic_file
from mewstream.protocol.errors import ConfigError
from mewstream.settings.tokens import is_usable_token

_DIGEST = re.compile(r"[0-9a-f]{64}")
_BEARER = re.compile(r"bearer[ \t]+([\x21-\x7e]+)", re.IGNORECASE)

PREFERRED_SUBPROTOCOL = "mew.v0.4"
_SUBPROTOCOLS = frozenset({PREFERRED_SUBPROTOCOL, "mew", "mew/v0.4"})
#: Offered beside a token by a client that will send a join message, in which it may resume.
_JOIN_FOLLOWS = "mew.join"
_SCHEME = "bearer"
_TOKEN_PREFIXES = ("mew.token.", "bearer.", "token.")


def digest(token: str) -> str:
    """The SHA-256 of a token, in hexadecimal."""
    # A header may hold bytes that cannot be decoded, which become lone surrogates. A wrong token must not raise.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class TokenBook:
    """The tokens of one space, and the participant that each belongs to.

    The time of a look-up depends on the digest of the presented token only. It tells an attacker nothing, because
    nobody can choose a token by its digest.
    """

    def __init__(self, tokens: Mapping[str, Iterable[str]] | None = None) -> None:
        self._owner: dict[str, str] = {}
        for participant_id, each in (tokens or {}).items():
            for token in each:
                self.add(participant_id, token)

    def __repr__(self) -> str:
        return f"<TokenBook of {len(set(self._owner.values()))} participants>"

    def identify(self, token: str | None) -> str | None:
        """Return the participant that a token belongs to, or None."""
        return self._owner.get(digest(token)) if token else None

    def add(self, participant_id: str, token: str) -> None:
        """Bind a token to a participant. Raises :class:`ConfigError` if another participant has it."""
        if not token:
            raise ConfigError(f"an empty token cannot be bound to participant {participant_id!r}")
        self.add_digest(participant_id, digest(token))

    def add_digest(self, participant_id: str, token_digest: str) -> None:
        """Bind a token of which only the digest is known (see :meth:`InvitedTokens.for_space`)."""
        owner = self._owner.setdefault(token_digest, participant_id)
        if owner != participant_id:
            raise ConfigError(f"participants {owner!r} and {participant_id!r} have the same token")

    def forget(self, token_digests: Iterable[str]) -> None:
        """Unbind tokens, whoever has them."""
        for token_digest in token_digests:
            self._owner.pop(token_digest, None)


_Digests = dict[str, dict[str, list[str]]]
"""Space -> participant -> digests."""


class InvitedTokens:
    """The digests of the tokens of invited participants, in a JSON file beside the journal.

    The file is read when the object is made, which raises :class:`ConfigError` if it cannot be understood, so that such
    a file is never overwritten. It is replaced as a whole: a crash leaves the old or the new one. If that fails, the
    caller gets the OSError and nothing has changed. With ``path`` None everything is in memory only.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._spaces: _Digests = {} if path is None else _read_digests(path)

    def for_space(self, space: str) -> dict[str, list[str]]:
        """The digests of each invited participant of a space."""
        return copy.deepcopy(self._spaces.get(space, {}))

    def put(self, space: str, participant: str, token: str) -> list[str]:
        """Keep the token of a participant, in place of earlier ones, whose digests are returned."""
        spaces = copy.deepcopy(self._spaces)
        members = spaces.setdefault(space, {})
        earlier = members.get(participant, [])
        members[participant] = [digest(token)]
        self._replace(spaces)
        return earlier

    def remove(self, space: str, participant: str) -> None:
        """Forget the tokens of a participant, if it has any."""
        spaces = copy.deepcopy(self._spaces)
        if participant not in spaces.get(space, {}):
            return
        del spaces[space][participant]
        if not spaces[space]:
            del spaces[space]
        self._replace(spaces)

    def _replace(self, spaces: _Digests) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            atomic_file.replace(self._path, msgspec.json.format(msgspec.json.encode(spaces), indent=1) + b"\n")
        self._spaces = spaces


def _read_digests(path: Path) -> _Digests:
    try:
        spaces = msgspec.json.decode(path.read_bytes(), type=_Digests)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise ConfigError(f"{path}: the tokens of invited participants cannot be read: {exc.strerror}") from exc
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise _corrupt(path, str(exc)) from exc
    for members in spaces.values():
        for digests in members.values():
            if not all(_DIGEST.fullmatch(each) for each in digests):
                raise _corrupt(path, "an entry is not a SHA-256 digest")
    return spaces


def _corrupt(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"{path}: the tokens of invited participants cannot be understood ({reason}); expected "
        "{space: {participant: [digest, ...]}}: restore the file, or move it away and invite again"
    )


@dataclass(frozen=True, slots=True)
class Presented:
    """The token that the headers of a request present, if any."""

    token: str | None = field(default=None, repr=False)
    echo_subprotocol: str | None = None
    """The subprotocol to select in the answer, which is never a token. Browsers close the connection if they have
    offered subprotocols and none is selected, so they have to offer ``mew.v0.4`` beside the token."""
    join_follows: bool = False
    """The client will send a join message, so the gateway waits for it."""
    problem: str | None = None
    """Why the request must be refused, without any secret. ``token`` is None then."""


def token_from_headers(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> Presented:
    """Find the token in ``Authorization`` or, for browsers, in ``Sec-WebSocket-Protocol``.

    A multi-valued mapping, whose ``items()`` repeat a name, may be given. Having neither header is no problem, because
    the join message may present the token instead.
    """
    authorization: list[str] = []
    offers: list[str] = []
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        match name.lower():
            case "authorization":
                authorization.append(value)
            case "sec-websocket-protocol":
                offers.extend(offer for part in value.split(",") if (offer := part.strip()))

    known = [offer for offer in offers if offer in _SUBPROTOCOLS]
    echo = PREFERRED_SUBPROTOCOL if PREFERRED_SUBPROTOCOL in known else next(iter(known), None)
    tokens: set[str] = set()
    for offer in offers:
        if offer not in _SUBPROTOCOLS and offer != _JOIN_FOLLOWS and offer.lower() != _SCHEME:
            tokens.add(_without_prefix(offer))

    def refused(problem: str) -> Presented:
        return Presented(echo_subprotocol=echo, problem=problem)

    if len(tokens) > 1:
        return refused("Sec-WebSocket-Protocol offers more than one token")
    if not all(is_usable_token(token) for token in tokens):
        return refused("Sec-WebSocket-Protocol offers an empty or malformed token")
    if len(authorization) > 1:
        return refused("there is more than one Authorization header")
    if authorization:
        bearer = _BEARER.fullmatch(authorization[0].strip(" \t"))
        if bearer is None:
            return refused("the Authorization header is malformed, expected: Bearer <token>")
        tokens.add(bearer[1])
        if len(tokens) > 1:
            return refused("Authorization and Sec-WebSocket-Protocol carry different tokens")
    return Presented(token=next(iter(tokens), None), echo_subprotocol=echo, join_follows=_JOIN_FOLLOWS in offers)


def _without_prefix(offer: str) -> str:
    for prefix in _TOKEN_PREFIXES:
        if offer.startswith(prefix):
            return offer.removeprefix(prefix)
    return offer
