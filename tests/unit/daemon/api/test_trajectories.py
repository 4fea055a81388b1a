"""A trajectory is told with its credit, its tokens, the experience that it used, and what became of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from actors.messages import Feedback, Handoff, Step, StepLabel, TokenRow, ToolCall, pack_array
from actors.store import Store
from actors.store.records import Joined
from daemon.api.trajectories import tokens_of
from tests.support.credited import attributed
from tests.support.experience import Desk, lesson

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(f"sqlite:///{tmp_path}/s.db", clock=lambda: 1.0)
    await store.open()
    yield store
    await store.aclose()


@pytest.fixture
async def http(store: Store, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with Desk(store, tmp_path).http() as http:
        yield http


def row(**fields) -> TokenRow:
    """Two tokens of context, two of step 0, one of step 1."""
    values = {
        "ids": pack_array([5, 6, 7, 8, 9], "<i4"), "step": pack_array([-1, -1, 0, 0, 1], "<i2"),
        "logprobs": pack_array([0, 0, -0.5, -1.5, -3.0], "<f4"), "versions": pack_array([-1, -1, 4, 4, 5], "<i4"),
    }  # fmt: skip
    return TokenRow(**{**values, **fields})


async def test_steps_have_their_credit_and_their_tokens(store: Store, http: httpx.AsyncClient) -> None:
    step = Step(exchange_id="e", tool_calls=(ToolCall("book", '{"fid": "K1"}'),), observation='{"ref": "Z1"}', row=0)
    made = attributed("t1", goal="Book a flight", steps=(step, Step(exchange_id="f", text="done")), rows=(row(),))
    labels = (StepLabel("GOOD", 0.9, "its result was used"), StepLabel("ABSTAIN", 0.0, ""))
    await store.save(
        [msgspec.structs.replace(made, attribution=msgspec.structs.replace(made.attribution, labels=labels))]
    )
    found = (await http.get("/api/trajectories/t1")).json()
    first, second = found["steps"]
    assert first["calls"] == [{"name": "book", "arguments": '{"fid": "K1"}'}]
    assert (first["label"], first["confidence"], first["reason"]) == ("GOOD", 0.9, "its result was used")
    told = first["tokens"]
    assert (told["sampled"], told["row"], told["versions"], told["logprobs"]) == (2, 5, [4], [-0.5, -1.5])
    assert (told["mean_logprob"], told["least_logprob"]) == (-1.0, -1.5)
    assert (second["text"], second["label"], second["tokens"]) == ("done", "ABSTAIN", None)
    assert found["judged"] == {"judge": "j", "rubric": "r", "weight": 1.0, "tokens": 0, "cost": 0.0}


def test_tokens_whose_columns_do_not_fit_are_not_told() -> None:
    assert tokens_of(row(logprobs=pack_array([0.0], "<f4")), 0) is None
    assert tokens_of(row(logprobs=b"\x00\x00\x00"), 0) is None


def test_a_step_without_log_probs_has_none_on_average() -> None:
    told = tokens_of(row(logprobs=pack_array([float("nan")] * 5, "<f4")), 0)
    assert told is not None
    assert (told["sampled"], told["mean_logprob"], told["logprobs"]) == (2, None, [])


async def test_experience_feedback_and_lineage_come_with_it(store: Store, http: httpx.AsyncClient) -> None:
    said = Feedback(id="f", received=3.0, trajectory_id="t1", outcome=1.0, text="well done")
    await store.save([attributed("t1", experience_ids=("a", "gone")), lesson("a")])
    await store.save([said, Joined(id="f", trajectory_id="t1")])
    found = (await http.get("/api/trajectories/t1")).json()
    assert [(one["id"], one["known"], one.get("when_to_use")) for one in found["experience"]] == [
        ("a", True, "when a"), ("gone", False, None),
    ]  # fmt: skip
    assert [one["text"] for one in found["feedback"]] == ["well done"]
    assert found["lineage"]["batches"] == []


async def test_one_without_credit_is_told_too_and_none_is_404(store: Store, http: httpx.AsyncClient) -> None:
    await store.save([attributed("t1").trajectory])
    found = (await http.get("/api/trajectories/t1")).json()
    assert (found["judged"], found["steps"][0]["label"]) == (None, "ABSTAIN")
    assert (await http.get("/api/trajectories/none")).status_code == 404


async def test_several_agents_show_who_acted_and_who_handed_over(store: Store, http: httpx.AsyncClient) -> None:
    steps = (Step(exchange_id="a", role="planner#1"), Step(exchange_id="b", role="worker#2"))
    handed = (Handoff(source="planner#1", target="worker#2", step=1, via="delegate"),)
    await store.save([attributed("t1", steps=steps, handoffs=handed)])
    found = (await http.get("/api/trajectories/t1")).json()
    assert [each["role"] for each in found["steps"]] == ["planner#1", "worker#2"]
    assert found["handoffs"] == [{"source": "planner#1", "target": "worker#2", "step": 1, "via": "delegate"}]


async def test_the_list_goes_on_where_the_page_before_ended(store: Store, http: httpx.AsyncClient) -> None:
    await store.save([attributed(f"t{n}", ended=n + 0.1) for n in range(5)])
    first = (await http.get("/api/trajectories?limit=3")).json()
    second = (await http.get("/api/trajectories", params={"limit": 3, "after": first["after"]})).json()
    assert [run["id"] for run in first["trajectories"] + second["trajectories"]] == ["t4", "t3", "t2", "t1", "t0"]
    assert second["after"] is None


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("source=elsewhere", "production, sandbox, probe"), ("outcome=fine", "success, failure"),
        ("version=two", "version is 'two'"), ("limit=0", "from 1 on"), ("after=yesterday", "the page before"),
        ("after=nan:x", "the page before"),
    ],
)  # fmt: skip
async def test_a_question_that_makes_no_sense_is_told_what_would(
    http: httpx.AsyncClient, query: str, said: str
) -> None:
    answer = await http.get(f"/api/trajectories?{query}")
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"]
