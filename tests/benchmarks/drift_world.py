"""A world for the drift benchmark: attempts at any tasks, a policy that learns, lessons as they are drawn.

The learner, the experiencer, the prober and the navigator are those that ship, in one process on a clock of its own.
"""

import json
import random
import time
from collections.abc import Collection, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import torch
from tokenizers import Tokenizer

from actors.experience.experiencer import Experiencer, ExperiencerSettings
from actors.experience.navigator import Navigator
from actors.experience.probing import Prober
from actors.experience.probing_round import ProbeSettings
from actors.experience.retrieval.settings import NavigatorSettings
from actors.kinds.clusters import cluster_of
from actors.messages import (
    Attributed,
    Attribution,
    BatchItem,
    Directive,
    Experience,
    Step,
    Task,
    TokenRow,
    ToolCall,
    Trajectory,
    pack_array,
)
from actors.messages.experience import lessons_text
from actors.ports.environments import Environment, Episode
from actors.rollout.harness.rows import hint_span
from actors.store import Store
from actors.system.actor import Received, Result
from adapters.embedders.hashing import HashingEmbedder
from adapters.environments import service_desk, travel
from adapters.judges.rules import judge
from daemon.demo.world import PROFILE
from daemon.demo.worlds import WORLDS
from daemon.settings import toml
from learner.build import BuildSettings, build
from learner.credit import assign
from learner.errors import BatchRefused
from learner.settings import LearnerSettings
from learner.trainers.native import NativeTrainer
from tests.benchmarks.ablation.player import Player, Shape, Tokens, Weights
from tests.warmstart import chat
from tests.warmstart.tool_names import NameKind, made_tool_name

T = TypeVar("T")
ROLES = {"travel": ("book",), "service": ("create_refund", "orders.cancel", "findUser")}
"""Tools that get another name, as in the demo: one of each agent."""
GROUPS, GROUP = 8, 8
"""Tasks an update, and attempts a task, as in the demo's profile."""
SECONDS = 10.0
"""Between two updates, on the clock of whoever draws lessons."""


def renamed(world: str, seed: int, number: int, kind: NameKind | None = None) -> dict[str, str]:
    """Drift `number` of a seed: by tool, a name that is made now."""
    rng = random.Random(f"drift-{world}-{seed}-{number}")
    return {role: made_tool_name(rng, kind) for role in ROLES[world]}


def write(world: str, path: Path, rename: dict[str, str]) -> None:
    """Make it the drift of the desks that read `path`."""
    (travel if world == "travel" else service_desk).Drift(rename=rename).write(path)


class Attempt:
    """One attempt at a task, with `lessons` in its prompt or without; an `Episode` for the player."""

    def __init__(
        self, environment: Environment, task: Task, most: int, lessons: Sequence[Experience] = (), group: str = ""
    ) -> None:
        self.task, self.group, self.lessons = task, group, lessons
        self._episode = at_once(environment.reset(task))
        self._most = most
        self.plain = opening(self._episode)
        self.opening = opening(self._episode, lessons_text(lessons))
        self.turns: list[tuple[str, list[ToolCall], str]] = []
        self.ended = self.solved = False

    @property
    def desk(self) -> Any:
        """Of the episode: what was wanted, and what was done."""
        return self._episode.desk  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def called(self) -> set[str]:
        """Names that it called tools by."""
        return {call.name for _, calls, _ in self.turns for call in calls}

    @property
    def tools(self) -> set[str]:
        """Names of the tools that it has."""
        return {tool["function"]["name"] for tool in self._episode.tools}

    def act(self, text: str) -> str | None:
        calls = calls_of(text)
        seen = at_once(self._episode.step(calls, text))
        self.turns.append(("" if calls else text, calls, "" if seen.done else seen.text))
        self.ended, self.solved = seen.done, at_once(self._episode.evaluate()) >= 0.5
        return None if seen.done or len(self.turns) >= self._most else following(seen.messages, seen.text)

    def trajectory(self, id_: str, tokens: Tokens, player: Player, version: int, at: float) -> Trajectory:
        """What the rollout would have recorded."""
        span = hint_span(player.encode(self.plain), player.encode(self.opening)) if self.lessons else (0, 0)
        row = TokenRow(
            ids=pack_array(tokens.ids, "<i4"), step=pack_array(tokens.steps, "<i2"),
            logprobs=pack_array(tokens.logprobs, "<f4"),
            versions=pack_array([version if step >= 0 else -1 for step in tokens.steps], "<i4"), hint=span,
        )  # fmt: skip
        steps = tuple(
            Step(exchange_id=str(number), text=text, tool_calls=tuple(calls), observation=seen, row=0)
            for number, (text, calls, seen) in enumerate(self.turns)
        )
        return Trajectory(
            id=id_, source="sandbox", goal=self.task.goal, tools=json.dumps(self._episode.tools).encode(), steps=steps,
            rows=(row,), outcome=float(self.solved), closed_by="finish" if self.ended else "limit", started=at,
            ended=at, task_id=self.task.id, group=self.group, min_version=version, max_version=version,
            experience_ids=tuple(lesson.id for lesson in self.lessons),
        )  # fmt: skip


def opening(episode: Episode, hint: str = "") -> str:
    """The prompt of an episode's first turn."""
    system = episode.messages[0]["content"] if len(episode.messages) > 1 else chat.SYSTEM
    return chat.opening(episode.messages[-1]["content"], episode.tools, hint, system)


def calls_of(text: str) -> list[ToolCall]:
    """The tool calls of a turn."""
    return [ToolCall(call.name, call.arguments, f"call-{at}") for at, call in enumerate(chat.parse_all(text))]


def following(messages: Sequence[dict[str, Any]], text: str) -> str:
    """What follows a turn."""
    if not messages:
        return chat.continuation(text)
    return chat.continuation(*(message["content"] for message in messages), role=messages[0]["role"])


class Policy:
    """A checkpoint that plays, and learns as the demo's does.

    Args:
        noise: seed of the sampling and of mini-batches.
        work: an empty directory for the present weights.
        learner: settings that differ from the demo's.
    """

    def __init__(self, world: str, base: Path, noise: int, work: Path, **learner: Any) -> None:
        self.place, self._seed, self._work = WORLDS[world], noise, work
        self.base = base
        profile = toml.read(PROFILE)["learner"]
        self._settings = msgspec.convert({**profile, "device": "cpu", **learner}, LearnerSettings)
        self._shape = msgspec.json.decode((base / "config.json").read_bytes(), type=Shape)
        self._trainer = NativeTrainer(self._settings, base)
        self.player = Player(
            Weights(base, self._shape), Tokenizer.from_file(str(base / "tokenizer.json")),
            turn_tokens=self.place.max_tokens,
        )  # fmt: skip
        self._noise = torch.Generator().manual_seed(noise)
        self.version = self.updates = 0

    def play(self, attempts: Sequence[Attempt]) -> list[Tokens]:
        return self.player.play(attempts, self._noise)

    async def probe(self, episode: Episode, seed: int) -> None:
        """A `Player` for probes: the policy itself plays the edited episode."""
        self.player.play([Probed(episode, self.place.max_steps)], self._noise)

    @property
    def max_staleness(self) -> int:
        """Versions by which a run may be older than what learns from it."""
        return self._settings.max_staleness

    def learn(self, items: Sequence[BatchItem]) -> dict[str, float]:
        """One update, of the learner's own code; its metrics, none where there was nothing to learn."""
        credits = assign(items, self._settings.credit, self.updates)
        built = build(items, credits, self._limits())
        seed = int(np.random.SeedSequence([self._seed, self.updates]).generate_state(1)[0])
        self.updates += 1
        if built.batch is None:
            return {}
        try:
            report = self._trainer.update(built.batch, seed=seed)
        except BatchRefused:  # as the learner does: the order is skipped
            return {}
        self.version += 1
        self._trainer.save(self._work)
        self.player.weights = Weights(self._work, self._shape)
        return report.metrics

    def save(self, directory: Path) -> None:
        """Write the present weights."""
        self._trainer.save(directory)

    def _limits(self) -> BuildSettings:
        settings = self._settings
        return BuildSettings(
            vocabulary=self._trainer.vocabulary, max_tokens=self._trainer.max_tokens,
            chain=tuple(range(self.version + 1)), newest=self.version, max_staleness=settings.max_staleness,
            max_staleness_guided=settings.max_staleness_guided, clip_low=settings.clip_low,
            clip_high=settings.clip_high, clip_boosted=settings.clip_boosted,
        )  # fmt: skip


class Probed:
    """A probe's episode as one of the player, `most` turns long; the desk never waits for anything."""

    def __init__(self, episode: Episode, most: int = 10) -> None:
        self._episode, self._left = episode, most
        self.opening = opening(episode)

    def act(self, text: str) -> str | None:
        seen = at_once(self._episode.step(calls_of(text), text))
        self._left -= 1
        return None if seen.done or not self._left else following(seen.messages, seen.text)


class Teacher:
    """Experiencer, prober and navigator around a policy; lessons come and go as in the daemon.

    Args:
        environment: the sandbox.
        work: an empty directory.
    """

    def __init__(self, policy: Policy, environment: Environment, work: Path, seed: int) -> None:
        self.now = time.time()
        place, self._environment = policy.place, environment
        self._store = Store(f"sqlite:///{work}/evolved.db", clock=self._clock)
        probing = ProbeSettings(families=place.families, max_steps=place.max_steps, max_tokens=place.max_tokens)
        prober = Prober(probing, environment=environment, player=policy.probe, clock=self._clock)
        embedder = HashingEmbedder()
        self._experiencer = Experiencer(
            ExperiencerSettings(), store=self._store, prober=prober, clock=self._clock, embedder=embedder
        )
        self._navigator = Navigator(
            NavigatorSettings(), store=self._store, embedder=embedder, rng=random.Random(f"navigator-{seed}")
        )

    def _clock(self) -> float:
        return self.now

    async def start(self) -> None:
        await self._store.open()
        await self._experiencer.start()
        await self._navigator.start()

    async def close(self) -> None:
        await self._store.aclose()

    async def see(self, runs: Sequence[Trajectory]) -> None:
        """Take in runs; whatever is due afterwards."""
        found = [Received(run.id, "", attributed(run, credit=False)) for run in runs]
        for first in range(0, len(found), self._experiencer.batch):
            await self._published(await self._experiencer.handle(found[first : first + self._experiencer.batch]))
        self.now += SECONDS
        await self._published(await self._experiencer.tick())

    async def drifted(self, gone: Sequence[str]) -> None:
        """The sentinel says that tools are gone."""
        details = {"missing": ",".join(gone)}
        heard = Directive(id="drift", kind="drift", reason="", origin="benchmark", details=details)
        await self._published(await self._experiencer.handle([Received("drift", "", heard)]))

    async def lessons(self, goal: str, tools: Collection[str]) -> Sequence[Experience]:
        """Those that fit `goal` or say what one of `tools` is for, as rollouts are given them."""
        return await self._navigator.lessons(goal, tools=tools)

    async def pool(self) -> list[Experience]:
        """All that there are."""
        return await self._store.experiences()

    async def _published(self, result: Result) -> None:
        await self._store.save(list(result.records))
        told = [output.message for output in result.outputs if isinstance(output.message, Experience)]
        await self._navigator.handle([Received(lesson.id, "", lesson) for lesson in told])


def attributed(run: Trajectory, *, credit: bool = True) -> Attributed:
    """A run with the labels of the rules judge, as the attributor publishes it; none where nobody looks at them."""
    labels = tuple(judge(run)) if credit else ()
    return Attributed(
        id=run.id, trajectory=run, attribution=Attribution(labels=labels, judge="rules", rubric=""),
        cluster=cluster_of(run.goal),
    )  # fmt: skip


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing.

    Raises:
        RuntimeError: it waited.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("the desk waited for something")
