"""The travel desk: answers and what counts as solved. tests/contract holds what every environment promises."""

import json

import pytest

from actors.messages import ToolCall
from adapters.environments.travel import Drift, TravelDesk
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import BASE, Variant
from adapters.environments.travel.environment import step
from tests.warmstart.travel_oracle import good_actions

USUAL_STEPS = {"A": {4}, "B": {5}, "C": {7}, "D": {2}, "L": set(range(12, 21))}
DRIFT = Drift(rename={"book": "buy", "cancel": "drop"}, precondition={"book": "hold", "cancel": "confirm"})


def calling(name: str, /, **arguments: str) -> list[ToolCall]:
    return [ToolCall(name, json.dumps(arguments))]


def said(desk: Desk, name: str, /, **arguments: str) -> dict[str, str]:
    return json.loads(step(desk, calling(name, **arguments)).text)


def play_well(desk: Desk) -> int:
    """Follow the answer key to the end; returns the steps taken."""
    while not desk.done:
        name, arguments = good_actions(desk)[0]
        said(desk, name, **arguments)
    return desk.steps


@pytest.mark.parametrize("family", USUAL_STEPS)
def test_every_family_can_be_solved_in_its_usual_number_of_steps_and_under_drift(family: str) -> None:
    for seed in range(50):
        desk = Desk(f"solve-{seed}", family, BASE)
        assert play_well(desk) in USUAL_STEPS[family]
        assert desk.solved
    drifted = Desk("drift", family, Variant.of(DRIFT))
    play_well(drifted)
    assert drifted.solved


@pytest.mark.parametrize("spoilt", ["wrong final answer", "an order cancelled", "a flight to the wrong place", "twice"])
def test_a_wrong_end_fails_even_if_the_wish_is_granted(spoilt: str) -> None:
    desk = Desk("harm", "A", BASE)
    ticket = desk.tickets[0]
    said(desk, "find_person", name=ticket.name)
    if spoilt == "an order cancelled":
        oid = said(desk, "list_orders", pid=ticket.person)["oid"]
        said(desk, "check_policy", oid=oid)
        assert said(desk, "cancel", oid=oid) == {"ok": "yes"}
    if spoilt == "a flight to the wrong place":
        wrong = said(desk, "search_flight", to="Rome" if ticket.city != "Rome" else "Oslo")["fid"]
        assert "ref" in said(desk, "book", fid=wrong, pid=ticket.person)
    said(desk, "search_flight", to=ticket.city)
    for _ in range(1 + (spoilt == "twice")):
        assert said(desk, "book", fid=ticket.flight, pid=ticket.person) == {"ref": ticket.reference}
    said(desk, "finish", answer="done" if spoilt == "wrong final answer" else ticket.reference)
    assert desk.done
    assert not desk.solved


def test_samples_keep_to_the_families_asked_for_and_tell_nothing_of_their_records() -> None:
    environment = TravelDesk()
    assert {environment.sample(seed, "train", "BL").spec["family"] for seed in range(40)} == {"B", "L"}
    task = environment.sample(3, "train", "A")
    (ticket,) = Desk(task.spec["seed"], "A", BASE).tickets
    told = json.dumps([task.goal, task.spec, task.id])
    assert not any(f'"{record}"' in told for record in (ticket.person, ticket.flight, ticket.reference))


@pytest.mark.parametrize(
    ("calls", "answer"),
    [
        (calling("weather", city="Oslo") * 2, {"error": "bad call"}),
        (calling("weather", town="Oslo"), {"error": "bad arguments"}),
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
    assert (json.loads(seen.text), seen.done, desk.steps) == (answer, False, 1)


def test_tools_have_their_preconditions_and_nobody_says_which() -> None:
    booking, policy = Desk("order", "C", Variant.of(Drift(precondition={"book": "hold"}))), Desk("policy", "B", BASE)
    (wish,), (order,) = booking.tickets, policy.tickets
    book, cancel = {"fid": wish.flight, "pid": wish.person}, {"oid": order.order}
    for desk, name, arguments, answer in (
        (booking, "book", book, {"error": "search first"}),
        (booking, "search_flight", {"to": wish.city}, {"fid": wish.flight}),
        (booking, "book", book, {"error": "bad pid"}),
        (booking, "find_person", {"name": wish.name}, {"pid": wish.person}),
        (booking, "book", book, {"error": "refused"}),
        (booking, "hold", {"fid": wish.flight}, {"quote": "ok"}),
        (booking, "book", book, {"ref": wish.reference}),
        (policy, "find_person", {"name": order.name}, {"pid": order.person}),
        (policy, "list_orders", {"pid": order.person}, {"oid": order.order}),
        (policy, "cancel", cancel, {"error": "refused"}),
        (policy, "check_policy", cancel, {"policy": "ok"}),
        (policy, "cancel", cancel, {"ok": "yes"}),
        (policy, "cancel", cancel, {"error": "gone"}),
    ):
        assert said(desk, name, **arguments) == answer


@pytest.mark.parametrize(("family", "limit"), [("A", 10), ("L", 24)])
def test_an_episode_ends_at_its_step_limit(family: str, limit: int) -> None:
    desk = Desk("limit", family, BASE)
    assert [step(desk, []).done for _ in range(limit + 1)] == [False] * (limit - 1) + [True, True]
    assert (desk.solved, desk.steps) == (False, limit)


def test_the_queue_gives_its_next_ticket_only_when_the_last_is_done() -> None:
    desk = Desk("queue", "L", BASE)
    assert said(desk, "find_person", name="Mia") == {"error": "no ticket"}
    assert said(desk, "next_ticket") == {"ticket": desk.tickets[0].goal}
    assert said(desk, "next_ticket") == {"error": "not done"}
