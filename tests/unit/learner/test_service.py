"""The service on a stub bus: answers, redelivery, dead letters, outages. The trainer is a fake with one weight."""

import socket
import struct
import sys
import urllib.request
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Gauge
from safetensors.numpy import load_file, save_file
from structlog.testing import capture_logs

from actors.messages import BatchOrder, Directive, decode
from actors.system.actor import DeadLetter
from actors.system.lifecycle import Lifecycle
from actors.system.outgoing import Outgoing, outgoing
from actors.system.streams import POLICY_CANDIDATE, POLICY_DIRECTIVE, WORK_TRAIN
from learner.errors import TensorBoardUnavailable
from learner.service import _metrics_server, run
from learner.settings import LearnerSettings
from learner.tensorboard import TensorBoard
from learner.trainers import UpdateReport
from tests.support.patience import until
from tests.support.simulated_time import anyio_backend as anyio_backend
from tests.support.stub_bus import StubBus
from tests.unit.learner.maker import VOCABULARY, item, order, row

pytestmark = pytest.mark.anyio


class FakeTrainer:
    """Adds the number of trained tokens to its weight."""

    vocabulary, max_tokens = VOCABULARY, 64

    def __init__(self):
        self.weight, self.fail = 0.0, 0

    def log_probs(self, batch):
        return np.zeros(batch.tokens, np.float32)

    def update(self, batch, *, seed):
        if self.fail:
            self.fail -= 1
            raise RuntimeError("out of memory")
        self.weight += batch.tokens
        return UpdateReport(steps=1, metrics={"steps": 1.0, "tokens": float(batch.tokens)})

    def save(self, directory):
        save_file({"w": np.array([self.weight])}, directory / "model.safetensors")
        return ()

    def save_state(self, directory):
        save_file({"m": np.array([self.weight])}, directory / "optimizer.safetensors")
        return ()

    def settle(self, weights):
        return 0

    def restore(self, weights, state, *, rewarm=False):
        self.weight = float(load_file(weights / "model.safetensors")["w"][0])


class Bench:
    def __init__(self, directory: Path):
        warm = directory / "warm"
        warm.mkdir()
        save_file({"w": np.array([0.0])}, warm / "model.safetensors")
        self.directory, self.bus = directory, StubBus()
        self.settings = LearnerSettings(warm_start=str(warm))
        self.trainer = FakeTrainer()

    @asynccontextmanager
    async def running(self):
        self.registry = CollectorRegistry()
        serve = partial(
            run,
            self.settings,
            bus=self.bus,
            clock=lambda: 7.0,
            state=self.directory / "state",
            lifecycle=Lifecycle("learner"),
            registry=self.registry,
            make_trainer=lambda weights, reference: self.trainer,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            yield
            group.cancel_scope.cancel()

    def order(self, id, version=0, **changes):
        rows = [row([5, 6, 7], [-1, 0, 0], version=version)]
        items = [item(float(i), id=f"{id}{i}", group=id, rows=rows) for i in range(2)]
        return order(self.directory, id, items, **changes)

    async def send(self, *messages):
        subjects = {BatchOrder: WORK_TRAIN, Directive: POLICY_DIRECTIVE}
        await self.bus.publish([outgoing(subjects[type(m)], m) for m in messages])

    @property
    def candidates(self):
        return [decode(o.data) for o in self.bus.published if o.subject == POLICY_CANDIDATE]

    async def until(self, n):
        """Wait until `n` candidates are out in all, and what called for them is acked."""
        await until(lambda: len(self.candidates) >= n, f"{n} candidates")
        await anyio.sleep(1)
        return self.candidates

    def sample(self, name, **labels):
        return self.registry.get_sample_value(f"evolved_learner_{name}", labels)

    def count(self, result):
        return self.sample("orders_total", result=result)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


async def test_each_order_becomes_a_candidate_and_going_back_is_answered_with_the_old_version(bench):
    back = Directive(id="d", kind="rollback", reason="", origin="", details={"version": "2", "to": "1"})
    async with bench.running():
        await bench.send(bench.order("a"), bench.order("b", version=0))
        first, second = await bench.until(2)
        assert bench.sample("version") == 2
        await bench.send(Directive(id="f", kind="freeze", reason="", origin=""), back)
        went = (await bench.until(3))[-1]
    assert [(c.version, c.parent, c.batch_ids) for c in (first, second)] == [(1, 0, ("a",)), (2, 1, ("b",))]
    assert (went.answer, went.version, went.path, went.batch_ids) == ("went_back", 1, first.path, ())
    assert bench.trainer.weight == 4
    assert (await bench.bus.depth())["learner"].waiting == 0
    assert (bench.count("trained"), bench.count("went_back")) == (2, 1)
    assert (bench.sample("version"), bench.sample("tokens_total")) == (1, 8)


@pytest.mark.promise
async def test_an_order_that_was_not_acked_is_answered_again_and_not_trained_again(bench):
    order = bench.order("a")
    async with bench.running():
        await bench.send(order)
        await bench.until(1)
    # Killed between publish and ack, and the broker has forgotten the candidate's id meanwhile.
    await bench.bus.publish([Outgoing(WORK_TRAIN, "again", outgoing(WORK_TRAIN, order).data)])
    await anyio.sleep(1000)
    async with bench.running():
        first, again = await bench.until(2)
    assert first == again
    assert bench.trainer.weight == 4
    assert bench.count("repeated") == 1


@pytest.mark.parametrize(
    ("changes", "fail", "error"),
    [({"sha256": "0" * 64}, 0, "digest"), ({"path": "/nowhere/gone"}, 0, "No such file"), ({}, 3, "out of memory")],
)
async def test_an_order_that_cannot_be_trained_on_is_parked_and_the_next_one_trained(bench, changes, fail, error):
    bench.trainer.fail = fail
    async with bench.running():
        await bench.send(bench.order("bad", **changes))
        await bench.until(1)
        await bench.send(bench.order("good"))
        failed, trained = await bench.until(2)
    assert (failed.version, failed.batch_ids, failed.answer, failed.metrics) == (0, ("bad",), "failed", {})
    assert failed.no_gradient == {"bad0": "failed", "bad1": "failed"}
    assert trained.version == 1
    (dead,) = [o for o in bench.bus.published if o.subject == "dead.learner"]
    letter = msgspec.msgpack.decode(dead.data, type=DeadLetter)
    assert letter.subject == WORK_TRAIN
    assert decode(letter.data).id == "bad"
    assert error in letter.error
    assert bench.count("dead") == 1
    assert bench.sample("retries_total", cause="file_missing") == (2 if "path" in changes else None)


async def test_a_parked_order_that_is_put_back_is_trained_on_once(bench):
    bench.trainer.fail = 3
    async with bench.running():
        await bench.send(bench.order("bad"))
        (failed,) = await bench.until(1)
        for number in range(2):
            await anyio.sleep(1000)  # past the stream's window for duplicates
            again = outgoing(WORK_TRAIN, bench.order("bad"))
            await bench.bus.publish([msgspec.structs.replace(again, id=f"{again.id}:revived:{number}")])
            *_, answer = await bench.until(2 + number)
            assert (answer.batch_ids, answer.answer, answer.version) == (("bad",), "trained", 1)
    assert failed.answer == "failed"
    assert (bench.count("trained"), bench.count("repeated")) == (1, 1)


async def test_a_broker_that_goes_away_is_waited_for(bench):
    async with bench.running():
        await bench.send(bench.order("a"))
        bench.bus.down = True
        await anyio.sleep(100)
        bench.bus.down = False
        assert (await bench.until(1))[0].version == 1
    assert bench.trainer.weight == 4


async def test_staleness_is_a_histogram_in_updates_and_a_figure_that_an_order_lacks_is_not_shown(bench):
    bench.settings = msgspec.structs.replace(bench.settings, max_staleness=1)
    async with bench.running():
        for n in range(3):
            await bench.send(bench.order(f"o{n}", version=0))
            await bench.until(n + 1)
            assert (bench.sample("last", figure="tokens_per_second") is None) == (n == 2)
    # Four tokens an order, 0, 1 and 2 updates old; the last order is past the limit and still counted.
    assert [bench.sample("staleness_bucket", le=f"{age}.0") for age in (0, 1, 2, 16)] == [4, 8, 12, 12]
    assert (bench.sample("staleness_count"), bench.sample("staleness_sum")) == (12, 12)
    assert bench.sample("dropped_total", reason="stale") == 2
    assert bench.sample("skipped_total", reason="nothing_left") == 1


async def test_curves_are_written_for_tensorboard_if_a_directory_is_named(bench):
    pytest.importorskip("tensorboardX")
    curves = bench.directory / "curves"
    bench.settings = msgspec.structs.replace(bench.settings, tensorboard_dir=str(curves))
    async with bench.running():
        await bench.send(bench.order("a"), bench.order("b", version=99))
        await bench.until(2)
    events = read_events(curves)
    scalars = {(e.step, v.tag): v.simple_value for e in events for v in e.summary.value if v.HasField("simple_value")}
    assert scalars[1, "credit/outcome_mean"] == 0.5
    assert scalars[1, "update/steps"] == 1.0
    assert scalars[1, "dropped/future_version"] == 2.0
    assert scalars[1, "skipped/nothing_left"] == 1.0


def test_without_the_package_or_a_place_curves_are_refused_by_name(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    pytest.importorskip("tensorboardX")
    with pytest.raises(TensorBoardUnavailable, match=r"train\.tensorboard"):
        TensorBoard(tmp_path / "file" / "below", clock=lambda: 0.0)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(TensorBoardUnavailable, match="pip install"):
        TensorBoard(tmp_path / "there", clock=lambda: 0.0)


def read_events(directory):
    """Every event in TensorBoard's files there; TFRecords: length, its checksum, data, its checksum."""
    from tensorboardX.proto import event_pb2

    found = []
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            found.append(event_pb2.Event.FromString(data[12 : 12 + size]))
            data = data[16 + size :]
    return found


def metric_at(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_each_learner_of_a_machine_serves_its_metrics_at_a_port_of_its_own_and_says_which():
    with socket.create_server(("127.0.0.1", 0)) as taken, capture_logs() as logs:
        first = taken.getsockname()[1]
        settings, registries = LearnerSettings(metrics_port=first), (CollectorRegistry(), CollectorRegistry())
        for number, registry in enumerate(registries):
            Gauge("which", "learner", registry=registry).set(number)
        with _metrics_server(settings, registries[0]), _metrics_server(settings, registries[1]):
            served = [int(log["address"].rpartition(":")[2]) for log in logs if log["event"] == "metrics_served"]
            assert first not in served
            assert [f"which {number}.0" in metric_at(port) for number, port in enumerate(served)] == [True, True]
