"""Who may join: ids and tokens, from a space.yaml, from a template, or made for a gateway of our own."""

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
    """It is in the space without a connection (``auto_connect``)."""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement asks of a space, or of each of several."""

    participants: int
    """Who connect, in each space."""
    spaces: int = 1
    bystanders: int = 0
    """Who only have to be there, in the first space: present without a connection where the gateway can do that."""
    is_patient: bool = True
    """A gateway of ours waits for a slow reader instead of dropping: the run is about all of the frames."""
    unattended: float | None = None
    """For so many seconds connections may be left alone, while others have their turn: ours does not ping them."""


class Roster:
    """The participants of each space, in order."""

    def __init__(self, participants: list[Participant]) -> None:
        self._spaces: dict[str, list[Participant]] = {}
        for each in participants:
            self._spaces.setdefault(each.space, []).append(each)

    def spaces(self, needs: Needs) -> list[list[Participant]]:
        """So many spaces with so many who can connect."""
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
        """Those of the first space who are not among its connecting ones: the present first."""
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
    """The tokens that space.yaml files list. Other places of tokens are the gateway's own business."""
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
    """Ids and tokens by rule: ``{n}`` is a number, ``{id}`` the participant, ``{s}`` the number of a space."""
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
    """A roster with fresh tokens, and the space.yaml that says the same."""
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
    # Nobody waits for a drain, and a crowd that connects may take its time before it joins.
    config["gateway"] = {"drain_seconds": 0, "join_timeout": 120}
    if needs.unattended is not None:
        config["gateway"]["ping_interval"] = needs.unattended
    return Roster(participants), config


def _settings(needs: Needs) -> dict[str, Any]:
    """As many as the run needs; every other limit is what a user gets."""
    settings: dict[str, Any] = {"limits": {"participants_per_space": 1 << 20, "writers_per_stream": 1 << 20}}
    if needs.is_patient:
        settings["delivery"] = {"writer_pause": 60}
    return settings
