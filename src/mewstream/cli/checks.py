"""The checks of ``doctor``, one function each."""

from __future__ import annotations

import errno
import importlib
import os
import platform
import re
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from mewstream.extras import EXTRAS, how_to_install

Level = Literal["ok", "warn", "missing"]

OLDEST_PYTHON = (3, 11)
GIB = 1 << 30
#: With less free space than the first, the gateway may soon be unable to record; with less than the second, it cannot
#: start.
LITTLE_DISK, NO_DISK = GIB, 64 << 20
FEW_DESCRIPTORS = 4096
#: Distributions whose module has a different name.
_MODULES = {"google-re2": "re2", "pyyaml": "yaml"}


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    level: Level
    found: str
    remedy: str = ""
    """What to do about it."""


def examine(host: str, port: int, data: Path) -> Iterator[Finding]:
    """Run all checks, in the order in which problems should be fixed."""
    yield _python()
    yield from _packages()
    yield _port(host, port)
    yield from _data_directory(data)
    yield _descriptors()
    yield _extra("duckdb", "query", "to ask the tables")
    yield _extra("deltalake", "query", "to ask the tables")
    yield _extra("pyspark", "spark", "for the pipeline")
    yield _java()


def _python() -> Finding:
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding("Python", "missing", found, f"install Python {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    return Finding("Python", "ok", found)


def _packages() -> Iterator[Finding]:
    """Return whether the packages that a gateway needs are installed and can be imported."""
    try:
        required = metadata.requires("mewstream") or []
    except metadata.PackageNotFoundError:
        yield Finding("mewstream", "missing", "not installed", how_to_install())
        return
    yield Finding("mewstream", "ok", metadata.version("mewstream"))
    names = [match[0] for each in required if "extra ==" not in each and (match := re.match(r"[\w.-]+", each))]
    good, absent = [], []
    for name in (*names, *EXTRAS["gateway"].values(), "uvloop"):
        try:
            good.append(f"{name} {metadata.version(name)}")
            importlib.import_module(_MODULES.get(name.lower(), name.replace("-", "_")))
        except metadata.PackageNotFoundError:
            absent.append(name)
        except Exception as error:
            # A broken package may raise any exception.
            remedy = f"run: {sys.executable} -m pip install --force-reinstall '{name}'"
            yield Finding(good.pop(), "missing", f"cannot be imported ({error})", remedy)
    yield Finding("packages", "ok" if good else "missing", ", ".join(good) or "none")
    remedy = f"to run a gateway, {how_to_install('gateway')}"
    if lacking := [name for name in absent if name != "uvloop"]:
        yield Finding("gateway", "missing", f"not installed: {', '.join(lacking)}", remedy)
    elif absent:
        yield Finding("uvloop", "warn", "not installed, so the gateway is slower", remedy)


def _port(host: str, port: int) -> Finding:
    what = f"port {port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with closing(socket.socket(family, kind, protocol)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except socket.gaierror as error:
        return Finding(what, "missing", f"{host} is no address ({error.strerror})", "give another --host")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return _taken_port(host, port)
        return Finding(what, "missing", f"{host} cannot be used ({error.strerror})", "give another --host or --port")
    return Finding(what, "ok", f"free on {host}")


def _taken_port(host: str, port: int) -> Finding:
    """Return whether the port is taken by a running gateway, which is fine, or by another program."""
    import asyncio

    from mewstream.cli import http_api
    from mewstream.cli.identity import Identity
    from mewstream.protocol.errors import MewError

    address = f"[{host}]" if ":" in host else host
    try:
        health = asyncio.run(asyncio.wait_for(http_api.health(Identity(f"ws://{address}:{port}")), timeout=5))
    except (MewError, TimeoutError):
        health = {}
    if "features" in health:
        return Finding(f"port {port}", "ok", f"a gateway runs there already (mewstream {health.get('version')})")
    remedy = "stop that program, or give `mewstream serve` another --port"
    return Finding(f"port {port}", "missing", f"taken on {host} by another program", remedy)


def _data_directory(data: Path) -> Iterator[Finding]:
    """Return whether the journal can be written there. The test file is written to the nearest existing directory."""
    existing = data.absolute()
    while not existing.is_dir() and existing.parent != existing:
        if existing.exists():
            yield Finding("data directory", "missing", f"{existing} is a file", "give another --data")
            return
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(b"mewstream doctor")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        remedy = "make it writable for this user, or give another --data"
        yield Finding("data directory", "missing", f"{existing} cannot be written ({error.strerror})", remedy)
        return
    is_there = "writable" if existing == data.absolute() else "can be made"
    yield Finding("data directory", "ok", f"{data} {is_there}")
    free = shutil.disk_usage(existing).free
    found = f"{free / GIB:.1f} GiB free"
    if free >= LITTLE_DISK:
        yield Finding("disk", "ok", found)
    else:
        remedy = "make room, or bound the journal by gateway.journal.retention in space.yaml"
        yield Finding("disk", "warn" if free >= NO_DISK else "missing", found, remedy)


def _descriptors() -> Finding:
    """Return whether there are enough file descriptors: every connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{soft} files and connections"
    if soft == resource.RLIM_INFINITY or soft >= FEW_DESCRIPTORS:
        return Finding("open files", "ok", "no limit" if soft == resource.RLIM_INFINITY else found)
    most = "65536" if hard == resource.RLIM_INFINITY else str(hard)
    return Finding("open files", "warn", found, f"for many connections run: ulimit -n {most}")


def _extra(package: str, extra: str, purpose: str) -> Finding:
    try:
        return Finding(package, "ok", metadata.version(package))
    except metadata.PackageNotFoundError:
        return Finding(package, "warn", "not installed", f"{purpose}, {how_to_install(extra)}")


def _java() -> Finding:
    from mewstream.pipeline.java import find_java
    from mewstream.protocol.errors import MewError

    try:
        java = find_java()
    except MewError as error:
        return Finding("Java", "warn", "none that Spark runs on", str(error))
    return Finding("Java", "ok", f"{java.version} ({java.found})")
