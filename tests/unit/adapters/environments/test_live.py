"""Live APIs as a sandbox: goals from a file, shadow answers, a grader's word."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from actors.messages import Step, Task, ToolCall
from actors.ports.environments import Graded
from actors.ports.errors import AdapterNotSetUp, EnvironmentFailed, JudgeUnavailable, LiveApiUnavailable
from actors.ports.graders import Grade
from adapters.environments.live import LiveEnvironment
from adapters.live.audit import AuditLog
from adapters.live.guarded import Guarded
from adapters.live.policy import PolicySettings
from adapters.live.recording import Recordings
from adapters.live.toolset import LiveTools
from tests.support.scripted_live_api import CallsLiked, ScriptedLiveApi, operation

pytestmark = pytest.mark.anyio
TEXT = {"type": "string"}


class Abstaining:
    name = "abstaining"

    async def grade(self, task: Task, steps: Sequence[Step], *, reference=(), outcome=None) -> Grade:
        return Grade(reason="no opinion")


def goals(directory: Path, count: int = 40) -> str:
    path = directory / "goals.jsonl"
    path.write_text("".join(json.dumps({"goal": f"Where is order A{number}?"}) + "\n" for number in range(count)))
    return str(path)


def crm() -> ScriptedLiveApi:
    return ScriptedLiveApi(operation("get_order", id=TEXT), operation("delete_order", id=TEXT))


def environment(directory: Path, api: ScriptedLiveApi, grader: object, **options: object) -> LiveEnvironment:
    guarded = Guarded(
        # As it may be registered for agents: they do delete. What a sandbox gets of it is its shadow.
        api, PolicySettings(mode="live", allow=("*",), read_only=("get_*",)),
        recordings=Recordings(directory / "records"), audit=AuditLog(directory / "audit.jsonl"),
    )  # fmt: skip
    tools = LiveTools(lambda: {"crm": guarded.shadow()})
    return LiveEnvironment(tools, grader, **{"goals": goals(directory), **options})


def calling(name: str, number: str = "A1", key: str = "call-0") -> ToolCall:
    return ToolCall(f"crm__{name}", json.dumps({"id": number}), key)


async def test_an_attempt_reads_for_real_and_changes_nothing(tmp_path: Path) -> None:
    api, grader = crm(), CallsLiked("crm__get_order")
    desk = environment(tmp_path, api, grader)
    episode = await desk.reset(desk.sample(0, "train", None))
    assert isinstance(episode, Graded)
    assert episode.graded, "no execution verifies what became of it"
    assert [tool["function"]["name"] for tool in episode.tools] == ["crm__get_order", "crm__delete_order"]
    seen = await episode.step([calling("get_order"), calling("delete_order", key="call-1")], "")
    assert [message["tool_call_id"] for message in seen.messages] == ["call-0", "call-1"]
    assert not seen.done
    assert await episode.evaluate() == 0.0
    assert (await episode.step([], "It is on its way.")).done
    assert await episode.evaluate() == 1.0
    assert api.asked == [("get_order", {"id": "A1"})]
    (steps,) = grader.seen
    assert [len(step.tool_calls) for step in steps] == [2, 0]
    assert steps[1].text == "It is on its way."


async def test_who_calls_for_ever_is_stopped_and_graded_by_what_came_of_it(tmp_path: Path) -> None:
    grader = CallsLiked("crm__get_order")
    desk = environment(tmp_path, crm(), grader, limit=3)
    episode = await desk.reset(desk.sample(0, "train", None))
    ends = [(await episode.step([calling("get_order")], "")).done for _ in range(3)]
    assert ends == [False, False, True]
    assert await episode.evaluate() == 1.0
    assert all(step.observation for step in grader.seen[0])


async def test_mistakes_are_told_and_an_outage_is_no_failure_of_the_agent(tmp_path: Path) -> None:
    api = crm()
    desk = environment(tmp_path, api, CallsLiked("crm__get_order"))
    episode = await desk.reset(desk.sample(0, "train", None))
    for call in (ToolCall("nothing", "{}"), ToolCall("crm__get_order", "{"), ToolCall("crm__get_order", "[]")):
        assert (await episode.step([call], "")).text.startswith("Error: ")

    async def away(tool, arguments):
        raise LiveApiUnavailable("away")

    api.answer = away
    with pytest.raises(EnvironmentFailed, match="away"):
        await episode.step([calling("get_order")], "")


async def test_an_attempt_without_a_grade_has_no_outcome(tmp_path: Path) -> None:
    class Away(Abstaining):
        async def grade(self, task, steps, *, reference=(), outcome=None) -> Grade:
            raise JudgeUnavailable("no answer")

    for grader in (Abstaining(), Away()):
        desk = environment(tmp_path, crm(), grader)
        episode = await desk.reset(desk.sample(0, "train", None))
        await episode.step([], "done")
        with pytest.raises(EnvironmentFailed, match="no grade"):
            await episode.evaluate()


def test_goals_are_held_out_by_what_they_say(tmp_path: Path) -> None:
    desk = environment(tmp_path, crm(), CallsLiked("crm__get_order"))
    held = {desk.sample(seed, "heldout", None).goal for seed in range(200)}
    train = {desk.sample(seed, "train", None).goal for seed in range(200)}
    assert len(held | train) == 40
    assert not held & train
    assert 2 <= len(held) <= 16


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"goals": ""}, "goals is empty"),
        ({"goals": "/no/such/file"}, "No such file"),
        ({"limit": 0}, "limit = 0"),
    ],
)
def test_what_cannot_work_is_said_with_its_setting(tmp_path: Path, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(AdapterNotSetUp, match=complaint):
        environment(tmp_path, crm(), CallsLiked("crm__get_order"), **options)


def test_a_line_that_is_no_goal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"goal": "x"}\n{"gaol": "y"}\n')
    with pytest.raises(AdapterNotSetUp, match="line 2"):
        environment(tmp_path, crm(), CallsLiked("crm__get_order"), goals=str(path))
    path.write_text('{"goal": "x"}\n')
    with pytest.raises(AdapterNotSetUp, match="one in 5 is held out"):
        environment(tmp_path, crm(), CallsLiked("crm__get_order"), goals=str(path))


def test_without_a_grader_there_is_no_such_sandbox(tmp_path: Path) -> None:
    with pytest.raises(AdapterNotSetUp, match="name a grader"):
        environment(tmp_path, crm(), None)
