"""Versions without a full state: what they are found again from, and that nothing learned is lost without it."""

import errno
import os
import shutil
from pathlib import Path

import msgspec
import pytest
import structlog

torch = pytest.importorskip("torch")

from learner.errors import BatchRefused  # noqa: E402
from learner.memory import Memory  # noqa: E402
from learner.trainers.files import load_tensors, save_tensors  # noqa: E402
from learner.trainers.native import NativeTrainer  # noqa: E402
from tests.unit.learner.maker import group  # noqa: E402
from tests.unit.learner.test_update import Bench, back, held, same  # noqa: E402

pytestmark = pytest.mark.torch
EVERY = 3


@pytest.fixture
def small(tmp_path, warm_start):
    """A warm start in bf16: without masters an update of a learning rate of 1e-5 would be rounded away."""
    directory = tmp_path / "bf16"
    shutil.copytree(warm_start, directory)
    weights = {name: tensor.bfloat16() for name, tensor in load_tensors(directory / "model.safetensors").items()}
    save_tensors(weights, directory / "model.safetensors")
    return directory


def made(tmp_path, name, small, **changes):
    (tmp_path / name).mkdir()
    return Bench(tmp_path / name, small, **({"state_every": EVERY, "lr": 1e-5, "mini_batches": 2} | changes))


@pytest.fixture
def bench(tmp_path, small):
    return made(tmp_path, "one", small)


def train(bench, *numbers):
    for n in numbers:
        head = bench.checkpoints.cursor.head
        bench.train(f"o{n}", [*group(version=head, name=f"a{n}"), *group(version=head, name=f"b{n}")])


def states(bench):
    """Versions with a full state, and all whose memory is kept."""
    kept = {int(path.name[1:]): path for path in (bench.directory / "state" / "learner").glob("v*")}
    return sorted(v for v, path in kept.items() if (path / "optimizer.safetensors").exists()), sorted(kept)


def everything(bench):
    """The trainer's state, to the bit: masters, moments, steps."""
    bench.updater._ready().save_state(bench.directory)
    return load_tensors(bench.directory / "optimizer.safetensors")


def lines(logs, event):
    return [line for line in logs if line["event"] == event]


def test_every_nth_version_has_a_full_state_and_two_are_kept(bench):
    train(bench, *range(1, 5))
    assert states(bench) == ([3], [0, 1, 2, 3, 4])
    batches = [*(bench.directory / "state" / "learner").glob("*/batch.safetensors")]
    assert {batch.stat().st_mode & 0o077 for batch in batches} == {0}, "for our eyes alone"
    train(bench, *range(5, 9))
    assert states(bench) == ([3, 6], [3, 4, 5, 6, 7, 8])
    train(bench, 9)
    assert states(bench) == ([6, 9], [6, 7, 8, 9])


@pytest.mark.parametrize("settings", [{}, {"kl_coef": 0.01}])
def test_restarted_after_every_update_it_is_the_run_that_nobody_disturbed(tmp_path, small, settings):
    one, other = (made(tmp_path, name, small, **settings) for name in ("straight", "restarted"))
    for n in range(8):
        train(one, n)
        train(other, n)
        with structlog.testing.capture_logs() as logs:
            other.start()
        assert [line["exact"] for line in lines(logs, "replayed")] == ([True] if (n + 1) % EVERY else [])
        assert same(everything(one), everything(other)), f"masters and moments after {n + 1} updates"
    assert same(one.weights(8), other.weights(8))
    assert like(one.checkpoints.cursor) == like(other.checkpoints.cursor)


def test_going_back_to_a_version_without_a_state_keeps_its_moments(tmp_path, small, bench):
    train(bench, *range(1, 7))
    assert bench.updater.go_back(back(to="4")).candidate.metrics == {"moments_kept": 1.0}
    straight = made(tmp_path, "straight", small)
    train(straight, *range(1, 5))
    assert same(everything(bench), everything(straight))
    train(bench, 7)
    assert bench.checkpoints.cursor.made.parent == 4
    before = everything(bench)
    bench.start()
    assert same(everything(bench), before), "through two branches"
    bench.updater.go_back(back("d2", to="4"))
    assert same(everything(bench), everything(straight))


def test_what_serves_keeps_what_its_moments_are_found_from(bench):
    (bench.directory / "state" / "versions" / "pinned").write_text("5 serving\n")
    train(bench, *range(1, 12))
    assert states(bench) == ([3, 6, 9], [3, 4, 5, 6, 7, 8, 9, 10, 11])
    train(bench, 12)
    assert states(bench) == ([3, 9, 12], [3, 4, 5, 9, 10, 11, 12])
    assert bench.updater.go_back(back(to="5")).candidate.metrics == {"moments_kept": 1.0}


def test_after_going_back_without_moments_the_next_version_has_a_full_state(bench):
    (bench.directory / "state" / "versions" / "pinned").write_text("1\n")
    train(bench, *range(1, 8))
    with structlog.testing.capture_logs() as logs:
        assert bench.updater.go_back(back(to="1")).candidate.metrics == {"moments_kept": 0.0}
    assert lines(logs, "moments_not_kept")
    assert not lines(logs, "replay_impossible"), "nothing is damaged"
    train(bench, 8)
    assert states(bench)[0] == [6, 8]
    before = everything(bench)
    bench.start()
    assert same(before, everything(bench))


def test_a_damaged_state_is_found_again_from_the_one_before(bench):
    train(bench, *range(1, 8))
    before = everything(bench)
    (bench.directory / "state" / "learner" / "v000006" / "optimizer.safetensors").write_bytes(b"half")
    with structlog.testing.capture_logs() as logs:
        bench.start()
    assert [(line["since"], line["updates"], line["exact"]) for line in lines(logs, "replayed")] == [(3, 4, True)]
    assert [line["reason"] for line in lines(logs, "moments_unusable")] == [
        "learner/v000006: the optimizer's digest differs"
    ]
    assert same(before, everything(bench))


@pytest.mark.parametrize("how", ["gone", "altered"])
def test_without_a_batch_it_goes_on_from_its_weights_and_the_last_state_and_says_so(bench, how):
    train(bench, *range(1, 6))
    weights = bench.weights(5)
    batch = bench.directory / "state" / "learner" / "v000005" / "batch.safetensors"
    batch.unlink() if how == "gone" else batch.write_bytes(batch.read_bytes()[:-1] + b"x")
    with structlog.testing.capture_logs() as logs:
        bench.start()
    (said,) = lines(logs, "replay_impossible")
    assert "v000005/batch.safetensors" in said["reason"]
    assert said["goes_on"] == "its weights, the optimizer of version 3"
    assert "backup" in said["remedy"]
    assert bench.checkpoints.cursor.finished("o5") == 5, "what was done stays done"
    assert held(bench, weights), "and learned"
    state = load_tensors(bench.directory / "state" / "learner" / "v000003" / "optimizer.safetensors")
    own = everything(bench)
    assert all(bool((own[name] == state[name]).all()) for name in state if name.startswith("exp_avg"))
    bench.train("o6", group(version=5))
    assert states(bench)[0] == [3, 6], "what cannot be made again is written down"


@pytest.mark.promise
def test_a_batch_that_was_forgotten_is_not_kept_for_a_replay(bench):
    train(bench, *range(1, 6))
    memory = Memory(bench.directory / "state" / "learner")
    assert memory.forget(["o4", "unheard of"]) == 1
    assert memory.forget(["o4"]) == 0
    batches = (bench.directory / "state" / "learner").glob("*/batch.safetensors")
    assert sorted(path.parent.name for path in batches) == ["v000001", "v000002", "v000003", "v000005"]
    assert bench.checkpoints.recovery(5).version == 3


def test_settings_that_changed_since_cost_the_optimizer_and_no_weight(bench):
    train(bench, *range(1, 6))
    bench.settings = msgspec.structs.replace(bench.settings, lr=1e-2)
    with structlog.testing.capture_logs() as logs:
        bench.start()
    (said,) = lines(logs, "replay_differs")
    assert said["numbers"] > 0
    assert held(bench, bench.weights(5))
    train(bench, 6, 7)
    assert states(bench)[0] == [3, 6]


def refuse(self, batch, *, seed):
    raise BatchRefused("mostly noise", reason="noise")


def test_a_replay_that_the_trainer_refuses_is_told_and_survived(bench, monkeypatch):
    train(bench, *range(1, 6))
    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(NativeTrainer, "update", refuse)
        bench.start()
    assert "mostly noise" in lines(logs, "replay_failed")[0]["reason"]
    assert held(bench, bench.weights(5))


def like(cursor):
    """What of a cursor does not depend on how long an update took, which a batch tells of the version it is for."""
    return msgspec.structs.replace(cursor, made=msgspec.structs.replace(cursor.made, batch=""))


class Killed(BaseException):
    """Stands for kill -9: nobody catches it."""


FULL = OSError(errno.ENOSPC, "full")


def ended_after(patch, calls, act, error: BaseException):
    """Run `act` and end it with `error` when it has done `calls` steps that a disk sees; whether that was before its
    end."""
    left = calls

    def counted(original):
        def call(*args, **kwargs):
            nonlocal left
            left -= 1
            if left < 0:
                raise error
            return original(*args, **kwargs)

        return call

    steps = [(os, "fsync"), (os, "replace"), (Path, "rename"), (shutil, "copyfile")]
    if error is not FULL:
        steps.append((shutil, "rmtree"))  # a full disk lets go of what is on it
    for where, name in steps:
        patch.setattr(where, name, counted(getattr(where, name)))
    try:
        act()
    except type(error):
        return True
    return False


ENDS = pytest.mark.parametrize("error", [Killed(), FULL], ids=["killed", "full disk"])


@pytest.mark.promise
@ENDS
def test_ended_at_any_step_of_writing_it_goes_on_as_if_nothing_had_been(tmp_path, small, bench, monkeypatch, error):
    straight, struck = made(tmp_path, "straight", small), set[bool]()
    for at in range(28):
        with monkeypatch.context() as patch:
            if ended_after(patch, at, lambda at=at: train(bench, at), error):
                struck.add((at + 1) % EVERY == 0)
        if error is not FULL:
            bench.start()
        assert not [path for path in (bench.directory / "state").rglob(".*") if path.name.endswith(".part")]
        train(bench, at)
        train(straight, at)
        assert bench.checkpoints.cursor.finished(f"o{at}") == at + 1
        assert same(everything(bench), everything(straight)), f"ended at step {at}"
    assert struck == {False, True}, "while versions with a full state and without were written"
    for run in (bench, straight):
        train(run, "last")  # what a kill left undeleted goes with the next version
    assert bench.checkpoints.versions.numbers() == straight.checkpoints.versions.numbers()


@pytest.mark.promise
@ENDS
def test_ended_at_any_step_of_going_back_it_has_gone_or_has_not_begun(bench, monkeypatch, error):
    train(bench, 0, 1, 2, 3)
    weights, early = bench.weights(2), 0
    for at in range(4):
        before = bench.checkpoints.cursor.head
        with monkeypatch.context() as patch:
            ended_after(patch, at, lambda at=at: bench.updater.go_back(back(f"d{at}", "rebase", to="2")), error)
        if error is not FULL:
            bench.start()
        bench.updater._ready()  # after an error it reads its state again
        if bench.checkpoints.cursor.finished(f"d{at}") is None:
            early += 1
            assert held(bench, bench.weights(before))
        bench.updater.go_back(back(f"d{at}", "rebase", to="2"))
        assert bench.checkpoints.cursor.chain == (0, 1, 2)
        assert held(bench, weights)
        train(bench, f"after{at}")
        assert bench.checkpoints.versions.read(bench.checkpoints.cursor.head).parent == 2
    assert early


def test_an_update_that_was_refused_or_undone_makes_no_version_and_moves_nothing(bench, monkeypatch):
    train(bench, 1, 2)
    before = everything(bench)
    update = NativeTrainer.update

    def undo(self, batch, *, seed):
        report = update(self, batch, seed=seed)
        monkeypatch.setattr(NativeTrainer, "update", update)
        return msgspec.structs.replace(report, steps=0, metrics=report.metrics | {"steps_undone": 1.0})

    for substitute, reason, replays in ((refuse, "noise", 0), (undo, "no_step", 1)):
        monkeypatch.setattr(NativeTrainer, "update", substitute)
        with structlog.testing.capture_logs() as logs:
            outcome = bench.train(reason, group(version=2))
        assert (outcome.result, outcome.reason) == ("skipped", reason)
        assert (outcome.candidate.version, outcome.candidate.batch_ids) == (2, (reason,))
        assert outcome.candidate.no_gradient == {"g1": reason, "g2": reason}
        assert bench.train(reason, group(version=2)).candidate == outcome.candidate
        assert len(lines(logs, "replayed")) == replays
        assert same(before, everything(bench))
