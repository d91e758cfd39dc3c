"""What ``deploy/`` has is checked by the tools of those who run it, and its command lines are run."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric

from mewstream.gateway.config import load_config
from mewstream.gateway.gateway import DRAIN_TIMEOUT
from mewstream.gateway.journal_usage import JournalUsage
from mewstream.gateway.metrics import Metrics
from mewstream.gateway.recorder import Recorder
from mewstream.gateway.server import HTTP_SHUTDOWN_TIMEOUT
from support import running_gateway, space_config

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
UNIT = DEPLOY / "systemd" / "mewstream.service"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "mewstream.json"
MANIFESTS = DEPLOY / "kubernetes" / "mewstream.yaml"
BIN = Path(sys.executable).parent
#: Labels that Prometheus itself adds.
SCRAPED = {"instance", "job", "le"}


def run(*command: str | Path, cwd: Path | None = None, given: str | None = None) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, input=given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, in order."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line and not line.startswith("#")]  # type: ignore[misc]


def the(name: str) -> str:
    return next(value for each, value in reversed(instructions()) if each == name)


# -- the names ------------------------------------------------------------------------------------


def exported() -> dict[str, set[str]]:
    """The series that the gateway exports, with their labels."""
    metrics = Metrics()
    metrics.watch_journal(JournalUsage(Recorder()))
    labels = {name: set(each._labelnames) for each, name in _collectors(metrics)}
    found: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for name in _series(family):
            found[name] = labels.get(family.name, set())
    return found | {"mewstream_consumer_lag_records": {"consumer"}, "up": set()}


def _collectors(metrics: Metrics) -> Iterator[tuple[Any, str]]:
    for each in metrics.registry._collector_to_names:
        if hasattr(each, "_labelnames"):
            yield each, each._name


def _series(family: Metric) -> list[str]:
    ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
    return [family.name + end for end in ends]


def expressions() -> list[str]:
    alerts = [rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    dashboard = json.loads(DASHBOARD.read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    variables = [variable["query"]["query"] for variable in dashboard["templating"]["list"]]
    assert len(alerts) > 8
    assert len(shown) > 20
    return alerts + shown + variables


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_uses_what_the_gateway_exports(expression: str) -> None:
    names = exported()
    used = set(re.findall(r"\b(?:mewstream|process)_\w+|\bup\b", expression))
    assert used
    assert used <= names.keys()
    labels = set().union(*(names[name] for name in used)) | SCRAPED
    selected = {
        key for selector in re.findall(r"\{([^}]*)\}", expression) for key in re.findall(r"(\w+)\s*=", selector)
    }
    grouped = {key.strip() for each in re.findall(r"by \(([^)]*)\)", expression) for key in each.split(",")}
    assert selected | grouped <= labels


# -- Prometheus -----------------------------------------------------------------------------------


def test_the_alerts_are_sound_and_fire_when_they_should(tmp_path: Path) -> None:
    run("promtool", "check", "rules", ALERTS)
    run("promtool", "check", "config", "prometheus.yml", cwd=ALERTS.parent)
    run("promtool", "test", "rules", "alerts_test.yml", cwd=ALERTS.parent)


async def test_promtool_finds_nothing_to_say_of_the_metrics(tmp_path: Path) -> None:
    with running_gateway(space_config("ann", "bob"), options=("--data", str(tmp_path))) as gateway:
        ann = await gateway.join("ann")
        await ann.frame(await ann.open_stream(), "x")
        await ann.settle()
        _, text = await gateway.http("GET", "/metrics")
    assert run("promtool", "check", "metrics", given=text) == ""


# -- systemd --------------------------------------------------------------------------------------


def test_the_unit_is_sound_and_hardened(tmp_path: Path) -> None:
    unit = tmp_path / "mewstream.service"
    unit.write_text(UNIT.read_text().replace("/opt/mewstream/bin/mewstream", str(BIN / "mewstream")))
    assert run("systemd-analyze", "verify", unit) == ""
    run("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)  # tenths: below 2 is well protected


def test_the_command_of_the_unit_serves(tmp_path: Path) -> None:
    settings = dict(re.findall(r"^(\w+)=(.+)$", UNIT.read_text(), re.MULTILINE))
    assert settings["LoadCredential"].startswith("space.yaml:")
    places = {"%d": str(tmp_path), "/var/lib/mewstream": str(tmp_path / settings["StateDirectory"])}
    (tmp_path / settings["StateDirectory"]).mkdir()
    served(settings["ExecStart"], places, tmp_path, stop=signal.Signals[settings["KillSignal"]])


# -- the container --------------------------------------------------------------------------------


def test_the_dockerfile_is_sound() -> None:
    assert run(BIN / "hadolint", DEPLOY / "Dockerfile") == ""


def test_what_it_copies_is_there_and_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [value.split()[:-1] for name, value in instructions() if name == "COPY" and "--from" not in value]
    sources = {source for each in copied for source in each}
    assert sources == kept
    assert all((ROOT / source).exists() for source in sources)


def test_it_does_not_run_as_root() -> None:
    assert the("USER").isdecimal()
    assert int(the("USER")) > 0


def test_the_command_of_the_container_serves_and_its_health_check_sees_it(tmp_path: Path) -> None:
    command = shlex.join(json.loads(the("ENTRYPOINT")) + json.loads(the("CMD")))
    places = {"/etc/mewstream": str(tmp_path), "/data": str(tmp_path / "data"), "0.0.0.0": "127.0.0.1", "8080": "0"}
    check = json.loads(the("HEALTHCHECK").partition("CMD ")[2])

    def healthy(port: int) -> None:
        script = [each.replace("8080", str(port)) for each in check]
        run(sys.executable, *script[1:])
        elsewhere = [sys.executable, *(each.replace("/ready", "/no") for each in script[1:])]
        unready = subprocess.run(elsewhere, check=False, capture_output=True)
        assert unready.returncode == 1

    served(command, places, tmp_path, stop=signal.Signals[the("STOPSIGNAL")], look=healthy)


# -- compose and Kubernetes -------------------------------------------------------------------------


def test_compose_names_files_that_are_there() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    build = compose["services"]["mewstream"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).exists(), volume
    (target,) = yaml.safe_load((ALERTS.parent / "prometheus.yml").read_text())["scrape_configs"]
    assert target["static_configs"][0]["targets"] == ["mewstream:8080"]
    dashboards = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/mewstream.yaml").read_text())
    mounted = dict(each.split(":")[1::-1] for each in compose["services"]["grafana"]["volumes"])
    assert (DEPLOY / mounted[dashboards["providers"][0]["options"]["path"]] / "mewstream.json").is_file()
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"][0]
    used = {
        panel["datasource"]["uid"] for panel in json.loads(DASHBOARD.read_text())["panels"] if "datasource" in panel
    }
    assert used == {source["uid"]}


def test_the_manifests_are_what_kubernetes_knows() -> None:
    run(BIN / "kubernetes-validate", "--strict", MANIFESTS)


def test_the_pod_serves_is_probed_and_drains(tmp_path: Path) -> None:
    manifests = {each["kind"]: each for each in yaml.safe_load_all(MANIFESTS.read_text())}
    pod = manifests["StatefulSet"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert manifests["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["securityContext"]["runAsUser"] == int(the("USER"))
    (config,) = manifests["Secret"]["stringData"].values()
    (tmp_path / "space.yaml").write_text(config)
    command = shlex.join([*json.loads(the("ENTRYPOINT")), *container["args"]])
    places = {"/etc/mewstream": str(tmp_path), "/data": str(tmp_path / "data"), "0.0.0.0": "127.0.0.1", "8080": "0"}

    def probed(port: int) -> None:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = container[probe]["httpGet"]["path"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                assert answer.status == 200

    served(command, places, tmp_path, look=probed, config=None)
    settings = load_config((tmp_path / "space.yaml",), environ={}, cwd=tmp_path)
    seconds = settings.drain_seconds + DRAIN_TIMEOUT + HTTP_SHUTDOWN_TIMEOUT
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pause + seconds < pod["spec"]["terminationGracePeriodSeconds"]


def served(
    command: str,
    places: dict[str, str],
    directory: Path,
    *,
    stop: signal.Signals = signal.SIGTERM,
    look: Any = lambda port: None,
    config: dict[str, Any] | None = space_config("ann"),  # noqa: B008
) -> None:
    """Run a command line, with paths and ports of this machine in the place of its own, and stop it."""
    if config is not None:
        (directory / "space.yaml").write_text(yaml.safe_dump(config))
    for there, here in places.items():
        command = command.replace(there, here)
    words = shlex.split(command)
    if "--port" not in words:
        words += ["--port", "0"]
    assert Path(words[0]).name == "mewstream"
    with (directory / "log").open("w") as log:
        process = subprocess.Popen([str(BIN / "mewstream"), *words[1:]], stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            assert "listening on" in ready, (directory / "log").read_text()
            look(int(ready.rsplit(":", 1)[1]))
            process.send_signal(stop)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    events = [json.loads(line)["event"] for line in (directory / "log").read_text().splitlines()]
    assert "draining" in events
