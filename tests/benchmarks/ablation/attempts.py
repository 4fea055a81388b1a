"""One attempt at a task of the travel desk, with what the answer key says of each step, and the trajectory of it.

The answer key judges here because a benchmark may; nothing that ships can reach it.
"""

import json
from collections.abc import Sequence

from actors.kinds.clusters import cluster_of
from actors.messages import (
    Attributed,
    Attribution,
    Label,
    Step,
    StepLabel,
    Task,
    TokenRow,
    ToolCall,
    Trajectory,
    pack_array,
)
from actors.rollout.harness.rows import hint_span
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import Variant
from adapters.environments.travel.environment import step
from adapters.judges.rules import judge
from tests.benchmarks.ablation.plan import Source
from tests.benchmarks.ablation.player import Player, Tokens
from tests.warmstart import chat
from tests.warmstart.travel_demonstrations import hints
from tests.warmstart.travel_oracle import good_actions


class Attempt:
    """Plays one task; an `Episode` for the player.

    Args:
        guided: the opening shows the lessons that fit this desk. They are given, right and complete: what is measured
            is what guided rollouts are worth, not how well lessons are drawn.
    """

    def __init__(self, task: Task, variant: Variant, *, guided: bool = False, group: str = "") -> None:
        self._desk = Desk(task.spec["seed"], task.spec["family"], variant)
        self.task, self.group = task, group
        lessons = hints("".join(ticket.kind for ticket in self._desk.tickets), variant) if guided else ()
        self.guided = bool(lessons)
        self.plain = chat.opening(self._desk.goal, variant.tools())
        lines = "".join("\n" + line for line in lessons)
        self.opening = chat.opening(self._desk.goal, variant.tools(), lines) if lessons else self.plain
        self.truth: list[Label] = []
        self._turns: list[tuple[str, ToolCall | None, str]] = []
        self._ended = False

    @property
    def solved(self) -> bool:
        """Whether the customer got what they asked for, and nothing else."""
        return self._desk.solved

    def act(self, text: str) -> str | None:
        call = chat.parse(text)
        right = call is not None and (call.name, json.loads(call.arguments)) in good_actions(self._desk)
        seen = step(self._desk, [] if call is None else [call])
        # The key asks for one more look at the queue before the end; to end without it is right as well.
        self.truth.append("GOOD" if right or self._desk.solved else "BAD")
        self._ended = seen.done
        self._turns.append((text, call, "" if seen.done else seen.text))
        return None if seen.done else chat.continuation(seen.text)

    def trajectory(self, number: int, tokens: Tokens, player: Player, version: int) -> Trajectory:
        """What a tap and the rollout would have recorded of it, sampled by `version`."""
        span = hint_span(player.encode(self.plain), player.encode(self.opening)) if self.guided else (0, 0)
        row = TokenRow(
            ids=pack_array(tokens.ids, "<i4"),
            step=pack_array(tokens.steps, "<i2"),
            logprobs=pack_array(tokens.logprobs, "<f4"),
            versions=pack_array([version if step >= 0 else -1 for step in tokens.steps], "<i4"),
            hint=span,
        )
        steps = tuple(
            Step(
                exchange_id=f"{i}", text="" if call else text, tool_calls=(call,) if call else (),
                observation=observation, row=0,
            )
            for i, (text, call, observation) in enumerate(self._turns)
        )  # fmt: skip
        return Trajectory(
            id=f"{version}-{number}",
            source="sandbox",
            goal=self._desk.goal,
            tools=json.dumps(self._desk.variant.tools()).encode(),
            steps=steps,
            rows=(row,),
            outcome=float(self.solved),
            closed_by="finish" if self._ended else "limit",
            started=0.0,
            ended=0.0,
            task_id=self.task.id,
            group=self.group,
            experience_ids=("given",) if self.guided else (),
            min_version=version,
            max_version=version,
        )


def attributed(trajectory: Trajectory, labels: Sequence[StepLabel], source: Source) -> Attributed:
    """`trajectory` with its credit, as the attributor publishes it."""
    return Attributed(
        id=trajectory.id,
        trajectory=trajectory,
        attribution=Attribution(labels=tuple(labels), judge=source, rubric=""),
        cluster=cluster_of(trajectory.goal),
    )


def label(source: Source, trajectory: Trajectory, truth: Sequence[Label]) -> tuple[StepLabel, ...]:
    """One label a step; only `oracle` looks at `truth`, what the answer key says."""
    if source == "rules":
        return tuple(judge(trajectory))
    return tuple(StepLabel(one if source == "oracle" else "ABSTAIN") for one in truth)
