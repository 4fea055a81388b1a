"""What is worth a judge's time: failures, mixed groups and clusters, new kinds of goal, and a share of the rest."""

import msgspec
import pytest

from actors.credit import sampling
from actors.credit.content import content_hash
from actors.credit.sampling import Sampler, SamplingSettings
from actors.messages import Trajectory
from tests.support.travelling import call, plays, trajectory


def run(number: int, outcome: float | None = 1.0, group: str = "") -> Trajectory:
    return trajectory([(call("find"), "")], id=f"r{number}", outcome=outcome, group=group)


def sampler(share: float = 0.0) -> Sampler:
    """One that knows the cluster `known`, where all went well."""
    made = Sampler(SamplingSettings(share=share))
    made.rebuild([("known", 1.0)] * 20)
    return made


def test_failures_mixed_clusters_and_new_ones_are_judged_and_of_the_rest_nothing():
    one = sampler()
    assert one.worth(run(1), "known") == ""
    assert one.worth(run(1, None), "known") == ""
    assert one.worth(run(1, 0.0), "known") == "failing"
    assert one.worth(run(1), "never seen") == "new"
    one.note([(run(n, 0.0), "known") for n in range(4)])
    assert one.worth(run(1), "known") == "mixed"


def test_a_cluster_is_new_no_longer_once_it_has_been_seen_often_enough(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling, "NOVEL", 3)
    one = sampler()
    one.note([(run(n), "c") for n in range(2)])
    assert one.worth(run(9), "c") == "new"
    one.note([(run(3), "c")])
    assert one.worth(run(9), "c") == ""


def test_a_success_is_judged_if_another_of_its_group_failed():
    one = sampler()
    one.meet([run(1, group="g"), run(2, 0.0, group="g"), run(3, group="h")])
    assert one.worth(run(1, group="g"), "known") == "mixed"
    assert one.worth(run(3, group="h"), "known") == ""


def test_the_share_of_the_rest_is_kept_and_the_same_trajectory_always_fares_the_same():
    one, other = sampler(share=0.3), sampler(share=0.3)
    chosen = [one.worth(run(n), "known") for n in range(2000)]
    assert chosen == [other.worth(run(n), "known") for n in range(2000)]
    assert 0.25 < chosen.count("share") / 2000 < 0.35


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling, "CLUSTERS", 10)
    one = sampler()
    one.note([(run(n), f"c{n}") for n in range(1000)])
    one.meet([run(n, group=f"g{n}") for n in range(10_000)])
    assert len(one._seen) == len(one._outcomes) == 10
    assert len(one._groups) == 4096


def test_content_is_what_a_judge_may_look_at_and_no_id_or_time():
    first = next(iter(plays(1))).trajectory
    step = msgspec.structs.replace(first.steps[0], exchange_id="other", response_id="other")
    again = msgspec.structs.replace(first, id="other", started=7.0, ended=9.0, steps=(step, *first.steps[1:]))
    assert content_hash("j", "1", first) == content_hash("j", "1", again)


@pytest.mark.parametrize(
    "change",
    [
        {"goal": "another"}, {"outcome": None}, {"tools": b"[]"}, {"tenant": "b"}, {"closed_by": "limit"},
        {"steps": ()},
    ],
)  # fmt: skip
def test_whatever_else_differs_makes_other_content(change):
    first = next(iter(plays(1))).trajectory
    assert content_hash("j", "1", first) != content_hash("j", "1", msgspec.structs.replace(first, **change))
    assert content_hash("j", "1", first) != content_hash("j", "2", first) != content_hash("k", "2", first)
