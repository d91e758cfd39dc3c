"""Which gateway a program joins, and as whom: found in the same way by :func:`mewstream.connect` and by the commands.

For each setting, the first of these that has it counts: an argument, the environment (``MEW_URL``, ``MEW_SPACE``,
``MEW_PARTICIPANT``, ``MEW_TOKEN...``), a profile, and the space file of a gateway on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from mewstream.settings.profiles import Profile, find_profile
from mewstream.settings.space_file import DEFAULT_URL, read_space_file, space_file
from mewstream.settings.tokens import read_token, token_in_environment, token_in_workspace


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    url: str
    space: str | None
    participant: str | None
    profile: Profile = field(default_factory=Profile)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def token(self) -> str | None:
        """Return the token, looked up now, or None if there is none.

        It is the first of: ``MEW_TOKEN_<ID>``, ``MEW_TOKEN``, the file of the profile, ``.mew/tokens`` in the
        working directory and in the workspace, and the space file. Raises ConfigError for one that is no token."""
        if token := token_in_environment(self.participant, self.environ):
            return token
        profile = self.profile
        if profile.token_file and profile.participant in (None, self.participant):
            return read_token(str(profile.token_file))
        return token_in_workspace(self.participant, self.space, self.environ) if self.participant else None


def find_connection(
    *,
    url: str | None = None,
    space: str | None = None,
    participant: str | None = None,
    profile: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ConnectionSettings:
    """Find the settings that no argument gives. Raises ConfigError for a profile or a space file with a mistake.

    A profile that nobody named (``default``), and the URL and the space in the space file, are of a certain gateway:
    they are used only where no URL is given before."""
    url = _first(url, environ.get("MEW_URL"))
    name = _first(profile, environ.get("MEW_PROFILE"))
    chosen = find_profile(name, environ) if name is not None or url is None else None
    chosen = chosen or Profile()
    url = _first(url, chosen.url)
    space = _first(space, environ.get("MEW_SPACE"), chosen.space)
    if url is None:
        file = read_space_file(space_file(environ))
        url = file.url or DEFAULT_URL
        space = _first(space, file.spaces[0].id if len(file.spaces) == 1 else None)
    return ConnectionSettings(
        url=url,
        space=space,
        participant=_first(participant, environ.get("MEW_PARTICIPANT"), chosen.participant),
        profile=chosen,
        environ=environ,
    )


def _first(argument: str | None, *others: str | None) -> str | None:
    """The argument, whatever it is; or else the first of the others that is not empty."""
    return argument if argument is not None else next(filter(None, others), None)
