"""Whose word a rollback rests on: one party decides nothing, hides nothing and is named."""

import random
from collections.abc import Callable, Iterator

import msgspec
import pytest

from actors.monitoring.monitor import Finding
from actors.tool_results.runs import RunSummary
from tests.support.behaviour import Behaviour, Watch, runs

HONEST = tuple(f"k{number}" for number in range(8))
Lie = Callable[[RunSummary, int], float]


def shared(
    rng: random.Random, version: int, success: float, first: int, count: int, lie: Lie, share: float = 0.2
) -> Iterator[RunSummary]:
    """Runs of eight honest parties, a fifth of them a liar's, who says of his what he likes."""
    for run in runs(rng, version, Behaviour(success=success), first, count):
        if rng.random() < share:
            yield msgspec.structs.replace(run, party="liar", outcome=lie(run, version))
        else:
            yield msgspec.structs.replace(run, party=rng.choice(HONEST))


def swap(
    seed: int, before: float, after: float, lie: Lie, count: int = 1000, share: float = 0.2, first: int = 400
) -> list[Finding]:
    """What is found of a swap, `first` runs before it and `count` since."""
    watch, rng = Watch(), random.Random(seed)
    # The others have tests of their own, and take most of the time.
    watch.monitors = [monitor for monitor in watch.monitors if monitor.name in ("outcomes", "hacking", "agents")]
    watch.add(list(shared(rng, 0, before, 0, first, lie, share)))
    watch.swap(1, float(first))
    found: list[Finding] = []
    for at in range(first, first + count, 20):
        found += watch.add(list(shared(rng, 1, after, at, 20, lie, share)))
    return [finding for finding in found if finding.cause in ("outcomes", "hacking")]


def told_off(run: RunSummary, version: int) -> float:
    return float(version == 0)


@pytest.mark.parametrize("seed", range(3))
def test_one_party_that_reports_failures_since_a_swap_is_told_by_name_and_rolls_nothing_back(seed: int) -> None:
    found = swap(seed, 0.9, 0.9, told_off)
    assert {finding.action for finding in found} == {"tell"}
    assert {finding.details["party"] for finding in found if finding.cause == "outcomes"} == {"liar"}
    assert "liar" in found[0].reason


@pytest.mark.parametrize("seed", range(3))
def test_one_party_that_reports_successes_always_does_not_hide_a_fall(seed: int) -> None:
    found = swap(seed, 0.9, 0.6, lambda run, version: 1.0)
    assert "rollback" in {finding.action for finding in found}


@pytest.mark.parametrize("seed", range(3))
def test_a_flood_of_successes_uses_up_no_looks_before_the_others_have_spoken(seed: int) -> None:
    found = swap(seed, 0.8, 0.5, lambda run, version: 1.0, count=2000, share=0.9, first=2000)
    assert "rollback" in {finding.action for finding in found}


def test_a_party_that_floods_with_reports_does_not_wash_out_the_others() -> None:
    watch, rng = Watch(), random.Random(0)
    watch.swap(1, 0.0)
    for run in runs(rng, 1, Behaviour(), 0, 2000):
        watch.history.add(msgspec.structs.replace(run, party="flood" if rng.random() < 0.95 else rng.choice(HONEST)))
    watched = watch.history.watched(1, reported=True)
    assert watched is not None
    assert sum(run.party == "flood" for run in watched.after) <= len(watched.after) - 60


def test_below_four_parties_one_word_is_enough() -> None:
    watch, rng = Watch(), random.Random(0)
    watch.add([msgspec.structs.replace(run, party="a") for run in runs(rng, 0, Behaviour(success=0.9), 0, 100)])
    watch.swap(1, 100.0)
    after = [msgspec.structs.replace(run, party="a") for run in runs(rng, 1, Behaviour(success=0.1), 100, 40)]
    assert [(finding.cause, finding.action) for finding in watch.add(after)] == [("outcomes", "rollback")]
