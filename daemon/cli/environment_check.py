"""`evolved environments check`: a quick play of an environment that says what is wrong with it."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec

from actors.messages import Task, ToolCall
from actors.ports.environments import Environment, Episode, Stateful

_MOST_TURNS = 500
_NAME_LENGTH = 64


class CheckResult(msgspec.Struct, frozen=True):
    """What one check found."""

    check: str
    problem: str = ""
    """What is wrong; empty: nothing."""
    seconds: float = 0.0


class Wrong(Exception):
    """Says what is."""


async def check(environment: Environment, families: str | None = None, *, timeout: float = 60.0) -> list[CheckResult]:
    """Every check, in order; one that fails does not keep the next from being made.

    Args:
        families: kinds of task to check with; None for the environment's mix.
        timeout: seconds for each.
    """
    found: list[CheckResult] = []
    for name, one in _CHECKS.items():
        began, problem = anyio.current_time(), ""
        try:
            with anyio.fail_after(timeout):
                await one(environment, families)
        except TimeoutError:
            problem = f"not done after {timeout:g} s"
        except Wrong as error:
            problem = str(error)
        except Exception as error:  # whatever it raises where it should not is what is wrong with it
            problem = f"{type(error).__name__}: {error}"[:500]
        found.append(CheckResult(name, problem, anyio.current_time() - began))
    return found


async def _profile(environment: Environment, families: str | None) -> None:
    profile = environment.profile()
    _hold(profile.name == environment.name, f"profile().name is {profile.name!r}, name is {environment.name!r}")
    _hold(profile.description, "profile().description is empty: who invents tasks has nothing to go by")


async def _sample(environment: Environment, families: str | None) -> None:
    task = environment.sample(0, "train", families)
    _hold(environment.sample(0, "train", families) == task, "sample() gives another task for the same arguments")
    _hold(
        task.environment == environment.name, f"the task says it is of {task.environment!r}, not {environment.name!r}"
    )
    _hold(task.goal, "the task has no goal")
    _hold(msgspec.json.decode(msgspec.json.encode(task), type=Task) == task, "the task's spec does not survive JSON")
    train = {environment.sample(seed, "train", families).id for seed in range(10)}
    held = [environment.sample(seed, "heldout", families) for seed in range(10)]
    _hold(not train & {one.id for one in held}, "a task is in train and heldout: what is measured was trained on")
    _hold({one.origin for one in held} == {"heldout"}, "held-out tasks must have origin heldout")


async def _family(environment: Environment, families: str | None) -> None:
    try:
        environment.sample(0, "train", "§")
    except ValueError:
        return
    raise Wrong("a family that does not exist gives a task; ValueError is wanted")


async def _tools(environment: Environment, families: str | None) -> None:
    episode = await environment.reset(environment.sample(0, "train", families))
    for tools in (environment.tools(), episode.tools):
        names = [tool.get("function", {}).get("name", "") for tool in tools]
        _hold(len(set(names)) == len(names), "two tools have the same name")
        for tool, name in zip(tools, names, strict=True):
            _hold(
                tool.get("type") == "function" and 0 < len(name) <= _NAME_LENGTH,
                f"no function tool of OpenAI's: {tool}",
            )
            parameters = tool["function"].get("parameters", {})
            _hold(parameters.get("type") == "object", f"the parameters of {name} are no JSON schema of an object")
        json.dumps(tools)
    await episode.aclose()


async def _reset(environment: Environment, families: str | None) -> None:
    task = environment.sample(0, "train", families)
    one, other = await environment.reset(task), await environment.reset(task)
    _hold(one.messages and one.messages[-1].get("role") == "user", "the opening messages do not end with the user's")
    _hold(one.messages == other.messages and one.tools == other.tools, "two attempts at a task start differently")
    _hold(await _state(one) == await _state(other), "two attempts at a task start in different states")
    await one.aclose()
    await other.aclose()


async def _mistakes(environment: Environment, families: str | None) -> None:
    episode = await environment.reset(environment.sample(0, "train", families))
    name = episode.tools[0]["function"]["name"] if episode.tools else "none"
    for calls in (
        (ToolCall("no_such_tool", "{}", "a"),),
        (ToolCall(name, "{", "a"),),
        (ToolCall(name, "[]", "a"),),
        (),
    ):
        seen = await episode.step(calls, "words")
        _hold(seen.done or seen.text, f"the answer to {calls} is empty: the agent learns nothing from its mistake")
        if seen.done:
            break
    await episode.aclose()


async def _end(environment: Environment, families: str | None) -> None:
    episode = await environment.reset(environment.sample(0, "train", families))
    _hold(await episode.evaluate() == 0.0, "evaluate() is not 0.0 at the beginning")
    for _ in range(_MOST_TURNS):
        if (await episode.step((), "I do not know.")).done:
            break
    else:
        raise Wrong(f"an agent that says nothing of use is not stopped within {_MOST_TURNS} turns")
    _hold(0.0 <= await episode.evaluate() <= 1.0, "evaluate() is not between 0.0 and 1.0 at the end")
    _hold((await episode.step((), "more")).done, "a step after the end does not say that it is over")
    await episode.aclose()
    await episode.aclose()


async def _written_state(environment: Environment, families: str | None) -> None:
    episode = await environment.reset(environment.sample(0, "train", families))
    json.dumps(await _state(episode))
    await episode.aclose()


async def _state(episode: Episode) -> dict[str, Any] | None:
    return await episode.state() if isinstance(episode, Stateful) else None


def _hold(true: object, otherwise: str) -> None:
    if not true:
        raise Wrong(otherwise)


_CHECKS: dict[str, Callable[[Environment, str | None], Awaitable[None]]] = {
    "profile": _profile,
    "sample": _sample,
    "unknown family": _family,
    "tools": _tools,
    "reset": _reset,
    "mistakes": _mistakes,
    "end and evaluation": _end,
    "state": _written_state,
}
