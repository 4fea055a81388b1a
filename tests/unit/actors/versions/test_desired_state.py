"""What should serve follows from the books: verdicts, orders, and what was served."""

import pytest

from actors.messages import Directive, Serving, ServingResult, Verdict
from actors.versions.desired_state import plan


def verdict(version: int, at: float, incumbent: int = 0) -> Verdict:
    return Verdict(
        id=f"v{at}", version=version, path=f"/v{version}", manifest="m", incumbent=incumbent, decision="promote",
        reason="", created=at,
    )  # fmt: skip


def serving(version: int, at: float, result: ServingResult = "swapped") -> Serving:
    path = f"/v{version}"
    return Serving(id=f"s{at}", engine="e", version=version, previous=0, path=path, result=result, since=at)


def order(kind, at: float, origin: str = "", **details: str) -> Directive:
    return Directive(id=f"d{at}", kind=kind, reason="", origin=origin, created=at, details=details)


FIRST, SECOND = serving(0, 1, "started"), (verdict(2, 2), serving(2, 3))
BACK, GOES_ON = order("rollback", 5, version="2"), order("roll_on", 7, version="5")


@pytest.mark.parametrize(
    ("events", "frozen", "serves"),
    [
        ((), False, None),
        ((FIRST,), False, 0),
        ((FIRST, verdict(2, 2)), False, 2),
        ((FIRST, verdict(2, 2), verdict(3, 3)), False, 3),
        ((verdict(3, 0.5), FIRST), False, 3),  # promoted before anything served
        ((FIRST, verdict(2, 2)), True, 0),
        ((FIRST, *SECOND), True, 2),
        ((FIRST, *SECOND, BACK), False, 0),
        ((FIRST, *SECOND, BACK, serving(0, 6), verdict(4, 7)), False, 4),
        ((FIRST, *SECOND, BACK, verdict(4, 7, incumbent=2)), False, 0),  # better than what was bad
        ((FIRST, *SECOND, BACK, order("promote", 6, version="2"), verdict(4, 7, incumbent=2)), False, 4),
        # An order is not yet carried out, or was: what the gate compared before it does not take its place.
        ((FIRST, *SECOND, order("promote", 4, version="3"), verdict(2, 5)), False, 3),
        ((FIRST, *SECOND, order("promote", 4, version="3"), verdict(4, 5, 2)), False, 3),
        ((FIRST, *SECOND, order("promote", 4, version="5"), serving(5, 5), verdict(4, 6, 2), GOES_ON), False, 5),
        ((FIRST, verdict(2, 2), serving(2, 3, "refused"), serving(2, 4, "refused")), False, 0),
        ((serving(2, 1, "started"), BACK), False, None),  # nothing good is left: a person must look
    ],
)
def test_the_goal_is_what_was_decided_last(events, frozen, serves):
    wanted = plan(["e"], events, frozen=frozen)
    goal = wanted.goal("e")
    assert (goal and goal.version) == serves


@pytest.mark.parametrize(("who", "serves"), [("sentinel", 0), ("operator", 1)])
def test_the_sentinel_does_not_move_what_a_trial_went_back_to_and_a_person_does(who: str, serves: int) -> None:
    verdicts, servings = [verdict(1, 10), verdict(2, 20, 1)], [serving(n, 10.0 * n + 1) for n in range(3)]
    passed = order("roll_on", 15, "swapper", version="1")
    orders = [order("rollback", at, origin, version="2", to=to) for at, origin, to in (
        (40, "swapper", "0"), (41, who, "1"),
    )]  # fmt: skip
    wanted = plan(["e"], [*verdicts, passed, *orders, *servings], frozen=False)
    assert wanted.stable is not None
    assert wanted.stable.version == serves
