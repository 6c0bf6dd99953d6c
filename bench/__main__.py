"""`python -m bench`: runs the benchmarks, prints a table and writes the results as JSON."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from bench.agents import agent
from bench.attribution import attribution
from bench.blame import blame
from bench.figures import Figure, table, write
from bench.forks import forks
from bench.journeys import journeys_compared
from bench.messages import messages
from bench.parts import parts
from bench.reverts import reverts, reverts_compared
from bench.scratch import Scratch, facts
from bench.search import search
from bench.server import server
from bench.server_cuts import cut_starts_compared
from bench.session_diffs import session_diffs
from bench.sessions import sessions
from bench.snapshots import snapshots
from bench.snapshots_diffs import snapshots_diffs
from bench.snapshots_disk import snapshots_disk
from bench.snapshots_first import snapshots_first, snapshots_first_compared
from bench.snapshots_restores import snapshots_restores
from bench.starting import starting
from bench.steps import steps
from bench.streams import streams_compared
from bench.subscribers import subscribers
from bench.undos import undos

Benchmarks: TypeAlias = Mapping[str, Callable[[Scratch], AsyncIterator[Figure]]]

BENCHMARKS: Benchmarks = {
    each.__name__: each
    for each in (
        parts,
        sessions,
        messages,
        forks,
        subscribers,
        search,
        starting,
        snapshots,
        snapshots_first,
        snapshots_diffs,
        snapshots_restores,
        snapshots_disk,
        attribution,
        blame,
        session_diffs,
        reverts,
        undos,
        agent,
        steps,
        server,
    )
}
COMPARISONS: Benchmarks = {
    "snapshots_first": snapshots_first_compared,
    "reverts": reverts_compared,
    "streams": streams_compared,
    "journeys": journeys_compared,
    "cut_starts": cut_starts_compared,
}
"""What can be compared with another checkout."""
RESULTS = Path(__file__).with_name("results.json")
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; gives 1 if a target was missed, which a quick run never says."""
    given = _given(arguments)
    with tempfile.TemporaryDirectory(prefix="kedge-bench-") as folder:
        scratch = Scratch(Path(folder).resolve(), given.quick, before=given.before)
        machine = dict(facts(scratch))
        begin = time.monotonic()
        try:
            figures = asyncio.run(_run(scratch, given.names or list(_choice(given.before))))
        except KeyboardInterrupt:
            print("\nbench: interrupted; no results were written", file=sys.stderr)
            return INTERRUPTED
        machine["seconds"] = round(time.monotonic() - begin, 1)
    machine["notices"] = scratch.notices
    scratch.say(f"done in {machine['seconds']} s on {machine['filesystem']}")
    print(table(figures))
    for notice in scratch.notices:
        print(f"bench: {notice}", file=sys.stderr)
    write(given.output, machine, figures)
    return int(any(each.met is False for each in figures) and not given.quick)


async def _run(scratch: Scratch, names: Sequence[str]) -> list[Figure]:
    chosen = _choice(scratch.before)
    return [figure for name in names async for figure in chosen[name](scratch)]


def _choice(before: Path | None) -> Benchmarks:
    return BENCHMARKS if before is None else COMPARISONS


def _given(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that it runs, not what it costs"
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="DIR",
        help=f"another checkout of kedge to compare with, in {', '.join(COMPARISONS)} only",
    )
    given = parser.parse_args(arguments)
    chosen = _choice(given.before)
    if unknown := set(given.names) - set(chosen):
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(chosen)}")
    if given.before is not None:
        given.before = given.before.resolve()
        if not (given.before / "src/kedge").is_dir():
            parser.error(f"{given.before} is no checkout of kedge")
    return given


if __name__ == "__main__":
    sys.exit(main())
