"""A judge's weight: 1 changes nothing, 0 is silence, and in between labels count for less."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.messages import BatchItem
from learner.credit import CreditSettings, assign
from tests.unit.learner.maker import item, with_judgement

PAPER = CreditSettings(alpha=0.1, discount=1.0)
SETTINGS = [CreditSettings(), PAPER, CreditSettings(discount=0.5)]


def silenced(made: BatchItem) -> BatchItem:
    labels = made.attributed.attribution.labels
    return with_judgement(made, labels=tuple(msgspec.structs.replace(label, label="ABSTAIN") for label in labels))


def same(one, other):
    assert one.left == other.left
    for a, b in zip(one.advantages, other.advantages, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.tobytes() == b.tobytes()


made = st.builds(
    item,
    st.sampled_from([0.0, 0.25, 1.0]),
    st.text("+-?", min_size=1, max_size=6),
    group=st.sampled_from(["", "a", "b"]),
)
batches = st.lists(made, min_size=2, max_size=8)


@settings(max_examples=60)
@given(batches, st.sampled_from(SETTINGS), st.data())
def test_weight_zero_is_bit_for_bit_what_abstaining_on_all_steps_is(items, credit, data):
    out = data.draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items)))
    zero = [with_judgement(one, weight=0.0) if off else one for one, off in zip(items, out, strict=True)]
    silent = [silenced(one) if off else one for one, off in zip(items, out, strict=True)]
    same(assign(zero, credit), assign(silent, credit))


@pytest.mark.parametrize(("weight", "counts"), [(math.nan, 0.0), (-1.0, 0.0), (-math.inf, 0.0), (7.0, 1.0)])
def test_a_weight_that_is_no_trust_is_zero_and_one_above_one_is_one(weight, counts):
    items = [item(1.0, "++", group="g"), item(0.0, "+-", group="g")]
    odd, plain = ([with_judgement(one, weight=each) for one in items] for each in (weight, counts))
    same(assign(odd, PAPER), assign(plain, PAPER))


def test_weights_by_hand():
    # Means 1 and 0 with weights 1 and 1/2: mu = 2/3, sigma^2 = 1 - 4/9; the second's scores count half.
    items = [item(1.0, "++", group="g"), with_judgement(item(0.0, "+-", group="g"), weight=0.5)]
    credits = assign(items, CreditSettings())
    sigma = (5 / 9) ** 0.5
    assert credits.advantages[0] == pytest.approx([1 + (1 / 3) / sigma] * 2)
    assert credits.advantages[1] == pytest.approx([-1 + (1 / 6) / sigma, -1 - (5 / 6) / sigma])
    assert credits.statistics["weight_mean"] == 0.75
