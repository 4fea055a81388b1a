"""Runs and versions are told with their credit, their tokens, what a swap cost, and what became of them."""

from pathlib import Path

import httpx
import msgspec
import pytest

from actors.messages import Feedback, Handoff, Serving, Step, StepLabel, TokenRow, ToolCall, Verdict, pack_array
from actors.messages.signing import sign
from actors.store import Store
from actors.store.records import Joined
from actors.store.run_story import RunStory, run_story
from daemon.api.run_story import lines
from daemon.api.trajectories import tokens_of
from tests.support.credited import attributed
from tests.support.experience import lesson
from tests.support.fakes import candidate
from tests.support.keys import key_pair

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
    assert found["lineage"]["batches"] == []


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
    assert (await http.get("/api/trajectories/none")).status_code == 404


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


@pytest.fixture
async def versions(store: Store, http: httpx.AsyncClient, tmp_path: Path) -> httpx.AsyncClient:
    key, _ = key_pair(tmp_path / "signing")
    for number in (1, 2):
        made = candidate(number, tmp_path / "versions" / f"v{number:06d}")
        verdict = Verdict(
            id=f"d{number}", version=number, path=made.path, manifest=made.manifest, incumbent=number - 1,
            decision="promote", reason="measured", measurements={"success": 0.7, "drift_kl": 0.1}, created=number + 0.5,
        )  # fmt: skip
        await store.save([made, sign(verdict, key) if number == 1 else verdict])
    swap = Serving(
        id="s1", engine="a", version=1, previous=0, path="p", result="swapped", since=1.7, paused_seconds=0.05
    )
    refused = Serving(id="s2", engine="a", version=2, previous=1, path="p", result="refused", since=2.7, reason="full")
    await store.save([swap, refused])
    return http


async def test_the_list_has_headlines_and_one_has_everything_and_says_what_is_not_signed(
    versions: httpx.AsyncClient,
) -> None:
    told = (await versions.get("/api/versions")).json()
    second, first = told["versions"]
    assert (told["all"], second["version"], first["version"]) == (2, 2, 1)
    assert first["verdict"]["measurements"] == {"success": 0.7}
    assert first["swaps"][0]["paused_seconds"] == 0.05
    assert first["served"] == [{"engine": "a", "since": 1.7, "until": None}]
    assert second["setbacks"] == [{"at": 2.7, "kind": "refused", "who": "a", "reason": "full"}]
    assert len((await versions.get("/api/versions?limit=1")).json()["versions"]) == 1
    first, second = [(await versions.get(f"/api/versions/{number}")).json() for number in (1, 2)]
    assert first["verdicts"][0]["measurements"] == {"success": 0.7, "drift_kl": 0.1}
    assert first["verdicts"][0]["signature_problem"] == ""
    assert second["verdicts"][0]["signature_problem"] != ""
    assert [one["version"] for one in second["ancestry"]] == [1, 0]
    assert first["on_disk"] is True


async def test_a_version_that_is_not_there_is_404_and_a_limit_that_is_none_422(versions: httpx.AsyncClient) -> None:
    for path in ("9", "two", "9" * 30):
        assert (await versions.get(f"/api/versions/{path}")).status_code == 404
    assert (await versions.get("/api/versions?limit=0")).status_code == 422
