"""Every public function of the SDK is documented, with ``async`` and without it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import mewstream
from mewstream import sync


def public_classes() -> dict[str, type]:
    of_the_sdk = {name: getattr(mewstream, name) for name in mewstream.__all__ if name != "__version__"}
    found = {name: each for name, each in of_the_sdk.items() if inspect.isclass(each)}
    twins = (sync.Stream, sync.Streams, sync.Subscription, sync.Events, sync.Proposal, sync.Space)
    return found | {f"sync.{each.__name__}": each for each in twins}


def members() -> Iterator[tuple[str, Any]]:
    for name, each in public_classes().items():
        for attribute, member in inspect.getmembers(each):
            is_ours = str(getattr(inspect.unwrap(getattr(member, "fget", member)), "__module__", "")).startswith("mew")
            if not attribute.startswith("_") and is_ours and (callable(member) or isinstance(member, property)):
                yield f"{name}.{attribute}", member


@pytest.mark.parametrize("name", public_classes())
def test_every_class_says_what_it_is(name: str) -> None:
    text = inspect.getdoc(public_classes()[name]) or ""
    assert not text.startswith(f"{name}("), "that is only the signature of a dataclass"
    assert text.endswith((".", "```"))


@pytest.mark.parametrize(("name", "member"), list(members()))
def test_every_function_says_what_it_does(name: str, member: Any) -> None:
    text = inspect.getdoc(member) or ""
    assert text[:1].isupper() or text[:1] == "`"
    assert text.endswith(".")


@pytest.mark.parametrize("name", ["flush", "drain", "send", "request", "open_stream", "announce", "invite", "stream"])
def test_what_waits_for_the_gateway_says_what_it_raises(name: str) -> None:
    for each in (mewstream.Space, sync.Space):
        assert "aises" in (inspect.getdoc(getattr(each, name)) or "")


def test_the_synchronous_functions_have_the_words_of_the_others() -> None:
    assert sync.Space.grant_capabilities.__doc__ == mewstream.Space.grant_capabilities.__doc__
    assert sync.Stream.owner.__doc__ == mewstream.Stream.owner.__doc__
    assert sync.Subscription.receive.__doc__ == mewstream.Subscription.receive.__doc__
