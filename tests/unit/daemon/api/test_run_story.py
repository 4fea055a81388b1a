"""What `evolved why RUN` says of a run."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.messages import Step
from actors.store import Store
from actors.store.run_story import RunStory, run_story
from daemon.api.run_story import lines
from tests.support.credited import attributed

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(f"sqlite:///{tmp_path}/s.db", clock=lambda: 1.0)
    await store.open()
    yield store
    await store.aclose()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"source": "sandbox", "graded": True}, "its last answer was cut off at a limit of tokens"),
        ({"source": "sandbox"}, ""),
        ({"source": "production"}, ""),
    ],
)
async def test_a_run_whose_cut_off_answer_nobody_verified_says_that_it_is_not_trained_on(
    store: Store, fields: dict[str, object], told: str
) -> None:
    steps = (Step(exchange_id="x", response_id="r"), Step(exchange_id="y", response_id="s", cut="length"))
    await store.save([attributed("t", outcome=0.0, steps=steps, closed_by="finish", **fields)])
    story = await store.ask(lambda connection: run_story(connection, "t"))
    assert isinstance(story, RunStory)
    said = "\n".join(lines(story))
    assert ("not trained on: its last answer" in said) == bool(told)
    assert told in said
