"""The travel desk: tasks, tools, observations, verification, drift."""

import json
from pathlib import Path

import pytest

from actors.messages import ToolCall
from actors.ports.environments import Episode, Stateful
from actors.ports.errors import EnvironmentFailed
from adapters.environments.travel import Drift, TravelDesk
from adapters.environments.travel.desk import FAMILIES, Desk
from adapters.environments.travel.drift import BASE, PARAMETERS, Variant
from adapters.environments.travel.environment import step
from tests.warmstart.travel_oracle import good_actions

ROOT = Path(__file__).parents[4]
USUAL_STEPS = {"A": {4}, "B": {5}, "C": {7}, "D": {2}, "L": set(range(12, 21))}


def calling(name: str, /, **arguments: str) -> list[ToolCall]:
    return [ToolCall(name, json.dumps(arguments))]


def play_well(desk: Desk) -> int:
    """Follow the answer key to the end; returns the steps taken."""
    while not desk.done:
        name, arguments = good_actions(desk)[0]
        step(desk, calling(name, **arguments))
    return desk.steps


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_solved_in_its_usual_number_of_steps(family: str) -> None:
    for seed in range(50):
        desk = Desk(f"solve-{seed}", family, BASE)
        assert play_well(desk) in USUAL_STEPS[family]
        assert desk.solved


@pytest.mark.parametrize("family", "ABC")
def test_every_family_can_be_solved_under_drift(family: str) -> None:
    drift = Drift(rename={"book": "buy", "cancel": "drop"}, precondition={"book": "hold", "cancel": "confirm"})
    desk = Desk("drift", family, Variant.of(drift))
    play_well(desk)
    assert desk.solved


def test_samples_keep_to_the_families_asked_for() -> None:
    desk = TravelDesk()
    assert {desk.sample(seed, "train", "BL").spec["family"] for seed in range(40)} == {"B", "L"}
    with pytest.raises(ValueError, match="family 'Z'"):
        desk.sample(0, "train", "AZ")


def test_a_task_tells_nothing_of_its_records() -> None:
    task = TravelDesk().sample(3, "train", "A")
    desk = Desk(task.spec["seed"], "A", BASE)
    assert desk.goal == task.goal
    ticket = desk.ticket
    assert ticket is not None
    told = json.dumps([task.goal, task.spec, task.id])
    assert not any(f'"{record}"' in told for record in (ticket.person, ticket.flight, ticket.reference))


@pytest.mark.anyio
async def test_an_episode_goes_from_goal_to_outcome() -> None:
    environment = TravelDesk()
    task = environment.sample(1, "train", "A")
    episode: Episode = await environment.reset(task)
    assert episode.messages == [{"role": "user", "content": task.goal}]
    assert episode.tools == environment.tools()
    twin = Desk(task.spec["seed"], "A", BASE)
    done = False
    while not done:
        assert await episode.evaluate() == 0.0
        name, arguments = good_actions(twin)[0]
        twin.call(name, arguments)
        done = (await episode.step(calling(name, **arguments), "")).done
    assert await episode.evaluate() == 1.0


@pytest.mark.parametrize(
    ("calls", "answer"),
    [
        ([], {"error": "bad call"}),
        (calling("weather", city="Oslo") * 2, {"error": "bad call"}),
        ([ToolCall("weather", "{")], {"error": "bad call"}),
        ([ToolCall("weather", '{"city": 3}')], {"error": "bad call"}),
        (calling("weather", town="Oslo"), {"error": "bad arguments"}),
        (calling("buy", fid="K1", pid="K2"), {"error": "no tool"}),
        (calling("weather", city="Oslo"), {"sky": "sun"}),
        (calling("find_person", name="Nobody"), {"error": "no person"}),
        (calling("search_flight", to="Nowhere"), {"error": "no flight"}),
        (calling("list_orders", pid="K1"), {"error": "bad pid"}),
        (calling("next_ticket"), {"ticket": "none"}),
    ],
)
def test_mistakes_and_distractors_are_answered(calls: list[ToolCall], answer: dict[str, str]) -> None:
    desk = Desk("mistakes", "C", BASE)
    seen = step(desk, calls)
    assert json.loads(seen.text) == answer
    assert not seen.done
    assert desk.steps == 1


def test_booking_is_refused_until_searched_and_the_person_known() -> None:
    desk = Desk("order", "A", BASE)
    ticket = desk.tickets[0]
    book = calling("book", fid=ticket.flight, pid=ticket.person)
    assert json.loads(step(desk, book).text) == {"error": "search first"}
    step(desk, calling("search_flight", to=ticket.city))
    assert json.loads(step(desk, book).text) == {"error": "bad pid"}
    step(desk, calling("find_person", name=ticket.name))
    assert json.loads(step(desk, book).text) == {"ref": ticket.reference}


def test_cancelling_needs_the_policy_checked_and_nobody_says_so() -> None:
    desk = Desk("policy", "B", BASE)
    ticket = desk.tickets[0]
    step(desk, calling("find_person", name=ticket.name))
    step(desk, calling("list_orders", pid=ticket.person))
    assert json.loads(step(desk, calling("cancel", oid=ticket.order)).text) == {"error": "refused"}
    assert "check" not in json.dumps([desk.goal, "refused"])
    step(desk, calling("check_policy", oid=ticket.order))
    assert json.loads(step(desk, calling("cancel", oid=ticket.order)).text) == {"ok": "yes"}
    assert json.loads(step(desk, calling("cancel", oid=ticket.order)).text) == {"error": "gone"}


def test_a_side_effect_spoils_the_outcome_even_if_the_wish_is_granted() -> None:
    desk = Desk("harm", "A", BASE)
    ticket = desk.tickets[0]
    step(desk, calling("find_person", name=ticket.name))
    step(desk, calling("list_orders", pid=ticket.person))
    step(desk, calling("check_policy", oid=ticket.order))
    assert json.loads(step(desk, calling("cancel", oid=ticket.order)).text) == {"ok": "yes"}
    play_well(desk)
    assert desk.done
    assert not desk.solved


def test_a_flight_to_the_wrong_place_spoils_the_outcome() -> None:
    desk = Desk("wrong", "A", BASE)
    ticket = desk.tickets[0]
    elsewhere = "Rome" if ticket.city != "Rome" else "Oslo"
    step(desk, calling("find_person", name=ticket.name))
    wrong = json.loads(step(desk, calling("search_flight", to=elsewhere)).text)["fid"]
    step(desk, calling("book", fid=wrong, pid=ticket.person))
    step(desk, calling("finish", answer=ticket.reference))
    assert not desk.solved


@pytest.mark.parametrize(("family", "limit"), [("A", 10), ("L", 24)])
def test_an_episode_ends_at_its_step_limit(family: str, limit: int) -> None:
    desk = Desk("limit", family, BASE)
    seen = [step(desk, []).done for _ in range(limit)]
    assert seen == [False] * (limit - 1) + [True]
    assert not desk.solved
    assert step(desk, []).done
    assert desk.steps == limit


def test_the_queue_gives_its_next_ticket_only_when_the_last_is_done() -> None:
    desk = Desk("queue", "L", BASE)
    assert json.loads(step(desk, calling("find_person", name="Mia")).text) == {"error": "no ticket"}
    assert json.loads(step(desk, calling("next_ticket")).text) == {"ticket": desk.tickets[0].goal}
    assert json.loads(step(desk, calling("next_ticket")).text) == {"error": "not done"}


def names(tools: list[dict[str, object]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]  # type: ignore[index]


def test_tools_are_named_as_the_desk_is_now(tmp_path: Path) -> None:
    file = tmp_path / "desk.json"
    production, sandbox = TravelDesk(file), TravelDesk(str(file))
    assert names(production.tools()) == list(PARAMETERS)
    Drift(rename={"book": "buy"}, precondition={"book": "hold"}).write(file)
    for desk in (production, sandbox):
        assert names(desk.tools())[2:4] == ["hold", "buy"]
    Drift().write(file)
    assert names(production.tools()) == list(PARAMETERS)


@pytest.mark.anyio
async def test_a_drift_meets_the_next_attempt_and_leaves_the_running_one(tmp_path: Path) -> None:
    file = tmp_path / "desk.json"
    environment = TravelDesk(file)
    task = environment.sample(0, "train", "A")
    running = await environment.reset(task)
    Drift(rename={"book": "buy"}).write(file)
    assert environment.sample(0, "train", "A") == task
    assert (await environment.reset(task)).tools == environment.tools() != running.tools
    booking = calling("book", fid="K1", pid="K2")
    assert json.loads((await running.step(booking, "")).text) == {"error": "search first"}


def test_an_added_precondition_refuses_the_booking_until_met() -> None:
    desk = Desk("hold", "A", Variant.of(Drift(precondition={"book": "hold"})))
    ticket = desk.tickets[0]
    step(desk, calling("find_person", name=ticket.name))
    step(desk, calling("search_flight", to=ticket.city))
    book = calling("book", fid=ticket.flight, pid=ticket.person)
    assert json.loads(step(desk, book).text) == {"error": "refused"}
    assert json.loads(step(desk, calling("hold", fid=ticket.flight)).text) == {"quote": "ok"}
    assert json.loads(step(desk, book).text) == {"ref": ticket.reference}


@pytest.mark.parametrize(
    ("drift", "complaint"),
    [
        ({"rename": {"fly": "soar"}}, "no tool 'fly'"),
        ({"precondition": {"finish": "ask"}}, "can have no precondition"),
        ({"rename": {"book": "cancel"}}, "same name"),
    ],
)
def test_a_drift_that_makes_no_sense_is_refused(drift: dict[str, dict[str, str]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Drift(**drift)


def test_a_broken_drift_file_is_the_environments_failure(tmp_path: Path) -> None:
    file = tmp_path / "desk.json"
    file.write_text('{"rename": {"fly": "soar"}}')
    with pytest.raises(EnvironmentFailed, match="no tool 'fly'"):
        TravelDesk(file).tools()


@pytest.mark.anyio
async def test_the_state_tells_worlds_apart_by_what_was_done_and_not_by_how_often_one_looked() -> None:
    environment = TravelDesk()
    task = environment.sample(1, "train", "A")
    one, other = await environment.reset(task), await environment.reset(task)
    assert isinstance(one, Stateful)
    twin = Desk(task.spec["seed"], "A", BASE)
    while not twin.done:
        name, arguments = good_actions(twin)[0]
        twin.call(name, arguments)
        await one.step(calling(name, **arguments), "")
        await other.step(calling("weather", city="Oslo"), "")
        await other.step(calling(name, **arguments), "")
        assert await one.state() == await other.state()
    assert await one.state() != await (await environment.reset(task)).state()
