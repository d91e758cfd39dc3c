"""The configuration: one or several space.yaml files as frozen objects. :mod:`mewstream.settings.yamlfile` reads the
YAML.

Relative paths in a file start at its workspace (:mod:`mewstream.settings.workspace`), wherever the process was started.
A key without a value, such as a section of which all lines are commented out, counts as absent.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from mewstream.gateway.jwt_settings import JwtSettings, read_jwt_settings
from mewstream.journal.settings import JournalSettings
from mewstream.protocol import kinds
from mewstream.protocol.capabilities import Capabilities, MalformedPattern
from mewstream.protocol.envelope import encode_json
from mewstream.protocol.errors import ConfigError, ValidationFailed
from mewstream.protocol.identifiers import flaw_in_id, flaw_in_participant_id
from mewstream.protocol.policy import Delivery, Limits, Policies
from mewstream.protocol.units import parse_bytes, parse_seconds
from mewstream.settings.tokens import is_usable_token, token_file, token_variable
from mewstream.settings.workspace import workspace_of
from mewstream.settings.yamlfile import MAX_SECONDS, YamlValue, describe_kind, describe_number, one_line, read_yaml

# Keys that mean something to the reference's process manager only.
PROCESS_MANAGER_KEYS = frozenset(
    {
        *("type", "command", "args", "env", "cwd", "auto_start", "restart_policy", "fifo", "io"),
        *("default_to", "mcp_server", "bridge_config", "ui_theme", "default_participant", "routing"),
    }
)
_DOCUMENT_KEYS = ("space", "participants", "defaults", "mewstream", "gateway_logging")
_PARTICIPANT_KEYS = ("tokens", "role", "capabilities", "output_log", "auto_connect")
#: What a participant with the role ``observer`` may not do either, although it needs no capability for it.
_OBSERVER_DENIALS: tuple[dict[str, Any], ...] = ({"kind": "!stream/request-write"},)
# Limits that may be zero. In the other whole numbers, zero is a mistake.
_MAY_BE_ZERO = frozenset(
    {
        *("capability_grants", "invitations", "remembered_ids", "refused_excerpt_bytes"),
        *("proposals_per_participant", "proposals_per_space"),
    }
)
_MAX_RATE = 1e12
MAX_PARTITIONS = 256
#: A record may hold a message twice, with half of its characters escaped, and must stay below what a journal can hold.
MAX_MESSAGE_BYTES = 64 << 20
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"", "false", "0", "no", "off"})

_Settings = TypeVar("_Settings", Limits, Policies, Delivery, JournalSettings)
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticipantConfig:
    id: str
    tokens: tuple[str, ...] = field(repr=False)
    capabilities: list[dict[str, Any]]
    output_log: Path | None = None
    auto_connect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceConfig:
    id: str
    name: str
    description: str
    participants: dict[str, ParticipantConfig]
    limits: Limits
    policies: Policies
    delivery: Delivery
    envelope_history: bool
    capability_decisions: bool
    default_capabilities: list[dict[str, Any]]
    source: Path

    @property
    def workspace(self) -> Path:
        """The directory that relative paths start from, and that holds the logs."""
        return workspace_of(self.source)

    def public(self) -> dict[str, Any]:
        """What the journal records: everything that a later reader needs to judge the log by, and no secret or path."""
        public: dict[str, Any] = msgspec.to_builtins(
            {
                "id": self.id,
                "name": self.name,
                "description": self.description,
                "participants": {each.id: {"capabilities": each.capabilities} for each in self.participants.values()},
                "default_capabilities": self.default_capabilities,
                "limits": self.limits,
                "policies": self.policies,
                "delivery": self.delivery,
            }
        )
        return public


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    spaces: dict[str, SpaceConfig]
    host: str = "127.0.0.1"
    port: int = 8080
    """0 lets the system choose one."""
    data: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allowed_origins: tuple[str, ...] = ()
    """In lower case, ``scheme://host[:port]``, or ``*``."""
    ping_interval: float = 20.0
    join_timeout: float = 10.0
    drain_seconds: float = 5.0
    connections: int | None = None
    """HTTP and WebSocket connections together. None: as many as there are descriptors, less those of the journal."""
    connections_per_address: int | None = None
    """None: three quarters of ``connections``."""
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    """Proxies whose ``X-Forwarded-For`` names the client."""
    head_timeout: float = 10.0
    """Seconds for the head of a request; also for a TLS handshake, and for the first byte of a connection."""
    idle_timeout: float = 75.0
    """Seconds from an answer to the next request of the connection."""
    body_timeout: float = 30.0
    """Seconds for the body of a request, and a second more for each 64 KiB that arrive."""
    write_timeout: float = 30.0
    """Seconds for the peer to read an answer, and a second more for each 64 KiB that it reads."""
    unsent_http_bytes: int = 64 << 20
    """Bytes of all answers that their peers have not read yet."""
    console: bool | None = None
    """Whether the console is served. None: only to this machine, and not through a proxy."""
    jwt: JwtSettings | None = None
    """Whose signed tokens are accepted beside the tokens of participants."""
    public_url: str | None = None
    """The ``ws://`` or ``wss://`` URL of this gateway, for the ``connection_url`` of invitations."""
    journal: JournalSettings = field(default_factory=JournalSettings)
    unused: list[str] = field(default_factory=list)
    """Key paths that are accepted and have no effect, for the caller to log."""


#: The keys of the section ``gateway``: the fields above, with the two files of ``tls`` in a section of their own.
_GATEWAY_KEYS = (
    *(each.name for each in fields(GatewayConfig) if each.name not in ("spaces", "unused", "tls_cert", "tls_key")),
    "tls",
)


def load_config(paths: Sequence[Path], *, environ: Mapping[str, str], cwd: Path) -> GatewayConfig:
    """Read the files. Relative paths among ``paths`` are relative to ``cwd``."""
    if not paths:
        raise ConfigError("no configuration file is given, expected at least one space.yaml")
    loader = _Loader(environ, cwd)
    for path in paths:
        unused = loader.read(path)
        loader.unused += [f"{path}: {each}" for each in unused] if len(paths) > 1 else unused
    if not loader.spaces:
        files = ", ".join(map(str, paths))
        raise ConfigError(one_line(f"{files}: found no space, expected a key 'space' or 'spaces'"))
    return GatewayConfig(
        spaces=loader.spaces,
        unused=loader.unused,
        **{key: setting for key, (setting, _) in loader.gateway.items()},
    )


# -- the files ------------------------------------------------------------------------------------


class _Loader:
    """Collects what several files say."""

    def __init__(self, environ: Mapping[str, str], cwd: Path) -> None:
        self.environ = environ
        self.cwd = cwd
        self.spaces: dict[str, SpaceConfig] = {}
        self.unused: list[str] = []
        self.gateway: dict[str, tuple[Any, Path]] = {}
        self.history_by_environment = self._flag("ENVELOPE_HISTORY")
        self.decisions_by_environment = self._flag("CAPABILITY_DECISIONS")
        self._variables: dict[str, str] = {}
        """Token variables that are set -> the participant id that has the token."""

    def read(self, path: Path) -> list[str]:
        """Read one file. Returns the key paths in it that have no effect."""
        source = self.cwd / path
        root = read_yaml(source, name=path)
        unused: list[str] = []
        several = isinstance(root.value, dict) and "spaces" in root.value
        known = ("spaces", "gateway", "gateway_logging") if several else (*_DOCUMENT_KEYS, "gateway")
        if several and (mixed := [key for key in _DOCUMENT_KEYS[:4] if key in root.value]):
            raise root.error(f"found {mixed[0]!r} beside 'spaces', expected it within the entries of 'spaces'")
        section = _shared_section(root, known, unused)
        if "gateway" in section:
            self._merge_gateway(section["gateway"], source)
        if several:
            if "spaces" in section:
                for each in section["spaces"].items("a list of documents with 'space' and 'participants'"):
                    entries = _shared_section(each, _DOCUMENT_KEYS, unused)
                    if "gateway_logging" in section:
                        entries.setdefault("gateway_logging", section["gateway_logging"])
                    self._add_space(each, entries, source, unused)
        elif section.keys() != {"gateway"}:
            self._add_space(root, section, source, unused)
        return unused

    def _flag(self, name: str) -> bool:
        value = self.environ.get(name, "").strip().lower()
        if value not in _TRUE | _FALSE:
            raise ConfigError(f"the environment variable {name} is neither true nor false, expected true or false")
        return value in _TRUE

    # -- one space --------------------------------------------------------------------------------

    def _add_space(self, document: YamlValue, entries: dict[str, YamlValue], source: Path, unused: list[str]) -> None:
        if "space" not in entries:
            raise document.error("found no key 'space', expected space: {id, name, description}")
        about = _shared_section(entries["space"], ("id", "name", "description"), unused)
        if "id" not in about:
            raise entries["space"].error("found no key 'id', expected the id of the space")
        ours = _section_of(entries, "mewstream", ("limits", "policies", "delivery"))
        limits = _settings(ours.get("limits"), Limits)
        delivery = _settings(ours.get("delivery"), Delivery)
        if delivery.soft_queue_bytes > delivery.queue_bytes:
            raise ours["delivery"].error(
                f"found soft_queue_bytes {delivery.soft_queue_bytes}, "
                f"expected at most queue_bytes {delivery.queue_bytes}"
            )

        space_id = about["id"].text()
        flaw = flaw_in_id(space_id, max_bytes=limits.id_bytes)
        if "/" in space_id:
            flaw = "contains '/', which separates space and stream in a namespace"
        if flaw:
            raise about["id"].error(f"found {space_id[:80]!r}, which {flaw}")
        if space_id in self.spaces:
            raise about["id"].error(
                f"found {space_id!r}, which {self.spaces[space_id].source} has already, expected an id of its own"
            )

        defaults = _section_of(entries, "defaults", ("capabilities",))
        default_capabilities = _capabilities(defaults["capabilities"], limits) if "capabilities" in defaults else []
        history, decisions = _logging(entries.get("gateway_logging"))
        self.spaces[space_id] = SpaceConfig(
            id=space_id,
            name=about["name"].text() if "name" in about else space_id,
            description=about["description"].text() if "description" in about else "",
            participants=self._participants(document, entries, source, limits, default_capabilities, unused),
            limits=limits,
            policies=_settings(ours.get("policies"), Policies),
            delivery=delivery,
            envelope_history=history or self.history_by_environment,
            capability_decisions=decisions or self.decisions_by_environment,
            default_capabilities=default_capabilities,
            source=source,
        )

    def _participants(
        self,
        document: YamlValue,
        entries: dict[str, YamlValue],
        source: Path,
        limits: Limits,
        default_capabilities: list[dict[str, Any]],
        unused: list[str],
    ) -> dict[str, ParticipantConfig]:
        at = entries.get("participants", document.child("participants"))
        workspace = workspace_of(source)
        participants: dict[str, ParticipantConfig] = {}
        owners: dict[str, str] = {}
        for participant_id, entry in at.mapping("a mapping of participant ids").items():
            if flaw := flaw_in_participant_id(participant_id, max_bytes=limits.id_bytes):
                raise at.error(f"found the participant id {participant_id[:80]!r}, which {flaw}")
            section = {} if entry.value is None else _shared_section(entry, _PARTICIPANT_KEYS, unused)
            tokens = self._tokens(participant_id, entry, section.get("tokens"), workspace)
            for token in tokens:
                owner = owners.setdefault(token, participant_id)
                if owner != participant_id:
                    raise entry.error(f"found a token that {owner!r} has too, expected a token of its own")
            participants[participant_id] = ParticipantConfig(
                id=participant_id,
                tokens=tokens,
                capabilities=_participant_capabilities(section, limits, default_capabilities),
                output_log=section["output_log"].path_from(workspace) if "output_log" in section else None,
                auto_connect="auto_connect" in section and section["auto_connect"].boolean(),
            )
        if not participants:
            raise at.error("found no participant, expected at least one")
        return participants

    # -- tokens -----------------------------------------------------------------------------------

    def _tokens(
        self, participant_id: str, entry: YamlValue, listed: YamlValue | None, workspace: Path
    ) -> tuple[str, ...]:
        tokens: list[str] = []
        if listed is not None:
            for each in listed.items("a list of strings"):
                tokens.append(_usable(each, each.text()))

        variable = token_variable(participant_id)
        if token := self.environ.get(variable, "").strip():
            # The same participant in several spaces may share a variable, different ones must not.
            owner = self._variables.setdefault(variable, participant_id)
            if owner != participant_id:
                raise entry.error(
                    f"found the variable {variable} set, which stands for {owner!r} too, "
                    "expected other ids, or a token given in another way"
                )
            tokens.append(_usable(entry.remark(f"variable {variable}"), token))

        files = [token_file(base, participant_id) for base in (workspace, self.cwd)]
        for file in dict.fromkeys(file.absolute() for file in files if file is not None):
            at = entry.remark(f"file {file}")
            content = _token_file(at, file)
            if content is not None:
                tokens.append(_usable(at, content))

        if not tokens:
            raise entry.error(
                f"found no token, expected one in 'tokens', in the variable {variable}, "
                f"or in the file .mew/tokens/{participant_id}.token"
            )
        return tuple(dict.fromkeys(tokens))

    # -- the gateway ------------------------------------------------------------------------------

    def _merge_gateway(self, at: YamlValue, source: Path) -> None:
        for key, setting in _gateway_settings(at.section(_GATEWAY_KEYS), workspace_of(source)).items():
            before, file = self.gateway.setdefault(key, (setting, source))
            if before != setting:
                place = at.child("tls").child(key.removeprefix("tls_")) if key.startswith("tls_") else at.child(key)
                raise place.error(f"found another value than in {file}, expected the same or only one of them")


def _shared_section(at: YamlValue, known: Collection[str], unused: list[str]) -> dict[str, YamlValue]:
    """A section that the process manager reads too: its keys are accepted and noted in ``unused``."""
    section = at.section(known, ignored=PROCESS_MANAGER_KEYS)
    unused += [entry.path for key, entry in at.mapping().items() if key not in known]
    return section


def _section_of(entries: dict[str, YamlValue], key: str, known: Collection[str]) -> dict[str, YamlValue]:
    return entries[key].section(known) if key in entries else {}


def _usable(at: YamlValue, token: str) -> str:
    if not token:
        raise at.error("found an empty token, expected at least one character")
    if not is_usable_token(token):
        raise at.error("found a token with spaces or special characters, expected visible ASCII characters only")
    return token


def _token_file(at: YamlValue, file: Path) -> str | None:
    try:
        return file.read_bytes().decode("utf-8-sig").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        raise at.error("found bytes that are not UTF-8, expected a token") from None
    except OSError as exc:
        if exc.errno == errno.ENAMETOOLONG:  # so no such file can exist
            return None
        raise at.error(f"the file cannot be read: {exc.strerror}") from exc


def _settings(at: YamlValue | None, kind: type[_Settings]) -> _Settings:
    if at is None:
        return kind()
    settings = _converted(at, kind)
    most = _MAX_RATE if kind is Limits else MAX_SECONDS
    for key in kind.__struct_fields__:
        value = getattr(settings, key)
        expected = None
        if isinstance(value, int):
            least = 0 if key in _MAY_BE_ZERO else 1
            if not least <= value < 2**53:
                expected = f"a whole number of at least {least} and below 2^53"
            elif key == "message_bytes" and value > MAX_MESSAGE_BYTES:
                expected = f"at most {MAX_MESSAGE_BYTES}: more could not be recorded"
        elif isinstance(value, float) and not (math.isfinite(value) and 0 <= value <= most):
            expected = f"a number of at least 0 and at most {most:g}"
        if expected:
            raise at.child(key).error(f"found {describe_number(value)}, expected {expected}")
    return settings


def _converted(at: YamlValue, kind: type[_Struct]) -> _Struct:
    """Read a section. Texts such as ``30s`` and ``10MiB`` become the numbers that they mean: a setting with ``bytes``
    in its name is a size, and any other that may have a fraction is a time, unless it is a rate."""
    types = {each.name: each.type for each in msgspec.structs.fields(kind)}
    found: dict[str, Any] = {}
    for key, here in at.section(types).items():
        wanted, value = types[key], here.value
        if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
            found[key] = _converted(here, wanted)
            continue
        if isinstance(value, str) and "bytes" in key:
            value = here.quantity(parse_bytes)
        elif isinstance(value, str) and wanted is float and not key.endswith("_per_second"):
            value = here.quantity(parse_seconds)
        elif key == "validate" and value is False:
            value = "off"  # YAML reads a bare off as false
        try:
            found[key] = msgspec.convert(value, wanted)
        except msgspec.ValidationError:
            choices = ", ".join(getattr(wanted, "__args__", ()))
            if choices and isinstance(value, str):
                raise here.error(f"found {value[:40]!r}, expected one of {choices}") from None
            number = "a whole number" if wanted is int else "a number"
            raise here.expected(f"one of {choices}" if choices else number) from None
    return kind(**found)


def _logging(at: YamlValue | None) -> tuple[bool, bool]:
    """Whether envelope history and capability decisions are on. ``enabled: false`` turns both off,
    ``enabled: true`` turns on those that do not say otherwise."""
    if at is None:
        return False, False
    section = at.section(("enabled", "envelope_history", "capability_decisions"))
    overall = section["enabled"].boolean() if "enabled" in section else None
    switches = []
    for key in ("envelope_history", "capability_decisions"):
        own = _section_of(section, key, ("enabled",))
        switches.append(own["enabled"].boolean() if "enabled" in own else bool(overall))
    return switches[0] and overall is not False, switches[1] and overall is not False


def _participant_capabilities(
    section: dict[str, YamlValue], limits: Limits, defaults: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    role, listed = section.get("role"), section.get("capabilities")
    if role is None:
        return list(defaults) if listed is None else _capabilities(listed, limits)
    if role.text() != "observer":
        raise role.error(f"found {role.value[:40]!r}, expected 'observer', or no role")
    if listed is None:
        return list(_OBSERVER_DENIALS)
    patterns = _capabilities(listed, limits)
    for each in listed.items("a list of patterns"):
        if each.value["kind"] != kinds.GATEWAY_OBSERVE:
            raise each.error(f"an observer sends nothing: expected no capability but {kinds.GATEWAY_OBSERVE}")
    return [*patterns, *_OBSERVER_DENIALS]


def _capabilities(at: YamlValue, limits: Limits) -> list[dict[str, Any]]:
    patterns: list[dict[str, Any]] = []
    for each in at.items("a list of patterns such as {kind: chat}"):
        each.mapping("a pattern such as {kind: chat}")
        _require_json(each)
        try:
            Capabilities([each.value])
        except MalformedPattern as flaw:
            raise each.error(f"({flaw.pattern}): {flaw.reason}") from None
        patterns.append(each.value)
    try:
        Capabilities(patterns)  # some bounds are for the list as a whole
    except ValidationFailed as flaw:
        raise at.error(flaw.message) from None
    size, most = len(encode_json(patterns)), limits.capability_list_bytes
    if size > most:
        raise at.error(f"found {size} bytes of patterns, expected at most {most} (limits.capability_list_bytes)")
    return patterns


def _require_json(at: YamlValue) -> None:
    """Capabilities are sent to clients and recorded: YAML's dates, sets and infinities cannot be."""
    match at.value:
        case None | bool() | str():
            return
        case int() | float():
            if abs(at.value) >= 2**63 if isinstance(at.value, int) else not math.isfinite(at.value):
                raise at.expected("a number that JSON can hold")
        case list():
            for each in at.items("a list"):
                _require_json(each)
        case dict():
            for each in at.mapping().values():
                _require_json(each)
        case _:
            raise at.expected("a value that JSON can hold", ": put it in quotes")


def _gateway_settings(section: dict[str, YamlValue], workspace: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, at in section.items():
        match key:
            case "host":
                if not (host := at.text()) or any(char.isspace() for char in host):
                    raise at.expected("a host name or an address without spaces")
                settings[key] = host
            case "port":
                if not isinstance(at.value, int) or isinstance(at.value, bool) or not 0 <= at.value <= 65535:
                    found = describe_number(at.value) if type(at.value) is int else describe_kind(at.value)
                    raise at.error(f"found {found}, expected a whole number from 0 (any free port) to 65535")
                settings[key] = at.value
            case "connections" | "connections_per_address":
                settings[key] = at.count()
            case "unsent_http_bytes":
                settings[key] = at.quantity(parse_bytes) if isinstance(at.value, str) else at.count()
            case "console":
                settings[key] = at.boolean()
            case "jwt":
                settings[key] = read_jwt_settings(at, workspace)
            case "data":
                settings[key] = at.path_from(workspace)
            case "tls":
                files = at.section(("cert", "key"))
                for name in ("cert", "key"):
                    if name not in files:
                        raise at.error(f"found no key {name!r}, expected both 'cert' and 'key'")
                    settings[f"tls_{name}"] = file = files[name].path_from(workspace)
                    if not file.is_file():
                        raise files[name].error(f"found no file {file}, expected a PEM file")
            case "public_url":
                settings[key] = url = at.text().rstrip("/")
                if not url.startswith(("ws://", "wss://")):
                    raise at.expected("a URL that begins with ws:// or wss://")
            case "journal":
                settings[key] = journal = _settings(at, JournalSettings)
                if journal.partitions > MAX_PARTITIONS:
                    raise at.child("partitions").error(f"expected at most {MAX_PARTITIONS}")
                retention = journal.retention
                if min(retention.max_age, retention.max_bytes, retention.consumer_hold_bytes) < 0:
                    raise at.child("retention").error("found a negative number, expected 0 (no bound) or more")
            case "trusted_proxies":
                settings[key] = tuple(_network(each) for each in at.items("a list of addresses"))
            case "allowed_origins":
                settings[key] = tuple(_origin(each) for each in at.items("a list of origins"))
            case _:
                settings[key] = at.seconds(zero=key == "drain_seconds")
    return settings


def _network(at: YamlValue) -> IPv4Network | IPv6Network:
    text = at.text("an address")
    try:
        return ip_network(text)
    except ValueError:
        found = repr(text[:80])
        raise at.error(f"found {found}, expected an address or a network such as 10.0.0.0/8 or ::1") from None


def _origin(at: YamlValue) -> str:
    origin = at.text("an origin").lower()
    if origin == "*":
        return origin
    try:
        parts = urlsplit(origin)
        _ = parts.port  # raises if it is no port
        good = bool(parts.hostname) and origin == f"{parts.scheme}://{parts.netloc}" and "@" not in parts.netloc
    except ValueError:
        good = False
    if not good:
        found = repr(origin[:80]) if "@" not in origin else "user information in an origin"
        raise at.error(f"found {found}, expected an origin such as https://example.org:8443, or '*'")
    return origin
