"""What every environment promises, as checks that any implementation is put through.

`tests/contract/test_environment.py` runs them over what needs nothing installed; suites with an environment of their
own (tests/bfcl) import `PROMISES` and run the same.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from actors.messages import Task, ToolCall
from actors.ports.environments import Environment, Episode, Observation, Stateful
from actors.ports.errors import EnvironmentFailed

MOST_STEPS = 500


class Case(msgspec.Struct, frozen=True):
    """An implementation, and what the checks must know of it."""

    opened: Callable[[], AbstractAsyncContextManager[Environment]]
    """The environment, ready for use; whatever it holds is let go of in the end."""
    families: str | None = None
    """Kinds of task to check with."""
    splits_wide: int = 40
    """How many seeds of each split are compared: none may give a task of the other."""
    change: Callable[[Episode, Environment], Awaitable[Observation]] | None = None
    """A turn that changes the state of a fresh episode of task 0, if that is known."""
    in_time: float = 60.0
    """Seconds for each check, on a busy machine."""


def simple(make: Callable[[], Environment]) -> Callable[[], AbstractAsyncContextManager[Environment]]:
    """`Case.opened` of an environment that holds nothing."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Environment]:
        yield make()

    return opened


async def run_out(episode: Episode) -> None:
    """Say nothing until the episode is over: every environment ends one that leads nowhere."""
    for _ in range(MOST_STEPS):
        if (await episode.step((), "I do not know.")).done:
            return
    raise AssertionError(f"an episode of nothing but silence went on for {MOST_STEPS} steps")


async def state_of(episode: Episode) -> dict[str, Any] | None:
    return await episode.state() if isinstance(episode, Stateful) else None


def mistakes(tools: Sequence[dict[str, Any]]) -> list[tuple[ToolCall, ...]]:
    """Turns that a broken or hostile policy takes."""
    known = tools[0]["function"]["name"] if tools else "none"
    names = ["", "no_such_tool", "__class__", "__init__", "os.system('true')", "a" * 5000, "\n", "\ud800", "état"]
    written = ["", "{", "[]", "null", "7", '"text"', '{"a": NaN}', '{"x": {"y": [1, {}]}}', "[" * 3000, "\ud800"]
    written += ['{"' + "k" * 5000 + '": 1}', '{"__class__": 1, "self": 2}', '{"a": 1' + "0" * 6000 + "}"]
    turns = [(ToolCall(name, "{}", "call-0"),) for name in names]
    turns += [(ToolCall(known, text, "call-0"),) for text in written]
    turns.append(tuple(ToolCall(known, "{", f"call-{number}") for number in range(3)))
    return turns


@asynccontextmanager
async def attempts(case: Case, environment: Environment, number: int = 1) -> AsyncIterator[list[Episode]]:
    """So many at task 0, closed in the end."""
    task = environment.sample(0, "train", case.families)
    made = [await environment.reset(task) for _ in range(number)]
    yield made
    for episode in made:
        await episode.aclose()


def no_such_tool(id: str = "c") -> tuple[ToolCall]:
    return (ToolCall("no_such_tool", "{}", id),)


async def a_seed_gives_one_task_that_survives_the_wire_and_the_splits_share_none(
    case: Case, environment: Environment
) -> None:
    for split in ("train", "heldout"):
        task = environment.sample(3, split, case.families)
        assert task == environment.sample(3, split, case.families)
        assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task
    training = {environment.sample(seed, "train", case.families).id for seed in range(case.splits_wide)}
    held_out = [environment.sample(seed, "heldout", case.families) for seed in range(case.splits_wide)]
    assert not training & {task.id for task in held_out}
    assert {task.origin for task in held_out} == {"heldout"}
    assert all(task.environment == environment.name and task.goal for task in held_out)
    assert len(training) > 1
    with pytest.raises(ValueError, match="famil"):
        environment.sample(0, "train", "§")


async def tools_have_the_form_of_openai(case: Case, environment: Environment) -> None:
    async with attempts(case, environment) as (episode,):
        for tools in (environment.tools(), episode.tools):
            names = [tool["function"]["name"] for tool in tools]
            assert len(set(names)) == len(names)
            assert all(0 < len(name) <= 64 for name in names)
            assert all(tool["type"] == "function" for tool in tools)
            assert all(tool["function"]["parameters"].get("type") == "object" for tool in tools)
            json.dumps(tools)


async def the_profile_names_what_exists(case: Case, environment: Environment) -> None:
    profile = environment.profile()
    assert profile.name == environment.name
    assert profile.description
    assert all(values and all(isinstance(value, str) for value in values) for values in profile.entities.values())


async def attempts_at_one_task_start_alike(case: Case, environment: Environment) -> None:
    async with attempts(case, environment, 2) as (one, other):
        assert one.messages == other.messages
        assert one.tools == other.tools
        assert one.messages[-1]["role"] == "user"
        state = await state_of(one)
        assert state == await state_of(other)
        assert state == json.loads(json.dumps(state)), "a state can be written down"


async def attempts_are_independent(case: Case, environment: Environment) -> None:
    async with attempts(case, environment, 2) as (one, other):
        fresh = await state_of(other)
        if case.change is not None:
            await case.change(one, environment)
            assert await state_of(one) != fresh, "the turn that should change the state did not"
        await run_out(one)
        await one.aclose()
        assert await state_of(other) == fresh
        assert await other.evaluate() == 0.0
        assert not (await other.step(no_such_tool(), "")).done


async def mistakes_are_observations(case: Case, environment: Environment) -> None:
    task = environment.sample(0, "train", case.families)
    episode = await environment.reset(task)
    for calls in mistakes(episode.tools):
        seen = await episode.step(calls, "")
        seen.text.encode("utf-8")
        assert seen.done or seen.text, calls
        if seen.messages:
            answers = [message for message in seen.messages if message["role"] == "tool"]
            assert [message["tool_call_id"] for message in answers] == [call.id for call in calls]
            json.dumps(seen.messages, ensure_ascii=False).encode("utf-8")
        if seen.done:
            await episode.aclose()
            episode = await environment.reset(task)
    await episode.aclose()


async def nothing_is_worth_anything_before_the_end(case: Case, environment: Environment) -> None:
    async with attempts(case, environment) as (episode,):
        assert await episode.evaluate() == 0.0
        await episode.step(no_such_tool(), "")
        assert await episode.evaluate() == 0.0
        await run_out(episode)
        assert 0.0 <= await episode.evaluate() <= 1.0


async def what_is_over_stays_as_it_is(case: Case, environment: Environment) -> None:
    """A step after the end is answered, says that it is over, and changes neither state nor outcome."""
    async with attempts(case, environment) as (episode,):
        await run_out(episode)
        outcome, state = await episode.evaluate(), await state_of(episode)
        tool = episode.tools[0]["function"]["name"] if episode.tools else "none"
        for calls in ((), (ToolCall(tool, "{}", "c"),)):
            assert (await episode.step(calls, "more")).done
        assert await episode.evaluate() == outcome
        assert await state_of(episode) == state


async def closing_twice_is_closing_once(case: Case, environment: Environment) -> None:
    """Whatever state it is in: fresh, begun, over. The environment serves on."""
    async with attempts(case, environment, 3) as (fresh, begun, over):
        await begun.step(no_such_tool(), "")
        await run_out(over)
        for episode in (fresh, begun, over):
            await episode.aclose()
    async with attempts(case, environment) as (again,):
        assert again.messages == fresh.messages


async def closing_is_not_undone_by_a_cancellation(case: Case, environment: Environment) -> None:
    with anyio.CancelScope() as scope:
        async with attempts(case, environment):
            scope.cancel()
    async with attempts(case, environment):
        pass


async def a_cancelled_turn_harms_nobody_else(case: Case, environment: Environment) -> None:
    async with attempts(case, environment, 2) as (one, other):
        fresh = await state_of(other)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await one.step(no_such_tool(), "")
        await one.aclose()
        assert await state_of(other) == fresh
        seen = await other.step(no_such_tool("mine"), "")
        assert all(message.get("tool_call_id", "mine") == "mine" for message in seen.messages)


async def many_attempts_run_side_by_side(case: Case, environment: Environment) -> None:
    """Answers never go to another attempt: each answers the ids of its own calls."""

    async def attempt(number: int) -> None:
        async with attempts(case, environment) as (episode,):
            for turn in range(3):
                seen = await episode.step(no_such_tool(f"call-{number}-{turn}"), "")
                for message in seen.messages:
                    assert message.get("tool_call_id", f"call-{number}-{turn}") == f"call-{number}-{turn}"
                if seen.done:
                    break

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(attempt, number)


async def foreign_tasks_are_refused(case: Case, environment: Environment) -> None:
    own = environment.sample(0, "train", case.families)
    for task in (
        Task(id="t", goal="g", environment="elsewhere", spec=own.spec),
        Task(id="t", goal="g", environment=environment.name, spec={"nothing": [1]}),
    ):
        with pytest.raises(EnvironmentFailed):
            await environment.reset(task)


PROMISES: tuple[Callable[[Case, Environment], Awaitable[None]], ...] = (
    a_seed_gives_one_task_that_survives_the_wire_and_the_splits_share_none,
    tools_have_the_form_of_openai,
    the_profile_names_what_exists,
    attempts_at_one_task_start_alike,
    attempts_are_independent,
    mistakes_are_observations,
    nothing_is_worth_anything_before_the_end,
    what_is_over_stays_as_it_is,
    closing_twice_is_closing_once,
    closing_is_not_undone_by_a_cancellation,
    a_cancelled_turn_harms_nobody_else,
    many_attempts_run_side_by_side,
    foreign_tasks_are_refused,
)


async def keeps(case: Case, promise: Callable[[Case, Environment], Awaitable[None]]) -> None:
    """Open the environment and check `promise`, in time."""
    with anyio.fail_after(case.in_time):
        async with case.opened() as environment:
            await promise(case, environment)
