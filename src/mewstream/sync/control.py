"""Participant control, without ``async``. Functions run in a thread, where they may use the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mewstream.client import control
from mewstream.client import space as client
from mewstream.client.control import C, H, S
from mewstream.client.status import Compacted, Status
from mewstream.sync.event_loop import EventLoop, documented_as


@documented_as(control.Control)
class Control:
    """The part of a space that is about controlling participants."""

    _loop: EventLoop
    _space: client.Space

    @property
    def is_paused(self) -> bool:
        return self._space.is_paused

    def pause(self, participant: str, *, seconds: float | None = None, reason: str | None = None) -> None:
        self._loop.run(self._space.pause(participant, seconds=seconds, reason=reason))

    def resume(self, participant: str, *, reason: str | None = None) -> None:
        self._loop.run(self._space.resume(participant, reason=reason))

    def request_status(
        self, participant: str, *, fields: Sequence[str] | None = None, timeout: float | None = None
    ) -> Status:
        return self._loop.run(self._space.request_status(participant, fields=fields, timeout=timeout))

    def forget(
        self,
        participant: str,
        *,
        direction: Literal["oldest", "newest"] = "oldest",
        entries: int | None = None,
        timeout: float | None = None,
    ) -> Status:
        return self._loop.run(self._space.forget(participant, direction=direction, entries=entries, timeout=timeout))

    def clear(self, participant: str, *, reason: str | None = None, timeout: float | None = None) -> Status:
        return self._loop.run(self._space.clear(participant, reason=reason, timeout=timeout))

    def compact(
        self,
        participant: str,
        *,
        target_tokens: int | None = None,
        reason: str | None = None,
        timeout: float | None = None,
    ) -> Compacted:
        return self._loop.run(
            self._space.compact(participant, target_tokens=target_tokens, reason=reason, timeout=timeout)
        )

    def restart(self, participant: str, *, reason: str | None = None) -> None:
        self._loop.run(self._space.restart(participant, reason=reason))

    def shutdown(self, participant: str, *, reason: str | None = None) -> None:
        self._loop.run(self._space.shutdown(participant, reason=reason))

    def report_status(self, status: Status | Mapping[str, Any], *, to: str | Sequence[str] | None = None) -> None:
        self._loop.run(self._space.report_status(status, to=to))

    def on_pause(self, function: H) -> H:
        return self._loop.call(lambda: self._space.on_pause(function))

    def on_resume(self, function: H) -> H:
        return self._loop.call(lambda: self._space.on_resume(function))

    def on_status(self, function: S) -> S:
        return self._loop.call(lambda: self._space.on_status(function))

    def on_forget(self, function: H) -> H:
        return self._loop.call(lambda: self._space.on_forget(function))

    def on_clear(self, function: H) -> H:
        return self._loop.call(lambda: self._space.on_clear(function))

    def on_compact(self, function: C) -> C:
        return self._loop.call(lambda: self._space.on_compact(function))

    def on_restart(self, function: H) -> H:
        return self._loop.call(lambda: self._space.on_restart(function))

    def on_shutdown(self, function: H) -> H:
        return self._loop.call(lambda: self._space.on_shutdown(function))
