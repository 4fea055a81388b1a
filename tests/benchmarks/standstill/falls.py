"""Is a fall of success found where few runs are reported, and late? The real sentinel on a clock of its own.

    python -m tests.benchmarks.standstill.falls --json build/falls.json

Each trial is 5,000 runs at ten a minute: half of them of version 0, then a swap to version 1. A share of the runs is
reported, with the run or hours later; traffic goes on until the last report is in. Counted is whether the sentinel
orders `rollback`, and after how many runs of version 1. The same with a version 1 that is as good counts false alarms.
"""

import bisect
import random
from collections import Counter
from collections.abc import Sequence
from itertools import product

import anyio
import msgspec

from actors.messages import Directive, Message, Serving, Step, Trajectory
from actors.monitoring.sentinel import Sentinel
from actors.system.actor import Received
from tests.benchmarks import report
from tests.simulation.stage import silence
from tests.support.fakes import Clock, FakeEngine, FakeStore

SHARES = (1.0, 0.1, 0.05, 0.02)
DELAYS = (0.0, 4 * 3600.0)
GAP = 6.0
"""Seconds between two runs."""
BATCH = 10
"""Runs that the sentinel gets at a time: those of a minute."""
KINDS = ("Where is order {}?", "Refund order {}.", "Cancel order {}.", "Change the address of {}.", "Close account {}.")
TOOLS = b'[{"function": {"name": "find_order"}}]'


class Found(msgspec.Struct, frozen=True):
    found: int
    """Trials in which version 1 was ordered back."""
    runs_until: list[int]
    """Runs of version 1 until then, of each trial in which it was."""
    others: dict[str, int]
    """Trials by what else was found, as "action cause"."""


def falls(
    share: float,
    trials: int = 8,
    runs: int = 5000,
    seed: int = 0,
    delay: float = 0.0,
    *,
    after: float = 0.1,
    hasty: bool = False,
) -> Found:
    """Let the sentinel watch `trials` swaps.

    Args:
        share: of runs that are reported, 0 to 1.
        runs: of a trial, half of them before the swap; those that come while reports are outstanding not counted.
        delay: seconds from the end of a run to its report; 0: the run closes with its outcome.
        after: success of version 1, 0 to 1; that of version 0 is 0.9.
        hasty: failures are reported within seconds, only successes take `delay`.
    """
    until: list[int] = []
    others: Counter[str] = Counter()
    for number in range(trials):
        trial = _Trial(random.Random(f"{seed}/{number}/{share}/{delay}"), share, delay, hasty)
        with silence():
            at, causes = anyio.run(trial.play, runs, (0.9, after))
        until += [at] if at is not None else []
        others.update(causes)
    return Found(len(until), until, dict(others))


class _Trial:
    def __init__(self, rng: random.Random, share: float, delay: float, hasty: bool) -> None:
        self._rng, self._share, self._delay, self._hasty = rng, share, delay, hasty
        self._clock, self._store = Clock(0.0), FakeStore()
        engines = {"serving": FakeEngine("serving")}
        self._sentinel = Sentinel(store=self._store, engines=engines, clock=self._clock)
        self._due: list[tuple[float, str, float]] = []
        """Reports that are not in yet, (when, run, outcome), the next one first."""
        self._count = 0

    async def play(self, runs: int, success: tuple[float, float]) -> tuple[int | None, set[str]]:
        """Runs of version 1 until it was ordered back, None if it was not, and what else was found."""
        await self._sentinel.start()
        others: set[str] = set()
        swap, end = runs // 2, runs + int(self._delay / GAP) + BATCH
        await self._tell([self._serving(0, -1)])
        for first in range(0, end, BATCH):
            version = int(first >= swap)
            batch: list[Message] = [self._serving(1, 0)] if swap <= first < swap + BATCH else []
            batch += [self._run(version, success[version], reported=first < runs) for _ in range(BATCH)]
            while self._due and self._due[0][0] <= self._clock.now:
                when, run, outcome = self._due.pop(0)
                batch.append(self._store.tell(run, outcome, when))
            for directive in await self._tell(batch):
                if directive.kind == "rollback":
                    return first + BATCH - swap, others
                others.add(f"{directive.kind} {directive.details['cause']}")
        return None, others

    async def _tell(self, messages: Sequence[Message]) -> list[Directive]:
        result = await self._sentinel.handle([Received(message.id, "any", message) for message in messages])
        return [output.message for output in result.outputs if isinstance(output.message, Directive)]

    def _serving(self, version: int, previous: int) -> Serving:
        return Serving(
            id=f"s{version}", engine="serving", version=version, previous=previous, path="",
            result="swapped" if version else "started", since=self._clock.now,
        )  # fmt: skip

    def _run(self, version: int, success: float, *, reported: bool) -> Trajectory:
        self._clock.now += GAP
        self._count += 1
        now, rng = self._clock.now, self._rng
        outcome = float(rng.random() < success)
        told = reported and rng.random() < self._share
        run = Trajectory(
            id=f"t{self._count}",
            goal=rng.choice(KINDS).format(rng.randrange(1000, 9999)),
            tools=TOOLS,
            steps=tuple(Step(exchange_id=f"e{self._count}-{step}", text="done") for step in range(rng.randrange(2, 6))),
            outcome=outcome if told and not self._delay else None,
            started=now - GAP / 2,
            ended=now,
            min_version=version,
            max_version=version,
        )
        self._store.save([run])
        if told and self._delay:
            when = now + (GAP if self._hasty and not outcome else self._delay)
            bisect.insort(self._due, (when, run.id, outcome))
        return run


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--trials", type=int, default=8, help="swaps a row, with a fall from 90 to 10 %%")
    parser.add_argument("--equal", type=int, default=100, help="swaps a row between equal versions, 0 for none")
    parser.add_argument("--runs", type=int, default=5000, help="runs of a trial")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows: list[tuple[object, ...]] = []
    figures: dict[str, float] = {}
    for after, trials, shares in ((0.1, args.trials, SHARES), (0.9, args.equal, (1.0, 0.1, 0.02))):
        for delay, share in product(DELAYS, shares if trials else ()):
            found = falls(share, trials, args.runs, args.seed, delay, after=after)
            late, until = f"{delay / 3600:g} h", sorted(found.runs_until)
            figures[f"found, {share:.0%}, {late}, 90 -> {after:.0%}"] = found.found / trials
            rows.append((
                    f"90 -> {after:.0%}", f"{share:.0%}", late, f"{found.found} of {trials}",
                    until[(len(until) - 1) // 2] if until else "-", until[-1] if until else "-",
                    ", ".join(f"{cause}: {count}" for cause, count in sorted(found.others.items())) or "-",
                ))  # fmt: skip
    columns = ("success", "reported", "late by", "back", "runs", "most", "other findings")
    report.table(f"Swaps of {args.runs} runs, half of them before", columns, rows)
    report.write(args.json, "falls", figures, [args.seed])


if __name__ == "__main__":
    main()
