"""The outcome of an attempt is the official checker's verdict; turns, tools and limits are the official harness's."""

import json
from random import Random

import anyio
import pytest

from actors.messages import ToolCall
from adapters.environments.bfcl.catalogue import FAMILIES
from tests.bfcl.conftest import PYTHON
from tests.support.bfcl_runs import PERTURBATIONS, agrees, held_back_on_time, nothing, official, play, say

pytestmark = pytest.mark.anyio


def calling(name: str, id: str = "c", /, **arguments: object) -> ToolCall:
    return ToolCall(name, json.dumps(arguments), id)


@pytest.fixture
def bfcl(shared, anyio_backend):
    """Shared: nothing here harms a worker."""
    return shared(anyio_backend)


@pytest.mark.parametrize("category", FAMILIES.values())
async def test_the_ground_truth_passes_in_all_tasks_and_silence_in_none(category: str, bfcl, given):
    tasks = {task: each for task, each in given.items() if task.rpartition("_")[0] == category}
    right = [await play(bfcl, task, each.turns) for task, each in tasks.items()]
    idle = [await play(bfcl, task, nothing(each.turns)) for task, each in tasks.items()]
    assert [run.failure for run in right] == [""] * 200
    assert sum(run.outcome for run in right) == 200
    assert sum(run.outcome for run in idle) == 0


async def test_spoilt_runs_are_judged_as_officially(bfcl, given):
    """A sample of the 5,600 that were once compared (docs/measured.md)."""
    rng = Random("spoilt")
    tools = [tool["function"]["name"] for tool in bfcl.tools()]
    by_category = [[task for task in given if task.rpartition("_")[0] == category] for category in FAMILIES.values()]
    runs = [
        (task, spoil(given[task].turns, tools, rng))
        for spoil in PERTURBATIONS
        for tasks in by_category
        for task in rng.sample(tasks, 15)
    ]
    ours = [await play(bfcl, *run) for run in runs]
    theirs = await anyio.to_thread.run_sync(official, PYTHON, runs)
    assert {verdict["valid"] for verdict in theirs} == {True, False}
    assert [run for run, mine, other in zip(runs, ours, theirs, strict=True) if not agrees(mine, other)] == []


async def test_functions_that_are_held_back_come_with_their_turn_and_are_announced(bfcl, given):
    tasks = {task: each for task, each in given.items() if "miss_func" in task}
    assert len(tasks) == 200
    assert [task for task, each in tasks.items() if not await held_back_on_time(bfcl, task, each)] == []


async def test_every_call_of_a_turn_is_answered_in_order_also_between_mistakes(bfcl):
    episode = await bfcl.reset(bfcl.task("multi_turn_base_0"))
    seen = await episode.step(
        [
            calling("pwd", "one"),
            ToolCall("ls", "{not json", "two"),
            calling("no_such_tool", "three"),
            ToolCall("cd", '["document"]', "four"),
            calling("cd", "five", folder="document"),
            calling("pwd", "six"),
        ],
        "",
    )
    assert [message["tool_call_id"] for message in seen.messages] == ["one", "two", "three", "four", "five", "six"]
    told = [message["content"] for message in seen.messages]
    assert told[0] == '{"current_working_directory": "/workspace"}'
    assert "not JSON" in told[1]
    assert told[2] == "Error during execution: name 'no_such_tool' is not defined"
    assert "not a JSON object" in told[3]
    assert told[5] == '{"current_working_directory": "/workspace/document"}'
    assert seen.text == "\n".join(told)


async def test_a_turn_without_calls_brings_what_the_user_says_next(bfcl, given):
    turns = given["multi_turn_base_0"].turns
    episode = await bfcl.reset(bfcl.task("multi_turn_base_0"))
    said = [episode.messages]
    for _ in range(len(turns) - 1):
        said.append(list((await episode.step((), "done")).messages))
    assert all([message["role"] for message in messages] == ["user"] for messages in said)
    assert len({messages[0]["content"] for messages in said}) == len(turns)
    last = await episode.step((), "done")
    assert last.done
    assert last.messages == ()


async def test_too_many_steps_in_a_turn_end_the_attempt_as_the_harness_counts_them_anew_in_each(bfcl):
    episode = await bfcl.reset(bfcl.task("multi_turn_base_0"))
    before = episode.tools
    for _ in range(20):
        assert not (await episode.step([calling("pwd")], "")).done
    await episode.step((), "")
    assert episode.tools == before, "nothing is held back in this category"
    over = [(await episode.step([calling("pwd")], "")).done for _ in range(21)]
    assert over == [False] * 20 + [True]
    assert (await episode.verdict())["failure"] == "multi_turn:force_terminated"
    assert await episode.evaluate() == 0.0


async def test_running_into_the_limit_in_the_last_turn_is_still_judged(opened, given):
    """The harness stops the last turn early and checks it like any other: too long, but right, passes."""
    async with opened(workers=1, steps_per_turn=10) as bfcl:
        task = "multi_turn_base_0"
        episode = await bfcl.reset(bfcl.task(task))
        for turn in given[task].turns[:-1]:
            await say(episode, turn)
        await episode.step([calling(name, **named) for name, named in given[task].turns[-1]], "")
        over = [(await episode.step([calling("pwd")], "")).done for _ in range(10)]
        assert over == [False] * 9 + [True]
        assert await episode.evaluate() == 1.0


async def test_calls_where_none_should_be_fail_only_with_the_irrelevance_rule(opened, given):
    """The official score leaves `multi_turn_irrelevance_checker` out; so does ours, unless it is asked for."""
    outcomes = []
    for irrelevance in (False, True):
        async with opened(workers=1, irrelevance=irrelevance) as bfcl:
            turns = [list(turn) for turn in given["multi_turn_miss_func_0"].turns]
            turns[turns.index([])].append(("pwd", {}))
            outcomes.append(await play(bfcl, "multi_turn_miss_func_0", turns))
    assert [(run.outcome, run.failure) for run in outcomes] == [
        (1.0, ""),
        (0.0, "multi_turn:irrelevance_error:decoder_success"),
    ]


async def test_a_scenario_is_on_one_side_of_the_split_in_all_its_categories(bfcl):
    sides: dict[str, set[str]] = {}
    for split in ("train", "heldout"):
        for seed in range(800):
            task = bfcl.sample(seed, split, None)
            sides.setdefault(task.spec["id"].rpartition("_")[2], set()).add(split)
    assert len(sides) == 200
    assert all(len(splits) == 1 for splits in sides.values())
    assert sum(splits == {"heldout"} for splits in sides.values()) in range(30, 60)


async def test_seeds_go_through_every_task_once_before_any_comes_again(bfcl):
    ids = [bfcl.sample(seed, "heldout", "F").spec["id"] for seed in range(48)]
    assert len(set(ids)) == 48
    assert bfcl.sample(48, "heldout", "F").spec["id"] == ids[0]
    assert all("miss_func" in task for task in ids)


async def test_the_profile_has_names_that_exist_in_training_worlds(bfcl):
    profile = bfcl.profile()
    found = set()
    for seed in range(3 * 152):
        episode = await bfcl.reset(bfcl.sample(seed, "train", "BFP"))
        found.add(json.dumps(await episode.state()))
        await episode.aclose()
    everything = "\n".join(found)
    for name in ("file_name", "stock", "symbol", "username", "booking_id", "card_id"):
        assert [value for value in profile.entities[name] if f'"{value}"' not in everything] == []


async def test_a_reached_state_is_the_same_whatever_way_led_there(bfcl):
    task = bfcl.task("multi_turn_base_0")
    one, other = await bfcl.reset(task), await bfcl.reset(task)
    await one.step([calling("touch", file_name="a.txt"), calling("touch", file_name="b.txt")], "")
    await other.step([calling("touch", file_name="a.txt")], "")
    assert await one.state() != await other.state()
    await other.step([calling("ls")], "")
    await other.step([calling("touch", file_name="b.txt")], "")
    assert await one.state() == await other.state()


@pytest.mark.parametrize(
    "call",
    [
        calling("power", base=10, exponent=10**10),
        calling("logarithm", value=7.5, base=3, precision=10**9),
        calling("logarithm", value=7.5, base=3, precision=100_000),
        calling("square_root", number=2, precision=10**9),
    ],
    ids=lambda call: f"{call.name}-{call.arguments[-14:]}",
)
async def test_a_computation_without_end_is_a_mistake_that_costs_nobody_else(call, bfcl):
    """Each of these would keep the official driver busy for minutes, or for ever."""
    episode, other = [await bfcl.reset(bfcl.task("multi_turn_base_15")) for _ in range(2)]
    before = bfcl.pool.pids
    seen = await episode.step([call], "")
    assert "Error during execution: " in seen.text
    assert "3" in (await other.step([calling("absolute_value", number=-3)], "")).text
    assert bfcl.pool.pids == before
