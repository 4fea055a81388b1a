"""Tasks are kept because they were executed, dropped for a reason that is counted, and told apart from each other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.messages import Task, ToolCall
from actors.ports.environments import Environment, Episode
from actors.tasks.questioner.filters import Dropped, Filters, Proposal
from actors.tasks.questioner.generating import Generator
from actors.tasks.questioner.programs import Argument, Operation, Program
from actors.tasks.questioner.settings import FilterSettings, Preferences, ProbeSettings, QuestionerSettings
from actors.tasks.questioner.state import QuestionerState, read, write
from actors.tasks.reference_calls import SyntheticTaskSpec
from adapters.embedders.hashing import HashingEmbedder
from adapters.environments.synthetic_tasks import SyntheticTasks
from adapters.environments.travel import Drift, TravelDesk
from tests.support.ledger import Ledger

pytestmark = pytest.mark.anyio


class Training(TravelDesk):
    """Has training tasks alone to show."""

    def sample(self, seed: int, split: Any, families: str | None) -> Task:
        assert split == "train"
        return super().sample(seed, split, families)


WORLDS: dict[str, Callable[[], Environment]] = {"travel": Training, "ledger": Ledger}


def generating(environment: Environment, settings: QuestionerSettings | None = None, **options: Any) -> Generator:
    return Generator(settings or QuestionerSettings(), environment, clock=lambda: 0.0, **options)


async def made(environment: Environment, count: int, **options: Any) -> QuestionerState:
    return await generating(environment, embedder=HashingEmbedder(), **options).run(count, lambda state: None)


async def follow(episode: Episode, task: Task) -> float:
    """Make the calls of the reference, and say what the verifier wants to hear."""
    said = ""
    for call in task.spec["reference"]:
        seen = await episode.step([ToolCall(call["name"], msgspec.json.encode(call["arguments"]).decode())], "")
        said = seen.text
        if seen.done:
            return await episode.evaluate()
    await episode.step([], said)
    return await episode.evaluate()


def told(arguments: dict[str, Any], *names: str) -> list[str]:
    return [arguments[name] for name in names if name in arguments]


@pytest.mark.parametrize("world", WORLDS)
async def test_every_kept_task_is_solved_by_its_reference_and_by_doing_nothing_never(world: str):
    state = await made(WORLDS[world](), 40)
    assert (state.ended, len(state.tasks)) == ("complete", 40)
    assert state.counts["replayed"] == state.counts["replays"]
    environment = SyntheticTasks(WORLDS[world]())
    for task in state.tasks:
        assert await follow(await environment.reset(task), task) == 1.0
        idle = await environment.reset(task)
        for _ in range(30):
            if (await idle.step([], "done")).done:
                break
        assert await idle.evaluate() == 0.0
        given = {value for call in task.spec["reference"] for value in told(call["arguments"], "name", "to", "owner")}
        found = {value for call in task.spec["reference"] for value in told(call["arguments"], "pid", "fid", "account")}
        assert all(value in task.goal for value in given), "a goal names what must be told"
        assert not found & set(task.goal.split()), "and nothing that must be found out"


async def test_goals_are_told_in_the_environments_own_words_where_its_verifier_agrees():
    state = await made(TravelDesk(), 20, settings=QuestionerSettings(prefer=Preferences(wording="learned")))
    patterns = {"*".join(template.parts) for template in state.templates if template.believed}
    assert patterns == {
        "Book a flight to:* for:*.",
        "Cancel the order for:*.",
        "Cancel the order for:* and book a flight to:*.",
    }
    for task in state.tasks:
        spec = SyntheticTaskSpec.of(task)
        assert any(template.read(task.goal) is not None for template in state.templates)
        assert ("Book" in task.goal or "book" in task.goal) == any(call.name == "book" for call in spec.reference)
        assert ("Cancel" in task.goal) == any(call.name == "cancel" for call in spec.reference)


async def test_preferences_choose_difficulty_and_entities():
    prefer = Preferences(difficulty=(3,), use={"to": ("Oslo", "Rome")}, avoid={"name": ("Mia",)})
    state = await made(TravelDesk(), 6, settings=QuestionerSettings(prefer=prefer))
    assert len(state.tasks) == 6
    for task in state.tasks:
        assert task.difficulty == 0.7
        cities = {call["arguments"]["to"] for call in task.spec["reference"] if "to" in call["arguments"]}
        assert cities <= {"Oslo", "Rome"}
        assert "Mia" not in task.goal
    assert state.reasons["difficulty"] > 0


async def test_a_run_that_is_cut_off_goes_on_to_the_same_tasks(tmp_path: Path):
    path = tmp_path / "tasks.json"
    whole = await made(TravelDesk(), 25)
    first = generating(TravelDesk(), embedder=HashingEmbedder())
    for _ in range(2):
        await first.round(25 - len(first.state.tasks))
        write(first.state, path)
    second = generating(TravelDesk(), embedder=HashingEmbedder(), state=read(path))
    await second.run(25, lambda state: None)
    assert [task.goal for task in second.state.tasks] == [task.goal for task in whole.tasks]
    assert second.state.counts == whole.counts


async def test_a_world_that_answers_differently_each_time_gives_no_task():
    class Moody(Ledger):
        async def reset(self, task: Task) -> Any:
            episode = await super().reset(task)
            mood, plain = self.resets, episode.state

            async def state() -> dict[str, Any]:
                return {"mood": mood, **await plain()}

            episode.state = state  # type: ignore[method-assign]
            return episode

    state = await made(Moody(), 5, probe=ProbeSettings(barren=4))
    assert state.tasks == []
    assert state.counts.get("replayed", 0) == 0
    assert state.reasons["does_not_replay"] > 0
    assert "in a row gave no new task" in state.ended


async def test_after_a_drift_the_new_tools_are_found_out_and_the_old_programs_forgotten(tmp_path: Path):
    path = tmp_path / "drift.json"
    generator = generating(TravelDesk(path))
    await generator.run(10, lambda state: None)
    Drift(rename={"book": "buy"}).write(path)
    for _ in range(25):
        await generator.round(1000)
    names = [call["name"] for task in generator.state.tasks[10:] for call in task.spec["reference"]]
    assert "buy" in names
    assert "book" not in names
    assert generator.state.counts["programs_stale"] > 0


class Policy:
    """Always books, never cancels, and does both now and then."""

    asked = 0

    async def attempt(self, task: Task, attempts: int) -> float:
        self.asked += 1
        return {"Book": 1.0, "Cancel": 0.0}.get(task.goal.split()[0], 0.5)


async def test_what_the_policy_always_or_never_solves_is_dropped_after_a_second_look():
    policy = Policy()
    state = await made(TravelDesk(), 10, settings=QuestionerSettings(attempts=4), solver=policy)
    assert state.tasks
    assert not any(task.goal.startswith(("Book", "Cancel")) for task in state.tasks)
    assert state.reasons["too_easy"] > 0
    assert state.reasons["too_hard"] > 0
    extremes = state.reasons["too_easy"] + state.reasons["too_hard"]
    assert policy.asked == len(state.tasks) + 2 * extremes


def proposal(goal: str, world: str = "w", after: str = "x", base_goal: str = "Base.", **given: str) -> Proposal:
    arguments = tuple(Argument(name, value) for name, value in given.items())
    spec = {"base": {"world": world}, "base_goal": base_goal}
    return Proposal(
        task=Task(id=f"{goal}-{world}-{after}", goal=goal, environment="e", spec=spec, origin="questioner"),
        program=Program((Operation("look"), Operation("do", arguments))),
        shape="s",
        before={"at": ""},
        after={"at": after},
    )


async def reason(new: Proposal, *kept: Proposal, **settings: Any) -> str:
    filters = Filters(FilterSettings(**settings), Preferences(), HashingEmbedder())
    for one in kept:
        assert await filters.check(one) is None
        filters.keep(one)
    dropped = await filters.check(new)
    return dropped.reason if isinstance(dropped, Dropped) else ""


async def test_each_filter_drops_what_it_is_for():
    kept = proposal("Please cancel the order of Mia now", name="Mia")
    assert await reason(proposal("Do nothing.", after="")) == "no_op"
    assert await reason(proposal("base.  ", base_goal="Base.")) == "not_novel"
    assert await reason(proposal("Cancel the order of Mia now, please!", world="v", name="Mia"), kept) == "lexical"
    assert await reason(proposal("Wholly other words.", name="Mia"), kept) == "same_outcome"
    assert await reason(proposal("Please cancel the order of Mia now", after="y", name="Mia"), kept) == "ambiguous"
    assert await reason(proposal("Please cancel the order of Leo now", world="v", name="Leo"), kept) == ""
    assert await reason(proposal("Please cancel the order of Mia now", world="v", name="Leo"), kept) == "ambiguous"
    new = proposal("Cancelled Mia order", world="v", name="Mia")
    assert await reason(new, proposal("Cancelling Mia's orders", name="Mia"), semantic=0.5) == "semantic"
