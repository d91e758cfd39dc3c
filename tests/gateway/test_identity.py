"""Tokens: whom they belong to, how they are presented, how they are kept (DESIGN, decision 20)."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from mewstream.gateway.identity import (
    InvitedTokens,
    Presented,
    TokenBook,
    digest,
    token_from_headers,
)
from mewstream.protocol.errors import ConfigError
from mewstream.settings.tokens import new_token

SECRET = "s3cret-of-alice"


class TestTokenBook:
    def test_identifies_by_any_of_a_participants_tokens(self) -> None:
        book = TokenBook({"alice": [SECRET, "second"], "bob": ["third"]})
        assert [book.identify(each) for each in (SECRET, "second", "third")] == ["alice", "alice", "bob"]

    @pytest.mark.parametrize("token", [None, "", "wrong", SECRET + " ", SECRET.upper(), "\udcff", digest(SECRET)])
    def test_anything_else_is_nobody(self, token: str | None) -> None:
        assert TokenBook({"alice": [SECRET]}).identify(token) is None

    def test_keeps_no_token(self) -> None:
        book = TokenBook({"alice": [SECRET]})
        assert SECRET not in repr(book)
        assert SECRET not in repr(vars(book))

    def test_forgotten_tokens_are_nobodys(self) -> None:
        book = TokenBook({"alice": [SECRET, "second"], "bob": ["third"]})
        book.forget([digest(SECRET), digest("second"), digest("of nobody")])
        assert [book.identify(each) for each in (SECRET, "second", "third")] == [None, None, "bob"]

    def test_a_token_has_one_owner(self) -> None:
        book = TokenBook({"alice": [SECRET]})
        book.add("alice", SECRET)
        with pytest.raises(ConfigError) as caught:
            book.add("bob", SECRET)
        assert SECRET not in str(caught.value)
        assert book.identify(SECRET) == "alice"

    def test_an_empty_token_is_refused(self) -> None:
        with pytest.raises(ConfigError):
            TokenBook().add("alice", "")


def test_new_tokens_fit_headers_and_subprotocols() -> None:
    tokens = {new_token() for _ in range(200)}
    assert len(tokens) == 200
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", token) for token in tokens)
    for token in tokens:
        assert token_from_headers({"Sec-WebSocket-Protocol": token}).token == token


class TestInvitedTokens:
    def test_survive_a_restart_as_digests(self, tmp_path: Path) -> None:
        path = tmp_path / "data" / "invited.json"
        tokens = InvitedTokens(path)
        assert not path.exists()
        assert tokens.put("demo", "alice", "earlier") == []
        assert tokens.put("demo", "alice", SECRET) == [digest("earlier")]
        tokens.put("demo", "bob", "other")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert SECRET not in path.read_text()
        assert [each.name for each in path.parent.iterdir()] == ["invited.json"]

        again = InvitedTokens(path)
        assert again.for_space("demo") == {"alice": [digest(SECRET)], "bob": [digest("other")]}
        assert again.for_space("elsewhere") == {}
        book = TokenBook()
        book.add_digest("alice", again.for_space("demo")["alice"][0])
        assert book.identify(SECRET) == "alice"

    def test_removal_survives_too(self, tmp_path: Path) -> None:
        path = tmp_path / "invited.json"
        tokens = InvitedTokens(path)
        tokens.put("demo", "alice", SECRET)
        tokens.remove("demo", "nobody")
        tokens.remove("nowhere", "alice")
        tokens.remove("demo", "alice")
        assert json.loads(path.read_text()) == {}

    def test_what_another_has_written_is_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "invited.json"
        InvitedTokens(path).put("demo", "alice", SECRET)
        InvitedTokens(path).put("demo", "bob", "other")
        assert set(InvitedTokens(path).for_space("demo")) == {"alice", "bob"}

    def test_in_memory(self) -> None:
        tokens = InvitedTokens(None)
        tokens.put("demo", "alice", SECRET)
        tokens.for_space("demo")["alice"].clear()
        assert tokens.for_space("demo") == {"alice": [digest(SECRET)]}
        tokens.remove("demo", "alice")
        assert tokens.for_space("demo") == {}

    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"[]", b'{"demo": {"alice": "x"}}', b'{"demo": {"alice": ["plain"]}}', b'{"\xff": {}}'],
    )
    def test_a_corrupt_file_is_named_and_kept(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "invited.json"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=re.escape(str(path))) as caught:
            InvitedTokens(path)
        assert "\n" not in str(caught.value)
        assert "plain" not in str(caught.value)
        assert path.read_bytes() == content

    def test_an_unreadable_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=re.escape(str(tmp_path))):
            InvitedTokens(tmp_path)

    def test_a_failed_write_changes_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "invited.json"
        tokens = InvitedTokens(path)
        tokens.put("demo", "alice", SECRET)
        before = path.read_bytes()

        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            tokens.put("demo", "bob", "other")
        assert set(tokens.for_space("demo")) == {"alice"}
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


class TestHeaders:
    @pytest.mark.parametrize(
        ("headers", "token", "echo"),
        [
            ({}, None, None),
            ({"Authorization": f"Bearer {SECRET}"}, SECRET, None),
            ({"AUTHORIZATION": f"bEARER   {SECRET} "}, SECRET, None),
            ({"Sec-WebSocket-Protocol": "mew.v0.4"}, None, "mew.v0.4"),
            ({"sec-websocket-protocol": SECRET}, SECRET, None),
            ({"Sec-WebSocket-Protocol": f"mew, {SECRET}, mew.v0.4"}, SECRET, "mew.v0.4"),
            ({"Sec-WebSocket-Protocol": f"mew/v0.4,mew,{SECRET}"}, SECRET, "mew/v0.4"),
            ({"Sec-WebSocket-Protocol": f"bearer, {SECRET}"}, SECRET, None),
            ({"Sec-WebSocket-Protocol": f"mew, Bearer, {SECRET}"}, SECRET, "mew"),
            ({"Sec-WebSocket-Protocol": f"bearer.{SECRET}, mew.v0.4"}, SECRET, "mew.v0.4"),
            ({"Sec-WebSocket-Protocol": f"token.{SECRET}"}, SECRET, None),
            ({"Sec-WebSocket-Protocol": f"mew.token.{SECRET}, mew"}, SECRET, "mew"),
            ({"Sec-WebSocket-Protocol": f"{SECRET}, bearer.{SECRET}, ,"}, SECRET, None),
            (
                {"Authorization": f"Bearer {SECRET}", "Sec-WebSocket-Protocol": f"mew, {SECRET}"},
                SECRET,
                "mew",
            ),
            ({"Authorization": f"Bearer {SECRET}", "Sec-WebSocket-Protocol": "mew"}, SECRET, "mew"),
        ],
    )
    def test_found(self, headers: dict[str, str], token: str | None, echo: str | None) -> None:
        assert token_from_headers(headers) == Presented(token, echo)
        assert token_from_headers(make_mocked_request("GET", "/", headers=headers).headers) == Presented(token, echo)
        assert SECRET not in repr(token_from_headers(headers.items()))

    @pytest.mark.parametrize(
        "headers",
        [
            [("Authorization", "")],
            [("Authorization", "Bearer")],
            [("Authorization", "Bearer ")],
            [("Authorization", f"Basic {SECRET}")],
            [("Authorization", SECRET)],
            [("Authorization", f"Bearer {SECRET} more")],
            [("Authorization", f"Bearer {SECRET}\u00e9")],
            [("Authorization", f"Bearer {SECRET}"), ("authorization", f"Bearer {SECRET}")],
            [("Sec-WebSocket-Protocol", f"{SECRET}, other")],
            [("Sec-WebSocket-Protocol", SECRET), ("Sec-WebSocket-Protocol", "other")],
            [("Sec-WebSocket-Protocol", "bearer.")],
            [("Sec-WebSocket-Protocol", f"{SECRET} x")],
            [("Authorization", f"Bearer {SECRET}"), ("Sec-WebSocket-Protocol", "other")],
        ],
    )
    def test_refused(self, headers: list[tuple[str, str]]) -> None:
        presented = token_from_headers([*headers, ("Sec-WebSocket-Protocol", "mew.v0.4")])
        assert presented.token is None
        assert presented.problem
        assert SECRET not in presented.problem
        assert presented.echo_subprotocol == "mew.v0.4"
