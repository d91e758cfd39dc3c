"""Reading from a connection can be paused, for several reasons at the same time."""

from __future__ import annotations

import asyncio


class Reading:
    """Whether bytes are read from one transport: only while nobody holds it up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self._held: set[object] = set()

    @property
    def is_held(self) -> bool:
        return bool(self._held)

    def hold(self, why: object) -> None:
        """Pause reading until ``why`` and every other reason is released."""
        is_first = not self._held
        self._held.add(why)
        if is_first and self._is_tls:
            # We may be in the middle of a read. A TLS transport that is paused there keeps what it has decrypted and
            # not handed over yet, and after a resume it gives that only when the peer sends more: so pause later.
            self._loop.call_soon(self._apply)
        elif is_first:
            self._apply()

    def release(self, why: object) -> None:
        """Take one reason away; a reason that was never given is ignored."""
        if why in self._held:
            self._held.discard(why)
            self._apply()

    def take_turns(self) -> None:
        """Let other connections have a turn of the loop before more is read here."""
        if not self._is_tls:
            self.hold(self)
            self._loop.call_soon(self.release, self)

    def _apply(self) -> None:
        if self._transport.is_closing():
            return
        if self._held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
