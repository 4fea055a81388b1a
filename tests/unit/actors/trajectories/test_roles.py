"""Several agents in one session: who acted, who handed to whom, and rows of each role's own context."""

import itertools
import json

import pytest

from actors.messages import Exchange, Handoff, Hints, Trajectory, decode, encode, ids_array, pack_array, steps_array
from actors.trajectories.builder import build_all
from actors.trajectories.parsed_exchange import read_turn
from actors.trajectories.roles import label
from actors.trajectories.stitching import Limits, Stitcher
from tests.support.traffic import exchange

LIMITS = Limits()
PLANNER = "You are the planner. Split the work up. It is {} o'clock."
WORKER = "You are a careful worker who writes what the planner wants."
GOAL = "Please arrange a trip to Rome for the whole team."
TASK = "Find the cheapest flight to Rome for six people."
FOUND = "The cheapest flight is AZ 610 on Friday morning."
PLAN_TOOLS, WORK_TOOLS = ("delegate", "finish"), ("search_flights",)


def built(*calls: Exchange) -> tuple[Trajectory, list[Trajectory]]:
    """The main line, and what is beside it."""
    stitcher = Stitcher(LIMITS)
    for call in calls:
        stitcher.add(read_turn(call), 0.0)
    (closing,) = stitcher.close_due(10_000.0)
    main, *sides = build_all(closing)
    return main.run, [side.run for side in sides]


def call(
    name: str,
    system: str,
    said: list[dict],
    answer: dict,
    *,
    tools=(),
    at: float,
    prompt=(),
    session="session",
    **fields,
) -> Exchange:
    messages = ([{"role": "system", "content": system}] if system else []) + said
    request: dict = {"messages": messages}
    if tools:
        request["tools"] = [{"type": "function", "function": {"name": tool}} for tool in tools]
    tokens = pack_array(prompt or [1, 2], "<i4")
    return exchange(
        "unused", 0, id=name, response_id=f"r-{name}", started=at, hints=Hints(trajectory_id=session),
        request=json.dumps(request).encode(), response=json.dumps({"choices": [{"message": answer}]}).encode(),
        prompt_ids=tokens, response_ids=pack_array([int(at), 9], "<i4"), logprobs=pack_array([-1.0, -1.0], "<f4"),
        versions=(), **fields,
    )  # fmt: skip


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def says(text: str) -> dict:
    return {"role": "assistant", "content": text}


def calls(tool: str, key: str, **arguments) -> dict:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": key, "type": "function", "function": function}]}


def result(key: str, text: str) -> dict:
    return {"role": "tool", "content": text, "tool_call_id": key}


def session(work_tools=WORK_TOOLS) -> list[Exchange]:
    """A planner delegates, a worker works in a conversation of its own, the planner goes on."""
    delegated, searched = calls("delegate", "d-planner-1", task=TASK), calls("search_flights", "s-worker-1", to="Rome")
    worked = [user(TASK), searched, result("s-worker-1", "AZ 610, 90 EUR")] if work_tools else [user(TASK)]
    made = [call("p1", PLANNER.format(9), [user(GOAL)], delegated, tools=PLAN_TOOLS, at=1.0, prompt=[1, 2])]
    if work_tools:
        made.append(call("w1", WORKER, [user(TASK)], searched, tools=work_tools, at=2.0, prompt=[5, 6]))
    made.append(call("w2", WORKER, worked, says(FOUND), tools=work_tools, at=3.0, prompt=[5, 6, 2, 9, 7]))
    seen = [user(GOAL), delegated, result("d-planner-1", f"worker: {FOUND}")]
    finished = says("Flight AZ 610 is what you want.")
    made.append(call("p2", PLANNER.format(10), seen, finished, tools=PLAN_TOOLS, at=4.0, prompt=[1, 2, 1, 9, 8]))
    return made


def names(run: Trajectory) -> list[str]:
    return [step.role.partition("#")[0] for step in run.steps]


def ids(run: Trajectory) -> list[str]:
    return [step.exchange_id for step in run.steps]


def test_a_planner_and_its_worker_are_two_roles_of_one_trajectory() -> None:
    run, sides = built(*session())
    assert (ids(run), sides) == (["p1", "w1", "w2", "p2"], [])
    assert names(run) == ["planner", "careful-worker", "careful-worker", "planner"]
    assert len({step.role for step in run.steps}) == 2


def test_handoffs_say_from_whom_to_whom_at_which_step_and_by_which_tool() -> None:
    run, _ = built(*session())
    planner, worker = run.steps[0].role, run.steps[1].role
    assert run.handoffs == (
        Handoff(source=planner, target=worker, step=1, via="delegate"),
        Handoff(source=worker, target=planner, step=3),
    )


def test_each_roles_rows_are_of_its_own_context_and_go_on_where_it_does() -> None:
    run, _ = built(*session())
    assert [step.row for step in run.steps] == [0, 1, 1, 0]
    assert [ids_array(row.ids).tolist() for row in run.rows] == [
        [1, 2, 1, 9, 8, 4, 9], [5, 6, 2, 9, 7, 3, 9],
    ]  # fmt: skip
    assert [sorted(set(steps_array(row.step).tolist()) - {-1}) for row in run.rows] == [[0, 3], [1, 2]]


def test_what_comes_back_to_an_agent_is_of_its_own_conversation() -> None:
    run, _ = built(*session())
    assert [step.observation for step in run.steps] == [f"worker: {FOUND}", "AZ 610, 90 EUR", "", ""]


def test_whatever_the_order_the_trajectory_is_the_same() -> None:
    assert len({encode(built(*order)[0]) for order in itertools.permutations(session())}) == 1


def test_a_worker_without_tools_is_no_side_call_if_its_answer_comes_back() -> None:
    run, sides = built(*session(work_tools=()))
    assert (ids(run), sides) == (["p1", "w2", "p2"], [])
    assert names(run) == ["planner", "careful-worker", "planner"]


def test_a_planner_without_tools_is_no_side_call_if_its_plan_is_the_workers_task() -> None:
    plan = "First look for a flight, then for a hotel near the office."
    work = [user(f"Do this: {plan}"), calls("search_flights", "s1", to="Rome"), result("s1", "AZ 610")]
    run, sides = built(
        call("p1", PLANNER, [user(GOAL)], says(plan), at=1.0),
        call("w1", WORKER, work[:1], work[1], tools=WORK_TOOLS, at=2.0),
        call("w2", WORKER, work, says("done"), tools=WORK_TOOLS, at=3.0),
    )
    assert (ids(run), sides) == (["p1", "w1", "w2"], [])
    assert run.handoffs[0].step == 1


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (GOAL, "A trip to Rome for the whole team"),
        (f"Give this a title: {GOAL}", "A trip to Rome for the whole team"),
        (f"Sum up: {GOAL} {TASK} {FOUND}", "They want to go to Rome and take AZ 610."),
    ],
)
def test_a_title_or_a_summary_is_still_beside_the_work_of_several_agents(asked: str, answer: str) -> None:
    title = call("title", "You write titles.", [user(asked)], says(answer), at=5.0)
    run, (side,) = built(*session(), title)
    assert (ids(run), ids(side), side.side_of) == (["p1", "w1", "w2", "p2"], ["title"], run.id)


def handed_over(tools=(("transfer_to_refund_agent",), ("refund",))) -> list[Exchange]:
    """As the OpenAI Agents SDK does it: the second agent sees the conversation of the first, under its own words."""
    transfer, refund = calls("transfer_to_refund_agent", "t-1"), calls("refund", "r-1", order="O17")
    said = [user("I want my money back for order O17."), transfer, result("t-1", '{"assistant": "Refund agent"}')]
    triage = "You are a triage agent. Hand off to whoever can help."
    refunds = "You are the refund agent. Be quick."
    none = {"session": ""}
    return [
        call("t1", triage, said[:1], transfer, tools=tools[0], at=1.0, **none),
        call("a1", refunds, said, refund, tools=tools[1], at=2.0, **none),
        call("a2", refunds, [*said, refund, result("r-1", "ok")], says("Done."), tools=tools[1], at=3.0, **none),
    ]


def desk(name: str, number: int, system: str, tools: tuple[str, ...]) -> Exchange:
    """Call `number` of a run that searches, books, and says good-bye."""
    said = [user("hello"), calls("search", "s1"), result("s1", "a"), calls("book", "b1"), result("b1", "b")]
    answer = said[2 * number + 1] if number < 2 else says("bye")
    return call(name, system, said[: 2 * number + 1], answer, tools=tools, at=number + 1.0)


def test_a_handoff_by_tool_call_needs_no_explicit_id() -> None:
    run, sides = built(*handed_over())
    assert (ids(run), sides) == (["t1", "a1", "a2"], [])
    assert names(run) == ["triage-agent", "refund-agent", "refund-agent"]
    assert [(each.step, each.via) for each in run.handoffs] == [(1, "transfer_to_refund_agent")]
    assert run.steps[0].observation == '{"assistant": "Refund agent"}'


def test_what_the_user_says_to_the_next_agent_is_what_came_back_to_the_one_before() -> None:
    said = [user("good morning to everybody here"), says("I will connect you."), user("thank you very much")]
    run, _ = built(
        call("a", "You are a greeter.", said[:1], said[1], at=1.0),
        call("b", "You are a clerk.", said, says("Yes?"), at=2.0),
    )
    assert names(run) == ["greeter", "clerk"]
    assert run.steps[0].observation == "thank you very much"


def test_the_same_agents_have_the_same_names_in_every_session() -> None:
    first, second = built(*session())[0], built(*session(work_tools=()))[0]
    assert first.steps[0].role == second.steps[0].role
    assert {step.role for step in second.steps} == {first.steps[0].role, first.steps[1].role}


def test_agents_with_the_same_words_are_told_apart_by_their_tools() -> None:
    words = "You are a helpful assistant."
    delegated = calls("delegate", "d-1", task=TASK)
    run, _ = built(
        call("p1", words, [user(GOAL)], delegated, tools=PLAN_TOOLS, at=1.0),
        call("w1", words, [user(TASK)], says(FOUND), tools=WORK_TOOLS, at=2.0),
        call("p2", words, [user(GOAL), delegated, result("d-1", FOUND)], says("ok"), tools=PLAN_TOOLS, at=3.0),
    )
    assert [step.role for step in run.steps] == [run.steps[0].role, run.steps[1].role, run.steps[0].role]
    assert run.steps[0].role != run.steps[1].role


@pytest.mark.parametrize(
    "systems",
    [
        ["It is 9:00. You are a desk.", "It is 9:05. You are a desk.", "It is 10:00. You are a desk."],
        ["You are a desk of our shop and serve Anna as well as you can, in short and plain words, on Monday."]
        + ["You are a desk of our shop and serve Anna as well as you can, in short and plain words, on Tuesday."] * 2,
        ["", "", ""],
    ],
)
def test_one_agent_whose_prompt_is_filled_in_anew_is_one_role(systems: list[str]) -> None:
    run, _ = built(*(desk(f"x{n}", n, system, ("search",)) for n, system in enumerate(systems)))
    assert len({step.role for step in run.steps}) == 1
    assert run.handoffs == ()


def test_tools_that_come_and_go_make_no_other_role() -> None:
    tools = [("search",), ("search", "book"), ()]
    run, _ = built(*(desk(f"x{n}", n, "You are a desk.", own) for n, own in enumerate(tools)))
    assert [step.role for step in run.steps] == [run.steps[0].role] * 3
    assert run.steps[0].role.startswith("desk#")


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("You are the planner. Split.", "planner"),
        ("You are a careful worker who writes", "careful-worker"),
        ("Role: Senior Code Reviewer\nRules", "senior-code-reviewer"),
        ("# System context\nYou are part of a multi-agent system called the Agents SDK.\nYou are a clerk.", "clerk"),
        ("Answer in French.", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_a_label_is_what_the_prompt_calls_its_reader(system: str, expected: str) -> None:
    assert label(system) == expected


def test_records_from_before_there_were_roles_decode_as_they_were() -> None:
    import msgspec

    run, _ = built(*session())
    old = msgspec.msgpack.decode(encode(run))
    del old["handoffs"]
    for step in old["steps"]:
        del step["role"]
    found = decode(msgspec.msgpack.encode(old))
    assert isinstance(found, Trajectory)
    assert {step.role for step in found.steps} == {""}
    assert (found.handoffs, found.rows, ids(found)) == ((), run.rows, ids(run))
