"""One order from its file to the next version, with the real trainer on a tiny model."""

from hashlib import sha256

import msgspec
import pytest

pytest.importorskip("torch")

from actors.messages import BatchOrder, Directive, encode_batch
from learner.checkpoints import Checkpoints
from learner.errors import OrderFileMissing, OrderUnusable
from learner.service import native_trainer
from learner.settings import LearnerSettings
from learner.trainers.files import load_tensors
from learner.update import Updater
from tests.unit.learner.maker import item, row

pytestmark = pytest.mark.torch


def group(version=0, name="g"):
    """A success and a failure on the same prompt."""
    good, bad = row([5, 6, 7, 8], [-1, -1, 0, 1], version=version), row([5, 6, 9, 3], [-1, -1, 0, 1], version=version)
    return [
        item(1.0, "++", id=f"{name}1", group=name, rows=[good]),
        item(0.0, "-?", id=f"{name}2", group=name, rows=[bad]),
    ]


class Bench:
    """A learner's state directory and what a test does with it."""

    def __init__(self, directory, warm_start, **changes):
        self.directory = directory
        base = LearnerSettings(
            warm_start=str(warm_start), device="cpu", threads=1, lr=1e-3, kl_coef=0.0, mini_batches=1, keep_versions=5
        )
        self.settings = msgspec.structs.replace(base, **changes)
        self.updater = self.start()

    def start(self):
        """A new process' updater."""
        self.checkpoints = Checkpoints(self.directory / "state", keep=self.settings.keep_versions)
        updater = Updater(
            self.settings,
            self.checkpoints,
            lambda weights, reference: native_trainer(self.settings, weights, reference),
            clock=lambda: 100.0,
        )
        updater.open()
        self.updater = updater
        return updater

    def order(self, id, items, **changes):
        path = self.directory / f"{id}.batch"
        data = encode_batch(items)
        path.write_bytes(data)
        order = BatchOrder(
            id=id,
            path=str(path),
            sha256=sha256(data).hexdigest(),
            size=len(data),
            trajectories=tuple(i.attributed.id for i in items),
        )
        return msgspec.structs.replace(order, **changes)

    def train(self, id, items, **changes):
        return self.updater.apply(self.order(id, items, **changes))

    def weights(self, version):
        return load_tensors(self.checkpoints.versions.path(version) / "model.safetensors")


@pytest.fixture
def bench(tmp_path, warm_start):
    return Bench(tmp_path, warm_start)


def full_disk(*args, **kwargs):
    raise OSError(28, "full")


def same(one, other):
    return all(bool((one[name] == other[name]).all()) for name in one)


def back(id="d", **details):
    return Directive(id=id, kind="rollback", reason="", origin="test", details=details)


def test_an_order_becomes_the_next_version(bench):
    outcome = bench.train("o1", group())
    assert outcome.result == "trained"
    assert (outcome.candidate.version, outcome.candidate.parent) == (1, 0)
    assert outcome.candidate.batch_ids == ("o1",)
    assert outcome.candidate.created == 100.0
    assert outcome.metrics["rows"] == 2
    assert outcome.metrics["steps"] == 1
    assert not same(bench.weights(0), bench.weights(1))


def test_an_order_that_comes_again_trains_nothing(bench):
    first = bench.train("o1", group())
    again = bench.train("o1", group())
    assert again.result == "repeated"
    assert again.candidate == first.candidate
    assert bench.checkpoints.cursor.version == 1


def test_it_comes_again_after_a_kill_and_is_answered_from_disk(bench):
    first = bench.train("o1", group())
    bench.start()
    assert bench.train("o1", group()).candidate == first.candidate


def test_a_resumed_run_gives_the_same_weights_as_an_undisturbed_one(bench, tmp_path, warm_start):
    (tmp_path / "other").mkdir()
    other = Bench(tmp_path / "other", warm_start)
    for n in range(3):
        bench.train(f"o{n}", group(version=n))
        other.train(f"o{n}", group(version=n))
        other.start()
    assert same(bench.weights(3), other.weights(3))


def test_an_order_without_anything_to_learn_makes_no_version_but_is_answered(bench):
    items = [item(1.0, id="a", group="g"), item(1.0, id="b", group="g")]
    outcome = bench.train("o1", items)
    assert outcome.result == "skipped"
    assert outcome.dropped == {"equal_outcomes": 2}
    assert (outcome.candidate.version, outcome.candidate.batch_ids) == (0, ("o1",))
    assert outcome.candidate.metrics == {"skipped": 1.0}
    assert outcome.candidate.id != bench.checkpoints.versions.candidate(0).id
    bench.start()
    again = bench.train("o1", items)
    assert (again.result, again.candidate) == ("repeated", outcome.candidate)


def test_a_skipped_order_still_moves_the_running_baseline(bench):
    bench.train("o1", [item(1.0, id="a", cluster="c")])
    bench.start()
    assert bench.checkpoints.cursor.running["c"].mean == 1.0


def test_a_drift_makes_it_forget_the_baselines_once(bench):
    bench.train("o1", [item(1.0, id="a", cluster="c")])
    drift = Directive(id="d", kind="drift", reason="", origin="test")
    bench.updater.forget_baselines(drift)
    assert bench.checkpoints.cursor.running == {}
    bench.train("o2", [item(0.0, id="b", cluster="c")])
    bench.updater.forget_baselines(drift)
    bench.start()
    assert bench.checkpoints.cursor.running["c"].mean == 0.0


def test_what_is_too_old_is_dropped_and_counted(bench):
    for n in range(5):
        bench.train(f"o{n}", group(version=n))
    outcome = bench.train("late", group(version=0))
    assert outcome.result == "skipped"
    assert outcome.dropped == {"stale": 2}


@pytest.mark.parametrize(("field", "value"), [("size", 3), ("sha256", "0" * 64)])
def test_a_file_that_is_not_what_the_order_says_is_refused(bench, field, value):
    with pytest.raises(OrderUnusable, match="the order says"):
        bench.train("o1", group(), **{field: value})
    assert bench.train("o2", group()).candidate.version == 1


def test_a_file_that_is_no_batch_is_refused(bench, tmp_path):
    data = b"no msgpack"
    (tmp_path / "x").write_bytes(data)
    order = BatchOrder(id="x", path=str(tmp_path / "x"), sha256=sha256(data).hexdigest(), size=10, trajectories=())
    with pytest.raises(OrderUnusable, match="batch file"):
        bench.updater.apply(order)


def test_a_missing_file_is_told_apart(bench):
    with pytest.raises(OrderFileMissing):
        bench.train("o1", group(), path="/nowhere/at/all")


def test_an_order_given_up_is_done(bench):
    candidate = bench.updater.give_up("o1")
    assert candidate.metrics == {"failed": 1.0}
    assert bench.train("o1", group()).result == "repeated"


def test_a_full_disk_puts_the_trainer_back(bench, monkeypatch, tmp_path_factory, warm_start):
    with monkeypatch.context() as patch:
        patch.setattr(bench.checkpoints.versions, "write", full_disk)
        with pytest.raises(OSError, match="full"):
            bench.train("o1", group())
    assert bench.train("o1", group()).candidate.version == 1
    # Trained once, not twice: the update that could not be written is gone from memory too.
    undisturbed = Bench(tmp_path_factory.mktemp("undisturbed"), warm_start)
    undisturbed.train("o1", group())
    assert same(bench.weights(1), undisturbed.weights(1))


def test_an_update_that_was_undone_makes_no_version(bench, tmp_path, warm_start):
    wild = Bench(tmp_path, warm_start, lr=50.0, kl_limit=1e-6)
    outcome = wild.train("o1", group())
    assert outcome.result == "skipped"
    assert outcome.metrics["steps_undone"] == 1


def test_rolling_back_makes_the_old_weights_the_newest(bench):
    for n in range(3):
        bench.train(f"o{n}", group(version=n))
    outcome = bench.updater.roll_back(back(version="2", to="1"))
    assert outcome.result == "rolled_back"
    assert (outcome.candidate.version, outcome.candidate.parent) == (4, 1)
    assert same(bench.weights(4), bench.weights(1))
    assert bench.checkpoints.cursor.chain == (0, 1, 4)
    bench.start()
    assert bench.train("next", group(version=1)).candidate.parent == 4


def test_without_a_target_it_goes_to_the_parent(bench):
    for n in range(2):
        bench.train(f"o{n}", group(version=n))
    assert bench.updater.roll_back(back(version="2")).candidate.parent == 1


def test_a_rollback_that_comes_again_is_done_once(bench):
    bench.train("o1", group())
    first = bench.updater.roll_back(back(version="1", to="0"))
    assert bench.updater.roll_back(back(version="1", to="0")).candidate == first.candidate


@pytest.mark.parametrize("details", [{}, {"to": "77"}, {"version": "9", "to": "0"}, {"version": "0"}])
def test_a_rollback_to_nowhere_changes_nothing(bench, details):
    bench.train("o1", group())
    assert bench.updater.roll_back(back(**details)) is None
    assert bench.checkpoints.cursor.version == 1
