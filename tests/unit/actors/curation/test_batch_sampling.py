"""How a batch is drawn from what waits."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from actors.curation.batch_sampling import Unit, draw
from actors.curation.curriculum import Curriculum


def unit(name: str, cluster: str = "c", **fields) -> Unit:
    plain = {"tenant": "t", "caller": "", "task": "", "version": 0, "ended": 0.0}
    return Unit(name=name, cluster=cluster, **(plain | fields))


def many(cluster: str, count: int, **fields) -> list[Unit]:
    return [unit(f"{cluster}{number}", cluster, **fields) for number in range(count)]


def knowing(**success: float) -> Curriculum:
    made = Curriculum()
    for number in range(100):
        for cluster, rate in success.items():
            made.observe("production", cluster, float(number % 10 < 10 * rate))
    return made


def names(units: list[Unit]) -> list[str]:
    return [drawn.name for drawn in units]


def test_the_cluster_of_most_gain_goes_first_and_takes_most() -> None:
    waiting = [*many("solved", 8), *many("mixed", 8), *many("hopeless", 8)]
    drawn = Counter(one.cluster for one in draw(waiting, 8, 0.0, knowing(solved=1.0, mixed=0.5, hopeless=0.0)))
    assert drawn["mixed"] == 4
    assert drawn["solved"] == drawn["hopeless"] == 2


def test_a_quarter_is_of_other_clusters_than_the_leading_one_the_longest_unattended_first() -> None:
    waiting = [*many("busy", 50, version=1), *many("a", 2), *many("b", 2), *many("c", 2)]
    curriculum = knowing(busy=0.5, a=1.0, b=1.0, c=1.0)
    curriculum.touch("a")
    drawn = draw(waiting, 8, 0.25, curriculum)
    assert [one.cluster for one in drawn] == ["busy"] * 6 + ["b", "c"]


def test_each_kind_of_key_has_its_cap_while_others_wait() -> None:
    for kind, cap in {"tenant": 4, "caller": 4, "task": 4, "cluster": 6}.items():
        loud = [unit(f"loud{n}", version=1, **{kind: "x"}) for n in range(20)]
        drawn = draw([*loud, *(unit(f"r{n}", **{kind: "y"}) for n in range(8))], 8, 0.0, Curriculum())
        assert sum(one.name.startswith("loud") for one in drawn) == cap, kind


def test_of_four_parties_the_loud_one_gets_no_more_than_a_third() -> None:
    quiet = [unit(f"{key}{n}", caller=key) for key in "abc" for n in range(4)]
    drawn = Counter(one.caller for one in draw([*many("c", 90, caller="loud", ended=9.0), *quiet], 9, 0.0, knowing()))
    assert (drawn["loud"], drawn.total()) == (3, 9)


def test_keys_of_one_tenant_are_parties_of_their_own_and_a_tenant_without_keys_is_one() -> None:
    loud = many("c", 20, tenant="keyless", ended=9.0)
    keys = [unit(f"{key}{n}", tenant="keyed", caller=key) for key in "ab" for n in range(4)]
    assert Counter(one.tenant for one in draw([*loud, *keys], 9, 0.0, Curriculum())) == {"keyless": 3, "keyed": 6}


def test_the_partys_cap_is_the_last_to_go() -> None:
    loud = many("c", 20, tenant="loud", ended=9.0)
    quiet = [unit(f"q{n}", tenant="quiet") for n in range(4)]
    drawn = draw([*loud, *quiet], 8, 0.0, Curriculum())
    assert Counter(one.tenant for one in drawn) == {"loud": 4, "quiet": 4}


units = st.builds(
    unit,
    st.text("abcdef", min_size=1, max_size=6),
    st.sampled_from(["", "c1", "c2", "c3"]),
    tenant=st.sampled_from(["t1", "t2"]),
    caller=st.sampled_from(["", "a", "b"]),
    task=st.sampled_from(["", "k1", "k2"]),
    version=st.integers(0, 3),
    ended=st.floats(0, 100),
)
waits = st.lists(units, max_size=30, unique_by=lambda one: one.name)


@given(waiting=waits, wanted=st.integers(0, 12), replay=st.floats(0, 1))
def test_a_batch_is_as_full_as_it_can_be_holds_each_once_and_is_the_same_again(waiting, wanted, replay: float) -> None:
    drawn = draw(waiting, wanted, replay, Curriculum())
    assert len(drawn) == len(set(names(drawn))) == min(wanted, len(waiting))
    assert set(names(drawn)) <= set(names(waiting))
    assert draw(waiting[::-1], wanted, replay, Curriculum()) == drawn
