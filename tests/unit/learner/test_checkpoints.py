"""Versions and the learner's memory: whole or absent, paired, resumed after a kill between any two steps."""

import contextlib
import json
import os
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from learner import cursor, versions
from learner.checkpoints import Checkpoints, Standing
from learner.cursor import REPLIES, Reply
from learner.errors import CheckpointInvalid, StateEmpty
from learner.memory import Recovery
from learner.versions import Pins, Versions
from tests.support.keys import key_pair


class Killed(BaseException):
    """Stands for kill -9: nobody catches it."""


def weights(value):
    def write(directory: Path) -> tuple[()]:
        save_file({"w": np.full((2, 3), value, np.float32)}, directory / "model.safetensors")
        return ()

    return write


def optimizer(value):
    def write(directory: Path) -> tuple[()]:
        save_file({"m": np.full(4, value, np.float32)}, directory / "optimizer.safetensors")
        return ()

    return write


@pytest.fixture
def base(tmp_path):
    """A warm start's directory."""
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


def memory(checkpoints):
    """Directory of the optimizer that goes with the head, None if it starts afresh."""
    return checkpoints.recovery(checkpoints.cursor.head).state


def step(checkpoints, value, record=None):
    return checkpoints.commit(
        record or f"order{value}",
        save=weights(value),
        save_state=optimizer(value),
        metrics={"loss": 0.5},
        now=2.0,
    )


def test_a_warm_start_becomes_version_0(state, base):
    checkpoints = opened(state, base)
    directory = state / "versions" / "v000000"
    assert {path.name for path in directory.iterdir()} == {
        "config.json", "manifest.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    manifest = json.loads((directory / "manifest.json").read_text())
    assert (manifest["version"], manifest["parent"]) == (0, -1)
    assert manifest["tensors"] == {"w": ["F32", [2, 3]]}
    assert checkpoints.cursor.chain == (0,)
    assert checkpoints.recovery(0) == Recovery(version=0), "nothing is lost"


def test_nothing_to_begin_with_is_said(state):
    with pytest.raises(StateEmpty):
        opened(state)


def test_a_warm_start_without_weights_is_refused(state, base):
    (base / "model.safetensors").unlink()
    with pytest.raises(CheckpointInvalid, match=r"model\.safetensors"):
        opened(state, base)


def test_a_sharded_warm_start_keeps_its_shards(state, base):
    (base / "model.safetensors").rename(base / "model-00001-of-00002.safetensors")
    save_file({"v": np.zeros(2, np.float32)}, base / "model-00002-of-00002.safetensors")
    (base / "model.safetensors.index.json").write_text("{}")
    manifest = opened(state, base).versions.read(0, verify=True)
    assert set(manifest.tensors) == {"v", "w"}


def test_a_commit_announces_what_is_on_disk(state, base):
    checkpoints = opened(state, base)
    candidate = step(checkpoints, 1, "order")
    directory = state / "versions" / "v000001"
    assert (candidate.version, candidate.parent, candidate.batch_ids) == (1, 0, ("order",))
    assert Path(candidate.path) == directory
    assert candidate.manifest == sha256((directory / "manifest.json").read_bytes()).hexdigest()
    for entry in candidate.files:
        assert sha256((directory / entry.name).read_bytes()).hexdigest() == entry.sha256
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= {entry.name for entry in candidate.files}
    assert checkpoints.versions.candidate(1) == candidate


def test_another_process_resumes_where_this_one_stopped(state, base):
    first = opened(state, base)
    step(first, 1)
    step(first, 2)
    first.done("skipped one")
    again = opened(state)
    assert again.cursor == first.cursor
    assert again.cursor.finished("order1") == 1
    assert again.cursor.finished("skipped one") == 2
    assert again.cursor.finished("unheard of") is None
    assert memory(again) == state / "learner" / "v000002"
    assert again.cursor.updates == 2


@pytest.mark.parametrize("call", ["rename", "replace", "fsync", "rmtree", "copyfile"])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 6, 9])
def test_a_kill_between_any_two_steps_leaves_the_old_or_the_new(state, base, monkeypatch, call, at):
    checkpoints = opened(state, base, keep=2)
    for value in (1, 2, 3):
        step(checkpoints, value)
    calls = 0
    original = {"rename": Path.rename, "replace": os.replace, "fsync": os.fsync, "rmtree": shutil.rmtree,
                "copyfile": shutil.copyfile}[call]  # fmt: skip

    def killed(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls > at:
            raise Killed
        return original(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path if call == "rename" else shutil if call in ("rmtree", "copyfile") else os, call, killed)
        try:
            step(checkpoints, 4)
            checkpoints.done("empty")
        except Killed:
            pass
    again = opened(state, keep=2)
    version = again.cursor.version
    assert version in (3, 4)
    assert (again.cursor.finished("order4") is not None) == (version == 4)
    again.versions.read(version, verify=True)
    assert not [path for path in (state / "versions").iterdir() if path.name.startswith(".")]
    # The order comes again, and the world is as if nothing had happened.
    if version == 3:
        assert step(again, 4).version == 4
    assert opened(state).cursor.chain == (0, 1, 2, 3, 4)


def test_a_full_disk_leaves_the_old_version_and_no_debris(state, base):
    checkpoints = opened(state, base)

    def full(directory):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="space"):
        checkpoints.commit("o", save=full, save_state=optimizer(1), metrics={}, now=0.0)
    assert sorted(path.name for path in (state / "versions").iterdir()) == ["v000000"]
    assert checkpoints.cursor.version == 0
    assert step(checkpoints, 1).version == 1


def test_what_the_writer_hashed_is_not_read_back_and_a_flipped_bit_is_found(state, base, monkeypatch):
    checkpoints = opened(state, base)
    read = list[str]()
    original = versions.digest

    def counted(path):
        read.append(path.name)
        return original(path)

    def hashed(directory):
        weights(7)(directory)
        return [original(directory / "model.safetensors")]

    with monkeypatch.context() as patch:
        patch.setattr(versions, "digest", counted)
        checkpoints.commit("o", save=hashed, save_state=optimizer(1), metrics={}, now=2.0)
    assert "config.json" in read
    assert "model.safetensors" not in read
    checkpoints.versions.read(1, verify=True)
    path = checkpoints.versions.path(1) / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointInvalid, match="differs from the manifest"):
        checkpoints.versions.read(1, verify=True)


def test_a_damaged_newest_version_is_passed_over_and_its_number_not_used_again(state, base):
    step(opened(state, base), 1)
    (state / "versions" / "v000001" / "model.safetensors").write_bytes(b"half")
    again = opened(state)
    assert again.cursor.version == 0
    assert step(again, 2).version == 2
    assert again.cursor.chain == (0, 2)


def test_a_damaged_optimizer_costs_no_weights(state, base):
    step(opened(state, base), 1)
    (state / "learner" / "v000001" / "optimizer.safetensors").write_bytes(b"half")
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


def test_a_manifest_that_was_changed_and_an_unsigned_one_are_refused(state, base, tmp_path):
    key, trusted = key_pair(tmp_path / "keys")
    checkpoints = opened(state, base, key=key, trusted=trusted)
    step(checkpoints, 1)
    step(checkpoints, 2)
    manifest = state / "versions" / "v000002" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"parent": 1', b'"parent": 0'))
    (state / "versions" / "v000001" / "manifest.sig").unlink()
    versions = Versions(state / "versions", trusted=trusted)
    with pytest.raises(CheckpointInvalid, match="somebody changed the manifest"):
        versions.read(2)
    with pytest.raises(CheckpointInvalid, match=r"not signed; .*evolved provenance sign"):
        versions.read(1)


def test_versions_are_signed_again_without_a_change_to_their_manifest(state, base, tmp_path):
    step(opened(state, base), 1)
    key, trusted = key_pair(tmp_path / "keys")
    versions = Versions(state / "versions", key=key, trusted=trusted)
    before = versions.path(1).joinpath("manifest.json").read_bytes()
    versions.sign(1)
    assert versions.read(1, verify=True).parent == 0
    assert versions.path(1).joinpath("manifest.json").read_bytes() == before


def test_a_version_whose_files_were_changed_is_not_signed(state, base, tmp_path):
    step(opened(state, base), 1)
    versions = Versions(state / "versions", key=key_pair(tmp_path / "keys")[0])
    (versions.path(1) / "model.safetensors").write_bytes(b"other")
    with pytest.raises(CheckpointInvalid, match="differs from the manifest"):
        versions.sign(1)


def test_a_figure_that_is_not_finite_costs_no_version(state, base):
    checkpoints = opened(state, base)
    step(checkpoints, 1)
    path = checkpoints.versions.write(
        9, 1, lambda aside: (shutil.copyfile(base / "model.safetensors", aside / "model.safetensors"), ())[1],
        rest=base, batch_ids=(), metrics={"loss": float("nan"), "kl": 0.25}, created=1.0,
    )  # fmt: skip
    assert path.version == 9
    assert checkpoints.versions.candidate(9).metrics == {"kl": 0.25}


def test_old_versions_go_but_not_the_first_nor_pinned_ones(state, base):
    checkpoints = opened(state, base, keep=2)
    (state / "versions" / "pinned").write_text("v000002\n3\n")
    for value in range(1, 7):
        step(checkpoints, value)
    assert checkpoints.versions.numbers() == [0, 2, 3, 5, 6]
    assert sorted(path.name for path in (state / "learner").iterdir()) == ["v000005", "v000006"]


def test_pins_that_cannot_be_read_protect_everything(state, base):
    checkpoints = opened(state, base, keep=2)
    (state / "versions" / "pinned").write_text("three?")
    for value in range(1, 5):
        step(checkpoints, value)
    assert checkpoints.versions.numbers() == [0, 1, 2, 3, 4]


def test_only_so_many_orders_are_remembered(state, base, monkeypatch):
    monkeypatch.setattr(cursor, "REMEMBERED", 3)
    checkpoints = opened(state, base)
    for n in range(5):
        checkpoints.done(f"o{n}")
    assert [record for record, _ in checkpoints.cursor.done] == ["o2", "o3", "o4"]


def back(checkpoints, target, record="back", created=3.0):
    """Go back as the updater does."""
    checkpoints.versions.read(target, verify=True)
    kept = checkpoints.recovery(target).state is not None
    reply = Reply(answer="went_back", created=created, metrics={"moments_kept": float(kept)})
    checkpoints.go_back(record, target, reply)
    return checkpoints.answer(record)


def test_going_back_cuts_the_chain_and_writes_no_version(state, base):
    checkpoints = opened(state, base)
    for value in (1, 2, 3):
        step(checkpoints, value)
    answer = back(checkpoints, 1)
    assert (answer.answer, answer.version, answer.parent, answer.batch_ids) == ("went_back", 1, 0, ())
    assert answer.manifest == checkpoints.versions.candidate(1).manifest
    assert answer.created == 3.0
    assert checkpoints.versions.numbers() == [0, 1, 2, 3]
    assert (checkpoints.cursor.version, checkpoints.cursor.head, checkpoints.cursor.chain) == (3, 1, (0, 1))
    assert opened(state).cursor == checkpoints.cursor
    assert opened(state).answer("back") == answer


def test_the_next_version_is_a_child_of_where_it_went_back_to(state, base):
    checkpoints = opened(state, base)
    for value in (1, 2, 3):
        step(checkpoints, value)
    back(checkpoints, 1)
    (state / "versions" / "v000001" / "config.json").write_text("of v1")
    candidate = step(checkpoints, 4)
    assert (candidate.version, candidate.parent) == (4, 1)
    assert (state / "versions" / "v000004" / "config.json").read_text() == "of v1", "configuration comes from there"
    assert opened(state).cursor.chain == (0, 1, 4)


def test_what_trained_nothing_is_noted_after_going_back_too(state, base):
    checkpoints = opened(state, base)
    for value in (1, 2):
        step(checkpoints, value)
    back(checkpoints, 0)
    checkpoints.done("empty", Reply(answer="skipped", no_gradient={"t": "stale"}))
    again = opened(state)
    assert again.cursor.finished("empty") == 0
    answer = again.answer("empty")
    assert (answer.version, answer.batch_ids, answer.no_gradient) == (0, ("empty",), {"t": "stale"})
    assert (answer.answer, answer.created, answer.metrics) == ("skipped", 1.0, {})


def test_a_version_of_another_branch_brings_its_own_line(state, base):
    checkpoints = opened(state, base)
    for value in (1, 2):
        step(checkpoints, value)
    back(checkpoints, 0, "b1")
    step(checkpoints, 3)
    back(checkpoints, 2, "b2")
    assert checkpoints.cursor.chain == (0, 1, 2)
    back(checkpoints, 3, "b3")
    assert checkpoints.cursor.chain == (0, 3)


@pytest.mark.parametrize("call", ["replace", "fsync", "open"])
@pytest.mark.parametrize("at", [0, 1])
def test_a_kill_while_going_back_leaves_it_done_or_not_begun(state, base, monkeypatch, call, at):
    checkpoints = opened(state, base)
    for value in (1, 2, 3):
        step(checkpoints, value)
    original, calls = getattr(os, call), 0

    def killed(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls > at:
            raise Killed
        return original(*args, **kwargs)

    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(os, call, killed)
        back(checkpoints, 1)
    again = opened(state)
    gone = again.cursor.finished("back") is not None
    assert again.cursor.chain == ((0, 1) if gone else (0, 1, 2, 3))
    if not gone:
        back(again, 1)
    assert step(again, 4).parent == 1
    assert opened(state).cursor.chain == (0, 1, 4)


def test_a_damaged_head_is_left_for_the_nearest_sound_ancestor(state, base):
    checkpoints = opened(state, base)
    for value in (1, 2, 3, 4):
        step(checkpoints, value)
    back(checkpoints, 3)
    for version in (2, 3):
        (state / "versions" / f"v00000{version}" / "model.safetensors").write_bytes(b"half")
    again = opened(state)
    assert again.cursor.chain == (0, 1)
    assert again.cursor.finished("back") == 3
    found = Checkpoints(state).look()
    assert (found.cursor.head, list(found.damaged)) == (1, [3, 2])
    assert step(again, 5).parent == 1


def test_a_damaged_newest_version_is_no_loss_after_going_back(state, base):
    checkpoints = opened(state, base)
    for value in (1, 2):
        step(checkpoints, value)
    back(checkpoints, 1)
    (state / "versions" / "v000002" / "model.safetensors").write_bytes(b"half")
    (state / "learner" / "v000002" / "optimizer.safetensors").write_bytes(b"half")
    again = opened(state)
    assert again.cursor == checkpoints.cursor
    assert memory(again) == state / "learner" / "v000001"
    assert Checkpoints(state).look().damaged == {}


def test_moments_are_kept_of_the_newest_two_the_head_and_what_serves(state, base):
    checkpoints = opened(state, base, keep=8)
    (state / "versions" / "pinned").write_text("1 serving\n2\n")
    for value in range(1, 7):
        step(checkpoints, value)

    def memories():
        return sorted(int(path.name[1:]) for path in (state / "learner").iterdir())

    assert memories() == [1, 5, 6]
    assert back(checkpoints, 1, "b1").metrics == {"moments_kept": 1.0}
    assert memory(checkpoints) == memory(opened(state)) == state / "learner" / "v000001"
    assert back(checkpoints, 2, "b2").metrics == {"moments_kept": 0.0}
    assert memory(checkpoints) is memory(opened(state)) is None
    step(checkpoints, 7)
    assert memory(checkpoints) == state / "learner" / "v000007"
    assert memories() == [1, 6, 7]


def test_damaged_moments_do_not_spoil_the_version_to_go_back_to(state, base):
    checkpoints = opened(state, base)
    for value in (1, 2):
        step(checkpoints, value)
    (state / "learner" / "v000001" / "optimizer.safetensors").write_bytes(b"half")
    assert back(checkpoints, 1).metrics == {"moments_kept": 0.0}
    assert memory(opened(state)) is None


def test_neither_where_it_stands_nor_the_parent_is_ever_deleted(state, base):
    checkpoints = opened(state, base, keep=2)
    (state / "versions" / "pinned").write_text("1\n")
    for value in range(1, 6):
        step(checkpoints, value)
    (state / "versions" / "pinned").unlink()
    back(checkpoints, 1)
    step(checkpoints, 6)
    assert checkpoints.versions.numbers() == [0, 1, 5, 6]
    step(checkpoints, 7)
    assert checkpoints.versions.numbers() == [0, 6, 7]


def test_only_the_last_answers_are_remembered_word_for_word(state, base):
    checkpoints = opened(state, base)
    for n in range(REPLIES + 1):
        checkpoints.done(f"o{n}", Reply(answer="failed", no_gradient={"t": "failed"}))
    assert checkpoints.answer("o1").no_gradient == {"t": "failed"}
    forgotten = checkpoints.answer("o0")
    assert (forgotten.answer, forgotten.batch_ids, forgotten.no_gradient) == ("skipped", ("o0",), {})


def test_a_version_tells_again_what_it_learned_nothing_from(state, base):
    checkpoints = opened(state, base)
    missed = {"t1": "stale", "t2": "equal_outcomes"}
    candidate = checkpoints.commit(
        "o", save=weights(1), save_state=optimizer(1), metrics={}, now=2.0, no_gradient=missed
    )
    assert candidate.no_gradient == missed
    assert opened(state).answer("o") == candidate


def test_pins_say_what_is_kept_and_what_serves(state, base):
    versions = opened(state, base).versions
    assert versions.pins() == Pins()
    (state / "versions" / "pinned").write_text("3\nv000004 serving\n\n")
    assert versions.pins() == Pins(frozenset({3, 4}), frozenset({4}))
    for text in ("three", "3 4", "3 served"):
        (state / "versions" / "pinned").write_text(text)
        assert versions.pins() is None


def test_a_look_tells_where_a_learner_would_stand_and_changes_nothing(state, base):
    checkpoints = opened(state, base)
    step(checkpoints, 1)
    step(checkpoints, 2)
    (state / "versions" / ".v000003.9.part").mkdir()
    (state / "learner" / "v000003").mkdir()  # killed between the two renames
    before = sorted(path.relative_to(state) for path in state.rglob("*"))
    found = Checkpoints(state).look()
    assert (found.versions, found.damaged) == ((0, 1, 2), {})
    assert found.debris == (".v000003.9.part", "v000003")
    assert found.cursor == checkpoints.cursor
    assert sorted(path.relative_to(state) for path in state.rglob("*")) == before


@pytest.mark.parametrize("where", ["versions/v000002/model.safetensors", "learner/v000002/cursor.json"])
def test_a_look_names_what_is_damaged_and_what_is_left(state, base, where):
    checkpoints = opened(state, base)
    step(checkpoints, 1)
    step(checkpoints, 2)
    (state / where).write_bytes(b"x")
    found = Checkpoints(state).look()
    assert list(found.damaged) == [2]
    assert found.cursor.version == 1


def test_a_look_at_nothing_finds_nothing(state):
    assert Checkpoints(state).look() == Standing(versions=(), damaged={}, debris=(), cursor=None)


def shards(value):
    def write(directory: Path) -> tuple[()]:
        for rank in range(2):
            save_file(
                {f"m{rank}": np.full(4, value, np.float32)}, directory / f"optimizer-{rank:05d}-of-00002.safetensors"
            )
        return ()

    return write


@pytest.mark.parametrize("how", ["altered", "missing"])
def test_an_optimizer_in_shards_is_checked_whole(state, base, how):
    checkpoints = opened(state, base)
    checkpoints.commit("o1", save=weights(1), save_state=shards(1), metrics={}, now=2.0)
    assert memory(opened(state)) == state / "learner" / "v000001"
    second = state / "learner" / "v000001" / "optimizer-00001-of-00002.safetensors"
    second.unlink() if how == "missing" else second.write_bytes(b"x")
    assert opened(state).recovery(1).broken == "learner/v000001: the optimizer's digest differs"
