"""Staleness is a distance along the tree of versions."""

import pytest

from actors.messages import Lineage
from actors.messages.lineage import REMEMBERED


@pytest.fixture
def tree() -> Lineage:
    """0-1-2-3-4-5, and after a rollback 0-6-7."""
    return Lineage([(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 0), (7, 6)])


def test_updates_are_counted_along_the_branch(tree):
    assert [tree.distance(version, 5) for version in range(6)] == [5, 4, 3, 2, 1, 0]
    assert [tree.distance(version, 7) for version in (0, 6, 7)] == [2, 1, 0]


def test_another_branch_has_no_distance(tree):
    assert tree.distance(5, 7) is None
    assert tree.distance(7, 5) is None
    assert tree.distance(3, 0) is None, "the head was set back before it"
    assert tree.distance(-1, 5) is None


def test_a_version_that_was_not_heard_of_yet_is_fresh(tree):
    assert tree.distance(8, 7) == 0
    assert tree.distance(8, 0) == 0


def test_the_tree_is_bounded_and_forgets_the_oldest():
    tree = Lineage((version, version - 1) for version in range(1, 2 * REMEMBERED + 1))
    assert tree.distance(REMEMBERED, 2 * REMEMBERED) == REMEMBERED
    assert tree.distance(0, 2 * REMEMBERED) is None


def test_a_parent_that_is_no_older_is_ignored():
    tree = Lineage([(1, 0)])
    tree.add(1, 2)
    tree.add(3, 3)
    assert tree.line(3) == [3]
    assert tree.line(1) == [1, 0]
