"""A YAML file and its values, each with the key path that leads to it, so that every error can name it.

Every mistake is a :class:`ConfigError` of one line: file, key path, what was found, what was expected.
The text never quotes a value that may be a token, so values of the wrong type are named by their type only.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from mewstream.protocol.errors import ConfigError
from mewstream.protocol.units import TIME_FORM, parse_seconds

MAX_SECONDS = 1e9
_PLAIN_KEY = re.compile(r"[\w@:/-]+")

Quantity = TypeVar("Quantity", int, float)


@dataclass(frozen=True, slots=True)
class YamlValue:
    """A value of a file, with the key path that leads to it."""

    file: Path
    path: str
    value: Any = field(repr=False)

    def error(self, text: str) -> ConfigError:
        where = f"{self.file}: {self.path}" if self.path else f"{self.file}"
        return ConfigError(one_line(f"{where}: {text}"))

    def expected(self, what: str, hint: str = "") -> ConfigError:
        return self.error(f"found {describe_kind(self.value)}, expected {what}{hint}")

    def child(self, key: str, value: Any = None) -> YamlValue:
        return YamlValue(self.file, _join(self.path, key), value)

    def remark(self, text: str) -> YamlValue:
        """A place for errors about something that belongs to this value but is read from elsewhere."""
        return YamlValue(self.file, f"{self.path} ({text})", None)

    def mapping(self, what: str = "a mapping") -> dict[str, YamlValue]:
        if not isinstance(self.value, dict):
            raise self.expected(what)
        for key in self.value:
            if not isinstance(key, str):
                raise self.error(f"found {describe_kind(key)} as a key, expected a string: put it in quotes")
        return {key: self.child(key, value) for key, value in self.value.items()}

    def section(self, known: Collection[str], *, ignored: Collection[str] = ()) -> dict[str, YamlValue]:
        """The entries of a mapping with known keys, except those without a value. ``ignored`` keys may be there."""
        entries = self.mapping()
        for key, entry in entries.items():
            if key in known or key in ignored:
                continue
            if nearest := difflib.get_close_matches(key, sorted({*known, *ignored}), n=1):
                raise entry.error(f"unknown key, expected perhaps {nearest[0]!r}")
            raise entry.error(f"unknown key, expected one of {', '.join(known)}")
        return {key: entry for key, entry in entries.items() if key in known and entry.value is not None}

    def items(self, what: str) -> Iterator[YamlValue]:
        if not isinstance(self.value, list):
            raise self.expected(what)
        for index, value in enumerate(self.value):
            yield YamlValue(self.file, f"{self.path}[{index}]", value)

    def text(self, what: str = "a string") -> str:
        if not isinstance(self.value, str):
            scalar = not isinstance(self.value, list | dict | type(None))
            raise self.expected(what, ": put it in quotes" if scalar else "")
        return self.value

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.expected("true or false")
        return self.value

    def quantity(self, parse: Callable[[str], Quantity]) -> Quantity:
        """A text such as ``30s`` or ``10MiB`` as the number that it means."""
        try:
            return parse(self.text())
        except ValueError as form:
            raise self.error(f"found {self.value[:40]!r}, {form}") from None

    def count(self) -> int:
        value = self.value
        good = isinstance(value, int) and not isinstance(value, bool)
        if not good or not 1 <= value < 2**53:
            found = describe_number(value) if good else describe_kind(value)
            raise self.error(f"found {found}, expected a whole number of at least 1 and below 2^53")
        return int(value)

    def seconds(self, *, zero: bool) -> float:
        value = self.quantity(parse_seconds) if isinstance(self.value, str) else self.value
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not (0 <= value <= MAX_SECONDS) or (value == 0 and not zero):
            found = describe_number(value) if good else describe_kind(value)
            least = "at least" if zero else "more than"
            raise self.error(f"found {found}, expected {TIME_FORM}, {least} 0, at most {MAX_SECONDS:g}")
        return float(value)

    def path_from(self, directory: Path) -> Path:
        text = self.text("a path")
        if not text or "\0" in text:
            raise self.error("found an empty string or a NUL, expected a path")
        return (directory / text).absolute()


def read_yaml(source: Path, *, name: Path) -> YamlValue:
    """Read the file ``source``, which errors call ``name``."""
    try:
        text = source.read_bytes().decode("utf-8-sig")
    except OSError as exc:
        raise ConfigError(one_line(f"{name}: the file cannot be read: {exc.strerror}")) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(one_line(f"{name}: found bytes that are not UTF-8, at byte {exc.start}")) from None

    # "from None": a YAML error quotes the line it is about, and that line may hold a token.
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                _check_node(name, node, "", [], set())
            return YamlValue(name, "", None if node is None else loader.construct_document(node))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = ", ".join(filter(None, (exc.context, _without_quotations(exc.problem or ""))))
        raise ConfigError(one_line(f"{name}: {where}not valid YAML: {what}")) from None
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        raise ConfigError(f"{name}: line {line}: not valid YAML: found a special character") from None
    except (ValueError, LookupError, AttributeError):
        # For instance 2024-99-99, which looks like a date, or `!!bool maybe`.
        raise ConfigError(
            f"{name}: not valid YAML: found a value that looks like a date or a number and is none, "
            "expected it in quotes"
        ) from None
    except RecursionError:
        raise ConfigError(f"{name}: not usable: it is nested too deeply") from None


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
        raise ConfigError(one_line(f"{file}: {path}: line {line}: found an alias to a value that contains it"))
    if id(node) in checked:
        return
    checked.add(id(node))
    above.append(node)
    if isinstance(node, yaml.ScalarNode):
        if any("\ud800" <= char <= "\udfff" for char in node.value):
            raise ConfigError(one_line(f"{file}: {path}: line {line}: found half of a surrogate pair"))
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
                    raise ConfigError(one_line(f"{file}: {entry}: {text}"))
                seen[key.tag, key.value] = line
            _check_node(file, value, entry, above, checked)
    above.pop()


def _join(path: str, key: str) -> str:
    part = key if _PLAIN_KEY.fullmatch(key) else f'"{key}"'
    return f"{path}.{part}" if path else part


def one_line(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def describe_kind(value: object) -> str:
    """What was found, in words. The text itself is never quoted, because it may be a token."""
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


def describe_number(value: float) -> str:
    # Python refuses to write out integers of thousands of digits.
    return "a huge number" if isinstance(value, int) and abs(value) >= 2**64 else str(value)
