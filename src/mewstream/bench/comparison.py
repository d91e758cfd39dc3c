"""Rounds of one measurement on one gateway, or on two in turn, with medians and ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from mewstream.bench.metrics import Figures, metric
from mewstream.bench.resource_usage import need_files
from mewstream.bench.roster import Needs
from mewstream.bench.target import Live, Target


class Measurement(Protocol):
    @property
    def needs(self) -> Needs: ...

    def measure(self, live: Live) -> Figures: ...


class Comparison(msgspec.Struct):
    """All rounds. ``targets`` and ``rounds`` have the same order."""

    measurement: str
    settings: dict[str, Any]
    targets: list[str]
    rounds: list[list[Figures]]

    def median(self, target: int, key: str) -> float | None:
        values = [figures[target][key] for figures in self.rounds if key in figures[target]]
        return statistics.median(values) if values else None

    def ratio(self, key: str, first: int = 0, second: int = 1) -> float | None:
        """The ratio of the medians of two targets."""
        mine, other = self.median(first, key), self.median(second, key)
        return mine / other if mine is not None and other else None

    @property
    def keys(self) -> list[str]:
        return list(dict.fromkeys(key for figures in self.rounds for each in figures for key in each))

    def as_json(self) -> dict[str, Any]:
        medians = [{key: self.median(number, key) for key in self.keys} for number in range(len(self.targets))]
        return {
            "measurement": self.measurement,
            "settings": self.settings,
            "targets": self.targets,
            "units": {key: metric(key).unit for key in self.keys},
            "medians": medians,
            "ratios": {key: self.ratio(key) for key in self.keys} if len(self.targets) > 1 else {},
            "rounds": self.rounds,
        }

    def rows(self) -> list[list[str]]:
        """The rows of a table: label, the median of each target with its unit, and the ratio of the first two."""
        rows = []
        for key in self.keys:
            known = metric(key)
            cells = [_number(self.median(number, key), known.unit) for number in range(len(self.targets))]
            ratio = self.ratio(key) if len(self.targets) > 1 and known.better else None
            rows.append([known.label, *cells, *([_ratio(ratio)] if len(self.targets) > 1 else [])])
        return rows

    @property
    def warnings(self) -> list[str]:
        """Reasons to doubt the figures."""
        found = []
        for number, name in enumerate(self.targets):
            busiest = max(
                (self.median(number, key) or 0 for key in self.keys if key.startswith("generator_cpu")), default=0
            )
            if busiest > 0.9:
                found.append(f"{name}: the load generator used {busiest:.0%} of a core and may be the bottleneck")
            if (self.median(number, "generator_late") or 0) > 0.05:
                found.append(f"{name}: the load generator sent frames late: this machine is too busy for the rate")
        return found


def run_rounds(
    measurement: Measurement, targets: Sequence[Target], rounds: int, *, tell: Callable[[str], None] | None = None
) -> Comparison:
    """Measure every target in every round, so that changes of the machine's speed affect all of them."""
    comparison = Comparison(
        type(measurement).__name__.lower(), msgspec.to_builtins(measurement), [each.name for each in targets], []
    )
    needs = measurement.needs
    need_files(needs.participants * needs.spaces)
    for number in range(rounds):
        figures: list[Figures] = []
        for target in targets:
            if tell is not None:
                tell(f"round {number + 1} of {rounds}: {target.name}")
            with target.running(needs) as live:
                figures.append(measurement.measure(live))
        comparison.rounds.append(figures)
    return comparison


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 or value == int(value) else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f} {unit}".rstrip()


def _ratio(value: float | None) -> str:
    return f"{value:.2f}" if value is not None else ""
