"""Opening streams."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mewstream.client import untrusted
from mewstream.client.awaitable import AwaitableContext
from mewstream.client.errors import RequestTimeout
from mewstream.client.format import Format
from mewstream.client.messages import without_none
from mewstream.client.requests import Requests
from mewstream.client.schema_checks import require_schema_checks
from mewstream.client.stream import Stream
from mewstream.protocol import kinds
from mewstream.protocol.errors import MewError
from mewstream.protocol.policy import History, IfExists, OnSlow, OwnerLeave, Validate


class Opening(AwaitableContext[Stream]):
    """A stream being opened: ``await`` it, or use it with ``async with``, which closes the stream at the end."""


class StreamOpening(Requests):
    """The part of a :class:`Space` that opens streams."""

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
    ) -> Opening:
        """Open a stream to which frames can be sent immediately.

        ``name`` finds it as its id does, and is still known when we have been restarted: ``if_exists`` says what
        should happen if there is a stream of that name. ``new`` (the default) opens one without the name;
        ``reuse`` gives our stream back, and :attr:`Stream.reused` says so; ``replace`` closes the other one, which
        we must own or manage; ``error`` raises :class:`AlreadyExists`, and so does ``reuse`` for another's stream.

        ``target`` names its readers (default: everyone), ``auto_grant`` its writers. ``validate=True`` checks what we
        send against the stream's format before it is sent; ``"enforce"`` makes the gateway refuse whatever anybody
        sends that is not of its format, and ``"off"`` nothing. ``on_slow`` says what slow readers lose,
        ``on_owner_leave`` what becomes of it ``owner_leave_grace`` seconds after its owner has left, and
        ``idle_timeout`` after how many seconds without a frame it is closed. ``history`` says who may read earlier
        frames, and ``priority`` (0 to 9) what slow readers lose first, if the gateway can do that. ``fields`` are any
        other fields, which are kept with the stream and shown to everyone.

        Returns the :class:`Stream` when awaited, or with ``async with``, which closes it at the end if we still own
        it. Raises :class:`CapabilityViolation`, :class:`TargetNotFound`, what every request raises, ValueError for
        ``if_exists`` without a name, and :class:`ConfigError` if ``validate`` needs the extra ``schemas``, which is
        not installed.
        """
        return self._opening(
            kinds.STREAM_REQUEST,
            formats,
            validate,
            fields,
            desired_id=name,
            if_exists=if_exists,
            description=description,
            content_type=content_type,
            direction=direction,
            target=target,
            metadata=metadata,
            auto_grant=auto_grant,
            on_slow=on_slow,
            on_owner_leave=on_owner_leave,
            owner_leave_grace=owner_leave_grace,
            idle_timeout=idle_timeout,
            history=history,
            priority=priority,
        )

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
    ) -> Opening:
        """Open a stream by the handshake of announce, ready and start: frames can be sent after ``start()``. The
        options are those of :meth:`open_stream`; ``intent`` says what it is for, and ``scope`` for whom. Returns and
        raises as that does."""
        return self._opening(
            kinds.STREAM_ANNOUNCE,
            formats,
            validate,
            fields,
            desired_id=name,
            if_exists=if_exists,
            description=description,
            intent=intent,
            scope=scope,
            target=target,
            metadata=metadata,
            auto_grant=auto_grant,
            on_slow=on_slow,
            on_owner_leave=on_owner_leave,
            owner_leave_grace=owner_leave_grace,
            idle_timeout=idle_timeout,
            history=history,
            priority=priority,
        )

    def _opening(
        self,
        kind: str,
        formats: Sequence[Format | Mapping[str, Any]] | None,
        validate: bool | Validate,
        others: Mapping[str, Any] | None,
        **fields: Any,
    ) -> Opening:
        if fields["if_exists"] is not None and fields["desired_id"] is None:
            raise ValueError(f"if_exists={fields['if_exists']!r} says what to do with a taken name: give a name too")
        if validate is True:
            require_schema_checks()
        payload = {**(others or {}), **without_none(**fields)}
        if formats is not None:
            payload["formats"] = [each.as_dict() if isinstance(each, Format) else each for each in formats]
        if isinstance(validate, str):
            payload["validate"] = validate
        return Opening(lambda: self._open_stream(kind, payload, validate is True))

    async def _open_stream(self, kind: str, payload: Mapping[str, Any], validates: bool) -> Stream:
        id = self._inbox.calls.next_id()
        try:
            answer_kind = kinds.STREAM_OPEN if kind == kinds.STREAM_REQUEST else kinds.STREAM_READY
            answer = await self._call(kind, payload, answer=answer_kind, id=id)
        except (asyncio.CancelledError, RequestTimeout):
            self._inbox.abandon(id)  # the stream may still be opened, and nobody would close it
            raise
        described = untrusted.as_object(answer.payload.get("stream", answer.payload))
        stream_id = untrusted.text(described.get("stream_id"))
        if stream_id is None:
            raise MewError("the gateway answered without the id of the stream: it speaks another protocol")
        # The view has it already, unless it was ended in the meantime.
        stream = self._inbox.view.streams.get(stream_id) or self._inbox.view.make_stream(described)
        stream._validates = validates
        return stream
