"""When a change of tools is believed of which agent, and how often what nobody changed is said to have changed."""

import random
from collections.abc import Callable, Iterable, Sequence

import pytest

from actors.messages import derived_id
from actors.monitoring.history import History, Swap
from actors.monitoring.monitor import Finding
from actors.monitoring.tools import ToolDrift
from actors.tool_results.runs import RunSummary

DESK = ("book", "find", "weather")
DRIFTED = ("buy", "find", "weather")
TICKETS = ("close", "open", "reply", "search")
MINUTE = 60.0


def run(
    number: float, *, success: bool | None = True, version: int = 1, names: Sequence[str] = DESK, errors: int = 0,
    agent: str = "desk#1", tenant: str = "default",
) -> RunSummary:  # fmt: skip
    """One a minute, if `number` counts them."""
    return RunSummary(
        id=f"{agent}{number}", tenant=tenant, started=number * MINUTE, ended=number * MINUTE + 1.0, low=version,
        high=version, tools=derived_id("tools", *names), steps=5, errors=errors,
        outcome=None if success is None else float(success), agent=f"{tenant}/{agent}",
    )  # fmt: skip


def unnamed(number: float, names: Sequence[str]) -> tuple[RunSummary, Sequence[str]]:
    """A run of an agent without a system prompt: its name is a digest of its tools."""
    return run(number, names=names, agent=derived_id("t", *names)[:8]), names


class Desk:
    def __init__(self) -> None:
        self.history, self.monitor = History(200, 100, 3), ToolDrift()

    def see(self, runs: Iterable[RunSummary], names: Sequence[str] = DESK) -> list[Finding]:
        """What is found of `runs`, with a look after each."""
        return [found for one in runs for found in self.take(one, names)]

    def take(self, one: RunSummary, names: Sequence[str]) -> list[Finding]:
        one.agent = self.monitor.known_as(one, tuple(names))
        self.history.add(one)
        self.monitor.sighted(one, tuple(names))
        found = self.monitor.look(self.history, one.ended)
        self.history.looked()
        return found


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_new_tool_list_is_told_once_with_what_changed_and_whose_it_is_also_after_a_restart(desk):
    assert desk.see(run(n) for n in range(8)) == []
    assert desk.see([run(8, names=DRIFTED)], DRIFTED) == [], "one sighting may be a slip"
    (drift,) = desk.see([run(9, names=DRIFTED)], DRIFTED)
    assert (drift.action, drift.cause) == ("drift", "tools")
    assert (drift.details["missing"], drift.details["new"]) == ("book", "buy")
    assert (drift.details["tenant"], drift.details["agent"]) == ("default", "default/desk#1")
    again = Desk()
    again.monitor.restore(desk.monitor.save())
    assert again.monitor.save() == desk.monitor.save()
    assert again.see((run(n, names=DRIFTED) for n in range(10, 30)), DRIFTED) == []
    assert again.see(run(n) for n in range(30, 60)) == []


def test_a_list_that_was_away_for_a_day_is_news_again(desk):
    day = 24 * 60
    desk.see(run(n) for n in range(10))
    assert len(desk.see((run(n, names=DRIFTED) for n in range(10, 80)), DRIFTED)) == 1
    (drift,) = desk.see(run(day + n) for n in range(80, 90))
    assert drift.details["new"] == "book"


@pytest.mark.parametrize("tenant", ["default", "other"])
def test_a_second_agent_that_speaks_for_the_first_time_is_no_drift(desk, tenant):
    desk.see(run(n) for n in range(20))
    assert desk.see((run(n, names=TICKETS, agent="clerk#2", tenant=tenant) for n in range(20, 60)), TICKETS) == []
    assert desk.see(run(n) for n in range(60, 80)) == []


def test_agents_without_a_prompt_are_told_apart_by_their_tools_and_a_list_that_replaces_one_is_a_change(desk):
    assert [found for n in range(20) for found in desk.take(*unnamed(n, DESK))] == []
    assert [found for n in range(20, 60) for found in desk.take(*unnamed(n, (DESK, TICKETS)[n % 2]))] == []
    (drift,) = [found for n in range(60, 80) for found in desk.take(*unnamed(n, (DRIFTED, TICKETS)[n % 2]))]
    assert drift.details["missing"] == "book"
    assert len(drift.details["agent"].split(",")) == 2, "both names that the agent had"


def test_the_day_in_a_prompt_makes_no_new_agent_of_it_and_hides_no_change(desk):
    assert desk.see(run(n, agent=f"desk#{n // 10}") for n in range(40)) == []
    (drift,) = desk.see((run(n, names=DRIFTED, agent="desk#9") for n in range(40, 50)), DRIFTED)
    assert drift.details["new"] == "buy"


def told_of(names: Callable[[random.Random, int], Sequence[str]], runs: int, seed: int = 0) -> int:
    """Findings of an agent whose lists are `names`, run by run."""
    desk, rng = Desk(), random.Random(seed)
    lists = [names(rng, n) for n in range(runs)]
    return sum(len(desk.take(run(n, names=tools, success=None), tools)) for n, tools in enumerate(lists))


def test_a_rolling_deployment_is_told_once_when_the_new_list_has_taken_over():
    assert told_of(lambda rng, n: DRIFTED if rng.random() < (n - 200) / 240 else DESK, 600) == 1


def test_lists_that_are_used_side_by_side_are_seldom_taken_for_a_change():
    def names(rng: random.Random, n: int) -> Sequence[str]:
        return (DESK, DRIFTED, TICKETS)[rng.choices(range(3), (6, 3, 1))[0]]

    # Three lists each, of which one is known from the start: at most 24 % of the others, ever (docs/promotion.md).
    assert sum(told_of(names, 400, seed) for seed in range(60)) <= 0.24 * 120


def test_tools_that_are_chosen_request_by_request_say_nothing():
    catalogue = [f"tool{n}" for n in range(12)]
    assert told_of(lambda rng, n: tuple(sorted(rng.sample(catalogue, 4))), 2000) == 0


def test_more_errors_for_an_hour_are_a_drift_of_that_agent_alone(desk):
    found = []
    for n in range(1500):
        found += desk.take(run(n, agent="clerk#2", names=TICKETS), TICKETS)
        found += desk.take(run(n, errors=2 if n >= 1200 else int(n % 20 == 0)), DESK)
    (drift,) = found
    assert (drift.cause, drift.details["agent"], "40%" in drift.reason) == ("errors", "default/desk#1", True)


def test_an_outage_that_is_over_in_half_an_hour_is_no_drift(desk):
    assert desk.see(run(n, errors=4 if 1200 <= n < 1230 else 0) for n in range(2000)) == []


def test_a_collapse_without_a_swap_is_drift_also_where_one_run_in_ten_is_reported(desk):
    (drift,) = desk.see(run(n, success=(n < 4000) if n % 10 == 0 else None) for n in range(5000))
    assert (drift.cause, "100% -> 0%" in drift.reason) == ("outcomes", True)


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [({}, {"success": False, "version": 2}, 500), ({}, {"errors": 3, "version": 2}, 90),
     ({"version": -1}, {"success": False, "version": -1}, 500)],
    ids=["a collapse", "errors", "runs that name no version"],
)  # fmt: skip
def test_a_swap_explains_what_begins_with_it(desk, before, after, count):
    desk.see(run(n, **before) for n in range(1000))
    desk.history.swapped(Swap("serving", 2, 1, 1000 * MINUTE))
    assert desk.see(run(n, **after) for n in range(1000, 1000 + count)) == []


def test_what_is_remembered_is_bounded(desk):
    for n in range(1000):
        names = (f"a{n}", f"b{n}")
        desk.take(run(n, names=names, agent=f"agent{n}#0" if n % 2 else f"desk#{n}"), names)
    assert (len(desk.monitor._agents.known) <= 256, len(desk.monitor._worlds) <= 256) == (True, True)
