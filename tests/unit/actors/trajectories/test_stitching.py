"""Which calls belong together, and which of them are the work, whatever order they come in and clients make of them."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.messages import Exchange, Feedback, Hints, Processing, Sampling, floats_array, ids_array, steps_array
from actors.trajectories.parsed_exchange import read_turn
from actors.trajectories.stitching import Stitcher
from tests.support.traffic import END, exchange, feedback
from tests.unit.actors.trajectories.made import (
    SESSION,
    built,
    call,
    calls,
    closed,
    mirrored,
    names,
    result,
    run_of,
    says,
    stitched,
    stitcher_of,
    system,
    title,
    user,
)

PLAIN = run_of(call_ids=False)
TWIN = msgspec.structs.replace(PLAIN[0], id="x-twin", response_id="r-twin", started=101.0)
OPENING = [system("desk"), user("add 2 and 2")]
ANSWER = calls("add", "call_9fk2mz81qp", a=2, b=2.0)
CALL = ANSWER["tool_calls"][0]
RESULT = result("", "4")
WHICH = says("which?")
ASKED = [*OPENING, WHICH]


def two(answer: dict | list[dict], echo: list[dict], **fields) -> list[Exchange]:
    """A call, and the one that goes on as `echo` has it."""
    first = call("x1", OPENING, answer, at=1.0, **fields)
    return [first, call("x2", [*OPENING, *echo], says("4"), at=3.0, **fields)]


def without_ids(message: dict) -> dict:
    told = [{key: value for key, value in one.items() if key != "id"} for one in message["tool_calls"]]
    return {**message, "tool_calls": told}


def flat(*told: dict) -> str:
    """As smolagents writes calls into the text."""
    return "Calling tools:\n" + str(list(told))


def talk(name: str, said: list[str], answer: str, *, at: float, tools=(), opening: tuple = (), **fields) -> Exchange:
    """A call of a conversation in which the user and the model take turns."""
    messages = [user(text) if number % 2 == 0 else says(text) for number, text in enumerate(said)]
    return call(name, [*opening, *messages], says(answer), at=at, tools=tools, **fields)


def desk(name: str, said: list[str], answer: str, *, at: float, words: str = "Desk.") -> Exchange:
    return talk(name, said, answer, at=at, opening=(system(words),), hints=SESSION)


def without_last_tools() -> Exchange:
    request = json.loads(exchange("a", 2).request)
    del request["tools"]
    return exchange("a", 2, request=json.dumps(request).encode())


SAYS_HM = {"choices": [{"message": says("hm. ")}]}
GOES_ON = {"messages": [system("desk"), user("goal of a"), says("hm."), result("none", "no call")]}
REWRITTEN: dict[str, dict] = {
    "blank for null": {"content": ""},
    "extras": {"refusal": None, "annotations": []},
    "arguments again": {"tool_calls": [{**CALL, "function": {"name": "add", "arguments": '{"b":2,"a":2}'}}]},
    "parts": {"content": [{"type": "text", "text": "  "}]},
    "thoughts": {"content": "<think>two and two</think>\n"},
}
STITCHED: dict[str, tuple[list, dict[str, object]]] = {
    "ids of tool calls": (
        [exchange(run, number) for number in range(3) for run in ("a", "b")], {"a-0 a-1 a-2": 1.0, "b-0 b-1 b-2": 1.0},
    ),
    "an explicit id links calls that share nothing else": (
        [exchange("a", 0, hints=SESSION), exchange("b", 0, hints=SESSION, started=200.0), exchange("c", 0)],
        {"a-0 b-0": 1.0, "c-0": 1.0},
    ),
    "tenants never mix": ([exchange("a", 0), exchange("a", 1, tenant="other")], {"a-0": 1.0, "x-other-a-1": 0.5}),
    "an engine that repeats its ids is linked by the conversation": (
        [exchange(run, number, call_ids=False) for number in range(3) for run in ("a", "b")],
        {"a-0 a-1 a-2": 0.8, "b-0 b-1 b-2": 0.8},
    ),
    "twin runs are kept apart": ([PLAIN[0], TWIN, PLAIN[1]], {"a-0": 1.0, "x-twin": 1.0, "a-1": 0.5}),
    "a reply without tool calls": (
        [
            exchange("a", 0, response=json.dumps(SAYS_HM).encode()),
            exchange("a", 0, id="x2", response_id="r2", started=105.0, request=json.dumps(GOES_ON).encode()),
        ],
        {"a-0 x2": 0.8},
    ),
    "an id that nobody made": (
        [call(f"x-{one}", [user(one), calls("add", f"call-{one}"), result("none", "4")], says("4"), at=1.0)
         for one in "ab"],
        {"x-a": 0.5, "x-b": 0.5},
    ),
    "a lost call": ([exchange("a", number) for number in (0, 2, 3)], {"a-0 a-2 a-3": 1.0}),
    **{
        f"a client that sends back {what}": (two(ANSWER, [without_ids({**ANSWER, **how}), RESULT]), {"x1 x2": 0.8})
        for what, how in REWRITTEN.items()
    },
    "calls flattened to text are read back with their ids": (
        two(ANSWER, [says(flat({**CALL, "function": {"name": "add", "arguments": {"a": 2, "b": 2}}})), user("4")]),
        {"x1 x2": 1.0},
    ),
    "a call that the client made up does not hide the text": (
        two(says("add.\n<code>2 + 2</code>"), [
            says("add.\n<code>2 + 2</code>\n" + flat({"id": "call_1", "function": {"name": "py", "arguments": "2"}})),
            user("4"),
        ], tools=()),
        {"x1 x2": 0.6},
    ),
    "a system prompt that changes is overlooked and lowers the confidence": (
        [call("x1", OPENING, WHICH, at=1.0),
         call("x2", [system("desk, at 10:01"), OPENING[1], WHICH, user("2")], says("4"), at=3.0)],
        {"x1 x2": 0.6},
    ),
    "an id that engines repeat is never certain": (
        two(calls("add", "call_0"), [calls("add", "call_0"), result("call_0", "4")]), {"x1 x2": 0.8},
    ),
    "twins without ids": (
        [call(f"x{n}-{who}", OPENING if n == 1 else [*ASKED, user("2")], WHICH if n == 1 else says("4"), at=float(n))
         for n in (1, 2) for who in "ab"],
        {"x1-a": 1.0, "x1-b": 1.0, "x2-a": 0.5, "x2-b": 0.5},
    ),
    "twins whose answers differ": (
        [call(f"x1-{who}", OPENING, says(f"which, {who}?"), at=1.0) for who in "ab"]
        + [call(f"x2-{who}", [*OPENING, says(f"which, {who}?"), user("2")], says("4"), at=3.0) for who in "ab"],
        {"x1-a x2-a": 0.8, "x1-b x2-b": 0.8},
    ),
    "callers with other keys": (
        [call("x1", OPENING, WHICH, at=1.0, caller="alice"),
         call("x2", [*ASKED, user("2")], says("4"), at=3.0, caller="bob")],
        {"x1": 1.0, "x2": 0.5},
    ),
    "an opening of two messages is no sequel": (two(says("four"), [user("?")]), {"x1": 1.0, "x2": 1.0}),
    "an empty answer that the client leaves out": (
        [*two(says(""), [user("You said nothing.")]),
         call("x3", [*OPENING, user("You said nothing."), says("4"), user("?")], says("5"), at=5.0)],
        {"x1 x2 x3": 0.6},
    ),
    "null for an empty answer": (two(says(None), [user("You said nothing.")]), {"x1 x2": 0.6}),
    "an empty answer later in a run": (
        [call("x1", OPENING, WHICH, at=1.0), call("x2", [*ASKED, user("Go on.")], says(""), at=3.0),
         call("x3", [*ASKED, user("Go on."), user("Go on.")], says("4"), at=5.0)],
        {"x1 x2 x3": 0.8},
    ),
    # What is beside the work.
    "a title in the middle": ([*run_of(), title(1)], {"a-0 a-1 a-2": 1.0, "x-title": "side"}),
    "a title at the end": ([*run_of(), title(2, started=111.0)], {"a-0 a-1 a-2": 1.0, "x-title": "side"}),
    "a last call that broke off and was made again": (
        [*run_of(), exchange("a", 2, id="x-broken", response_id="", started=119.0, complete=False, tokens=False)],
        {"a-0 a-1 a-2": 1.0, "x-broken": "side"},
    ),
    "a last call that broke off behind": (
        [*run_of(), exchange("a", 2, id="x-after", response_id="", started=125.0, complete=False, tokens=False)],
        {"a-0 a-1 a-2": 1.0, "x-after": "side"},
    ),
    "a summary of a conversation that was over": (
        [talk("x1", ["book it"], "which day?", at=1.0, tools=("book",)),
         talk("x2", ["book it", "which day?", "friday"], "booked", at=2.0, tools=("book",)),
         talk("x3", ["book it", "which day?", "friday", "booked", "summarise"], "a booking", at=3.0)],
        {"x1 x2": 0.8, "x3": "side"},
    ),
    "a last answer without tools after a tool's result": ([*run_of(count=2), without_last_tools()],
                                                          {"a-0 a-1 a-2": 1.0}),
    "a lone title under an explicit id": (
        [*run_of(hints=SESSION), desk("x-title", ["goal of a"], "A goal", at=101.0, words="Title this.")],
        {"a-0 a-1 a-2": 1.0, "x-title": "side"},
    ),
    "a router under an explicit id": (
        [desk("x0", ["hello"], "desk", at=0.0, words="Route."), desk("x1", ["hello"], "hello!", at=1.0),
         desk("x2", ["hello", "hello!", "bye"], "bye!", at=2.0)],
        {"x1 x2": 1.0, "x0": "side"},
    ),
    "calls that share nothing but the explicit id": (
        [talk(f"x{n}", [f"part {n}"], "done", at=float(n), hints=SESSION) for n in range(3)], {"x0 x1 x2": 1.0},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("messages", "expected"), STITCHED.values(), ids=STITCHED)
def test_which_calls_are_a_run_and_how_sure_that_is(messages: list, expected: dict[str, object]) -> None:
    assert stitched(*messages) == expected


NAMING = {
    "trajectory": Hints(trajectory_id="t-a"), "conversation": Hints(conversation="conv-a"),
    "response": Hints(previous_response_id="r-default-a-0"), "tool call": Hints(),
}  # fmt: skip


@pytest.mark.parametrize("how", NAMING)
def test_naming_another_keys_ids_does_not_write_into_its_run(how: str) -> None:
    said = json.loads(exchange("a", 1).request)
    said["messages"][0]["content"] = "Do what I say."
    if how != "tool call":
        said["messages"] = [user("and now give me everything")]
    first = exchange("a", 0, caller="key-a", hints=Hints() if how == "response" else NAMING[how])
    later = exchange("a", 1, caller="key-b", hints=NAMING[how], request=json.dumps(said).encode())
    assert sorted(map(names, closed(first, later))) == ["a-0", "a-1"]
    assert list(map(names, closed(first, msgspec.structs.replace(later, caller="key-a")))) == ["a-0 a-1"]


def after(*messages: Exchange) -> Stitcher:
    """What comes when they have closed as `t1`."""
    stitcher = stitcher_of(*messages)
    (closing,) = stitcher.close_due(900.0)
    stitcher.remember(closing.turns, "t1")
    return stitcher


EXPLICIT = exchange("s", 0, explicit=True, started=100.0)


@pytest.mark.parametrize(
    ("first", "later", "of"),
    [
        (exchange("a", 0), exchange("a", 1), "t1"),
        (exchange("a", 0), exchange("b", 0), ""),
        (exchange("a", 0, caller="key-a"), exchange("a", 1, caller="key-b"), ""),
        (exchange("a", 0, caller="key-a"), exchange("a", 1, caller="key-a"), "t1"),
        (EXPLICIT, exchange("s", 1, explicit=True, started=100.2), "t1"),
        (EXPLICIT, exchange("s", 1, explicit=True, started=2000.0), "t1"),
        # The same id used again, in a conversation of its own.
        (EXPLICIT, exchange("n", 0, hints=Hints(trajectory_id="s"), started=2000.0), ""),
    ],
)
def test_a_call_for_a_closed_trajectory_continues_it(first: Exchange, later: Exchange, of: str) -> None:
    stitcher = after(first)
    stitcher.add(read_turn(later), 2000.0)
    (run,) = built(stitcher.close_due(9000.0))
    assert run.continues == of


def test_a_user_who_comes_back_after_the_end_continues_the_conversation() -> None:
    stitcher = after(call("x1", OPENING, WHICH, at=1.0))
    more = [*ASKED, user("2")]
    stitcher.add(read_turn(call("x2", more, says("sure?"), at=2000.0)), 2000.0)
    stitcher.add(read_turn(call("x3", [*more, says("sure?"), user("yes")], says("4"), at=2002.0)), 2002.0)
    (run,) = built(stitcher.close_due(9000.0))
    assert (names(run), run.continues, run.confidence) == ("x2 x3", "t1", 0.8)
    assert run.resumed_with == "2", "what they said is evidence of how the first run went"


def test_an_id_of_a_closed_trajectory_that_comes_again_is_one_that_the_engine_repeats() -> None:
    repeats = calls("add", "functions.add:zero")
    stitcher = after(call("x1", OPENING, repeats, at=1.0))
    other = [OPENING[0], user("add 3 and 3")]
    stitcher.add(read_turn(call("y1", other, repeats, at=2000.0)), 1000.0)
    echo = [repeats, result("functions.add:zero", "6")]
    stitcher.add(read_turn(call("y2", [*other, *echo], says("6"), at=2002.0)), 1002.0)
    (closing,) = stitcher.close_due(9000.0)
    assert (len(closing.turns), closing.links["y2"].signal, closing.continues) == (2, "prefix", "")


def test_the_next_run_with_the_same_words_is_not_taken_for_a_call_that_is_still_to_come() -> None:
    """A daemon was killed: the first call of a run is delivered again behind the first one of the next run."""
    other = exchange("a", 0, id="x-other", response_id="r-other", started=200.0)
    other = msgspec.structs.replace(other, response=other.response.replace(b"call-a-0", b"call-other-0"))
    stitcher = stitcher_of(exchange("a", 1), exchange("a", 2), feedback("a", 2))
    stitcher.add(read_turn(other), 1.0)
    assert stitcher.close_due(30.0) == [], "the opening is waited for"
    stitcher.add(read_turn(exchange("a", 0)), 30.0)
    assert [names(run) for run in built(stitcher.close_due(62.0))] == ["a-0 a-1 a-2"]
    assert [names(run) for run in built(stitcher.close_due(2000.0))] == ["x-other"]


TRAFFIC = (
    [exchange(run, number) for run in ("a", "b") for number in range(4)]
    + run_of("s", 2, explicit=True)
    + run_of("n", call_ids=False)
    + run_of("p", dialect="responses")
    + run_of("q", dialect="anthropic")
    + [feedback("a", 3), feedback("b", 0, 0.0), feedback("s", 1, None, response_id="", trajectory_id="s")]
    + [feedback("p", 1, 0.0, kind="step"), title(2, started=121.0), exchange("b", 1, id="x-again", started=109.0)]
    + run_of("m", source="mirror", status=0, response=b"", response_id="", tokens=False)
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
    expected = closed(*sorted(order, key=lambda message: message.id))
    assert closed(*again) == expected
    assert [(run.goal[-1], len(run.steps), run.closed_by, run.confidence) for run in expected] == [
        ("a", 4, "feedback", 1.0), ("b", 4, "feedback", 1.0), ("m", 3, "idle", 0.6), ("n", 3, "idle", 0.8),
        ("p", 3, "idle", 1.0), ("q", 3, "idle", 1.0), ("s", 2, "feedback", 1.0),
    ]  # fmt: skip


FIRST, FINAL = exchange("a", 0), feedback("a", 1, 0.5)
RATED = feedback("a", 0, 0.25, final=False, kind="rating")
ORDERED = exchange("a", 0, hints=Hints(custom_id="order-7"))
OF_ORDER = Feedback(id="f", received=1.0, custom_id="order-7", outcome=0.25)
ENDS: dict[str, tuple[list, float, list]] = {
    "final feedback, in its grace": ([FIRST, exchange("a", 1), FINAL], 0.5, []),
    "final feedback": ([FIRST, exchange("a", 1), FINAL], 1.0, [(0.5, "feedback")]),
    "not idle for long enough": ([FIRST], 899.0, []),
    "idle": ([FIRST], 900.0, [(None, "idle")]),
    "a rating waits": ([FIRST, RATED], 10.0, []),
    "a rating": ([FIRST, RATED], 9000.0, [(0.25, "idle")]),
    "of several the last that is final and has an outcome": (
        [*run_of(), feedback("a", 0, 0.0), feedback("a", 1, 1.0), feedback("a", 2, 0.3, kind="rating"),
         feedback("a", 2, None, id="f-none")],
        1.0, [(1.0, "feedback")],
    ),
    "a call that is missing is waited for": ([exchange("a", 0), *run_of("a", 4)[2:], feedback("a", 3)], 59.0, []),
    "one that never comes is not waited for for ever": (
        [exchange("a", 1), exchange("a", 2), feedback("a", 2)], 60.0, [(1.0, "feedback")],
    ),
    "one that could follow either of two is not waited for": (
        [PLAIN[0], TWIN, PLAIN[1], feedback("a", 1)], 1.0, [(1.0, "feedback")],
    ),
    "the caller's own id": ([ORDERED, OF_ORDER], 9000.0, [(0.25, "feedback")]),
    "another tenant's": ([ORDERED, msgspec.structs.replace(OF_ORDER, tenant="other")], 9000.0, [(None, "idle")]),
    "of one step by kind": ([*run_of(), feedback("a", 1, 0.0, kind="step")], 9000.0, [(None, "idle")]),
    "of one step by number": ([*run_of(), feedback("a", 1, 0.0, step=1)], 9000.0, [(None, "idle")]),
    "who rates a title does not rate the work": (
        [*run_of(), title(), feedback("a", 9, 0.0, response_id="r-title")], 9000.0,
        [(None, "feedback")],
    ),
    "of the work": ([*run_of(), title(), feedback("a", 2, 1.0)], 9000.0, [(1.0, "feedback")]),
}  # fmt: skip


@pytest.mark.parametrize(("messages", "at", "expected"), ENDS.values(), ids=ENDS)
def test_when_a_run_is_over_and_how_it_ended(messages: list, at: float, expected: list) -> None:
    assert [(run.outcome, run.closed_by) for run in closed(*messages, at=at)] == expected


def test_what_is_open_is_bounded() -> None:
    turns = [read_turn(call) for call in run_of()]
    long = stitcher_of(max_steps=3)
    closes = [long.add(turn, 0.0) and long.close_due(0.0) != [] for turn in turns]
    assert (closes, len(long), long.bytes) == ([False, False, True], 0, 0)
    many = stitcher_of(max_turns=2)
    for number, run in enumerate("abc"):
        many.add(read_turn(exchange(run, 0)), float(number))
    (closing,) = many.close_due(3.0)
    assert (closing.closed_by, closing.turns[0].goal) == ("limit", "goal of a")
    rated = stitcher_of(FIRST, max_feedback=2)
    told = [rated.hear(feedback(run, 0, id=f"{run}{number}"), 0.0) for run in ("nobody", "a") for number in range(3)]
    assert told == [False] * 3 + [True] * 3
    (closing,) = rated.close_due(1.0)
    assert [one.id for one in closing.feedback] == ["a0", "a1"], "the store gives it the others"


@pytest.mark.parametrize(
    "fields", [{}, {"explicit": True}, {"dialect": "responses"}, {"explicit": True, "call_ids": False}]
)
@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_clock_that_is_set_back_in_the_middle_of_a_run_moves_no_step(fields: dict, back: int) -> None:
    calls = [exchange("a", n, **fields, started=100.0 + 10 * n - 3600.0 * (n >= back)) for n in range(4)]
    (run,) = closed(*calls)
    assert (names(run), [step.row for step in run.steps]) == ("a-0 a-1 a-2 a-3", [0] * 4)
    assert (run.goal, run.started) == ("goal of a", 100.0)


def test_steps_carry_action_and_what_came_back() -> None:
    (run,) = closed(*run_of())
    assert [step.observation for step in run.steps] == ["result 0", "result 1", ""]
    assert [step.tool_calls[0].name for step in run.steps] == ["search"] * 3
    assert json.loads(run.tools)[0]["function"]["name"] == "search"
    assert (run.goal, run.started, run.ended) == ("goal of a", 100.0, 120.5)


@pytest.mark.parametrize("text", ["Calling tools:\n[", "Calling tools:\n[1]", "Calling tools:\n[{'function': 3}]"])
def test_text_that_only_looks_like_flattened_calls_stays_text(text: str) -> None:
    (run,) = closed(*two(says(text), [says(text), user("?")]))
    assert run.steps[0].text == text


def test_parallel_tool_calls_answered_in_another_order_are_one_step() -> None:
    parallel = calls("add", *(f"call_parallel_{one}" for one in "abc"))
    (run,) = closed(*two(parallel, [parallel, *(result(f"call_parallel_{one}", one) for one in "cab")]))
    assert [len(step.tool_calls) for step in run.steps] == [3, 0]
    assert (run.steps[0].observation, run.confidence) == ("c\na\nb", 1.0)


def test_of_several_choices_the_one_that_was_gone_on_with_is_the_step() -> None:
    (run,) = closed(*two([says("three"), says("four"), says("five")], [says("four"), user("sure?")]))
    assert [step.text for step in run.steps] == ["four", "4"]
    assert [step.why_not for step in run.steps] == ["several choices", "no token ids"]
    assert (run.trainable, run.why_not) == (False, "several choices")


def seen_by_a_mirror(who: str) -> list[Exchange]:
    second = [*OPENING, calls("add", f"call_of_user_{who}"), result(f"call_of_user_{who}", "4")]
    third = [*second, says("four"), user("sure?")]
    return [mirrored(f"{who}{number}", said, at=float(number)) for number, said in enumerate((OPENING, second, third))]


def test_mirrored_requests_give_the_answers_that_the_next_one_repeats() -> None:
    (run,) = closed(*seen_by_a_mirror("a"))
    assert [step.text for step in run.steps] == ["", "four", ""]
    assert [len(step.tool_calls) for step in run.steps] == [1, 0, 0]
    assert [step.observation for step in run.steps] == ["4", "sure?", ""]
    assert (run.trainable, run.why_not, run.confidence) == (False, "mirrored", 0.6)


def test_mirrored_twins_are_kept_apart_by_the_ids_of_their_tool_calls() -> None:
    runs = closed(*seen_by_a_mirror("a"), *seen_by_a_mirror("b"))
    assert sorted(map(names, runs)) == ["a0", "a1 a2", "b0", "b1 b2"]


# Tokens


def test_prompts_that_extend_each_other_become_one_row() -> None:
    (run,) = closed(*(exchange("a", number, version=number) for number in range(2)))
    (row,) = run.rows
    assert ids_array(row.ids).tolist() == [1] * 10 + [100, 101, 102, END, 5, 6, 7, 101, 102, 103, END]
    assert steps_array(row.step).tolist() == [-1] * 10 + [0] * 4 + [-1] * 3 + [1] * 4
    assert ids_array(row.versions).tolist() == [-1] * 10 + [0] * 4 + [-1] * 3 + [1] * 4
    assert floats_array(row.logprobs).tolist() == [0.0] * 10 + [-0.5] * 4 + [0.0] * 3 + [-0.5] * 4
    assert [step.row for step in run.steps] == [0, 0]
    assert (run.min_version, run.max_version, run.trainable) == (0, 1, True)


def test_a_prompt_that_rewrites_the_past_begins_a_row() -> None:
    (run,) = closed(exchange("a", 0), exchange("a", 1, prompt_ids=exchange("b", 0).response_ids * 5))
    assert [step.row for step in run.steps] == [0, 1]
    assert steps_array(run.rows[1].step).tolist() == [-1] * 20 + [1] * 4


GREEDY = {"sampling": Sampling(temperature=0.0)}


@pytest.mark.parametrize(
    ("second", "versions"),
    [
        ({"versions": ()}, (-1, 3)),
        ({"versions": (), "engine": "other", **GREEDY}, (3, 3)),
        # Two versions served it, for whoever compares them.
        ({"version": 4, **GREEDY}, (3, 4)),
    ],
)
def test_the_versions_of_a_run_are_unknown_if_those_of_a_call_are_that_trains(
    second: dict, versions: tuple[int, int]
) -> None:
    (run,) = closed(exchange("a", 0, version=3), exchange("a", 1, **second))
    assert (run.min_version, run.max_version) == versions


def test_a_call_that_cannot_be_trained_on_keeps_only_itself_out() -> None:
    greedy = exchange("a", 1, **GREEDY)
    (run,) = closed(exchange("a", 0), greedy, exchange("a", 2))
    assert (run.trainable, run.why_not) == (True, "")
    assert [(step.row, step.why_not) for step in run.steps] == [(0, ""), (-1, "temperature 0"), (0, "")]
    (row,) = run.rows
    # What it said is context of the call after it, and has no gradient.
    assert steps_array(row.step).tolist() == [-1] * 10 + [0] * 4 + [-1] * 10 + [2] * 4
    assert ids_array(row.ids).tolist()[17:21] == ids_array(greedy.response_ids).tolist()


@pytest.mark.parametrize(
    ("fields", "why", "of_processed"),
    [
        ({}, "", ""),
        ({"tokens": False}, "no token ids", "no token ids"),
        ({"source": "mirror"}, "mirrored", "mirrored"),
        ({"logprobs": b""}, "no token ids", "no token ids"),
        ({"complete": False}, "incomplete", "incomplete"),
        ({"error": "response was cut"}, "unreadable", "unreadable"),
        ({"response": b"<html>"}, "unreadable", "unreadable"),
        ({"why_no_tokens": "none from /v1/messages", "tokens": False}, *["none from /v1/messages"] * 2),
        ({"redacted": ("prompt",)}, "redacted prompt", "redacted prompt"),
        ({"redacted": ("response",)}, "redacted response", "redacted response"),
        (GREEDY, "temperature 0", "temperature 0"),
        ({"sampling": Sampling(bent_by="logit_bias")}, "logit_bias", "logit_bias"),
        ({"sampling": Sampling(bent_by="strict tools")}, "", ""),
        # What scales or cuts the distribution, and nothing else.
        ({"sampling": Sampling(temperature=0.7)}, "temperature", ""),
        ({"sampling": Sampling(top_p=0.9)}, "top_p", ""),
        ({"sampling": Sampling(top_k=20)}, "top_k", ""),
        ({"sampling": Sampling(presence_penalty=0.5)}, "presence_penalty", ""),
    ],
)  # fmt: skip
def test_what_is_not_trainable_says_why_by_whether_log_probs_are_of_what_was_sampled_from(
    fields: dict, why: str, of_processed: str
) -> None:
    call = exchange("a", 1, engine="own", **fields)
    assert [read_turn(call, engines).why_not for engines in ((), ("other",), ("own",))] == [why, why, of_processed]


@pytest.mark.parametrize("shaped_by", ["forced tool choice", "structured output", "strict tools"])
def test_a_call_that_a_grammar_shaped_may_train_and_says_so(shaped_by: str) -> None:
    found = read_turn(exchange("a", 1, sampling=Sampling(bent_by=shaped_by)))
    assert (found.why_not, found.sampling.processing) == ("", Processing(grammar=True))


def test_a_row_ends_where_the_sampling_changes_and_says_what_it_was() -> None:
    cold = Sampling(temperature=0.7, top_p=0.8, repetition_penalty=1.05)
    made = [exchange("a", number, engine="own", sampling=cold if number == 2 else Sampling()) for number in range(3)]
    stitcher = stitcher_of()
    for one in made:
        stitcher.add(read_turn(one, ("own",)), 0.0)
    (run,) = built(stitcher.close_due(9000.0))
    assert [row.processing for row in run.rows] == [Processing(), Processing(top_p=0.8, repetition_penalty=1.05)]
