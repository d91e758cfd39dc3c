"""What the tests of the journal share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from making import memory_directory


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory: these tests write and sync much, and a disk would only make them slow."""
    with memory_directory() as directory:
        yield directory
