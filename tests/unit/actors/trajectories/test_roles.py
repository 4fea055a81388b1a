"""Several agents in one session: who acted, who handed to whom, and rows of each role's own context."""

import itertools

import msgspec
import pytest

from actors.messages import Exchange, Handoff, Hints, Trajectory, encode, ids_array, steps_array
from actors.trajectories.roles import label
from tests.unit.actors.trajectories.made import SESSION, call, calls, lines, names, result, says, system, user

PLANNER = "You are the planner. Split the work up. It is {} o'clock."
WORKER = "You are a careful worker who writes what the planner wants."
GOAL = "Please arrange a trip to Rome for the whole team."
TASK = "Find the cheapest flight to Rome for six people."
FOUND = "The cheapest flight is AZ 610 on Friday morning."
PLAN_TOOLS, WORK_TOOLS = ("delegate", "finish"), ("search_flights",)
SEARCHED, DELEGATED = calls("search_flights", "s-worker-1", to="Rome"), calls("delegate", "d-planner-1", task=TASK)


def said(name: str, words: str, conversation: list[dict], answer: dict, *, at: float, tools=(), **fields) -> Exchange:
    """A call under the system prompt `words`."""
    opening = [system(words)] if words else []
    return call(name, [*opening, *conversation], answer, at=at, tools=tools, **({"hints": SESSION} | fields))


def session(work_tools=WORK_TOOLS) -> list[Exchange]:
    """A planner delegates, a worker works in a conversation of its own, the planner goes on."""
    worked = [user(TASK), *([SEARCHED, result("s-worker-1", "AZ 610, 90 EUR")] if work_tools else [])]
    made = [said("p1", PLANNER.format(9), [user(GOAL)], DELEGATED, tools=PLAN_TOOLS, at=1.0, prompt=[1, 2])]
    if work_tools:
        made.append(said("w1", WORKER, [user(TASK)], SEARCHED, tools=work_tools, at=2.0, prompt=[5, 6]))
    made.append(said("w2", WORKER, worked, says(FOUND), tools=work_tools, at=3.0, prompt=[5, 6, 2, 9, 7]))
    seen = [user(GOAL), DELEGATED, result("d-planner-1", f"worker: {FOUND}")]
    last = says("Flight AZ 610 is what you want.")
    return [*made, said("p2", PLANNER.format(10), seen, last, tools=PLAN_TOOLS, at=4.0, prompt=[1, 2, 1, 9, 8])]


def roles(run: Trajectory) -> list[str]:
    return [step.role.partition("#")[0] for step in run.steps]


def test_a_planner_and_its_worker_are_two_roles_of_one_trajectory() -> None:
    run, sides = lines(*session())
    assert (names(run), sides) == ("p1 w1 w2 p2", [])
    assert roles(run) == ["planner", "careful-worker", "careful-worker", "planner"]
    planner, worker = run.steps[0].role, run.steps[1].role
    assert {step.role for step in run.steps} == {planner, worker}
    assert run.handoffs == (
        Handoff(source=planner, target=worker, step=1, via="delegate"),
        Handoff(source=worker, target=planner, step=3),
    )
    # What comes back to an agent is of its own conversation, and so are its rows, which go on where it does.
    assert [step.observation for step in run.steps] == [f"worker: {FOUND}", "AZ 610, 90 EUR", "", ""]
    assert [step.row for step in run.steps] == [0, 1, 1, 0]
    assert [ids_array(row.ids).tolist() for row in run.rows] == [[1, 2, 1, 9, 8, 4, 9], [5, 6, 2, 9, 7, 3, 9]]
    assert [sorted(set(steps_array(row.step).tolist()) - {-1}) for row in run.rows] == [[0, 3], [1, 2]]
    other, _ = lines(*session(work_tools=()))
    assert [step.role for step in other.steps][::2] == [planner] * 2, "the same agent has the same name in any session"
    alone, _ = lines(said("p1", PLANNER.format(9), [user(GOAL)], says("ok"), tools=("finish",), at=1.0))
    assert alone.steps[0].role == planner, "whatever tools it has there"


def test_whatever_the_order_the_trajectory_is_the_same() -> None:
    assert len({encode(lines(*order)[0]) for order in itertools.permutations(session())}) == 1


PLAN = "First look for a flight, then for a hotel near the office."
PLANNED = [user(f"Do this: {PLAN}"), SEARCHED, result("s-worker-1", "AZ 610")]
WORDS = "You are a helpful assistant."
HELLO = [user("good morning to everybody here"), says("I will connect you."), user("thank you very much")]
REFUND = [
    user("I want my money back for order O17."), calls("transfer_to_refund_agent", "t-1"),
    result("t-1", '{"assistant": "Refund agent"}'), calls("refund", "r-1", order="O17"), result("r-1", "ok"),
]  # fmt: skip
REFUNDS = {"tools": ("refund",), "hints": Hints()}
TOGETHER: dict[str, tuple[list[Exchange], list[str], list[tuple[int, str]], str]] = {
    "a worker without tools whose answer comes back": (
        session(work_tools=()), ["planner", "careful-worker", "planner"], [(1, "delegate"), (2, "")],
        f"worker: {FOUND}",
    ),
    "a planner without tools whose plan is the worker's task": (
        [
            said("p1", PLANNER, [user(GOAL)], says(PLAN), at=1.0),
            said("w1", WORKER, PLANNED[:1], SEARCHED, tools=WORK_TOOLS, at=2.0),
            said("w2", WORKER, PLANNED, says("done"), tools=WORK_TOOLS, at=3.0),
        ],
        ["planner", "careful-worker", "careful-worker"], [(1, "")], "",
    ),
    # As the OpenAI Agents SDK does it: the second agent sees the conversation of the first, under its own words.
    "a handoff by a tool call, without an explicit id": (
        [
            said("t1", "You are a triage agent. Hand off to whoever can help.", REFUND[:1], REFUND[1],
                 tools=("transfer_to_refund_agent",), at=1.0, hints=Hints()),
            said("a1", "You are the refund agent. Be quick.", REFUND[:3], REFUND[3], at=2.0, **REFUNDS),
            said("a2", "You are the refund agent. Be quick.", REFUND, says("Done."), at=3.0, **REFUNDS),
        ],
        ["triage-agent", "refund-agent", "refund-agent"], [(1, "transfer_to_refund_agent")],
        '{"assistant": "Refund agent"}',
    ),
    "what the user says to the next agent came back to the one before": (
        [said("a", "You are a greeter.", HELLO[:1], HELLO[1], at=1.0),
         said("b", "You are a clerk.", HELLO, says("Yes?"), at=2.0)],
        ["greeter", "clerk"], [(1, "")], "thank you very much",
    ),
    "agents with the same words are told apart by their tools": (
        [
            said("p1", WORDS, [user(GOAL)], DELEGATED, tools=PLAN_TOOLS, at=1.0),
            said("w1", WORDS, [user(TASK)], says(FOUND), tools=WORK_TOOLS, at=2.0),
            said("p2", WORDS, [user(GOAL), DELEGATED, result("d-planner-1", FOUND)], says("ok"), tools=PLAN_TOOLS,
                 at=3.0),
        ],
        ["helpful-assistant"] * 3, [(1, "delegate"), (2, "")], FOUND,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "who", "handed", "back"), TOGETHER.values(), ids=TOGETHER)
def test_agents_that_work_together(made: list, who: list, handed: list, back: str) -> None:
    run, sides = lines(*made)
    assert (names(run), sides) == (" ".join(one.id for one in made), [])
    assert roles(run) == who
    assert [(each.step, each.via) for each in run.handoffs] == handed
    assert run.steps[0].observation == back


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (GOAL, "A trip to Rome for the whole team"),
        (f"Give this a title: {GOAL}", "A trip to Rome for the whole team"),
        (f"Sum up: {GOAL} {TASK} {FOUND}", "They want to go to Rome and take AZ 610."),
    ],
)
def test_a_title_or_a_summary_is_still_beside_the_work_of_several_agents(asked: str, answer: str) -> None:
    run, sides = lines(*session(), said("title", "You write titles.", [user(asked)], says(answer), at=5.0))
    assert (names(run), sides) == ("p1 w1 w2 p2", ["title"])


MONDAY = "You are a desk of our shop and serve Anna as well as you can, in short and plain words, on Monday."
TUESDAY = MONDAY.replace("Monday", "Tuesday")


@pytest.mark.parametrize(
    ("prompts", "tools"),
    [
        ([f"It is {at}. You are a desk." for at in ("9:00", "9:05", "10:00")], [("search",)] * 3),
        ([MONDAY, TUESDAY, TUESDAY], [("search",)] * 3),
        (["", "", ""], [("search",)] * 3),
        (["You are a desk."] * 3, [("search",), ("search", "book"), ()]),
    ],
)
def test_one_agent_whose_prompt_or_tools_change_is_one_role(prompts: list[str], tools: list[tuple[str, ...]]) -> None:
    whole = [user("hello"), calls("search", "s1"), result("s1", "a"), calls("book", "b1"), result("b1", "b")]
    answers = [whole[1], whole[3], says("bye")]
    run, _ = lines(
        *(said(f"x{n}", prompts[n], whole[: 2 * n + 1], answers[n], tools=tools[n], at=n + 1.0) for n in range(3))
    )
    assert len({step.role for step in run.steps}) == 1
    assert run.handoffs == ()


@pytest.mark.parametrize(
    ("agents", "prompts", "expected"),
    [
        (["desk", "desk"], ["You are a clerk.", WORKER], ["desk", "desk"]),
        (["desk", "clerk"], [WORKER, WORKER], ["desk", "clerk"]),
        (["desk", ""], [WORKER, WORKER], ["desk", "careful-worker#"]),
    ],
)
def test_a_name_in_the_address_goes_before_what_the_prompt_says(
    agents: list[str], prompts: list[str], expected: list[str]
) -> None:
    whole = [user("hello"), calls("search", "s1"), result("s1", "a")]
    hints = [msgspec.structs.replace(SESSION, agent=agent) for agent in agents]
    first = said("x0", prompts[0], whole[:1], whole[1], tools=("search",), at=1.0, hints=hints[0])
    run, _ = lines(first, said("x1", prompts[1], whole, says("bye"), tools=("search",), at=2.0, hints=hints[1]))
    assert [step.role[: len(name)] for step, name in zip(run.steps, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("You are the planner. Split.", "planner"),
        ("You are a careful worker who writes", "careful-worker"),
        ("Role: Senior Code Reviewer\nRules", "senior-code-reviewer"),
        ("# System context\nYou are part of a multi-agent system called the Agents SDK.\nYou are a clerk.", "clerk"),
        ("Answer in French.", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_a_label_is_what_the_prompt_calls_its_reader(prompt: str, expected: str) -> None:
    assert label(prompt) == expected
