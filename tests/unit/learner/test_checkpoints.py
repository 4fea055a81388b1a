"""Versions and the learner's memory: whole or absent, paired, resumed after a kill between any two steps."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from learner.checkpoints import Checkpoints
from learner.cursor import REPLIES, Reply
from learner.errors import CheckpointInvalid, StateEmpty
from learner.memory import Recovery
from learner.versions import Versions
from tests.support.keys import key_pair


def weights(value):
    def write(directory: Path) -> tuple[()]:
        save_file({"w": np.full((2, 3), value, np.float32)}, directory / "model.safetensors")
        return ()

    return write


def optimizer(value, names=("optimizer.safetensors",)):
    def write(directory: Path) -> tuple[()]:
        for name in names:
            save_file({name: np.full(4, value, np.float32)}, directory / name)
        return ()

    return write


@pytest.fixture
def base(tmp_path):
    directory = tmp_path / "warm"
    directory.mkdir()
    weights(0.0)(directory)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (directory / name).write_text(json.dumps({"name": name}))
    (directory / "notes.txt").write_text("stays behind")
    return directory


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def opened(state, base=None, **kwargs):
    checkpoints = Checkpoints(state, **kwargs)
    checkpoints.open(base, now=1.0)
    return checkpoints


@pytest.fixture
def checkpoints(state, base):
    return opened(state, base)


def step(checkpoints, *values, save_state=None, **metrics):
    """Make a version with each of the values; what is said of the last."""
    for value in values:
        checkpoints.commit(
            f"order{value}",
            save=weights(value),
            save_state=save_state or optimizer(value),
            metrics=metrics,
            now=2.0,
        )
    return checkpoints.versions.candidate(checkpoints.cursor.head)


def test_a_warm_start_becomes_version_0(state, checkpoints):
    directory = state / "versions" / "v000000"
    assert {path.name for path in directory.iterdir()} == {
        "config.json", "manifest.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    manifest = json.loads((directory / "manifest.json").read_text())
    assert (manifest["version"], manifest["parent"]) == (0, -1)
    assert manifest["tensors"] == {"w": ["F32", [2, 3]]}
    assert checkpoints.cursor.chain == (0,)
    assert checkpoints.recovery(0) == Recovery(version=0), "nothing is lost"


def test_nothing_to_begin_with_is_said(state, base):
    with pytest.raises(StateEmpty):
        opened(state)
    (base / "model.safetensors").unlink()
    with pytest.raises(CheckpointInvalid, match=r"model\.safetensors"):
        opened(state, base)


def test_a_sharded_warm_start_keeps_its_shards(state, base):
    (base / "model.safetensors").rename(base / "model-00001-of-00002.safetensors")
    save_file({"v": np.zeros(2, np.float32)}, base / "model-00002-of-00002.safetensors")
    (base / "model.safetensors.index.json").write_text("{}")
    manifest = opened(state, base).versions.read(0, verify=True)
    assert set(manifest.tensors) == {"v", "w"}


SHARDS = ("optimizer-00000-of-00002.safetensors", "optimizer-00001-of-00002.safetensors")


@pytest.mark.parametrize("how", ["altered", "missing"])
def test_a_damaged_optimizer_costs_no_weights(state, checkpoints, how):
    step(checkpoints, 1, save_state=optimizer(1, SHARDS))
    assert opened(state).recovery(1).state == state / "learner" / "v000001"
    last = state / "learner" / "v000001" / SHARDS[-1]
    last.unlink() if how == "missing" else last.write_bytes(b"half")
    again = opened(state)
    assert again.cursor.version == 1
    assert again.recovery(1).broken == "learner/v000001: the optimizer's digest differs"
    assert again.recovery(1).afresh


def test_manifests_are_signed_and_checked(state, base, tmp_path):
    key, trusted = key_pair(tmp_path / "keys")
    step(opened(state, base, key=key, trusted=trusted), 1)
    assert opened(state, trusted=trusted).cursor.version == 1
    with pytest.raises(CheckpointInvalid, match=r"none of the keys in .*public.pem.*provenance trust"):
        opened(state, trusted=key_pair(tmp_path / "others")[1])


def test_a_manifest_or_file_that_was_changed_and_an_unsigned_one_are_refused(state, base, tmp_path):
    key, trusted = key_pair(tmp_path / "keys")
    step(opened(state, base, key=key, trusted=trusted), 1, 2)
    versions = Versions(state / "versions", key=key, trusted=trusted)
    manifest = state / "versions" / "v000002" / "manifest.json"
    before = manifest.read_bytes()
    manifest.write_bytes(before.replace(b'"parent": 1', b'"parent": 0'))
    (state / "versions" / "v000001" / "manifest.sig").unlink()
    with pytest.raises(CheckpointInvalid, match="somebody changed the manifest"):
        versions.read(2)
    with pytest.raises(CheckpointInvalid, match=r"not signed; .*evolved provenance sign"):
        versions.read(1)
    versions.sign(1)
    assert versions.read(1, verify=True).parent == 0
    manifest.write_bytes(before)
    weights = versions.path(2) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    for use in (versions.sign, lambda version: versions.read(version, verify=True)):
        with pytest.raises(CheckpointInvalid, match="differs from the manifest"):
            use(2)


def test_a_figure_that_is_not_finite_costs_no_version(checkpoints):
    assert step(checkpoints, 1, loss=float("nan"), kl=0.25).metrics == {"kl": 0.25}


EVERY = [*range(7)]


@pytest.mark.parametrize(
    ("pins", "versions", "memories"),
    [
        ("v000002\n3\n\n", [0, 2, 3, 5, 6], [5, 6]),
        ("three", EVERY, EVERY),
        ("3 4", EVERY, EVERY),
        ("3 served", EVERY, EVERY),
    ],
)
def test_old_versions_go_but_not_the_first_nor_pinned_ones_nor_any_if_the_pins_cannot_be_read(
    state, base, pins, versions, memories
):
    checkpoints = opened(state, base, keep=2)
    (state / "versions" / "pinned").write_text(pins)
    step(checkpoints, *range(1, 7))
    assert checkpoints.versions.numbers() == versions
    assert sorted(int(path.name[1:]) for path in (state / "learner").iterdir()) == memories


def back(checkpoints, target, record="back"):
    checkpoints.go_back(record, target, Reply(answer="went_back"))


def test_the_next_version_is_a_child_of_where_it_went_back_to(state, checkpoints):
    step(checkpoints, 1, 2, 3)
    back(checkpoints, 1)
    assert opened(state).cursor == checkpoints.cursor
    (state / "versions" / "v000001" / "config.json").write_text("of v1")
    candidate = step(checkpoints, 4)
    assert (candidate.version, candidate.parent) == (4, 1)
    assert (state / "versions" / "v000004" / "config.json").read_text() == "of v1", "configuration comes from there"
    assert opened(state).cursor.chain == (0, 1, 4)


def test_a_version_of_another_branch_brings_its_own_line(checkpoints):
    step(checkpoints, 1, 2)
    back(checkpoints, 0, "b1")
    step(checkpoints, 3)
    back(checkpoints, 2, "b2")
    assert checkpoints.cursor.chain == (0, 1, 2)
    back(checkpoints, 3, "b3")
    assert checkpoints.cursor.chain == (0, 3)


def test_a_damaged_head_is_left_for_the_nearest_sound_ancestor_and_no_number_is_used_again(state, checkpoints):
    step(checkpoints, 1, 2, 3, 4)
    back(checkpoints, 3)
    for version in (2, 3, 4):
        (state / "versions" / f"v00000{version}" / "model.safetensors").write_bytes(b"half")
    again = opened(state)
    assert again.cursor.chain == (0, 1)
    assert again.cursor.finished("back") == 3
    made = step(again, 5)
    assert (made.version, made.parent) == (5, 1)


def test_neither_where_it_stands_nor_the_parent_is_ever_deleted(state, base):
    checkpoints = opened(state, base, keep=2)
    (state / "versions" / "pinned").write_text("1\n")
    step(checkpoints, *range(1, 6))
    (state / "versions" / "pinned").unlink()
    back(checkpoints, 1)
    step(checkpoints, 6)
    assert checkpoints.versions.numbers() == [0, 1, 5, 6]
    step(checkpoints, 7)
    assert checkpoints.versions.numbers() == [0, 6, 7]


def test_only_the_last_answers_are_remembered_word_for_word(checkpoints):
    for n in range(REPLIES + 1):
        checkpoints.done(f"o{n}", Reply(answer="failed", no_gradient={"t": "failed"}))
    assert checkpoints.answer("o1").no_gradient == {"t": "failed"}
    forgotten = checkpoints.answer("o0")
    assert (forgotten.answer, forgotten.batch_ids, forgotten.no_gradient) == ("skipped", ("o0",), {})


def test_a_look_tells_where_a_learner_would_stand_and_changes_nothing(state, base):
    assert Checkpoints(state).look() == (None, [])
    checkpoints = opened(state, base)
    step(checkpoints, 1, 2)
    (state / "versions" / ".v000003.9.part").mkdir()
    (state / "learner" / "v000003").mkdir()  # killed between the two renames
    before = sorted(path.relative_to(state) for path in state.rglob("*"))
    assert Checkpoints(state).look() == (checkpoints.cursor, [0, 1, 2])
    assert sorted(path.relative_to(state) for path in state.rglob("*")) == before
    (state / "learner" / "v000002" / "cursor.json").write_bytes(b"x")
    assert opened(state).cursor.version == 1
    assert not list((state / "versions").glob(".*"))
