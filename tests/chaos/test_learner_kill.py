"""kill -9 of the learner eight times while it updates, with records waiting at a real nats-server: each is applied
once, and the weights are those of a run that nobody disturbed. Kills while it goes back: unit/learner/test_replay."""

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import anyio
import msgspec
import nats
import numpy as np
import pytest
import tomli_w

pytest.importorskip("torch")

import torch

from actors.messages import BatchItem, BatchOrder, Candidate, decode, encode_batch
from actors.system.bus import Subscription
from actors.system.outgoing import outgoing
from actors.system.streams import POLICY_CANDIDATE, WORK_TRAIN
from daemon.demo.processes import scrubbed
from daemon.processes import learner_settings
from daemon.processes.bus_connection import open_bus
from daemon.settings.reading import load
from daemon.settings.tables import Config
from learner.checkpoints import Checkpoints
from learner.cursor import Cursor
from learner.memory import STATE_EVERY
from learner.service import open_trainer
from learner.trainers.files import load_tensors
from learner.update import Updater
from tests.support.checkpoints import write
from tests.support.nats import running_broker, same_loop
from tests.support.patience import Late, wait_until, within
from tests.unit.learner.maker import item, row

pytestmark = [pytest.mark.chaos, pytest.mark.torch, pytest.mark.timeout(within(480)), pytest.mark.promise]

SEED, KILLS, ORDERS = 11, 8, 20
"""KILLS that fall in an update; ORDERS that lie there at first: more come before a kill that would find none."""
ROWS, TOKENS = 12, 96
PRELOADED = [
    "daemon.cli.main",
    "daemon.processes.learner",
    "learner.trainers.native",
    "transformers.models.qwen2.modeling_qwen2",
]
AHEAD = 4
"""Orders that must wait for the learner when it is killed."""
ACK_WAIT = 30.0
"""Seconds after which the broker gives away again what a killed learner had in work."""


def learner(config: str, log: str) -> None:
    """The child: `evolved learner --config CONFIG`, its output in a file."""
    environment = scrubbed()
    os.environ.clear()
    os.environ.update(environment)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    from daemon.cli.main import main

    sys.exit(main(["learner", "--config", config]))


def trajectories(number: int) -> list[BatchItem]:
    """Groups and single runs, whose running baselines make the order of the updates matter."""
    rng = np.random.default_rng([SEED, number])

    def one(index: int) -> BatchItem:
        steps = np.where(np.arange(TOKENS) % 40 < 20, -1, np.arange(TOKENS) // (TOKENS // 2))
        ids, logprobs = rng.integers(3, 250, TOKENS), np.where(steps >= 0, -rng.uniform(0.5, 6.0, TOKENS), 0.0)
        group = f"g{number}.{index // 4}" if index < ROWS * 2 // 3 else ""
        return item(
            float(rng.random() < 0.5),
            "".join(rng.choice(list("+-?"), 2)),
            id=f"t{number}.{index}",
            group=group,
            rows=[row(ids.tolist(), steps.tolist(), logprobs=logprobs.tolist())],
        )

    return [one(index) for index in range(ROWS)]


def written(directory: Path, number: int) -> BatchOrder:
    """One order with its file."""
    data = encode_batch(trajectories(number))
    path = directory / f"order{number}.batch"
    path.write_bytes(data)
    return BatchOrder(
        id=f"order{number}", path=str(path), sha256=sha256(data).hexdigest(), size=len(data), trajectories=()
    )


class Victim:
    """The learner's process, started again after each kill."""

    def __init__(self, config: Path, log: Path, state: Path) -> None:
        # Forked from a server that has torch imported: their imports would take longer than the rest of the test.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._config, self._log, self._state = config, log, state
        self.process: BaseProcess | None = None

    def start(self) -> None:
        self.process = self._context.Process(target=learner, args=(str(self._config), str(self._log)))
        self.process.start()

    def again(self) -> None:
        """The next life, up to where it takes orders."""
        lives = self.events("learner_ready")
        self.start()
        self.until(lambda: self.events("learner_ready") > lives, "ready again")

    def kill(self) -> None:
        assert self.process is not None
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        assert self.process.exitcode == -signal.SIGKILL, "it was alive until it was killed"

    def events(self, name: str) -> int:
        return len(self.lines(name))

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Lines of the log, over all lives, with this event."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        whole = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("}\n")]
        return [line for line in whole if line["event"] == name]

    def until(self, done: Callable[[], bool], what: str, pause: float = 0.01) -> None:
        def there() -> bool:
            if done():
                return True
            assert self.process is not None
            assert self.process.exitcode is None, f"it ended before {what}\n{self.tail()}"
            return False

        try:
            wait_until(there, what, 120, every=pause)
        except Late as late:
            raise Late(f"{late}\n{self.tail()}") from None

    def tail(self) -> str:
        """The log's end, for whoever reads why it failed."""
        return self._log.read_text(errors="replace")[-2000:]

    def writing(self) -> bool:
        """Whether a version or its optimizer lies there half written."""
        return any(self._state.glob("versions/.v*.part")) or any(self._state.glob("learner/.v*.part"))


def pace(victim: Victim) -> float:
    """Seconds that an update takes, over three of the first."""
    victim.until(lambda: victim.events("update") >= 1, "the first update")
    began, seen = time.monotonic(), victim.events("update")
    victim.until(lambda: victim.events("update") >= seen + 3, "three more updates")
    return (time.monotonic() - began) / 3


def kill_at(victim: Victim, rng: random.Random, update_seconds: float) -> None:
    """Let a few updates pass, then kill within the next: at some time in it, or while it writes."""
    seen, passing = victim.events("update"), rng.choice([0, 0, 0, 1])
    victim.until(lambda: victim.events("update") >= seen + passing, "updates before the kill")
    if rng.random() < 0.4:
        victim.until(victim.writing, "a version being written", pause=0.0005)
        time.sleep(rng.uniform(0.0, 0.03))
    else:
        time.sleep(rng.uniform(0.0, update_seconds))
    victim.kill()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "warm").mkdir()
    table = {
        "state_dir": str(tmp_path / "state"),
        "model": {"path": str(write(tmp_path / "warm" / "start", 5))},
        "train": {"lr": 1e-4, "kl_coef": 0.0, "max_staleness": 1000, "mini_batches": 3},
        "keep": {"versions": 1000},
    }
    path = tmp_path / "config.toml"
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    return load(path)


@pytest.fixture
def victim(tmp_path: Path, config: Config) -> Iterator[Victim]:
    victim = Victim(tmp_path / "config.toml", tmp_path / "learner.log", config.state)
    yield victim
    if victim.process is not None and victim.process.exitcode is None:
        victim.process.kill()
        victim.process.join()


async def disturbed(config: Config, victim: Victim, directory: Path) -> tuple[int, list[Candidate]]:
    """Publish orders, kill the learner while it works on them, and wait until the last is answered.

    How many orders there were, and the answers.
    """
    rng, kills, struck, answers = random.Random(SEED), 0, 0, list[Candidate]()
    orders: list[BatchOrder] = []
    async with running_broker(config.state) as broker:
        login = broker.credentials
        client = await nats.connect(login.url, user=login.user, password=login.password)
        bus = await open_bus(config, same_loop, "test")

        async def order(number: int) -> None:
            fresh = [written(directory, len(orders) + one) for one in range(number)]
            orders.extend(fresh)
            await bus.publish([outgoing(WORK_TRAIN, one) for one in fresh])

        async def cut_short() -> int:
            """Deliveries that nobody has answered."""
            info = await client.jetstream().consumer_info("WORK", "learner")
            if info.num_pending < AHEAD:
                await order(AHEAD)
            return info.delivered.consumer_seq - victim.events("update") - victim.events("repeated")

        try:
            answered = await bus.subscribe("test", (POLICY_CANDIDATE,))
            await order(ORDERS)
            victim.start()
            seconds, before = await anyio.to_thread.run_sync(pace, victim), 0
            while struck < KILLS:
                assert kills < 5 * KILLS, f"{struck} of {kills} kills fell in an update"
                await anyio.to_thread.run_sync(kill_at, victim, rng, seconds)
                # A learner at work has the record in work and the one that it asked for ahead: an idle one has neither.
                lost = await cut_short()
                struck, kills, before = struck + (lost - before >= 2), kills + 1, lost
                await anyio.to_thread.run_sync(victim.again)
            wanted = {one.id for one in orders}
            await gather(answered, answers, lambda: wanted <= {answer.batch_ids[0] for answer in answers}, victim.tail)
        finally:
            await client.close()
            await bus.aclose()
    assert victim.events("learner_ready") == kills + 1
    return len(orders), answers


def undisturbed(config: Config, done: Sequence[str], directory: Path) -> Checkpoints:
    """The state after the same orders in the same sequence, in one process that lives."""
    settings = learner_settings.learner(config)
    checkpoints = Checkpoints(directory / "undisturbed", keep=config.keep.versions)
    updater = Updater(settings, checkpoints, partial(open_trainer, settings), clock=time.time)
    updater.open()
    for record in done:
        updater.apply(written(directory, int(record.removeprefix("order"))))
    return checkpoints


async def gather(answered: Subscription, answers: list[Candidate], done: Callable[[], bool], tail: Callable[[], str]):
    """Add what the learner says to `answers` until `done`."""
    end = anyio.current_time() + ACK_WAIT + within(120)
    while not done():
        got = await answered.fetch(64, 1.0)
        answers += [message for one in got if isinstance(message := decode(one.data), Candidate)]
        await answered.ack(got)
        assert anyio.current_time() < end, f"{len(answers)} answers only\n{tail()}"


@pytest.mark.anyio
async def test_a_learner_killed_in_mid_update_loses_no_update_and_makes_none_twice(config, victim, tmp_path):
    number, answers = await disturbed(config, victim, tmp_path)
    victim.kill()

    checkpoints = Checkpoints(config.state, keep=config.keep.versions)
    cursor = checkpoints.open(None, 0.0)
    orders = {f"order{one}" for one in range(number)}
    done = [order for order, _ in cursor.done]
    versions = checkpoints.versions
    applied = Counter(order for version in versions.numbers() for order in versions.read(version).batch_ids)
    assert Counter(done) == Counter(orders), "each order is done once"
    assert applied == Counter(orders), "and stands in one version"
    assert versions.numbers() == list(range(number + 1))
    for answer in answers:
        assert versions.read(answer.version).batch_ids == answer.batch_ids, "the answer names the version it made"

    other = undisturbed(config, done, tmp_path)
    assert like(other.cursor) == like(cursor), "optimizer's digest, chain and all"
    replayed = [line for line in victim.lines("replayed") if line["updates"]]
    assert replayed, "kills struck between two full states"
    assert all(line["exact"] for line in replayed)
    assert max(line["updates"] for line in replayed) < STATE_EVERY
    assert not victim.lines("replay_impossible")
    mine, theirs = (load_tensors(each.head / "model.safetensors") for each in (checkpoints, other))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def like(cursor: Cursor) -> Cursor:
    """What of a cursor does not depend on how long an update took, which a batch tells of the version it is for."""
    return msgspec.structs.replace(cursor, made=cursor.made and msgspec.structs.replace(cursor.made, batch=""))
