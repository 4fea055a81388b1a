"""Runs of live traffic to 80 %: goals in free words against the desk's three templates, real tiny learner.

    python -m tests.benchmarks.kinds [--seeds 5] [--lr 5e-4] [--json FILE]

Live traffic alone: every run comes once, with its outcome and without labels; eight make an update, and a gate that
always says yes lets each version serve at once. The arms differ in one thing, the goal that `actors.kinds` sees. In
`desk` it is the desk's ("Cancel the order for:Amy."). In `free` it is a paraphrase out of a grammar of synonyms, with a
beginning and an end that have nothing to do with it, and no two goals of a run of the benchmark share a template. What
the policy reads is the desk's goal in both, because the demo's model knows no English: what is measured is what free
words do to the estimates, and not whether a model understands them. `none` has no estimates: the mean of the other
seven runs of the batch. Success is of 128 held-out tasks, sampled at temperature 1, every second update.
"""

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from actors.kinds.clusters import template_of
from actors.messages import BatchItem
from daemon.demo.worlds import WORLDS
from tests.benchmarks import report
from tests.benchmarks.ablation.loop import Loop, Setup

ARMS = ("desk", "free", "none")
WANTED = 0.8
RUNS = 8
"""Of an update."""
_OPENINGS = (
    "hello,", "hi there,", "good morning,", "dear team,", "it is me again:", "quick one:", "sorry to bother you,",
    "as discussed on the phone,", "I am in a hurry,", "my colleague told me to write here.", "urgent!", "",
)  # fmt: skip
_ASKING = ("please", "could you", "can somebody", "I need you to", "we would like you to", "would you kindly", "pls")
_BOOK = ("book", "reserve", "get us", "arrange", "buy")
_FLIGHT = ("a flight", "a plane ticket", "an air ticket", "a seat on a flight", "flights")
_CANCEL = ("cancel", "call off", "undo", "withdraw", "cancel completely")
_ORDER = ("the order", "the booking", "that reservation", "the order we placed", "what was ordered")
_CLOSINGS = (
    "thanks a lot", "before noon if that is possible", "the cheaper the better", "tell me when it is done",
    "it rains here anyway", "the boss is waiting", "we talked about this last week", "same as every year",
    "do not call me back", "send the papers by post", "no rush", "",
)  # fmt: skip
_FILLERS = ("really", "again", "today", "kindly", "for our office", "as usual", "at last", "if you can", "this time")


def paraphrase(rng: Random, goal: str) -> str:
    """What the desk's `goal` asks for, in other words."""
    parts = [_OPENINGS, _ASKING]
    if "Cancel" in goal:
        parts += [_CANCEL, _ORDER]
        parts += [("and",)] if "ook a flight" in goal else []
    if "Cancel" not in goal or "ook a flight" in goal:
        parts += [_BOOK, _FLIGHT]
    drawn = [rng.choice(words) for words in (*parts, _FILLERS, _CLOSINGS)]
    return " ".join(filter(None, drawn))


class LiveLoop(Loop):
    """The ablation's loop on live traffic."""

    def __init__(self, arm: str, setup: Setup, seed: int, work: Path) -> None:
        super().__init__(setup, WORLDS["travel"].warm_start, seed, work)
        self._arm, self._rng, self._seen = arm, Random(f"phrases-{seed}"), set[str]()

    def _said(self, goal: str) -> str:
        """`goal` as production asks for it: but for the desk's own, in words of no template that was there before."""
        if self._arm == "desk":
            return goal
        while True:
            found = paraphrase(self._rng, goal)
            if (template := template_of(found)) not in self._seen:
                self._seen.add(template)
                return found

    def _expecting(self, fresh: Sequence[BatchItem]) -> Sequence[BatchItem]:
        live: list[BatchItem] = []
        for item in fresh:
            run = item.attributed.trajectory
            run = msgspec.structs.replace(run, source="production", goal=self._said(run.goal))
            attributed = msgspec.structs.replace(item.attributed, trajectory=run)
            live.append(msgspec.structs.replace(item, attributed=attributed))
        return live if self._arm == "none" else super()._expecting(live)


def cell(arm: str, setup: Setup, seed: int) -> tuple[int, bool]:
    """Runs until held-out success was 80 % (the limit if it never was), and whether it was."""
    with tempfile.TemporaryDirectory() as work:
        loop = LiveLoop(arm, setup, seed, Path(work))
        for number in range(1, setup.updates + 1):
            loop.update()
            if number % setup.eval_every == 0 and loop.measure() >= WANTED:
                return number * RUNS, True
    return setup.updates * RUNS, False


def main() -> None:
    parser = report.arguments("Runs of live traffic to 80 %, goals in free words against the desk's templates.")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each arm (5)")
    parser.add_argument("--updates", type=int, default=80, help="of each run at most (80)")
    parser.add_argument("--lr", type=float, default=5e-4, help="learning rate of all arms (5e-4)")
    options = parser.parse_args()
    setup = Setup(
        groups=RUNS, group_size=1, updates=options.updates, eval_every=2,
        learner={"lr": options.lr, "credit": {"alpha": 0.0}},
    )  # fmt: skip
    seeds = range(options.seeds)
    found: dict[str, list[tuple[int, bool]]] = {arm: [] for arm in ARMS}
    for arm, own in found.items():
        for seed in seeds:
            own.append(cell(arm, setup, seed))
            print(f"{arm}, seed {seed}: {own[-1]}", flush=True)
    medians = {arm: statistics.median(runs for runs, _ in own) for arm, own in found.items()}
    rows = [
        (arm, f"{medians[arm]:.0f}", " ".join(f"{'' if reached else '>'}{runs}" for runs, reached in own))
        for arm, own in found.items()
    ]
    report.table("runs to 80 %", ("goals", "median runs", "by seed"), rows)
    figures = {f"runs_to_80_{arm}": float(runs) for arm, runs in medians.items()}
    figures["ratio"] = medians["free"] / medians["desk"]
    report.write(options.json, "kinds", figures, list(seeds))


if __name__ == "__main__":
    main()
