"""Tasks told more openly."""

import msgspec
import pytest

from actors.messages import Task
from actors.ports.environments import Environment
from actors.ports.reference_calls import ReferenceCall, SyntheticTaskSpec
from actors.tasks.rewriting import easier
from adapters.environments.synthetic_tasks import SyntheticTasks
from adapters.environments.travel import TravelDesk
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import BASE
from tests.warmstart.travel_oracle import good_actions


def self_made(**fields: object) -> Task:
    """A task of the travel desk with the answer key as its reference."""
    base = TravelDesk().sample(1, "train", "A")
    desk, calls = Desk(base.spec["seed"], "A", BASE), []
    while not desk.done:
        name, arguments = good_actions(desk)[0]
        desk.call(name, arguments)
        calls.append(ReferenceCall(name, arguments))
    spec = SyntheticTaskSpec(
        base=base.spec, base_goal=base.goal, reference=tuple(calls), verifier="state", environment="travel",
        made_from=("run-1",), **fields,
    )  # fmt: skip
    return Task(
        id="t", goal="Get them there.", environment="travel", origin="production", spec=msgspec.to_builtins(spec)
    )


def test_first_the_tools_are_told_then_the_calls_then_there_is_nothing_left_to_tell() -> None:
    plain = self_made()
    one = easier(plain)
    two = easier(one)
    assert one.goal == "Get them there.\n(It takes find_person, then search_flight, then book, then finish.)"
    assert two.goal.startswith('Get them there.\n(It takes find_person {"name":')
    assert two.goal.count("It takes") == 1
    assert easier(two) is None
    assert len({plain.id, one.id, two.id}) == 3
    assert plain.difficulty > one.difficulty > two.difficulty


@pytest.mark.anyio
async def test_the_easier_task_is_verified_like_the_plain_one() -> None:
    environment: Environment = SyntheticTasks(TravelDesk())
    task = easier(self_made())
    episode = await environment.reset(task)
    assert episode.messages[-1]["content"] == task.goal
    for number, call in enumerate(SyntheticTaskSpec.of(task).reference):
        await episode.step([call.call(number)], "")
    assert await episode.evaluate() == 1.0
    await episode.aclose()
