"""The comparison in a trial, and the share that it has: looks are counted, like is compared with like."""

import random

import msgspec
import pytest

from actors.deployment.arms import Arms, erred, rate_of
from actors.deployment.canary import FIRST_LOOK, GROWTH, CanarySettings, CanaryWatch, Looks, level, worse
from actors.messages import Step, ToolCall, Trajectory
from actors.statistics.strata import sorted_out
from actors.tool_results.runs import summarize
from actors.versions.desired_state import Goal, ServingTrial
from tests.support.fakes import FakeStore

pytestmark = pytest.mark.anyio
SETTINGS = CanarySettings()
TRIAL = ServingTrial(Goal(3, "", "", "verdict"), "a", 1000.0, 1)
QUARTER = 900.0
THIRDS = {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}
Told = list[tuple[tuple[str, str], bool, float]]
"""(tenant and kind, whether it was on trial, 1 for a failure) of each run."""


def runs(count: int, failed: int, *, mine: bool, kind: str = "") -> Told:
    return [(("tenant", kind), mine, float(n < failed)) for n in range(count)]


def told(*parts: Told, last: bool = False) -> str:
    """What one look says, the first."""
    found = [run for part in parts for run in part]
    return worse(Arms(rate_of(sorted_out(found))), Looks(), SETTINGS, last=last)


SECOND = int(FIRST_LOOK * GROWTH)
BEFORE, EASY = runs(100, 10, mine=False), runs(300, 15, mine=False, kind="easy")
HARDER = runs(32, 16, mine=True, kind="hard")


@pytest.mark.parametrize(
    ("sides", "last", "found"),
    [
        ((BEFORE, runs(SECOND, SECOND, mine=True)), False, True),
        ((runs(100, 0, mine=False), runs(7, 7, mine=True)), False, False),
        ((runs(7, 0, mine=False), runs(20, 20, mine=True)), False, False),
        ((EASY, runs(80, 40, mine=False, kind="hard"), HARDER), True, False),  # as many fail as before, of this kind
        ((EASY, runs(80, 4, mine=False, kind="hard"), HARDER), True, True),
        ((BEFORE, runs(32, 32, mine=True, kind="new")), True, False),
        (
            [runs(1, n % 10 == 0, mine=False, kind=f"before {n}") for n in range(40)]
            + [runs(1, 1, mine=True, kind=f"after {n}") for n in range(32)],
            True,
            True,
        ),
    ],
    ids=["worse", "too few", "too few before", "harder", "worse of a kind", "a new kind", "rare kinds are one"],
)
def test_like_is_compared_with_like_once_there_is_enough(sides, last, found):
    assert ("failures" in told(*sides, last=last)) is found


def test_between_two_looks_nothing_is_concluded():
    looks = Looks()
    for count, failed, found in ((8, 1, False), (SECOND - 1, SECOND - 1, False), (SECOND, SECOND, True)):
        sides = sorted_out([*BEFORE, *runs(count, failed, mine=True)])
        assert bool(worse(Arms(rate_of(sides)), looks, SETTINGS)) is found


def test_all_looks_of_a_trial_together_err_with_what_is_stated():
    for drawn, series in ((True, 2), (False, 4)):
        assert sum(level(look, SETTINGS, drawn=drawn) for look in range(1, 100)) * series == pytest.approx(0.05)


def test_a_stratum_is_the_finest_level_that_is_common():
    found = [(("0", "a", "x"), n < 4, 0.0) for n in range(12)]
    found += [(("0", "a", f"rare {n}"), n == 0, 0.0) for n in range(9)]
    found += [(("0", "b", "x"), True, 0.0), (("0", "c", "x"), False, 1.0)]
    assert sorted((len(mine), len(rest)) for mine, rest in sorted_out(found)) == [(1, 1), (1, 8), (4, 8)]


@pytest.mark.parametrize(
    ("name", "observation", "times", "wrong"),
    [("find", '{"found": 1}', 1, False), ("find", '{"error": "away"}', 1, True), ("fond", "?", 1, True),
     ("find", "none", 3, True)],
    ids=["right", "tool error", "no such tool", "in circles"],
)  # fmt: skip
def test_what_goes_wrong_without_a_word_from_anybody_is_an_error(name, observation, times, wrong):
    step = Step(exchange_id="e", tool_calls=(ToolCall(name, "{}"),), observation=observation)
    tools = b'[{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]'
    brief, _ = summarize(Trajectory(id="r", steps=(step,) * times, tools=tools, started=0.0, ended=1.0))
    assert erred(brief) is wrong


class Trial:
    """A watch over version 3 at engine `a`, the rest at version 0."""

    def __init__(
        self, settings: CanarySettings = SETTINGS, parts: dict[str, float] = THIRDS, trial: ServingTrial = TRIAL
    ) -> None:
        self.settings, self.parts, self.trial = settings, parts, trial
        self.store, self.now = FakeStore(), trial.since + 1.0
        self.restart()

    def restart(self) -> None:
        self.watch = CanaryWatch(self.settings, self.store, parts=self.parts)

    def runs(self, version: int, count: int, *, failed: int | None = None, **changes) -> None:
        """Runs of now; without `failed` nobody has said yet how they went."""
        for number in range(count):
            run = Trajectory(
                id=f"{self.now}-{version}-{failed}-{number}-{sorted(changes)}", steps=(Step(exchange_id="e"),),
                outcome=None if failed is None else float(number >= failed), started=self.now, ended=self.now,
                min_version=version, max_version=version,
            )  # fmt: skip
            self.store.save([msgspec.structs.replace(run, **changes)])

    async def later(self, seconds: float, *, hold: bool = False) -> str:
        self.now += seconds
        end, _ = await self.watch.verdict(self.trial, 0, self.now, hold=hold)
        return end

    @property
    def share(self) -> float:
        return self.watch.share(TRIAL)


@pytest.mark.parametrize(
    ("told", "parts", "share"),
    [
        (0, THIRDS, 1 / 3),
        (480, THIRDS, 1 / 3),
        (1920, THIRDS, 0.2),
        (5000, THIRDS, 0.1),
        (480, {"a": 0.15, "b": 0.85}, 0.15),
        (480, {"a": 0.9, "b": 0.1}, 0.5),
        (480, {"a": 0.05, "b": 0.95}, 0.1),
    ],
)
async def test_the_share_of_a_trial_is_what_brings_its_outcomes_in_two_hours_and_is_fixed_when_it_begins(
    told, parts, share
):
    trial = Trial(parts=parts)
    for number in range(told):  # in the day before, one of two with an outcome
        for outcome in (1.0, None):
            at = TRIAL.since - number * 86_400.0 / told - 1.0
            run = Trajectory(
                id=f"{number}{outcome}", steps=(Step(exchange_id="e"),), outcome=outcome, started=at, ended=at,
                min_version=0, max_version=0,
            )  # fmt: skip
            trial.store.save([run])
    assert trial.share == 0.0, "nobody has looked yet"
    await trial.later(1)
    first = trial.share
    assert first == pytest.approx(share, rel=0.02)
    trial.runs(0, 9, failed=0)
    await trial.later(QUARTER)
    trial.parts = THIRDS
    trial.restart()
    await trial.later(QUARTER)
    assert trial.share == first


async def test_who_leads_again_goes_on_from_what_another_daemon_did_meanwhile():
    trial = Trial()
    await trial.later(1)
    stood_by = trial.watch
    trial.restart()
    trial.runs(3, 9, failed=0)
    trial.runs(0, 60, failed=6)
    await trial.later(1)
    assert trial.watch.due(TRIAL) == 14, "looks at 4, 6 and 9 were taken"
    trial.watch = stood_by
    await trial.later(1)
    assert trial.watch.due(TRIAL) == 14


async def test_a_clock_that_is_set_back_stops_no_trial():
    trial = Trial()
    trial.runs(0, 500, failed=50)
    await trial.later(1)
    trial.runs(3, 9, failed=9)
    assert await trial.later(-30) == "rollback"


async def test_a_version_that_fails_at_all_is_ended_by_four_outcomes_where_chance_drew_and_not_by_three():
    trial = Trial()
    trial.runs(0, 30, failed=3)
    trial.runs(3, 3, failed=3)
    assert await trial.later(1) == ""
    trial.runs(3, 1, failed=1)
    assert await trial.later(1) == "rollback"


async def test_a_long_trial_is_not_counted_with_every_tick():
    trial, asked = Trial(), []
    trial.runs(0, 500)
    count = trial.store.recent_outcomes

    async def noted(**options):
        asked.append(trial.now)
        return await count(**options)

    trial.store.recent_outcomes = noted
    for _ in range(10):
        await trial.later(0.25)
    assert sorted(set(asked)) == [1001.25, 1002.25, 1003.25]


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        # Failures are reported sooner: a bad version has its outcomes before there are any to compare them with.
        (SETTINGS, [([(3, 40, 40), (0, 400, None), (0, 3, 0)], ""), ([(0, 5, 0)], "rollback")]),
        (SETTINGS, [([(3, 8, 1), (0, 7, 1)], ""), ([(0, 1, 0), (3, 1, 0)], "roll_on")]),
        # At a look, and not in a lucky moment: 4 of 9 look worse, and after 4 of 13 the next look is at 14.
        (CanarySettings(runs=50), [([(0, 60, 12), (3, 9, 4)], ""), ([(3, 4, 0)], ""), ([(3, 1, 0)], "roll_on")]),
    ],
    ids=["worse", "equal", "at a look"],
)
async def test_after_the_deadline_it_is_taken_at_a_look_once_there_is_something_to_compare_it_with(settings, parts):
    trial, seconds = Trial(settings), 4000
    for added, end in parts:
        for version, count, failed in added:
            trial.runs(version, count, failed=failed)
        assert await trial.later(seconds) == end
        seconds = 60


@pytest.mark.parametrize(
    ("success", "end", "rate", "seed"),
    [(0.9, "roll_on", 60.0, 0), (0.9, "roll_on", 60.0, 1), (0.9, "roll_on", 600.0, 0), (0.1, "rollback", 60.0, 0)],
)
async def test_failures_that_are_told_hours_before_successes_neither_end_a_trial_nor_pass_it(success, end, rate, seed):
    """At the only engine, nine in ten of the version before succeeded."""
    since, rng, late = 1e6, random.Random(seed), 4 * 3600.0
    trial = Trial(parts={"a": 1.0}, trial=msgspec.structs.replace(TRIAL, since=since))
    due: list[tuple[float, str, float]] = []

    def runs(version: int, share: float, begin: float, end: float) -> None:
        at = begin
        while at < end:
            outcome = float(rng.random() < share)
            run = Trajectory(
                id=f"{version}-{at}", steps=(Step(exchange_id="e"),), started=at, ended=at + 1, min_version=version,
                max_version=version,
            )  # fmt: skip
            trial.store.save([run])
            due.append((at + 1 + (late if outcome else 6.0), run.id, outcome))
            at += rate
        due.sort()

    runs(0, 0.9, since - 400 * rate, since)
    told = ""
    while not told and trial.now < since + 80 * 3600.0:
        runs(3, success, trial.now, trial.now + 10 * rate)
        while due and due[0][0] <= trial.now:
            trial.store.tell(due[0][1], due[0][2], due.pop(0)[0])
        told = await trial.later(10 * rate)
    assert told == end
