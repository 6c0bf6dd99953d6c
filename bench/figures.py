"""What a benchmark found, and how it is shown; nothing is measured here."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_UNITS = {"x": "x", "us": " us", "ms": " ms", "B": " B", "MB": " MB", "/s": "/s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number, with the middle half of the rounds it comes from."""

    name: str
    value: float
    unit: str
    low: float
    high: float
    rounds: int
    target: float | None = None
    """The most it may be."""
    least: float | None = None
    """The least it may be; None, like `target`, when it is only reported."""
    details: Mapping[str, float] = field(default_factory=dict)
    """What the number was made from, by name and unit."""

    @property
    def met(self) -> bool | None:
        """Whether the target was met; None without one."""
        if self.target is None and self.least is None:
            return None
        return (self.target is None or self.value <= self.target) and (
            self.least is None or self.value >= self.least
        )

    def as_json(self) -> dict[str, object]:
        """The figure as it stands in the results file."""
        fields = ("name", "value", "unit", "low", "high", "rounds", "target", "least", "met")
        shown = {name: getattr(self, name) for name in fields}
        return {**shown, "details": dict(self.details)}


def figure_of(
    name: str,
    samples: Sequence[float],
    unit: str,
    *,
    target: float | None = None,
    least: float | None = None,
    details: Mapping[str, float] | None = None,
) -> Figure:
    """The median of what the rounds gave."""
    low, middle, high = quartiles(samples)
    return Figure(
        name=name,
        value=middle,
        unit=unit,
        low=low,
        high=high,
        rounds=len(samples),
        target=target,
        least=least,
        details=details or {},
    )


def ratio(
    name: str,
    candidate: Sequence[float],
    baseline: Sequence[float],
    *,
    target: float | None = None,
) -> Figure:
    """How many times the baseline something takes: the median over rounds that ran side by side."""
    pairs = [a / b for a, b in zip(candidate, baseline, strict=True)]
    details = {
        "candidate us": statistics.median(candidate) * 1e6,
        "baseline us": statistics.median(baseline) * 1e6,
    }
    return figure_of(name, pairs, "x", target=target, details=details)


def faster(
    name: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    least: float | None = None,
) -> Figure:
    """How many times as long OpenCode takes: the median over rounds that ran side by side."""
    pairs = [b / a for a, b in zip(ours, theirs, strict=True)]
    details = {
        "kedge ms": statistics.median(ours) * 1e3,
        "OpenCode ms": statistics.median(theirs) * 1e3,
    }
    return figure_of(name, pairs, "x", least=least, details=details)


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """The middle and the borders of the middle half."""
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, middle, high


def table(figures: Sequence[Figure]) -> str:
    """The figures for people."""
    head = ("name", "figure", "target", "", "middle half", "from")
    lines = [head, *(_cells(each) for each in figures)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if n in (0, 3, 5) else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def write(path: Path, facts: Mapping[str, object], figures: Sequence[Figure]) -> None:
    """The figures for programs."""
    results = {"machine": facts, "figures": [each.as_json() for each in figures]}
    path.write_text(json.dumps(results, indent=2) + "\n")


def _cells(figure: Figure) -> tuple[str, ...]:
    unit = _UNITS[figure.unit]
    verdict = {True: "ok", False: "MISSED", None: ""}[figure.met]
    spread = f"{_number(figure.low)}..{_number(figure.high)}"
    made_of = ", ".join(f"{_number(each)} {name}" for name, each in figure.details.items())
    return (
        figure.name,
        f"{_number(figure.value)}{unit}",
        _wanted(figure),
        verdict,
        spread,
        made_of,
    )


def _wanted(figure: Figure) -> str:
    bounds = ((">=", figure.least), ("<=", figure.target))
    return " ".join(
        f"{sign} {_number(bound)}{_UNITS[figure.unit]}"
        for sign, bound in bounds
        if bound is not None
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
