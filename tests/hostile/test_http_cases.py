"""Every case of :mod:`http_cases` against a real gateway: as the first request of a connection, after another one, and
byte by byte. After each, another connection is answered, and nothing of the case is in the log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from http_cases import AUTHORIZATION, CASES, MESSAGE_BYTES, SECRET, WHO, Case, get
from http_socket import Answer, HttpSocket
from raw_socket import join_message, text

from support import TIMEOUT, GatewayProcess, running_gateway, space_config, without_everyday_lines

#: Byte by byte a large case shows nothing that a small one does not.
SMALL = 1_500


def config(**settings: Any) -> dict[str, Any]:
    return space_config(
        WHO,
        # The cases ask for it by this name, and for a path that only the console has.
        gateway={"drain_seconds": 0, "public_url": "ws://gateway.example", "console": False, **settings},
        # A participant comes back for each upgrade: it leaves at once.
        mewstream={"limits": {"message_bytes": MESSAGE_BYTES, "envelopes_per_second": 0.0}},
    )


@pytest.fixture(scope="module")
def patient() -> Iterator[GatewayProcess]:
    with running_gateway(config()) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def impatient() -> Iterator[GatewayProcess]:
    with running_gateway(config(head_timeout=0.5, body_timeout=0.5)) as gateway:
        yield gateway


def ids(cases: list[Case]) -> list[str]:
    return [case.name for case in cases]


WAITING = [case for case in CASES if case.waits]
OTHERS = [case for case in CASES if not case.waits]


def test_there_are_many_and_no_two_have_the_same_name() -> None:
    assert len(CASES) >= 100
    assert len(set(ids(CASES))) == len(CASES)


@pytest.mark.parametrize("before", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("case", OTHERS, ids=ids(OTHERS))
async def test_case(patient: GatewayProcess, case: Case, before: int) -> None:
    await check(patient, case, before=before)


@pytest.mark.parametrize("before", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("case", WAITING, ids=ids(WAITING))
async def test_case_that_is_waited_for(impatient: GatewayProcess, case: Case, before: int) -> None:
    await check(impatient, case, before=before)


async def test_cases_byte_by_byte(patient: GatewayProcess) -> None:
    """The same answers, in whatever pieces a request comes."""
    for case in OTHERS:
        if 0 < len(case.sent) <= SMALL:
            try:
                await check(patient, case, is_dripped=True)
            except AssertionError as error:
                raise AssertionError(case.name) from error


async def check(gateway: GatewayProcess, case: Case, *, before: int = 0, is_dripped: bool = False) -> None:
    log = without_everyday_lines(gateway.log.read_text())
    async with await HttpSocket.connected(gateway.port) as raw:
        for _ in range(before):
            assert (await raw.ask(get())).status == 200
        sending = asyncio.create_task(send(raw, case, is_dripped=is_dripped))
        answers = [await read_answer(raw, case, place) for place in range(len(case.answers))]
        await sending
        for answer, expected in zip(answers, case.answers, strict=True):
            assert answer.status in (expected if isinstance(expected, frozenset) else {expected}), answers
        for answer in answers:
            assert SECRET.encode() not in answer.body
            if answer.status >= 400 and answer.body:  # the answer to HEAD has none
                assert answer.error
                assert answer.body == json.dumps(answer.json, separators=(",", ":"), ensure_ascii=False).encode()
        assert all(answer.body for answer in answers if answer.status >= 400) or b"HEAD " in case.sent
        if case.answers[-1:] == (101,):
            await raw.send(text(join_message(WHO)))
            welcome = await raw.read_frame()
            assert welcome is not None
            assert welcome.json["kind"] == "system/welcome"
        elif case.ends or (is_dripped and answers[-1].is_last):  # it may be refused before its body is here
            assert await raw.is_ended()
        else:
            assert not answers[-1].is_last
            assert (await raw.ask(get())).status == 200
    # Another is served as if nothing had happened.
    async with await HttpSocket.connected(gateway.port) as other:
        assert (await other.ask(get("/participants", AUTHORIZATION))).status == 200
        assert (await other.ask(get())).json["status"] == "ok"
    assert without_everyday_lines(gateway.log.read_text()) == log


async def send(raw: HttpSocket, case: Case, *, is_dripped: bool) -> None:
    # Who is refused may be cut off while it still sends.
    with contextlib.suppress(ConnectionError):
        if is_dripped:
            for place in range(len(case.sent)):
                await raw.send(case.sent[place : place + 1])
                await asyncio.sleep(0)
        else:
            await raw.send(case.sent)
        if case.hangs_up:
            raw.sock.shutdown(socket.SHUT_WR)


async def read_answer(raw: HttpSocket, case: Case, place: int) -> Answer:
    if case.answers[place] == 100:
        status, _ = await asyncio.wait_for(raw.read_head(), TIMEOUT)
        return Answer(status, {}, b"")
    is_head = b"HEAD " in case.sent and case.answers[place] != 101
    return await raw.answer(has_body=not is_head)
