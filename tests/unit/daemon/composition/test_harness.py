"""`sandbox.harness` says in what manner episodes are played."""

import msgspec
import pytest

from actors.rollout.context import ContextTemplate
from actors.rollout.context.sliding import SlidingWindow
from daemon.composition.harness import harness
from daemon.errors import ConfigError
from daemon.settings.reading import load


class Mine(ContextTemplate):
    pass


class Loop:
    def __init__(self, tries: int = 1) -> None:
        self.tries = tries

    async def run(self, session):
        pass


class Neither:
    pass


HERE = "tests.unit.daemon.composition.test_harness"


def made(turn_seconds=60.0, **settings):
    return harness(msgspec.structs.replace(load(None).sandbox, **settings), turn_seconds)


def test_options_reach_the_template_and_tell_manners_apart():
    one, other = (made(harness="sliding", harness_options={"turns": turns}) for turns in (2, 3))
    assert isinstance(one.context, SlidingWindow)
    assert one.label != other.label
    assert one.label == made(harness="sliding", harness_options={"turns": 2}).label


def test_a_template_and_a_loop_of_ones_own_come_by_class_path():
    assert isinstance(made(harness=f"{HERE}:Mine").context, Mine)
    agent = made(harness=f"{HERE}:Loop", harness_options={"tries": 3, "budget": 7}, turn_seconds=0.5)
    assert agent.agent is not None
    assert (agent.agent.make().tries, agent.agent.seconds, agent.context.budget) == (3, 5.0, 7)
    assert agent.agent.make() is not agent.agent.make()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"harness": "slidng"}, "did you mean sliding"),
        ({"harness": "zzz"}, "no context adapter 'zzz'"),
        ({"harness": "sliding", "harness_options": {"turns": 0}}, "turns is 0"),
        ({"harness": "sliding", "harness_options": {"size": 3}}, "harness_options"),
        ({"harness": "nowhere:Mine"}, "Python path"),
        ({"harness": f"{HERE}:Yours"}, "has no Yours"),
        ({"harness": f"{HERE}:HERE"}, "not a class"),
        ({"harness": ":x"}, "no class path"),
        ({"harness": f"{HERE}:Neither"}, "neither a ContextTemplate nor a loop"),
        ({"harness": f"{HERE}:Loop", "harness_options": {"x": 1}}, "harness_options"),
    ],
)
def test_what_cannot_be_is_said_with_its_setting(settings, why):
    with pytest.raises(ConfigError, match=why):
        made(**settings)
