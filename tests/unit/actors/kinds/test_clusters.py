"""Goals of one kind share a cluster, whatever names and numbers they hold."""

import pytest

from actors.kinds.clusters import cluster_of, template_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Book a flight to:Oslo for:Mia.", "Book a flight to:Rome for:Abdul."),
        ("Cancel order A-1204 of Mr. Smith", "Cancel order B-77 of Mr. Jones"),
        ("Find the invoice 'March rent' from Acme Ltd", "Find the invoice 'New chairs' from Foo Corp"),
        ("Transfer 20.50 to Anna and Bert", "Transfer 3 to Carl, Dora and Emil"),
        ("Reset   my password\n", "Reset my password"),
    ],
)
def test_goals_that_differ_in_entities_share_a_cluster(one: str, other: str) -> None:
    assert template_of(one) == template_of(other)
    assert cluster_of(one) == cluster_of(other)


def test_other_kinds_of_goals_have_other_clusters() -> None:
    goals = [
        "Book a flight to:Oslo for:Mia.",
        "Cancel the order for:Mia.",
        "Cancel the order for:Mia and book a flight to:Oslo.",
        "Find a flight to:Oslo.",
    ]
    assert len({cluster_of(goal) for goal in goals}) == 4
