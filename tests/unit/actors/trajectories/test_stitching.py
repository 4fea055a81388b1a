"""Which calls belong together, whatever order they come in."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.messages import (
    Exchange,
    Feedback,
    Hints,
    Processing,
    Sampling,
    Trajectory,
    floats_array,
    ids_array,
    steps_array,
)
from actors.trajectories.builder import build, outcome_of
from actors.trajectories.parsed_exchange import read_turn
from actors.trajectories.stitching import Limits, Stitcher
from tests.support.traffic import END, exchange, feedback, without_tools

LIMITS = Limits(max_steps=64, max_turns=1000, max_bytes=1 << 30, max_feedback=100, feedback_seconds=3600.0)


def stitch(*messages: Exchange | Feedback, at: float = 10_000.0, processed: tuple[str, ...] = ()) -> list[Trajectory]:
    """All at time 0, then what is closed at `at`, by goal; `processed` as in `read_turn`."""
    stitcher = Stitcher(LIMITS)
    for message in messages:
        if isinstance(message, Exchange):
            stitcher.add(read_turn(message, processed), 0.0)
        else:
            stitcher.hear(message, 0.0)
    return sorted((build(closing) for closing in stitcher.close_due(at)), key=lambda run: (run.goal, run.started))


def ids(run: Trajectory) -> list[str]:
    return [step.exchange_id for step in run.steps]


def test_tool_call_ids_link_the_calls_of_interleaved_runs() -> None:
    calls = [exchange(run, number) for number in range(3) for run in ("a", "b")]
    one, two = stitch(*calls)
    assert ids(one) == ["x-default-a-0", "x-default-a-1", "x-default-a-2"]
    assert ids(two) == ["x-default-b-0", "x-default-b-1", "x-default-b-2"]
    assert one.confidence == 1.0


def test_explicit_id_links_calls_that_share_nothing_else() -> None:
    hints = Hints(trajectory_id="session")
    runs = stitch(exchange("a", 0, hints=hints), exchange("b", 0, hints=hints, started=200.0), exchange("c", 0))
    assert [ids(run) for run in runs] == [["x-default-a-0", "x-default-b-0"], ["x-default-c-0"]]


NAMING: dict[str, Hints] = {
    "trajectory": Hints(trajectory_id="t-a"),
    "conversation": Hints(conversation="conv-a"),
    "response": Hints(previous_response_id="r-default-a-0"),
    "tool call": Hints(),
}


def by_two_keys(how: str, *, share: bool) -> list[list[str]]:
    """Key a begins a run; key b goes on with it by the id that `how` says, with words of its own in front."""
    said = json.loads(exchange("a", 1).request)
    said["messages"][0]["content"] = "Do what I say."
    if how != "tool call":
        said["messages"] = [{"role": "user", "content": "and now give me everything"}]
    first = exchange("a", 0, caller="key-a", hints=Hints() if how == "response" else NAMING[how])
    later = exchange("a", 1, caller="key-b", hints=NAMING[how], request=json.dumps(said).encode())
    stitcher = Stitcher(LIMITS)
    for call in (first, later):
        stitcher.add(read_turn(call, keys_share_runs=share), 0.0)
    return sorted(ids(build(closing)) for closing in stitcher.close_due(10_000.0))


@pytest.mark.parametrize("how", NAMING)
def test_naming_another_keys_ids_does_not_write_into_its_run_unless_keys_share_runs(how: str) -> None:
    assert by_two_keys(how, share=False) == [["x-default-a-0"], ["x-default-a-1"]]
    assert by_two_keys(how, share=True) == [["x-default-a-0", "x-default-a-1"]]


def test_naming_another_keys_closed_run_does_not_continue_it() -> None:
    stitcher = Stitcher(LIMITS)
    stitcher.add(read_turn(exchange("a", 0, caller="key-a")), 0.0)
    (closed,) = stitcher.close_due(10_000.0)
    stitcher.remember(closed.turns, "closed")
    assert stitcher.late_for(read_turn(exchange("a", 1, caller="key-b"))) == ""
    assert stitcher.late_for(read_turn(exchange("a", 1, caller="key-a"))) == "closed"


def test_tenants_never_mix() -> None:
    runs = stitch(exchange("a", 0), exchange("a", 1, tenant="other"))
    assert [len(run.steps) for run in runs] == [1, 1]


def test_engine_that_repeats_its_tool_call_ids_is_linked_by_conversation() -> None:
    calls = [exchange(run, number, call_ids=False) for number in range(3) for run in ("a", "b")]
    one, two = stitch(*calls)
    assert [len(one.steps), len(two.steps)] == [3, 3]
    assert one.confidence == 0.8


def test_two_runs_with_the_same_conversation_are_kept_apart() -> None:
    first = exchange("a", 0, call_ids=False)
    twin = msgspec.structs.replace(first, id="x-twin", response_id="r-twin", started=101.0)
    runs = stitch(first, twin, exchange("a", 1, call_ids=False))
    assert [len(run.steps) for run in runs] == [1, 1, 1]
    assert runs[-1].confidence == 0.5


def test_a_reply_without_tool_calls_is_linked_by_conversation() -> None:
    said = json.dumps({"choices": [{"message": {"role": "assistant", "content": "hm. "}}]}).encode()
    request = {
        "messages": [
            {"role": "system", "content": "desk"},
            {"role": "user", "content": "goal of a"},
            {"role": "assistant", "content": "hm."},
            {"role": "tool", "content": "no call", "tool_call_id": "none"},
        ]
    }
    follows = exchange("a", 0, id="x2", response_id="r2", started=105.0, hints=Hints(tool_call_ids=("none",)))
    follows = msgspec.structs.replace(follows, request=json.dumps(request).encode())
    (run,) = stitch(exchange("a", 0, response=said), follows)
    assert ids(run) == ["x-default-a-0", "x2"]
    assert run.steps[0].observation == "no call"
    assert run.goal == "goal of a"


def test_a_tool_call_id_that_nobody_made_links_nothing() -> None:
    hints = Hints(tool_call_ids=("none",))
    assert len(stitch(exchange("a", 0, hints=hints), exchange("b", 0, hints=hints))) == 2


def test_a_lost_call_leaves_the_others_together() -> None:
    (run,) = stitch(exchange("a", 0), exchange("a", 2), exchange("a", 3))
    assert len(run.steps) == 3


def test_the_next_run_with_the_same_words_is_not_taken_for_a_call_that_is_still_to_come() -> None:
    """A daemon was killed: the first call of a run is delivered again behind the first one of the next run."""
    opening = exchange("a", 0)
    other = exchange("a", 0, id="x-other", response_id="r-other", started=200.0)
    other = msgspec.structs.replace(other, response=other.response.replace(b"call-a-0", b"call-other-0"))
    stitcher = Stitcher(LIMITS)
    for number in (1, 2):
        stitcher.add(read_turn(exchange("a", number)), 0.0)
    stitcher.hear(feedback("a", 2), 0.0)
    stitcher.add(read_turn(other), 1.0)
    assert stitcher.close_due(30.0) == [], "the opening is waited for"
    stitcher.add(read_turn(opening), 30.0)
    (run,) = [build(closing) for closing in stitcher.close_due(62.0)]
    assert ids(run) == ["x-default-a-0", "x-default-a-1", "x-default-a-2"]
    (rest,) = [build(closing) for closing in stitcher.close_due(2000.0)]
    assert ids(rest) == ["x-other"]


TITLE = exchange("a", 2, id="x-title", response_id="r-title", started=121.0, request=without_tools("a", 2))
MIRRORED = [
    exchange("m", number, source="mirror", status=0, response=b"", response_id="", tokens=False) for number in range(3)
]
TRAFFIC = (
    [exchange(run, number) for run in ("a", "b") for number in range(4)]
    + [exchange("s", number, explicit=True) for number in range(2)]
    + [exchange("n", number, call_ids=False) for number in range(3)]
    + [exchange("p", number, dialect="responses") for number in range(3)]
    + [exchange("q", number, dialect="anthropic") for number in range(3)]
    + [feedback("a", 3), feedback("b", 0, 0.0), feedback("s", 1, None, response_id="", trajectory_id="s")]
    + [feedback("p", 1, 0.0, kind="step"), TITLE, *MIRRORED]
)


@pytest.mark.promise
@settings(max_examples=60)
@given(
    order=st.permutations(TRAFFIC),
    repeated=st.lists(st.integers(0, len(TRAFFIC) - 1), max_size=8),
    seed=st.randoms(use_true_random=False),
)
def test_any_order_with_duplicates_gives_the_same_trajectories(order: list, repeated: list[int], seed) -> None:
    again = order + [order[index] for index in repeated]
    seed.shuffle(again)
    expected = stitch(*sorted(order, key=lambda message: message.id))
    assert stitch(*again) == expected
    assert [(run.goal[-1], len(run.steps), run.closed_by) for run in expected] == [
        ("a", 4, "feedback"), ("b", 4, "feedback"), ("m", 3, "idle"), ("n", 3, "idle"), ("p", 3, "idle"),
        ("q", 3, "idle"), ("s", 2, "feedback"),
    ]  # fmt: skip
    assert [run.confidence for run in expected] == [1.0, 1.0, 0.6, 0.8, 1.0, 1.0, 1.0]


def test_final_feedback_closes_after_the_grace_time() -> None:
    messages = exchange("a", 0), exchange("a", 1), feedback("a", 1, 0.5)
    assert stitch(*messages, at=0.5) == []
    (run,) = stitch(*messages, at=1.0)
    assert (run.outcome, run.closed_by, len(run.steps)) == (0.5, "feedback", 2)


def test_without_feedback_it_closes_when_idle() -> None:
    assert stitch(exchange("a", 0), at=899.0) == []
    (run,) = stitch(exchange("a", 0), at=900.0)
    assert (run.outcome, run.closed_by) == (None, "idle")


def test_feedback_that_is_not_final_waits_for_the_end() -> None:
    rating = feedback("a", 0, 0.25, final=False, kind="rating")
    assert stitch(exchange("a", 0), rating, at=10.0) == []
    (run,) = stitch(exchange("a", 0), rating)
    assert (run.outcome, run.closed_by) == (0.25, "idle")


def test_the_last_final_outcome_counts() -> None:
    said = [feedback("a", 0, 0.0), feedback("a", 1, 1.0), feedback("a", 2, 0.3, kind="rating"), feedback("a", 3, None)]
    assert outcome_of(said) == 1.0
    assert outcome_of([]) is None


def test_too_many_steps_close_at_once() -> None:
    stitcher = Stitcher(msgspec.structs.replace(LIMITS, max_steps=3))
    turns = [read_turn(exchange("a", number)) for number in range(3)]
    closed = []
    for turn in turns:
        stitcher.add(turn, 0.0)
        closed.append(stitcher.close_long(turn))
    assert [closing is not None for closing in closed] == [False, False, True]
    assert len(stitcher) == 0
    assert stitcher.bytes == 0


def test_too_many_open_calls_close_the_oldest() -> None:
    stitcher = Stitcher(msgspec.structs.replace(LIMITS, max_turns=2))
    for number, run in enumerate("abc"):
        stitcher.add(read_turn(exchange(run, 0)), float(number))
    (closing,) = stitcher.close_due(3.0)
    assert (closing.closed_by, closing.turns[0].goal) == ("limit", "goal of a")


def test_waiting_feedback_is_bounded_and_counted() -> None:
    stitcher = Stitcher(msgspec.structs.replace(LIMITS, max_feedback=2))
    for number in range(4):
        assert not stitcher.hear(feedback("nobody", number), 0.0)
    assert (stitcher.waiting, stitcher.feedback_evicted) == (2, 2)
    stitcher.close_due(3600.0)
    assert (stitcher.waiting, stitcher.feedback_evicted) == (0, 4)


def test_a_call_for_a_closed_trajectory_is_late() -> None:
    stitcher = Stitcher(LIMITS)
    turns = [read_turn(exchange("a", number)) for number in range(3)]
    stitcher.add(turns[0], 0.0)
    (closing,) = stitcher.close_due(900.0)
    stitcher.remember(closing.turns, "t1")
    assert stitcher.late_for(turns[1]) == "t1"
    assert stitcher.late_for(read_turn(exchange("b", 0))) == ""


def test_an_explicit_id_used_again_after_the_end_is_a_new_trajectory() -> None:
    stitcher = Stitcher(LIMITS)
    stitcher.add(read_turn(exchange("s", 0, explicit=True, started=100.0)), 0.0)
    (closing,) = stitcher.close_due(900.0)
    stitcher.remember(closing.turns, "t1")
    assert stitcher.late_for(read_turn(exchange("s", 1, explicit=True, started=100.2))) == "t1"
    assert stitcher.late_for(read_turn(exchange("n", 0, hints=Hints(trajectory_id="s"), started=2000.0))) == ""


def test_an_explicit_id_used_again_after_the_end_in_the_same_conversation_continues_it() -> None:
    stitcher = Stitcher(LIMITS)
    stitcher.add(read_turn(exchange("s", 0, explicit=True, started=100.0)), 0.0)
    (closing,) = stitcher.close_due(900.0)
    stitcher.remember(closing.turns, "t1")
    assert stitcher.late_for(read_turn(exchange("s", 1, explicit=True, started=2000.0))) == "t1"


def test_steps_carry_action_and_what_came_back() -> None:
    (run,) = stitch(*(exchange("a", number) for number in range(3)))
    assert [step.observation for step in run.steps] == ["result 0", "result 1", ""]
    assert [step.tool_calls[0].name for step in run.steps] == ["search"] * 3
    assert run.goal == "goal of a"
    assert json.loads(run.tools)[0]["function"]["name"] == "search"
    assert (run.started, run.ended) == (100.0, 120.5)


def test_prompts_that_extend_each_other_become_one_row() -> None:
    (run,) = stitch(*(exchange("a", number, version=number) for number in range(2)))
    (row,) = run.rows
    assert ids_array(row.ids).tolist() == [1] * 10 + [100, 101, 102, END, 5, 6, 7, 101, 102, 103, END]
    assert steps_array(row.step).tolist() == [-1] * 10 + [0] * 4 + [-1] * 3 + [1] * 4
    assert ids_array(row.versions).tolist() == [-1] * 10 + [0] * 4 + [-1] * 3 + [1] * 4
    assert floats_array(row.logprobs).tolist() == [0.0] * 10 + [-0.5] * 4 + [0.0] * 3 + [-0.5] * 4
    assert [step.row for step in run.steps] == [0, 0]
    assert (run.min_version, run.max_version, run.trainable) == (0, 1, True)


def test_a_prompt_that_rewrites_the_past_begins_a_row() -> None:
    other = exchange("a", 1, prompt_ids=exchange("b", 0).response_ids * 5)
    (run,) = stitch(exchange("a", 0), other)
    assert [step.row for step in run.steps] == [0, 1]
    assert steps_array(run.rows[1].step).tolist() == [-1] * 20 + [1] * 4


def test_tokens_without_a_version_leave_the_oldest_version_unknown() -> None:
    (run,) = stitch(exchange("a", 0, version=3), exchange("a", 1, versions=()))
    assert (run.min_version, run.max_version) == (-1, 3)


def why_not(**fields) -> str:
    (run,) = stitch(exchange("a", 0), exchange("a", 1, **fields))
    assert (run.trainable, run.why_not, run.steps[0].why_not) == (True, "", "")
    return run.steps[1].why_not


def test_processed_log_probs_allow_for_what_scales_or_cuts_the_distribution_and_for_nothing_else() -> None:
    def why(**sampling) -> str:
        seen = exchange("a", 0, engine="own", sampling=Sampling(**sampling))
        assert read_turn(seen, processed=("other",)).why_not
        return read_turn(seen, processed=("own",)).why_not

    assert why(temperature=0.7) == why(top_p=0.9) == why(top_k=20) == why(presence_penalty=0.5) == ""
    assert why(temperature=0.0) == "temperature 0"
    assert why(forced=True, bent_by="logit_bias") == "logit_bias"


def test_a_row_ends_where_the_sampling_changes_and_says_what_it_was() -> None:
    cold = Sampling(temperature=0.7, top_p=0.8, repetition_penalty=1.05)
    calls = [exchange("a", number, engine="own", sampling=cold if number == 2 else Sampling()) for number in range(3)]
    (run,) = stitch(*calls, processed=("own",))
    assert [row.processing for row in run.rows] == [Processing(), cold.processing]
    assert cold.processing == Processing(top_p=0.8, repetition_penalty=1.05)


@pytest.mark.parametrize("processed", [(), ("own",)])
def test_a_call_that_a_grammar_shaped_may_train_and_says_that_it_was_shaped(processed: tuple[str, ...]) -> None:
    for shaped_by in ("forced tool choice", "structured output", "strict tools"):
        seen = exchange("a", 0, engine="own", sampling=Sampling(forced=True, bent_by=shaped_by))
        turn = read_turn(seen, processed=processed)
        assert (turn.why_not, turn.processing) == ("", Processing(grammar=True))


def test_what_is_not_trainable_says_why() -> None:
    assert why_not() == ""
    assert why_not(tokens=False) == "no token ids"
    assert why_not(source="mirror") == "mirrored"
    assert why_not(logprobs=b"") == "no token ids"
    assert why_not(complete=False) == "incomplete"
    assert why_not(error="response was cut") == "unreadable"
    assert why_not(response=b"<html>") == "unreadable"
    assert why_not(why_no_tokens="no token ids from /v1/messages", tokens=False) == "no token ids from /v1/messages"
    assert why_not(redacted=("prompt",)) == "redacted prompt"
    assert why_not(redacted=("response",)) == "redacted response"
    assert why_not(sampling=Sampling(temperature=0.0)) == "temperature 0"
    assert why_not(sampling=Sampling(temperature=0.7)) == "temperature"
    assert why_not(sampling=Sampling(top_k=20)) == "top_k"
    assert why_not(sampling=Sampling(frequency_penalty=0.1)) == "frequency_penalty"
    assert why_not(sampling=Sampling(forced=True, bent_by="logit_bias")) == "logit_bias"
    assert why_not(sampling=Sampling(top_p=0.9)) == "top_p"
    assert why_not(sampling=Sampling(forced=True)) == "forced tool choice"


@settings(max_examples=100)
@given(request=st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["messages", "role", "content", "tool_calls", "function", "choices", "message", "tools"]),
        inner,
        max_size=4,
    ),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_json_breaks_the_reader(request: bytes) -> None:
    turn = read_turn(exchange("a", 0, request=request, response=request))
    assert turn.id == "x-default-a-0"


def test_a_call_that_cannot_be_trained_on_keeps_only_itself_out() -> None:
    greedy = exchange("a", 1, sampling=Sampling(temperature=0.0))
    (run,) = stitch(exchange("a", 0), greedy, exchange("a", 2))
    assert (run.trainable, run.why_not) == (True, "")
    assert [(step.row, step.why_not) for step in run.steps] == [(0, ""), (-1, "temperature 0"), (0, "")]
    (row,) = run.rows
    # What it said is context of the call after it, and has no gradient.
    assert steps_array(row.step).tolist() == [-1] * 10 + [0] * 4 + [-1] * 10 + [2] * 4
    assert ids_array(row.ids).tolist()[17:21] == ids_array(greedy.response_ids).tolist()


def test_a_call_whose_weights_are_not_known_and_that_trains_nothing_keeps_nobody_out() -> None:
    greedy = exchange("a", 1, sampling=Sampling(temperature=0.0), versions=(), engine="other")
    (run,) = stitch(exchange("a", 0, version=3), greedy, exchange("a", 2, version=3))
    assert (run.min_version, run.max_version) == (3, 3)
    (other,) = stitch(exchange("a", 0, version=3), exchange("a", 1, sampling=Sampling(temperature=0.0), version=4))
    assert (other.min_version, other.max_version) == (3, 4), "two versions served it, for whoever compares them"


def test_a_call_without_tokens_in_the_middle_leaves_the_others() -> None:
    (run,) = stitch(exchange("a", 0), exchange("a", 1, tokens=False), exchange("a", 2))
    assert (run.trainable, [step.why_not for step in run.steps]) == (True, ["", "no token ids", ""])
