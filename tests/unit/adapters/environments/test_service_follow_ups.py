"""Customers who look at what was done: held-out phrases are held out, and moods go with what happened."""

import random
from collections import Counter

from adapters.environments.service_desk.desk import Desk
from adapters.environments.service_desk.follow_ups import OF_FAILURE, OF_SUCCESS, PHRASES, follow_up


def moods(*, solved: bool, lies: float = 0.0) -> Counter[str]:
    rng, found = random.Random(0), Counter[str]()
    for number in range(600):
        desk = Desk(f"seed{number}", "R", "heldout")
        desk.solved = solved
        mood, said = follow_up(rng, "heldout", desk, lies=lies)
        assert bool(said) == (mood != "silent")
        found[mood] += 1
    return found


def test_no_phrase_for_evaluation_is_one_for_training() -> None:
    for phrases in PHRASES.values():
        assert not set(phrases["train"]) & set(phrases["heldout"])


def test_shares_sum_to_one() -> None:
    for shares in (OF_SUCCESS, OF_FAILURE):
        assert abs(sum(share for _, share in shares) - 1.0) < 1e-9


def test_customers_thank_for_what_was_done_and_liars_for_what_was_not() -> None:
    good, bad, lied = moods(solved=True), moods(solved=False), moods(solved=False, lies=1.0)
    assert good["thanks"] > 5 * good["complaint"]
    assert bad["complaint"] > 2 * bad["thanks"]
    assert lied["thanks"] > 5 * lied["complaint"]
