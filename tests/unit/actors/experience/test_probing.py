"""Probing on the travel desk: what it finds after each drift, with a scripted policy that knows the desk of before."""

import itertools
import random
from pathlib import Path

import pytest

from actors.experience.probing import Player, Prober
from actors.experience.probing_round import EPISODES, ProbeReport
from actors.messages import Trajectory
from actors.ports.environments import Episode
from actors.ports.errors import EnvironmentFailed
from actors.rollout.errors import EpisodeLost
from adapters.environments.travel import Drift, TravelDesk
from tests.support.travelling import Clerk

pytestmark = pytest.mark.anyio
RENAMED = Drift(rename={"book": "buy"})
KNOWN = tuple(tool["function"]["name"] for tool in TravelDesk().tools())


async def probe(
    tmp_path: Path, drift: Drift, *, skips_check: float = 0.0, blind: float = 0.0, families: str = ""
) -> ProbeReport:
    clerk = Clerk(random.Random(7), skips_check=skips_check, blind=blind)
    return await prober(tmp_path, drift, clerk, families=families).probe(KNOWN, "d")


def prober(tmp_path: Path, drift: Drift, player: Player, **settings: str) -> Prober:
    """Of the desk after a drift."""
    drift.write(tmp_path / "desk.json")
    desk = TravelDesk(tmp_path / "desk.json")
    return Prober(environment=desk, player=player, clock=lambda: 5.0, **settings)


def told(report: ProbeReport) -> set[tuple[str, str, str]]:
    assert all(found.verified and found.sources for found in report.findings)
    return {(found.tool, found.before, found.name) for found in report.findings}


DRIFTS = {
    "nothing": (Drift(), set[tuple[str, str, str]]()),
    "a new step": (Drift(precondition={"book": "hold"}), {("book", "hold", "book")}),
    "an old tool that must now come first": (Drift(precondition={"book": "quote"}), {("book", "quote", "book")}),
    "both at once": (
        Drift(rename={"book": "buy"}, precondition={"book": "hold"}),
        {("book", "hold", "buy")},
    ),
    "a renamed precondition": (Drift(precondition={"cancel": "confirm"}), {("cancel", "confirm", "cancel")}),
    "a tool and its precondition renamed": (
        Drift(rename={"cancel": "drop"}, precondition={"cancel": "confirm"}),
        {("cancel", "confirm", "drop")},
    ),
    "two renamed tools, one with a precondition kept out of habit": (
        Drift(rename={"book": "buy", "cancel": "drop"}),
        {("book", "", "buy"), ("cancel", "check_policy", "drop")},
    ),
    "a renamed search": (Drift(rename={"search_flight": "look"}), {("search_flight", "", "look")}),
}


@pytest.mark.parametrize("errs", [0.0, 0.5])
@pytest.mark.parametrize("name", DRIFTS)
async def test_a_policy_that_knows_the_desk_of_before_shows_what_has_changed(tmp_path: Path, name: str, errs: float):
    drift, expected = DRIFTS[name]
    found = told(await probe(tmp_path, drift, skips_check=errs, blind=errs))
    assert found - ({("cancel", "check_policy", "cancel")} if errs else set()) == expected


async def test_every_episode_is_recorded_and_none_is_trainable(tmp_path: Path):
    report = await probe(tmp_path, RENAMED)
    assert len({run.id for run in report.trajectories}) == len(report.trajectories) > 0
    for run in report.trajectories:
        assert (run.source, run.trainable, run.rows) == ("probe", False, ())
        assert run.goal
        assert run.steps
        assert run.tools
    refused = [step for run in report.trajectories for step in run.steps if "no tool" in step.observation]
    assert not refused, "a tool that is gone need not be called to know it"


async def test_the_budget_holds_with_a_policy_that_never_succeeds(tmp_path: Path):
    report = await probe(tmp_path, RENAMED, blind=1.0, families="A")
    assert len(report.trajectories) == EPISODES
    assert report.findings == ()


async def test_episodes_that_break_down_are_counted_and_a_round_of_nothing_else_is_an_error(tmp_path: Path):
    clerk, numbers = Clerk(random.Random(0)), itertools.count()

    async def flaky(episode: Episode, seed: int) -> None:
        if next(numbers) % 2:
            raise EpisodeLost("timeout", "too slow")
        await clerk(episode, seed)

    async def dead(episode: Episode, seed: int) -> None:
        raise EnvironmentFailed("no desk")

    report = await prober(tmp_path, Drift(), flaky).probe(KNOWN, "d")
    assert report.lost > 0
    assert all(isinstance(run, Trajectory) for run in report.trajectories)
    with pytest.raises(EpisodeLost, match="no desk"):
        await prober(tmp_path, Drift(), dead).probe(KNOWN, "d")


async def test_a_tool_that_the_policy_makes_up_is_no_finding(tmp_path: Path):
    made = prober(tmp_path, RENAMED, Clerk(random.Random(0)))
    known = [name for name in KNOWN if name != "book"]
    report = await made.probe(known, "d")
    assert (report.findings, report.open) == ((), ())
    assert told(await made.probe(known, "d", former=["book"])) == {("book", "", "buy")}
