"""Every case of :mod:`websocket_cases` against a real gateway: by itself, behind the handshake in one piece, over TLS,
and in all the pieces that a network may make of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby

import pytest
from raw_socket import RawSocket
from tls_socket import TlsSocket, issue_certificates
from websocket_case import Case, HangUp
from websocket_cases import CASES
from websocket_scene import CONFIG, Cutter, Scene, prepared

from support import running_gateway

#: Byte by byte a large case shows nothing that a small one does not.
SMALL = 1_500
#: Of each section, so many are played over TLS and in pieces by the ordinary run.
SAMPLE = 3
#: How often each case is cut at random places by the long one.
ROUNDS = 10


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with running_gateway(CONFIG) as gateway, prepared(gateway, lambda: RawSocket.open(gateway.port)) as scene:
        yield scene


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    certificates = issue_certificates(tmp_path_factory.mktemp("certificates"))
    with (
        running_gateway(CONFIG, options=certificates.options) as gateway,
        prepared(gateway, lambda: TlsSocket.secured(gateway.port, certificates.trust)) as scene,
    ):
        yield scene


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


def sample(cases: list[Case]) -> list[Case]:
    """The first few of each section."""
    sections = groupby(sorted(cases, key=lambda case: case.section), key=lambda case: case.section)
    return [case for _, section in sections for case in list(section)[:SAMPLE]]


def together(cases: list[Case]) -> list[Case]:
    """A peer that resets its connection may take with it what it has just sent."""
    return [case for case in cases if case.hang_up is not HangUp.RESET]


#: TLS has no half-closed connections: whoever ends one so may miss what it was told last.
OVER_TLS = [case._replace(is_cut=case.is_cut or case.hang_up is HangUp.HALF) for case in CASES]
SENT_TOGETHER = together(CASES)
CUT = [case for case in CASES if 1 < len(case.sent) <= SMALL]


def test_there_are_many_and_no_two_are_the_same() -> None:
    assert len(CASES) >= 250
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({case._replace(name="") for case in CASES}) == len(CASES)


class TestOrdinary:
    @each(CASES)
    async def test_by_itself(self, scene: Scene, case: Case) -> None:
        await scene.check(case)

    @each(SENT_TOGETHER)
    async def test_behind_the_handshake_in_one_piece(self, scene: Scene, case: Case) -> None:
        await scene.check(case, behind_upgrade=True)

    @each(sample(CUT))
    async def test_byte_by_byte(self, scene: Scene, case: Case) -> None:
        await scene.check(case, cut=byte_by_byte)

    @each(sample(OVER_TLS))
    async def test_over_tls(self, secured: Scene, case: Case) -> None:
        await secured.check(case)

    @each(sample(together(OVER_TLS)))
    async def test_over_tls_behind_the_handshake_in_one_record(self, secured: Scene, case: Case) -> None:
        await secured.check(case, behind_upgrade=True)


@pytest.mark.long
class TestLong:
    """The same answers, in whatever pieces a case comes."""

    @each(CUT)
    async def test_byte_by_byte(self, scene: Scene, case: Case) -> None:
        await scene.check(case, cut=byte_by_byte)

    @each(together(CUT))
    async def test_behind_the_handshake_byte_by_byte(self, scene: Scene, case: Case) -> None:
        await scene.check(case, cut=byte_by_byte, behind_upgrade=True)

    @each([case for case in CUT if len(case.sent) <= 300])
    async def test_in_two_at_each_place(self, scene: Scene, case: Case) -> None:
        for place in range(1, len(case.sent)):
            await scene.check(case, cut=in_two(place))

    @each(SENT_TOGETHER)
    async def test_in_random_pieces(self, scene: Scene, case: Case) -> None:
        for seed in range(ROUNDS):
            await scene.check(case, cut=at_random(seed), behind_upgrade=seed % 2 > 0)

    @each(OVER_TLS)
    async def test_over_tls(self, secured: Scene, case: Case) -> None:
        await secured.check(case)

    @each(together(OVER_TLS))
    async def test_over_tls_in_random_pieces(self, secured: Scene, case: Case) -> None:
        await secured.check(case, cut=at_random(0), behind_upgrade=True)


# -- pieces ---------------------------------------------------------------------------------------


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


def in_two(place: int) -> Cutter:
    return lambda data: [data[:place], data[place:]]


def at_random(seed: int) -> Cutter:
    """From single bytes to thousands of them, and the same each time."""

    def cut(data: bytes) -> Iterator[bytes]:
        chance = random.Random(f"{seed} {len(data)}")
        place = 0
        while place < len(data):
            size = int(10 ** chance.uniform(0, 4))
            yield data[place : place + size]
            place += size

    return cut
