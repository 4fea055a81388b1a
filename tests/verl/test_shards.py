"""Rows dealt to ranks: nothing lost, nothing doubled, loads alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.trainers.micro import Layout
from learner.trainers.verl.shards import deal, shard
from tests.verl.rig import batch


def trained(layout):
    return np.flatnonzero(layout.inputs > 0).astype(np.int64)


@given(rows=st.integers(1, 40), parts=st.integers(1, 9), seed=st.integers(0, 5))
def test_each_row_is_dealt_once_and_no_load_is_far_above_the_mean(rows, parts, seed):
    layout = Layout(batch(rows, seed=seed))
    dealt = deal(layout, trained(layout), parts)
    assert sorted(np.concatenate(dealt).tolist()) == trained(layout).tolist()
    tokens = layout.inputs + 1
    loads = [int(tokens[part].sum()) for part in dealt]
    # Graham: the last row put on the fullest rank went there because all others were at least as full.
    assert max(loads) <= sum(loads) / parts + tokens.max()


@given(rows=st.integers(1, 12), parts=st.integers(1, 5), seed=st.integers(0, 5))
def test_shards_hold_every_trained_token_once_beside_its_own_id(rows, parts, seed):
    given_ = batch(rows, seed=seed, masked=(2, 3))
    layout = Layout(given_)
    shards = [shard(layout, trained(layout), part, parts, 64) for part in range(parts)]
    columns = np.concatenate([one.columns[one.columns >= 0] for one in shards])
    assert sorted(columns.tolist()) == list(range(given_.tokens))
    ids = given_.ids[given_.mask > 0]
    for one in shards:
        own = one.columns >= 0
        assert np.array_equal(one.ids[own], ids[one.columns[own]])
        assert not own[one.offsets[:-1]].any()  # a first token has nothing before it
        assert np.array_equal(one.positions[one.offsets[:-1]], np.zeros(len(one.offsets) - 1))
        assert len(one.temperature) == len(one.offsets) - 1


@given(rows=st.integers(1, 12), parts=st.integers(1, 5))
def test_all_ranks_have_as_many_rows_and_the_same_budget(rows, parts):
    layout = Layout(batch(rows, seed=1))
    shards = [shard(layout, trained(layout), part, parts, 16) for part in range(parts)]
    assert len({len(one.offsets) for one in shards}) == 1
    assert {one.budget for one in shards} == {max(16, int(layout.inputs.max()) + 1)}


def test_a_row_is_cut_after_its_last_trained_token():
    given_ = batch(1, seed=2)
    given_.mask[10:] = 0
    layout = Layout(given_)
    assert len(shard(layout, trained(layout), 0, 1, 64).ids) == int(np.flatnonzero(given_.mask)[-1]) + 1


@pytest.mark.parametrize("parts", [1, 3])
def test_a_mini_batch_without_rows_is_one_filler_each(parts):
    layout = Layout(batch(2, seed=0))
    one = shard(layout, np.zeros(0, np.int64), parts - 1, parts, 64)
    assert one.ids.tolist() == [0, 0]
    assert one.columns.tolist() == [-1, -1]
