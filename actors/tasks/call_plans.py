"""Ways to a kind of goal, taken from runs that reached it, and carried out again in another world.

    successful runs -> ways: calls with the place that each argument came from
    a way, a world, a goal -> executed -> `SyntheticTaskSpec`, whose reference is replayed once more in a fresh instance

Execution decides: what a world refuses, what changes nothing there and finds nothing, makes no task.
"""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, cast

import anyio
import msgspec

from actors.experience.skills import Place, SkillCall, bind, places_of, trace, words_of
from actors.messages import Task, Trajectory
from actors.ports.environments import Environment
from actors.ports.errors import EnvironmentFailed
from actors.ports.tool_answers.reader import failed
from actors.tasks.entities import entities
from actors.tasks.reference_calls import ReferenceCall, SyntheticTaskSpec, replay
from actors.tool_results.tool_calls import read_json, values

_MAX_CALLS, _MOST = 24, 4
_way = msgspec.msgpack.Decoder(tuple[tuple[SkillCall, ...], str | None])


class CallPlan(msgspec.Struct, frozen=True):
    """Calls that reached a goal of some kind."""

    calls: tuple[SkillCall, ...]
    answer: str | None
    """Path in the last result to what was said in the end, its parts joined by dots; None: nothing had to be said."""
    runs: tuple[str, ...]
    """Ids of the trajectories that show it."""


def plans_of(runs: Sequence[Trajectory]) -> list[CallPlan]:
    """The ways that `runs`, successful ones with goals of one kind, went; the most trodden first."""
    shown: dict[bytes, list[str]] = {}
    for run in runs:
        path = _answered(run)
        calls = trace(run if path is None else msgspec.structs.replace(run, steps=run.steps[:-1]))
        if calls is not None and 1 <= len(calls) <= _MAX_CALLS:
            shown.setdefault(msgspec.msgpack.encode((calls, path)), []).append(run.id)
    trodden = sorted(shown.items(), key=lambda one: (-len(one[1]), len(one[0])))
    return [CallPlan(*_way.decode(plan), tuple(who)) for plan, who in trodden[:_MOST]]


def in_other_words(runs: Sequence[Trajectory], goal: str, *, least: int) -> list[CallPlan]:
    """The one way that `runs` went, successful ones at requests like `goal`, told for the words of that; else none.

    Requests may be alike in words and ask for different things. So all runs must have called the same tools in the same
    order, and each value that they took from their goal must be an entity that `goal` has exactly as they have it: the
    same number of its sort, and this in the same place among them.

    Args:
        least: runs that must have gone that way.
    """
    shown: dict[bytes, list[str]] = {}
    for run in runs:
        path = _answered(run)
        calls = trace(run if path is None else msgspec.structs.replace(run, steps=run.steps[:-1]))
        if calls is None or not 1 <= len(calls) <= _MAX_CALLS:
            return []
        told = _told_for(calls, run.goal, goal)
        if told is None:
            return []
        shown.setdefault(msgspec.msgpack.encode((told, path)), []).append(run.id)
    if len(shown) != 1 or len(runs) < least:
        return []
    ((way, who),) = shown.items()
    return [CallPlan(*_way.decode(way), tuple(who))]


def _told_for(calls: Sequence[SkillCall], said: str, goal: str) -> tuple[SkillCall, ...] | None:
    """`calls` at `said` with the places that their arguments have in `goal`; None if one has none there."""
    here, there = _entity_places(said), _entity_places(goal)
    keys = {place: key for key, place in here.items()}
    if Counter(sort for sort, _ in here) != Counter(sort for sort, _ in there):
        return None
    told: list[SkillCall] = []
    for call in calls:
        arguments: dict[str, Place] = {}
        for name, place in call.arguments.items():
            if place.word >= 0:
                if place not in keys:
                    return None
                place = there[keys[place]]
            arguments[name] = place
        told.append(SkillCall(call.tool, arguments))
    return tuple(told)


def _entity_places(goal: str) -> dict[tuple[str, int], Place]:
    """Where each entity of one word is, by its sort and its place among those of the sort."""
    words, found, seen = places_of(goal), dict[tuple[str, int], Place](), Counter[str]()
    for entity in entities(goal):
        (value, *more) = words_of(entity.value) or [""]
        if not more and value in words:
            found[entity.sort, seen[entity.sort]] = words[value]
        seen[entity.sort] += 1
    return found


def _answered(run: Trajectory) -> str | None:
    """Where the last words of `run` have their value from, if it ended in words and not in a call."""
    if len(run.steps) < 2 or run.steps[-1].tool_calls or not run.steps[-2].tool_calls:
        return None
    found = read_json(run.steps[-2].observation)
    words = run.steps[-1].text
    paths = [path for path, leaf in _leaves(found, ()) if leaf in words]
    return ".".join(paths[0]) if len(paths) == 1 else None


def _leaves(value: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        members = cast(dict[str, Any], value).items()
        return [leaf for key, member in members for leaf in _leaves(member, (*path, key))]
    return [(path, str(value))] if values(value) and not isinstance(value, list) else []


async def carry_out(
    environment: Environment, plan: CallPlan, base: Task, goal: str, made_from: Sequence[str], timeout: float
) -> SyntheticTaskSpec | str:
    """The task of reaching `goal` in the world of `base`, if `plan` gets there; else why not, in a stable short word.

    Args:
        timeout: seconds for the execution as a whole, and again for its repetition.
    """
    try:
        with anyio.fail_after(timeout):
            reference = await _execute(environment, plan, base, goal)
        if isinstance(reference, str):
            return reference
        spec = SyntheticTaskSpec(
            base=base.spec, base_goal=base.goal, reference=reference, environment=base.environment,
            verifier="state" if plan.answer is None else "answer", answer=plan.answer or "", made_from=tuple(made_from),
        )  # fmt: skip
        with anyio.fail_after(timeout):
            reached = await replay(environment, spec)
    except TimeoutError:
        return "too_slow"
    except EnvironmentFailed:
        return "environment_failed"
    return "does_not_replay" if reached.problem else spec


async def _execute(environment: Environment, plan: CallPlan, base: Task, goal: str) -> tuple[ReferenceCall, ...] | str:
    """The calls of `plan` with what `goal` and the world's own results put into them."""
    made: list[ReferenceCall] = []
    results: list[Any] = []
    async with aclosing(await environment.reset(base)) as episode:
        for number in range(len(plan.calls)):
            call = bind(plan.calls, number, goal, results)
            if call is None:
                return "not_bound"
            seen = await episode.step([call], "")
            if failed(seen.text):
                return "refused"
            if seen.done and number + 1 < len(plan.calls):
                return "ends_early"
            results.append(read_json(seen.text))
            made.append(ReferenceCall(call.name, json.loads(call.arguments)))
    return tuple(made)
