"""What the warm starts are never shown: what held-out success is measured with."""

import random
import re

from adapters.environments.service_desk import grammar
from tests.warmstart import service_demonstrations, travel_demonstrations, travel_words

HELD_OUT = {*travel_words.HELD_OUT, *travel_words.HELD_OUT_PAIRS}


def test_held_out_names_are_never_demonstrated_hinted_or_listed() -> None:
    demonstrator = travel_demonstrations.Demonstrator(random.Random("test"))
    for demonstration in (demonstrator.demonstrate() for _ in range(2000)):
        seen = [demonstration.hint, demonstration.goal, *(text for _, text in demonstration.turns)]
        seen += [tool["function"]["name"] for tool in demonstration.tools]
        seen += [f"{call.name} {call.arguments}" for call, _ in demonstration.turns]
        assert not HELD_OUT & set(re.findall(r"[a-z_]+", " ".join(seen)))


def said(demonstration: service_demonstrations.Demonstration) -> str:
    texts = [message["content"] for _, _, messages in demonstration.turns for message in messages]
    return "\n".join([demonstration.hint, demonstration.goal, *texts])


def test_phrases_for_evaluation_are_never_shown() -> None:
    demonstrator = service_demonstrations.Demonstrator(random.Random("test"))
    shown = [said(demonstrator.demonstrate()) for _ in range(2000)]
    parts = (*grammar.WISHES.values(), grammar.AGAIN, grammar.COMPLAINTS, grammar.OPENERS, grammar.REASONS)
    for part in parts:
        for phrase in part["heldout"]:
            fixed = max(phrase.replace("{at}", "{").replace("{city}", "{").replace("{wish}", "{").split("{"), key=len)
            if len(fixed) < 16 or any(fixed in line for other in parts for line in other["train"]):
                continue  # a piece that a training phrase has too
            assert not [one for one in shown if fixed in one], fixed
