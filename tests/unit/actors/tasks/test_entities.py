"""Goals carried over to other worlds: sort by sort, in order, or not at all."""

import pytest

from actors.kinds.clusters import template_of
from actors.tasks.entities import carried_over, entities


@pytest.mark.parametrize(
    ("goal", "there", "carried"),
    [
        ("Find a flight to:Oslo.", "Book a flight to:Rome for:Mia.", "Find a flight to:Rome."),
        ("Find a flight to:Oslo.", "Cancel the order for:Mia.", None),
        ('Send "hello" to Bob.', 'Ask Carol about "x y".', 'Send "x y" to Carol.'),
        ("Move A17 to B9.", "Compare C3 with D4.", "Move C3 to D4."),
        ("Move A17 to B9.", "Look at C3.", None),
        ("Swap A17 and A17.", "Look at C3.", "Swap C3 and C3."),
        ("Clear the queue.", "Book a flight to:Rome for:Mia.", "Clear the queue."),
    ],
)
def test_each_entity_takes_the_value_of_one_of_its_sort(goal: str, there: str, carried: str | None) -> None:
    made = carried_over(goal, entities(there))
    assert made == carried
    assert made is None or template_of(made) == template_of(goal), "the kind of goal stays"
