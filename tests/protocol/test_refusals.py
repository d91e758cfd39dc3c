"""What is kept of a refused message: a bounded beginning, and nothing of what may hold a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import Space

from mewstream.protocol.records import Refused

SECRET = "hunter2-or-so"


def kept(payload: dict[str, Any], **limits: Any) -> str:
    """The excerpt of a message that is refused for another reason."""
    return Space("alice", limits=limits).send("alice", "chat", payload).one(Refused).excerpt


@pytest.mark.parametrize(
    "payload",
    [
        {"token": SECRET},
        {"TOKEN": SECRET},
        {"access_token": SECRET},
        {"password": SECRET},
        {"Passwd": SECRET},
        {"db_pwd": SECRET},
        {"passphrase": SECRET},
        {"client_secret": SECRET},
        {"client-Secret": SECRET},
        {"Authorization": f"Basic {SECRET}"},
        {"header": f"Bearer {SECRET}"},
        {"auth": SECRET},
        {"api_key": SECRET},
        {"X-API-Key": SECRET},
        {"apiKey": SECRET},
        {"access key": SECRET},
        {"private_key": SECRET},
        {"credentials": {"user": "a", "value": SECRET}},
        {"Set-Cookie": SECRET},
        {"jwt": SECRET},
        {"x": f"-----BEGIN RSA PRIVATE KEY-----{SECRET}"},
        {"value": SECRET, "name": "password"},
        {"a": {"b": [{"password": SECRET}]}},
    ],
    ids=lambda payload: next(iter(payload)),
)
def test_nothing_of_a_secret(payload: dict[str, Any]) -> None:
    assert kept(payload) == ""


@pytest.mark.parametrize("key", ["t\\u006fken", "\\u0070\\u0061ssword", "api\\u005Fkey", "\\u0054oken"])
def test_nothing_of_a_secret_that_is_spelt_otherwise(key: str) -> None:
    space = Space("alice")
    message = f'{{"kind":"chat","payload":{{"{key}":"{SECRET}"}}}}'
    assert space.raw("alice", message.encode()).one(Refused).excerpt == ""


def test_nothing_of_a_secret_in_a_frame() -> None:
    space = Space("alice")
    assert space.frame("alice", "stream-9", b"password: hunter2").one(Refused).excerpt == ""
    assert space.frame("alice", "stream-9", b"x=1").one(Refused).excerpt == "x=1"


def test_other_words_are_kept() -> None:
    payload = {"stream_id": "stream-1", "participant_id": "bob", "author": "ann", "keys": [1], "pass": "by"}
    assert json.loads(kept(payload)) == payload


def test_what_is_looked_at_is_bounded() -> None:
    """A secret whose name stands far behind it is not in the excerpt, which ends long before."""
    far = {"text": 1, "filler": "y" * 100_000, "token": SECRET}
    assert kept(far, refused_excerpt_bytes=8) == '{"text":'
