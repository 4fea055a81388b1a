"""Rollouts in the daemon: what is played in the sandbox, and the tasks that are made here for it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from starlette.routing import Route

from actors.curation.curriculum import Curriculum
from actors.ports.environments import Environment
from actors.ports.graders import Grader
from actors.ports.store import Retriever
from actors.rollout.rollout import Rollout
from daemon.composition.harness import harness
from daemon.composition.tasks import Tasks, rollout_figures, task_figures
from daemon.composition.wiring import LONG, Wiring


class Play(NamedTuple):
    """The rollout as others see it; as it stands here where there is no sandbox."""

    loaded: Callable[[int], None] = lambda version: None
    """To be told each version that the shadow engine took."""
    routes: Sequence[Route] = ()
    """For the control API."""


def rollout(
    wiring: Wiring,
    environment: Environment | None,
    grader: Grader | None,
    navigator: Retriever,
    curriculum: Curriculum,
    trains: Callable[[int], bool],
) -> Play:
    """Groups of attempts at the environment's tasks and at those that are made here.

    Args:
        trains: whether what a version plays now can still be trained on.
    """
    if environment is None:
        return Play()
    config, store, shadow = wiring.config, wiring.parts.store, wiring.parts.shadow
    tasks = Tasks(
        config.tasks, store=store, environment=environment, families=config.rollout.families, curriculum=curriculum,
        clock=wiring.clock, engine=shadow, rng=wiring.rng("tasks"), grader=grader,
    )  # fmt: skip
    wiring.act(tasks.failures, LONG, renews=True)
    player = Rollout(
        config.rollout, store=store, engine=shadow, environment=tasks.environment, retriever=navigator,
        clock=wiring.clock, rng=wiring.rng("rollout"), planner=curriculum, times=wiring.times,
        harness=harness(config.rollout), mixture=tasks.mixture, trains=trains,
    )  # fmt: skip
    wiring.figures(task_figures, tasks)
    wiring.figures(rollout_figures, player)
    wiring.produce(player)
    return Play(player.loaded, tasks.routes())
