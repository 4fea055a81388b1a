"""Self-made tasks: verified by executing their reference again, in the world as it is when they are attempted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.messages import Step, Task, ToolCall
from actors.ports.environments import Episode, Observation
from actors.ports.errors import EnvironmentFailed, ModelUnavailable
from actors.ports.models import Grade
from actors.tasks.reference_calls import ReferenceCall
from adapters.environments.synthetic_tasks import SyntheticTasks
from adapters.environments.travel import Drift, TravelDesk
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import BASE
from tests.support.fakes import FakeEnvironment

pytestmark = pytest.mark.anyio
Call = tuple[str, dict[str, Any]]
TASK = TravelDesk().sample(3, "train", "A")
(TICKET,) = Desk(TASK.spec["seed"], "A", BASE).tickets
PERSON: Call = ("find_person", {"name": TICKET.name})
SEARCH: Call = ("search_flight", {"to": TICKET.city})
BOOK: Call = ("book", {"fid": TICKET.flight, "pid": TICKET.person})
FINISH: Call = ("finish", {"answer": TICKET.reference})
BOOKING = (PERSON, SEARCH, BOOK, FINISH)


def made(*reference: Call, base: Task = TASK, **fields: str) -> Task:
    spec = {
        "base": base.spec, "base_goal": base.goal, "environment": base.environment,
        "reference": [{"name": name, "arguments": arguments} for name, arguments in reference],
        "verifier": "state", "answer": "", **fields,
    }  # fmt: skip
    return Task(id="made", goal="Please book it.", environment=base.environment, spec=spec, origin="questioner")


async def begun(*reference: Call, **fields: str) -> Episode:
    return await SyntheticTasks(TravelDesk()).reset(made(*reference, **fields))


async def follow(episode: Episode, *calls: Call, said: str | None = None) -> Observation:
    seen = Observation("", False)
    for name, arguments in calls:
        seen = await episode.step([ReferenceCall(name, arguments).call()], "")
    return seen if said is None else await episode.step([], said)


FOUND = {"verifier": "answer", "answer": "fid"}


@pytest.mark.parametrize(
    ("reference", "fields", "calls", "said", "outcome"),
    [
        (BOOKING, {}, BOOKING, None, 1.0),
        # Another way to the same state.
        (BOOKING, {}, (SEARCH, ("weather", {"city": "Oslo"}), PERSON, BOOK, FINISH), None, 1.0),
        (BOOKING, {}, (("finish", {"answer": "done"}),), None, 0.0),
        # An answer must hold the value that the reference finds, and not everything at once, nor with a side effect.
        ((SEARCH,), FOUND, (SEARCH,), "The flight is {}.", 1.0),
        ((SEARCH,), FOUND, (SEARCH,), "No idea.", 0.0),
        ((SEARCH,), FOUND, (SEARCH,), "K0 K1 K2 K3 {} " + "X1 " * 40, 0.0),
        ((SEARCH,), FOUND, (PERSON, SEARCH, BOOK), "It is {}.", 0.0),
    ],
)
async def test_who_reaches_what_the_reference_does_has_solved_it(reference, fields, calls, said, outcome):
    episode = await begun(*reference, **fields)
    assert (await follow(episode, *calls, said=said and said.format(TICKET.flight))).done
    assert await episode.evaluate() == outcome


async def test_a_drift_moves_the_mark_along_or_is_an_environment_that_failed(tmp_path: Path):
    path = tmp_path / "drift.json"
    environment = SyntheticTasks(TravelDesk(path))
    task = made(*BOOKING)
    for _ in range(8):
        await environment.reset(task)
    assert environment.counts == {"replayed": 1}  # once for a group's attempts
    Drift(rename={"weather": "sky"}).write(path)
    await environment.reset(task)
    assert environment.counts["replayed"] == 2  # other tools: executed anew
    Drift(rename={"book": "buy"}).write(path)
    for _ in range(2):
        with pytest.raises(EnvironmentFailed, match=r"no longer replays: call 3 \(book\) was answered .*no tool"):
            await environment.reset(task)
    assert environment.counts == {"replayed": 3, "no_longer_replays": 2}


async def test_where_no_tool_closes_the_first_turn_without_calls_does():
    episode = await begun(PERSON, SEARCH, BOOK)
    assert not (await follow(episode, PERSON, SEARCH, BOOK)).done
    assert (await episode.step([], "It is booked.")).done
    assert await episode.evaluate() == 1.0
    closed_by_a_tool = await begun(*BOOKING)
    seen = await closed_by_a_tool.step([], "It is booked.")
    assert (seen.text, seen.done) == ('{"error": "bad call"}', False), "for the world to answer"


class HalfGrader:
    name = "half"

    def __init__(self, score: float | None = 0.5) -> None:
        self.score, self.seen, self.reference = score, list[Step](), list[ToolCall]()

    async def grade(self, task: Task, steps: Sequence[Step], *, reference: Sequence[ToolCall] = ()) -> Grade:
        self.seen, self.reference = list(steps), list(reference)
        return Grade(score=self.score, reason="so it is")


async def test_a_graded_task_is_handed_to_the_grader_with_its_steps_and_an_abstention_is_no_outcome():
    grader, task = HalfGrader(), made(SEARCH, verifier="graded")
    episode = await SyntheticTasks(TravelDesk(), grader).reset(task)
    await follow(episode, ("weather", {"city": "Oslo"}), said="Sunny.")
    assert await episode.evaluate() == 0.5
    assert [call.name for call in grader.reference] == ["search_flight"]
    grader.score = None
    with pytest.raises(ModelUnavailable, match="half abstains: so it is"):
        await episode.evaluate()
    assert [step.tool_calls[0].name if step.tool_calls else step.text for step in grader.seen] == ["weather", "Sunny."]
    with pytest.raises(EnvironmentFailed, match="without a grader"):
        await SyntheticTasks(TravelDesk()).reset(task)


async def test_tasks_of_the_environments_own_pass_through():
    environment = SyntheticTasks(TravelDesk())
    assert environment.sample(3, "train", "A") == TASK
    episode = await environment.reset(TASK)
    await follow(episode, *BOOKING)
    assert (await episode.evaluate(), environment.counts) == (1.0, {})


async def test_what_cannot_be_verified_is_refused_with_its_reason():
    blind = FakeEnvironment()
    for environment, task, reason in [
        (TravelDesk(), made(), "needs a reference"),
        (TravelDesk(), made(("weather", {"city": "Oslo"})), "changes nothing"),
        (TravelDesk(), msgspec.structs.replace(TASK, origin="questioner"), "not a self-made task"),
        (TravelDesk(), msgspec.structs.replace(made(*BOOKING), environment="other"), "came to 'travel'"),
        (blind, made(("win", {}), base=blind.sample(0, "train", None)), "show no state"),
    ]:
        with pytest.raises(EnvironmentFailed, match=reason):
            await SyntheticTasks(environment).reset(task)


async def test_the_goal_takes_the_place_of_the_opening_words_only():
    class Polite(TravelDesk):
        async def reset(self, task: Task) -> Any:
            episode = await super().reset(task)
            opening = {"role": "user", "content": f"Dear clerk: {task.goal} Thank you."}
            episode.messages = [{"role": "system", "content": "You are a clerk."}, opening]
            return episode

    episode = await SyntheticTasks(Polite()).reset(made(*BOOKING))
    told = [message["content"] for message in episode.messages]
    assert told == ["You are a clerk.", "Dear clerk: Please book it. Thank you."]
