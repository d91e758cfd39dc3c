"""Which segments a partition has, told by the files in its directory, while a gateway begins, seals and prunes them.

A directory is not listed at one moment. Whoever lists it while a segment is sealed may see neither of its forms, or
see one that is gone when it is opened. But segments follow one another without a gap, and each is named after its first
offset: so where one is not seen, its name is known, and asking for it by that name tells whether it is there.
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
#: Seconds before each look at a directory in which something seems to be missing. What is missing in all of them is.
_LOOKS = (0.0, 0.0, 0.002, 0.01, 0.05)


def list_segments(
    filesystem: fs.FileSystem, directory: str, begins_at: Callable[[], int] | None = None
) -> list[Segment]:
    """The segments of a partition in order. Where a segment is there both as it was written and sealed, the sealed one
    counts: its index comes last, so it is complete. ``begins_at`` tells the first offset that was not pruned."""
    for pause in _LOOKS:
        time.sleep(pause)
        segments = [_now(filesystem, segment) for segment in list_once(filesystem, directory)]
        abandoned = {id(segment) for segment in abandoned_in(segments)}
        segments = [segment for segment in segments if id(segment) not in abandoned]
        # Asked after the files, for it is written before the first of them goes.
        begin = begins_at() if begins_at is not None else None
        if begin is not None:
            segments = segments[_pruned([segment.name for segment in segments], begin) :]
        segments = list(_completed(filesystem, directory, segments, begin))
        if _is_whole(segments, begin):
            break
    return segments


def list_once(filesystem: fs.FileSystem, directory: str) -> list[Segment]:
    """What one look at the directory shows, segments included that were begun and given up."""
    infos = {
        info.base_name: info for info in filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    }
    names = {name.first_offset: name for name in _counting(infos)}
    orphans = {
        int(match[1])
        for file, info in infos.items()
        # Data without an index: one that was just begun has nothing but a header in it.
        if (match := _DATA.match(file)) and int(match[1]) not in names and info.size > len(HEADER)
    }
    segments = [read_segment(filesystem, directory, name) for name in names.values()]
    segments += [Segment(directory, SegmentName(first, sealed=False), [], NO_INDEX) for first in orphans]
    return sorted(segments, key=lambda segment: segment.name.first_offset)


def list_names(
    filesystem: fs.FileSystem, directory: str, begins_at: Callable[[], int] | None = None
) -> list[SegmentName]:
    """The same by their names alone: no index is read, however long the history is. One in the middle may be missing,
    when it is being sealed."""
    for pause in _LOOKS:
        time.sleep(pause)
        names = sorted(_counting(_files(filesystem, directory)))
        begin = begins_at() if begins_at is not None else None
        if begin is not None:
            names = names[_pruned(names, begin) :]
        is_begun = begin is None or not names or names[0].first_offset <= begin
        # The next one is begun before a segment is sealed.
        if is_begun and not (names and names[-1].sealed):
            break
    return names


def find_segment(filesystem: fs.FileSystem, directory: str, first_offset: int) -> Segment | None:
    """The segment of that name, in the form that it has now; None where there is none."""
    sealed, unsealed = SegmentName(first_offset, sealed=True), SegmentName(first_offset, sealed=False)
    # If it is sealed between the first two questions, the third finds it.
    for name in (sealed, unsealed, sealed, unsealed):
        segment = read_segment(filesystem, directory, name)
        if not is_missing(segment):
            return segment
    return None


def open_segment(filesystem: fs.FileSystem, segment: Segment) -> tuple[Segment, pa.NativeFile] | None:
    """A segment and its data, in its other form where it was sealed meanwhile; None where it was pruned, or is
    missing."""
    for _ in _LOOKS:
        try:
            return segment, filesystem.open_input_file(segment.data_path)
        except FileNotFoundError:
            found = find_segment(filesystem, segment.directory, segment.name.first_offset)
            if found is None:
                return None
            segment = found
    return None


def abandoned_in(segments: list[Segment]) -> list[Segment]:
    """Empty ones that were begun and could not be finished, while the one before went on."""
    return [
        after
        for before, after in itertools.pairwise(segments)
        if not after.batches and after.flaw is None and after.name.first_offset < before.next_offset
    ]


def is_missing(segment: Segment) -> bool:
    return segment.flaw is not None and segment.flaw.is_missing


def _files(filesystem: fs.FileSystem, directory: str) -> list[str]:
    if isinstance(filesystem, fs.LocalFileSystem):
        # Arrow asks for the size of every file.
        try:
            return os.listdir(directory)  # noqa: PTH208 - names, and no objects around them
        except FileNotFoundError:
            return []
    selector = fs.FileSelector(directory, allow_not_found=True)
    return [info.base_name for info in filesystem.get_file_info(selector)]


def _counting(files: Iterable[str]) -> Iterable[SegmentName]:
    """Of the files of a partition those segments that count."""
    names: dict[int, SegmentName] = {}
    for file in files:
        if match := _INDEX.match(file):
            name = SegmentName(int(match[1]), match[2] is not None)
            if name.sealed or name.first_offset not in names:
                names[name.first_offset] = name
    return names.values()


def _pruned(names: list[SegmentName], begin: int) -> int:
    """How many of these segments lie below the first offset that was not pruned: they are being removed."""
    following = bisect.bisect_right(names, begin, key=lambda name: name.first_offset)
    return max(0, following - 1)


def _now(filesystem: fs.FileSystem, segment: Segment) -> Segment:
    """A segment whose index was not there when it was opened: in its other form, if it has one."""
    if not is_missing(segment):
        return segment
    return find_segment(filesystem, segment.directory, segment.name.first_offset) or segment


def _completed(
    filesystem: fs.FileSystem, directory: str, segments: list[Segment], begin: int | None
) -> Iterator[Segment]:
    """The same, with those that the listing did not show."""
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
    # The next one is begun before a segment is sealed.
    last = segments[-1] if segments else None
    while last is not None and last.name.sealed and last.flaw is None:
        last = find_segment(filesystem, directory, last.next_offset)
        if last is not None:
            yield last


def _is_whole(segments: list[Segment], begin: int | None) -> bool:
    """Nothing is missing before the first nor up to the last, and the last is one that can be written to."""
    if any(map(is_missing, segments)):
        return False
    if segments and (segments[-1].name.sealed or (begin is not None and segments[0].name.first_offset > begin)):
        return False
    return all(
        # An index that is damaged is no matter of the moment.
        before.flaw is not None or before.next_offset == after.name.first_offset
        for before, after in itertools.pairwise(segments)
    )
