"""CPU time and memory of a process, and the limit of open files of this one."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from mewstream.protocol.errors import ConfigError

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Open files in addition to the connections.
_SPARE_FILES = 200


def check_process(pid: int) -> None:
    if not Path(f"/proc/{pid}/stat").exists():
        raise ConfigError(f"no process {pid} in /proc: --pid needs Linux, and the gateway on this machine")


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process and of its children, including those that have ended."""
    seconds = 0.0
    for each in _family(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
            # /proc counts in steps of 10 ms; the CPU clock of the process has nanoseconds.
            seconds += time.clock_gettime(_cpu_clock(each))
        except OSError:
            continue
        seconds += sum(map(int, fields[13:15])) / _TICKS
    return seconds


def _cpu_clock(pid: int) -> int:
    """The id of a process's CPU clock, as by ``clock_getcpuclockid``, which Python offers only for threads."""
    return (~pid << 3) | 2


def resident_bytes(pid: int) -> int:
    """The resident memory of a process and its children."""
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
    """Raise the limit of open files for this number of connections. A gateway that is started inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise ConfigError(
                f"{connections} connections need {needed} open files, this machine allows {hard}: "
                f"raise it (ulimit -Hn {needed}, or LimitNOFILE of the service), or ask for fewer"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
