"""Processes of the load generator. Forked: sockets and expected bytes are there already, and are not copied."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys

FORK = multiprocessing.get_context("fork")


def is_orphan() -> bool:
    """Whether the process that forked this one is gone: then nobody waits for a result."""
    parent = multiprocessing.parent_process()
    return parent is not None and os.getppid() != parent.pid


def end_on_sigterm() -> None:
    """Leave by an exception, so that gateways that were started are stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
