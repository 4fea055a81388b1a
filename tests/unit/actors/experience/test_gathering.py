"""Which trajectories make one question, as goals in free words come and come."""

import json

from actors.experience.gathering import gathered
from actors.kinds.clusters import cluster_of
from actors.messages import Step, Trajectory

FRESH = 4
WORDS = "amber birch cedar delta ember fjord grove heath inlet jetty knoll ledge marsh north ocean plain".split()  # noqa: SIM905


def run(id: str, goal: str, tools: tuple[str, ...] = ("a", "b"), role: str = "") -> Trajectory:
    listed = json.dumps([{"function": {"name": name}} for name in tools]).encode()
    steps = (Step(exchange_id=id, text="Done.", role=role),)
    return Trajectory(id=id, goal=goal, tools=listed, steps=steps, outcome=1.0, started=0.0, ended=0.0)


def kind(run: Trajectory) -> str:
    return cluster_of(run.goal)


def ids(found: list[Trajectory]) -> list[str]:
    return [run.id for run in found]


def test_a_neighbourhood_with_enough_news_is_asked_about_alone_the_newest_first():
    runs = [run(f"r{n}", f"refund order A{n}") for n in range(FRESH)] + [run("x", "close my account")]
    assert ids(gathered(runs, (), FRESH, kind)) == ["r3", "r2", "r1", "r0"]
    assert gathered(runs, ("r0",), FRESH, kind) == []


def test_where_no_two_goals_are_alike_an_agents_nearest_are():
    goals = [f"please {word} the {WORDS[-n - 1]} thing" for n, word in enumerate(WORDS[: 2 * FRESH - 1])]
    runs = [run(f"r{n}", goal) for n, goal in enumerate(goals)]
    assert gathered(runs, (), FRESH, kind) == [], "too little news for so wide a question"
    runs.append(run("like", f"could you {WORDS[0]} something"))
    found = gathered(runs, (), FRESH, kind)
    assert ids(found)[:2] == ["r0", "like"]
    assert len(found) == FRESH


def test_an_agent_that_says_what_it_is_is_one_with_any_tools():
    runs = [run(f"r{n}", f"{word} now", (f"{word}.do",), role="clerk#1") for n, word in enumerate(WORDS[: 2 * FRESH])]
    assert len(gathered(runs, (), FRESH, kind)) == FRESH
