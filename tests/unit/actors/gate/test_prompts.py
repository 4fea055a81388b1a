"""Production prompts, replayed."""

import json

import msgspec
import pytest

from actors.gate.evidence import recent_runs
from actors.gate.prompts import PromptCheck, PromptSettings, _chosen
from actors.kinds.holdout import held_out
from actors.messages import Attributed, Attribution, Exchange, Step, StepLabel, Trajectory
from actors.ports.errors import EngineRejected, EngineUnavailable
from actors.system.errors import DependencyUnavailable
from tests.support.fakes import FakeStore

pytestmark = pytest.mark.anyio
IDS = [name for name in (f"t{number}" for number in range(3000)) if held_out(name)]
RARE = {"function": {"name": "cancel"}}
TOOL = {
    "type": "function",
    "function": {
        "name": "book",
        "parameters": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
    },
}
PRODUCED = {"tool_calls": [{"function": {"name": "book", "arguments": '{"to": "Oslo"}'}}]}
SAME = {"tool_calls": [{"function": {"name": "book", "arguments": '{ "to":"Oslo" }'}}]}
BROKEN = {"tool_calls": [{"function": {"name": "book", "arguments": '{"to": 7}'}}]}


class Speaker:
    """An engine that says `message` with `logprob` a token; it refuses what `refused` holds of."""

    def __init__(self, message: dict, logprob: float = -0.5, tokens: int = 10) -> None:
        self.message, self.logprob, self.tokens = message, logprob, tokens
        self.bodies: list[dict] = []
        self.error: Exception | None = None

    async def chat(self, body):
        self.bodies.append(body)
        if self.error is not None:
            raise self.error
        content = [{"token": "x", "logprob": self.logprob}] * self.tokens
        choice = {"message": self.message, "finish_reason": "stop", "logprobs": {"content": content}}
        return {"choices": [choice], "usage": {"completion_tokens": self.tokens}}


def save(
    store: FakeStore, name: str, ended: float, *, outcome: float | None = 1.0, tools=(TOOL,), tenant="default", **fields
) -> None:
    request = {
        "model": "m",
        "messages": [{"role": "user", "content": "A flight to Oslo, please. <EMAIL_1>"}],
        "tools": list(tools),
        "temperature": 0.7,
        "top_k": 20,
        "max_tokens": 100,
        "stream": True,
        "n": 1,
    }
    exchange = Exchange(
        id=f"e-{name}", endpoint="/v1/chat/completions", started=ended, duration=1.0, status=200,
        request=json.dumps(request).encode(),
        response=json.dumps({"choices": [{"message": PRODUCED, "finish_reason": "tool_calls"}]}).encode(),
    )  # fmt: skip
    trajectory = Trajectory(
        id=name, tools=json.dumps(list(tools)).encode(), steps=(Step(exchange_id=f"e-{name}"),), outcome=outcome,
        started=ended - 1, ended=ended, tenant=tenant,
    )  # fmt: skip
    attribution = Attribution(labels=(StepLabel("GOOD"),), judge="rules", rubric="1")
    store.save(
        [
            msgspec.structs.replace(exchange, **fields),
            Attributed(id=name, trajectory=trajectory, attribution=attribution),
        ]
    )


def store_of(count: int = 40) -> FakeStore:
    store = FakeStore()
    for number, name in enumerate(IDS[:count]):
        save(store, name, float(number))
    return store


async def judged(candidate: Speaker, incumbent: Speaker, *, store=None):
    engine = Speaker(PRODUCED)
    check = PromptCheck(PromptSettings(), engine=engine, store=store or store_of())
    await check.gather()
    engine.chat = candidate.chat
    mine = await check.measure()
    engine.chat = incumbent.chat
    return check.judge(mine, await check.measure())


async def test_the_same_answers_break_no_limit():
    report = await judged(Speaker(SAME), Speaker(PRODUCED))
    assert report.findings == ()
    figures = report.figures
    assert (figures["prompts"], figures["prompts_invalid"]) == (40, 0)
    assert (figures["prompts_length_ratio"], figures["prompts_entropy_ratio"]) == (1, 1)


@pytest.mark.parametrize(
    ("candidate", "kind", "words"),
    [
        (Speaker(BROKEN), "conduct", "tool calls that are not valid 1.00 against 0.00 on 40"),
        (Speaker({"content": "I'm sorry, I cannot do that."}), "conduct", "refusals 1.00"),
        (Speaker({"content": "again and again " * 100}), "conduct", "answers in circles 1.00"),
        (Speaker(SAME, tokens=30), "conduct", "length 3.00 times the incumbent's, 0.5 to 2 are allowed"),
        (Speaker(SAME, logprob=-0.01), "drift", "entropy 0.02 times"),
        (Speaker(SAME, logprob=-4.0), "drift", "entropy 8.00 times"),
    ],
)
async def test_a_broken_limit_is_found_with_its_number(candidate, kind, words):
    report = await judged(candidate, Speaker(PRODUCED))
    assert any(finding.kind == kind and words in finding.reason for finding in report.findings), report.findings


async def test_who_learns_beside_an_incumbent_that_fails_for_sure_breaks_no_limit():
    report = await judged(Speaker(SAME, logprob=-0.2), Speaker(PRODUCED, logprob=-0.01))
    assert report.findings == ()
    assert (report.figures["prompts_entropy"], report.figures["prompts_incumbent_entropy"]) == (0.2, 0.01)


async def test_what_the_incumbent_does_as_often_is_nothing_against_the_candidate():
    report = await judged(Speaker(BROKEN), Speaker(BROKEN))
    assert report.findings == ()
    assert report.figures["prompts_invalid"] == 1


async def test_few_prompts_are_measured_and_conclude_nothing():
    report = await judged(Speaker(BROKEN), Speaker(PRODUCED), store=store_of(10))
    assert report.findings == ()
    assert report.figures["prompts_invalid"] == 1


async def test_only_held_out_prompts_that_did_not_fail_are_replayed():
    store = store_of(3)
    save(store, "not held out", 50.0)
    assert not held_out("not held out")
    save(store, IDS[10], 51.0, outcome=0.0)
    save(store, IDS[12], 52.0, complete=False)
    save(store, IDS[13], 53.0, endpoint="/v1/messages")
    save(store, IDS[14], 54.0, request=b"{broken")
    save(store, IDS[15], 55.0, request=b"[" * 10)
    save(store, IDS[16], 56.0, outcome=None)
    check = PromptCheck(PromptSettings(), engine=Speaker(SAME), store=store)
    assert await check.gather() == 4


async def test_agents_take_turns_and_a_party_with_many_tool_lists_has_its_share():
    store = FakeStore()
    for number in range(40):
        save(store, IDS[number], float(number), tenant="abc"[number % 3])
    save(store, IDS[60], -1.0, tools=(RARE,), tenant="a")
    for number in range(20):
        tools = ({"function": {"name": f"made up {number}"}},)
        save(store, IDS[40 + number], 100.0 + number, tools=tools, tenant="flood")
    check = PromptCheck(PromptSettings(most=12), engine=Speaker(SAME), store=store)
    assert await check.gather() == 12
    chosen = _chosen(await recent_runs(store), PromptSettings(most=12))
    assert f"e-{IDS[60]}" in chosen, "the second agent's only run is the oldest of all"
    assert sum(name in {f"e-{one}" for one in IDS[40:60]} for name in chosen) == 3, "of four parties"


async def test_a_prompt_is_asked_as_the_agent_asked_it_with_bounds():
    engine = Speaker(SAME)
    check = PromptCheck(PromptSettings(max_tokens=64), engine=engine, store=store_of(1))
    await check.gather()
    await check.measure()
    (body,) = engine.bodies
    assert (body["temperature"], body["top_k"], body["max_tokens"], body["tools"]) == (0.7, 20, 64, [TOOL])
    assert body["messages"][0]["content"].endswith("<EMAIL_1>")
    assert not {"stream", "n", "model"} & body.keys()


async def test_as_many_prompts_as_the_settings_say():
    check = PromptCheck(PromptSettings(most=5), engine=Speaker(SAME), store=store_of())
    assert await check.gather() == 5
    check = PromptCheck(PromptSettings(most=0), engine=Speaker(SAME), store=store_of())
    assert await check.gather() == 0


async def test_a_prompt_that_the_engine_refuses_is_counted():
    refusing = Speaker(SAME)
    refusing.error = EngineRejected("too long", 400)
    report = await judged(refusing, Speaker(PRODUCED))
    assert (report.figures["prompts"], report.figures["prompts_unanswered"], report.findings) == (0, 40, ())


async def test_an_engine_that_is_away_is_waited_for():
    away = Speaker(SAME)
    away.error = EngineUnavailable("connection refused")
    with pytest.raises(DependencyUnavailable):
        await judged(away, Speaker(PRODUCED))
