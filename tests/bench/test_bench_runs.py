"""Every measurement against real gateways: ours, and the baseline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from bench_running import BASELINE, bench, figures

from mewstream.bench.join import Join
from mewstream.bench.target import our_gateway
from support import running_gateway, space_config, token_of

#: Real loads, which a busy machine cannot carry: run by `make test-long`.
pytestmark = pytest.mark.long

RUNS: dict[str, tuple[str, ...]] = {
    "fanout": ("--readers", "3", "--seconds", "0.3"),
    "rate": ("--writers", "3", "--readers", "2", "--hz", "50", "--seconds", "0.5"),
    "control": ("--pairs", "2", "--readers", "2", "--hz", "100", "--seconds", "0.5"),
    "join": ("--joiners", "20", "--streams", "5", "--concurrency", "7"),
    "idle": ("--connections", "20", "--spaces", "4", "--seconds", "0.2"),
    "auth": ("--writers", "1", "--writers", "20", "--seconds", "0.3"),
}
#: What each must tell, besides much else.
TELLS: dict[str, tuple[str, ...]] = {
    "fanout": ("frames_per_second", "deliveries_per_second", "cpu_ns_per_delivery", "generator_cpu"),
    "rate": ("latency_p50_ms", "latency_p99_ms", "latency_p999_ms", "deliveries_per_second", "cpu_ns_per_delivery"),
    "control": ("round_trips_per_second", "round_trip_p50_ms", "frames_per_second", "gateway_cpu"),
    "join": ("joins_per_second", "welcome_p50_ms", "welcome_p99_ms", "welcome_megabytes"),
    "idle": ("connections", "gateway_mib"),
    "auth": ("frames_per_second[1 writer]", "frames_per_second[20 writers]"),
}


class TestEveryMeasurement:
    @pytest.mark.parametrize("name", RUNS)
    @pytest.mark.parametrize("target", ["ours", "baseline"])
    def test_gives_its_figures(self, name: str, target: str) -> None:
        where = ("--spawn",) if target == "ours" else ("--spawn-command", BASELINE)
        result = figures(bench(name, *where, "--json", *RUNS[name]))
        assert result["measurement"] == name
        (run,) = result["rounds"][0]
        for key in TELLS[name]:
            assert run[key] > 0 or key.startswith(("cpu", "gateway_cpu", "generator")), (key, run)
        assert run.keys() == result["units"].keys()

    def test_counts_what_was_delivered(self) -> None:
        """Everyone reads, the writers too: each frame is delivered to all five."""
        result = figures(bench("rate", "--spawn", "--json", *RUNS["rate"]))
        (run,) = result["rounds"][0]
        assert run["offered_deliveries_per_second"] == 3 * 50 * 5
        assert run["deliveries_per_second"] == pytest.approx(run["frames_per_second"] * 5)

    def test_counts_the_presence_messages_of_a_storm(self) -> None:
        """20 joiners and a host: each hears of those who come later."""
        (run,) = figures(bench("join", "--spawn", "--json", *RUNS["join"]))["rounds"][0]
        assert run["presences"] == 20 + 20 * 19 / 2

    def test_a_storm_among_listeners(self) -> None:
        """They hear of everyone, as the host does; of those who came with them nothing is counted."""
        options = ("--joiners", "20", "--listeners", "30", "--streams", "5")
        (run,) = figures(bench("join", "--spawn", "--json", *options))["rounds"][0]
        assert run["presences"] == 20 * (1 + 30) + 20 * 19 / 2

    def test_storms_one_after_the_other(self) -> None:
        """Everyone has left before the next: each is like the first."""
        join = Join(participants=20, listeners=10, streams=5)
        with our_gateway().running(join.needs) as live, join.prepared(live) as storm:
            runs = [storm() for _ in range(3)]
        assert [run["presences"] for run in runs] == [20 * (1 + 10) + 20 * 19 / 2] * 3

    def test_a_storm_in_waves(self) -> None:
        """Everyone is told of the same joins, in several writes."""
        options = ("--joiners", "20", "--waves", "4", "--listeners", "5", "--streams", "5")
        (run,) = figures(bench("join", "--spawn", "--json", *options))["rounds"][0]
        assert run["presences"] == 20 * (1 + 5) + 20 * 19 / 2

    def test_a_storm_among_bystanders(self) -> None:
        few = figures(bench("join", "--spawn", "--json", "--joiners", "3", "--streams", "1"))["medians"][0]
        many = figures(bench("join", "--spawn", "--json", "--joiners", "3", "--streams", "1", "--bystanders", "50"))
        assert many["medians"][0]["welcome_megabytes"] > 2 * few["welcome_megabytes"]

    def test_the_ramp_finds_a_knee(self) -> None:
        options = ("--writers", "2", "--hz", "100", "--seconds", "0.2", "--bound", "400", "--ramp", "--json")
        (run,) = figures(bench("rate", "--spawn", "--no-journal", *options))["rounds"][0]
        assert run["knee_deliveries_per_second"] > 0
        assert run["latency_p99_ms"] <= 400

    def test_binary_frames(self) -> None:
        (run,) = figures(bench("fanout", "--spawn", "--binary", "--json", *RUNS["fanout"]))["rounds"][0]
        assert run["opcode_changed"] == 0

    def test_readers_in_several_processes(self) -> None:
        (run,) = figures(bench("fanout", "--spawn", "--workers", "2", "--json", *RUNS["fanout"]))["rounds"][0]
        assert run["deliveries_per_second"] == pytest.approx(run["frames_per_second"] * 4)


class TestComparing:
    def test_both_in_turn_with_ratios(self) -> None:
        done = bench("fanout", "--spawn", "--compare-command", BASELINE, "--rounds", "2", "--json", *RUNS["fanout"])
        result = figures(done)
        assert result["targets"] == ["mewstream", "baseline_gateway.py"]
        assert [len(each) for each in result["rounds"]] == [2, 2]
        ours, theirs = (each["deliveries_per_second"] for each in result["medians"])
        assert result["ratios"]["deliveries_per_second"] == pytest.approx(ours / theirs)

    def test_as_a_table(self) -> None:
        done = bench("fanout", "--spawn", "--compare-command", BASELINE, "--rounds", "1", *RUNS["fanout"])
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[1].split() == ["mewstream", "baseline_gateway.py", "ratio"]
        assert any(line.split()[0] == "deliveries" for line in lines[2:] if line)


@pytest.fixture
def space(tmp_path: Path) -> Any:
    """A gateway that runs already, and the space.yaml of its three participants."""
    config = space_config("bench-0", "bench-1", "bench-2")
    file = tmp_path / "space.yaml"
    file.write_text(yaml.safe_dump(config))
    with running_gateway(config) as gateway:
        yield gateway, file


class TestAGatewayThatRunsAlready:
    OPTIONS = ("--readers", "2", "--seconds", "0.2", "--json")

    def test_with_the_tokens_of_a_file(self, space: Any) -> None:
        gateway, file = space
        done = bench("fanout", "--url", gateway.ws_url, "--config", str(file), *self.OPTIONS)
        (run,) = figures(done)["rounds"][0]
        assert "cpu_ns_per_delivery" not in run, "nobody told its process"

    def test_with_its_process(self, space: Any) -> None:
        gateway, file = space
        where = ("--url", gateway.url, "--config", str(file), "--pid", str(gateway.pid))
        (run,) = figures(bench("fanout", *where, *self.OPTIONS))["rounds"][0]
        assert run["gateway_cpu"] >= 0

    def test_with_a_template_of_tokens(self, space: Any) -> None:
        gateway, _ = space
        where = ("--url", gateway.ws_url, "--space", "demo")
        figures(bench("fanout", *where, *self.OPTIONS, MEW_BENCH_TOKEN=token_of("{id}")))

    def test_twice_compared_with_itself(self, space: Any) -> None:
        gateway, file = space
        where = ("--url", gateway.ws_url, "--config", str(file), "--compare", gateway.ws_url, "--rounds", "2")
        assert len(figures(bench("fanout", *where, *self.OPTIONS))["rounds"]) == 2


class TestMistakes:
    def check(self, done: subprocess.CompletedProcess[str], code: int, *says: str) -> None:
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        for text in says:
            assert text in done.stderr

    def test_no_gateway_named(self) -> None:
        self.check(bench("fanout"), 2, "--url", "--spawn")

    def test_no_tokens(self) -> None:
        self.check(bench("fanout", "--url", "ws://127.0.0.1:1"), 2, "--config", "MEW_BENCH_TOKEN")

    def test_nobody_listens(self) -> None:
        done = bench("fanout", "--url", "ws://127.0.0.1:1", MEW_BENCH_TOKEN="secret-{id}")
        self.check(done, 3, "127.0.0.1:1")
        assert "secret" not in done.stderr

    def test_a_wrong_token(self, space: Any) -> None:
        gateway, _ = space
        done = bench("fanout", "--url", gateway.ws_url, "--space", "demo", MEW_BENCH_TOKEN="secret-{id}")
        self.check(done, 1, "bench-0", "token")
        assert "secret" not in done.stderr

    def test_tls(self) -> None:
        self.check(bench("fanout", "--url", "wss://127.0.0.1:1", MEW_BENCH_TOKEN="t"), 2, "TLS")

    def test_too_few_participants(self, space: Any) -> None:
        gateway, file = space
        done = bench("fanout", "--url", gateway.ws_url, "--config", str(file), "--readers", "9")
        self.check(done, 2, "needs 1 space(s) with 10 participants", "found 0")

    def test_memory_without_a_process(self, space: Any) -> None:
        gateway, file = space
        where = ("--url", gateway.ws_url, "--config", str(file))
        self.check(bench("idle", *where, "--connections", "2", "--spaces", "1"), 2, "--pid")

    def test_more_connections_than_the_machine_allows(self) -> None:
        done = bench("idle", "--spawn", "--connections", "3000000", "--spaces", "1000000")
        self.check(done, 2, "open files")

    def test_a_command_that_fails(self) -> None:
        command = f"{sys.executable} -c 'import sys; sys.exit(\"cannot {{port}}\")'"
        self.check(bench("fanout", "--spawn-command", command), 2, "did not start", "cannot")

    def test_a_command_without_a_port(self) -> None:
        self.check(bench("fanout", "--spawn-command", "true"), 2, "{port}")


def test_stops_its_gateway_when_it_is_stopped() -> None:
    command = [sys.executable, "-m", "mewstream.cli.main", "bench", "fanout", "--spawn", "--seconds", "600"]
    running = psutil.Popen(command, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while len(family := running.children(recursive=True)) < 2:  # its gateway, and its readers
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=60) == 128 + signal.SIGTERM
        assert psutil.wait_procs(family, timeout=30)[1] == []
    finally:
        if running.poll() is None:
            running.kill()
