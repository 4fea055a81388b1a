"""Context templates on the embedded engine: ids in training are those of the rollout, and the engine gives each trained
token the log-prob that was recorded, behind the context of its row alone."""

import pytest

from actors.rollout.context import ContextTemplate
from actors.rollout.context.sliding import SlidingWindow
from actors.rollout.episode_runner import play
from adapters.engines.client import EngineClient
from tests.support import checkpoints
from tests.support.contexts import LastAnswer, LongEpisode, Recorder, differences, off_by
from tests.support.engines import embedded_engine

pytestmark = [pytest.mark.anyio, pytest.mark.torch]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    model = checkpoints.write(tmp_path_factory.mktemp("contexts") / "model", 7, length=4096)
    with embedded_engine(model, "--weight-version", "0") as url:
        yield url


@pytest.mark.parametrize(
    ("template", "lessons"),
    [
        (ContextTemplate(budget=2000), ""),
        (SlidingWindow(budget=900, turns=6), "LESSON: go by train"),
        (LastAnswer(budget=700), "LESSON: go by train"),
    ],
)
async def test_ids_and_log_probs_in_training_are_those_of_the_rollout(url, template, lessons):
    async with EngineClient(url) as client:
        engine = Recorder(client)
        played = await play(
            engine, LongEpisode(3), context=template, lessons_text=lessons, max_steps=14, max_tokens=64, seed=3
        )
        assert played.why_not == ""
        assert len(engine.prompts) > 8
        assert max(map(len, engine.prompts)) <= template.budget
        assert differences(engine, played, guided=bool(lessons)) == []
        assert await off_by(engine, played) < 1e-4
