"""Which runs there are: experiments, their arms, and for each arm the cells, one a warm start and seed.

A cell is known by what it does and not by its name. Seeds are paired: seed i has the same warm start, tasks and
held-out tasks in every arm.
"""

import hashlib
from typing import Any, Literal

import msgspec

SEEDS, WARM_STARTS = 10, 3
DEMO_RENAME = {"book": "buy"}
Source = Literal["none", "oracle", "rules"]
"""Who labels the steps: nobody, the answer key, or the rules judge that ships."""


class Setup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    start: Literal["warm", "trained"] = "warm"
    """The warm start, or the policy that it became on the undisturbed short desk."""
    families: str = "ABC"
    """Kinds of task that it learns from; L is the long desk (14 to 17 steps), A to C the short one (4 to 7)."""
    rename: dict[str, str] = {}
    """Tools renamed before the first update."""
    updates: int = 40
    groups: int = 8
    """Tasks an update."""
    group_size: int = 8
    """Attempts a task; 1 is production's single-sample traffic."""
    eta: float = 0.0
    """Share of each group that sees the lessons."""
    judge: Source = "none"
    learner: dict[str, Any] = {}
    """`LearnerSettings` that differ from the demo's profile; `credit` is one of them."""
    evaluated: str = "ABC"
    """Kinds of held-out task."""
    eval_every: int = 1
    eval_tasks: int = 128


class Experiment(msgspec.Struct, frozen=True):
    """Arms that are compared with the first of them."""

    name: str
    question: str
    arms: dict[str, Setup]


class Cell(msgspec.Struct, frozen=True):
    experiment: str
    arm: str
    setup: Setup
    warm: int
    seed: int

    @property
    def id(self) -> str:
        """Digest of what it does: the same for the same run, whatever it is called."""
        data = msgspec.json.encode([self.setup, self.warm, self.seed], order="deterministic")
        return hashlib.sha256(data).hexdigest()[:16]

    @property
    def name(self) -> str:
        return f"{self.experiment}/{self.arm}/warm {self.warm}/seed {self.seed}"


def cells(experiment: Experiment) -> list[Cell]:
    """Seed by seed, so that a run that is stopped has whole pairs."""
    return [
        Cell(experiment.name, arm, setup, seed % WARM_STARTS, seed)
        for seed in range(SEEDS)
        for arm, setup in experiment.arms.items()
    ]


SLOW = 1e-4
"""The largest of 1e-3, 3e-4 and 1e-4 at which GRPO alone needs ten updates to 80 %, measured on the shipped warm start:
its greedy policy solves the long desk, and at the demo's 1e-3 one to four updates bring that out. Nobody could see a
saving there."""
_LONG = Setup(families="L", evaluated="L", updates=24, eval_every=2, eval_tasks=96, learner={"lr": SLOW})
_SHORT = Setup(updates=32, eval_every=2, learner={"lr": SLOW})
_DRIFT = Setup(start="trained", rename=DEMO_RENAME, updates=32)


def experiments() -> tuple[Experiment, ...]:
    """All of them, in the order in which they are worth running."""
    return (
        _experiment("long", "Does step credit save updates on the long desk?", _LONG),
        _experiment("drift", "After a rename, what brings success back?", _DRIFT),
        _experiment("short", "Does step credit save updates on the short desk?", _SHORT),
    )


def _experiment(name: str, question: str, setup: Setup) -> Experiment:
    grpo = msgspec.structs.replace(setup, learner={**setup.learner, "credit": {"alpha": 0.0}})
    arms = {
        "GRPO": grpo,
        "+credit (answer key)": msgspec.structs.replace(setup, judge="oracle"),
        "+credit (rules)": msgspec.structs.replace(setup, judge="rules"),
        "+lessons": msgspec.structs.replace(grpo, eta=0.5),
        "both (answer key)": msgspec.structs.replace(setup, judge="oracle", eta=0.5),
        "both (rules)": msgspec.structs.replace(setup, judge="rules", eta=0.5),
    }
    return Experiment(name, question, arms)
