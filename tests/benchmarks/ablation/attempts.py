"""One attempt at a task of the travel desk, with what the answer key says of each step, and the trajectory of it.

The answer key judges here because a benchmark may; nothing that ships can reach it.
"""

import json

from actors.messages import Label, Step, Task, TokenRow, ToolCall, Trajectory
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import Variant
from adapters.environments.travel.environment import step
from tests.warmstart import chat
from tests.warmstart.travel_oracle import good_actions


class Attempt:
    """Plays one task; an `Episode` for the player.

    Args:
        lessons: lines that the opening shows, each after a newline.
        given: the ids of these lessons.
        group: of the attempts at one task; empty for a single run, as production has them.
    """

    def __init__(
        self, task: Task, variant: Variant, lessons: str = "", given: tuple[str, ...] = (), group: str = ""
    ) -> None:
        self._desk = Desk(task.spec["seed"], task.spec["family"], variant)
        self._task, self._given, self._group = task, given, group
        self.plain = chat.opening(self._desk.goal, variant.tools())
        self.opening = chat.opening(self._desk.goal, variant.tools(), lessons)
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

    def trajectory(self, number: int, version: int, *rows: TokenRow, at: float = 0.0) -> Trajectory:
        """What a tap and the rollout would have recorded of it, sampled by `version`."""
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
            rows=rows,
            outcome=float(self.solved),
            closed_by="finish" if self._ended else "limit",
            started=at,
            ended=at,
            task_id=self._task.id,
            group=self._group,
            experience_ids=self._given,
            min_version=version,
            max_version=version,
        )
