"""The built console in the package is that of its sources, small, and free of what a strict policy forbids."""

from __future__ import annotations

import gzip
import json
import re
import runpy
from pathlib import Path

STAMP = runpy.run_path(str(Path(__file__).parents[2] / "console/stamp.py"))
BUILT: Path = STAMP["BUILT"]
#: All of it together, as a proxy that compresses would send it.
MAX_COMPRESSED_BYTES = 120_000


def test_it_is_built_of_its_sources() -> None:
    found = json.loads(STAMP["STAMP"].read_text())
    assert found == STAMP["stamp"](), "the console has changed: run `make console`, and commit what it builds"


def test_it_is_small() -> None:
    size = sum(len(gzip.compress(file.read_bytes())) for file in BUILT.rglob("*") if file.is_file())
    assert size <= MAX_COMPRESSED_BYTES


def test_it_names_no_other_host() -> None:
    """The namespaces of SVG and MathML are names, not addresses."""
    for file in (BUILT / "assets").iterdir():
        addresses = set(re.findall(r"(?:https?|wss?)://[\w.-]+", file.read_text()))
        assert addresses <= {"http://www.w3.org", "ws://127.0.0.1"}, file.name
