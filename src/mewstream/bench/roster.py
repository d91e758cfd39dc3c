"""The participants of a measurement: ids and tokens from a space.yaml, from a template, or newly generated."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from mewstream.protocol.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Participant:
    id: str
    space: str
    token: str = field(repr=False)
    is_present: bool = False
    """Whether it is in the space without a connection (``auto_connect``)."""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement needs of a space, or of each of several spaces."""

    participants: int
    """The number of participants that connect, in each space."""
    spaces: int = 1
    bystanders: int = 0
    """Participants that are only present, in the first space; without a connection, if the gateway supports that."""
    is_patient: bool = True
    """Whether our gateway waits for slow readers instead of dropping frames, because every frame is measured."""
    unattended: float | None = None
    """Seconds for which connections may be unattended. Our gateway sends no pings during that time."""


class Roster:
    """The participants of all spaces, in order."""

    def __init__(self, participants: list[Participant]) -> None:
        self._spaces: dict[str, list[Participant]] = {}
        for each in participants:
            self._spaces.setdefault(each.space, []).append(each)

    def spaces(self, needs: Needs) -> list[list[Participant]]:
        """The participants that connect, for each space. Raises ConfigError if there are too few."""
        fitting = [
            found[: needs.participants]
            for people in self._spaces.values()
            if len(found := [each for each in people if not each.is_present]) >= needs.participants
        ]
        if len(fitting) < needs.spaces:
            raise ConfigError(
                f"this run needs {needs.spaces} space(s) with {needs.participants} participants that can connect, "
                f"found {len(fitting)}: add participants to the space.yaml, or let --spawn make them"
            )
        return fitting[: needs.spaces]

    def bystanders(self, needs: Needs) -> list[Participant]:
        """The participants of the first space that do not connect; those that are present come first."""
        connecting = self.spaces(needs)[0]
        taken = {each.id for each in connecting}
        others = [each for each in self._spaces[connecting[0].space] if each.id not in taken]
        others.sort(key=lambda each: not each.is_present)
        if len(others) < needs.bystanders:
            raise ConfigError(
                f"this run needs {needs.bystanders} more participants in space {connecting[0].space!r}, "
                f"found {len(others)}: add them to the space.yaml, ask for fewer writers, or use --spawn"
            )
        return others[: needs.bystanders]


def roster_of_files(files: list[Path]) -> Roster:
    """The participants whose tokens are listed in space.yaml files."""
    participants: list[Participant] = []
    for file in files:
        try:
            root = yaml.load(file.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}") from None
        except yaml.YAMLError as error:
            place = getattr(error, "problem_mark", None)
            where = f" at line {place.line + 1}" if place is not None else ""
            raise ConfigError(f"{file}: this is no YAML{where}") from None
        documents = root.get("spaces", [root]) if isinstance(root, dict) else None
        if not isinstance(documents, list):
            raise ConfigError(f"{file}: expected a space.yaml with 'space' and 'participants'")
        for document in documents:
            participants += _participants(file, document)
    return Roster(participants)


def _participants(file: Path, document: Any) -> list[Participant]:
    try:
        space = str(document["space"]["id"])
        people = document["participants"].items()
        return [
            Participant(str(id), space, str(entry["tokens"][0]), bool(entry.get("auto_connect")))
            for id, entry in people
            if entry and entry.get("tokens")
        ]
    except (KeyError, TypeError, AttributeError, IndexError):
        raise ConfigError(f"{file}: expected a space.yaml with 'space: {{id}}' and 'participants'") from None


def roster_of_template(needs: Needs, *, space: str, ids: str, token: str) -> Roster:
    """Ids and tokens by template: ``{n}`` is a number, ``{id}`` the participant, ``{s}`` the number of a space."""
    if needs.spaces > 1 and "{s}" not in space:
        raise ConfigError(
            f"this run needs {needs.spaces} spaces: give --space with {{s}} in it, for instance bench-{{s}}"
        )
    participants = []
    for number in range(needs.spaces):
        for n in range(needs.participants + (needs.bystanders if number == 0 else 0)):
            id = ids.replace("{n}", str(n))
            participants.append(Participant(id, space.replace("{s}", str(number)), token.replace("{id}", id)))
    return Roster(participants)


def generated(needs: Needs) -> tuple[Roster, dict[str, Any]]:
    """A roster with new tokens, and a space.yaml with the same participants."""
    participants: list[Participant] = []
    documents: list[dict[str, Any]] = []
    for number in range(needs.spaces):
        space = f"bench-{number}"
        people = [Participant(f"p{n:05}", space, secrets.token_hex(16)) for n in range(needs.participants)]
        if number == 0:
            people += [Participant(f"b{n:05}", space, secrets.token_hex(16), True) for n in range(needs.bystanders)]
        participants += people
        documents.append(
            {
                "space": {"id": space, "name": space},
                "defaults": {"capabilities": [{"kind": "*"}]},
                "participants": {
                    each.id: {"tokens": [each.token], **({"auto_connect": True} if each.is_present else {})}
                    for each in people
                },
                "mewstream": _settings(needs),
            }
        )
    config: dict[str, Any] = documents[0] if len(documents) == 1 else {"spaces": documents}
    # No drain at the end, and enough time to join when many connect at once.
    config["gateway"] = {"drain_seconds": 0, "join_timeout": 120}
    if needs.unattended is not None:
        config["gateway"]["ping_interval"] = needs.unattended
    return Roster(participants), config


def _settings(needs: Needs) -> dict[str, Any]:
    """Limits large enough for the run. All others keep their defaults."""
    settings: dict[str, Any] = {"limits": {"participants_per_space": 1 << 20, "writers_per_stream": 1 << 20}}
    if needs.is_patient:
        settings["delivery"] = {"writer_pause": 60}
    return settings
