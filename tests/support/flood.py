"""A flood of agents, each with a goal of its own, on the curator, and a quiet party that has three kinds of task."""

import random
from itertools import product

from actors.curation.pool import CuratorSettings, TrainingPool
from actors.kinds.kinds import Kinds
from actors.messages import Attributed, Attribution, Step, StepLabel, Trajectory

QUIET = ("refund the invoice that was paid twice", "reset the password of my account", "where is my parcel now")
_COMMON = ["".join(one) for one in product("blrst", "aeio", "bdglmnprst", "aeiou", "kn")]


class Curation:
    """What the curator does with a run, without the books."""

    def __init__(self) -> None:
        settings = CuratorSettings(groups_per_batch=0)
        self.curriculum, self.kinds = settings.curriculum(), Kinds()
        self.pool = TrainingPool(settings, self.curriculum, kinds=self.kinds, exam=lambda key: False)

    def take(self, run: Trajectory) -> None:
        label = Attribution(labels=(StepLabel("GOOD"),), judge="j", rubric="r")
        self.pool.add(Attributed(id=run.id, trajectory=run, attribution=label, cluster="c"), run.ended)
        self.curriculum.saw(run)
        self.kinds.tell(run)
        self.pool.take_drops()


def loud(rng: random.Random, number: int) -> Trajectory:
    """A run of an agent that nobody has met, at a goal that nobody has had."""
    words = ["".join(rng.choices("bcdfghklmnprstvwz", k=7)) for _ in range(8)]
    if number % 2:
        words[2:] = rng.choices(_COMMON, k=20)
    goal = " ".join(words) * (15_000 if number % 1000 == 999 else 1)
    return Trajectory(
        id=f"l{number}", tenant="t", caller="loud", goal=goal, tools=b'[{"name":"%s"}]' % words[0].encode(),
        steps=(Step(exchange_id="x", role=f"{words[1]}#{number:x}"),), outcome=float(number % 2), started=0.0,
        ended=float(number), min_version=0, max_version=0,
    )  # fmt: skip


def quiet(number: int) -> Trajectory:
    """A run of the party that has three kinds."""
    return Trajectory(
        id=f"q{number}", tenant="t", caller="quiet", goal=QUIET[number % 3], tools=b'[{"name":"act"}]',
        steps=(Step(exchange_id="x", role="clerk#1"),), outcome=1.0, started=0.0, ended=float(number), min_version=0,
        max_version=0,
    )  # fmt: skip
