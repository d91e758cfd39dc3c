"""How to install an extra of mewstream, which depends on where the installed package came from: it is on no index."""

from __future__ import annotations

import json
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def how_to_install(extra: str = "") -> str:
    """The instruction for installing mewstream with an extra such as ``spark``."""
    extras = f"[{extra}]" if extra else ""
    origin = _origin()
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


def _origin() -> dict[str, Any]:
    """Where the installed package came from, as recorded by its installer (PEP 610); empty if that is not known."""
    try:
        noted = metadata.distribution("mewstream").read_text("direct_url.json")
        found = json.loads(noted) if noted else {}
    except (metadata.PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
