"""Which gateway a program joins, and as whom: the same answer for ``mewstream.connect`` and for the commands."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

import mewstream
import mewstream.sync
from mewstream.protocol.errors import ConfigError
from mewstream.settings.connection import find_connection
from mewstream.settings.profiles import profiles_file
from mewstream.settings.space_file import read_space_file
from support import GatewayProcess, running_gateway, space_config, token_of


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory and a home with nothing in them, and no variable of ours."""
    for name in [name for name in os.environ if name.startswith("MEW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def write_profiles(text: str) -> Path:
    file = profiles_file(os.environ)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def write_space(**sections: object) -> None:
    config = {"space": {"id": "arena"}, "participants": {"ann": {"tokens": ["of-the-file"]}}, **sections}
    Path("space.yaml").write_text(yaml.safe_dump(config))


class TestTheOrder:
    PROFILE = """
        [default]
        url = "ws://profile"
        space = "of-profile"
        participant = "ann"
        token_file = "ann.token"
    """

    def everywhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write_space(gateway={"port": 9000})
        file = write_profiles(self.PROFILE)
        (file.parent / "ann.token").write_text("of-the-profile\n")
        monkeypatch.setenv("MEW_SPACE", "of-environment")
        monkeypatch.setenv("MEW_TOKEN", "of-the-environment")

    def test_an_argument_counts_before_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.everywhere(monkeypatch)
        monkeypatch.setenv("MEW_URL", "ws://environment")
        monkeypatch.setenv("MEW_PARTICIPANT", "bob")
        found = find_connection(url="ws://argument", space="of-argument", participant="carl")
        assert (found.url, found.space, found.participant) == ("ws://argument", "of-argument", "carl")

    def test_the_environment_counts_before_a_profile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.everywhere(monkeypatch)
        found = find_connection()
        assert (found.url, found.space, found.participant) == ("ws://profile", "of-environment", "ann")
        assert found.token() == "of-the-environment"
        monkeypatch.setenv("MEW_TOKEN_ANN", "her-own")
        assert found.token() == "her-own"

    def test_a_profile_counts_before_the_space_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.everywhere(monkeypatch)
        monkeypatch.delenv("MEW_SPACE")
        monkeypatch.delenv("MEW_TOKEN")
        found = find_connection()
        assert (found.url, found.space, found.token()) == ("ws://profile", "of-profile", "of-the-profile")

    def test_the_space_file_comes_last(self) -> None:
        write_space(gateway={"port": 9000})
        found = find_connection(participant="ann")
        assert (found.url, found.space, found.token()) == ("ws://127.0.0.1:9000", "arena", "of-the-file")

    def test_without_any_there_is_a_default(self) -> None:
        found = find_connection()
        assert (found.url, found.space, found.participant) == ("ws://127.0.0.1:8080", None, None)
        assert found.token() is None

    def test_an_empty_variable_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("MEW_URL", "MEW_SPACE", "MEW_PARTICIPANT", "MEW_PROFILE", "MEW_TOKEN"):
            monkeypatch.setenv(name, "")
        assert find_connection(environ=os.environ).url == "ws://127.0.0.1:8080"
        assert find_connection(environ=os.environ).participant is None


class TestOneGatewayAtATime:
    """What belongs to one gateway is not sent to another."""

    def test_the_default_profile_is_not_used_where_a_url_is_given(self) -> None:
        file = write_profiles('[default]\nurl = "ws://home"\nspace = "s"\nparticipant = "ann"\ntoken_file = "t"\n')
        (file.parent / "t").write_text("secret-of-home")
        found = find_connection(url="ws://elsewhere", participant="ann")
        assert (found.space, found.token()) == (None, None)

    def test_a_profile_that_is_named_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        file = write_profiles('[work]\nurl = "ws://work"\nparticipant = "ann"\ntoken_file = "t"\n')
        (file.parent / "t").write_text("secret-of-work")
        assert find_connection(profile="work").token() == "secret-of-work"
        monkeypatch.setenv("MEW_PROFILE", "work")
        found = find_connection(url="ws://elsewhere", environ=os.environ)
        assert (found.url, found.participant, found.token()) == ("ws://elsewhere", "ann", "secret-of-work")

    def test_the_token_of_a_profile_is_that_of_its_participant(self) -> None:
        file = write_profiles('[work]\nurl = "ws://work"\nparticipant = "ann"\ntoken_file = "t"\n')
        (file.parent / "t").write_text("secret-of-ann")
        assert find_connection(profile="work", participant="bob").token() is None

    def test_the_space_of_the_file_is_not_used_where_a_url_is_given(self) -> None:
        write_space()
        assert find_connection(url="ws://elsewhere").space is None

    def test_a_broken_file_does_not_matter_where_it_is_not_needed(self) -> None:
        Path("space.yaml").write_text("{")
        write_profiles("[")
        assert find_connection(url="ws://h", participant="ann").url == "ws://h"
        with pytest.raises(ConfigError, match="not valid TOML"):
            find_connection()


class TestProfiles:
    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("[work", "not valid TOML"),
            ("work = 1", "work: expected a table"),
            ("[work]\nurl = 5", "work.url: expected a text in quotes"),
            ("[work]\nuri = 'ws://h'", "work.uri: unknown key, expected url, space, participant or token_file"),
            ("[work]\ntoken = 'hush'", "work.token: unknown key, put it into a file"),
            ("[home]", "there is no profile 'work' in .*: it has home"),
            ("", "there is no profile 'work' in .*: it has none"),
        ],
    )
    def test_mistakes_are_named(self, text: str, told: str) -> None:
        write_profiles(text)
        with pytest.raises(ConfigError, match=told) as error:
            find_connection(profile="work")
        assert "hush" not in str(error.value)

    def test_no_file(self) -> None:
        with pytest.raises(ConfigError, match=r"there is no profile 'work' in .*profiles\.toml: there is no such file"):
            find_connection(profile="work")

    def test_bytes_that_are_no_text(self) -> None:
        write_profiles("").write_bytes(b"\xff")
        with pytest.raises(ConfigError, match="not UTF-8"):
            find_connection()

    def test_another_file_and_a_path_from_home(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        file = tmp_path / "mine.toml"
        file.write_text('[work]\nurl = "ws://h"\ntoken_file = "~/t"\n')
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "t").write_text("tilde")
        monkeypatch.setenv("MEW_PROFILES", str(file))
        assert find_connection(profile="work", environ=os.environ).token() == "tilde"

    def test_where_the_desktop_keeps_configurations(self, tmp_path: Path) -> None:
        assert profiles_file({"XDG_CONFIG_HOME": "/c"}) == Path("/c/mewstream/profiles.toml")
        assert profiles_file({"HOME": "/h"}) == Path("/h/.config/mewstream/profiles.toml")


@pytest.mark.parametrize(
    ("gateway", "url"),
    [
        ({}, None),
        ({"data": "data"}, None),
        ({"port": 0}, None),
        ({"port": "9000"}, None),
        ({"port": True}, None),
        ({"port": 9000}, "ws://127.0.0.1:9000"),
        ({"host": "10.0.0.7"}, "ws://10.0.0.7:8080"),
        ({"host": "0.0.0.0", "port": 1}, "ws://127.0.0.1:1"),
        ({"host": "::"}, "ws://[::1]:8080"),
        ({"host": "h", "port": 443, "tls": {"cert": "c", "key": "k"}}, "wss://h:443"),
        ({"port": 9000, "public_url": "wss://play.example.org"}, "wss://play.example.org"),
        ("nonsense", None),
    ],
)
def test_the_address_in_a_space_file(gateway: object, url: str | None) -> None:
    write_space(gateway=gateway)
    assert read_space_file(Path("space.yaml")).url == url


def test_several_spaces_in_a_file_are_a_choice_to_make() -> None:
    both = [{"space": {"id": name}, "participants": {"ann": {"tokens": [f"in-{name}"]}}} for name in ("one", "two")]
    Path("space.yaml").write_text(yaml.safe_dump({"spaces": both}))
    assert find_connection(participant="ann").space is None
    assert find_connection(participant="ann", space="two").token() == "in-two"


# -- a real gateway -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """Of two spaces, so that one has to be named; only one of them knows Ann."""
    with running_gateway(space_config("bob", space="one"), space_config("ann", space="two")) as gateway:
        yield gateway


def settings_by_environment(gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEW_URL", gateway.ws_url)
    monkeypatch.setenv("MEW_SPACE", "two")
    monkeypatch.setenv("MEW_PARTICIPANT", "ann")
    monkeypatch.setenv("MEW_TOKEN_ANN", token_of("ann"))


def settings_by_profile(gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_profiles(
        f'[default]\nurl = "{gateway.ws_url}"\nspace = "two"\nparticipant = "ann"\ntoken_file = "t"\n'
    )
    (file.parent / "t").write_text(token_of("ann"))


def settings_by_space_file(gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEW_PARTICIPANT", "ann")
    config = space_config("ann", space="two", gateway={"port": gateway.port})
    Path("space.yaml").write_text(yaml.safe_dump(config))


async def joined_as(connecting: mewstream.Connecting) -> str:
    async with connecting as space:
        return space.participant


@pytest.mark.parametrize("way", [settings_by_environment, settings_by_profile, settings_by_space_file])
def test_sdk_and_commands_find_the_same(
    way: Callable[[GatewayProcess, pytest.MonkeyPatch], None],
    gateway: GatewayProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    way(gateway, monkeypatch)
    assert asyncio.run(joined_as(mewstream.connect())) == "ann"
    done = subprocess.run(
        [sys.executable, "-m", "mewstream", "status", "--json"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert [each["id"] for each in json.loads(done.stdout)["participants"]] == ["ann"]
    said = subprocess.run([sys.executable, "-m", "mewstream", "send", "hello"], capture_output=True, timeout=60)
    assert said.returncode == 0, said.stderr


def test_the_synchronous_twin_finds_it_too(gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_by_profile(gateway, monkeypatch)
    with mewstream.sync.connect() as space:
        assert space.participant == "ann"


def test_a_token_that_was_replaced_is_found_again(gateway: GatewayProcess) -> None:
    """The file is read for every connection, not once."""
    tokens = Path(".mew/tokens")
    tokens.mkdir(parents=True)
    (tokens / "ann.token").write_text("an-old-one")
    connecting = mewstream.connect(gateway.ws_url, space="two", participant="ann")
    with pytest.raises(mewstream.JoinRefused):
        asyncio.run(joined_as(connecting))
    (tokens / "ann.token").write_text(token_of("ann"))
    assert asyncio.run(joined_as(connecting)) == "ann"
