"""Scripted runs of BFCL's tasks: the ground truth, ways to spoil it, playing it here and before the official checker.

The ground truth is read with `ast`, literals only.
"""

import ast
import json
import math
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from actors.messages import ToolCall
from adapters.environments.bfcl import BfclEnvironment, BfclEpisode

OFFICIAL = Path(__file__).with_name("bfcl_official.py")
STEP_LIMIT = 20
HELD_BACK_SAYS = "I have updated some more functions you can choose from. What about now?"
Call = tuple[str, dict[str, Any]]
Turns = list[list[Call]]
"""Calls, by the user's turn."""


class Given(msgspec.Struct, frozen=True):
    turns: Turns
    """The ground truth."""
    held_back: dict[int, set[str]]
    """Turn to the functions that come with it."""


class Played(msgspec.Struct, frozen=True):
    outcome: float
    failure: str
    calls: int


def benchmark(python: Path, environment: BfclEnvironment) -> dict[str, "Given"]:
    """The benchmark's own answers, by task: read from its files, not through our worker."""
    found = subprocess.run([str(python), "-I", "-B", str(OFFICIAL), "truths"], capture_output=True, check=True)
    order = {
        tool["function"]["name"]: list(tool["function"]["parameters"]["properties"]) for tool in environment.tools()
    }
    return {
        task: Given(
            [[_parsed(text, order) for text in turn] for turn in turns],
            {int(turn): set(names) for turn, names in missed.items()},
        )
        for task, (turns, missed) in json.loads(found.stdout).items()
    }


def _parsed(text: str, order: dict[str, list[str]]) -> Call:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    named = dict(zip(order[node.func.id], [ast.literal_eval(value) for value in node.args], strict=False))
    return node.func.id, named | {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}


def nothing(turns: Turns) -> Turns:
    return [[] for _ in turns]


def without_the_last(turns: Turns, tools: Sequence[str], rng: Random) -> Turns:
    last = max(number for number, turn in enumerate(turns) if turn)
    return [turn[:-1] if number == last else turn for number, turn in enumerate(turns)]


def shuffled(turns: Turns, tools: Sequence[str], rng: Random) -> Turns:
    return [rng.sample(turn, len(turn)) for turn in turns]


def one_more(turns: Turns, tools: Sequence[str], rng: Random) -> Turns:
    """The ground truth, and a call that looks around or fails in one of the turns: mostly harmless."""
    at = rng.randrange(len(turns))
    return [[*turn, (rng.choice(tools), {})] if number == at else turn for number, turn in enumerate(turns)]


def one_changed(turns: Turns, tools: Sequence[str], rng: Random) -> Turns:
    """One argument of one call is another."""
    places = [(a, b, key) for a, turn in enumerate(turns) for b, (_, named) in enumerate(turn) for key in named]
    if not places:
        return without_the_last(turns, tools, rng)
    a, b, key = rng.choice(places)
    spoilt = [[(name, dict(named)) for name, named in turn] for turn in turns]
    value = spoilt[a][b][1][key]
    spoilt[a][b][1][key] = value + 1 if isinstance(value, int | float) else f"{value}x"
    return spoilt


def one_early(turns: Turns, tools: Sequence[str], rng: Random) -> Turns:
    """The first call of a turn is made in the one before."""
    moved = [list(turn) for turn in turns]
    places = [number for number in range(1, len(turns)) if turns[number]]
    if places:
        at = rng.choice(places)
        moved[at - 1].append(moved[at].pop(0))
    return moved


PERTURBATIONS: tuple[Callable[[Turns, Sequence[str], Random], Turns], ...] = (
    without_the_last, shuffled, one_more, one_changed, one_early,
)  # fmt: skip


async def play(environment: BfclEnvironment, task: str, turns: Turns) -> Played:
    """Play scripted turns: one call a step, more only where the limit of steps would not allow it."""
    episode = await environment.reset(environment.task(task))
    try:
        for turn in turns:
            await say(episode, turn)
        verdict = await episode.verdict()
        return Played(verdict["outcome"], verdict["failure"], sum(len(turn) for turn in turns))
    finally:
        await episode.aclose()


async def say(episode: BfclEpisode, turn: Sequence[Call]) -> None:
    """The calls of one turn of the user, and its end."""
    for calls in in_steps(turn):
        made = [ToolCall(name, json.dumps(named), f"call-{number}") for number, (name, named) in enumerate(calls)]
        seen = await episode.step(made, "")
        assert [message["tool_call_id"] for message in seen.messages] == [call.id for call in made]
    await episode.step((), "done")


def in_steps(turn: Sequence[Call]) -> list[Sequence[Call]]:
    size = max(1, math.ceil(len(turn) / STEP_LIMIT))
    return [turn[at : at + size] for at in range(0, len(turn), size)]


def official(python: Path, runs: Iterable[tuple[str, Turns]]) -> list[dict[str, Any]]:
    """What bfcl-eval's own checker says of the same runs."""
    return ask_official(python, [(task, _written(turns)) for task, turns in runs])


def ask_official(python: Path, runs: Iterable[tuple[str, list[list[list[str]]]]]) -> list[dict[str, Any]]:
    """The same, of calls as text; it evaluates them."""
    asked = "".join(json.dumps({"task": task, "calls": calls}) + "\n" for task, calls in runs)
    answered = subprocess.run(
        [str(python), "-I", "-B", str(OFFICIAL)], input=asked, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in answered.stdout.splitlines()]


def _written(turns: Turns) -> list[list[list[str]]]:
    return [
        [[f"{name}({', '.join(f'{key}={value!r}' for key, value in named.items())})" for name, named in step]
         for step in in_steps(turn)]
        for turn in turns
    ]  # fmt: skip


def agrees(run: Played, verdict: dict[str, Any]) -> bool:
    """Whether ours passes where theirs does, and fails for the same reason."""
    return (run.outcome == 1.0) == verdict["valid"] and run.failure == verdict["error_type"]


async def held_back_on_time(environment: BfclEnvironment, task: str, given: Given) -> bool:
    """Whether every function that the task holds back is missing before its turn, announced, and there from then on."""
    episode = await environment.reset(environment.task(task))
    try:
        for turn in range(len(given.turns)):
            offered = {tool["function"]["name"] for tool in episode.tools}
            late = {name for at, names in given.held_back.items() if at > turn for name in names}
            due = {name for at, names in given.held_back.items() if at <= turn for name in names}
            if late & offered or due - offered:
                return False
            seen = await episode.step((), "")
            if turn + 1 in given.held_back and [said["content"] for said in seen.messages] != [HELD_BACK_SAYS]:
                return False
        return bool(given.held_back)
    finally:
        await episode.aclose()
