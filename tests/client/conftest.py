from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import GatewayProcess, running_gateway, space_config

PEOPLE = ("ann", "bob", "cy", "dee", "late")
#: The others may do everything, also with the streams of others.
MODEST = {"dee": [{"kind": "chat"}, {"kind": "mcp/*"}, {"kind": "stream/request"}]}


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """One for a module; each test opens streams of its own."""
    with running_gateway(space_config(*PEOPLE, capabilities=MODEST)) as running:
        yield running
