"""The questioner finds out BFCL's APIs, which nobody has told it about, and sets tasks that their references solve."""

import json
from collections.abc import Callable

import pytest

from actors.messages import ToolCall
from actors.ports.errors import EnvironmentFailed
from actors.tasks.questioner.generating import Generator
from actors.tasks.questioner.settings import ProbeSettings, QuestionerSettings
from adapters.environments.bfcl import BfclEnvironment
from adapters.environments.synthetic_tasks import SyntheticTasks
from tests.support.patience import within

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(within(280))
async def test_tasks_of_bfcl_are_solved_by_their_reference_and_by_nothing_else(
    shared: Callable[[str], BfclEnvironment], anyio_backend_name: str
):
    environment = shared(anyio_backend_name)
    probe = ProbeSettings(walks=3, breadth=2)
    generator = Generator(QuestionerSettings(first_seed=0), environment, clock=lambda: 0.0, probe=probe)
    state = await generator.run(20, lambda state: None)
    assert len(state.tasks) == 20
    assert state.counts["replayed"] == state.counts["replays"]
    assert state.model.closing() == []
    selfmade = SyntheticTasks(environment)
    for task in state.tasks:
        good, idle = await selfmade.reset(task), await selfmade.reset(task)
        try:
            said = ""
            for call in task.spec["reference"]:
                said = (await good.step([ToolCall(call["name"], json.dumps(call["arguments"]))], "")).text
            assert (await good.step([], said)).done
            assert (await idle.step([], "Done.")).done
            assert (await good.evaluate(), await idle.evaluate()) == (1.0, 0.0)
        finally:
            await good.aclose()
            await idle.aclose()
    with pytest.raises(EnvironmentFailed):
        await selfmade.reset(type(task)(id="x", goal="x", environment="bfcl", spec={}, origin="questioner"))
