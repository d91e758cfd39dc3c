"""What can be awaited, or used with ``async with``: a space being joined, a stream being opened."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T", bound=AbstractAsyncContextManager[Any])


class AwaitableContext(Generic[T]):
    """``await`` gives what ``make`` returns; ``async with`` gives the same, and leaves it at the end of the block."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.make = make
        self._made: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self.make().__await__()

    async def __aenter__(self) -> T:
        self._made = await self.make()
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._made is not None
        await self._made.__aexit__(kind, error, traceback)
