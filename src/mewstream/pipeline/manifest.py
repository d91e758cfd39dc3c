"""The commits of a warehouse: which files are the tables, as of the last batch that is complete.

A commit is one small JSON file in ``_commits``, put in place at once and last. It names everything
that counts, so that the newest one is all that a reader needs, and whatever no commit names was never
written as far as anybody can see.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import msgspec

from mewstream.journal.files import Files
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.tables import SCHEMA_VERSION

COMMITS = "_commits"
#: How long files stay that no commit names any longer: readers that began before may still need them.
GRACE_SECONDS = 300.0
_SWEEP_EVERY = 50


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """Files that hold rows of a table. ``version`` is that of a Delta table, which has one piece."""

    path: str
    """Relative to the warehouse."""
    rows: int
    level: int = 0
    """How often its rows were put together with others."""
    version: int | None = None


class Retired(msgspec.Struct, frozen=True):
    path: str
    at: float


class Manifest(msgspec.Struct, kw_only=True):
    number: int
    """Of the commit."""
    batch: int
    """The last batch that is in the tables; 0 before the first."""
    journal: str
    """The id of the journal that the tables are made from."""
    offsets: dict[int, int]
    """For each partition of the journal the next offset to read."""
    table_format: str
    schema_version: int = SCHEMA_VERSION
    generation: int = 1
    """Grows with every full refresh."""
    tables: dict[str, list[Piece]] = {}
    """Final rows, oldest first."""
    open: dict[str, Piece] = {}
    """Open rows, of the last batch."""
    retired: list[Retired] = []
    """What the commits before named, and may be removed later."""
    committed: float = 0.0

    def rows(self, table: str) -> int:
        carried = self.open.get(table)
        return sum(piece.rows for piece in self.tables.get(table, ())) + (carried.rows if carried else 0)

    def paths(self) -> set[str]:
        """Everything that this commit names."""
        named = {piece.path for pieces in self.tables.values() for piece in pieces}
        return named | {piece.path for piece in self.open.values()}


def newest(root: Path) -> Manifest | None:
    """The last commit, or None where there is none."""
    files = sorted((root / COMMITS).glob("*.json"))
    for _ in range(3):
        if not files:
            return None
        try:
            return msgspec.json.decode(files[-1].read_bytes(), type=Manifest)
        except FileNotFoundError:
            # Swept away between listing and reading: there are newer ones.
            files = sorted((root / COMMITS).glob("*.json"))
        except msgspec.MsgspecError as flaw:
            raise WarehouseError(f"{files[-1]} cannot be read: {flaw}. Put it back from a copy") from None
    raise WarehouseError(f"{root / COMMITS}: the commits vanish while they are read")


def commit(root: Path, manifest: Manifest, before: Manifest | None) -> Manifest:
    """Make ``manifest`` the newest. What ``before`` named and it does not, is retired."""
    manifest.number = before.number + 1 if before else 1
    manifest.committed = time.time()
    if before:
        gone = before.paths() - manifest.paths()
        if manifest.table_format == "delta" and manifest.generation == before.generation:
            gone = set()  # the path of a table is for good: it has no rows now, and perhaps some in the next batch
        # A warehouse of before that rule may have retired what is in use again.
        kept = [each for each in before.retired if each.path not in manifest.paths()]
        manifest.retired = kept + [Retired(path, manifest.committed) for path in sorted(gone)]
    due = [each for each in manifest.retired if manifest.committed - each.at > GRACE_SECONDS]
    manifest.retired = [each for each in manifest.retired if manifest.committed - each.at <= GRACE_SECONDS]
    (root / COMMITS).mkdir(parents=True, exist_ok=True)
    Files().replace(root / COMMITS / f"{manifest.number:020d}.json", msgspec.json.encode(manifest))
    remove(root, [each.path for each in due])
    if manifest.number % _SWEEP_EVERY == 0:
        _forget_old_commits(root, manifest)
    return manifest


def remove(root: Path, paths: list[str]) -> None:
    """Files that nobody reads any longer, and the directory around them where it is empty then."""
    for path in paths:
        shutil.rmtree(root / path, ignore_errors=True)
        parent = (root / path).parent
        if parent != root and not any(each.is_dir() for each in parent.glob("*")) and parent.parent != root:
            shutil.rmtree(parent, ignore_errors=True)


def _forget_old_commits(root: Path, manifest: Manifest) -> None:
    for file in sorted((root / COMMITS).glob("*.json"))[:-1]:
        if manifest.committed - file.stat().st_mtime > GRACE_SECONDS:
            file.unlink(missing_ok=True)
