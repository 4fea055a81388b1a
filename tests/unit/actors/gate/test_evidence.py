"""Several agents, several parties, one of which lies: what decides then."""

import msgspec
import pytest

from actors.gate import replay_trial
from actors.gate.replay_trial import ReplayTrial, ReplayTrialSettings
from actors.messages import Step, pack_array
from tests.support.fakes import FakeStore
from tests.unit.actors.gate.test_replay_trial import IDS, TOKENS, Scoring, compare, loader, production

pytestmark = pytest.mark.anyio
SETTINGS = ReplayTrialSettings(small_step=0.0)
SHIFT = 0.1
"""Of the candidate: liked runs are so much likelier a token, the others unlikelier."""


class Traffic:
    """A store of runs, the next always the newest."""

    def __init__(self) -> None:
        self.store, self.saved = FakeStore(), 0

    def save(
        self, count: int, good: int, *, tenant: str = "a", caller: str = "", tools: tuple[str, ...] = ("win",),
        reported: bool = True,
    ) -> None:  # fmt: skip
        """`count` runs; the candidate likes every other. Of ten that it likes `good` succeed, and of ten that it does
        not like the others do."""
        for number in range(count):
            liked = number % 2
            succeeded = (number // 2 % 10 < good) == bool(liked)
            item = production(
                IDS[self.saved], float(self.saved), outcome=float(succeeded) if reported else None, tools=tools
            )
            # A token more or less, so that runs differ.
            ids = pack_array([liked, number % 7, *range(2, 2 + TOKENS)], "<i4")
            row = msgspec.structs.replace(item.trajectory.rows[0], ids=ids)
            run = msgspec.structs.replace(item.trajectory, rows=(row,), tenant=tenant, caller=caller)
            self.store.save([msgspec.structs.replace(item, trajectory=run)])
            self.saved += 1


class Varied(Scoring):
    """Runs differ in how far the candidate moves."""

    spread = 0.02

    async def log_probs(self, ids):
        values = await super().log_probs(ids)
        return values + (self.spread * (ids[1] - 3) if self.current == 1 else 0.0)


def honest(good: int, *, parties: str = "abcd", each: int = 20) -> Traffic:
    traffic = Traffic()
    for name in parties:
        traffic.save(each, good, tenant=name)
    return traffic


async def judged(traffic: Traffic, shift: float = SHIFT, settings: ReplayTrialSettings = SETTINGS):
    return await compare(traffic.store, Varied(shift), settings)


async def test_eighteen_runs_of_one_tenant_with_a_tool_list_of_its_own_decide_nothing():
    """They were the newest, so that their tool list alone was taken for today's, and turned reject into promote."""
    traffic = honest(1)
    assert (await judged(traffic)).decision == "reject"
    traffic.save(18, 10, tenant="liar", tools=("mine",))
    comparison = await judged(traffic)
    assert comparison.decision == "reject"
    assert comparison.measurements["trajectories"] == 98


@pytest.mark.parametrize(("good", "decision"), [(1, "reject"), (9, "promote")])
@pytest.mark.parametrize("runs", [5, 20, 100, 400])
async def test_a_flood_of_lies_changes_no_verdict(good: int, decision: str, runs: int):
    """All runs of one party are reported, each the wrong way round, with any tool list."""
    traffic = honest(good)
    assert (await judged(traffic)).decision == decision
    for number in range(4):
        traffic.save(runs // 4, 10 - good, tenant="liar", tools=(("win",), ("made up",))[number % 2])
    comparison = await judged(traffic)
    figures = comparison.measurements
    assert comparison.decision == decision, comparison.reason
    assert (figures["parties_bind"], figures["parties_aside"]) == (1, 2)
    assert figures["parties"] == (5 if runs >= 4 * 4 else figures["parties"])


async def test_new_runs_are_looked_at_though_a_full_window_does_not_grow(monkeypatch):
    monkeypatch.setattr(replay_trial, "_EFFECTIVE_SHARE", 1.1)
    traffic, engine = honest(5, each=64), Varied(0.0)
    small = msgspec.structs.replace(SETTINGS, most=64)
    gate = ReplayTrial(small, engine=engine, store=traffic.store)

    async def look() -> str:
        engine.current = 1
        return (await gate.compare(1, 0, [0], loader(engine))).decision

    assert [await look(), await look()] == ["hold", "wait"]
    traffic.save(4, 5)
    assert await look() == "wait", "four more are not worth a look"
    traffic.save(4, 5, tenant="b")
    assert await look() == "hold"


async def test_a_run_with_log_probs_that_are_no_numbers_is_no_evidence():
    traffic = honest(9)
    item = production(IDS[900], 900.0, outcome=1.0)
    row = msgspec.structs.replace(item.trajectory.rows[0], logprobs=pack_array([float("nan")] * (2 + TOKENS), "<f4"))
    run = msgspec.structs.replace(item.trajectory, rows=(row,))
    traffic.store.save([msgspec.structs.replace(item, trajectory=run)])
    assert (await judged(traffic)).measurements["trajectories"] == 80


async def test_a_run_of_which_a_call_could_not_be_trained_on_is_no_evidence():
    """The tokens of that call are not among its rows: a part's probability would stand for the whole run's."""
    traffic = honest(9)
    item = production(IDS[900], 900.0, outcome=1.0)
    missing = Step(exchange_id="e-greedy", why_not="temperature 0")
    run = msgspec.structs.replace(item.trajectory, steps=(*item.trajectory.steps, missing))
    traffic.store.save([msgspec.structs.replace(item, trajectory=run)])
    assert (await judged(traffic)).measurements["trajectories"] == 80


async def test_what_one_party_writes_does_not_put_a_candidate_too_far_away():
    class Strange(Varied):
        async def log_probs(self, ids):
            values = await super().log_probs(ids)
            return values + (1.5 if self.current == 1 and ids[2] == 99 else 0.0)

    traffic = honest(9)
    traffic.save(20, 9, tenant="strange")
    for item in list(traffic.store.records.values())[-20:]:
        run = item.trajectory
        ids = pack_array([run.ended % 2, 3, 99, *range(3, 2 + TOKENS)], "<i4")
        row = msgspec.structs.replace(run.rows[0], ids=ids)
        traffic.store.records[item.id] = msgspec.structs.replace(
            item, trajectory=msgspec.structs.replace(run, rows=(row,))
        )
    comparison = await compare(traffic.store, Strange(SHIFT), SETTINGS)
    assert (comparison.decision, comparison.measurements["kl"] < 0.1) == ("promote", True), comparison.reason


async def test_with_one_key_alone_all_its_runs_count():
    traffic = honest(9, parties="a", each=80)
    comparison = await judged(traffic)
    figures = comparison.measurements
    assert (comparison.decision, figures["trajectories"]) == ("promote", 80)
    assert (figures["parties"], figures["parties_bind"], figures["parties_aside"]) == (1, 0, 0)


async def test_a_key_is_a_party_of_its_own_within_its_tenant():
    traffic = Traffic()
    for caller in ("k1", "k2", "k3", "k4"):
        traffic.save(16, 9, caller=caller)
    assert (await judged(traffic)).measurements["parties_bind"] == 1


async def test_the_second_agents_rare_runs_are_evidence():
    traffic = Traffic()
    for _ in range(20):
        traffic.save(1, 9, tools=("rare",))
        traffic.save(40, 9, reported=False)
        traffic.save(5, 9)
    comparison = await judged(traffic)
    assert (comparison.measurements["groups"], comparison.measurements["trajectories"]) == (2, 120)


async def test_an_agent_that_is_surely_worse_off_vetoes():
    traffic = honest(9, each=60)
    traffic.save(40, 0, tenant="a", tools=("other",))
    comparison = await judged(traffic)
    assert comparison.decision == "promote", "one party alone says so"
    assert "agent a (other) is worse off" in comparison.reason
    assert "one party alone says so" in comparison.reason
    assert (comparison.measurements["groups_told"], comparison.measurements["groups_harmed"]) == (1, 0)
    traffic = honest(9, parties="abc", each=60)
    for caller in ("k1", "k2", "k3"):
        traffic.save(20, 0, tenant="d", caller=caller, tools=("other",))
    comparison = await judged(traffic)
    assert comparison.decision == "reject"
    assert comparison.reason.startswith("agent d (other) is worse off: -0.")
    assert comparison.measurements["groups_harmed"] == 1


async def test_a_rare_agent_that_is_worse_by_chance_does_not_veto():
    traffic = honest(9, each=60)
    traffic.save(10, 4, tenant="a", tools=("other",))
    comparison = await judged(traffic)
    assert (comparison.decision, comparison.measurements["groups_asked"]) == ("promote", 5)
    assert comparison.measurements["groups_harmed"] == 0
