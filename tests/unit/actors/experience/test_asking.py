"""Which tool a goal asks for, told by goals of runs that called it."""

import random

from actors.experience.asking import asker

REFUNDS = ("please refund order {}", "I want my money back for order {}", "refund the second parcel of {} please")
MOVES = ("please send order {} to another address", "I moved, deliver {} somewhere else", "where is the parcel of {}")


def said(forms: tuple[str, ...], number: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [rng.choice(forms).format(rng.randrange(10**6)) for _ in range(number)]


def test_goals_that_nobody_has_said_yet_are_told_apart() -> None:
    asks = asker({"create_refund": said(REFUNDS, 20, 1), "orders.move": said(MOVES[:2], 20, 2)}, said(MOVES[2:], 20, 3))
    assert asks("my money for the order 777 back, refund it") == "create_refund"
    assert asks("deliver it to my new address, I moved") == "orders.move"
    assert asks("where is my parcel") == ""


def test_words_that_everybody_says_ask_for_nothing() -> None:
    asks = asker({"create_refund": ["hello there please refund it"] * 5}, ["hello there please cancel it"] * 50)
    assert asks("hello there please") == ""
    assert asks("hello there, refund") == "create_refund"
