"""The workspace of a space.yaml, which its relative paths, its logs and its token files belong to."""

from __future__ import annotations

from pathlib import Path


def workspace_of(source: Path) -> Path:
    """The directory that contains ``.mew`` if the file is ``.mew/space.yaml``, otherwise the directory of the file. It
    does not depend on where a process was started, so that all processes use the same files."""
    directory = source.absolute().parent
    return directory.parent if (directory.name, source.name) == (".mew", "space.yaml") else directory
