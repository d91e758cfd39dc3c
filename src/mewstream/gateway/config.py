"""space.yaml: from one or several files to frozen objects.

Every mistake is a :class:`ConfigError` of one line: file, key path, what was found, what was expected.
The text never quotes a value that may be a token, so values of the wrong type are named by their type only.

Paths in a file are relative to that file. A key without a value (``mewstream:`` with all of its lines
commented out) counts as absent.
"""

from __future__ import annotations

import difflib
import errno
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from mewstream.gateway.identity import is_usable_token
from mewstream.protocol.capabilities import Capabilities
from mewstream.protocol.errors import ConfigError, ValidationFailed
from mewstream.protocol.identifiers import flaw_in_id, flaw_in_participant_id
from mewstream.protocol.policy import Delivery, Limits, Policies

# Keys that mean something to the reference's process manager only.
PROCESS_MANAGER_KEYS = frozenset(
    {
        *("type", "command", "args", "env", "cwd", "auto_start", "restart_policy", "fifo", "io"),
        *("default_to", "mcp_server", "bridge_config", "ui_theme", "default_participant", "routing"),
    }
)
_DOCUMENT_KEYS = ("space", "participants", "defaults", "mewstream", "gateway_logging")
_PARTICIPANT_KEYS = ("tokens", "capabilities", "output_log", "auto_connect")
_GATEWAY_KEYS = (
    "host",
    "port",
    "data",
    "tls",
    "allowed_origins",
    "ping_interval",
    "join_timeout",
    "drain_seconds",
)
# Limits for which zero means "none at all"; zero is a mistake in the other whole numbers.
_MAY_BE_ZERO = frozenset({"capability_grants", "invitations", "remembered_ids", "refused_excerpt_bytes"})
_MOST = {"per_second": 1e12, "seconds": 1e9}
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"", "false", "0", "no", "off"})
_PLAIN_KEY = re.compile(r"[\w@:/-]+")

_Settings = TypeVar("_Settings", Limits, Policies, Delivery)


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

    def public(self) -> dict[str, Any]:
        """What the journal records: everything a later reader needs to judge, and no secret or path."""
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
    """0: the system chooses one."""
    data: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allowed_origins: tuple[str, ...] = ()
    """In lower case, ``scheme://host[:port]``, or ``*``."""
    ping_interval: float = 20.0
    join_timeout: float = 10.0
    drain_seconds: float = 5.0
    unused: list[str] = field(default_factory=list)
    """Key paths that were accepted and mean nothing to us; for the caller to log once."""


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
        raise ConfigError(_one_line(f"{files}: found no space, expected a key 'space' or 'spaces'"))
    return GatewayConfig(
        spaces=loader.spaces,
        unused=loader.unused,
        **{key: setting for key, (setting, _) in loader.gateway.items()},
    )


# -- a value and where it stands ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _At:
    """A value of a file, with the key path that leads to it."""

    file: Path
    path: str
    value: Any = field(repr=False)

    def error(self, text: str) -> ConfigError:
        where = f"{self.file}: {self.path}" if self.path else f"{self.file}"
        return ConfigError(_one_line(f"{where}: {text}"))

    def expected(self, what: str, hint: str = "") -> ConfigError:
        return self.error(f"found {_kind_of(self.value)}, expected {what}{hint}")

    def mapping(self, what: str = "a mapping") -> dict[str, _At]:
        if not isinstance(self.value, dict):
            raise self.expected(what)
        for key in self.value:
            if not isinstance(key, str):
                raise self.error(f"found {_kind_of(key)} as a key, expected a string: put it in quotes")
        return {key: _At(self.file, _join(self.path, key), value) for key, value in self.value.items()}

    def section(self, known: Collection[str], unused: list[str] | None = None) -> dict[str, _At]:
        """The entries of a mapping with known keys; those without a value are left out.

        With ``unused``, the process manager's keys are accepted and noted there.
        """
        entries = self.mapping()
        for key, entry in entries.items():
            if key in known:
                continue
            if unused is not None and key in PROCESS_MANAGER_KEYS:
                unused.append(entry.path)
                continue
            candidates = [*known, *(PROCESS_MANAGER_KEYS if unused is not None else ())]
            nearest = difflib.get_close_matches(key, sorted(candidates), n=1)
            if nearest:
                raise entry.error(f"unknown key, expected perhaps {nearest[0]!r}")
            raise entry.error(f"unknown key, expected one of {', '.join(known)}")
        return {key: entry for key, entry in entries.items() if key in known and entry.value is not None}

    def items(self, what: str) -> Iterator[_At]:
        if not isinstance(self.value, list):
            raise self.expected(what)
        for index, value in enumerate(self.value):
            yield _At(self.file, f"{self.path}[{index}]", value)

    def text(self, what: str = "a string") -> str:
        if not isinstance(self.value, str):
            scalar = not isinstance(self.value, list | dict | type(None))
            raise self.expected(what, ": put it in quotes" if scalar else "")
        return self.value

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.expected("true or false")
        return self.value

    def seconds(self, *, zero: bool) -> float:
        value, most = self.value, _MOST["seconds"]
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not (0 <= value <= most) or (value == 0 and not zero):
            found = _number(value) if good else _kind_of(value)
            least = "at least" if zero else "more than"
            raise self.error(f"found {found}, expected a number of seconds, {least} 0, at most {most:g}")
        return float(value)

    def path_from(self, directory: Path) -> Path:
        text = self.text("a path")
        if not text or "\0" in text:
            raise self.error("found an empty string or a NUL, expected a path")
        return (directory / text).absolute()


def _join(path: str, key: str) -> str:
    part = key if _PLAIN_KEY.fullmatch(key) else f'"{key}"'
    return f"{path}.{part}" if path else part


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _kind_of(value: object) -> str:
    """What was found, in words, and never the text itself: it may be a token."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "a boolean (true, false, yes, no, on or off)"
        case int() | float():
            return "a number"
        case str():
            return "a string" if value else "an empty string"
        case list():
            return "a list" if value else "an empty list"
        case dict():
            return "a mapping"
    return f"a {type(value).__name__}"


def _number(value: float) -> str:
    # Python refuses to write out integers of thousands of digits.
    return "a huge number" if isinstance(value, int) and abs(value) >= 2**64 else str(value)


# -- YAML -----------------------------------------------------------------------------------------


def _read_yaml(source: Path, file: Path) -> Any:
    """The content of ``source``, which errors call ``file``."""
    try:
        text = source.read_bytes().decode("utf-8-sig")
    except OSError as exc:
        raise ConfigError(_one_line(f"{file}: the file cannot be read: {exc.strerror}")) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(_one_line(f"{file}: found bytes that are not UTF-8, at byte {exc.start}")) from None

    # "from None": a YAML error quotes the line it is about, and that line may hold a token.
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_node(file, node, "", [], set())
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = ", ".join(filter(None, (exc.context, _without_quotations(exc.problem or ""))))
        raise ConfigError(_one_line(f"{file}: {where}not valid YAML: {what}")) from None
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        raise ConfigError(f"{file}: line {line}: not valid YAML: found a special character") from None
    except ValueError:
        # Such as 2024-99-99, which looks like a date and is none.
        raise ConfigError(
            f"{file}: not valid YAML: found a value that looks like a date or a number and is none, "
            "expected it in quotes"
        ) from None
    except RecursionError:
        raise ConfigError(f"{file}: not usable: it is nested too deeply") from None


def _without_quotations(problem: str) -> str:
    """A parser's complaint without what it quotes from the file, except for its own names of tokens."""
    if not re.search("['\"]", re.sub(r"'(<[a-z ]+>|.{1,2})'", "", problem)):
        return problem
    return re.sub("['\"].*['\"]", "...", problem) + " (a value that begins with a special character needs quotes)"


def _check_node(file: Path, node: yaml.Node, path: str, above: list[yaml.Node], checked: set[int]) -> None:
    """Refuse what PyYAML lets pass: repeated keys (it keeps the last), values that contain themselves, and
    halves of surrogate pairs, which no JSON can carry."""
    line = node.start_mark.line + 1 if node.start_mark else 0
    if node in above:
        raise ConfigError(_one_line(f"{file}: {path}: line {line}: found an alias to a value that contains it"))
    if id(node) in checked:
        return
    checked.add(id(node))
    above.append(node)
    if isinstance(node, yaml.ScalarNode):
        if any("\ud800" <= char <= "\udfff" for char in node.value):
            raise ConfigError(_one_line(f"{file}: {path}: line {line}: found half of a surrogate pair"))
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _check_node(file, item, f"{path}[{index}]", above, checked)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[tuple[str, str], int] = {}
        for key, value in node.value:
            _check_node(file, key, path, above, checked)
            entry = path
            if isinstance(key, yaml.ScalarNode):
                # Below "tokens" and "env" even a key may be a secret.
                if not re.search(r"(^|\.)(tokens|env)\b", path):
                    entry = _join(path, key.value)
                line = key.start_mark.line + 1 if key.start_mark else 0
                first = seen.get((key.tag, key.value))
                if first is not None:
                    text = f"line {line}: found a key that line {first} has already, expected it once"
                    raise ConfigError(_one_line(f"{file}: {entry}: {text}"))
                seen[key.tag, key.value] = line
            _check_node(file, value, entry, above, checked)
    above.pop()


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
        self._variables: dict[str, str] = {}
        """Token variables that are set -> the participant id that has the token."""

    def read(self, path: Path) -> list[str]:
        """Take in one file; returns the keys in it that are not used."""
        source = self.cwd / path
        root = _At(path, "", _read_yaml(source, path))
        unused: list[str] = []
        several = isinstance(root.value, dict) and "spaces" in root.value
        known = ("spaces", "gateway", "gateway_logging") if several else (*_DOCUMENT_KEYS, "gateway")
        if several and (mixed := [key for key in _DOCUMENT_KEYS[:4] if key in root.value]):
            raise root.error(f"found {mixed[0]!r} beside 'spaces', expected it within the entries of 'spaces'")
        section = root.section(known, unused)
        if "gateway" in section:
            self._merge_gateway(section["gateway"], source)
        if several:
            if "spaces" in section:
                for each in section["spaces"].items("a list of documents with 'space' and 'participants'"):
                    entries = each.section(_DOCUMENT_KEYS, unused)
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

    def _add_space(self, document: _At, entries: dict[str, _At], source: Path, unused: list[str]) -> None:
        if "space" not in entries:
            raise document.error("found no key 'space', expected space: {id, name, description}")
        about = entries["space"].section(("id", "name", "description"), unused)
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
        default_capabilities = _capabilities(defaults["capabilities"]) if "capabilities" in defaults else []
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
            capability_decisions=decisions,
            default_capabilities=default_capabilities,
            source=source,
        )

    def _participants(
        self,
        document: _At,
        entries: dict[str, _At],
        source: Path,
        limits: Limits,
        default_capabilities: list[dict[str, Any]],
        unused: list[str],
    ) -> dict[str, ParticipantConfig]:
        at = entries.get("participants", _At(document.file, _join(document.path, "participants"), None))
        participants: dict[str, ParticipantConfig] = {}
        owners: dict[str, str] = {}
        for participant_id, entry in at.mapping("a mapping of participant ids").items():
            if flaw := flaw_in_participant_id(participant_id, max_bytes=limits.id_bytes):
                raise at.error(f"found the participant id {participant_id[:80]!r}, which {flaw}")
            section = {} if entry.value is None else entry.section(_PARTICIPANT_KEYS, unused)
            tokens = self._tokens(participant_id, entry, section.get("tokens"), source.parent)
            for token in tokens:
                owner = owners.setdefault(token, participant_id)
                if owner != participant_id:
                    raise entry.error(f"found a token that {owner!r} has too, expected a token of its own")
            participants[participant_id] = ParticipantConfig(
                id=participant_id,
                tokens=tokens,
                capabilities=(
                    _capabilities(section["capabilities"]) if "capabilities" in section else list(default_capabilities)
                ),
                output_log=section["output_log"].path_from(source.parent) if "output_log" in section else None,
                auto_connect="auto_connect" in section and section["auto_connect"].boolean(),
            )
        if not participants:
            raise at.error("found no participant, expected at least one")
        return participants

    # -- tokens -----------------------------------------------------------------------------------

    def _tokens(self, participant_id: str, entry: _At, listed: _At | None, directory: Path) -> tuple[str, ...]:
        tokens: list[str] = []
        if listed is not None:
            for each in listed.items("a list of strings"):
                tokens.append(_usable(each, each.text()))

        variable = "MEW_TOKEN_" + re.sub("[^A-Z0-9]", "_", participant_id.upper())
        if token := self.environ.get(variable, "").strip():
            # The same participant in several spaces may share a variable, different ones must not.
            owner = self._variables.setdefault(variable, participant_id)
            if owner != participant_id:
                raise entry.error(
                    f"found the variable {variable} set, which stands for {owner!r} too, "
                    "expected other ids, or a token given in another way"
                )
            tokens.append(_usable(_At(entry.file, f"{entry.path} (variable {variable})", None), token))

        files = [base / ".mew" / "tokens" / f"{participant_id}.token" for base in (directory, self.cwd)]
        # An id may contain a slash; it must never lead out of the directory.
        if not re.search(r"[/\\]", participant_id):
            for file in dict.fromkeys(file.absolute() for file in files):
                at = _At(entry.file, f"{entry.path} (file {file})", None)
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

    def _merge_gateway(self, at: _At, source: Path) -> None:
        for key, setting in _gateway_settings(at.section(_GATEWAY_KEYS), source.parent).items():
            before, file = self.gateway.setdefault(key, (setting, source))
            if before != setting:
                path = _join(at.path, key.replace("tls_", "tls."))
                raise _At(at.file, path.replace('"', ""), None).error(
                    f"found another value than in {file}, expected the same or only one of them"
                )


def _section_of(entries: dict[str, _At], key: str, known: Collection[str]) -> dict[str, _At]:
    return entries[key].section(known) if key in entries else {}


def _usable(at: _At, token: str) -> str:
    if not token:
        raise at.error("found an empty token, expected at least one character")
    if not is_usable_token(token):
        raise at.error("found a token with spaces or special characters, expected visible ASCII characters only")
    return token


def _token_file(at: _At, file: Path) -> str | None:
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


def _settings(at: _At | None, kind: type[_Settings]) -> _Settings:
    if at is None:
        return kind()
    values = {key: entry.value for key, entry in at.section(kind.__struct_fields__).items()}
    if values.get("validate") is False:
        values["validate"] = "off"  # YAML reads a bare off as false
    try:
        settings = msgspec.convert(values, kind)
    except msgspec.ValidationError as exc:
        text, _, place = str(exc).partition(" - at `$.")
        key = place.rstrip("`")
        wanted = {each.name: each.type for each in msgspec.structs.fields(kind)}.get(key)
        text = re.sub(r"Expected `(.*)`, got `(.*)`", r"found `\2`, expected `\1`", text)
        if choices := getattr(wanted, "__args__", ()):
            value = values[key]
            found = repr(value[:40]) if isinstance(value, str) else _kind_of(value)
            text = f"found {found}, expected one of {', '.join(choices)}"
        raise _At(at.file, _join(at.path, key), None).error(text) from None
    most = _MOST["per_second" if kind is Limits else "seconds"]
    for key in values:
        value = getattr(settings, key)
        expected = None
        if isinstance(value, int):
            least = 0 if key in _MAY_BE_ZERO else 1
            if not least <= value < 2**53:
                expected = f"a whole number of at least {least} and below 2^53"
        elif isinstance(value, float) and not (math.isfinite(value) and 0 <= value <= most):
            expected = f"a number of at least 0 and at most {most:g}"
        if expected:
            raise _At(at.file, _join(at.path, key), None).error(f"found {_number(value)}, expected {expected}")
    return settings


def _logging(at: _At | None) -> tuple[bool, bool]:
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


def _capabilities(at: _At) -> list[dict[str, Any]]:
    patterns: list[dict[str, Any]] = []
    for each in at.items("a list of patterns such as {kind: chat}"):
        each.mapping("a pattern such as {kind: chat}")
        _require_json(each)
        _compile(each, [each.value])
        patterns.append(each.value)
    _compile(at, patterns)  # some bounds are for the list as a whole
    return patterns


def _compile(at: _At, patterns: list[dict[str, Any]]) -> None:
    try:
        Capabilities(patterns)
    except ValidationFailed as exc:
        raise at.error(exc.message.removeprefix("capability pattern 0 ")) from None


def _require_json(at: _At) -> None:
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


def _gateway_settings(section: dict[str, _At], directory: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, at in section.items():
        match key:
            case "host":
                if not (host := at.text()) or any(char.isspace() for char in host):
                    raise at.expected("a host name or an address without spaces")
                settings[key] = host
            case "port":
                if not isinstance(at.value, int) or isinstance(at.value, bool) or not 0 <= at.value <= 65535:
                    found = _number(at.value) if type(at.value) is int else _kind_of(at.value)
                    raise at.error(f"found {found}, expected a whole number from 0 (any free port) to 65535")
                settings[key] = at.value
            case "data":
                settings[key] = at.path_from(directory)
            case "tls":
                files = at.section(("cert", "key"))
                for name in ("cert", "key"):
                    if name not in files:
                        raise at.error(f"found no key {name!r}, expected both 'cert' and 'key'")
                    settings[f"tls_{name}"] = file = files[name].path_from(directory)
                    if not file.is_file():
                        raise files[name].error(f"found no file {file}, expected a PEM file")
            case "allowed_origins":
                settings[key] = tuple(_origin(each) for each in at.items("a list of origins"))
            case _:
                settings[key] = at.seconds(zero=key == "drain_seconds")
    return settings


def _origin(at: _At) -> str:
    origin = at.text("an origin").lower()
    if origin == "*":
        return origin
    try:
        parts = urlsplit(origin)
        _ = parts.port  # raises where it is no port
        good = bool(parts.hostname) and origin == f"{parts.scheme}://{parts.netloc}" and "@" not in parts.netloc
    except ValueError:
        good = False
    if not good:
        found = repr(origin[:80]) if "@" not in origin else "user information in an origin"
        raise at.error(f"found {found}, expected an origin such as https://example.org:8443, or '*'")
    return origin
