"""Worker processes of the load generator. They are forked, so that they share sockets and expected bytes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys

FORK = multiprocessing.get_context("fork")


def is_orphan() -> bool:
    """Whether the parent process is gone, so that nobody waits for a result."""
    parent = multiprocessing.parent_process()
    return parent is not None and os.getppid() != parent.pid


def end_on_sigterm() -> None:
    """Make SIGTERM raise an exception, so that gateways that were started are stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
