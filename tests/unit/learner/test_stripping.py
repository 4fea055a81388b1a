"""Experience in and out again, on real chat templates: the warm start's, and one in Qwen2.5's manner."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from actors.messages import Experience
from actors.messages.experience import lessons_text
from actors.rollout.errors import EpisodeLost
from actors.rollout.harness.rows import hint_span
from adapters.engines.embedded.prompts import Prompts
from adapters.environments.travel import TravelDesk
from daemon.demo.worlds import WORLDS
from learner.build import BuildSettings, build, strip
from learner.credit import Credits
from tests.support.chat_templates import write_qwen
from tests.unit.learner.maker import item, row

TOOLS = TravelDesk().tools()
LESSONS = [
    Experience(id="1", when_to_use="a ticket is wanted", content="call buy, not book; it wants fid and pid"),
    Experience(id="2", when_to_use="an order is to go", content='look at it first:\n\n{"oid": 7}\n\n'),
]
SYSTEMS = {
    "desk": "You are a travel desk.",
    "qwen": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
}
LIMITS = BuildSettings(vocabulary=10**6, max_tokens=10**6, chain=(0,), newest=0, max_staleness=4)


@pytest.fixture(scope="module")
def templates(tmp_path_factory) -> dict[str, Prompts]:
    # Full stop and line feeds become one token, as in Qwen's own vocabulary.
    corpus = [f"{text}\n\n# Tools\n\n" for text in (*SYSTEMS.values(), lessons_text(LESSONS))] * 4 + [
        str(t) for t in TOOLS
    ]
    qwen = write_qwen(tmp_path_factory.mktemp("qwen"), corpus)
    return {"desk": Prompts(WORLDS["travel"].warm_start), "qwen": Prompts(Path(qwen))}


def encoded(prompts: Prompts, system: str, lessons: str) -> list[list[int]]:
    """Ids of the two requests of an episode, lessons appended to the system text as `play` does it."""
    text = f"{system}\n{lessons.strip(chr(10))}" if lessons else system
    first = [{"role": "system", "content": text}, {"role": "user", "content": "Book a flight to Oslo for Mia"}]
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"to": "Oslo"}'}}
    then = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "3 flights\n\n", "tool_call_id": "c"},
    ]
    return [prompts.encode(prompts.text(messages, TOOLS)) for messages in (first, [*first, *then])]


@pytest.mark.parametrize("lessons", [LESSONS, LESSONS[:1], LESSONS[1:]], ids=["both", "first", "with line feeds"])
@pytest.mark.parametrize("name", ["desk", "qwen"])
def test_a_guided_conversation_without_its_span_is_the_plain_one(templates, name, lessons):
    prompts = templates[name]
    plain, guided = (encoded(prompts, SYSTEMS[name], given) for given in ("", lessons_text(lessons)))
    span = hint_span(plain[0], guided[0])
    assert "Content:" in prompts.decode(guided[0][slice(*span)])
    assert span[1] - span[0] > 20
    assert guided[1][: len(guided[0])] == guided[0], "the second prompt goes on from the first"
    for short, long in zip(plain, guided, strict=True):
        assert strip(np.array(long), span).tolist() == short


def test_a_lesson_that_melts_into_its_surroundings_is_refused_and_not_half_cut(templates):
    # Without a full stop the line feeds after the system text are a token of their own; after the lesson's they are
    # not, so no one span of ids is the lesson.
    plain, guided = (encoded(templates["qwen"], "You are a desk", given) for given in ("", lessons_text(LESSONS)))
    with pytest.raises(EpisodeLost, match="hint_not_separable"):
        hint_span(plain[0], guided[0])


def test_a_redacted_row_is_trained_as_a_stripped_one_without_its_boost_and_placeholders_are_context() -> None:
    """Its recorded log-probs are of another context, so they make no ratio and it may not be as old."""
    sampled = row([9, 9, 9, 4, 5, 6], [-1, -1, -1, 0, 0, 0])
    gone = row([9, 9, 9, 4, 5, 6], [-1, -1, -1, 0, -1, 0], redacted=True, masked=1)
    items = [item(1.0, id=key, rows=(one,)) for key, one in (("plain", sampled), ("redacted", gone))]
    credits = Credits((np.ones(1, np.float32),) * 2, ("", ""), {})
    made = build(items, credits, LIMITS)
    assert made.batch is not None
    assert made.batch.guided.tolist() == [0, 1]
    assert made.batch.mask.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0, 1]
    assert set(made.batch.clip_high.tolist()) == {np.float32(0.28)}
    old = msgspec.structs.replace(LIMITS, chain=(0, 1, 2, 3), newest=3)
    assert build(items, credits, old).dropped == {"stale": 1}
