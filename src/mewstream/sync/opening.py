"""Opening streams, without ``async``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mewstream.client import opening
from mewstream.client import space as client
from mewstream.client.format import Format
from mewstream.protocol.policy import History, IfExists, OnSlow, OwnerLeave, Validate
from mewstream.sync.event_loop import EventLoop, documented_as
from mewstream.sync.stream import Stream


@documented_as(opening.StreamOpening)
class StreamOpening:
    """The part of a space that opens streams."""

    _loop: EventLoop
    _space: client.Space

    def open_stream(
        self,
        *,
        name: str | None = None,
        if_exists: IfExists | None = None,
        description: str | None = None,
        content_type: str | None = None,
        direction: Literal["upload", "download"] = "upload",
        target: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        formats: Sequence[Format | Mapping[str, Any]] | None = None,
        auto_grant: Sequence[str] | None = None,
        validate: bool | Validate = False,
        on_slow: OnSlow | None = None,
        on_owner_leave: OwnerLeave | None = None,
        owner_leave_grace: float | None = None,
        idle_timeout: float | None = None,
        history: History | None = None,
        priority: int | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Stream:
        opening = self._space.open_stream(
            name=name,
            if_exists=if_exists,
            description=description,
            content_type=content_type,
            direction=direction,
            target=target,
            metadata=metadata,
            formats=formats,
            auto_grant=auto_grant,
            validate=validate,
            on_slow=on_slow,
            on_owner_leave=on_owner_leave,
            owner_leave_grace=owner_leave_grace,
            idle_timeout=idle_timeout,
            history=history,
            priority=priority,
            fields=fields,
        )
        return Stream(self._loop, self._loop.run(opening.make()))

    def announce(
        self,
        *,
        name: str | None = None,
        if_exists: IfExists | None = None,
        description: str | None = None,
        intent: str | None = None,
        scope: Sequence[str] | None = None,
        target: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        formats: Sequence[Format | Mapping[str, Any]] | None = None,
        auto_grant: Sequence[str] | None = None,
        validate: bool | Validate = False,
        on_slow: OnSlow | None = None,
        on_owner_leave: OwnerLeave | None = None,
        owner_leave_grace: float | None = None,
        idle_timeout: float | None = None,
        history: History | None = None,
        priority: int | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Stream:
        opening = self._space.announce(
            name=name,
            if_exists=if_exists,
            description=description,
            intent=intent,
            scope=scope,
            target=target,
            metadata=metadata,
            formats=formats,
            auto_grant=auto_grant,
            validate=validate,
            on_slow=on_slow,
            on_owner_leave=on_owner_leave,
            owner_leave_grace=owner_leave_grace,
            idle_timeout=idle_timeout,
            history=history,
            priority=priority,
            fields=fields,
        )
        return Stream(self._loop, self._loop.run(opening.make()))
