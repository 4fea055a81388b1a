"""What customers say afterwards, when they look at what was done: a grammar, with phrases for evaluation held out.

The desk's own turns end with the attempt. A follow-up comes later, from a customer who has looked: thanks, a complaint,
what was meant instead, the same request again, or nothing at all, as most people do. Some thank for what was not done,
and some complain of what was.
"""

import random
from typing import Literal

from actors.ports.environments import Split
from adapters.environments.service_desk.desk import Desk

Mood = Literal["silent", "thanks", "complaint", "correction", "again", "aside"]

PHRASES: dict[Mood, dict[Split, tuple[str, ...]]] = {
    "thanks": {
        "train": (
            "thanks, that worked", "great, thank you", "perfect", "thanks a lot for the quick help",
            "all good now, thanks", "wonderful, it is sorted", "merci, parfait", "danke, hat geklappt",
            "that was fast, thank you",
        ),
        "heldout": (
            "ok thank you so much", "awesome, exactly what i needed", "cheers, that did it",
            "vielen dank für die hilfe", "brilliant, much appreciated", "gracias, todo bien",
        ),
    },
    "complaint": {
        "train": (
            "it still does not work", "that was wrong", "you did the wrong thing", "nothing happened at all",
            "no, this is not right", "i never got it", "that is not what i asked", "es funktioniert immer noch nicht",
        ),
        "heldout": (
            "hm, i can see no change here", "this is not correct, look at it again", "it is still broken",
            "you told me it was done but it is not", "ça ne marche pas", "i want to talk to a real person",
        ),
    },
    "correction": {
        "train": ("i meant the other order", "no, i asked for something else", "actually i wanted it the other way",
                  "please correct that", "you mixed it up, i said something else"),
        "heldout": ("sorry, what i meant was another one", "you misunderstood me, please undo it", "not that one",
                    "that should have been the other account"),
    },
    "aside": {
        "train": ("do you also ship on sundays", "what are your opening hours", "is there a shop in town"),
        "heldout": ("until when are you there today", "do you have a newsletter", "can i pay by card next time"),
    },
}  # fmt: skip
OF_SUCCESS: tuple[tuple[Mood, float], ...] = (
    ("silent", 0.5), ("thanks", 0.36), ("aside", 0.1), ("complaint", 0.02), ("correction", 0.01), ("again", 0.01),
)  # fmt: skip
OF_FAILURE: tuple[tuple[Mood, float], ...] = (
    ("silent", 0.4), ("thanks", 0.06), ("aside", 0.06), ("complaint", 0.24), ("correction", 0.1), ("again", 0.14),
)  # fmt: skip
"""What customers do whose wish was fulfilled, and whose was not; shares that sum to one."""


def follow_up(rng: random.Random, split: Split, desk: Desk, *, lies: float = 0.0) -> tuple[Mood, str]:
    """What the customer of `desk`, whose attempt is over, says afterwards; empty where they say nothing.

    Args:
        split: whose phrases they use.
        lies: share of customers who behave as if it had gone the other way.
    """
    well = desk.solved != (rng.random() < lies)
    moods = OF_SUCCESS if well else OF_FAILURE
    named: list[Mood] = [name for name, _ in moods]
    mood = rng.choices(named, [share for _, share in moods])[0]
    if mood == "silent":
        return mood, ""
    if mood == "again":
        return mood, desk.cases[0].again
    return mood, rng.choice(PHRASES[mood][split])
