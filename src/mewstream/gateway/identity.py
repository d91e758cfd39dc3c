"""Who is at the other end: tokens, where they are presented, and whom they belong to (decision 20).

A token belongs to one participant of one space. Nothing here keeps a token longer than a call: books and
files hold SHA-256 digests. A plain, fast digest is enough for the file, because only tokens made by
:func:`new_token` are written to it, and 256 random bits cannot be guessed back from their digest.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from mewstream.journal.files import Files
from mewstream.protocol.errors import ConfigError

_USABLE = re.compile(r"[\x21-\x7e]+")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BEARER = re.compile(r"bearer[ \t]+([\x21-\x7e]+)", re.IGNORECASE)

PREFERRED_SUBPROTOCOL = "mew.v0.4"
_SUBPROTOCOLS = frozenset({PREFERRED_SUBPROTOCOL, "mew", "mew/v0.4"})
_SCHEME = "bearer"
_TOKEN_PREFIXES = ("mew.token.", "bearer.", "token.")


def new_token() -> str:
    """A fresh token: 256 random bits in characters that a header and a subprotocol may contain.

    It has no ``.``, so it is never mistaken for a subprotocol's name or prefix.
    """
    return secrets.token_urlsafe(32)


def is_usable_token(token: str) -> bool:
    """Whether every way of presenting a token can carry this one: visible ASCII, without spaces."""
    return _USABLE.fullmatch(token) is not None


def token_variable(participant_id: str) -> str:
    """The environment variable that may hold the token of a participant."""
    return "MEW_TOKEN_" + re.sub("[^A-Z0-9]", "_", participant_id.upper())


def token_file(directory: Path, participant_id: str) -> Path | None:
    """The file below a directory that may hold the token of a participant. An id may contain a slash;
    it must never lead out of the directory, so such a participant has no file."""
    if re.search(r"[/\\]", participant_id):
        return None
    return directory / ".mew" / "tokens" / f"{participant_id}.token"


def digest(token: str) -> str:
    """The SHA-256 of a token, in hexadecimal."""
    # Headers may hold lone surrogates (undecodable bytes): a wrong token is no reason to raise.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class TokenBook:
    """The tokens of one space: which participant a token belongs to.

    Looking up a digest in a dict takes a time that depends on the digest only. An attacker who times it
    learns something about the digest of the own guess, and cannot steer a guess towards a digest.
    """

    def __init__(self, tokens: Mapping[str, Iterable[str]] | None = None) -> None:
        self._owner: dict[str, str] = {}
        for participant_id, each in (tokens or {}).items():
            for token in each:
                self.add(participant_id, token)

    def __repr__(self) -> str:
        return f"<TokenBook of {len(set(self._owner.values()))} participants>"

    def identify(self, token: str | None) -> str | None:
        """The participant that a token belongs to, or None."""
        return self._owner.get(digest(token)) if token else None

    def add(self, participant_id: str, token: str) -> None:
        """Bind a token. It raises ConfigError where the token is another participant's."""
        if not token:
            raise ConfigError(f"an empty token cannot be bound to participant {participant_id!r}")
        self.add_digest(participant_id, digest(token))

    def add_digest(self, participant_id: str, token_digest: str) -> None:
        """Bind a token that is known by its digest only, as :meth:`InvitedTokens.for_space` gives it."""
        owner = self._owner.setdefault(token_digest, participant_id)
        if owner != participant_id:
            raise ConfigError(f"participants {owner!r} and {participant_id!r} have the same token")

    def forget(self, token_digests: Iterable[str]) -> None:
        """These tokens are nobody's any more."""
        for token_digest in token_digests:
            self._owner.pop(token_digest, None)


class InvitedTokens:
    """The tokens of invited participants, hashed, in a file beside the journal.

    The file is JSON: ``{space: {participant: [digest, ...]}}``. It is replaced as a whole, so that a crash
    leaves the old or the new one. Where writing fails, the caller gets the OSError and nothing has changed.
    With the path None everything is in memory only. Calls block on the disk for a moment.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._spaces: dict[str, dict[str, list[str]]] | None = {} if path is None else None

    def load(self) -> None:
        """Read the file; a missing one is empty. It raises ConfigError where the file cannot be understood,
        and so does every later call: what is not understood is never overwritten."""
        self._loaded()

    def for_space(self, space: str) -> dict[str, list[str]]:
        """The digests per participant."""
        return {participant: list(digests) for participant, digests in self._loaded().get(space, {}).items()}

    def put(self, space: str, participant: str, token: str) -> list[str]:
        """Keep the token of a participant instead of any that it had; the answer is the digests of those."""
        spaces = self._copy()
        members = spaces.setdefault(space, {})
        earlier = members.get(participant, [])
        members[participant] = [digest(token)]
        self._replace(spaces)
        return earlier

    def remove(self, space: str, participant: str) -> None:
        spaces = self._copy()
        if participant not in spaces.get(space, {}):
            return
        del spaces[space][participant]
        if not spaces[space]:
            del spaces[space]
        self._replace(spaces)

    def _loaded(self) -> dict[str, dict[str, list[str]]]:
        if self._spaces is None:
            assert self._path is not None
            self._spaces = _read_digests(self._path)
        return self._spaces

    def _copy(self) -> dict[str, dict[str, list[str]]]:
        return {
            space: {participant: list(digests) for participant, digests in members.items()}
            for space, members in self._loaded().items()
        }

    def _replace(self, spaces: dict[str, dict[str, list[str]]]) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            Files().replace(self._path, msgspec.json.format(msgspec.json.encode(spaces), indent=1) + b"\n")
        self._spaces = spaces


def _read_digests(path: Path) -> dict[str, dict[str, list[str]]]:
    try:
        spaces = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, list[str]]])
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
    """What the headers of a request say about identity."""

    token: str | None = field(default=None, repr=False)
    echo_subprotocol: str | None = None
    """The subprotocol to select in the answer; never a secret. A browser that offered subprotocols gives up
    where none is selected, so a browser has to offer ``mew.v0.4`` beside its token."""
    problem: str | None = None
    """Why the request must be refused (without any secret); ``token`` is then None."""


def token_from_headers(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> Presented:
    """Find the token in ``Authorization`` or, for browsers, in ``Sec-WebSocket-Protocol``.

    A multi-valued mapping (whose ``items()`` repeats a name) is understood. Neither header present is no
    problem: the token may come with the join message.
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
        if offer not in _SUBPROTOCOLS and offer.lower() != _SCHEME:
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
    return Presented(token=next(iter(tokens), None), echo_subprotocol=echo)


def _without_prefix(offer: str) -> str:
    for prefix in _TOKEN_PREFIXES:
        if offer.startswith(prefix):
            return offer.removeprefix(prefix)
    return offer
