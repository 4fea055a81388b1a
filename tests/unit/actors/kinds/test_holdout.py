"""The share set aside is a share, and the same one everywhere."""

from actors.kinds.holdout import held_out
from actors.messages import derived_id


def test_a_fourth_is_held_out():
    share = sum(held_out(derived_id("t", number)) for number in range(8000)) / 8000
    assert 0.23 < share < 0.27


def test_the_decision_never_changes():
    assert [number for number in range(40) if held_out(f"t{number}", share=0.125)] == [10, 16, 33, 35]


def test_a_larger_share_holds_the_smaller_one():
    ids = [f"t{number}" for number in range(200)]
    assert {i for i in ids if held_out(i)} <= {i for i in ids if held_out(i, share=0.3)}
