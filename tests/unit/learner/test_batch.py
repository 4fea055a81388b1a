"""Packing, stripping, staleness, what is left out, and the file."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from actors.messages import Processing, TokenRow, pack_array
from learner.batch import TrajectoryBatch
from learner.build import OLDEST, BuildSettings, build
from learner.credit import CreditSettings, assign
from learner.errors import BatchFileInvalid
from tests.unit.learner.maker import VOCABULARY, item, row

LIMITS = BuildSettings(
    vocabulary=VOCABULARY,
    max_tokens=64,
    chain=(0, 1, 2, 3),
    newest=3,
    max_staleness=2,
)
GOOD = row([5, 6, 7, 8], [-1, -1, 0, 0], version=3)
GRAMMAR = Processing(grammar=True)


def built(*items, limits=LIMITS):
    credits = assign(items, CreditSettings(alpha=0.0))
    return build(items, credits, limits)


def pair(first, **kwargs):
    """A successful trajectory with `first` as its row and a failed one, both of a group: advantages +1 and -1."""
    return [item(1.0, "++", id="a", group="g", rows=[first], **kwargs), item(0.0, id="b", group="g", rows=[GOOD])]


def test_rows_are_packed_with_their_steps_advantages():
    batch = built(*pair(row([5, 6, 7, 8, 9], [-1, 0, -1, 1, 1], version=2))).batch
    assert batch.ids.tolist() == [5, 6, 7, 8, 9, 5, 6, 7, 8]
    assert batch.lengths.tolist() == [5, 4]
    assert batch.mask.tolist() == [0, 1, 0, 1, 1, 0, 0, 1, 1]
    assert batch.advantages.tolist() == [0, 1, 0, 1, 1, 0, 0, -1, -1]
    assert batch.behaviour.tolist() == [0, -1, 0, -1, -1, 0, 0, -1, -1]
    assert batch.trajectories == ("a", "b")
    assert batch.trajectory.tolist() == [0, 1]
    assert (batch.base_version, batch.rows, batch.tokens) == (3, 2, 5)
    batch.check()


def test_experience_is_cut_out_of_every_column():
    guided = row([5, 9, 9, 6, 7, 8], [-1, -1, -1, -1, 0, 1], version=3, hint=(1, 3))
    batch = built(*pair(guided, experience_ids=("lesson",))).batch
    assert batch.ids.tolist()[:4] == [5, 6, 7, 8]
    assert batch.steps.tolist()[:4] == [-1, -1, 0, 1]
    assert batch.mask.tolist()[:4] == [0, 0, 1, 1]
    assert batch.guided.tolist() == [1, 0]


def test_only_guided_tokens_with_positive_advantage_are_boosted():
    guided = row([5, 9, 6, 7], [-1, -1, -1, 0], version=3, hint=(1, 2))
    items = [
        item(1.0, id="a", group="g", rows=[guided], experience_ids=("x",)),
        item(0.0, id="b", group="g", rows=[guided], experience_ids=("x",)),
        item(1.0, id="c", group="g", rows=[GOOD]),
        item(0.0, id="d", group="g", rows=[GOOD]),
    ]
    batch = built(*items).batch
    assert batch.clip_high[batch.mask > 0].tolist() == pytest.approx([0.6, 0.28, 0.28, 0.28, 0.28, 0.28])
    assert np.all(batch.clip_low == np.float32(0.2))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (msgspec.structs.replace(GOOD, step=pack_array([0], "<i2")), "ragged"),
        (msgspec.structs.replace(GOOD, ids=b"abc"), "ragged"),
        (row([5], [0], version=3), "empty"),
        (row([], []), "empty"),
        (row([5, 6], [-1, -1]), "all_masked"),
        (row([5, 6], [0, -1], version=3), "all_masked"),  # the first token has no context
        (row([5, VOCABULARY], [-1, 0], version=3), "vocabulary"),
        (row([5, -1], [-1, 0], version=3), "vocabulary"),
        (row([5, 6], [-1, 0], logprobs=[0, np.nan], version=3), "bad_logprobs"),
        (row([5, 6], [-1, 0], logprobs=[0, -np.inf], version=3), "bad_logprobs"),
        (row([5, 6], [-1, 0], logprobs=[0, 0.5], version=3), "bad_logprobs"),
        (row([5, 6], [-1, 2], version=3), "step_outside"),
        (row([5, 6], [-1, 0], version=4), "future_version"),
        (row([5, 6], [-1, 0], version=-1), "unknown_version"),
        (row([5, 6], [-1, 0], version=0), "stale"),
        (row([5, 6], [-1, 0], version=3, temperature=0.0), "temperature"),
        (row([5, 6], [-1, 0], version=3, temperature=1e-30), "temperature"),
        (row([5, 6], [-1, 0], version=3, temperature=np.inf), "temperature"),
        (row([5] * 65, [-1] * 64 + [0], version=3), "too_long"),
        (row([5, 6], [-1, 0], version=3, hint=(1, 9)), "hint_span"),
        (row([5, 6, 7], [-1, 0, 0], version=3, hint=(1, 2)), "hint_span"),  # would cut what was sampled
        # What no engine can have done.
        (row([5, 6], [-1, 0], version=3, processing=Processing(top_p=0.0)), "processing"),
        (row([5, 6], [-1, 0], version=3, processing=Processing(top_k=-3)), "processing"),
        (row([5, 6], [-1, 0], version=3, processing=Processing(repetition_penalty=np.nan)), "processing"),
        (row([5, 6], [-1, 0], version=3, processing=Processing(repetition_penalty=0.0)), "processing"),
        (row([5, 6], [-1, 0], version=3, processing=Processing(min_p=1.5)), "processing"),
        (row([5, 6], [-1, 0], version=3, processing=Processing(presence_penalty=np.inf)), "processing"),
        (row([5, 6], [-1, 0], version=3, processing=GRAMMAR, redacted=True), "grammar"),  # its context was another one
    ],
)
def test_a_row_that_cannot_be_trained_on_is_dropped_and_counted(bad, reason):
    result = built(*pair(bad))
    assert result.dropped == {reason: 1}
    assert result.batch.trajectories == ("b",)


def test_a_step_that_stands_in_two_rows_is_trained_once():
    twice = [row([5, 6], [-1, 0], version=3), row([5, 6, 7], [-1, 0, 1], version=3)]
    result = built(item(1.0, "++", id="a", group="g", rows=twice), item(0.0, id="b", group="g", rows=[GOOD]))
    assert result.dropped == {"step_twice": 1}
    assert result.batch.trajectory.tolist() == [0, 1]


@given(
    ids=st.binary(max_size=24),
    steps=st.binary(max_size=12),
    logprobs=st.binary(max_size=24),
    versions=st.lists(st.integers(-2, 5), max_size=6),
    hint=st.tuples(st.integers(-3, 9), st.integers(-3, 9)),
    temperature=st.floats(),
)
def test_whatever_stands_in_a_row_the_batch_can_be_computed_with(ids, steps, logprobs, versions, hint, temperature):
    odd = TokenRow(
        ids=ids, step=steps, logprobs=logprobs, versions=pack_array(versions, "<i4"), hint=hint, temperature=temperature
    )
    result = built(*pair(odd))
    result.batch.check()
    assert "b" in result.batch.trajectories
    assert sum(result.dropped.values()) + len(result.batch.trajectories) == 2


def test_stale_tokens_are_masked_one_by_one():
    mixed = row([5, 6, 7], [-1, 0, 1], versions=[-1, 0, 3])
    result = built(*pair(mixed))
    assert result.batch.mask.tolist()[:3] == [0, 0, 1]
    assert result.statistics["stale_tokens"] == 1


def test_guided_rows_must_be_fresher():
    guided = row([5, 9, 6], [-1, -1, 0], version=1, hint=(1, 2))
    assert built(*pair(guided, experience_ids=("lesson",))).dropped == {"stale": 1}


@given(chain=st.sets(st.integers(0, 40), min_size=1, max_size=20).map(sorted), data=st.data())
def test_ages_are_places_in_the_chain(chain, data):
    newest = data.draw(st.integers(chain[-1], 45))
    versions = data.draw(st.lists(st.integers(0, newest), min_size=1, max_size=8))
    limits = msgspec.structs.replace(LIMITS, chain=tuple(chain), newest=newest, max_staleness=99)
    mixed = row([5, *[6] * len(versions)], [-1, *[0] * len(versions)], versions=[-1, *versions])
    ended = row([5, 6], [-1, 0], version=chain[-1])
    items = [item(1.0, id="a", group="g", rows=[mixed]), item(0.0, id="b", group="g", rows=[ended])]
    places = {version: place for place, version in enumerate(reversed(chain))}
    expected = np.bincount([0, *[min(places[v], OLDEST + 1) for v in versions if v in places]], minlength=OLDEST + 2)
    assert built(*items, limits=limits).ages.tolist() == expected.tolist()


def test_a_trajectory_of_which_no_row_is_kept_has_the_reason_of_most_rows():
    old, hot = row([5, 6], [-1, 0], version=0), row([5, 6], [-1, 0], version=3, temperature=0.0)
    items = [
        item(1.0, id="a", group="g", rows=[hot, old, old]),
        item(0.0, id="b", group="g", rows=[old, GOOD]),
        item(0.0, id="c", group="g"),
    ]
    result = built(*items)
    assert result.reasons == {"a": "stale", "c": "empty"}
    assert result.dropped == {"temperature": 1, "stale": 3, "empty": 1}
    assert built(items[0], items[2]).reasons == {"a": "stale", "c": "empty"}, "without a batch as well"


def test_a_file_comes_back_as_it_went(tmp_path):
    batch = built(*pair(GOOD)).batch
    batch.save(tmp_path / "b.safetensors")
    again = TrajectoryBatch.load(tmp_path / "b.safetensors")
    for field in batch.__struct_fields__:
        assert np.array_equal(getattr(again, field), getattr(batch, field)), field
    assert [path.name for path in tmp_path.iterdir()] == ["b.safetensors"]


def test_a_file_of_another_schema_or_a_truncated_one_is_refused(tmp_path):
    path = tmp_path / "b.safetensors"
    save_file({"ids": np.zeros(1, np.int32)}, path, metadata={"schema": "1"})
    with pytest.raises(BatchFileInvalid, match="schema '1'"):
        TrajectoryBatch.load(path)
    built(*pair(GOOD)).batch.save(path)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(BatchFileInvalid):
        TrajectoryBatch.load(path)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("advantages", np.array([0, 0, np.nan, 1, 0, 0, 1, 1], np.float32), "advantages"),
        ("ids", np.array([1, 2, 3], np.int32), "ids"),
        ("temperature", np.array([1, 0], np.float32), "temperature"),
        ("mask", np.ones(8, np.uint8), "mask"),
        ("lengths", np.array([7, 1], np.int64), "lengths"),
        ("trajectory", np.array([0, 2], np.int32), "trajectory"),
        ("guided", np.array([0, 2], np.uint8), "guided"),
        ("clip_high", np.full(8, -1.0, np.float32), "clip_high"),
        ("behaviour", np.ones(8, np.float32), "behaviour"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, field, value, named):
    batch = msgspec.structs.replace(built(*pair(GOOD)).batch, **{field: value})
    batch.save(tmp_path / "b.safetensors")
    with pytest.raises(BatchFileInvalid, match=named):
        TrajectoryBatch.load(tmp_path / "b.safetensors")
