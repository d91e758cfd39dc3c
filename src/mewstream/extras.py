"""The extras of the package: what each one adds, whether it is installed, and how to install it."""

from __future__ import annotations

import json
import shlex
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mewstream.protocol.errors import ConfigError

#: Extra -> module -> what people call it. uvloop is missing on purpose: the gateway does without it.
EXTRAS: dict[str, dict[str, str]] = {
    "schemas": {"jsonschema_rs": "jsonschema-rs"},
    "gateway": {
        "jsonschema_rs": "jsonschema-rs",
        "prometheus_client": "prometheus-client",
        "pyarrow": "pyarrow",
        "re2": "google-re2",
    },
    "jwt": {"cryptography": "cryptography", "jwt": "pyjwt"},
    "query": {
        "deltalake": "deltalake",
        "duckdb": "duckdb",
        "jsonschema_rs": "jsonschema-rs",
        "plotly": "plotly",
        "pyarrow": "pyarrow",
        "re2": "google-re2",
    },
    "spark": {"pandas": "pandas", "prometheus_client": "prometheus-client", "pyspark": "Spark"},
}


def require(*extras: str, who: str = "this command") -> None:
    """Raise ConfigError if one of these extras is not installed. The error tells how to install what is missing."""
    missing = {extra: _missing(extra) for extra in extras}
    needed = [extra for extra, names in missing.items() if names]
    if not needed:
        return
    names = list(dict.fromkeys(name for names in missing.values() for name in names))
    if len(names) > 2:
        what, verb = f"mewstream[{','.join(needed)}]", "is"
    else:
        what, verb = " and ".join(names), "is" if len(names) == 1 else "are"
    raise ConfigError(f"{who} needs {what}, which {verb} not installed: {how_to_install(','.join(needed))}")


def require_journal() -> None:
    """Raise ConfigError if journals cannot be read: either of two extras brings what that needs."""
    if _missing("query"):
        require("gateway")


def _missing(extra: str) -> list[str]:
    return [name for module, name in EXTRAS[extra].items() if find_spec(module) is None]


def how_to_install(extra: str = "") -> str:
    """Return the instruction for installing mewstream with an extra such as ``spark``, or with several.

    It depends on where the installed package came from, as its installer recorded it (PEP 610)."""
    extras = f"[{extra}]" if extra else ""
    origin = _origin()
    if origin is None:
        return _pip(f"mewstream{extras}")
    url = str(origin.get("url", ""))
    match origin:
        case {"dir_info": {**details}}:
            checkout = Path(unquote(urlsplit(url).path))
            if (checkout / "pyproject.toml").is_file():
                return _pip(f"{checkout}{extras}", editable=details.get("editable") is True)
        case {"vcs_info": {"vcs": vcs, "commit_id": commit}}:
            return _pip(f"mewstream{extras} @ {vcs}+{url}@{commit}")
        case {"archive_info": _}:
            return _pip(f"mewstream{extras} @ {url}")
    return f"in a checkout of mewstream, {_pip(f'.{extras}')}"


def _pip(what: str, *, editable: bool = False) -> str:
    return f"run: {shlex.quote(sys.executable)} -m pip install{' --editable' if editable else ''} {shlex.quote(what)}"


def _origin() -> dict[str, Any] | None:
    """Return the origin of the installed package; None if it was installed by its name, empty if it is not known."""
    try:
        noted = metadata.distribution("mewstream").read_text("direct_url.json")
        found = json.loads(noted) if noted else None
    except (metadata.PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict | None) else {}
