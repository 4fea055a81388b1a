"""Context templates and a user's loop on the embedded engine: ids in training are those of the rollout, and the engine
gives each trained token the log-prob that was recorded, behind the context of its row alone."""

import openai
import pytest

from actors.rollout.context import ContextTemplate
from actors.rollout.context.managing import TOOL, SelfManaging
from actors.rollout.context.reasoning import Reasoning
from actors.rollout.context.sliding import SlidingWindow
from actors.rollout.episode_runner import play
from actors.rollout.harness.agents import Agent
from adapters.engines.client import EngineClient
from tests.support.contexts import LastAnswer, LongEpisode, Recorder, babbler, differences, off_by
from tests.support.engines import embedded_engine

pytestmark = [pytest.mark.anyio, pytest.mark.torch]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    model = babbler(tmp_path_factory.mktemp("contexts") / "babbler")
    with embedded_engine(model, "--weight-version", "0") as url:
        yield url


@pytest.fixture
async def engine(url):
    async with EngineClient(url) as client:
        yield Recorder(client)


@pytest.mark.parametrize(
    ("template", "lessons"),
    [
        (ContextTemplate(budget=900), ""),
        (Reasoning(budget=2000), "LESSON: go by train"),
        (SlidingWindow(budget=500, turns=6), "LESSON: go by train"),
        (SelfManaging(budget=600), ""),
        (LastAnswer(budget=700), "LESSON: go by train"),
    ],
)
async def test_ids_in_training_are_those_of_the_rollout(engine, template, lessons):
    played = await play(
        engine, LongEpisode(3), context=template, lessons_text=lessons, max_steps=14, max_tokens=64, seed=3
    )
    assert played.why_not == ""
    assert len(engine.prompts) > 8
    assert max(map(len, engine.prompts)) <= template.budget
    assert differences(engine, played, guided=bool(lessons)) == []
    assert await off_by(engine, played) < 1e-4
    if isinstance(template, SelfManaging):
        calls = [call.name for step in played.steps for call in step.tool_calls]
        assert {TOOL, "search"} == set(calls)


class ByClient:
    """An agent as anybody would write it against the openai client."""

    async def run(self, session):
        async with (
            session.endpoint() as found,
            openai.AsyncOpenAI(base_url=found.base_url, api_key=found.key) as client,
        ):
            messages = session.messages
            while True:
                answer = await client.chat.completions.create(
                    model=found.model, messages=messages, tools=session.tools, temperature=0.2
                )
                message = answer.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                for call in message.tool_calls or []:
                    seen = await session.step([call.model_dump()])
                    messages.append({"role": "tool", "content": seen.text, "tool_call_id": call.id})


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
async def test_an_unmodified_client_plays_and_is_recorded(engine, anyio_backend):
    played = await play(engine, LongEpisode(3), agent=Agent(ByClient), max_steps=8, max_tokens=64, seed=3)
    assert (len(played.steps), played.ending, played.why_not) == (8, "steps", "")
    assert differences(engine, played) == []
    assert await off_by(engine, played) < 1e-4
