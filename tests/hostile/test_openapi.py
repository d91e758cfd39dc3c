"""Schemathesis reads the document of the HTTP API, and asks the gateway everything that follows from it: every answer
must be one that the document describes, and nothing may be an internal error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from mewstream.gateway.operator_api import OPENAPI
from support import GatewayProcess, running_gateway, space_config, token_of

#: Our rules are stricter than a schema can say (a name must exist, a right must be held), so that a refusal of data
#: that fits the schema is no mistake, and is not among these checks.
CHECKS = [
    not_a_server_error,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.status_code_conformance,
    checks.unsupported_method,
]
SCHEMA = schemathesis.openapi.from_path(OPENAPI)
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    limits = {"envelopes_per_second": 0.0}
    with running_gateway(space_config("alice", always_here=["pia"], mewstream={"limits": limits})) as gateway:
        yield gateway


@pytest.mark.long
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["sound", "malformed"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.label)
@pytest.mark.parametrize("who", ["pia", None], ids=["with token", "without"])
def test_every_answer_is_described(
    gateway: GatewayProcess, operation: Any, mode: GenerationMode, who: str | None
) -> None:
    if mode is GenerationMode.NEGATIVE and not (operation.query or operation.path_parameters or operation.body):
        mode = GenerationMode.POSITIVE  # there is nothing that could be malformed
    headers = {} if who is None else {"Authorization": f"Bearer {token_of(who)}"}

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def ask(case: Any) -> None:
        if "id" in case.path_parameters and who is not None and len(str(case.query)) % 2:
            case.path_parameters["id"] = who
        case.call_and_validate(base_url=gateway.url, headers=headers, checks=CHECKS, excluded_checks=[])

    ask()
