"""Where relative paths of a space.yaml start: its output logs, the logs below ``.mew``, and the token files."""

from __future__ import annotations

from pathlib import Path


def workspace_of(source: Path) -> Path:
    """The directory that holds ``.mew/`` where the file is ``.mew/space.yaml``, else the directory of the file. It does
    not depend on where a process was started, so that all see the same files."""
    directory = source.absolute().parent
    return directory.parent if (directory.name, source.name) == (".mew", "space.yaml") else directory
