"""The share of a canary: it grows while evidence comes too slowly, within bounds, and fools no comparison."""

import msgspec
import pytest

from actors.deployment.arms import erred
from actors.deployment.canary import CanarySettings, CanaryWatch, Looks, level
from actors.messages import Step, ToolCall, Trajectory
from actors.ports.store import FailedCall
from actors.statistics.strata import sorted_out
from actors.tool_results.runs import summarize
from actors.versions.desired_state import Goal, ServingTrial
from tests.support.fakes import FakeStore

pytestmark = pytest.mark.anyio
TRIAL = ServingTrial(Goal(3, "", "", "verdict"), "a", 1000.0, 1)
QUARTER = 900.0
THIRDS = {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Trial:
    """A watch over version 3 at engine `a`, the rest at version 0."""

    def __init__(self, settings: CanarySettings | None = None, parts: dict[str, float] | None = None) -> None:
        self.settings, self.parts = settings or CanarySettings(), parts or THIRDS
        self.store, self.now = FakeStore(), TRIAL.since + 1.0
        self.restart()

    def restart(self) -> None:
        self.watch = CanaryWatch(self.settings, self.store, parts=self.parts)

    def runs(self, version: int, count: int, *, failed: int | None = None, **changes) -> None:
        """Runs of now; without `failed` nobody has said yet how they went."""
        for number in range(count):
            run = Trajectory(
                id=f"{self.now}-{version}-{failed}-{number}", steps=(Step(exchange_id="e"),),
                outcome=None if failed is None else float(number >= failed), started=self.now, ended=self.now,
                min_version=version, max_version=version,
            )  # fmt: skip
            self.store.save([msgspec.structs.replace(run, **changes)])

    async def later(self, seconds: float, *, hold: bool = False) -> str:
        self.now += seconds
        end, _ = await self.watch.verdict(TRIAL, 0, self.now, hold=hold)
        return end

    @property
    def share(self) -> float:
        return self.watch.needs(TRIAL).share


async def test_the_share_doubles_each_quarter_of_an_hour_without_the_outcomes_of_the_next_look_up_to_an_equal_part():
    trial = Trial()
    shares = []
    for _ in range(5):
        trial.runs(3, 1)
        trial.runs(0, 5, failed=0)
        await trial.later(QUARTER - 2)
        early = trial.share
        trial.runs(0, 1)
        await trial.later(2)
        shares.append((early, trial.share))
    assert shares == [(0.1, 0.2), (0.2, 1 / 3), (1 / 3, 1 / 3), (1 / 3, 1 / 3), (1 / 3, 1 / 3)]


async def test_it_does_not_grow_when_the_outcomes_of_the_next_look_came():
    trial = Trial()
    trial.runs(3, 6, failed=0)
    trial.runs(0, 60, failed=6)
    await trial.later(1)
    assert trial.watch.needs(TRIAL).outcomes == 9, "looks at 4 and 6 were taken"
    trial.runs(3, 3, failed=0)
    await trial.later(QUARTER)
    assert (trial.share, trial.watch.needs(TRIAL).outcomes) == (0.1, 14)


async def test_reports_that_are_late_do_not_come_sooner_for_more_of_it():
    trial = Trial()
    trial.runs(3, 80)
    trial.runs(0, 720)
    await trial.later(1)
    trial.runs(0, 1)
    await trial.later(QUARTER)
    assert trial.share == 0.1, "80 runs wait for the four outcomes of the first look"
    few = Trial()
    few.runs(3, 79)
    few.runs(0, 720)
    await few.later(1)
    few.runs(0, 1)
    await few.later(QUARTER)
    assert few.share == 0.2


async def test_it_does_not_grow_while_nobody_calls_nor_while_nothing_may_be_brought_in():
    trial = Trial()
    await trial.later(10 * QUARTER)
    assert trial.share == 0.1
    trial.runs(0, 1)
    await trial.later(1, hold=True)
    assert trial.share == 0.1
    await trial.later(1)
    assert trial.share == 0.2
    await trial.later(10 * QUARTER)
    assert trial.share == 0.2, "no run since"


@pytest.mark.parametrize(
    ("settings", "parts", "most"),
    [
        (CanarySettings(share=0.1, most_share=0.1), THIRDS, 0.1),
        (CanarySettings(share=0.1, most_share=0.25), THIRDS, 0.25),
        (CanarySettings(share=0.1), {"a": 0.15, "b": 0.85}, 0.15),
        (CanarySettings(share=0.1), {"a": 0.9, "b": 0.1}, 0.5),
        (CanarySettings(share=0.4), THIRDS, 0.4),
    ],
)
async def test_it_never_has_more_than_the_settings_and_the_weight_of_its_engine_say(settings, parts, most):
    trial = Trial(settings, parts)
    for _ in range(6):
        trial.runs(0, 1)
        await trial.later(QUARTER + 1)
    assert trial.share == most
    assert trial.watch.needs(TRIAL).grows == 0.0


async def test_a_restart_keeps_the_share_and_its_time_unless_an_operator_says_less():
    trial = Trial()
    trial.runs(0, 1)
    await trial.later(QUARTER)
    assert trial.share == 0.2
    trial.restart()
    assert trial.share == 0.1, "nothing was read yet"
    trial.runs(0, 1)
    await trial.later(QUARTER - 2)
    assert trial.share == 0.2
    looks = msgspec.json.decode(trial.store.state["swapper/canary"], type=Looks)
    assert [(one.since, one.share) for one in looks.periods] == [(1000.0, 0.1), (1901.0, 0.2)]
    trial.settings = CanarySettings(most_share=0.15)
    trial.restart()
    await trial.later(1)
    assert trial.share == 0.15, "no more than the operator says by now"
    assert trial.watch.needs(TRIAL).grows == 0.0


async def test_who_leads_again_goes_on_from_what_another_daemon_did_meanwhile():
    trial = Trial()
    trial.runs(0, 1)
    await trial.later(1)
    ours = trial.watch
    trial.restart()
    await trial.later(QUARTER)
    assert trial.share == 0.2
    trial.watch = ours
    assert trial.share == 0.1
    trial.watch.forget()
    await trial.later(1)
    assert trial.share == 0.2


async def test_a_clock_that_is_set_back_stops_no_trial():
    trial = Trial()
    trial.runs(0, 500, failed=50)
    await trial.later(1)
    trial.runs(3, 9, failed=9)
    assert await trial.later(-30) == "rollback"


async def test_what_the_canary_got_more_of_later_is_not_compared_with_earlier():
    """By day all succeeds, by night all fails; the canary, no better or worse, had more of the night."""
    trial = Trial()
    trial.runs(3, 2, failed=0)
    trial.runs(0, 38, failed=0)
    await trial.later(QUARTER)
    assert trial.share == 0.2
    trial.now += 10
    trial.runs(3, 20, failed=20)
    trial.runs(0, 20, failed=20)
    assert await trial.later(10) == ""
    arms = trial.watch.arms(TRIAL)
    assert (arms.canary.failed, arms.canary.judged, arms.rest.failed, arms.rest.judged) == (20, 22, 20, 58)


async def test_a_version_that_fails_at_all_is_ended_by_four_outcomes_where_chance_drew_and_not_by_three():
    trial = Trial()
    trial.runs(0, 30, failed=3)
    trial.runs(3, 3, failed=3)
    assert await trial.later(1) == ""
    trial.runs(3, 1, failed=1)
    assert await trial.later(1) == "rollback"


async def test_ten_rare_agents_are_compared_together_where_chance_drew():
    """One run on trial and two elsewhere of each agent: nothing by itself, all together."""
    trial = Trial()
    for number in range(8):
        steps = (Step(exchange_id="e", role=f"agent{number}#0"),)
        trial.runs(3, 1, failed=1, steps=steps, id=f"c{number}")
        for other in range(2):
            trial.runs(0, 1, failed=0, steps=steps, id=f"r{number}-{other}")
    assert await trial.later(1) == "rollback"
    ((mine, rest),) = trial.watch.arms(TRIAL).failures
    assert (len(mine), len(rest)) == (8, 16)


def test_a_stratum_is_the_finest_level_that_is_common():
    runs = [(("0", "a", "x"), n < 4, 0.0) for n in range(12)]
    runs += [(("0", "a", f"rare {n}"), n == 0, 0.0) for n in range(9)]
    runs += [(("0", "b", "x"), True, 0.0), (("0", "c", "x"), False, 1.0)]
    sizes = sorted((len(mine), len(rest)) for mine, rest in sorted_out(runs))
    assert sizes == [(1, 1), (1, 8), (4, 8)]


async def test_calls_that_an_engine_did_not_answer_count_in_the_period_they_began_in():
    trial = Trial()
    trial.runs(3, 2)
    trial.runs(0, 38)
    trial.store.failed = [FailedCall(f"x{n}", "b", f"x{n}", trial.now) for n in range(6)]
    await trial.later(QUARTER)
    trial.now += 10
    trial.runs(3, 20)
    trial.runs(0, 20)
    trial.store.failed += [FailedCall(f"y{n}", "a" if n % 2 else "b", f"y{n}", trial.now) for n in range(20)]
    await trial.later(10)
    lost = [(sum(mine), len(mine), sum(rest), len(rest)) for mine, rest in trial.watch.arms(TRIAL).errors[-2:]]
    assert sorted(lost) == [(0.0, 2, 6.0, 44), (10.0, 30, 10.0, 30)]


def test_all_looks_of_a_trial_together_err_with_what_is_stated():
    settings = CanarySettings()
    for drawn, series in ((True, 2), (False, 3)):
        assert sum(level(look, settings, drawn=drawn) for look in range(1, 100)) * series == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        ((Step(exchange_id="e", tool_calls=(ToolCall("find", "{}"),), observation='{"found": 1}'),), False),
        ((Step(exchange_id="e", tool_calls=(ToolCall("find", "{}"),), observation='{"error": "away"}'),), True),
        ((Step(exchange_id="e", tool_calls=(ToolCall("fond", "{}"),), observation="what?"),), True),
        ((Step(exchange_id="e", tool_calls=(ToolCall("find", "{}"),), observation="none"),) * 3, True),
    ],
)
def test_what_goes_wrong_without_a_word_from_anybody_is_an_error(steps, wrong):
    tools = b'[{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]'
    brief, _ = summarize(Trajectory(id="r", steps=steps, tools=tools, started=0.0, ended=1.0))
    assert erred(brief) is wrong


async def test_a_long_trial_is_not_counted_with_every_tick():
    trial = Trial()
    trial.runs(0, 500)
    asked = []
    count = trial.store.recent_outcomes

    async def noted(**options):
        asked.append(trial.now)
        return await count(**options)

    trial.store.recent_outcomes = noted
    for _ in range(10):
        await trial.later(0.25)
    assert sorted(set(asked)) == [1001.25, 1002.25, 1003.25]


async def test_a_version_is_not_taken_for_good_before_there_is_something_to_compare_it_with():
    """Failures are reported sooner and more often: a bad version has its outcomes before the others have theirs."""
    trial = Trial()
    trial.runs(3, 40, failed=40)
    trial.runs(0, 400)
    trial.runs(0, 3, failed=0)
    assert await trial.later(4000) == ""
    trial.runs(0, 5, failed=0)
    assert await trial.later(5) == "rollback"


async def test_after_the_deadline_it_is_taken_at_a_look_and_not_in_a_lucky_moment():
    trial = Trial(CanarySettings(runs=50))
    trial.runs(0, 60, failed=12)
    trial.runs(3, 9, failed=4)
    assert await trial.later(4000) == "", "it looks worse"
    trial.runs(3, 4, failed=0)
    assert await trial.later(60) == "", "4 of 13, and the next look is at 14"
    trial.runs(3, 1, failed=0)
    assert await trial.later(60) == "roll_on"


async def test_an_equal_one_is_taken_once_the_others_have_outcomes_too():
    trial = Trial()
    trial.runs(3, 8, failed=1)
    trial.runs(0, 7, failed=1)
    assert await trial.later(4000) == ""
    trial.runs(0, 1, failed=0)
    trial.runs(3, 1, failed=0)
    assert await trial.later(5) == "roll_on"
