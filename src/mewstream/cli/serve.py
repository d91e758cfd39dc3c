"""``mewstream serve``: run the gateway."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mewstream.extras import require
from mewstream.io.log_lines import log_to_stderr
from mewstream.protocol.errors import ConfigError
from mewstream.settings.space_file import space_file

if TYPE_CHECKING:
    from mewstream.journal.settings import Durability


@click.command()
@click.option(
    "--config",
    "-c",
    "configs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A space.yaml; repeat the option for several spaces.  [default: ./space.yaml, or ./.mew/space.yaml]",
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1, or gateway.host of the file]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port; 0 takes a free one.  [default: 8080, or gateway.port of the file]",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Directory of the journal and the tokens of invited participants. Without it, a restart loses everything.",
)
@click.option(
    "--durability",
    type=click.Choice(["none", "flush", "fsync"]),
    help="How safe a message must be before it is delivered.  [default: flush, or gateway.journal.durability]",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), help="PEM certificate chain: serve https and wss.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="PEM key of the certificate.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is logged, to stderr.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How it is logged: json has an event and the ids of each line.",
)
def serve(
    configs: tuple[Path, ...],
    host: str | None,
    port: int | None,
    data: Path | None,
    durability: Durability | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run the gateway until it is stopped.

    It prints one line with its address when it is ready. SIGTERM or Ctrl-C starts a drain: over
    gateway.drain_seconds, clients are told to reconnect.

    \b
    Examples:
      mewstream serve
      mewstream serve --config space.yaml --port 9000 --data ./data
      mewstream serve --config lobby.yaml --config arena.yaml --host 0.0.0.0
    """
    require("gateway")
    import msgspec

    from mewstream.gateway.config import load_config
    from mewstream.gateway.server import run

    log_to_stderr(log_level, log_format)
    config = load_config(configs or (space_file({}),), environ=os.environ, cwd=Path.cwd())
    given: dict[str, Any] = {"host": host, "port": port, "data": data, "tls_cert": tls_cert, "tls_key": tls_key}
    config = dataclasses.replace(config, **{key: value for key, value in given.items() if value is not None})
    if durability is not None:
        journal = msgspec.structs.replace(config.journal, durability=durability)
        config = dataclasses.replace(config, journal=journal)
    if (config.tls_cert is None) != (config.tls_key is None):
        raise ConfigError("TLS needs both a certificate and its key: give --tls-cert and --tls-key")
    run(config, announce=click.echo)
