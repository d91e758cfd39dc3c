"""Says which sources the built console was made of: a hash of all of them, beside the built files.

A test compares it, so that nobody forgets to build the console after a change. It needs no Node.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "src/mewstream/gateway/console"
STAMP = BUILT / "build.json"
#: Everything that the built files are made of. The client is a part of the console.
SOURCES = ("console/index.html", "console/package-lock.json", "console/vite.config.js", "console/src")
CLIENT = "clients/typescript/src"


def hash_of_sources() -> str:
    files = sorted(
        file
        for source in (*SOURCES, CLIENT)
        for file in ([ROOT / source] if (ROOT / source).is_file() else (ROOT / source).rglob("*"))
        if file.is_file()
    )
    return _hash_of(files, ROOT)


def hash_of_built() -> str:
    return _hash_of(sorted(file for file in BUILT.rglob("*") if file.is_file() and file != STAMP), BUILT)


def _hash_of(files: list[Path], base: Path) -> str:
    total = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        total.update(f"{file.relative_to(base).as_posix()} {content}\n".encode())
    return total.hexdigest()


def stamp() -> dict[str, str]:
    return {"sources": hash_of_sources(), "built": hash_of_built()}


if __name__ == "__main__":
    STAMP.write_text(json.dumps(stamp(), indent=1) + "\n")
