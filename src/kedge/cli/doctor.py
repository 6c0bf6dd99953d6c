"""`kedge doctor`: examines the data of kedge and the machine, and repairs what it can."""

import argparse
from typing import TYPE_CHECKING

from kedge.cli.consent import agrees, refuse_agents_of
from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DECLINED, DONE, INCOMPLETE
from kedge.cli.json_output import as_json, show_json
from kedge.cli.location import add_location
from kedge.cli.parser import add_json
from kedge.cli.progress import bars
from kedge.cli.screen import BOLD, DIM, GREEN, RED, YELLOW, Screen, errors, one_line, output
from kedge.cli.table import pairs
from kedge.cli.times import many

if TYPE_CHECKING:
    from kedge.maintenance import Finding, Outcome, Repair, Report

ABOUT = """\
Examine the database, the snapshots and the machine: whether everything that sessions refer to is
there, tables and events say the same, nothing is stuck, and nothing is scarce. It changes nothing,
and can run beside a server. With --repair it lists what it would repair, asks, saves the rows that
it changes, and never removes contents of snapshots. Exit code 3 means that something is wrong.
"""

_STYLES = {"error": RED, "warning": YELLOW, "notice": DIM}


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("--repair", action="store_true", help="repair what can be repaired")
    command.add_argument("--yes", "-y", action="store_true", help="repair without asking")
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_examine(options))


async def _examine(options: argparse.Namespace) -> int:
    from kedge.maintenance import examine, planned

    if options.repair:
        await refuse_agents_of(options, "kedge doctor --repair")
    with bars() as tell:
        report = await examine(
            options.directory, data_dir=options.data, database=options.database, progress=tell
        )
    screen = output()
    plan = planned(report)
    if options.json and not options.repair:
        show_json(screen, _described(report, plan))
    elif not options.json:
        _show(screen, report)
    if not options.repair:
        if plan and not options.json:
            errors().line(f"`kedge doctor --repair` can repair {many(len(plan), 'of them')}")
        return DONE if report.is_healthy else INCOMPLETE
    return await _repair(options, screen, report, plan)


async def _repair(
    options: argparse.Namespace, screen: Screen, report: "Report", plan: list["Repair"]
) -> int:
    from kedge.maintenance import examine, repair

    for each in plan:
        errors().line(f"repair: {one_line(each.does)}")
    if not plan:
        errors().line("there is nothing that can be repaired here")
        return DONE if report.is_healthy else INCOMPLETE
    if not options.yes and not agrees(f"Make {many(len(plan), 'repair')}?"):
        return DECLINED
    outcome = await repair(plan, data_dir=options.data, database=options.database)
    with bars() as tell:
        after = await examine(data_dir=options.data, database=options.database, progress=tell)
    if options.json:
        show_json(screen, {"outcome": _outcome(outcome), **_described(after, [])})
    else:
        _tell(screen, outcome, after)
    return DONE if after.is_healthy and not outcome.failed else INCOMPLETE


def _show(screen: Screen, report: "Report") -> None:
    pairs(screen, [(name, one_line(fact)) for name, fact in report.facts.items()])
    for unchecked in report.unchecked:
        screen.line(screen.paint(f"not examined: {one_line(unchecked)}", DIM))
    for each in sorted(report.findings, key=_rank):
        _show_finding(screen, each)
    hidden = sum(report.counts.values()) - len(report.findings)
    if hidden:
        screen.line(f"… and {hidden} more")
    if not report.findings:
        screen.line(screen.paint("nothing is wrong", GREEN))


def _rank(finding: "Finding") -> int:
    return list(_STYLES).index(str(finding.severity))


def _show_finding(screen: Screen, finding: "Finding") -> None:
    severity = str(finding.severity)
    head = screen.paint(severity, _STYLES[severity], BOLD if severity == "error" else "")
    screen.line(f"{head} {screen.paint(finding.code, DIM)}  {one_line(finding.what)}")
    screen.line(f"    why: {finding.kind.why}")
    screen.line(f"    do:  {finding.kind.do}")


def _tell(screen: Screen, outcome: "Outcome", after: "Report") -> None:
    screen.line(f"repaired: {len(outcome.done)} of {len(outcome.done) + len(outcome.failed)}")
    for each, why in outcome.failed:
        screen.line(f"not repaired: {one_line(each.does)}: {one_line(why)}")
    if outcome.saved is not None:
        screen.line(f"the rows as they were before: {one_line(str(outcome.saved))}")
    for finding in sorted(after.findings, key=_rank):
        _show_finding(screen, finding)
    if not after.findings:
        screen.line(screen.paint("nothing is wrong any more", GREEN))


def _described(report: "Report", plan: list["Repair"]) -> dict[str, object]:
    return {
        "healthy": report.is_healthy,
        "findings": [
            {
                "code": each.code,
                "severity": str(each.severity),
                "what": each.what,
                "about": each.about,
                "why": each.kind.why,
                "do": each.kind.do,
                "repair": each.kind.repair or None,
            }
            for each in report.findings
        ],
        "counts": report.counts,
        "facts": report.facts,
        "unchecked": report.unchecked,
        "repairs": as_json(plan),
    }


def _outcome(outcome: "Outcome") -> dict[str, object]:
    return {
        "saved": None if outcome.saved is None else str(outcome.saved),
        "done": as_json(outcome.done),
        "failed": [{"repair": as_json(each), "why": why} for each, why in outcome.failed],
    }
