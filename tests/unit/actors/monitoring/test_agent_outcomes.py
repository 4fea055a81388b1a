"""An agent that fares worse though all together do not: found across versions, undone or told, and once."""

import random
from collections.abc import Sequence

import msgspec
import pytest

from actors.monitoring.monitor import Finding
from actors.tool_results.runs import RunSummary
from tests.support.behaviour import Behaviour, Watch, runs

GAP = 6.0
"""Seconds between two runs."""


def watching() -> Watch:
    """Those that speak of outcomes: all others have tests of their own, and take most of the time."""
    watch = Watch()
    watch.monitors = [monitor for monitor in watch.monitors if monitor.name in ("outcomes", "agents")]
    return watch


def ten_agents(
    rng: random.Random, version: int, fallen: float, first: int, count: int, parties: int
) -> list[RunSummary]:
    """Ten agents; of the first the success is `fallen`. Each party uses all agents, or, with ten, one for itself."""
    listed: list[RunSummary] = []
    for run in runs(rng, version, Behaviour(success=0.9), first, count):
        number = rng.randrange(10)
        outcome = float(rng.random() < fallen) if number == 0 else run.outcome
        party = str(number if parties == 10 else rng.randrange(parties))
        listed.append(
            msgspec.structs.replace(
                run, agent=f"t/a#{number}", tools=f"t{number}", party=party, outcome=outcome,
                started=run.started * 6, ended=run.ended * 6,
            )
        )  # fmt: skip
    return listed


def fall_of_one(seed: int, parties: int, after: float = 0.4) -> list[Finding]:
    watch, rng = watching(), random.Random(seed)
    watch.swap(0, 0.0)
    for at in range(0, 2000, 50):
        watch.add(ten_agents(rng, 0, 0.9, at, 50, parties))
    watch.swap(1, 12_000.0)
    found = [
        finding for at in range(2000, 4000, 50) for finding in watch.add(ten_agents(rng, 1, after, at, 50, parties))
    ]
    return [finding for finding in found if finding.cause == "outcomes"]


@pytest.mark.parametrize(("parties", "action"), [(1, "rollback"), (6, "rollback"), (10, "tell")])
def test_a_fall_of_one_agent_of_ten_is_found_and_acted_on_unless_one_party_alone_shows_it(parties, action) -> None:
    found = fall_of_one(0, parties)
    assert action in {finding.action for finding in found}
    assert any(finding.details.get("agent") == "t/a#0" or finding.action == "rollback" for finding in found)
    if action == "tell":
        assert {finding.details["party"] for finding in found} == {"0"}


def test_ten_agents_that_are_as_they_were_are_not_accused() -> None:
    assert fall_of_one(0, 6, after=0.9) == []


def chain(
    seed: int, fallen: Sequence[float], length: int = 300, watch: Watch | None = None, gap: float = GAP
) -> list[Finding]:
    """What is said of agents while versions serve `length` runs each; of the first agent the success is `fallen`."""
    watch, rng = watch or watching(), random.Random(seed)
    found: list[Finding] = []
    for version, success in enumerate(fallen):
        first = version * length
        watch.swap(version, first * gap)
        for at in range(first, first + length, 25):
            listed = ten_agents(rng, version, success, at, 25, 6)
            for run in listed:
                run.started, run.ended = run.started * gap / 6, run.ended * gap / 6
            found += [finding for finding in watch.add(listed) if finding.cause == "outcomes"]
    return found


FALLEN = (0.9, 0.9, 0.9, *[0.1] * 9)


@pytest.mark.parametrize("seed", [0])
def test_a_fall_whose_version_is_gone_before_it_showed_is_told_once_with_that_version(seed: int) -> None:
    found = chain(seed, FALLEN, length=150)
    assert [(one.action, one.details["agent"]) for one in found] == [("tell", "t/a#0")]
    assert int(found[0].details["version"]) in (3, 4, 5), "the version that brought it, or one soon after it"
    assert "has not mended it" in found[0].reason
    assert "to" not in found[0].details


def test_versions_that_are_as_good_are_not_accused_however_many_there_are() -> None:
    assert chain(0, [0.9] * 12, length=150) == []


@pytest.mark.parametrize("seed", range(4))
def test_at_low_rates_a_fall_needs_no_further_wait(seed: int) -> None:
    # A run a minute, of which the agent has a tenth: what is found has lasted for hours already.
    told = next(one for one in chain(seed, (0.9, 0.1), length=600, gap=60.0) if "agent" in one.details)
    assert (told.action, told.details["version"]) == ("rollback", "1")


def test_half_an_hour_without_a_tool_is_no_fall() -> None:
    watch, rng = watching(), random.Random(0)
    found: list[Finding] = []
    for version, first in ((0, 0), (1, 2000)):
        watch.swap(version, first * GAP)
        for at in range(first, first + 2000, 50):
            away = version == 1 and 2200 <= at < 2500
            found += watch.add(ten_agents(rng, version, 0.0 if away else 0.9, at, 50, 6))
    assert [finding for finding in found if finding.details.get("agent") and finding.cause == "outcomes"] == []


def all_agents(seed: int, fallen: Sequence[float], length: int, parties: int = 6) -> list[Finding]:
    """What is said of all agents while versions serve `length` reported runs each, one in five minutes."""
    watch, rng = watching(), random.Random(seed)
    found: list[Finding] = []
    for version, success in enumerate(fallen):
        first = version * length
        watch.swap(version, first * 300.0)
        listed = list(runs(rng, version, Behaviour(success=success), first, length))
        for run in listed:
            number, party = rng.randrange(10), str(rng.randrange(parties))
            run.started, run.ended = run.started * 300.0, run.ended * 300.0
            run.agent, run.tools, run.party = f"t/a#{number}", f"t{number}", party
        found += [finding for finding in watch.add(listed) if finding.cause == "outcomes"]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_fall_of_all_agents_over_versions_that_each_serve_too_short_goes_back_to_before_it(seed: int) -> None:
    back = [one for one in all_agents(seed, (*[0.8] * 8, *[0.4] * 10), length=10) if one.action == "rollback"]
    since, version, to = (int(back[0].details[key]) for key in ("since", "version", "to"))
    assert 6 <= since <= 10
    assert since < version, "what serves has not brought it"
    assert to == since - 1
    assert "agent" not in back[0].details


def test_versions_that_serve_a_few_runs_each_and_are_as_good_are_left_alone() -> None:
    assert [one for seed in range(4) for one in all_agents(seed, [0.7] * 24, length=10)] == []


def test_what_is_remembered_survives_a_restart_and_is_bounded_under_a_flood_of_agents() -> None:
    watch = watching()
    chain(0, FALLEN[:4], watch=watch)
    (monitor,) = (one for one in watch.monitors if one.name == "agents")
    again = watching()
    again.history = watch.history
    (restored,) = (one for one in again.monitors if one.name == "agents")
    restored.restore(monitor.save())
    assert restored.save() == monitor.save()
    for number, run in enumerate(runs(random.Random(1), 3, Behaviour(), 2000, 500)):
        restored.concluded(msgspec.structs.replace(run, agent=f"t/flood#{number}", ended=12_000.0 + number))
    restored.look(again.history, 14_000.0)
    assert restored.readings()["agents"] == 16
    kept = msgspec.msgpack.decode(restored.save())["runs"]
    assert sum(name.startswith("t/a#") for name in kept) == 10, "agents that are heard of often stay"
    assert all(len(listed) <= 192 for listed in kept.values())


def test_a_drift_forgets_what_its_agent_is_compared_with() -> None:
    watch = watching()
    chain(0, FALLEN[:3], watch=watch)
    (monitor,) = (one for one in watch.monitors if one.name == "agents")
    before = msgspec.msgpack.decode(monitor.save())["runs"]
    monitor.forget("t/a#0")  # type: ignore[attr-defined]
    after = msgspec.msgpack.decode(monitor.save())["runs"]
    assert before.keys() - after.keys() == {"t/a#0"}
