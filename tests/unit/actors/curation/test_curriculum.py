"""What the sandbox plays next: what traffic asks for by gain, a quarter from elsewhere, and a look at what is new."""

from collections.abc import Iterable, Mapping

import pytest

from actors.curation.curriculum import Curriculum, slots
from actors.curation.pool import CuratorSettings


def knowing(*clusters: str, **settings) -> Curriculum:
    """The sandbox has had tasks of `clusters`, half of them solved."""
    made = Curriculum(**{"mix_share": 0.0, **settings})
    for cluster in clusters:
        for outcome in (0.0, 1.0) * 8:
            made.observe("sandbox", cluster, outcome)
    return made


def planned(made: Curriculum, count: int, clusters: Iterable[str] = "ab") -> Mapping[str, int]:
    """Where the sandbox has as many tasks as anybody wants of each of `clusters`."""
    return made.plan(count, dict.fromkeys(clusters, count))


def traffic(curriculum: Curriculum, cluster: str, count: int = 50) -> Curriculum:
    for number in range(count):
        curriculum.observe("production", cluster, float(number % 2))
    return curriculum


def test_traffic_on_one_kind_leaves_a_quarter_to_the_others() -> None:
    made = traffic(knowing("a", "b", "c"), "b")
    assert planned(made, 8, "abc") == {"b": 6, "a": 1, "c": 1}
    alone = traffic(knowing("b"), "b")
    assert planned(alone, 8, "b") == {"b": 8}


def test_a_focus_that_sits_on_one_hard_kind_does_not_starve_the_solved_ones() -> None:
    made = knowing("hard")
    for cluster in ("easy", "easier"):
        for _ in range(64):
            made.observe("sandbox", cluster, 1.0)
    for _ in range(20):
        plan = planned(made, 8, ("hard", "easy", "easier"))
        assert plan["hard"] <= 6
        assert sum(plan.values()) == 8


def test_a_share_of_each_round_is_the_environments_own() -> None:
    made = knowing("a", "b", mix_share=0.25)
    assert sum(planned(made, 8).values()) == 6
    assert sum(planned(knowing("a", "b", mix_share=0.25, replay_share=1.0), 8).values()) == 8


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.curation.curriculum.CLUSTERS", 4)
    monkeypatch.setattr("actors.curation.bandit.CLUSTERS", 4)
    made = Curriculum()
    for number in range(5000):
        made.observe("sandbox", f"s{number}", 1.0)
        made.observe("production", f"p{number}", 1.0)
        made.touch(f"t{number}")
    assert len(made.gains) == 4
    assert len(made._last) == 4


@pytest.mark.parametrize(
    ("share", "count", "expected"), [(0.25, 8, 2), (0.25, 2, 0), (0.25, 3, 1), (1 / 3, 8, 3), (0, 8, 0)]
)
def test_shares_are_rounded_to_slots_a_half_down(share: float, count: int, expected: int) -> None:
    assert slots(share, count) == expected


def test_groups_carry_the_replay_of_the_whole_batch() -> None:
    settings = CuratorSettings(replay_share=0.25, production_share=0.25)
    assert settings.group_replay == pytest.approx(1 / 3)


def test_what_traffic_fails_at_weighs_more_until_the_sandbox_has_had_its_attempts() -> None:
    made = knowing("a", "b", replay_share=0.0)
    for cluster in ("a", "b"):
        traffic(made, cluster, 200)
    before = planned(made, 9)
    made.urge("b")
    after = planned(made, 9)
    assert after["b"] > before["b"]
    for number in range(256):
        for cluster in ("a", "b"):
            made.observe("sandbox", cluster, float(number % 2))
    assert made.weight("b") == 1.0


def test_no_more_is_planned_than_can_be_had() -> None:
    made = traffic(knowing("a", "b", "c"), "b")
    assert made.plan(8, {"a": 8, "b": 3, "c": 0}) == {"b": 3, "a": 2}, "the rest is the environment's to choose"
    assert made.plan(8, {"b": 3}) == {"b": 3}
    assert made.plan(8, {"never heard of": 8}) == {"never heard of": 8}
