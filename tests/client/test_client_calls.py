"""``client/calls``: which message answers which request. No sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from mewstream import AnswerLost, MewError, StreamNotFound
from mewstream.client.calls import Calls
from mewstream.client.messages import Message
from mewstream.protocol import kinds

ME = "me"


def message(kind: str, *, sender: str = kinds.GATEWAY, id: str = "", of: str = "", **payload: Any) -> Message:
    return Message(kind=kind, id=id, sender=sender, correlation_id=[of] if of else [], payload=payload)


def begin(
    calls: Calls, *, answer: str | None = None, answerers: Collection[str] = (ME,), body: bytes = b"{}"
) -> tuple[str, asyncio.Future[Message]]:
    id = calls.next_id()
    return id, calls.begin(id, body, () if answer is None else (answer,), answerers)


def test_ids_are_recognised_and_never_the_same() -> None:
    calls, others = Calls(), Calls()
    ids = {calls.next_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(calls.is_own(id) for id in ids)
    assert not any(others.is_own(id) for id in ids)


class TestAnswers:
    async def test_our_own_message_relayed(self) -> None:
        calls = Calls()
        id, future = begin(calls)
        relayed = message(kinds.CHAT, sender=ME, id=id)
        assert calls.received(relayed)
        assert await future is relayed
        assert not calls.received(relayed), "it is answered once"

    async def test_another_who_uses_our_id(self) -> None:
        calls = Calls()
        id, future = begin(calls)
        assert not calls.received(message(kinds.CHAT, sender="somebody", id=id))
        assert not future.done()

    async def test_an_answer_of_the_expected_kind(self) -> None:
        calls = Calls()
        id, future = begin(calls, answer=kinds.STREAM_OPEN, answerers=(kinds.GATEWAY,))
        assert not calls.received(message(kinds.STREAM_REQUEST, sender=ME, id=id)), "the relayed request is no answer"
        assert not calls.received(message(kinds.CHAT, of=id))
        assert calls.received(message(kinds.STREAM_OPEN, of=id))
        assert (await future).kind == kinds.STREAM_OPEN

    async def test_only_those_who_were_asked_may_answer(self) -> None:
        calls = Calls()
        id, future = begin(calls, answer=kinds.MCP_RESPONSE, answerers=("asked",))
        assert not calls.received(message(kinds.MCP_RESPONSE, sender="quick", of=id))
        assert calls.received(message(kinds.MCP_RESPONSE, sender="asked", of=id))
        assert (await future).sender == "asked"

    async def test_a_refusal(self) -> None:
        calls = Calls()
        id, future = begin(calls)
        assert calls.received(message(kinds.ERROR, of=id, error="stream_not_found", message="no such stream"))
        with pytest.raises(StreamNotFound, match="no such stream"):
            await future

    async def test_a_refusal_that_another_participant_forges(self) -> None:
        calls = Calls()
        id, future = begin(calls)
        assert not calls.received(message(kinds.ERROR, sender="somebody", of=id, error="stream_not_found"))
        assert not future.done()

    async def test_nobody_waits_any_longer(self) -> None:
        calls = Calls()
        id, _ = begin(calls)
        calls.forget(id)
        calls.forget(id)
        assert not calls.received(message(kinds.CHAT, sender=ME, id=id))

    async def test_a_caller_that_was_cancelled(self) -> None:
        calls = Calls()
        id, future = begin(calls)
        future.cancel()
        assert calls.received(message(kinds.CHAT, sender=ME, id=id))


class TestRepeating:
    async def test_unanswered_requests_in_the_order_of_sending(self) -> None:
        calls = Calls()
        first, _ = begin(calls, body=b"first")
        answered, _ = begin(calls, body=b"answered")
        begin(calls, body=b"last")
        calls.received(message(kinds.CHAT, sender=ME, id=answered))
        assert calls.repeat() == [b"first", b"last"]
        assert calls.answers_repeated(message(kinds.CHAT, sender=ME, id=first))
        assert calls.answers_repeated(message(kinds.STREAM_OPEN, of=first))
        assert not calls.answers_repeated(message(kinds.CHAT, sender=ME, id=answered))

    async def test_what_was_repeated_is_known_after_its_answer(self) -> None:
        """The second answer comes when nobody waits for it any longer."""
        calls = Calls()
        id, _ = begin(calls)
        calls.repeat()
        relayed = message(kinds.CHAT, sender=ME, id=id)
        assert calls.received(relayed)
        assert calls.answers_repeated(relayed)


class TestFailing:
    async def test_all_of_them_each_with_its_own_exception(self) -> None:
        calls = Calls()
        futures = [begin(calls)[1] for _ in range(2)]
        calls.fail(lambda: AnswerLost("lost"))
        errors = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(error) for error in errors] == [AnswerLost, AnswerLost]
        assert errors[0] is not errors[1]
        assert calls.repeat() == []

    async def test_the_large_ones(self) -> None:
        calls = Calls()
        _, small = begin(calls, body=b"x" * 10)
        _, large = begin(calls, body=b"x" * 11)
        calls.fail(lambda: MewError("too large"), larger_than=10)
        assert isinstance(large.exception(), MewError)
        assert not small.done()

    async def test_the_largest(self) -> None:
        calls = Calls()
        futures = [begin(calls, body=b"x" * size)[1] for size in (20, 30, 25)]
        assert calls.fail_largest(MewError("too large"), larger_than=10)
        assert [future.done() for future in futures] == [False, True, False]
        assert isinstance(futures[1].exception(), MewError)

    async def test_none_is_large_enough(self) -> None:
        calls = Calls()
        assert not calls.fail_largest(MewError("too large"), larger_than=0)
        begin(calls, body=b"x" * 10)
        assert not calls.fail_largest(MewError("too large"), larger_than=10)
