"""Refusals of a time in which nothing can be recorded: counted, and recorded as sums when that time is over."""

from __future__ import annotations

import msgspec

from mewstream.protocol.commands import Refuse

_Key = tuple[str, bool, str, str | None]
"""Sender, whether it was a frame, code and stream."""


class UnrecordedRefusals:
    """One sum for each sender, code and stream, frames apart from everything else: no more than there are participants
    and floods of theirs."""

    def __init__(self) -> None:
        self._sums: dict[_Key, Refuse] = {}

    def __len__(self) -> int:
        return sum(refuse.count for refuse in self._sums.values())

    def add(self, refuse: Refuse) -> bool:
        """Whether it is the first of its sort."""
        key = (refuse.sender, refuse.kind == "frame", refuse.code, refuse.stream_id)
        known = self._sums.get(key)
        if known is None:
            self._sums[key] = refuse
            return True
        self._sums[key] = msgspec.structs.replace(
            known,
            count=known.count + refuse.count,
            kind=known.kind if known.kind == refuse.kind else "",
        )
        return False

    def take(self) -> list[Refuse]:
        """All of them, to be recorded now."""
        sums, self._sums = list(self._sums.values()), {}
        return [_summed_up(refuse) for refuse in sums]


def _summed_up(refuse: Refuse) -> Refuse:
    """It answers no message in particular: each was answered when it came."""
    what = "frames" if refuse.kind == "frame" else "messages"
    text = f"refused while the journal could not be written: {refuse.count} {what}, the first because {refuse.message}"
    return msgspec.structs.replace(refuse, message=text, id=None)
