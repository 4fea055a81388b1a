"""Evidence over opinion: each kind on the smallest trajectory that shows it, and what is no evidence."""

import json

import pytest

from actors.messages import Attribution, Step, StepLabel, ToolCall, Trajectory
from adapters.judges.verified import VerifiedJudge, evidence

COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = json.dumps([{"function": {"name": "run", "parameters": COUNT}}, {"function": {"name": "look"}}]).encode()
LETTER = "Dear Ms Berg, your booking is confirmed for Monday at ten, please bring your passport with you."


def run(*steps: Step, outcome: float | None = None, **fields: object) -> Trajectory:
    return Trajectory(id="t", goal="g", tools=TOOLS, steps=steps, outcome=outcome, started=0.0, ended=1.0, **fields)


def did(observation: str, arguments: str = "{}", name: str = "run") -> Step:
    return Step(exchange_id="e", tool_calls=(ToolCall(name, arguments),), observation=observation)


def wrote(text: str, observation: str = "") -> Step:
    return Step(exchange_id="e", text=text, observation=observation)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (did("{}", "[1]"), "arguments are no JSON object"),
        (did("{}", "{", "look"), "arguments are no JSON object"),
        (did('{"a": 1}', name="fly"), "no such tool"),
        (did('{"a": 1}', '{"n": "many"}'), "arguments do not fit the tool's schema"),
        (did('{"error": "no"}'), "every result is an error"),
        (wrote(LETTER, LETTER.replace("Monday", "Tuesday").replace("your passport", "an ID")), "the user rewrote it"),
        # What shows nothing stays opinion.
        (did('{"exit_code": 1, "stdout": ""}'), ""),
        (did('{"a": 1}\n{"error": "no"}'), ""),
        (wrote("Shall I?", "error: I did not mean that"), ""),
        (wrote(LETTER, LETTER), ""),
        (wrote(LETTER, f"You wrote: {LETTER} Thank you."), ""),
        (wrote(LETTER, "No, that is all wrong. Write to somebody else, in another tone, and about the invoice."), ""),
    ],
)
def test_evidence_against_a_step(step: Step, reason: str):
    found = evidence(run(step, wrote("ok")))
    assert [(one.label, one.reason) for number, one in found.items() if number == 0] == [("BAD", reason)] * bool(reason)


def test_the_environments_verdict_is_the_last_answers_unless_the_run_was_cut_off():
    assert evidence(run(wrote("done"), outcome=1.0))[0].label == "GOOD"
    assert evidence(run(wrote("done"), outcome=0.0))[0].label == "BAD"
    for fields in ({"outcome": None}, {"outcome": 1.0, "closed_by": "limit"}, {"outcome": float("nan")}):
        assert evidence(run(wrote("done"), **fields)) == {}


class Praises:
    """A judge to whom all is well."""

    name, rubric = "praises", "praises-1"

    async def label(self, trajectory: Trajectory) -> Attribution:
        labels = tuple(StepLabel("GOOD", 0.9, "nice") for _ in trajectory.steps)
        return Attribution(labels=labels, judge=self.name, rubric=self.rubric, tokens=7, cost=0.1)


@pytest.mark.anyio
async def test_evidence_overrules_opinion_says_so_and_is_counted():
    judge = VerifiedJudge(Praises())
    found = await judge.label(run(did('{"error": "no"}'), did('{"a": 1}'), wrote("done"), outcome=1.0))
    assert [label.label for label in found.labels] == ["BAD", "GOOD", "GOOD"]
    assert found.labels[0].reason == "verified: every result is an error; the judge said GOOD: nice"
    assert found.labels[1].reason == "nice"
    assert found.labels[2].reason == "verified: the run succeeded with it; nice"
    assert (found.judge, found.tokens, found.cost) == ("verified-praises", 7, 0.1)
    assert judge.counts == {"overruled": 1, "confirmed": 1}
