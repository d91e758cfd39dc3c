"""Listing the segments of a partition while a gateway begins, seals and prunes them.

Listing a directory is not atomic: while a segment is sealed, a listing may show neither of its forms, or one that is
gone when it is opened. But segments follow one another without a gap and are named after their first offsets. So the
name of a segment that a listing does not show is known, and opening it by that name tells whether it exists.
"""

from __future__ import annotations

import bisect
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyarrow import fs

from mewstream.journal.segments import HEADER, NO_INDEX, Segment, SegmentName, read_segment

_INDEX = re.compile(r"(\d{20})(\.sealed)?\.index\Z")
_DATA = re.compile(r"(\d{20})\.arrow\Z")
#: Seconds before each attempt to list a directory. A segment that is missing in all of the listings is missing.
_PAUSES = (0.0, 0.0, 0.002, 0.01, 0.05)


def list_segments(
    filesystem: fs.FileSystem, directory: str, begins_at: Callable[[], int] | None = None
) -> list[Segment]:
    """Return the segments of a partition in order. If a segment exists both as it was written and sealed, the sealed
    one is returned: its index is written last, so it is complete. ``begins_at`` returns the first offset that was not
    pruned."""
    for pause in _PAUSES:
        time.sleep(pause)
        segments = [_current_form(filesystem, segment) for segment in list_once(filesystem, directory)]
        abandoned = {id(segment) for segment in abandoned_in(segments)}
        segments = [segment for segment in segments if id(segment) not in abandoned]
        # After the listing, because this is updated before the first file is removed.
        begin = begins_at() if begins_at is not None else None
        if begin is not None:
            segments = segments[_pruned([segment.name for segment in segments], begin) :]
        segments = list(_completed(filesystem, directory, segments, begin))
        if _is_whole(segments, begin):
            break
    return segments


def list_once(filesystem: fs.FileSystem, directory: str) -> list[Segment]:
    """Return what a single listing shows, including segments that were begun and given up."""
    infos = {
        info.base_name: info for info in filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    }
    names = {name.first_offset: name for name in _names_of(infos)}
    orphans = {
        int(match[1])
        for file, info in infos.items()
        # Data without an index. A segment that was just begun holds nothing but a header.
        if (match := _DATA.match(file)) and int(match[1]) not in names and info.size > len(HEADER)
    }
    segments = [read_segment(filesystem, directory, name) for name in names.values()]
    segments += [Segment(directory, SegmentName(first, sealed=False), [], NO_INDEX) for first in orphans]
    return sorted(segments, key=lambda segment: segment.name.first_offset)


def list_names(
    filesystem: fs.FileSystem, directory: str, begins_at: Callable[[], int] | None = None
) -> list[SegmentName]:
    """Return the names of the segments, without reading an index, however long the history is. A segment in the middle
    may be left out while it is being sealed."""
    for pause in _PAUSES:
        time.sleep(pause)
        names = sorted(_names_of(_files(filesystem, directory)))
        begin = begins_at() if begins_at is not None else None
        if begin is not None:
            names = names[_pruned(names, begin) :]
        is_begun = begin is None or not names or names[0].first_offset <= begin
        # A segment is sealed only after the next one has been begun, so the last one is never sealed.
        if is_begun and not (names and names[-1].sealed):
            break
    return names


def find_segment(filesystem: fs.FileSystem, directory: str, first_offset: int) -> Segment | None:
    """Return the segment with this first offset in the form that it has now, or None."""
    sealed, unsealed = SegmentName(first_offset, sealed=True), SegmentName(first_offset, sealed=False)
    # If it is sealed between the first two attempts, the third finds it.
    for name in (sealed, unsealed, sealed, unsealed):
        segment = read_segment(filesystem, directory, name)
        if not is_missing(segment):
            return segment
    return None


def open_segment(filesystem: fs.FileSystem, segment: Segment) -> tuple[Segment, pa.NativeFile] | None:
    """Open the data of a segment, in its sealed form if it was sealed meanwhile. Returns None if it was pruned or is
    missing."""
    for _ in _PAUSES:
        try:
            return segment, filesystem.open_input_file(segment.data_path)
        except FileNotFoundError:
            found = find_segment(filesystem, segment.directory, segment.name.first_offset)
            if found is None:
                return None
            segment = found
    return None


def abandoned_in(segments: list[Segment]) -> list[Segment]:
    """Return the empty segments that were begun but never used, because writing continued in the one before."""
    return [
        after
        for before, after in itertools.pairwise(segments)
        if not after.batches and after.flaw is None and after.name.first_offset < before.next_offset
    ]


def is_missing(segment: Segment) -> bool:
    return segment.flaw is not None and segment.flaw.is_missing


def _files(filesystem: fs.FileSystem, directory: str) -> list[str]:
    if isinstance(filesystem, fs.LocalFileSystem):
        # Arrow would ask for the size of every file.
        try:
            return os.listdir(directory)  # noqa: PTH208 - plain names are enough
        except FileNotFoundError:
            return []
    selector = fs.FileSelector(directory, allow_not_found=True)
    return [info.base_name for info in filesystem.get_file_info(selector)]


def _names_of(files: Iterable[str]) -> Iterable[SegmentName]:
    """Return the segments that these files belong to, each in the form that counts."""
    names: dict[int, SegmentName] = {}
    for file in files:
        if match := _INDEX.match(file):
            name = SegmentName(int(match[1]), match[2] is not None)
            if name.sealed or name.first_offset not in names:
                names[name.first_offset] = name
    return names.values()


def _pruned(names: list[SegmentName], begin: int) -> int:
    """Return how many of these segments were pruned and are being removed: those below ``begin``."""
    following = bisect.bisect_right(names, begin, key=lambda name: name.first_offset)
    return max(0, following - 1)


def _current_form(filesystem: fs.FileSystem, segment: Segment) -> Segment:
    """Return a segment whose index was gone when it was opened in its other form, if it has one."""
    if not is_missing(segment):
        return segment
    return find_segment(filesystem, segment.directory, segment.name.first_offset) or segment


def _completed(
    filesystem: fs.FileSystem, directory: str, segments: list[Segment], begin: int | None
) -> Iterator[Segment]:
    """Yield the segments, and between them those that the listing did not show."""
    expected = begin
    for segment in segments:
        while expected is not None and expected < segment.name.first_offset:
            found = find_segment(filesystem, directory, expected)
            if found is None or not found.batches:
                break
            yield found
            expected = found.next_offset
        yield segment
        expected = segment.next_offset if segment.flaw is None else None
    # A segment is sealed only after the next one has been begun, so there must be more after a sealed one.
    last = segments[-1] if segments else None
    while last is not None and last.name.sealed and last.flaw is None:
        last = find_segment(filesystem, directory, last.next_offset)
        if last is not None:
            yield last


def _is_whole(segments: list[Segment], begin: int | None) -> bool:
    """Whether no segment is missing, and the last one is not sealed."""
    if any(map(is_missing, segments)):
        return False
    if segments and (segments[-1].name.sealed or (begin is not None and segments[0].name.first_offset > begin)):
        return False
    return all(
        # Waiting does not repair a damaged index.
        before.flaw is not None or before.next_offset == after.name.first_offset
        for before, after in itertools.pairwise(segments)
    )
