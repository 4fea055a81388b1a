"""Self-made tasks: verified by executing their reference again, in the world as it is when they are attempted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.messages import Step, Task, ToolCall
from actors.ports.environments import Environment, Episode, Observation, Stateful
from actors.ports.errors import EnvironmentFailed
from actors.ports.reference_calls import ReferenceCall, SyntheticTaskSpec
from actors.ports.tool_answers.reader import failed as refused
from adapters.environments.synthetic_tasks import SyntheticTasks
from adapters.environments.travel import Drift, TravelDesk
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import BASE
from tests.support.fakes import FakeEnvironment

pytestmark = pytest.mark.anyio


def made(
    base: Task, goal: str, *reference: tuple[str, dict[str, Any]], verifier: str = "state", answer: str = ""
) -> Task:
    spec = {
        "base": base.spec,
        "base_goal": base.goal,
        "reference": [{"name": name, "arguments": arguments} for name, arguments in reference],
        "verifier": verifier,
        "environment": base.environment,
        "answer": answer,
    }
    return Task(id="made", goal=goal, environment=base.environment, spec=spec, origin="questioner")


def booking(base: Task) -> tuple[tuple[str, dict[str, Any]], ...]:
    """The calls that book in a world of family A, read off its records."""
    (ticket,) = Desk(base.spec["seed"], "A", BASE).tickets
    return (
        ("find_person", {"name": ticket.name}),
        ("search_flight", {"to": ticket.city}),
        ("book", {"fid": ticket.flight, "pid": ticket.person}),
        ("finish", {"answer": ticket.reference}),
    )


async def follow(episode: Episode, *calls: tuple[str, dict[str, Any]]) -> Observation:
    seen = Observation("", False)
    for name, arguments in calls:
        seen = await episode.step([ReferenceCall(name, arguments).call()], "")
    return seen


@pytest.fixture
def base() -> Task:
    return TravelDesk().sample(3, "train", "A")


def as_protocol(environment: SyntheticTasks) -> Environment:
    return environment


async def test_a_self_made_task_opens_with_its_own_goal_in_the_world_of_its_base(base: Task):
    episode = await as_protocol(SyntheticTasks(TravelDesk())).reset(made(base, "Please book it.", *booking(base)))
    assert episode.messages == [{"role": "user", "content": "Please book it."}]
    assert episode.tools == TravelDesk().tools()
    assert isinstance(episode, Stateful)


async def test_who_reaches_the_state_of_the_reference_has_solved_it_and_who_does_not_has_not(base: Task):
    environment = SyntheticTasks(TravelDesk())
    task = made(base, "Please book it.", *booking(base))
    good = await environment.reset(task)
    assert await good.evaluate() == 0.0  # not over
    assert (await follow(good, *booking(base))).done
    assert await good.evaluate() == 1.0
    lazy = await environment.reset(task)
    await follow(lazy, ("finish", {"answer": "done"}))
    assert await lazy.evaluate() == 0.0


async def test_the_attempts_of_a_group_share_one_replay(base: Task):
    environment = SyntheticTasks(TravelDesk())
    task = made(base, "Please book it.", *booking(base))
    for _ in range(8):
        await environment.reset(task)
    assert environment.counts == {"replayed": 1}


async def test_another_way_to_the_same_state_is_as_good(base: Task):
    episode = await SyntheticTasks(TravelDesk()).reset(made(base, "Please book it.", *booking(base)))
    person, flight, *rest = booking(base)
    await follow(episode, flight, ("weather", {"city": "Oslo"}), person, *rest)
    assert await episode.evaluate() == 1.0


async def test_a_drift_moves_the_mark_along_or_is_an_environment_that_failed(base: Task, tmp_path: Path):
    path = tmp_path / "drift.json"
    environment = SyntheticTasks(TravelDesk(path))
    task = made(base, "Please book it.", *booking(base))
    await environment.reset(task)
    Drift(rename={"weather": "sky"}).write(path)
    await environment.reset(task)
    assert environment.counts["replayed"] == 2  # other tools: executed anew
    Drift(rename={"book": "buy"}).write(path)
    with pytest.raises(EnvironmentFailed, match=r"no longer replays: call 3 \(book\) was answered .*no tool"):
        await environment.reset(task)
    with pytest.raises(EnvironmentFailed):
        await environment.reset(task)
    assert environment.counts == {"replayed": 3, "no_longer_replays": 2}


async def test_where_no_tool_closes_the_first_turn_without_calls_does(base: Task):
    episode = await SyntheticTasks(TravelDesk()).reset(made(base, "Please book it.", *booking(base)[:-1]))
    assert not (await follow(episode, *booking(base)[:-1])).done
    assert (await episode.step([], "It is booked.")).done
    assert await episode.evaluate() == 1.0


async def test_where_a_tool_closes_a_turn_without_calls_is_for_the_world_to_answer(base: Task):
    episode = await SyntheticTasks(TravelDesk()).reset(made(base, "Please book it.", *booking(base)))
    seen = await episode.step([], "It is booked.")
    assert (seen.text, seen.done) == ('{"error":"bad call"}'.replace(":", ": "), False)


@pytest.mark.parametrize(
    ("said", "outcome"), [("The flight is {}.", 1.0), ("No idea.", 0.0), ("K0 K1 K2 K3 {} " + "X1 " * 40, 0.0)]
)
async def test_an_answer_must_hold_the_value_that_the_reference_finds(base: Task, said: str, outcome: float):
    (ticket,) = Desk(base.spec["seed"], "A", BASE).tickets
    search = ("search_flight", {"to": ticket.city})
    episode = await SyntheticTasks(TravelDesk()).reset(
        made(base, "Which flight?", search, verifier="answer", answer="fid")
    )
    await follow(episode, search)
    await episode.step([], said.format(ticket.flight))
    assert await episode.evaluate() == outcome


async def test_an_answer_with_side_effects_is_none(base: Task):
    (ticket,) = Desk(base.spec["seed"], "A", BASE).tickets
    search = ("search_flight", {"to": ticket.city})
    episode = await SyntheticTasks(TravelDesk()).reset(
        made(base, "Which flight?", search, verifier="answer", answer="fid")
    )
    await follow(episode, *booking(base)[:-1])
    await episode.step([], f"It is {ticket.flight}.")
    assert await episode.evaluate() == 0.0


class HalfGrader:
    def __init__(self) -> None:
        self.seen: list[Step] = []

    async def grade(self, task: Task, steps: Sequence[Step]) -> float:
        self.seen = list(steps)
        return 0.5


async def test_a_graded_task_is_handed_to_the_grader_with_its_steps(base: Task):
    grader = HalfGrader()
    task = made(base, "Be kind.", verifier="graded")
    episode = await SyntheticTasks(TravelDesk(), grader).reset(task)
    await follow(episode, ("weather", {"city": "Oslo"}))
    await episode.step([], "Sunny.")
    assert await episode.evaluate() == 0.5
    assert [(step.tool_calls[0].name if step.tool_calls else step.text) for step in grader.seen] == [
        "weather",
        "Sunny.",
    ]
    with pytest.raises(EnvironmentFailed, match="without a grader"):
        await SyntheticTasks(TravelDesk()).reset(task)


async def test_tasks_of_the_environments_own_pass_through(base: Task):
    environment = SyntheticTasks(TravelDesk())
    assert environment.sample(3, "train", "A") == base
    episode = await environment.reset(base)
    await follow(episode, *booking(base))
    assert await episode.evaluate() == 1.0
    assert environment.counts == {}


async def test_what_cannot_be_verified_is_refused_with_its_reason(base: Task):
    environment = SyntheticTasks(TravelDesk())
    for task, reason in [
        (made(base, "Nothing."), "needs a reference"),
        (made(base, "Look.", ("weather", {"city": "Oslo"})), "changes nothing"),
        (msgspec.structs.replace(base, origin="questioner"), "not a self-made task"),
        (msgspec.structs.replace(made(base, "x", *booking(base)), environment="other"), "came to 'travel'"),
    ]:
        with pytest.raises(EnvironmentFailed, match=reason):
            await environment.reset(task)
    blind = FakeEnvironment()
    with pytest.raises(EnvironmentFailed, match="show no state"):
        await SyntheticTasks(blind).reset(made(blind.sample(0, "train", None), "Win.", ("win", {})))


async def test_the_goal_takes_the_place_of_the_opening_words_only(base: Task):
    class Polite(TravelDesk):
        async def reset(self, task: Task) -> Any:
            episode = await super().reset(task)
            opening = {"role": "user", "content": f"Dear clerk: {task.goal} Thank you."}
            episode.messages = [{"role": "system", "content": "You are a clerk."}, opening]
            return episode

    episode = await SyntheticTasks(Polite()).reset(made(base, "Please book it.", *booking(base)))
    assert [message["content"] for message in episode.messages] == [
        "You are a clerk.",
        "Dear clerk: Please book it. Thank you.",
    ]


def test_the_spec_survives_its_way_through_a_task(base: Task):
    spec = SyntheticTaskSpec.of(made(base, "Please book it.", *booking(base)))
    assert spec is not None
    again = msgspec.json.decode(msgspec.json.encode(spec), type=SyntheticTaskSpec)
    assert again == spec
    assert (spec.base_task.spec, spec.base_task.goal) == (base.spec, base.goal)


@pytest.mark.parametrize(
    ("answer", "is_refusal"),
    [
        ('{"error": "bad pid"}', True),
        ('{"error": null, "pid": "K1"}', False),
        ('{"isError": true}', True),
        ('{"status": 404}', True),
        ('{"status": 200}', False),
        ("Error: no such file", True),
        ("The terror of the sea", False),
        ("[" * 100_000, False),
        ('{"ok": "yes"}', False),
        ("", False),
    ],
)
def test_refusals_are_told_by_custom(answer: str, is_refusal: bool):
    assert refused(answer) == is_refusal


def test_a_call_is_made_as_an_agent_would_make_it():
    assert ReferenceCall("book", {"fid": "K1"}).call(2) == ToolCall("book", '{"fid":"K1"}', "call_2")
