"""References of self-made tasks: calls that were really executed, and what executing them again comes to.

SyntheticTaskSpec -> replay in a fresh instance -> Reached, which attempts are compared with
"""

from contextlib import aclosing
from typing import Any, Literal

import msgspec

from actors.messages import Task, ToolCall, derived_id
from actors.ports.environments import Environment, Episode, Stateful
from actors.ports.errors import EnvironmentFailed
from actors.ports.tool_answers.reader import failed, parsed

Verifier = Literal["state", "answer", "graded"]
ORIGINS = frozenset({"questioner", "production"})
"""Origins of self-made tasks."""


class ReferenceCall(msgspec.Struct, frozen=True):
    """One call of a reference, as it was really made."""

    name: str
    arguments: dict[str, Any] = {}

    def call(self, number: int = 0) -> ToolCall:
        """The call number `number` of a turn, as an agent would make it."""
        return ToolCall(self.name, msgspec.json.encode(self.arguments).decode(), f"call_{number}")


class SyntheticTaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What `Task.spec` of a self-made task holds."""

    base: dict[str, Any]
    """Spec of the environment's own task in whose world it starts."""
    base_goal: str
    reference: tuple[ReferenceCall, ...]
    """Calls that solve it, one a turn; empty only for the verifier `graded`."""
    verifier: Verifier
    """`state`: the reference's state is reached; `answer`: that, and the last words hold what the reference found;
    `graded`: a grader's opinion."""
    made_from: tuple[str, ...] = ()
    """Ids of the trajectories, or of the exploration, that it was made from."""
    environment: str
    """Name of the environment underneath."""
    told: int = 0
    """How openly its goal tells of the reference: 0 not at all, 1 the tools, 2 the calls."""
    answer: str = ""
    """For the verifier `answer`: path in the result of the reference's last call to the value that must be said, its
    parts joined by dots; empty for the whole result."""

    @classmethod
    def of(cls, task: Task) -> "SyntheticTaskSpec | None":
        """The spec of `task`; None if it is not self-made. EnvironmentFailed: it claims to be and is not."""
        if task.origin not in ORIGINS:
            return None
        try:
            return msgspec.convert(task.spec, cls)
        except msgspec.ValidationError as error:
            raise EnvironmentFailed(f"not a self-made task: {error}") from error

    @property
    def base_task(self) -> Task:
        """The environment's own task."""
        return Task(
            id=derived_id(self.environment, msgspec.json.encode(self.base, order="deterministic").hex()),
            goal=self.base_goal,
            environment=self.environment,
            spec=self.base,
        )


class Reached(msgspec.Struct, frozen=True):
    """What a replay of a reference came to."""

    state: dict[str, Any]
    closes: bool
    """Whether its last call ended the base episode: an agent then has to, too."""
    answer: str = ""
    """The value that `SyntheticTaskSpec.answer` leads to, as text."""
    problem: str = ""
    """Why it counts as not replayed; empty if it does."""


async def replay(environment: Environment, spec: SyntheticTaskSpec) -> Reached:
    """Execute the reference of `spec` in a fresh instance of its world. EnvironmentFailed: the environment broke down;
    that the world takes the reference no more is `Reached.problem`."""
    async with aclosing(await environment.reset(spec.base_task)) as episode:
        before = await state_of(episode)
        text, done = "", False
        for number, wanted in enumerate(spec.reference):
            if done:
                return Reached({}, True, problem=f"the episode was over before call {number + 1} ({wanted.name})")
            seen = await episode.step([wanted.call(number)], "")
            text, done = seen.text, seen.done
            if failed(text):
                return Reached({}, done, problem=f"call {number + 1} ({wanted.name}) was answered {text[:200]!r}")
        after = await state_of(episode)
    if spec.verifier == "state" and after == before:
        return Reached(after, done, problem="it changes nothing")
    answer = _as_text(value_at(parsed(text), spec.answer)) if spec.verifier == "answer" else ""
    if spec.verifier == "answer" and not answer:
        return Reached(after, done, problem=f"the last call's result has no {spec.answer or 'value'!r}")
    return Reached(after, done, answer)


async def state_of(episode: Episode) -> dict[str, Any]:
    """The state of `episode` as JSON has it: tuples are lists, keys are text. EnvironmentFailed: it shows none."""
    if not isinstance(episode, Stateful):
        raise EnvironmentFailed("this environment's episodes show no state, which self-made tasks are verified by")
    try:
        return msgspec.json.decode(msgspec.json.encode(await episode.state()))
    except (TypeError, ValueError, RecursionError) as error:
        raise EnvironmentFailed(f"the state cannot be written as JSON: {error}") from error


def value_at(result: Any, path: str) -> Any:
    """The value at `path` of a parsed answer; None if there is none."""
    for part in path.split(".") if path else ():
        if isinstance(result, dict) and part in result:
            result = result[part]
        elif isinstance(result, list) and part.isdecimal() and int(part) < len(result):
            result = result[int(part)]
        else:
            return None
    return result


def _as_text(value: Any) -> str:
    """`value` as text; empty if it is none, or no single one."""
    if isinstance(value, str):
        return value
    return "" if value is None or isinstance(value, dict | list) else msgspec.json.encode(value).decode()
