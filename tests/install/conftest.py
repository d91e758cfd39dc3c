from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from installation import Installation, build_wheel

from support import GatewayProcess, running_gateway, space_config


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Installation]]:
    """Makes virtual environments with nothing in them. They are large, and removed at the end."""
    made: list[Path] = []

    def make(name: str) -> Installation:
        made.append(tmp_path_factory.mktemp(name))
        return Installation(made[-1])

    yield make
    for directory in made:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def plain(wheel: Path, environment: Callable[[str], Installation]) -> Installation:
    """``pip install mewstream``"""
    installed = environment("plain")
    installed.install(str(wheel))
    return installed


@pytest.fixture(scope="session")
def gateway() -> Iterator[GatewayProcess]:
    """A gateway of the development environment, for those who install no gateway."""
    with running_gateway(space_config("server", "ann", "bob")) as gateway:
        yield gateway
