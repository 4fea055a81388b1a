"""One order from its file to the next version, with the real trainer on a tiny model."""

from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import pytest
import structlog

pytest.importorskip("torch")

import torch

from actors.messages import Directive, derived_id
from actors.messages.manifest import SPOT_CHECK, SpotCheck
from learner.checkpoints import Checkpoints
from learner.errors import OrderUnusable
from learner.memory import STATE_EVERY
from learner.service import open_trainer
from learner.settings import LearnerSettings
from learner.trainers.files import load_tensors
from learner.trainers.rewarm import STEPS
from learner.update import Updater
from tests.unit.learner.maker import group, item, order, row

pytestmark = pytest.mark.torch


class Bench:
    def __init__(self, directory, warm_start, state_every=STATE_EVERY, **changes):
        self.directory, self.state_every = directory, state_every
        base = LearnerSettings(
            warm_start=str(warm_start), device="cpu", lr=1e-3, kl_coef=0.0, mini_batches=1, keep_versions=5
        )
        self.settings = msgspec.structs.replace(base, **changes)
        self.now = 100.0
        self.start()

    def start(self):
        """A new process' updater."""
        self.checkpoints = Checkpoints(
            self.directory / "state", keep=self.settings.keep_versions, state_every=self.state_every
        )
        make = partial(open_trainer, self.settings)
        self.updater = Updater(self.settings, self.checkpoints, make, clock=lambda: self.now)
        self.updater.open()

    def train(self, id, items, **changes):
        return self.updater.apply(order(self.directory, id, items, **changes))

    def trained(self, updates):
        for n in range(updates):
            self.train(f"o{n}", group(version=n))

    def weights(self, version):
        return load_tensors(self.checkpoints.versions.path(version) / "model.safetensors")


@pytest.fixture
def bench(tmp_path, warm_start):
    return Bench(tmp_path, warm_start)


def same(one, other):
    return all(bool((one[name] == other[name]).all()) for name in one)


def back(id="d", kind="rollback", **details):
    return Directive(id=id, kind=kind, reason="", origin="test", details=details)


def test_what_is_said_after_a_clock_was_put_back_is_newer_all_the_same(bench):
    bench.now = 3700.0
    said = [bench.train("o1", group(name="a")).candidate.created]
    bench.now = 101.0
    said.append(bench.train("o2", group(version=1, name="b")).candidate.created)
    bench.start()
    said.append(bench.train("o3", group(version=2, name="c")).candidate.created)
    said.append(bench.updater.go_back(back(to="1")).candidate.created)
    assert said == sorted(set(said))
    bench.now = 4000.0
    assert bench.train("o4", group(version=1, name="d")).candidate.created == 4000.0


def test_an_order_becomes_the_next_version_once(bench):
    outcome = bench.train("o1", group())
    said, directory = outcome.candidate, bench.directory / "state" / "versions" / "v000001"
    assert outcome.result == "trained"
    assert (said.version, said.parent, said.batch_ids, said.created) == (1, 0, ("o1",), 100.0)
    assert (outcome.metrics["rows"], outcome.metrics["steps"]) == (2, 1)
    assert not same(bench.weights(0), bench.weights(1))
    assert said.path == str(directory)
    assert said.manifest == sha256((directory / "manifest.json").read_bytes()).hexdigest()
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= {file.name for file in said.files}
    assert all(sha256((directory / file.name).read_bytes()).hexdigest() == file.sha256 for file in said.files)
    bench.start()
    assert bench.train("o1", group()).candidate == said, "answered from disk"


def test_a_version_says_what_log_probs_an_engine_must_find(bench):
    from transformers import AutoModelForCausalLM

    version = Path(bench.train("one", group()).candidate.path)
    expected = msgspec.json.decode((version / SPOT_CHECK).read_bytes(), type=SpotCheck)
    assert SPOT_CHECK in {file.name for file in bench.checkpoints.versions.read(1, verify=True).files}
    ids = torch.tensor(expected.ids)
    assert len(set(expected.ids)) > 5
    with torch.no_grad():
        table = AutoModelForCausalLM.from_pretrained(version)(ids[None]).logits[0].log_softmax(-1)
    found = table[:-1].gather(1, ids[1:, None])[:, 0]
    assert expected.log_probs == pytest.approx(found.tolist(), abs=2e-5)


def test_an_order_without_anything_to_learn_makes_no_version_but_is_answered(bench):
    items = [item(1.0, id="a", group="g"), item(1.0, id="b", group="g")]
    outcome = bench.train("o1", items)
    assert outcome.result == "skipped"
    assert outcome.dropped == {"equal_outcomes": 2}
    assert (outcome.candidate.version, outcome.candidate.batch_ids) == (0, ("o1",))
    assert (outcome.candidate.answer, outcome.candidate.metrics) == ("skipped", {})
    assert outcome.candidate.no_gradient == {"a": "equal_outcomes", "b": "equal_outcomes"}
    assert outcome.candidate.created == bench.checkpoints.versions.candidate(0).created
    assert outcome.candidate.id != bench.checkpoints.versions.candidate(0).id
    bench.start()
    again = bench.train("o1", items)
    assert (again.result, again.candidate) == ("repeated", outcome.candidate)


def test_a_file_that_is_not_what_the_order_says_or_no_batch_is_refused(bench):
    junk = b"no msgpack"
    (bench.directory / "junk").write_bytes(junk)
    no_batch = {"path": str(bench.directory / "junk"), "size": len(junk), "sha256": sha256(junk).hexdigest()}
    for said, why in (({"size": 3}, "order says"), ({"sha256": "0" * 64}, "order says"), (no_batch, "batch file")):
        with pytest.raises(OrderUnusable, match=why):
            bench.train("o1", group(), **said)
    assert bench.train("o1", group()).candidate.version == 1


def test_one_bad_member_does_not_keep_the_others_from_training(bench):
    bad = item(0.0, "-", id="bad", group="g", rows=[row([5, 6], [-1, 0], logprobs=[0.0, np.nan])])
    outcome = bench.train("o1", [*group(), bad])
    assert (outcome.result, outcome.dropped) == ("trained", {"bad_logprobs": 1})
    assert outcome.candidate.no_gradient == {"bad": "bad_logprobs"}
    bench.start()
    assert bench.train("o1", []).candidate == outcome.candidate, "the manifest remembers"
    assert all(bool(torch.isfinite(tensor).all()) for tensor in bench.weights(1).values())


@pytest.mark.parametrize("kind", ["rollback", "rebase"])
def test_going_back_takes_up_the_old_version_and_writes_none(bench, kind):
    bench.trained(3)
    outcome = bench.updater.go_back(back(kind=kind, version="2", to="1"))
    candidate, old = outcome.candidate, bench.checkpoints.versions.candidate(1)
    assert (outcome.result, candidate.answer) == ("went_back", "went_back")
    assert (candidate.version, candidate.parent, candidate.batch_ids) == (1, 0, ())
    assert (candidate.path, candidate.files, candidate.manifest) == (old.path, old.files, old.manifest)
    assert candidate.id == derived_id("candidate", 1, "d")
    assert candidate.created == 100.0
    assert bench.checkpoints.versions.numbers() == [0, 1, 2, 3]
    assert held(bench, bench.weights(1)), "the trainer has them bit for bit"
    trained = bench.train("next", group(version=1))
    assert (trained.result, trained.candidate.version, trained.candidate.parent) == ("trained", 4, 1)
    assert bench.checkpoints.cursor.chain == (0, 1, 4)


def held(bench, weights):
    """Whether the trainer's weights are these."""
    bench.updater._ready().save(bench.directory)
    return same(load_tensors(bench.directory / "model.safetensors"), weights)


def moved(bench, version, parent):
    """Largest change of a weight from `parent` to `version`, in learning rates."""
    one, other = bench.weights(version), bench.weights(parent)
    return max(float((one[name] - other[name]).abs().max()) for name in one) / bench.settings.lr


def test_a_first_update_and_one_after_going_back_to_version_0(tmp_path, warm_start):
    bench = Bench(tmp_path, warm_start, weight_decay=0.0)
    bench.train("o0", group())
    assert moved(bench, 1, 0) == pytest.approx(1, rel=0.01), "nothing was lost yet: a full learning rate"
    assert bench.updater.go_back(back(version="1")).candidate.metrics == {"moments_kept": 0.0}
    bench.train("o1", group())
    assert moved(bench, 2, 0) == pytest.approx(1 / STEPS, rel=0.01)


@pytest.mark.promise
def test_a_directive_that_comes_again_is_answered_the_same_and_done_once(bench):
    bench.train("o1", group())
    first = bench.updater.go_back(back(version="1", to="0"))
    bench.updater._clock = lambda: 200.0
    again = bench.updater.go_back(back(version="1", to="0"))
    assert (again.result, again.candidate) == ("repeated", first.candidate)
    bench.train("o2", group())
    bench.start()
    assert bench.updater.go_back(back(version="1", to="0")).candidate == first.candidate
    assert bench.checkpoints.cursor.chain == (0, 2), "what was learned since is not taken back"


def test_a_directive_to_nowhere_or_about_a_branch_that_was_left_takes_nothing_back(bench):
    bench.trained(2)
    bench.updater.go_back(back(version="2", to="0"))
    bench.train("good", group())
    nowhere = ({}, {"to": "77"}, {"version": "9", "to": "0"}, {"version": "0"}, {"to": "3"})
    left = ({"version": "1", "to": "0"}, {"version": "2", "to": "0"}, {"version": "1"})
    for kind in ("rollback", "rebase"):
        for details in (*nowhere, *left):
            assert bench.updater.go_back(back("late", kind, **details)) is None
    assert bench.checkpoints.cursor.chain == (0, 3)
    assert bench.checkpoints.cursor.finished("late") is None


def test_it_does_not_go_back_to_what_fails_its_checks(bench):
    bench.trained(2)
    (bench.checkpoints.versions.path(1) / "model.safetensors").write_bytes(b"half")
    with structlog.testing.capture_logs() as logs:
        assert bench.updater.go_back(back(version="2", to="1")) is None
    assert [(line["event"], "v000001/model.safetensors" in line["reason"]) for line in logs] == [
        ("going_back_impossible", True)
    ]
    assert bench.train("o2", group(version=2)).candidate.parent == 2


def test_an_order_from_a_branch_that_was_left_is_skipped_with_reasons(bench):
    bench.trained(2)
    bench.updater.go_back(back(version="2", to="1"))
    outcome = bench.train("late", group(version=2))
    assert (outcome.result, outcome.dropped) == ("skipped", {"stale": 2})
    assert (outcome.candidate.answer, outcome.candidate.version) == ("skipped", 1)
    assert outcome.candidate.no_gradient == {"g1": "stale", "g2": "stale"}
    assert bench.train("fresh", group(version=1)).candidate.parent == 1
