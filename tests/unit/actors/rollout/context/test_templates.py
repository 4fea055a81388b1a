"""Context templates over forty turns: the budget holds, turns stay whole, what is sampled is trained on."""

import json
from functools import partial

import pytest

from actors.messages import ToolCall
from actors.rollout.context import CAUSAL, ContextTemplate, History, Past
from actors.rollout.context.managing import SelfManaging
from actors.rollout.context.reasoning import Reasoning
from actors.rollout.context.sliding import SlidingWindow
from actors.rollout.episode_runner import play
from actors.rollout.errors import EpisodeLost
from adapters.engines.embedded.prompts import Prompts
from tests.support.chat_templates import write_qwen
from tests.support.contexts import Babble, LastAnswer, LongEpisode, Recorder, Rendering, differences

pytestmark = pytest.mark.anyio
TURNS = 40
SEARCH = ("search", {"to": "Oslo"})
THINKS = ("<think>where to?</think>", [SEARCH])


def manage(**operations):
    return ("", [("manage_context", operations)])


TEMPLATES = {
    "causal": ContextTemplate(budget=20_000),
    "causal at its limit": ContextTemplate(budget=1500),
    "reasoning": Reasoning(budget=20_000),
    "sliding": SlidingWindow(budget=900, turns=6),
    "sliding with a stride": SlidingWindow(budget=2000, turns=6, stride=3),
    "self-managing": SelfManaging(budget=1500),
    "one's own": LastAnswer(budget=900),
}


@pytest.fixture(scope="module")
def qwen(tmp_path_factory) -> Prompts:
    corpus = [json.dumps(LongEpisode(1).tools), "You are a desk.\n\n# Tools", "[turn 3, 100 of 200 tokens]\n"] * 4
    return Prompts(write_qwen(tmp_path_factory.mktemp("qwen"), corpus))


def policy(make=Babble) -> Babble:
    """Reasons now and then, and manages: validly, wrongly, and together with a call for the environment."""
    return make(
        THINKS, ("", [SEARCH]), manage(drop=[1]), ("", [SEARCH]), manage(drop=[1]),
        ("", [("manage_context", {"compress": [{"turns": [4], "note": "Oslo was no good"}]}), SEARCH]), ("hm", []),
    )  # fmt: skip


async def run(template, engine=None, *, lessons="", turns=TURNS, **options):
    engine, episode = Recorder(engine or policy()), LongEpisode(1)
    played = await play(engine, episode, context=template, max_steps=turns, lessons_text=lessons, **options)
    return engine, episode, played


@pytest.mark.parametrize("lessons", ["", "LESSON: go by train.\n"], ids=["unguided", "guided"])
@pytest.mark.parametrize("name", TEMPLATES)
async def test_with_a_real_chat_template_and_tokenizer_ids_in_training_are_those_of_the_rollout(name, lessons, qwen):
    template = TEMPLATES[name]
    engine, _, played = await run(template, policy(partial(Rendering, qwen)), lessons=lessons)
    assert (played.why_not, differences(engine, played, guided=bool(lessons))) == ("", [])
    assert len(engine.prompts) == TURNS or (name, played.ending) == ("causal at its limit", "budget")
    assert max(map(len, engine.prompts)) <= template.budget
    assert engine.renders <= len(engine.prompts) + 1, "one of them is the opening without its lesson"
    if lessons:
        spans = {tuple(engine.prompts[0][slice(*row.hint)]) for row in played.rows}
        assert len(spans) == 1
        assert "LESSON: go by train" in qwen.decode(list(spans.pop()))


@pytest.mark.parametrize("name", TEMPLATES)
async def test_a_tools_answer_never_stands_without_its_call_and_roles_alternate(name):
    engine, _, _ = await run(TEMPLATES[name])
    for request in engine.requests:
        open_calls: set[str] = set()
        before = ""
        for message in request["messages"]:
            if message["role"] == "assistant":
                open_calls = {call["id"] for call in message.get("tool_calls") or []} or {"none"}
            elif message["role"] == "tool":
                assert message["tool_call_id"] in open_calls
            else:
                assert message["role"] != before
            before = message["role"]


async def test_the_default_costs_no_request_and_changes_nothing():
    engine, _, played = await run(CAUSAL)
    assert (engine.renders, len(played.rows), played.ending) == (0, 1, "steps")
    assert engine.requests[0]["messages"] == LongEpisode(1).messages


@pytest.mark.parametrize("template", [ContextTemplate, SlidingWindow, SelfManaging, Reasoning])
async def test_an_opening_that_exceeds_the_budget_loses_the_episode_by_name(template):
    with pytest.raises(EpisodeLost) as lost:
        await run(template(budget=20))
    assert lost.value.reason == "opening_over_budget"


async def test_reasoning_is_asked_for_trained_on_and_forgotten():
    engine, _, played = await run(Reasoning(), Babble(THINKS), turns=5)
    assert "reason step by step between <think> and </think>" in engine.requests[0]["messages"][0]["content"]
    for request in engine.requests[1:]:
        said = [message for message in request["messages"] if message["role"] == "assistant"]
        assert all("<think>" not in (message["content"] or "") for message in said)
    assert len(played.rows) == 5, "each turn forgets what the one before it reasoned"
    assert all(step.text == "<think>where to?</think>" for step in played.steps)


async def test_a_window_shows_the_last_turns_and_what_the_user_said_in_all():
    engine, _, _ = await run(SlidingWindow(turns=3), Babble(("", [SEARCH])), turns=15)
    messages = engine.requests[-1]["messages"]
    assert [message["role"] for message in messages].count("assistant") == 3
    assert messages[1]["content"].startswith("find the way\n\nwish 1: not ")


def history(turns: int) -> History:
    return History(
        opening=[{"role": "user", "content": "goal"}],
        past=[
            Past(number, {"role": "assistant", "content": f"said {number}"}, ({"role": "tool", "content": "seen"},))
            for number in range(1, turns + 1)
        ],
    )


def call(**operations) -> ToolCall:
    return ToolCall("manage_context", json.dumps(operations), "c")


def shown(template, past) -> str:
    return " ".join(str(message["content"]) for message in template.messages(past))


def test_the_policy_drops_and_compresses():
    template, past = SelfManaging(), history(5)
    answers = template.take(past, [ToolCall("search", "{}"), call(drop=[1], compress=[{"turns": [3, 2], "note": "a"}])])
    assert answers == {1: '{"ok":{"dropped":1,"kept":0,"compressed":2}}'}
    assert shown(template, past) == "goal\n\nYour notes on earlier turns:\nturns 2, 3: a said 4 seen said 5 seen"


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        ({}, "name the turns"),
        ({"drop": [9]}, "there is no turn 9"),
        ({"drop": [0]}, "there is no turn 0"),
        ({"drop": [2, 2]}, "named twice"),
        ({"drop": [2], "keep": [2]}, "named twice"),
        ({"drop": [1]}, "before"),
        ({"drop": "2"}, "cannot be used"),
        ({"forget": [2]}, "unknown field"),
        ({"drop": [2], "compress": [{"turns": [], "note": "x"}]}, "a note needs"),
        ({"drop": [2], "compress": [{"turns": [3], "note": " "}]}, "a note needs"),
        ({"drop": [2], "compress": [{"turns": [3], "note": "x" * 3000}]}, "3000 characters"),
    ],
)
def test_an_invalid_operation_is_answered_with_the_mistake_and_does_nothing(operations, why):
    template, past = SelfManaging(), history(4)
    template.take(past, [call(drop=[1])])
    before = shown(template, past)
    assert why in json.loads(template.take(past, [call(**operations)])[0])["error"]
    assert shown(template, past) == before


def test_when_it_is_full_the_oldest_goes_then_what_was_kept_then_notes_and_never_the_newest():
    template, past = SelfManaging(), history(5)
    template.take(past, [call(keep=[1], compress=[{"turns": [2], "note": "note"}])])
    seen = []
    while template.shrink(past):
        seen.append(shown(template, past))
    assert [("said 3" in text, "said 4" in text, "said 1" in text, "note" in text) for text in seen] == [
        (False, True, True, True), (False, False, True, True), (False, False, False, True),
        (False, False, False, False),
    ]  # fmt: skip
    assert all("said 5" in text for text in seen)


async def test_the_environment_never_sees_the_templates_calls_and_they_are_trained_on():
    engine, episode, played = await run(SelfManaging(budget=1500))
    assert {call.name for made in episode.made for call in made} == {"search"}
    managing = [number for number, step in enumerate(played.steps) if step.tool_calls[:1] and
                step.tool_calls[0].name == "manage_context"]  # fmt: skip
    assert len(managing) == 17
    assert "dropped" in played.steps[2].observation
    assert "error" in played.steps[4].observation
    assert len(episode.made) == TURNS - sum(len(played.steps[number].tool_calls) == 1 for number in managing)
    assert played.tools[-1]["function"]["name"] == "manage_context"
    assert differences(engine, played) == []


@pytest.mark.parametrize(
    ("template", "options"),
    [
        (ContextTemplate, {"budget": -1}), (SlidingWindow, {"turns": 0}), (SlidingWindow, {"turns": 2, "stride": 3}),
        (Reasoning, {"open_tag": ""}), (Reasoning, {"keep_last": -1}), (SelfManaging, {"longest_note": 0}),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(template, options):
    with pytest.raises(ValueError, match=r" is |must"):
        template(**options)
