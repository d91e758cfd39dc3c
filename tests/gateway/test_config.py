"""space.yaml (WIRE, "space.yaml"; DESIGN, decisions 19 and 20)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from mewstream.gateway.config import PROCESS_MANAGER_KEYS, GatewayConfig, SpaceConfig, load_config
from mewstream.protocol.errors import ConfigError
from mewstream.protocol.policy import Delivery, Limits, Policies

EXAMPLE = Path(__file__).parents[2] / "examples" / "space.yaml"
SECRET = "s3cretOfAlice"
HEAD = "space: {id: demo}\n"
ALICE = f"participants: {{alice: {{tokens: [{SECRET}]}}}}\n"
BASE = HEAD + ALICE


class Files:
    """Real files in a directory, and what comes of loading them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cwd = directory / "cwd"
        self.cwd.mkdir()

    def write(self, text: str, name: str = "space.yaml") -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return path

    def load(self, *texts: str, environ: Mapping[str, str] | None = None) -> GatewayConfig:
        names = ["space.yaml", *(f"space{number}.yaml" for number in range(2, len(texts) + 1))]
        paths = [self.write(text, name) for text, name in zip(texts, names, strict=True)]
        return load_config(paths, environ=environ or {}, cwd=self.cwd)

    def space(self, text: str, environ: Mapping[str, str] | None = None) -> SpaceConfig:
        (space,) = self.load(text, environ=environ).spaces.values()
        return space

    def error(self, *texts: str, environ: Mapping[str, str] | None = None) -> str:
        with pytest.raises(ConfigError) as caught:
            self.load(*texts, environ=environ)
        text = str(caught.value)
        assert text.isprintable(), "one line"
        assert SECRET not in text
        assert ".yaml: " in text
        # Nor may a traceback show it.
        cause = caught.value.__cause__
        assert SECRET not in str(cause)
        assert caught.value.__suppress_context__ or SECRET not in str(caught.value.__context__)
        return text


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


# -- what is read ---------------------------------------------------------------------------------


def test_the_smallest_space(files: Files) -> None:
    config = files.load(BASE)
    space = config.spaces["demo"]
    assert (space.id, space.name, space.description) == ("demo", "demo", "")
    assert (space.limits, space.policies, space.delivery) == (Limits(), Policies(), Delivery())
    assert (space.envelope_history, space.capability_decisions) == (False, False)
    assert space.source == files.directory / "space.yaml"
    alice = space.participants["alice"]
    assert (alice.tokens, alice.capabilities, alice.output_log, alice.auto_connect) == (
        (SECRET,),
        [],
        None,
        False,
    )
    assert config == GatewayConfig(spaces=config.spaces)
    assert (config.host, config.port, config.data) == ("127.0.0.1", 8080, None)
    assert (config.ping_interval, config.join_timeout, config.drain_seconds) == (20, 10, 5)
    with pytest.raises(FrozenInstanceError):
        config.port = 1  # type: ignore[misc]


def test_a_whole_space(files: Files) -> None:
    space = files.space(
        """\
space: {id: demo, name: The demo, description: For tests}
participants:
  alice:
    tokens: [a, b, a]
    capabilities: [{kind: "mcp/*", payload: {method: "tools/*"}}]
    output_log: logs/alice.jsonl
    auto_connect: true
  bob: {tokens: [c], output_log: /var/log/bob.jsonl}
  carol: {tokens: [d], capabilities: []}
defaults: {capabilities: [{kind: chat}]}
mewstream:
  limits: {message_bytes: 1000, frames_per_second: 30, invitations: 0}
  policies: {on_owner_leave: transfer, validate: off, on_slow: latest, reconnect_grace: 2.5}
  delivery: {soft_queue_bytes: 10, queue_bytes: 10}
"""
    )
    alice, bob, carol = space.participants.values()
    assert alice.tokens == ("a", "b")
    assert alice.capabilities == [{"kind": "mcp/*", "payload": {"method": "tools/*"}}]
    assert alice.output_log == files.directory / "logs" / "alice.jsonl"
    assert alice.auto_connect
    assert bob.capabilities == space.default_capabilities == [{"kind": "chat"}]
    assert bob.output_log == Path("/var/log/bob.jsonl")
    assert carol.capabilities == []
    assert space.limits == Limits(message_bytes=1000, frames_per_second=30.0, invitations=0)
    assert space.policies == Policies(on_owner_leave="transfer", on_slow="latest", reconnect_grace=2.5)
    assert space.delivery == Delivery(soft_queue_bytes=10, queue_bytes=10)


def test_keys_without_a_value_are_absent(files: Files) -> None:
    text = BASE + "mewstream:\n  limits:\ndefaults:\ngateway:\ngateway_logging:\n"
    assert files.space(text) == files.space(BASE)


def test_public_is_json_without_secrets_and_paths(files: Files) -> None:
    space = files.space(
        HEAD
        + f"participants: {{alice: {{tokens: [{SECRET}], output_log: o.jsonl}}}}\n"
        + "defaults: {capabilities: [{kind: chat}]}"
    )
    public = space.public()
    assert json.loads(json.dumps(public)) == public
    assert public["participants"] == {"alice": {"capabilities": [{"kind": "chat"}]}}
    assert set(public) == {
        *("id", "name", "description", "participants"),
        *("default_capabilities", "limits", "policies", "delivery"),
    }
    assert public["limits"]["message_bytes"] == 1 << 20
    for text in (json.dumps(public), repr(space)):
        assert SECRET not in text
    assert "o.jsonl" not in json.dumps(public)
    public["participants"]["alice"]["capabilities"].clear()
    assert space.participants["alice"].capabilities == [{"kind": "chat"}]


def test_several_spaces_in_files_and_lists(files: Files) -> None:
    config = files.load(
        "gateway: {port: 9000}\nspaces:\n"
        + "".join(f"- {{space: {{id: {each}}}, {ALICE.strip()}}}\n" for each in "ab"),
        "space: {id: c}\n" + ALICE,
        "gateway: {host: '::', port: 9000}\n",
    )
    assert list(config.spaces) == ["a", "b", "c"]
    assert (config.host, config.port) == ("::", 9000)


def test_relative_config_paths_are_relative_to_cwd(files: Files) -> None:
    files.write(BASE + "gateway: {data: d}", "cwd/sub/x.yaml")
    config = load_config([Path("sub/x.yaml")], environ={}, cwd=files.cwd)
    assert config.data == files.cwd / "sub" / "d"


def test_limits_of_connections(files: Files) -> None:
    config = files.load(BASE + "gateway: {connections: 500, connections_per_address: 20, idle_timeout: 0.5}")
    assert (config.connections, config.connections_per_address, config.idle_timeout) == (500, 20, 0.5)
    assert (files.load(BASE).connections, files.load(BASE).head_timeout) == (None, 10.0)


def test_trusted_proxies(files: Files) -> None:
    config = files.load(BASE + "gateway: {trusted_proxies: [10.0.0.0/8, 127.0.0.1, '::1', 'fd00::/8']}")
    assert [str(each) for each in config.trusted_proxies] == ["10.0.0.0/8", "127.0.0.1/32", "::1/128", "fd00::/8"]
    assert files.load(BASE).trusted_proxies == ()


@pytest.mark.parametrize(("value", "setting"), [("on", True), ("off", False), ("true", True), ("", None)])
def test_console(files: Files, value: str, setting: bool | None) -> None:
    assert files.load(BASE + f"gateway: {{console: {value}}}").console is setting
    assert files.load(BASE).console is None


class TestObserver:
    def test_sends_nothing_whatever_the_defaults_are(self, files: Files) -> None:
        text = participant("role: observer") + "defaults: {capabilities: [{kind: chat}]}"
        assert files.space(text).participants["alice"].capabilities == [{"kind": "!stream/request-write"}]

    def test_may_see_the_figures_of_the_gateway(self, files: Files) -> None:
        text = participant("role: observer", "capabilities: [{kind: gateway/observe}]")
        assert files.space(text).participants["alice"].capabilities[0] == {"kind": "gateway/observe"}


def test_gateway_keys(files: Files) -> None:
    for name in ("cert.pem", "key.pem"):
        files.write("", name)
    config = files.load(
        BASE
        + """\
gateway:
  host: 0.0.0.0
  port: 0
  data: ../data
  tls: {cert: cert.pem, key: key.pem}
  allowed_origins: ["https://Example.org:8443", "*", "tauri://localhost"]
  ping_interval: 1.5
  join_timeout: 3
  drain_seconds: 0
"""
    )
    assert (config.host, config.port, config.ping_interval) == ("0.0.0.0", 0, 1.5)
    assert (config.join_timeout, config.drain_seconds) == (3.0, 0.0)
    assert config.data is not None
    assert config.data.resolve() == files.directory.parent / "data"
    assert (config.tls_cert, config.tls_key) == (files.directory / "cert.pem", files.directory / "key.pem")
    assert config.allowed_origins == ("https://example.org:8443", "*", "tauri://localhost")


@pytest.mark.parametrize(
    ("section", "history", "decisions"),
    [
        ("{enabled: true}", True, True),
        ("{enabled: false}", False, False),
        ("{enabled: false, envelope_history: {enabled: true}}", False, False),
        ("{enabled: true, envelope_history: {enabled: false}}", False, True),
        ("{envelope_history: {enabled: true}}", True, False),
        ("{capability_decisions: {enabled: true}}", False, True),
        ("{}", False, False),
    ],
)
def test_gateway_logging(files: Files, section: str, history: bool, decisions: bool) -> None:
    space = files.space(BASE + f"gateway_logging: {section}")
    assert (space.envelope_history, space.capability_decisions) == (history, decisions)
    space = files.space(f"gateway_logging: {section}\nspaces: [{{space: {{id: a}}, {ALICE.strip()}}}]")
    assert (space.envelope_history, space.capability_decisions) == (history, decisions)


@pytest.mark.parametrize(("value", "on"), [("true", True), ("TRUE", True), ("1", True), ("false", False), ("", False)])
def test_the_logs_by_environment(files: Files, value: str, on: bool) -> None:
    history = files.space(BASE, {"ENVELOPE_HISTORY": value})
    assert (history.envelope_history, history.capability_decisions) == (on, False)
    decisions = files.space(BASE, {"CAPABILITY_DECISIONS": value})
    assert (decisions.envelope_history, decisions.capability_decisions) == (False, on)


def test_times_and_sizes_have_units_everywhere(files: Files) -> None:
    config = files.load(
        BASE
        + """\
mewstream:
  limits: {message_bytes: 10MiB, schema_bytes: 32KiB, bytes_per_second: 1MB, frames_per_second: 30}
  policies: {reconnect_grace: 15s, owner_leave_grace: 1m, suspend_for: "30", start_timeout: 1h}
  delivery: {queue_bytes: 4 MiB, soft_queue_bytes: 1MiB, writer_pause: 250ms}
gateway:
  ping_interval: 30s
  join_timeout: 1m
  drain_seconds: 500ms
  journal: {flush_interval: 10ms, segment_bytes: 64MiB, retention: {max_age: 7d, max_bytes: 10GB}}
"""
    )
    space = config.spaces["demo"]
    assert space.limits == Limits(
        message_bytes=10 << 20, schema_bytes=32 << 10, bytes_per_second=1e6, frames_per_second=30.0
    )
    assert space.policies == Policies(
        reconnect_grace=15.0, owner_leave_grace=60.0, suspend_for=30.0, start_timeout=3600.0
    )
    assert space.delivery == Delivery(queue_bytes=4 << 20, soft_queue_bytes=1 << 20, writer_pause=0.25)
    assert (config.ping_interval, config.join_timeout, config.drain_seconds) == (30.0, 60.0, 0.5)
    journal = config.journal
    assert (journal.flush_interval, journal.segment_bytes) == (0.01, 64 << 20)
    assert (journal.retention.max_age, journal.retention.max_bytes) == (604_800.0, 10**10)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("mewstream: {policies: {suspend_for: 7 days}}", ["policies.suspend_for: found '7 days'", "15m or 7d"]),
        ("mewstream: {policies: {suspend_for: 10MiB}}", ["policies.suspend_for: found '10MiB'", "seconds"]),
        ("mewstream: {limits: {id_bytes: 30s}}", ["limits.id_bytes: found '30s'", "bytes"]),
        # A rate is a plain number, and so is a count.
        (
            "mewstream: {limits: {frames_per_second: 10s}}",
            ["frames_per_second: found a string, expected a number"],
        ),
        ("mewstream: {limits: {invitations: 10MB}}", ["limits.invitations: found a string, expected a whole number"]),
        ("mewstream: {delivery: {writer_pause: -1s}}", ["delivery.writer_pause: found '-1s'"]),
        ("gateway: {ping_interval: often}", ["gateway.ping_interval: found 'often'", "15m or 7d"]),
        ("gateway: {ping_interval: 0s}", ["gateway.ping_interval: found 0", "more than 0"]),
        ("gateway: {journal: {retention: {max_age: a week}}}", ["retention.max_age: found 'a week'", "7d"]),
        ("gateway: {journal: {retention: {max_bytes: 1.5}}}", ["retention.max_bytes: found a number", "whole"]),
        ("gateway: {journal: {retention: {max_agee: 7d}}}", ["retention.max_agee: unknown key", "'max_age'"]),
    ],
)
def test_a_mistake_in_a_unit_says_the_form(files: Files, text: str, parts: list[str]) -> None:
    error = files.error(BASE + text)
    for part in parts:
        assert part in error, error


# -- where relative paths start -------------------------------------------------------------------


def test_paths_of_a_file_in_mew_start_at_the_directory_that_holds_it(files: Files) -> None:
    (files.directory / "cert.pem").touch()
    (files.directory / "key.pem").touch()
    file = files.write(
        HEAD
        + "participants: {alice: {tokens: [x], output_log: logs/alice.jsonl}, bob: }\n"
        + "gateway: {data: data, tls: {cert: cert.pem, key: key.pem}}",
        ".mew/space.yaml",
    )
    files.write("of-bob", ".mew/tokens/bob.token")
    # The same, from wherever it is started and however the file is named.
    for cwd, name in (
        (files.cwd, file),
        (files.cwd, Path("../.mew/space.yaml")),
        (files.directory, Path(".mew/space.yaml")),
        (files.directory / ".mew", Path("space.yaml")),
    ):
        config = load_config([name], environ={}, cwd=cwd)
        space = config.spaces["demo"]
        alice, bob = space.participants.values()
        assert space.workspace.resolve() == files.directory
        assert alice.output_log is not None
        assert alice.output_log.resolve() == files.directory / "logs" / "alice.jsonl"
        assert bob.tokens == ("of-bob",)
        assert config.data is not None and config.data.resolve() == files.directory / "data"
        assert config.tls_cert is not None and config.tls_cert.resolve() == files.directory / "cert.pem"


@pytest.mark.parametrize("name", ["space.yaml", "deep/space.yaml", ".mew/other.yaml", "x.mew/space.yaml"])
def test_paths_of_any_other_file_start_beside_it(files: Files, name: str) -> None:
    file = files.write(HEAD + "participants: {alice: {tokens: [x], output_log: a.jsonl}}\ngateway: {data: d}", name)
    config = load_config([file], environ={}, cwd=files.cwd)
    space = config.spaces["demo"]
    assert space.workspace == file.parent
    assert space.participants["alice"].output_log == file.parent / "a.jsonl"
    assert config.data == file.parent / "d"


def test_process_manager_keys_are_accepted_and_named(files: Files) -> None:
    keys = sorted(PROCESS_MANAGER_KEYS)
    lines = "".join(f"    {key}: {{x: {SECRET}}}\n" for key in keys)
    text = f"space: {{id: demo, ui_theme: dark}}\nrouting: x\nparticipants:\n  alice:\n    tokens: [x]\n{lines}"
    config = files.load(text)
    assert config.unused == ["routing", "space.ui_theme", *(f"participants.alice.{key}" for key in keys)]
    several = files.load(text, "spaces:\n- space: {id: b}\n  io: 1\n  participants: {bob: {tokens: [y], fifo: true}}")
    assert several.unused[-2:] == [
        f"{files.directory}/space2.yaml: spaces[0].io",
        f"{files.directory}/space2.yaml: spaces[0].participants.bob.fifo",
    ]


# -- tokens ---------------------------------------------------------------------------------------


def test_tokens_of_all_sources_add_up(files: Files) -> None:
    files.write("of-the-config\n", ".mew/tokens/alice-1.token")
    files.write("  of-cwd  ", "cwd/.mew/tokens/alice-1.token")
    text = HEAD + "participants: {alice-1: {tokens: [listed]}, bob: {tokens: [x]}}"
    space = files.space(text, {"MEW_TOKEN_ALICE_1": "of-the-variable", "MEW_TOKEN_BOB": ""})
    assert space.participants["alice-1"].tokens == ("listed", "of-the-variable", "of-the-config", "of-cwd")
    assert space.participants["bob"].tokens == ("x",)


@pytest.mark.parametrize("source", ["variable", "file"])
def test_no_listed_token_is_needed(files: Files, source: str) -> None:
    environ = {"MEW_TOKEN_ALICE": SECRET} if source == "variable" else {}
    if source == "file":
        files.write(SECRET, ".mew/tokens/alice.token")
    assert files.space(HEAD + "participants: {alice: }", environ).participants["alice"].tokens == (SECRET,)


def test_a_participant_of_two_spaces_may_share_its_variable(files: Files) -> None:
    config = files.load(
        "space: {id: a}\nparticipants: {alice: }",
        "space: {id: b}\nparticipants: {alice: }",
        environ={"MEW_TOKEN_ALICE": SECRET},
    )
    assert [space.participants["alice"].tokens for space in config.spaces.values()] == [(SECRET,), (SECRET,)]


@pytest.mark.parametrize("id", ["../outside", "a/b", "a..b", '"a\\\\b"', '"a\\x07b"'])
def test_an_id_never_leads_outside_its_directory(files: Files, id: str) -> None:
    files.write(SECRET, ".mew/outside.token")
    error = files.error(HEAD + f"participants: {{{id}: {{tokens: [x]}}}}")
    assert "contains invalid characters" in error


def test_an_id_too_long_for_a_file_name(files: Files) -> None:
    long = "a" * 300
    text = f"{HEAD}participants: {{{long}: {{tokens: [x]}}}}\nmewstream: {{limits: {{id_bytes: 300}}}}"
    assert files.space(text).participants[long].tokens == ("x",)


def test_no_token_says_the_three_ways(files: Files) -> None:
    for entry in ("", "{tokens: []}", "{auto_connect: true}"):
        error = files.error(HEAD + f"participants: {{ai-agent: {entry}}}")
        for part in ("participants.ai-agent", "'tokens'", "MEW_TOKEN_AI_AGENT", ".mew/tokens/ai-agent.token"):
            assert part in error


@pytest.mark.parametrize("content", ["", " \n", f"{SECRET}\n{SECRET}\n", f"{SECRET}\x00", f"{SECRET}\udcff"])
def test_a_bad_token_file(files: Files, content: str) -> None:
    files.write(content, ".mew/tokens/alice.token")
    assert "alice.token" in files.error(BASE)


def test_an_unreadable_token_file(files: Files) -> None:
    (files.directory / ".mew/tokens/alice.token").mkdir(parents=True)
    assert "cannot be read" in files.error(BASE)


def test_two_participants_of_one_variable(files: Files) -> None:
    text = HEAD + "participants: {a-b: {tokens: [x]}, a.b: {tokens: [y]}}"
    assert len(files.space(text).participants) == 2
    error = files.error(text, environ={"MEW_TOKEN_A_B": SECRET})
    assert "MEW_TOKEN_A_B" in error
    assert "'a-b'" in error


@pytest.mark.parametrize("environ", [{}, {"MEW_TOKEN_BOB": SECRET}])
def test_one_token_for_two(files: Files, environ: dict[str, str]) -> None:
    bob = "x" if environ else SECRET
    text = HEAD + f"participants: {{alice: {{tokens: [{SECRET}]}}, bob: {{tokens: [{bob}]}}}}"
    error = files.error(text, environ=environ)
    assert "participants.bob: found a token that 'alice' has too" in error


# -- mistakes -------------------------------------------------------------------------------------


def participant(*lines: str) -> str:
    return f"{HEAD}participants:\n  alice:\n    tokens: [{SECRET}]\n    " + "\n    ".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        # not YAML, or not a document of ours
        ("", ["found nothing", "a mapping"]),
        ("- a", ["found a list", "a mapping"]),
        (SECRET, ["found a string", "a mapping"]),
        (f"a: [{SECRET}", ["line 1", "not valid YAML"]),
        (f"space: {{id: x}}\nparticipants: {{a: {{tokens: [*{SECRET}]}}}}", ["line 2", "alias", "quotes"]),
        (f"space: {{id: x}}\nparticipants: {{a: {{tokens: [!{SECRET} x]}}}}", ["line 2", "tag", "quotes"]),
        (f"a: &{SECRET} 1\nb: !{SECRET}!x 2", ["line 2", "not valid YAML"]),
        (f"\ta: {SECRET}", ["line 1", "not valid YAML"]),
        (f"a: {SECRET}\x07", ["line 1", "special character"]),
        (f"a: {SECRET}\udcff", ["not UTF-8"]),
        ("a: 1\n---\nb: 2", ["not valid YAML", "document"]),
        ("a: 2024-99-99", ["quotes"]),
        (f"a: !!bool {SECRET}", ["quotes"]),
        (f"a: !!timestamp {SECRET}", ["quotes"]),
        ("a: !!int ''", ["quotes"]),
        ("[" * 5000, ["nested too deeply"]),
        ('a: "\\ud800"', ["a: line 1", "surrogate"]),
        ("a: &x [*x]", ["a[0]: line 1", "alias"]),
        ("{}", ["'space'"]),
        (ALICE, ["'space'"]),
        (HEAD, ["participants: found nothing, expected a mapping"]),
        (HEAD + "participants: {}", ["participants: found no participant"]),
        (HEAD + f"participants: [{SECRET}]", ["participants: found a list, expected a mapping"]),
        (
            HEAD + f"participants: {{alice: {SECRET}}}",
            ["participants.alice: found a string, expected a mapping"],
        ),
        ("spaces: []", ["found no space"]),
        ("spaces: {}", ["spaces: found a mapping, expected a list"]),
        ("spaces: [1]", ["spaces[0]: found a number, expected a mapping"]),
        (BASE + "spaces: []", ["'space' beside 'spaces'"]),
        (
            f"spaces: [{{space: {{id: a}}, gateway: {{}}, {ALICE.strip()}}}]",
            ["spaces[0].gateway: unknown key"],
        ),
        # repeated keys
        (BASE + "space: {id: b}", ["space: line 3", "line 1"]),
        (participant(f"tokens: [{SECRET}]"), ["participants.alice.tokens: line 5", "line 4"]),
        (
            participant("capabilities: [{kind: a, kind: b}]"),
            ["participants.alice.capabilities[0].kind: line 5"],
        ),
        (
            HEAD + f"participants: {{a: {{tokens: {{{SECRET}: 1, {SECRET}: 2}}}}}}",
            ["participants.a.tokens: line 2"],
        ),
        (participant(f"env: {{{SECRET}: 1, {SECRET}: 2}}"), ["participants.alice.env: line 5"]),
        # unknown keys
        (BASE + "gatway: {}", ["gatway: unknown key", "perhaps 'gateway'"]),
        (BASE + '"a\\nb": 1', ['"a\\nb": unknown key']),
        (BASE + "zzz: {}", ["zzz: unknown key, expected one of space, participants"]),
        (participant("token: x"), ["participants.alice.token: unknown key", "'tokens'"]),
        (participant("comand: x"), ["participants.alice.comand: unknown key", "'command'"]),
        ("space: {id: a, nam: b}\n" + ALICE, ["space.nam", "'name'"]),
        (BASE + "defaults: {capability: []}", ["defaults.capability", "'capabilities'"]),
        (BASE + "mewstream: {limit: {}}", ["mewstream.limit", "'limits'"]),
        (
            BASE + "mewstream: {limits: {mesage_bytes: 1}}",
            ["mewstream.limits.mesage_bytes", "'message_bytes'"],
        ),
        (BASE + "gateway: {hots: x}", ["gateway.hots", "'host'"]),
        (BASE + "gateway_logging: {envelope_history: {on: 1}}", ["found a boolean", "as a key"]),
        (BASE + "1: x", ["found a number", "as a key", "quotes"]),
        (HEAD + "participants: {no: {tokens: [x]}}", ["participants: found a boolean"]),
        # ids
        ("space: {}\n" + ALICE, ["space: found no key 'id'"]),
        ("space: {id: 1}\n" + ALICE, ["space.id: found a number, expected a string: put it in quotes"]),
        ("space: {id: a/b}\n" + ALICE, ["space.id: found 'a/b'", "namespace"]),
        ("space: {id: 'a#b'}\n" + ALICE, ["space.id", "'#'"]),
        ("space: {id: ''}\n" + ALICE, ["space.id", "empty"]),
        (f"space: {{id: {'x' * 129}}}\n" + ALICE, ["space.id", "longer than 128 bytes"]),
        *(
            (
                HEAD + f"participants: {{{name}: {{tokens: [x]}}}}",
                ["participants: found the participant id", flaw],
            )
            for name, flaw in [
                ("'a#b'", "'#'"),
                ("'a|b'", "'|'"),
                ("' a'", "white space"),
                ('"a\\tb"', "printed"),
                ("''", "is empty"),
                ("gateway", "reserved"),
                ("'system:x'", "reserved"),
                ("é" * 65, "longer than 128 bytes"),
            ]
        ),
        # tokens
        (
            HEAD + f"participants: {{a: {{tokens: {SECRET}}}}}",
            ["participants.a.tokens: found a string", "list"],
        ),
        (
            HEAD + "participants: {a: {tokens: [12345]}}",
            ["participants.a.tokens[0]: found a number", "quotes"],
        ),
        (HEAD + "participants: {a: {tokens: ['']}}", ["participants.a.tokens[0]: found an empty token"]),
        (HEAD + f"participants: {{a: {{tokens: ['{SECRET} x']}}}}", ["participants.a.tokens[0]", "ASCII"]),
        # other values of participants
        (
            participant("auto_connect: 1"),
            ["participants.alice.auto_connect: found a number, expected true or false"],
        ),
        (participant("output_log: [x]"), ["participants.alice.output_log: found a list, expected a path"]),
        (participant("output_log: ''"), ["participants.alice.output_log", "expected a path"]),
        (
            participant("capabilities: chat"),
            ["participants.alice.capabilities: found a string, expected a list"],
        ),
        (
            participant("capabilities: [chat]"),
            ["participants.alice.capabilities[0]: found a string, expected a p"],
        ),
        (participant("capabilities: [{kind: a}, {kind: 1}]"), ["participants.alice.capabilities[1]"]),
        (
            participant("capabilities: [{kind: a, payload: {b: '/(/'}}]"),
            ["participants.alice.capabilities[0]"],
        ),
        (
            participant("capabilities: [{kind: a, payload: {b: [2024-01-01]}}]"),
            ["capabilities[0].payload.b[0]: found"],
        ),
        (participant("capabilities: [{kind: a, payload: {b: .inf}}]"), ["capabilities[0].payload.b", "JSON"]),
        (participant(f"capabilities: [{{kind: a, payload: {{b: {2**63}}}}}]"), ["payload.b", "JSON"]),
        (participant(f"capabilities: [{'{kind: a}, ' * 300}]"), ["participants.alice.capabilities: "]),
        (BASE + "defaults: {capabilities: [{}]}", ["defaults.capabilities[0]"]),
        # settings
        (
            BASE + "mewstream: {limits: {message_bytes: big}}",
            ["mewstream.limits.message_bytes: found 'big'", "a number of bytes, or one with kB", "10GB"],
        ),
        (
            BASE + "mewstream: {limits: {message_bytes: 0}}",
            ["mewstream.limits.message_bytes: found 0", "at least 1"],
        ),
        (
            BASE + "mewstream: {limits: {invitations: -1}}",
            ["mewstream.limits.invitations: found -1", "at least 0"],
        ),
        (
            BASE + f"mewstream: {{limits: {{message_bytes: {2**70}}}}}",
            ["mewstream.limits.message_bytes", "below"],
        ),
        (
            BASE + "mewstream: {limits: {frames_per_second: -1}}",
            ["mewstream.limits.frames_per_second: found -1"],
        ),
        (
            BASE + "mewstream: {limits: {frames_per_second: .nan}}",
            ["mewstream.limits.frames_per_second: found nan"],
        ),
        (BASE + "mewstream: {policies: {suspend_for: .inf}}", ["mewstream.policies.suspend_for: found inf"]),
        (
            BASE + "mewstream: {policies: {on_slow: x}}",
            ["mewstream.policies.on_slow: found 'x'", "latest"],
        ),
        (
            BASE + "mewstream: {policies: {validate: on}}",
            ["mewstream.policies.validate: found a boolean", "enforce"],
        ),
        (BASE + "mewstream: {delivery: {writer_pause: -1}}", ["mewstream.delivery.writer_pause: found -1"]),
        (
            BASE + "mewstream: {delivery: {queue_bytes: 10}}",
            ["mewstream.delivery: found soft_queue_bytes 1048576, expected at most queue_bytes 10"],
        ),
        (BASE + "gateway: {console: maybe}", ["gateway.console: found a string, expected true or false"]),
        (participant("role: boss"), ["participants.alice.role: found 'boss', expected 'observer'"]),
        (participant("role: [observer]"), ["participants.alice.role: found a list, expected a string"]),
        (
            participant("role: observer", "capabilities: [{kind: gateway/observe}, {kind: chat}]"),
            ["participants.alice.capabilities[1]: an observer sends nothing"],
        ),
        (BASE + "gateway_logging: {enabled: maybe}", ["gateway_logging.enabled: found a string"]),
        (BASE + "gateway: []", ["gateway: found an empty list"]),
        (BASE + "gateway: {host: ''}", ["gateway.host"]),
        (BASE + "gateway: {port: 70000}", ["gateway.port: found 70000", "65535"]),
        (BASE + f"gateway: {{port: 0x{'f' * 9000}}}", ["gateway.port: found a huge number"]),
        (BASE + f"gateway: {{port: {'9' * 9000}}}", ["not valid YAML"]),
        (BASE + f"gateway: {{join_timeout: 0x{'f' * 9000}}}", ["gateway.join_timeout: found a huge number"]),
        (BASE + f"mewstream: {{limits: {{id_bytes: 0x{'f' * 9000}}}}}", ["mewstream.limits.id_bytes: found"]),
        (
            BASE + f"mewstream: {{limits: {{bytes_per_second: 0x{'f' * 9000}}}}}",
            ["mewstream.limits.bytes_per"],
        ),
        (participant(f"capabilities: [{{kind: a, payload: {{b: 0x{'f' * 9000}}}}}]"), ["payload.b", "JSON"]),
        (BASE + "gateway: {port: true}", ["gateway.port: found a boolean"]),
        (BASE + "gateway: {data: 5}", ["gateway.data: found a number, expected a path"]),
        (BASE + "gateway: {tls: {cert: space.yaml}}", ["gateway.tls: found no key 'key'"]),
        (
            BASE + "gateway: {tls: {cert: space.yaml, key: no.pem}}",
            ["gateway.tls.key: found no file", "no.pem"],
        ),
        (BASE + "gateway: {ping_interval: 0}", ["gateway.ping_interval: found 0,", "more than 0"]),
        (BASE + "gateway: {join_timeout: .nan}", ["gateway.join_timeout"]),
        *[
            (BASE + f"gateway: {{{key}: {value}}}", [f"gateway.{key}: found", "at least 1"])
            for key in ("connections", "connections_per_address", "unsent_http_bytes")
            for value in ("0", "-5", "1.5", "true", f"0x{'f' * 100}", "[]")
        ],
        (BASE + "gateway: {connections: many}", ["gateway.connections: found a string", "at least 1"]),
        (BASE + "gateway: {unsent_http_bytes: many}", ["gateway.unsent_http_bytes: found 'many'", "64KiB"]),
        *[
            (BASE + f"gateway: {{{key}: {value}}}", [f"gateway.{key}: found", "more than 0"])
            for key in ("head_timeout", "idle_timeout", "body_timeout", "write_timeout")
            for value in ("0", "-5")
        ],
        (BASE + "gateway: {head_timeout: soon}", ["gateway.head_timeout: found 'soon'", "500ms"]),
        (BASE + "gateway: {drain_seconds: -1}", ["gateway.drain_seconds", "at least 0"]),
        (BASE + "gateway: {drain_seconds: yes}", ["gateway.drain_seconds: found a boolean"]),
        (
            BASE + "gateway: {allowed_origins: '*'}",
            ["gateway.allowed_origins: found a string, expected a list"],
        ),
        (BASE + "gateway: {trusted_proxies: 10.0.0.1}", ["gateway.trusted_proxies: found a string, expected a list"]),
        *(
            (BASE + f"gateway: {{trusted_proxies: ['{text}']}}", ["gateway.trusted_proxies[0]", "10.0.0.0/8"])
            for text in ("nginx", "10.0.0.1/8", "10.0.0.0/33", "", "*")
        ),
        *(
            (
                BASE + f"gateway: {{allowed_origins: ['{origin}']}}",
                ["gateway.allowed_origins[0]", "expected an origin"],
            )
            for origin in (
                "example.org",
                "https://example.org/",
                f"https://u:{SECRET}@example.org",
                "http://a:b",
                "http://[x",
            )
        ),
    ],
)
def test_a_mistake_is_one_line(files: Files, text: str, parts: list[str]) -> None:
    error = files.error(text)
    assert error.startswith(f"{files.directory}/space.yaml: ")
    for part in parts:
        assert part in error


@pytest.mark.parametrize("name", ["missing.yaml", "cwd", "missing\n.yaml"])
def test_a_file_that_cannot_be_read(files: Files, name: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: ") as caught:
        load_config([files.directory / name], environ={}, cwd=files.cwd)
    assert name.splitlines()[0] in str(caught.value)
    assert str(caught.value).isprintable()


def test_no_file() -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        load_config([], environ={}, cwd=Path())


def test_a_space_id_in_two_files(files: Files) -> None:
    error = files.error(BASE, BASE)
    assert "space2.yaml: space.id: found 'demo', which" in error
    assert "/space.yaml has already" in error


@pytest.mark.parametrize(
    ("first", "second", "key"),
    [
        ("{port: 1}", "{port: 2, host: a}", "gateway.port"),
        ("{data: a}", "{data: b}", "gateway.data"),
        (
            "{tls: {cert: space.yaml, key: space.yaml}}",
            "{tls: {cert: space2.yaml, key: space.yaml}}",
            "gateway.tls.cert",
        ),
    ],
)
def test_gateway_sections_that_differ(files: Files, first: str, second: str, key: str) -> None:
    error = files.error(BASE + f"gateway: {first}", f"gateway: {second}")
    assert re.search(rf"space2\.yaml: {re.escape(key)}: found another value than in .*/space\.yaml", error)


def test_a_bad_flag_in_the_environment(files: Files) -> None:
    with pytest.raises(ConfigError, match="ENVELOPE_HISTORY"):
        files.load(BASE, environ={"ENVELOPE_HISTORY": "ture"})


# -- the example ----------------------------------------------------------------------------------


def test_the_example(tmp_path: Path) -> None:
    config = load_config([EXAMPLE], environ={}, cwd=tmp_path)
    space = config.spaces["demo"]
    assert list(space.participants) == ["character-server", "player1", "player2", "ai-agent", "viewer", "observer"]
    assert all(token.startswith("dev-") for each in space.participants.values() for token in each.tokens)
    assert config.unused == []


def test_what_the_example_has_commented_out_are_the_defaults(files: Files) -> None:
    text = EXAMPLE.read_text()
    plain = files.load(text)
    full = re.sub(r"^#(?=(  |    )?\w+:)", "", text, flags=re.MULTILINE)
    assert files.space(full).participants["viewer"].auto_connect
    config = files.load(full.replace("auto_connect: true", "").replace("output_log: viewer.jsonl", ""))
    assert config == plain
    for kind in (Limits, Policies, Delivery):
        for name in kind.__struct_fields__:
            assert re.search(rf"^#    {name}: ", text, flags=re.MULTILINE), name
