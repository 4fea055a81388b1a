"""`evolved judge report`: what the judge did, what it cost, and how far it can be trusted."""

import argparse
import time
from typing import Any

from daemon.cli.options import json_option

JUDGE_HELP = """\
What the judge of step labels did since its record began, by tenant; tenant * is all of them.

  judged       trajectories that it labelled; cached: that were the same as one before
  abstained    no step got a label, by reason: budget (spent), timeout, error, labels (not one a step), judge (it said
               nothing itself); not sampled: not worth its price, by [attributor.sampling]
  agreement    of its blind judgements, those whose sum has the sign of the verified outcome
  GOOD, BAD    precision: of those that it took for a success (a failure), the share that was one; 95 % Wilson
  steps        agreement with feedback on steps
  AUC          how often it rates a success above a failure; the weight follows from its lower bound
  weight       what the learner multiplies the labels by; (1) without evidence enough

examples:
  evolved judge report
  evolved judge report --json | jq '.judges[] | {tenant, weight}'
"""


def add_judge(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("judge", run_judge, "What the judge did, what it cost, and how far it can be trusted.")
    command.description, command.formatter_class = JUDGE_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument("action", choices=("report",))
    json_option(command, help="one JSON document instead")


def run_judge(arguments: argparse.Namespace) -> int:
    """Exit status 0.

    Raises:
        ControlUnreachable: the daemon does not answer.
    """
    from daemon.cli.output import print_json
    from daemon.cli.status import fetch
    from daemon.settings.config import load

    found = fetch(load(arguments.config, arguments.set).control, "/api/judge")
    if arguments.json:
        print_json(found)
    else:
        show(found)
    return 0


def show(found: dict[str, Any]) -> None:
    """Print the report as tables."""
    from daemon.cli.output import OutputTable, screen

    console = screen()
    away = f"away, asked again in {found['asked_again_in']:.0f} s" if found["away"] else "answers"
    console.print(f"judge {found['judge']} ({found['rubric']}): {away}; it went away {found['opened']} times")
    budget = found["budget"]
    for what in ("tokens", "money"):
        console.print(f"{what}: {_spent(budget, what)}")
    if budget["used_up"]:
        console.print(f"the budget of {budget['used_up']} is spent: trajectories {budget['limits']['when_spent']}")
    columns = (
        "judge", "tenant", "since", "judged", "cached", "not sampled", "abstained", "tokens", "money", "agreement",
        "GOOD", "BAD", "steps", "AUC", "weight",
    )  # fmt: skip
    table = OutputTable()
    for column in columns:
        table.add_column(column, justify="left" if column in ("judge", "tenant", "abstained") else "right")
    for page in found["judges"]:
        outcomes, steps = page["outcomes"], page["steps"]
        table.add_row(
            f"{page['judge']} {page['rubric']}", page["tenant"],
            time.strftime("%Y-%m-%d %H:%M", time.localtime(page["since"])), str(page["judged"]), str(page["cached"]),
            str(page["not_sampled"]), ", ".join(f"{name} {n}" for name, n in page["abstained"].items()) or "0",
            f"{page['tokens']:,.0f}", f"{page['money']:.4g}", _rate(outcomes["agreement"]),
            _rate(outcomes["precision_good"]), _rate(outcomes["precision_bad"]), _rate(steps["agreement"]),
            "-" if outcomes["auc"] is None else f"{outcomes['auc']:.2f} (> {outcomes['auc_low']:.2f})",
            f"{page['weight']:.2f}" if page["weighed"] else "(1)",
        )  # fmt: skip
    console.print(table)


def _spent(budget: dict[str, Any], what: str) -> str:
    limit = budget["limits"][f"{what}_per_day"]
    return f"{budget['spent'][f'{what}_day']:,.6g} in the last day" + (f" of {limit:,.6g}" if limit else "")


def _rate(rate: dict[str, float] | None) -> str:
    if rate is None:
        return "-"
    return f"{100 * rate['value']:.0f} % ({100 * rate['low']:.0f}-{100 * rate['high']:.0f}) of {rate['n']:.0f}"
