"""What a process costs, from /proc; and how many files this one may have open."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from mewstream.protocol.errors import ConfigError

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Files that are open besides the connections.
_SPARE_FILES = 200


def check_process(pid: int) -> None:
    if not Path(f"/proc/{pid}/stat").exists():
        raise ConfigError(f"no process {pid} in /proc: --pid needs Linux, and the gateway on this machine")


def cpu_seconds(pid: int) -> float:
    """CPU time so far of a process, of its living children and of those that have ended."""
    seconds = 0.0
    for each in _family(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
            # Of itself /proc tells in steps of 10 ms, its clock in nanoseconds.
            seconds += time.clock_gettime(_cpu_clock(each))
        except OSError:
            continue
        seconds += sum(map(int, fields[13:15])) / _TICKS
    return seconds


def _cpu_clock(pid: int) -> int:
    """What ``clock_getcpuclockid`` of the C library gives, which Python has for threads only."""
    return (~pid << 3) | 2


def resident_bytes(pid: int) -> int:
    """Memory of a process and of its children."""
    pages = 0
    for each in _family(pid):
        try:
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * _PAGE


def _family(pid: int) -> list[int]:
    family = [pid]
    for each in family:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                family += map(int, children.read_text().split())
            except OSError:
                continue
    return family


def own_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def need_files(connections: int) -> None:
    """Raise the limit of open files as far as this run needs; a gateway that is started inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise ConfigError(
                f"{connections} connections need {needed} open files, this machine allows {hard}: "
                f"raise it (ulimit -Hn {needed}, or LimitNOFILE of the service), or ask for fewer"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
