"""A checkpoint that plays the travel desk with and without lessons, for the experience benchmark."""

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from tokenizers import Tokenizer

from actors.messages import Experience, Task, ToolCall, Trajectory
from actors.messages.experience import lessons_text
from actors.ports.environments import Episode
from adapters.environments.travel.drift import Variant
from tests.benchmarks.ablation.attempts import Attempt
from tests.benchmarks.ablation.player import Player, Shape, Tokens, Weights
from tests.warmstart import chat

T = TypeVar("T")
TURNS = 10
"""Of a probe's episode at most."""


class Guided(Attempt):
    """An attempt that saw `lessons` in its prompt, or none."""

    def __init__(self, task: Task, variant: Variant, lessons: Sequence[Experience] = ()) -> None:
        super().__init__(task, variant)
        self.given = lessons
        if lessons:
            self.opening = chat.opening(task.goal, variant.tools(), lessons_text(lessons))

    def run(self, number: int, player: Player, at: float) -> Trajectory:
        """What the rollout would have recorded, without tokens."""
        run = self.trajectory(number, Tokens([], [], []), player, 1)
        ids = tuple(lesson.id for lesson in self.given)
        return msgspec.structs.replace(
            run, id=f"r{number}", rows=(), experience_ids=ids, started=at, ended=at, min_version=1, max_version=1
        )


class Policy:
    def __init__(self, directory: Path, seed: int) -> None:
        shape = msgspec.json.decode((directory / "config.json").read_bytes(), type=Shape)
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self.player = Player(Weights(directory, shape), tokenizer)
        self.noise = torch.Generator().manual_seed(seed)

    def play(self, attempts: Sequence[Attempt]) -> list[bool]:
        self.player.play(attempts, self.noise)
        return [attempt.solved for attempt in attempts]

    async def probe(self, episode: Episode, seed: int) -> None:
        """A `Player` for probes: the policy itself plays the edited episode."""
        self.player.play([Probed(episode)], self.noise)


class Probed:
    """A probe's episode as one of the player."""

    def __init__(self, episode: Episode) -> None:
        self._episode, self._left = episode, TURNS
        system = episode.messages[0]["content"] if len(episode.messages) > 1 else chat.SYSTEM
        self.opening = chat.opening(episode.messages[-1]["content"], episode.tools, "", system)

    def act(self, text: str) -> str | None:
        calls = [ToolCall(call.name, call.arguments, f"call-{at}") for at, call in enumerate(chat.parse_all(text))]
        seen = _at_once(self._episode.step(calls, text))
        self._left -= 1
        if seen.done or not self._left:
            return None
        if not seen.messages:
            return chat.continuation(seen.text)
        return chat.continuation(*(one["content"] for one in seen.messages), role=seen.messages[0]["role"])


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing.

    Raises:
        RuntimeError: it waited.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("the desk waited for something")
