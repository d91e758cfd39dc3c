"""The rule that tells a client whether it may reconnect."""

from __future__ import annotations

import pytest

from mewstream.protocol.close_codes import ABNORMAL, NORMAL, CloseReason, may_reconnect


@pytest.mark.parametrize("code", [NORMAL, 1001, ABNORMAL, 1009, 1011, 1013, 4000, 4499])
def test_codes_after_which_a_client_may_reconnect(code: int) -> None:
    assert may_reconnect(code)


@pytest.mark.parametrize("code", [1002, 1003, 1007, 1008, 1010, 4500, 4999])
def test_codes_after_which_it_must_not(code: int) -> None:
    assert not may_reconnect(code)


def test_no_two_reasons_share_a_code() -> None:
    codes = [reason.value.code for reason in CloseReason]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("reason", CloseReason)
def test_both_codes_of_a_reason_agree(reason: CloseReason) -> None:
    """Whichever code a client knows, it draws the same conclusion."""
    close = reason.value
    assert may_reconnect(close.code_for(knows_ours=True)) == may_reconnect(close.code_for(knows_ours=False))
