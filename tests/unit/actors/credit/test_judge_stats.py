"""Whose word a judge's weight follows from."""

import random

from actors.credit.judge_stats import ALL, JudgeStats
from actors.messages import Attribution, StepLabel, Trajectory
from tests.support.fakes import Clock

KEYS = ("a", "b", "c", "d")


class Bench:
    """A judge that is right in nine of ten, in the traffic of some parties."""

    def __init__(self) -> None:
        self.stats, self.rng, self.number = JudgeStats(0, Clock()), random.Random(0), 0

    def hear(self, count: int, caller: str, *, lies: bool = False, source: str = "production") -> None:
        for _ in range(count):
            self.number += 1
            good = self.rng.random() < 0.5
            right = self.rng.random() < 0.9
            label = StepLabel("GOOD" if good == right else "BAD", 1.0)
            run = Trajectory(
                id=f"t{self.number}", caller=caller, source=source, steps=(), started=0.0, ended=1.0, outcome=1.0
            )
            found = Attribution(labels=(label,), judge="j", rubric="1")
            self.stats.observe(found, run, good=good != lies)
        self.stats.take()

    def weight(self) -> float:
        return self.stats.weight("j", "1", ALL)


def test_a_flood_of_lies_of_one_among_five_parties_takes_no_weight_from_a_good_judge() -> None:
    bench = Bench()
    for _ in range(25):
        for key in KEYS:
            bench.hear(2, key)
        bench.hear(30, "liar", lies=True)
    assert bench.weight() == 1.0


def test_a_flood_of_one_party_does_not_wash_the_others_out_of_the_window() -> None:
    bench = Bench()
    for key in KEYS:
        bench.hear(70, key)
    bench.hear(4000, "loud")
    (page, _) = bench.stats.report()
    assert page["outcomes"]["n"] == 400
    kept = [one.party for one in bench.stats.pages("j", "1", ALL)[0].outcomes]
    assert kept.count("default/loud") <= 400 / 3 + 1


def test_one_key_alone_decides_on_a_judge_and_so_do_our_own_rollouts() -> None:
    for fields in ({"caller": "only"}, {"caller": "", "source": "sandbox"}):
        bench = Bench()
        bench.hear(300, **fields, lies=True)
        assert bench.weight() == 0.0


def test_a_limit_holds_until_the_day_is_over_whatever_happens_to_the_process() -> None:
    clock = Clock(1_000_000 * 86_400.0)
    stats = JudgeStats(100, clock)
    for told in ("", "tokens per day"):
        stats.spent(Attribution(labels=(), judge="j", rubric="1", tokens=60, cost=1.0), "t")
        assert stats.used_up() == told
    clock.now += 86_399
    kept, stats = stats.take(), JudgeStats(100, clock)
    stats.load(kept)
    assert stats.used_up()
    assert {(page.tenant, page.tokens) for page in stats.all()} == {("t", 120.0), (ALL, 120.0)}
    clock.now += 1
    assert stats.used_up() == ""
    assert stats.today.money_day == 0.0
