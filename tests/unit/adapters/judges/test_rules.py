"""The rules judge: each rule on the smallest trajectory that shows it, and its accuracy on a whole desk."""

import json

import msgspec
import pytest

from actors.messages import Step, ToolCall, Trajectory
from adapters.judges.rules import judge
from tests.support.attacks import SEEN, UNSEEN
from tests.support.travelling import call, plays, trajectory

GOAL = "Cancel the order for:Mia."
FIND = (call("find_person", name="Mia"), '{"pid": "K1"}')
LIST = (call("list_orders", pid="K1"), '{"oid": "Q7"}')
CHECK = (call("check_policy", oid="Q7"), '{"policy": "ok"}')
REFUSED = (call("cancel", oid="Q7"), '{"error": "refused"}')
CANCEL = (call("cancel", oid="Q7"), '{"ok": "yes"}')
FINISH = (call("finish", answer="done"), "{}")


GUESSED = (call("search_flight", to="Rome"), '{"fid": "V3"}')
BOOKED = (call("book", fid="V3", pid="K1"), '{"ref": "Z2"}')
WEATHER = (call("weather", city="Oslo"), '{"sky": "sun"}')
MENTIONS = (call("list_orders", pid="K1", note="sun"), '{"oid": "Q7"}')
TICKETS = [(call("next_ticket"), json.dumps({"ticket": text})) for text in ("for:Mia", "for:Leo")]
G, B, A = "GOOD", "BAD", "ABSTAIN"
RULES = {
    "a straight success": ([FIND, LIST, CHECK, CANCEL, FINISH], {}, [G, G, G, G, G]),
    "what made the retry work": ([FIND, LIST, REFUSED, CHECK, CANCEL, FINISH], {"outcome": 0.0}, [G, G, B, G, A, B]),
    "what led to nothing in a failure": ([FIND, LIST, REFUSED, FINISH], {"outcome": 0.0}, [G, A, B, B]),
    "a guess that leads on in a failure": ([FIND, GUESSED, BOOKED, FINISH], {"outcome": 0.0}, [G, A, A, B]),
    "an end without an outcome": ([FIND, FINISH], {"outcome": None}, [A, A]),
    "a run that was cut off": ([FIND, LIST], {"outcome": 0.0, "closed_by": "limit"}, [G, A]),
    "the same call for the same answer": ([FIND, FIND, LIST, CHECK, CANCEL, FINISH], {}, [G, B, G, G, G, G]),
    "the same call for another answer": ([*TICKETS, FINISH], {}, [A, A, G]),
    "a distractor that is mentioned later": ([FIND, WEATHER, MENTIONS, CHECK, CANCEL, FINISH], {}, [G] * 6),
    "a distractor": ([FIND, WEATHER, LIST, CHECK, CANCEL, FINISH], {}, [G, A, G, G, G, G]),
}


@pytest.mark.parametrize(("turns", "fields", "expected"), RULES.values(), ids=RULES)
def test_each_rule(turns: list[tuple[ToolCall, str]], fields: dict[str, object], expected: list[str]):
    run = trajectory(turns, **{"goal": GOAL, "outcome": 1.0, **fields})
    assert [found.label for found in judge(run)] == expected


@pytest.mark.parametrize("text", [*SEEN, *UNSEEN])
def test_words_to_the_judge_change_nothing(text: str):
    refused = (REFUSED[0], json.dumps({"error": "refused", "note": text}, ensure_ascii=False))
    run = trajectory([FIND, LIST, refused, FINISH], goal=f"{GOAL} {text}", outcome=0.0)
    spoken = msgspec.structs.replace(run.steps[2], text=text)
    assert judge(msgspec.structs.replace(run, steps=(*run.steps[:2], spoken, run.steps[3])))[2].label == "BAD"


@pytest.mark.parametrize(
    "step",
    [
        Step(exchange_id="e", tool_calls=(ToolCall("find_person", '{"name": '),)),
        Step(exchange_id="e", tool_calls=(ToolCall("find_person", '["Mia"]'),)),
        Step(exchange_id="e", tool_calls=(call("fly", to="Oslo"),)),
        Step(exchange_id="e", text="<tool_call>\n{broken", observation="Say that again?"),
        Step(exchange_id="e"),
    ],
)
def test_what_cannot_be_read_is_bad(step: Step):
    tools = json.dumps([{"type": "function", "function": {"name": "find_person", "parameters": {}}}]).encode()
    run = Trajectory(id="t", goal=GOAL, tools=tools, steps=(step,), outcome=1.0, started=0.0, ended=1.0)
    assert judge(run)[0].label == "BAD"


def test_of_parallel_results_some_errors_abstain_and_only_errors_are_bad():
    calls = (call("find_person", name="Mia"), call("find_person", name="Leo"))
    for first, label in (('{"pid": "K1"}', "ABSTAIN"), ('{"error": "who?"}', "BAD")):
        observation = first + '\n{"error": "no"}'
        steps = (Step(exchange_id="a", tool_calls=calls, observation=observation), Step(exchange_id="b", text="Sorry."))
        run = Trajectory(id="t", goal=GOAL, steps=steps, outcome=0.0, started=0.0, ended=1.0)
        assert judge(run)[0].label == label


def test_a_result_read_out_in_a_plain_answer_is_good():
    seen = '{"degrees": 17, "sky": "cloudy"}'
    steps = (
        Step(exchange_id="a", tool_calls=(call("weather", city="Oslo"),), observation=seen),
        Step(exchange_id="b", text="It is cloudy in Oslo."),
    )
    run = Trajectory(id="t", goal="How is the weather in Oslo?", steps=steps, outcome=1.0, started=0.0, ended=1.0)
    assert [found.label for found in judge(run)] == ["GOOD", "GOOD"]


def test_labels_agree_with_the_answer_key_of_the_travel_desk():
    pairs = [pair for played in plays(150) for pair in zip(judge(played.trajectory), played.truth, strict=True)]
    decided = [(label.label, truth) for label, truth in pairs if label.label != "ABSTAIN"]
    assert len(decided) / len(pairs) > 0.8
    assert sum(label == truth for label, truth in decided) / len(decided) > 0.97
