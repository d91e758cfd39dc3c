"""Writes the walks of a frame and of a grant into docs/architecture.md. Run by `make docs`.

A walk is the list of mewstream's functions that a running gateway calls for one message, from the socket to its readers
and to the journal. The gateway runs in its own process, under a profile function that records calls on request.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import mewstream
from mewstream.bench.peer import Address, Peer
from mewstream.bench.roster import Needs, Participant, generated

PACKAGE = Path(mewstream.__file__).parent
#: A timer of the gateway may fire during a recording, so the walk is what most of the recordings agree on.
RECORDINGS = 7
#: Seconds after the last answer in which the gateway may still write to the journal.
AFTERWARDS = 0.1
#: Seconds between two calls that count as a wait. Frames wait for ``flush_interval``, 0.01 seconds, to be written.
WAIT = 0.005


class Disagreement(Exception):
    """The recordings differ too much to say which of them is the walk."""


class Call(NamedTuple):
    """A function of mewstream: its module, as a path below the package, and its qualified name."""

    module: str
    function: str


Walk = tuple[tuple[Call, ...], ...]
"""Every function that was called, in the order of the first calls; a new part begins where the gateway waited."""


# -- in the gateway's process ------------------------------------------------------------------------


class Recorder:
    """Records the functions of mewstream that are called, in all threads."""

    def __init__(self) -> None:
        self._calls: dict[Call, float] | None = None
        """Each function with the time of its first call; None while nothing is recorded."""

    def install(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if (
            self._calls is not None
            and event == "call"
            and code.co_filename.startswith(f"{PACKAGE}/")
            and not code.co_name.startswith("<")  # a lambda or a comprehension
        ):
            call = Call(code.co_filename.removeprefix(f"{PACKAGE}/"), code.co_qualname)
            self._calls.setdefault(call, time.monotonic())

    def obey(self) -> None:
        """Read commands from stdin: ``start`` begins a recording, ``stop`` ends it and prints it as JSON."""
        for command in sys.stdin:
            calls, self._calls = self._calls, {} if command == "start\n" else None
            print(json.dumps(list(calls.items()) if calls else []), flush=True)


def serve(config: str, data: str) -> None:
    from mewstream.cli.main import main
    from mewstream.gateway.delivery_latency import DeliveryLatency

    # The walk is that of the other messages: one in many is measured on its way.
    DeliveryLatency.arm = lambda self: None  # type: ignore[method-assign]
    recorder = Recorder()
    threading.Thread(target=recorder.obey, daemon=True).start()
    recorder.install()
    sys.argv = ["mewstream", "serve", "--config", config, "--data", data, "--port", "0", "--log-level", "error"]
    main()


# -- in our process ----------------------------------------------------------------------------------


class TracedGateway:
    """A gateway whose calls can be recorded."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        ready = self._line()
        self.address = Address.parse(ready.split()[-1].replace("http", "ws"))

    def walk(self, act: Callable[[], None], *, reset: Callable[[], None] = lambda: None) -> Walk:
        """What the gateway calls for ``act``. ``reset`` undoes it, unrecorded, so that it can be repeated."""
        recordings: Counter[Walk] = Counter()
        for _ in range(RECORDINGS):
            self._command("start")
            act()
            time.sleep(AFTERWARDS)
            recordings[parts(self._command("stop"))] += 1
            reset()
        ((walk, count),) = recordings.most_common(1)
        if count < RECORDINGS // 2:
            raise Disagreement(f"only {count} of {RECORDINGS} recordings agree: is this machine very busy?")
        return walk

    def _command(self, command: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def parts(recording: list[tuple[tuple[str, str], float]]) -> Walk:
    found: list[list[Call]] = []
    last = -WAIT
    for call, when in recording:
        if when - last > WAIT:
            found.append([])
        found[-1].append(Call(*call))
        last = when
    return tuple(map(tuple, found))


@contextlib.contextmanager
def traced_gateway() -> Iterator[tuple[TracedGateway, list[Participant]]]:
    roster, config = generated(Needs(participants=2))
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "space.yaml")
        quiet = {**config, "gateway": {**config.get("gateway", {}), "console": False}}  # one line when it is ready
        file.write_text(json.dumps(quiet), encoding="utf-8")  # JSON is YAML
        command = [sys.executable, __file__, "--serve", str(file), str(Path(directory, "data"))]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield TracedGateway(process), roster.spaces(Needs(participants=2))[0]
        finally:
            process.terminate()
            process.communicate()


def walks() -> dict[str, Walk]:
    """The walk of a frame to its writer and one reader, and that of a grant."""
    with traced_gateway() as (gateway, participants), contextlib.ExitStack() as stack:
        owner, reader = (Peer.join(gateway.address, each) for each in participants)
        stack.callback(owner.close)
        stack.callback(reader.close)
        stream = owner.open_stream()
        reader.receive("stream/open")
        right = {"stream_id": stream, "participant_id": reader.id}

        def change(kind: str, answer: str) -> None:
            owner.receive(answer, owner.send(kind, right))
            reader.receive(answer)

        def send_frame() -> None:
            owner.send_frame(stream, b"x=1")
            for peer in (owner, reader):
                while peer.next()[1][:1] != b"#":
                    pass  # an envelope

        return {
            "grant": gateway.walk(
                lambda: change("stream/grant-write", "stream/write-granted"),
                reset=lambda: change("stream/revoke-write", "stream/write-revoked"),
            ),
            "frame": gateway.walk(send_frame),
        }


# -- in the document ---------------------------------------------------------------------------------


def section(name: str) -> re.Pattern[str]:
    """The place of a walk in the document, between two comments."""
    return re.compile(rf"(<!-- walk of a {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def rendered(walk: Walk) -> str:
    lines: list[str] = []
    number = 0
    for place, part in enumerate(walk):
        modules = len({call.module for call in part})
        when = "Then, after a wait, " if place else ""
        lines += [f"{when}{len(part)} functions in {modules} modules:", ""]
        before = ""
        for module, function in part:
            if module == before:
                lines[-1] += f", `{function}`"
            else:
                number += 1
                lines.append(f"{number}. `{module}`: `{function}`")
            before = module
        lines.append("")
    return "\n".join(lines)


def main(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for name, walk in walks().items():
        text = section(name).sub(lambda place, walk=walk: place[1] + rendered(walk) + place[3], text)  # type: ignore[misc]
    document.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(*sys.argv[2:])
    else:
        main(Path(sys.argv[1]))
