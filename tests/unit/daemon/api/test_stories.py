"""Runs are told with their credit and their tokens. Versions: `tests/browser`."""

import httpx
import msgspec
import pytest

from actors.messages import Feedback, Handoff, Step, StepLabel, TokenRow, ToolCall, pack_array
from actors.store import Store
from actors.store.records import Joined
from actors.store.run_story import RunStory, run_story
from daemon.api.run_story import lines
from daemon.api.trajectories import tokens_of
from tests.support.credited import attributed
from tests.support.experience import lesson

pytestmark = pytest.mark.anyio


def row(**fields) -> TokenRow:
    """Two tokens of context, two of step 0, one of step 1."""
    values = {
        "ids": pack_array([5, 6, 7, 8, 9], "<i4"), "step": pack_array([-1, -1, 0, 0, 1], "<i2"),
        "logprobs": pack_array([0, 0, -0.5, -1.5, -3.0], "<f4"), "versions": pack_array([-1, -1, 4, 4, 5], "<i4"),
    }  # fmt: skip
    return TokenRow(**{**values, **fields})


async def test_a_run_comes_with_its_steps_credit_tokens_lessons_and_reports(
    store: Store, http: httpx.AsyncClient
) -> None:
    steps = (
        Step(
            exchange_id="e", tool_calls=(ToolCall("book", '{"fid": "K1"}'),), observation='{"ref": "Z1"}', row=0,
            role="planner#1",
        ),
        Step(exchange_id="f", text="done", role="worker#2"),
    )  # fmt: skip
    handed = (Handoff(source="planner#1", target="worker#2", step=1, via="delegate"),)
    made = attributed("t1", steps=steps, rows=(row(),), handoffs=handed, experience_ids=("a", "gone"))
    labels = (StepLabel("GOOD", 0.9, "its result was used"), StepLabel("ABSTAIN", 0.0, ""))
    made = msgspec.structs.replace(made, attribution=msgspec.structs.replace(made.attribution, labels=labels))
    said = Feedback(id="f", received=3.0, trajectory_id="t1", outcome=1.0, text="well done")
    await store.save([made, lesson("a")])
    await store.save([said, Joined(id="f", trajectory_id="t1")])

    found = (await http.get("/api/trajectories/t1")).json()
    first, second = found["steps"]
    assert first["calls"] == [{"name": "book", "arguments": '{"fid": "K1"}'}]
    assert (first["label"], first["confidence"], first["reason"]) == ("GOOD", 0.9, "its result was used")
    told = first["tokens"]
    assert (told["sampled"], told["row"], told["versions"], told["logprobs"]) == (2, 5, [4], [-0.5, -1.5])
    assert (told["mean_logprob"], told["least_logprob"]) == (-1.0, -1.5)
    assert (second["text"], second["label"], second["tokens"]) == ("done", "ABSTAIN", None)
    assert found["judged"] == {"judge": "j", "rubric": "r", "weight": 1.0, "tokens": 0, "cost": 0.0}
    assert (first["role"], second["role"]) == ("planner#1", "worker#2")
    assert found["handoffs"] == [{"source": "planner#1", "target": "worker#2", "step": 1, "via": "delegate"}]
    assert [(one["id"], one["known"], one.get("when_to_use")) for one in found["experience"]] == [
        ("a", True, "when a"), ("gone", False, None),
    ]  # fmt: skip
    assert [one["text"] for one in found["feedback"]] == ["well done"]
    assert found["lineage"]["batch"] is None


def test_tokens_whose_columns_do_not_fit_are_not_told_and_without_log_probs_there_is_no_mean() -> None:
    assert tokens_of(row(logprobs=pack_array([0.0], "<f4")), 0) is None
    assert tokens_of(row(logprobs=b"\x00\x00\x00"), 0) is None
    told = tokens_of(row(logprobs=pack_array([float("nan")] * 5, "<f4")), 0)
    assert told is not None
    assert (told["sampled"], told["mean_logprob"], told["logprobs"]) == (2, None, [])


async def test_one_without_credit_is_told_too_and_none_is_404(store: Store, http: httpx.AsyncClient) -> None:
    await store.save([attributed("t1").trajectory])
    found = (await http.get("/api/trajectories/t1")).json()
    assert (found["judged"], found["steps"][0]["label"]) == (None, "ABSTAIN")
    for path in ("trajectories/none", "versions/9", "versions/two", f"versions/{'9' * 30}"):
        assert (await http.get(f"/api/{path}")).status_code == 404


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("trajectories?source=elsewhere", "production, sandbox, probe"), ("versions?limit=0", "from 1 on"),
        ("trajectories?outcome=fine", "success, failure"), ("trajectories?version=two", "version is 'two'"),
        ("trajectories?limit=0", "from 1 on"), ("trajectories?after=yesterday", "the page before"),
        ("trajectories?after=nan:x", "the page before"),
    ],
)  # fmt: skip
async def test_a_question_that_makes_no_sense_is_told_what_would(
    http: httpx.AsyncClient, query: str, said: str
) -> None:
    answer = await http.get(f"/api/{query}")
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"source": "sandbox", "graded": True}, "its last answer was cut off at a limit of tokens"),
        ({"source": "sandbox"}, ""),
        ({"source": "production"}, ""),
    ],
)
async def test_a_run_whose_cut_off_answer_nobody_verified_says_that_it_is_not_trained_on(
    store: Store, fields: dict[str, object], told: str
) -> None:
    steps = (Step(exchange_id="x", response_id="r"), Step(exchange_id="y", response_id="s", cut="length"))
    await store.save([attributed("t", outcome=0.0, steps=steps, closed_by="finish", **fields)])
    story = await store.ask(lambda connection: run_story(connection, "t"))
    assert isinstance(story, RunStory)
    said = "\n".join(lines(story))
    assert ("not trained on: its last answer" in said) == bool(told)
    assert told in said
