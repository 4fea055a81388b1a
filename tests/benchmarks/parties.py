"""What one liar among honest parties can change: verdicts of the gate and of the sentinel, and lessons.

    python -m tests.benchmarks.parties --json build/parties.json

One hostile party has 5, 10, 20 or 40 % of the traffic, beside 4, 5 or 8 honest ones. Its runs are like everybody's; it
lies about how they went. Its feedback is

* honest: as much of it as of the traffic; or
* loud: it reports everything, others report one run in twenty.

Lessons are drawn from calls and not from reports: there each of the loud party's runs holds five times as many calls.

* gate: `ReplayTrial` in a `Panel` over a real store; a better candidate that the lies speak against, and a worse one
  that they praise.
* sentinel: a good version that is to be rolled back, and a fall from 80 to 45 % that is to be hidden.
* lessons: the experiencer without a sandbox; a made-up precondition that is to become active, and a true one that is
  not.

A verdict counts as changed if it is another than with the same runs and a party that does not lie.
"""

import itertools
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import anyio
import msgspec
import numpy as np
import structlog

from actors.experience.experiencer import Experiencer
from actors.gate.panel import Panel
from actors.gate.replay_trial import ReplayTrial
from actors.kinds.holdout import held_out
from actors.messages import Attributed, Attribution, Serving, Step, TokenRow, ToolCall, Trajectory, pack_array
from actors.monitoring.sentinel import Sentinel
from actors.store import Store
from actors.system.actor import Received
from tests.benchmarks import report
from tests.support.fakes import Clock, FakeEngine, FakeStore

SHARES = (0.05, 0.1, 0.2, 0.4)
HONEST = (4, 5, 8)
LIAR = "liar"
OF_A_VERSION = 240
"""Reports of the honest that the sentinel hears of each version: half as many find a fall from 80 to 45 % in four cases
of five where two of five parties are set aside, and then lies and luck look alike."""
REPORTED = 0.05
"""Of the honest parties' runs, where the liar reports all of its own."""
TOKENS = 8
SHIFT = 0.15
"""Nats a token by which a candidate likes one way of acting more, and the other less: e^2.4 between two runs."""
NAMES = [name for name in (f"t{number}" for number in range(60_000)) if held_out(name)]
LABELS = Attribution(labels=(), judge="none", rubric="1")


class Cell(msgspec.Struct, frozen=True):
    honest: int
    """Parties beside the liar."""
    share: float
    """Of the traffic, the liar's."""
    loud: bool
    seed: int
    lies: bool = True

    def parties(self, rng: random.Random, honest: int) -> list[str]:
        """Whose each reported run is, the oldest first: `honest` of them honest parties', in proportion the liar's."""
        of_others = honest * self.share / (1.0 - self.share) / (REPORTED if self.loud else 1.0)
        found = [LIAR] * round(of_others) + [f"key-{rng.randrange(self.honest)}" for _ in range(honest)]
        rng.shuffle(found)
        return found

    def rng(self, what: str) -> random.Random:
        """The same for the world with the lies and the one without."""
        return random.Random(f"{what} {self.honest} {self.share} {self.loud} {self.seed}")


class Shadow(FakeEngine):
    """Version 1 likes what the tokens mark with 1, version 2 what they mark with 0."""

    async def log_probs(self, ids: Sequence[int]) -> np.ndarray:
        likes = {0: 0.0, 1: SHIFT, 2: -SHIFT}[self.current]
        return np.full(len(ids), -0.5 + (likes if ids[0] else -likes), dtype=np.float32)


async def gate(cell: Cell) -> dict[str, str]:
    """The verdict on each candidate."""
    rng, items = cell.rng("gate"), list[Attributed]()
    easy: dict[str, float] = {}
    for number, party in enumerate(cell.parties(rng, 120)):
        base = easy.setdefault(party, random.Random(f"{cell.seed} {party}").uniform(0.4, 0.6))
        better = rng.random() < 0.5
        solved = rng.random() < base + (0.2 if better else -0.2)
        if party == LIAR and cell.lies:
            solved = not better
        items.append(_scored(number, party, better, solved))
    found: dict[str, str] = {}
    async with _store() as store:
        await store.save(items)
        for candidate, name in ((1, "better"), (2, "worse")):
            engine = Shadow()
            engine.current = candidate

            async def load(version: int, engine: Shadow = engine) -> None:
                engine.current = version

            trial = ReplayTrial(engine=engine, store=store)
            panel = Panel(trial=trial, checks=())
            found[name] = (await panel.compare(candidate, 0, [0], load)).decision
    return found


@asynccontextmanager
async def _store() -> AsyncIterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"sqlite:///{folder}/evolved.db", clock=time.time)
        await store.open()
        try:
            yield store
        finally:
            await store.aclose()


def _scored(number: int, party: str, better: bool, solved: bool) -> Attributed:
    row = TokenRow(
        ids=pack_array([int(better), *range(1, 1 + TOKENS)], "<i4"),
        step=pack_array([-1] + [0] * TOKENS, "<i2"),
        logprobs=pack_array([0.0] + [-0.5] * TOKENS, "<f4"),
        versions=pack_array([-1] + [0] * TOKENS, "<i4"),
        temperature=1.0,
    )
    steps = (Step(exchange_id=f"e{number}", row=0),)
    run = Trajectory(
        id=NAMES[number], caller=party, goal="Do it.", tools=_tools("win"), steps=steps, rows=(row,),
        outcome=float(solved), started=float(number), ended=number + 0.5, min_version=0, max_version=0,
    )  # fmt: skip
    return Attributed(id=run.id, trajectory=run, attribution=LABELS)


async def sentinel(cell: Cell) -> dict[str, str]:
    """What was ordered about a version that is as good, and about one that is not."""
    return {
        "good version": await _swapped(cell, 0.8, lie=False),
        "fallen": await _swapped(cell, 0.45, lie=True),
    }


async def _swapped(cell: Cell, success: float, *, lie: bool) -> str:
    """What was ordered after a swap to a version of that success, of whose runs the liar says `lie`."""
    rng, clock = cell.rng(f"sentinel {success}"), Clock()
    watch = Sentinel(store=FakeStore(), engines={"serving": FakeEngine("serving")}, clock=clock)
    await watch.start()
    ordered: list[str] = []
    for version, rate in enumerate((0.8, success)):
        if version:
            swap = Serving(
                id="swap", engine="serving", version=1, previous=0, path="p", result="swapped", since=clock.now,
                paused_seconds=0.0,
            )  # fmt: skip
            await watch.handle([Received(swap.id, "policy.serving", swap)])
        runs: list[Trajectory] = []
        for number, party in enumerate(cell.parties(rng, OF_A_VERSION)):
            clock.now += 1.0
            solved = rng.random() < rate
            if version and party == LIAR and cell.lies:
                solved = lie
            runs.append(
                Trajectory(
                    id=f"v{version}-{number}", caller=party, goal="Do it.", tools=_tools("win"),
                    steps=(Step(exchange_id=f"e{version}-{number}", text="done"),), outcome=float(solved),
                    started=clock.now - 0.5, ended=clock.now, min_version=version, max_version=version,
                )
            )  # fmt: skip
        for at in range(0, len(runs), 16):
            batch = [Received(run.id, "trajectory.closed", run) for run in runs[at : at + 16]]
            for output in (await watch.handle(batch)).outputs:
                ordered.append(getattr(output.message, "kind", ""))
    return "rollback" if "rollback" in ordered else "nothing"


async def lessons(cell: Cell) -> dict[str, str]:
    """Whether the lesson that `check` goes before `book` is active, where it is false and where it is true."""
    found: dict[str, str] = {}
    for name, needed in (("false lesson", False), ("true lesson", True)):
        async with _store() as store:
            found[name] = await _learned(cell, store, needed=needed)
    return found


async def _learned(cell: Cell, store: Store, *, needed: bool) -> str:
    rng, clock = cell.rng(f"lessons {needed}"), Clock()
    actor = Experiencer(store=store, prober=None, clock=clock, exam=lambda key: False)
    await actor.start()
    runs: list[Attributed] = []
    for number in range(480):
        clock.now += 1.0
        party = LIAR if rng.random() < cell.share else f"key-{rng.randrange(cell.honest)}"
        turns: list[tuple[ToolCall, str]] = []
        for task in range(5 if party == LIAR and cell.loud else 1):
            lying = party == LIAR and cell.lies
            turns += _booking(rng, f"K{number}{task}", needed=needed != lying)
        steps = tuple(
            Step(exchange_id=f"e{number}-{place}", tool_calls=(call,), observation=seen)
            for place, (call, seen) in enumerate(turns)
        )
        run = Trajectory(
            id=f"t{number}", caller=party, goal="Book for Mia.", tools=_tools("find", "check", "book"), steps=steps,
            outcome=1.0, started=clock.now - 0.5, ended=clock.now,
        )  # fmt: skip
        runs.append(Attributed(id=run.id, trajectory=run, attribution=LABELS))
        if len(runs) == 96:
            result = await actor.handle([Received(item.id, "trajectory.attributed", item) for item in runs])
            await store.save(list(result.records))
            runs = []
    known = [one for one in await store.experiences() if "check" in one.content]
    return "active" if any(one.state == "active" for one in known) else "not"


def _booking(rng: random.Random, pid: str, *, needed: bool) -> Iterator[tuple[ToolCall, str]]:
    """Calls with their answers; those who know no better leave the check out in four of ten, and book in vain if it is
    `needed`, else in one of ten."""
    checked, lucky = rng.random() < 0.6, rng.random() < 0.9
    yield ToolCall("find", '{"name": "Mia"}'), json.dumps({"pid": pid})
    if checked:
        yield ToolCall("check", json.dumps({"pid": pid})), '{"ok": "yes"}'
    works = lucky and (checked or not needed)
    yield ToolCall("book", json.dumps({"pid": pid})), '{"ref": "Q1"}' if works else '{"error": "refused"}'


def _tools(*names: str) -> bytes:
    return json.dumps([{"function": {"name": name}} for name in names]).encode()


VERDICTS: dict[str, Callable[[Cell], Awaitable[dict[str, str]]]] = {
    "gate": gate, "sentinel": sentinel, "lessons": lessons,
}  # fmt: skip
WANTED = {
    "better": "promote", "worse": "reject", "good version": "nothing", "fallen": "rollback", "false lesson": "not",
    "true lesson": "active",
}  # fmt: skip
"""The right verdict on each."""


async def attacked(part: str, share: float, *, loud: bool, seeds: Sequence[int]) -> np.ndarray:
    """Verdicts, how many are right where nobody lies, and how many the lies changed."""
    found = np.zeros(3, int)
    for honest, seed in itertools.product(HONEST, seeds):
        cell = Cell(honest, share, loud, seed)
        lied = await VERDICTS[part](cell)
        truth = await VERDICTS[part](msgspec.structs.replace(cell, lies=False))
        for name, verdict in truth.items():
            found += (1, verdict == WANTED[name], verdict != lied[name])
    return found


async def measure(seeds: Sequence[int]) -> dict[str, float]:
    figures: dict[str, float] = {}
    rows: list[list[object]] = []
    for share, part in itertools.product(SHARES, VERDICTS):
        honest, loud = [await attacked(part, share, loud=loud, seeds=seeds) for loud in (False, True)]
        verdicts, right, changed = (int(count) for count in honest + loud)
        key = f"share_{share * 100:.0f}_{part}"
        figures |= {f"{key}_verdicts": verdicts, f"{key}_right_without_lies": right, f"{key}_changed": changed}
        rows.append([f"{share:.0%} {part}", verdicts, right, honest[2], loud[2]])
    report.table(
        f"Verdicts: {len(seeds)} seeds beside 4, 5, 8 honest parties",
        ["liar's share", "verdicts", "right without lies", "changed by honest feedback", "by loud feedback"], rows,
    )  # fmt: skip
    return figures


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=5, help="worlds of each kind")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    seeds = range(options.seeds)
    figures = anyio.run(measure, seeds)
    report.write(options.json, "parties", figures, seeds)


if __name__ == "__main__":
    main()
