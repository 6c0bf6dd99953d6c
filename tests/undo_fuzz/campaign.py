"""Many rounds of one level: each from a seed of its own, the first failure made small and told as a
program that can be run."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

from tests.undo_fuzz import disk_level, planner_level
from tests.undo_fuzz.oracle import Violation
from tests.undo_fuzz.program import Generator, Program, as_text, shrunk

Level: TypeAlias = Literal["planner", "disk", "calls"]

_TRIES: dict[Level, int] = {"planner": 400, "disk": 80, "calls": 80}
"""How many smaller programs are tried for one failure."""


def fuzz(level: Level, rounds: int, seed: int, *, figures: Counter[str]) -> None:
    """Run so many programs; an `AssertionError` tells the first that fails, as small as can be."""
    for number in range(seed, seed + rounds):
        program = program_of(level, number)
        violation = violation_of(level, number, program, figures)
        if violation is not None:
            raise AssertionError(told(level, number, program, violation))


def program_of(level: Level, seed: int) -> Program:
    """The program of a seed; on disk every third one has a process killed or a revert disturbed,
    and in `calls` single calls are undone as well."""
    breaks = level != "planner" and seed % 3 == 0
    return Generator(seed, breaks=breaks, calls=level == "calls").program()


def violation_of(
    level: Level, seed: int, program: Program, figures: Counter[str] | None = None
) -> Violation | None:
    """What is wrong with what kedge makes of a program, if anything is."""
    counted = Counter[str]() if figures is None else figures
    run: Callable[[Program, Counter[str]], None] = (
        planner_level.run if level == "planner" else partial(disk_level.run, git=_has_git(seed))
    )
    try:
        run(program, counted)
    except Violation as violation:
        return violation
    return None


def _has_git(seed: int) -> bool:
    return seed % 2 == 1


def told(level: Level, seed: int, program: Program, violation: Violation) -> str:
    """A failure for people: the seed, the smallest program that fails in the same way."""

    def fails(smaller: Program) -> bool:
        found = violation_of(level, seed, smaller)
        return found is not None and found.rule == violation.rule

    small = shrunk(program, fails, most=_TRIES[level])
    last = violation_of(level, seed, small) or violation
    git = f", git={_has_git(seed)}" if level != "planner" else ""
    return (
        f"seed {seed}: {last}\n\n{as_text(small, 'planner' if level == 'planner' else 'disk', git)}"
    )


def report(figures: Counter[str]) -> str:
    """What many rounds came to."""
    needless = 100 * figures["needless"] / max(1, figures["steps"] + figures["needless"])
    lines = [f"{name:>8} {count}" for count, name in sorted((k, v) for k, v in figures.items())]
    return "\n".join([*lines, f"needless withholdings: {needless:.2f} % of steps"])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.undo_fuzz")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--level", choices=("planner", "disk", "calls"), default="planner")
    parser.add_argument("--all", action="store_true", help="go on after failures, tell one of each")
    options = parser.parse_args()
    figures: Counter[str] = Counter()
    failures: dict[str, str] = {}
    for seed in range(options.seed, options.seed + options.rounds):
        program = program_of(options.level, seed)
        violation = violation_of(options.level, seed, program, figures)
        if violation is None:
            continue
        figures[f"failed: {violation.rule}"] += 1
        if violation.rule not in failures:
            failures[violation.rule] = told(options.level, seed, program, violation)
        if not options.all:
            break
    for failure in failures.values():
        sys.stdout.write(f"{failure}\n")
    sys.stdout.write(f"{report(figures)}\n")
    sys.exit(bool(failures))
