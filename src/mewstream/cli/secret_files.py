"""Writing files that only their owner can read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from mewstream.protocol.errors import ConfigError


@contextmanager
def secret_file(file: Path, *, replace: bool = False) -> Iterator[TextIO]:
    """Create a file that only its owner can read.

    Raises ConfigError if the file exists, unless ``replace`` is true. If the block raises, the file is removed."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if replace:
        file.unlink(missing_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{file} exists already: remove it, or give another file") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            yield opened
    except BaseException:
        file.unlink(missing_ok=True)
        raise
