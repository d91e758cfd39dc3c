"""The listening socket: WebSocket and HTTP on one port, TLS, and an orderly end.

Every connection begins as :class:`mewstream.gateway.http_connection.HttpConnection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import ssl
from collections.abc import Callable

from mewstream.gateway.config import GatewayConfig
from mewstream.gateway.connections import Connections, connection_limits, raise_descriptor_limit
from mewstream.gateway.console_files import ConsoleFiles
from mewstream.gateway.gateway import Gateway
from mewstream.gateway.http import HttpApi
from mewstream.gateway.http_connection import Front
from mewstream.gateway.http_routes import Routes
from mewstream.gateway.listening import listen
from mewstream.gateway.operator_api import OperatorApi
from mewstream.gateway.origins import Origins
from mewstream.gateway.proxies import Proxies
from mewstream.gateway.unsent_answers import UnsentAnswers
from mewstream.io.log_lines import event
from mewstream.protocol.errors import ConfigError

log = logging.getLogger("mewstream.gateway")

#: How long a drain waits for requests whose bodies do not come.
HTTP_SHUTDOWN_TIMEOUT = 1.0
#: Messages make many short-lived objects and no reference cycles, so garbage collections may be rare.
GC_THRESHOLDS = (20_000, 20, 20)
#: A terminal that is closed sends SIGHUP to the gateway that was started from it.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def serve(
    config: GatewayConfig,
    *,
    announce: Callable[[str], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP (or ``stop``), then drain. ``announce`` gets the ready line, and one with
    the address of the console if it is served."""
    tls = _tls(config)
    loop = asyncio.get_running_loop()
    scheme = "https" if tls else "http"
    stop = stop or asyncio.Event()
    for number in STOP_SIGNALS:
        with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread: the embedding program stops it
            loop.add_signal_handler(number, stop.set)

    most, most_per_address = connection_limits(config, raise_descriptor_limit())
    listening = await listen(config.host, config.port)
    host, port = listening.host, listening.port
    try:
        gateway = Gateway(config, base_url=f"{'wss' if tls else 'ws'}://{_reachable(host)}:{port}")
    except BaseException:
        listening.close()
        raise
    refused = gateway.metrics.connections_refused
    connections = Connections(
        most=most,
        most_per_address=most_per_address,
        refused=lambda limit: refused.labels(limit).inc(),
        proxies=Proxies(config.trusted_proxies),
    )
    unsent = UnsentAnswers(config.unsent_http_bytes)
    origins = Origins(config, is_local=listening.is_local)
    console = ConsoleFiles(config.console, origins, is_local=listening.is_local)
    routes = Routes(*HttpApi(gateway, unsent).routes, *OperatorApi(gateway).routes, *console.routes)
    front = Front(gateway, routes, unsent, origins)
    gateway.metrics.watch_http(connections=lambda: len(front.open), unsent=lambda: unsent.size)
    listening.start(connections, front.connection, tls=tls, handshake_timeout=config.head_timeout, spawn=gateway.spawn)
    for name in config.unused:
        log.warning(
            "%s is accepted and not used: it concerns the reference's process manager",
            name,
            extra=event("setting_unused"),
        )
    gc.freeze()  # what exists now stays, and need not be scanned again
    gc.set_threshold(*GC_THRESHOLDS)
    announce(f"mewstream listening on {scheme}://{host}:{port}")
    if console.routes:
        announce(f"the console is at {scheme}://{_reachable(host)}:{port}/")
    try:
        await stop.wait()
        log.info("draining: telling %d connections to reconnect", len(gateway.peers), extra=event("draining"))
    finally:
        listening.close()
        await gateway.drain()
        await front.close(HTTP_SHUTDOWN_TIMEOUT)
        gateway.close()


def _reachable(host: str) -> str:
    """A host that clients can connect to. For a wildcard the machine's name is a guess; gateway.public_url is
    better."""
    return socket.gethostname() if host in ("0.0.0.0", "[::]") else host  # noqa: S104


def _tls(config: GatewayConfig) -> ssl.SSLContext | None:
    if config.tls_cert is None or config.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the TLS certificate {config.tls_cert} with its key: {error}") from None
    return context


def run(config: GatewayConfig, *, announce: Callable[[str], None]) -> None:
    """``serve`` from a plain program: on uvloop where it is installed, otherwise on asyncio's own event loop."""
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ModuleNotFoundError):
        from uvloop import new_event_loop as loop_factory
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(serve(config, announce=announce))
