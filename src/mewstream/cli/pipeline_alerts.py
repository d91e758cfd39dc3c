"""How others hear of a pipeline: its metrics, and a command that is told of findings."""

from __future__ import annotations

import shlex
import subprocess
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mewstream.cli.output import complain
from mewstream.protocol.errors import ConfigError

if TYPE_CHECKING:
    from mewstream.pipeline.alerting import Tell
    from mewstream.pipeline.runner import Progress

_COMMAND_SECONDS = 60


def told_by(command: str) -> Tell:
    """Findings go to a command, each as a line of JSON on its stdin. What it says goes to stderr."""
    try:
        arguments = shlex.split(command)
    except ValueError as flaw:
        raise click.UsageError(f"--on-finding {command!r} cannot be read as a command: {flaw}") from None
    if not arguments:
        raise click.UsageError(f"--on-finding {command!r} names no command: expected a program and its arguments")

    def tell(findings: list[dict[str, Any]]) -> bool:
        from mewstream.query.database import plain

        lines = b"".join(msgspec.json.encode(plain(each)) + b"\n" for each in findings)
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command
                arguments, input=lines, stdout=2, timeout=_COMMAND_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            complain(f"--on-finding: {error}; it is told again at the next start")
            return False
        if done.returncode:
            complain(f"--on-finding: {arguments[0]} ended with {done.returncode}; it is told again at the next start")
        return done.returncode == 0

    return tell


def address(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """``[HOST:]PORT``."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is no address: expected a port, or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


class PipelineMetrics:
    """Served in a thread of its own, for as long as the process lives."""

    def __init__(self, host: str, port: int) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

        registry = CollectorRegistry()
        self._findings = Gauge("mewstream_pipeline_findings", "Findings of the audit in the tables.", registry=registry)
        self._lag = Gauge(
            "mewstream_pipeline_lag_records", "Records in the journal and not in the tables.", registry=registry
        )
        self._records = Counter("mewstream_pipeline_records", "Records that were read.", registry=registry)
        self._batches = Counter("mewstream_pipeline_batches", "Batches that were committed.", registry=registry)
        self._last = Gauge(
            "mewstream_pipeline_last_commit_timestamp_seconds", "When the last batch was committed.", registry=registry
        )
        self._seconds = Gauge(
            "mewstream_pipeline_last_batch_seconds", "How long the last batch took.", registry=registry
        )
        try:
            start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigError(f"the metrics cannot be served on {host}:{port}: {error.strerror or error}") from None

    def note(self, done: Progress) -> None:
        self._findings.set(done.findings)
        self._lag.set(done.lag)
        self._records.inc(done.records)
        self._batches.inc()
        self._last.set(time.time())
        self._seconds.set(done.seconds)
