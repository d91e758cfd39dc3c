"""What we do when somebody controls us: our functions are called in order, and the answers that the spec asks for are
sent (sections 3.9.1 to 3.9.10)."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mewstream.client.errors import ConnectionClosed
from mewstream.client.events import Instructed
from mewstream.client.status import Compacted, Status
from mewstream.client.user_code import UserCode
from mewstream.protocol import kinds
from mewstream.protocol.close_codes import NORMAL
from mewstream.protocol.errors import MewError

if TYPE_CHECKING:
    from mewstream.client.space import Space

#: How many instructions may wait for the functions of the program; more are ignored.
MAX_WAITING = 100
#: How many pauses of others are remembered; the oldest are forgotten.
MAX_PAUSES = 1000
#: How long the function for a shutdown may take, and how long we wait for the gateway to take its acknowledgement.
SHUTDOWN_SECONDS = 10.0
ACKNOWLEDGE_SECONDS = 2.0

_FOR_EVERYONE = frozenset({kinds.REQUEST_STATUS, kinds.FORGET, kinds.CLEAR, kinds.COMPACT})

logger = logging.getLogger("mewstream.client")


class Controlled:
    """Carries out the instructions for us, one after the other."""

    def __init__(self, space: Space) -> None:
        self.hooks: dict[str, Callable[[Instructed], Any]] = {}
        """The functions of the program, by the kind of instruction."""
        self.is_paused = False
        self.pauses: OrderedDict[str, str] = OrderedDict()
        """The ids of the newest pauses that we have seen, by participant; whoever ends one should name it (3.9.2)."""
        self._space = space
        self._code = UserCode("mewstream-control", 1)
        self._waiting: asyncio.Queue[Instructed] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._end_of_pause: asyncio.TimerHandle | None = None
        self._is_flooded = False
        """Whether instructions are being ignored, which is logged once."""

    def received(self, instruction: Instructed) -> None:
        """Carry out an instruction, if it is for us."""
        self._note_pause(instruction)
        if not self._is_for_us(instruction):
            return
        if instruction.kind in (kinds.PAUSE, kinds.RESUME):
            self._pause(instruction)
        if self._waiting.qsize() >= MAX_WAITING:
            if not self._is_flooded:
                logger.info("too many instructions wait: %s of %s is ignored", instruction.kind, instruction.sender)
            self._is_flooded = True
            return
        self._is_flooded = False
        self._waiting.put_nowait(instruction)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def _is_for_us(self, instruction: Instructed) -> bool:
        """Return whether an instruction names us. One that names nobody is for everyone but its sender, if it only asks
        or cleans up; a resume that names nobody is for its sender."""
        me = self._space.participant
        if instruction.to:
            return me in instruction.to
        if instruction.kind == kinds.RESUME:
            return instruction.sender == me
        return instruction.kind in _FOR_EVERYONE and instruction.sender != me

    def end(self) -> None:
        """Do nothing more."""
        if self._end_of_pause is not None:
            self._end_of_pause.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._code.end()

    # -- pauses -------------------------------------------------------------------------------------

    def _note_pause(self, instruction: Instructed) -> None:
        if instruction.kind in (kinds.PAUSE, kinds.RESUME) and instruction.message is not None:
            for participant in instruction.to[:MAX_PAUSES]:
                self.pauses.pop(participant, None)
                if instruction.kind == kinds.PAUSE:
                    self.pauses[participant] = instruction.message.id
                    if len(self.pauses) > MAX_PAUSES:
                        self.pauses.popitem(last=False)

    def _pause(self, instruction: Instructed) -> None:
        self.is_paused = instruction.kind == kinds.PAUSE
        if self._end_of_pause is not None:
            self._end_of_pause.cancel()
            self._end_of_pause = None
        seconds = instruction.seconds
        if self.is_paused and seconds is not None and self._space._link.epoch is None:
            # A mewstream gateway says when the time is over. Of another one the spec expects that from us.
            loop = asyncio.get_running_loop()
            self._end_of_pause = loop.call_later(seconds, self._resume, instruction)

    def _resume(self, pause: Instructed) -> None:
        self._end_of_pause = None
        id = pause.message.id if pause.message is not None else ""
        self._space._inbox.post(kinds.RESUME, {"reason": "timeout"}, to=[self._space.participant], correlation_id=[id])

    # -- carrying out -------------------------------------------------------------------------------

    async def _work(self) -> None:
        while not self._space.is_closed:
            instruction = await self._waiting.get()
            try:
                await self._carry_out(instruction)
            except MewError as failure:
                # Most often a capability that we do not have, such as participant/status.
                logger.info("%s of %s could not be answered: %s", instruction.kind, instruction.sender, failure)
            except Exception:
                logger.exception("%s of %s could not be carried out", instruction.kind, instruction.sender)

    async def _carry_out(self, instruction: Instructed) -> None:
        match instruction.kind:
            case kinds.PAUSE | kinds.RESUME:
                await self._call(instruction)
            case kinds.REQUEST_STATUS:
                await self._report(instruction, await self._status(instruction))
            case kinds.FORGET | kinds.CLEAR:
                await self._call(instruction)
                await self._report(instruction, await self._status(instruction))
            case kinds.COMPACT:
                await self._compact(instruction)
            case kinds.RESTART:
                await self._restart(instruction)
            case kinds.SHUTDOWN:
                await self._shut_down(instruction)

    async def _call(self, instruction: Instructed, hook: str | None = None) -> Any:
        function = self.hooks.get(hook or instruction.kind)
        return await self._code.run(function, instruction) if function is not None else None

    async def _status(self, instruction: Instructed) -> dict[str, Any]:
        """Return our status: what the function of the program says, and whether we are paused."""
        found = await self._call(instruction, kinds.REQUEST_STATUS)
        payload = found.as_dict() if isinstance(found, Status) else dict(found) if isinstance(found, Mapping) else {}
        payload.setdefault("messages_in_context", 0)  # required; a program without a context keeps none
        payload.setdefault("status", "paused" if self.is_paused else "active")
        wanted = instruction.fields
        if wanted:
            payload = {key: value for key, value in payload.items() if key in (*wanted, "messages_in_context")}
        return payload

    async def _report(self, instruction: Instructed, payload: dict[str, Any]) -> None:
        await self._answer(instruction, kinds.STATUS, payload)

    async def _compact(self, instruction: Instructed) -> None:
        if kinds.COMPACT not in self.hooks:
            done = Compacted(skipped=True, reason="there is nothing to compact").as_dict()
        else:
            try:
                await self._report(instruction, {**await self._status(instruction), "status": "compacting"})
            except MewError as failure:
                logger.info("the beginning of a compaction could not be reported: %s", failure)
            try:
                found = await self._call(instruction)
                done = found.as_dict() if isinstance(found, Compacted) else dict(found or {})
                done.setdefault("status", "compacted")
            except Exception as failure:
                logger.exception("the compaction failed")
                done = Compacted(skipped=True, reason=f"{type(failure).__name__}: {failure}", status="failed").as_dict()
        await self._answer(instruction, kinds.COMPACT_DONE, done)

    async def _restart(self, instruction: Instructed) -> None:
        if kinds.RESTART not in self.hooks:
            return
        self._space._server.stop_calls(f"{self._space.participant} was told to begin again")
        for stream in [each for each in self._space.streams.values() if each.is_mine]:
            try:
                await stream.close(reason="restart")
            except MewError as failure:
                logger.info("%s could not be closed for the restart: %s", stream.id, failure)
        await self._call(instruction)
        await self._report(instruction, await self._status(instruction))

    async def _shut_down(self, instruction: Instructed) -> None:
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await self._call(instruction)
        except TimeoutError:
            logger.warning("the function for a shutdown takes too long: we leave without it")
        except Exception:
            logger.exception("the function for a shutdown failed")
        try:
            await self._answer(instruction, kinds.CHAT_ACKNOWLEDGE, {"status": "received"}, ACKNOWLEDGE_SECONDS)
        except MewError as failure:
            logger.info("the shutdown could not be acknowledged: %s", failure)  # leaving tells it as well
        because = f": {instruction.reason}" if instruction.reason else ""
        await self._space._link.close(ConnectionClosed(f"{instruction.sender} shut us down{because}", code=NORMAL))

    async def _answer(
        self, instruction: Instructed, kind: str, payload: dict[str, Any], timeout: float | None = None
    ) -> None:
        id = instruction.message.id if instruction.message is not None else ""
        await self._space._call(kind, payload, to=instruction.sender, correlation_id=id, timeout=timeout)
