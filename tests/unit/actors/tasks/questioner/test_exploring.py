"""What probing finds out about environments that it has never seen, and what it costs at most."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from actors.messages import Task
from actors.ports.environments import Environment
from actors.tasks.questioner.errors import NotProbeable
from actors.tasks.questioner.generating import Generator
from actors.tasks.questioner.instance_pool import InstancePool, Made
from actors.tasks.questioner.programs import program_of
from actors.tasks.questioner.settings import ProbeSettings, QuestionerSettings
from actors.tasks.questioner.shrinking import shrink
from actors.tasks.questioner.state import QuestionerState
from actors.tasks.reference_calls import ReferenceCall
from adapters.environments.travel import TravelDesk
from tests.support.fakes import FakeEnvironment
from tests.support.ledger import Ledger

pytestmark = pytest.mark.anyio


async def explored(environment: Environment, rounds: int) -> QuestionerState:
    generator = Generator(QuestionerSettings(), environment, clock=lambda: 0.0)
    for _ in range(rounds):
        await generator.round(10_000)
    return generator.state


async def test_instances_are_closed_whatever_becomes_of_them():
    environment = Ledger(lost=frozenset(range(5, 40, 3)))
    state = await explored(environment, 3)
    assert state.counts["lost"] > 0
    assert {episode.closed for episode in environment.opened} == {1}


async def test_exploration_ends_with_its_budget():
    for probe in (ProbeSettings(instances=7), ProbeSettings(steps=20)):
        environment = TravelDesk()
        generator = Generator(QuestionerSettings(), environment, clock=lambda: 0.0, probe=probe)
        state = await generator.run(100, lambda state: None)
        assert "budget" in state.ended
        assert generator.instances.counts["instances"] <= 7 or generator.instances.counts["steps"] <= 21


async def test_an_environment_that_cannot_be_probed_is_said_to_be_so():
    with pytest.raises(NotProbeable, match="show no state"):
        await explored(FakeEnvironment(), 1)
    with pytest.raises(NotProbeable, match=r"in a row were lost.*being audited"):
        await explored(Ledger(lost=frozenset({-1})), 30)


def instances(environment: Environment) -> InstancePool:
    return InstancePool(environment, ProbeSettings(), lambda: 0.0)


async def walked(environment: Environment, base: Task, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[Made]:
    async with instances(environment).open(base) as session:
        for name, arguments in calls:
            await session.call(ReferenceCall(name, arguments), watch=True)
        return session.made


async def test_shrinking_leaves_what_is_needed_and_nothing_else():
    environment = Ledger()
    base = environment.sample(0, "train", None)
    (listed,) = await walked(environment, base, [("accounts", {"owner": "Ada"})])
    account = msgspec.json.decode(listed.answer)["accounts"][0]["account"]
    made = await walked(
        environment,
        base,
        [
            ("accounts", {"owner": "Grace"}),
            ("accounts", {"owner": "Ada"}),
            ("label", {"account": account, "colour": "red"}),
            ("deposit", {"account": account, "amount": 10}),
            ("unlock", {"account": account}),
            ("accounts", {"owner": "Edsger"}),
            ("deposit", {"account": account, "amount": 10}),
        ],
    )
    balance = {"balance": 10, "colour": ""}
    found = await shrink(instances(environment), base, made, lambda done: done.after[account]["balance"] == 10)
    assert [one.call.name for one in found.made] == ["accounts", "unlock", "deposit"]
    assert found.after[account] == balance
    # The account's number must stay something that was found out, although the calls would work without that.
    assert program_of(found.made).given.keys() == {'owner="Ada"', "amount=10"}
