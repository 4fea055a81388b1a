"""Any Gymnasium environment with discrete or text actions, BabyAI's levels by default, as an `Environment`.

A task is an environment's id and a seed; its tools are its actions, its observations are told in words, and it is
solved if the episode ends with a reward above 0. Needs the extra `gymnasium`.
"""

import contextlib
import io
import json
import string
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import gymnasium
import msgspec

from actors.messages import Task, ToolCall, derived_id
from actors.ports.environments import Observation, Profile, Split
from actors.ports.errors import EnvironmentFailed
from adapters.environments.gymnasium_text import Codec, mission

NAME = "gymnasium"
BABYAI = (
    "minigrid:BabyAI-GoToLocal-v0",
    "minigrid:BabyAI-GoToRedBall-v0",
    "minigrid:BabyAI-PickupLoc-v0",
    "minigrid:BabyAI-UnlockLocal-v0",
)
"""Levels of Chevalier-Boisvert et al., "BabyAI", ICLR 2019; before the colon the module that registers them."""
_SPLITS: dict[Split, int] = {"train": 0, "heldout": 1}


class _Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `Task.spec` holds."""

    id: str
    seed: int


class GymnasiumEpisode:
    """One attempt: the environment, freshly made and seeded, and how it went."""

    def __init__(self, spec: _Spec, make: "_Maker", limit: int) -> None:
        self._spec, self._make, self._limit = spec, make, limit
        self._environment, self._codec = make(spec.id)
        first = begun(self._environment, spec.seed)
        self._goal = goal(spec.id, first)
        self._turns, self._done, self._reward = 0, False, 0.0
        self._last = self._codec.told(first)
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": f"{self._goal}\n{self._last}"}]
        self.tools: list[dict[str, Any]] = self._codec.tools()

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        """Take the calls one after the other until the episode ends; a wrong one is answered, and costs the turn."""
        if self._done:
            return Observation(json.dumps({"error": "over"}), True)
        self._turns += 1
        answers = [self._call(call) for call in calls] or [json.dumps({"error": "bad call"})]
        self._done = self._done or self._turns >= self._limit
        messages = tuple(
            {"role": "tool", "content": answer, "tool_call_id": call.id}
            for call, answer in zip(calls, answers, strict=False)
        )
        return Observation("\n".join(answers), self._done, messages)

    async def evaluate(self) -> float:
        """1.0 if the last action of a finished episode was rewarded, else 0.0."""
        return float(self._done and self._reward > 0)

    async def aclose(self) -> None:
        self._environment.close()

    def _call(self, call: ToolCall) -> str:
        if self._done:
            return json.dumps({"error": "over"})
        try:
            self._take(self._codec.action(call.name, call.arguments))
        except ValueError as error:
            return json.dumps({"error": str(error)})
        return self._last

    def _take(self, action: int | str) -> None:
        try:
            seen, reward, terminated, truncated, _ = self._environment.step(action)
        except Exception as error:  # whatever an environment raises, it is the environment's failure
            self._done = True
            raise EnvironmentFailed(f"{self._spec.id}: {type(error).__name__}: {error}") from error
        self._reward, self._done, self._last = float(reward), terminated or truncated, self._codec.told(seen)


class GymnasiumEnvironment:
    """Tasks from Gymnasium environments.

    Args:
        ids: of the environments, "module:id" if a module must be imported to register it; a family's letter is the
            position: A, B, C, ...
        actions: names of the discrete actions by id, for those that do not name them.
        options: keyword arguments for `gymnasium.make` by id.
        limit: turns of an episode, whatever the environment's own limit is.

    Raises:
        ValueError: no ids, or too many.
    """

    name = NAME

    def __init__(
        self, ids: Sequence[str] = BABYAI, *, actions: Mapping[str, Sequence[str]] | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None, limit: int = 64,
    ) -> None:  # fmt: skip
        if not 0 < len(ids) <= len(string.ascii_uppercase) or limit < 1:
            raise ValueError(f"ids: give 1 to {len(string.ascii_uppercase)} environments, and limit 1 or more")
        self._ids = dict(zip(string.ascii_uppercase, ids, strict=False))
        self._make, self._limit = _Maker(actions or {}, options or {}), limit
        self._tools: list[dict[str, Any]] | None = None

    def profile(self) -> Profile:
        return Profile(
            name=NAME,
            description=f"Gymnasium environments: {', '.join(self._ids.values())}.",
            notes=(
                "Each tool is an action; its answer is what is seen after it.",
                "The goal is reached when an action is rewarded; then the episode is over.",
            ),
        )

    def tools(self) -> list[dict[str, Any]]:
        if self._tools is None:
            found: dict[str, dict[str, Any]] = {}
            for key in self._ids.values():
                environment, codec = self._made(key)
                environment.close()
                found |= {tool["function"]["name"]: tool for tool in reversed(codec.tools())}
            self._tools = list(reversed(found.values()))
        return self._tools

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        """Task number `seed` of `split`: train tasks have the even seeds of the environments, held-out ones the odd."""
        letters = families or "".join(self._ids)
        unknown = sorted(set(letters) - set(self._ids))
        if unknown:
            raise ValueError(f"no family {unknown[0]!r}; families: {', '.join(self._ids)}")
        letter = Random(f"{split}-{seed}").choice(letters)
        spec = _Spec(self._ids[letter], 2 * seed + _SPLITS[split])
        environment, _ = self._made(spec.id)
        try:
            first = begun(environment, spec.seed)
        finally:
            environment.close()
        return Task(
            id=derived_id(NAME, spec.id, spec.seed),
            goal=goal(spec.id, first),
            environment=NAME,
            spec=msgspec.to_builtins(spec),
            origin="heldout" if split == "heldout" else "environment",
        )

    async def reset(self, task: Task) -> GymnasiumEpisode:
        try:
            spec = msgspec.convert(task.spec, _Spec)
        except msgspec.ValidationError as error:
            raise EnvironmentFailed(f"not a task of Gymnasium environments: {error}") from error
        if task.environment != NAME or spec.id not in self._ids.values() or spec.seed < 0:
            raise EnvironmentFailed(f"not a task of these Gymnasium environments: {task.environment!r}, {spec.id!r}")
        try:
            return GymnasiumEpisode(spec, self._make, self._limit)
        except Exception as error:
            raise EnvironmentFailed(f"{spec.id}: {type(error).__name__}: {error}") from error

    def _made(self, key: str) -> tuple[gymnasium.Env[Any, Any], Codec]:
        try:
            return self._make(key)
        except Exception as error:
            raise EnvironmentFailed(f"{key}: {type(error).__name__}: {error}") from error


class _Maker:
    """Makes an environment with its codec."""

    def __init__(self, actions: Mapping[str, Sequence[str]], options: Mapping[str, Mapping[str, Any]]) -> None:
        self._actions, self._options = actions, options

    def __call__(self, key: str) -> tuple[gymnasium.Env[Any, Any], Codec]:
        environment = gymnasium.make(key, **self._options.get(key, {}))
        names = self._actions.get(key)
        return environment, Codec(environment, None if names is None else tuple(names))


def begun(environment: gymnasium.Env[Any, Any], seed: int) -> Any:
    """The first observation of `environment` with `seed`."""
    # BabyAI prints the layouts that it rejects, between the lines of whatever this process prints.
    with contextlib.redirect_stdout(io.StringIO()):
        return environment.reset(seed=seed)[0]


def goal(key: str, first: Any) -> str:
    words = mission(first).strip()
    return f"{words[:1].upper()}{words[1:].rstrip('.')}." if words else f"Reach the goal of {key.rpartition(':')[2]}."
