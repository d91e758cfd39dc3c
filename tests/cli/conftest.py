from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from shell import Shell

from support import GatewayProcess, running_gateway, space_config

PARTICIPANTS = ("server", "alice", "bob", "viewer", "chatter")


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """``chatter`` may only chat, the others may do everything."""
    config = space_config(
        *PARTICIPANTS,
        capabilities={"chatter": [{"kind": "chat"}]},
        defaults={"capabilities": [{"kind": "chat"}]},
    )
    with running_gateway(config) as gateway:
        yield gateway


@pytest.fixture
def shell(gateway: GatewayProcess, tmp_path: Path) -> Shell:
    return Shell(tmp_path, gateway, *PARTICIPANTS)
