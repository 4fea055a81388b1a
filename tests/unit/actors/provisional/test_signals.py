"""What happened next, read by signals: many languages, bounded texts, and nobody's words but the user's."""

import time

import pytest

from actors.messages import Step, ToolCall, Trajectory
from actors.provisional.phrases import cut, reaction
from actors.provisional.signals import NOTHING, aftermath, follows, heard
from actors.provisional.transcript import transcript


def run(key: str = "a", **fields: object) -> Trajectory:
    values: dict = {
        "goal": "please refund order K1234", "caller": "key", "started": 100.0, "ended": 101.0,
        "steps": (Step(exchange_id=f"x{key}", text="Done.", role="desk#1"),),
    }  # fmt: skip
    return Trajectory(id=key, **{**values, **fields})


def said(*turns: str) -> dict[str, int]:
    steps = tuple(Step(exchange_id=str(at), text="ok", observation=turn) for at, turn in enumerate(turns))
    return heard(transcript(run(steps=(*steps, Step(exchange_id="z", text="bye")))))


@pytest.mark.parametrize(
    ("turn", "means"),
    [
        ("Thanks, that works!", "thanks"), ("Danke, hat geklappt", "thanks"), ("merci, parfait", "thanks"),
        ("gracias!", "thanks"), ("grazie mille", "thanks"), ("obrigado", "thanks"), ("bedankt", "thanks"),
        ("dziękuję", "thanks"), ("teşekkürler, harika", "thanks"), ("спасибо", "thanks"), ("谢谢", "thanks"),
        ("ありがとう", "thanks"), ("감사합니다", "thanks"), ("شكرا", "thanks"), ("No, thanks!", "thanks"),
        ("Thanks, but it still does not work", "complaint"), ("no, nothing happened", "complaint"),
        ("Das funktioniert nicht", "complaint"), ("ça ne marche pas", "complaint"), ("no funciona", "complaint"),
        ("не работает", "complaint"), ("不对", "complaint"), ("I meant the other one", "correction"),
        ("ich meinte die andere", "correction"), ("я имел в виду другой", "correction"),
        ("sorry, it is K1234", ""), ("what are your opening hours", ""), ("", ""), ("\ud800", ""), ("\u202e\x00", ""),
    ],
)  # fmt: skip
def test_a_turn_is_read_in_its_language(turn: str, means: str) -> None:
    assert reaction(cut(turn)) == means


def test_the_last_reaction_counts_and_an_earlier_complaint_is_remembered() -> None:
    found = said("that is wrong", "perfect, thanks")
    assert (found["thanks"], found["complained"]) == (1, -1)
    assert "complaint" not in found


def test_a_megabyte_is_read_at_its_ends_and_in_no_time() -> None:
    began = time.process_time()
    assert said("it is still broken " + "a b " * 500_000)["complaint"] == -1
    assert said("x" * 2_000_000 + " thanks a lot")["thanks"] == 1
    assert "thanks" not in said("y" * 1_000_000 + " thanks " + "y" * 1_000_000)
    assert time.process_time() - began < 1.0


def test_words_of_the_model_and_of_tools_are_nobodys_thanks() -> None:
    call = ToolCall("say", '{"text": "thanks, perfect"}')
    steps = (
        Step(exchange_id="1", text="thanks, perfect!", tool_calls=(call,), observation="thanks, that worked"),
        Step(exchange_id="2", text="Thanks! Great!"),
    )
    assert "thanks" not in heard(transcript(run(steps=steps)))


def test_results_errors_and_retries_are_read_as_everywhere_else() -> None:
    call = ToolCall("refund", '{"order": "K1"}')
    good, bad = '{"refund": "done"}', '{"error": "refused"}'
    failed = (Step(exchange_id="1", tool_calls=(call,), observation=bad),) * 2
    found = heard(transcript(run(steps=(*failed, Step(exchange_id="3", text="Done.")))))
    assert (found["last_result"], found["retried"]) == (-1, -1)
    worked = Step(exchange_id="1", tool_calls=(call,), observation=good)
    assert heard(transcript(run(steps=(worked,))))["last_result"] == 1


def test_a_run_that_goes_on_and_one_that_asks_again_are_its_aftermath() -> None:
    first = transcript(run())
    on = transcript(run("b", continues="a", resumed_with="you did not do it", started=5000.0, ended=5001.0))
    assert heard(first, aftermath(first, [on]))["complaint"] == -1
    again = transcript(run("c", goal="i want order K1234 refunded please", started=200.0, ended=201.0))
    assert heard(first, aftermath(first, [again]))["asked_again"] == -1


@pytest.mark.parametrize(
    "other",
    [
        {"goal": "please refund order K9999"}, {"caller": "another"}, {"tenant": "other"},
        {"started": 9000.0, "ended": 9001.0}, {"started": 50.0, "ended": 51.0},
    ],
)  # fmt: skip
def test_another_order_party_tenant_or_day_is_not_the_same_again(other: dict) -> None:
    first = transcript(run())
    later = transcript(run("b", **{"started": 200.0, "ended": 201.0, **other}))
    assert follows(first, NOTHING, later) is NOTHING
