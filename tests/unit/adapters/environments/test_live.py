"""Live APIs as a sandbox: goals from a file, shadow answers, a grader's word."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.messages import Step, Task, ToolCall
from actors.ports.environments import Graded
from actors.ports.errors import AdapterNotSetUp, EnvironmentFailed, LiveApiUnavailable, ModelUnavailable
from actors.ports.models import Grade
from adapters.environments.live import LiveEnvironment
from adapters.graders.ensemble import EnsembleGrader
from adapters.live.audit import AuditLog
from adapters.live.guarded import Guarded
from adapters.live.policy import PolicySettings
from adapters.live.recording import Recordings
from adapters.live.toolset import LiveTools
from tests.support.scripted_live_api import CallsLiked, ScriptedLiveApi, operation

pytestmark = pytest.mark.anyio
TEXT = {"type": "string"}
ORDER = {"name": "crm__get_order", "arguments": {"id": "A1"}}


class Comparing:
    """Abstains without a reference; likes attempts that made its calls."""

    name, needs_reference = "comparing", True

    async def grade(self, task: Task, steps: Sequence[Step], *, reference: Sequence[ToolCall] = ()) -> Grade:
        if not reference:
            return Grade(reason="no_reference")
        made = [(call.name, json.loads(call.arguments)) for step in steps for call in step.tool_calls]
        return Grade(score=float(made == [(call.name, json.loads(call.arguments)) for call in reference]))


class Away:
    name = "away"

    async def grade(self, task: Task, steps: Sequence[Step], *, reference: Sequence[ToolCall] = ()) -> Grade:
        raise ModelUnavailable("no answer")


class Desk:
    """A sandbox over an API that agents may change, and what it asked that API."""

    def __init__(self, directory: Path) -> None:
        self.api = ScriptedLiveApi(operation("get_order", id=TEXT), operation("delete_order", id=TEXT))
        self.goals = directory / "goals.jsonl"
        self.write(*({"goal": f"Where is order A{number}?"} for number in range(40)))
        self._guarded = Guarded(
            # As it may be registered for agents: they do delete. What a sandbox gets of it is its shadow.
            self.api, PolicySettings(mode="live", allow=("*",), read_only=("get_*",)),
            recordings=Recordings(directory / "records"), audit=AuditLog(directory / "audit.jsonl"),
        )  # fmt: skip

    def write(self, *lines: dict[str, Any]) -> None:
        self.goals.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def __call__(self, grader: Any, **options: Any) -> LiveEnvironment:
        tools = LiveTools(lambda: {"crm": self._guarded.shadow()})
        return LiveEnvironment(tools, grader, **{"goals": str(self.goals), **options})


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def calling(name: str, number: str = "A1", key: str = "call-0") -> ToolCall:
    return ToolCall(f"crm__{name}", json.dumps({"id": number}), key)


async def test_an_attempt_reads_for_real_and_changes_nothing(desk: Desk) -> None:
    grader = CallsLiked("crm__get_order")
    environment = desk(grader)
    episode = await environment.reset(environment.sample(0, "train", None))
    assert isinstance(episode, Graded)
    assert episode.graded, "no execution verifies what became of it"
    assert [tool["function"]["name"] for tool in episode.tools] == ["crm__get_order", "crm__delete_order"]
    seen = await episode.step([calling("get_order"), calling("delete_order", key="call-1")], "")
    assert (seen.done, await episode.evaluate()) == (False, 0.0)
    assert (await episode.step([], "It is on its way.")).done
    assert await episode.evaluate() == 1.0
    assert desk.api.asked == [("get_order", {"id": "A1"})]
    (steps,) = grader.seen
    assert [(len(step.tool_calls), step.text) for step in steps] == [(2, ""), (0, "It is on its way.")]


async def test_who_calls_for_ever_is_stopped_and_graded_by_what_came_of_it(desk: Desk) -> None:
    grader = CallsLiked("crm__get_order")
    environment = desk(grader, limit=3)
    episode = await environment.reset(environment.sample(0, "train", None))
    assert [(await episode.step([calling("get_order")], "")).done for _ in range(3)] == [False, False, True]
    assert await episode.evaluate() == 1.0
    assert all(step.observation for step in grader.seen[0])


async def test_an_outage_is_no_failure_of_the_agent(desk: Desk) -> None:
    environment = desk(CallsLiked("crm__get_order"))
    episode = await environment.reset(environment.sample(0, "train", None))

    async def away(tool, arguments):
        raise LiveApiUnavailable("away")

    desk.api.answer = away
    with pytest.raises(EnvironmentFailed, match="away"):
        await episode.step([calling("get_order")], "")


@pytest.mark.parametrize(("number", "outcome"), [("A1", 1.0), ("A2", 0.0)])
async def test_a_grader_that_compares_has_the_reference_of_the_goal(desk: Desk, number: str, outcome: float) -> None:
    desk.write(*({"goal": f"Where is A1? I ask {n} times.", "reference": [ORDER]} for n in range(40)))
    environment = desk(Comparing())
    episode = await environment.reset(environment.sample(0, "train", None))
    assert "crm__" not in json.dumps(episode.messages), "the agent does not see it"
    await episode.step([calling("get_order", number)], "")
    await episode.step([], "It is on its way.")
    assert await episode.evaluate() == outcome


@pytest.mark.parametrize("grader", [Comparing(), Away()], ids=lambda one: one.name)
async def test_an_attempt_without_a_grade_has_no_outcome(desk: Desk, grader: Any) -> None:
    desk.write(*({"goal": f"{n}", "reference": [ORDER]} for n in range(40)))
    environment = desk(grader)
    task = environment.sample(0, "train", None)
    task.spec["reference"] = []
    episode = await environment.reset(task)
    await episode.step([], "done")
    with pytest.raises(EnvironmentFailed, match="no grade"):
        await episode.evaluate()


SOME = [{"goal": "0", "reference": [ORDER]}, *({"goal": f"{n}"} for n in range(1, 40))]


@pytest.mark.parametrize(
    ("lines", "grader", "options", "complaint"),
    [
        (SOME, CallsLiked("x"), {"goals": ""}, "goals is empty"),
        (SOME, CallsLiked("x"), {"goals": "/no/such/file"}, "No such file"),
        (SOME, CallsLiked("x"), {"limit": 0}, "limit = 0"),
        (SOME, None, {}, "sandbox.grader"),
        (SOME, Comparing(), {}, r'39 of 40 goals .* have none, .*"reference": .* or set sandbox.grader = "open"'),
        (SOME, EnsembleGrader([Comparing(), CallsLiked("x")], quorum=2, timeout=1.0), {}, "ensemble compares"),
        ([{"goal": "x"}, {"gaol": "y"}], CallsLiked("x"), {}, "line 2"),
        ([{"goal": "x"}], CallsLiked("x"), {}, "one in 5 is held out"),
    ],
)
def test_what_cannot_work_is_said_with_its_setting(desk: Desk, lines, grader, options, complaint) -> None:
    desk.write(*lines)
    with pytest.raises(AdapterNotSetUp, match=complaint):
        desk(grader, **options)
