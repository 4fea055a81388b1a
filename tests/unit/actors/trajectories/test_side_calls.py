"""The main line of a trajectory is told from the calls beside it."""

import itertools
import json

import pytest

from actors.messages import Exchange, Feedback, Hints, Trajectory
from actors.trajectories.builder import build_all
from actors.trajectories.parsed_exchange import read_turn
from actors.trajectories.stitching import Limits, Stitcher
from tests.support.traffic import TOOLS, exchange, feedback, without_tools

LIMITS = Limits()
SESSION = Hints(trajectory_id="session")


def closed(*messages: Exchange | Feedback) -> tuple[Trajectory, list[Trajectory]]:
    """The main line, and what is beside it, of all that is one closing."""
    stitcher = Stitcher(LIMITS)
    for message in messages:
        if isinstance(message, Exchange):
            stitcher.add(read_turn(message), 0.0)
        else:
            stitcher.hear(message, 0.0)
    (closing,) = stitcher.close_due(10_000.0)
    main, *sides = build_all(closing)
    return main.run, [side.run for side in sides]


def ids(run: Trajectory) -> list[str]:
    return [step.exchange_id for step in run.steps]


def chat(
    name: str, messages: list[tuple[str, str]], said: str, *, at: float, tools: bool = False, **fields
) -> Exchange:
    """A call whose conversation is text alone."""
    request = {"messages": [{"role": role, "content": text} for role, text in messages]}
    request |= {"tools": TOOLS} if tools else {}
    response = {"choices": [{"message": {"role": "assistant", "content": said}}]}
    return exchange(
        "unused", 0, id=name, response_id=f"r-{name}", started=at, request=json.dumps(request).encode(),
        response=json.dumps(response).encode(), **{"hints": Hints(), **fields},
    )  # fmt: skip


MAIN = [exchange("a", number) for number in range(3)]


@pytest.mark.parametrize("number", [1, 2])
def test_a_title_asked_for_in_the_middle_is_beside_the_main_line(number: int) -> None:
    title = exchange(
        "a", number, id="x-title", response_id="r-title", started=111.0, request=without_tools("a", number)
    )
    main, (side,) = closed(*MAIN, title)
    assert ids(main) == [call.id for call in MAIN]
    assert (ids(side), side.side_of, side.trainable, side.why_not) == (["x-title"], main.id, False, "side call")


def test_whatever_the_order_the_lines_are_the_same() -> None:
    title = exchange("a", 1, id="x-title", response_id="r-title", started=105.0, request=without_tools("a", 1))
    retried = exchange("a", 1, id="x-again", response_id="r-again", started=109.0)
    found = [closed(*order) for order in itertools.permutations([*MAIN, title, retried])]
    assert all(lines == found[0] for lines in found)
    assert ids(found[0][0]) == [call.id for call in MAIN]
    assert sorted(ids(side) for side in found[0][1]) == [["x-again"], ["x-title"]]


def test_a_last_call_that_broke_off_and_was_made_again_leaves_the_work_trainable() -> None:
    broken = exchange("a", 2, id="x-broken", response_id="", started=119.0, complete=False, tokens=False)
    main, (side,) = closed(*MAIN, broken)
    assert (ids(main)[-1], ids(side), main.trainable) == ("x-default-a-2", ["x-broken"], True)
    after = exchange("a", 2, id="x-after", response_id="", started=125.0, complete=False, tokens=False)
    assert ids(closed(*MAIN, after)[0])[-1] == "x-default-a-2"


def test_a_summary_of_a_conversation_that_was_over_is_beside_it() -> None:
    talk = [("user", "book it")]
    first = chat("x1", talk, "which day?", at=1.0, tools=True)
    talk = [*talk, ("assistant", "which day?"), ("user", "friday")]
    second = chat("x2", talk, "booked", at=2.0, tools=True)
    talk = [*talk, ("assistant", "booked"), ("user", "summarise")]
    main, (side,) = closed(first, second, chat("x3", talk, "a booking", at=3.0))
    assert (ids(main), ids(side)) == (["x1", "x2"], ["x3"])


def test_a_last_answer_without_tools_after_a_tools_result_is_part_of_the_work() -> None:
    request = json.loads(exchange("a", 2).request)
    del request["tools"]
    main, sides = closed(*MAIN[:2], exchange("a", 2, request=json.dumps(request).encode()))
    assert (len(main.steps), sides) == (3, [])


def test_under_an_explicit_id_a_lone_title_is_beside_the_conversation() -> None:
    named = [exchange("a", number, hints=SESSION) for number in range(3)]
    title = chat("x-title", [("system", "Title this."), ("user", "goal of a")], "A goal", at=101.0, hints=SESSION)
    main, (side,) = closed(*named, title)
    assert (len(main.steps), ids(side)) == (3, ["x-title"])


def test_under_an_explicit_id_a_router_without_tools_is_beside_a_conversation_without_tools() -> None:
    router = chat("x0", [("system", "Route."), ("user", "hello")], "desk", at=0.0, hints=SESSION)
    first = chat("x1", [("system", "Desk."), ("user", "hello")], "hello!", at=1.0, hints=SESSION)
    talk = [("system", "Desk."), ("user", "hello"), ("assistant", "hello!"), ("user", "bye")]
    main, (side,) = closed(router, first, chat("x2", talk, "bye!", at=2.0, hints=SESSION))
    assert (ids(main), ids(side)) == (["x1", "x2"], ["x0"])


def test_calls_that_share_nothing_but_the_explicit_id_are_all_steps() -> None:
    calls = [chat(f"x{n}", [("user", f"part {n}")], "done", at=float(n), hints=SESSION) for n in range(3)]
    main, sides = closed(*calls)
    assert (ids(main), sides) == (["x0", "x1", "x2"], [])


def test_who_rates_a_title_does_not_rate_the_work() -> None:
    title = exchange("a", 1, id="x-title", response_id="r-title", started=105.0, request=without_tools("a", 1))
    main, (side,) = closed(*MAIN, title, feedback("a", 9, 0.0, response_id="r-title"))
    assert (main.outcome, side.outcome) == (None, 0.0)
    main, (side,) = closed(*MAIN, title, feedback("a", 2, 1.0))
    assert (main.outcome, side.outcome) == (1.0, None)


def test_feedback_by_the_callers_own_id_finds_its_call() -> None:
    own = exchange("a", 2, hints=Hints(custom_id="order-7"))
    main, _ = closed(*MAIN[:2], own, Feedback(id="f", received=1.0, custom_id="order-7", outcome=0.25))
    assert (main.outcome, main.closed_by) == (0.25, "feedback")


@pytest.mark.parametrize("fields", [{"kind": "step"}, {"step": 1}, {"kind": "step", "step": 1}])
def test_what_is_said_of_one_step_neither_closes_nor_decides(fields: dict) -> None:
    main, _ = closed(*MAIN, feedback("a", 1, 0.0, **fields))
    assert (main.outcome, main.closed_by) == (None, "idle")


def test_feedback_by_the_callers_own_id_is_taken_for_no_other_tenant() -> None:
    own = exchange("a", 0, hints=Hints(custom_id="order-7"))
    said = Feedback(id="f", received=1.0, custom_id="order-7", outcome=0.25, tenant="other")
    main, _ = closed(own, said)
    assert main.outcome is None
