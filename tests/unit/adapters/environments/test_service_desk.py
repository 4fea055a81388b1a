"""The service desk: what counts as served, its customers' words, held-out phrases."""

import json
import random
import re
from collections import Counter

import pytest

from actors.messages import ToolCall
from actors.ports.environments import Observation, Split
from adapters.environments.service_desk import Drift, ServiceDesk, grammar
from adapters.environments.service_desk.agents import AGENTS, NO_DRIFT
from adapters.environments.service_desk.desk import STEP_LIMIT, Desk, Turn
from adapters.environments.service_desk.environment import step
from adapters.environments.service_desk.follow_ups import PHRASES, follow_up
from tests.warmstart import service_demonstrations, travel_demonstrations, travel_words
from tests.warmstart.service_oracle import good_turns

pytestmark = pytest.mark.anyio
PARTS = (*grammar.WISHES.values(), grammar.AGAIN, grammar.COMPLAINTS, grammar.OPENERS, grammar.REASONS)


def take(desk: Desk, turn: Turn) -> Observation:
    calls = [ToolCall(name, json.dumps(arguments), f"c{at}") for at, (name, arguments) in enumerate(turn.calls)]
    return step(desk, calls, turn.text)


def use(desk: Desk, tool: str, **arguments: str) -> str:
    return take(desk, Turn(calls=((tool, arguments),))).text


def say(desk: Desk, text: str = "Done.") -> str:
    return take(desk, Turn(text=text)).text


def wanting(wish: str, *, told: bool = True) -> Desk:
    """A fresh desk whose customer wants just this."""
    letter = next(agent.letter for agent in AGENTS.values() if wish in agent.wishes)
    for number in range(100_000):
        desk = Desk(f"test-{number}", letter, "train")
        if [(case.wish, case.told) for case in desk.cases] == [(wish, told)]:
            return desk
    raise AssertionError(f"no customer wants {wish}")


@pytest.mark.parametrize("letter", AGENTS)
@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize("drifted", [False, True])
def test_whoever_knows_the_right_turns_solves_every_task(letter: str, split: Split, drifted: bool) -> None:
    rng = random.Random(letter + split)
    drift = Drift(rename={role: f"zoka{at}" for at, role in enumerate(AGENTS[letter].tools)}) if drifted else NO_DRIFT
    goals = set[str]()
    for number in range(200):
        desk = Desk(f"{split}-{number}", letter, split, drift)
        goals.add(desk.goal)
        for _ in range(STEP_LIMIT):
            take(desk, rng.choice(good_turns(desk)))
            if desk.done:
                break
        assert desk.solved, desk.goal
    assert len(goals) > 195


@pytest.mark.parametrize("amount", ["right", "wrong"])
def test_the_policy_goes_before_the_refund_and_another_amount_cannot_be_made_good(amount: str) -> None:
    desk = wanting("refund")
    case = desk.cases[0]
    assert use(desk, "create_refund", order=case.id, amount=case.amount) == '{"error": "refused"}'
    assert json.loads(use(desk, "lookup_order", order=case.id))["amount"] == case.amount
    use(desk, "check_policy", order=case.id)
    if amount == "wrong":
        assert "error" not in use(desk, "create_refund", order=case.id, amount="1")
    use(desk, "create_refund", order=case.id, amount=case.amount)
    assert say(desk) == ""
    assert (desk.done, desk.solved) == (True, amount == "right")


def test_what_nobody_asked_for_is_harm() -> None:
    desk = wanting("unlock")
    case = desk.cases[0]
    use(desk, "findUser", email=case.id)
    use(desk, "verifyUser", user=case.user)
    assert use(desk, "closeAccount", user=case.user) == "HTTP 200 close=done"
    use(desk, "unlockUser", user=case.user)
    say(desk)
    assert (desk.done, desk.solved) == (True, False)


def test_where_the_parcel_is_must_be_said_and_cannot_be_guessed() -> None:
    desk, guessed = wanting("track"), wanting("track")
    case = desk.cases[0]
    use(desk, "orders.lookup", order=case.id)
    assert case.place in use(desk, "orders.track", parcel=case.parcel)
    assert say(desk) != ""
    say(desk, f"It is in {case.place}.")
    assert desk.solved
    assert say(guessed, " ".join(grammar.CITIES)) != ""
    assert not guessed.cases[0].done


def test_a_missing_detail_is_told_once_when_asked_for() -> None:
    desk = wanting("label", told=False)
    case = desk.cases[0]
    assert case.id not in desk.goal
    assert case.id in say(desk, "Which order?")
    assert say(desk, "Which order?") == grammar.NUDGE


def test_no_phrase_for_evaluation_is_one_for_training() -> None:
    for one in (*PARTS, grammar.CLOSERS, grammar.DETAILS, *PHRASES.values()):
        assert not {*one["train"]} & {*one["heldout"]}
        assert all(len(set(lines)) == len(lines) for lines in one.values())


async def test_held_out_tasks_speak_in_held_out_phrases() -> None:
    environment = ServiceDesk()
    for number in range(50):
        task = environment.sample(number, "heldout", None)
        desk = Desk(task.spec["seed"], task.spec["family"], "heldout")
        lines = [line.split("{")[0] for line in grammar.WISHES[desk.cases[0].wish]["heldout"]]
        assert any(desk.cases[0].words.startswith(line) for line in lines)
        assert (await environment.reset(task)).messages[-1]["content"] == task.goal == desk.goal


def moods(*, solved: bool, lies: float = 0.0) -> Counter[str]:
    rng, found = random.Random(0), Counter[str]()
    for number in range(600):
        desk = Desk(f"seed{number}", "R", "heldout")
        desk.solved = solved
        mood, said = follow_up(rng, "heldout", desk, lies=lies)
        assert bool(said) == (mood != "silent")
        found[mood] += 1
    return found


def test_customers_thank_for_what_was_done_and_liars_for_what_was_not() -> None:
    good, bad, lied = moods(solved=True), moods(solved=False), moods(solved=False, lies=1.0)
    assert good["thanks"] > 5 * good["complaint"]
    assert bad["complaint"] > 2 * bad["thanks"]
    assert lied["thanks"] > 5 * lied["complaint"]


def test_held_out_names_are_never_demonstrated_hinted_or_listed() -> None:
    held_out = {*travel_words.HELD_OUT, *travel_words.HELD_OUT_PAIRS}
    demonstrator = travel_demonstrations.Demonstrator(random.Random("test"))
    for shown in (demonstrator.demonstrate() for _ in range(2000)):
        seen = [shown.hint, shown.goal, *(one["content"] for _, _, after in shown.turns for one in after)]
        seen += [tool["function"]["name"] for tool in shown.tools]
        seen += [f"{call.name} {call.arguments}" for calls, *_ in shown.turns for call in calls]
        assert not held_out & set(re.findall(r"[a-z_]+", " ".join(seen)))
    assert {"buy", "order_seat", "hold", "drop", "void", "confirm"} <= held_out, "the drifts that are reported on"


def test_phrases_for_evaluation_are_never_demonstrated() -> None:
    demonstrator = service_demonstrations.Demonstrator(random.Random("test"))
    shown = list[str]()
    for one in (demonstrator.demonstrate() for _ in range(2000)):
        texts = [message["content"] for _, _, messages in one.turns for message in messages]
        shown.append("\n".join([one.hint, one.goal, *texts]))
    for phrase in (phrase for part in PARTS for phrase in part["heldout"]):
        fixed = max(re.split(r"\{\w*\}?", phrase), key=len)
        if len(fixed) < 16 or any(fixed in line for part in PARTS for line in part["train"]):
            continue  # a piece that a training phrase has too
        assert not [one for one in shown if fixed in one], fixed
