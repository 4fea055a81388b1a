"""The learner's service: orders in, candidates out.

    work.train, policy.directive  ->  policy.candidate, dead.learner

One record at a time: fetch -> `Updater` in a worker thread, the record kept in progress meanwhile -> publish -> ack.
The commit on disk comes before the publish, and a record that comes again is answered from disk, so a kill at any point
costs at most the work of one update. A broken order is parked as a dead letter, and the learner goes on.
"""

import errno
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog
from prometheus_client import CollectorRegistry, start_http_server

from actors.messages import BatchOrder, Candidate, Directive, MessageError, decode
from actors.messages.signing import PublicKeys, SigningKey
from actors.system.actor import DeadLetter
from actors.system.bus import Bus, Delivery, Subscription
from actors.system.errors import DependencyUnavailable
from actors.system.lifecycle import Lifecycle
from actors.system.outgoing import Outgoing, outgoing
from actors.system.patience import Drained, Patience
from actors.system.streams import DEAD, POLICY_CANDIDATE, POLICY_DIRECTIVE, WORK_TRAIN
from learner.checkpoints import Checkpoints
from learner.errors import MetricsUnavailable, OrderFileMissing, OrderUnusable, StateEmpty, TrainerUnavailable
from learner.metrics import LearnerMetrics
from learner.settings import LearnerSettings
from learner.tensorboard import TensorBoard
from learner.trainers import Trainer
from learner.update import Outcome, Updater

_log = structlog.get_logger(__name__)
R = TypeVar("R")
NAME = "learner"
FETCH_SECONDS = 5.0
METRICS_PORTS = 16
"""Ports tried for metrics: so many learners of one machine are scraped without a setting each."""
ATTEMPTS = 3
"""Deliveries of an order whose file is missing, or that the trainer fails on, before it is given up."""
RETRY_SECONDS = 2.0
"""Wait before the next attempt: a file on a shared disk appears within it."""


async def run(
    settings: LearnerSettings,
    *,
    bus: Bus,
    clock: Callable[[], float],
    state: Path,
    lifecycle: Lifecycle,
    key: SigningKey | None = None,
    trusted: PublicKeys | None = None,
    registry: CollectorRegistry | None = None,
    make_trainer: Callable[[Path, Path], Trainer] | None = None,
) -> None:
    """Serve until `lifecycle` drains; the bus is open, and its closing is the caller's.

    LearnerError: nothing to begin with, or a state that cannot be used.
    """
    registry = registry or CollectorRegistry()
    checkpoints = Checkpoints(state, key=key, trusted=trusted, keep=settings.keep_versions)
    updater = Updater(settings, checkpoints, make_trainer or partial(open_trainer, settings), clock=clock)
    with ExitStack() as stack:
        board = TensorBoard(Path(settings.tensorboard_dir), clock=clock) if settings.tensorboard_dir else None
        if board is not None:
            stack.callback(board.close)
        metrics = LearnerMetrics(registry)
        service = LearnerService(updater, bus=bus, metrics=metrics, board=board, lifecycle=lifecycle)
        if settings.metrics_port:
            stack.enter_context(_metrics_server(settings, registry))
        await service.run()


def open_trainer(settings: LearnerSettings, weights: Path, reference: Path) -> Trainer:
    """The native trainer; torch is imported here and not before. TrainerUnavailable: verl wants to be started its own
    way."""
    if settings.trainer != "native":
        raise TrainerUnavailable(f"train.trainer = {settings.trainer!r} is not started by this call")
    from learner.trainers.native import NativeTrainer

    return NativeTrainer(settings, weights, reference=reference)


class LearnerService:
    """Moves records between the bus and the updater."""

    def __init__(
        self,
        updater: Updater,
        *,
        bus: Bus,
        metrics: LearnerMetrics,
        board: TensorBoard | None,
        lifecycle: Lifecycle,
    ) -> None:
        self._updater, self._bus = updater, bus
        self._metrics, self._board, self._lifecycle = metrics, board, lifecycle
        self._insist = Patience(lifecycle, _log, rng=random.Random(), longest=10.0).insist

    async def run(self) -> None:
        """See `run` of the module."""
        version = await self._in_thread(self._updater.open)
        self._metrics.version.set(version)
        _log.info("learner_ready", version=version)
        try:
            subscription = await self._insist(lambda: self._bus.subscribe(NAME, (WORK_TRAIN, POLICY_DIRECTIVE)))
        except Drained:
            return
        try:
            while not self._lifecycle.draining.is_set():
                for delivery in await self._fetch(subscription):
                    await self._kept(subscription, delivery)
        except Drained:
            _log.info("learner_drained_without_bus")  # what was on its way comes again after the next start
        finally:
            with anyio.CancelScope(shield=True):
                await subscription.aclose()

    async def _fetch(self, subscription: Subscription) -> list[Delivery]:
        self._lifecycle.ready()
        with self._lifecycle.interruptible():
            return await subscription.fetch(1, FETCH_SECONDS)
        return []

    async def _kept(self, subscription: Subscription, delivery: Delivery) -> None:
        """`_handle`, with the record kept in progress; an error comes out as it is, not in a group."""
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._keep, subscription, delivery)
            try:
                await self._handle(subscription, delivery)
            except Exception as error:
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _handle(self, subscription: Subscription, delivery: Delivery) -> None:
        """Everything from a record to its ack; leaves it to be delivered again where another attempt makes sense."""
        try:
            candidate = await self._answer(delivery)
        except StateEmpty:
            raise
        except OSError as error:
            # Disk full, most likely: nothing has changed, and only time or a person can help.
            await self._put_off(subscription, delivery, "disk", error)
            return
        except Exception as error:
            final = isinstance(error, OrderUnusable) and not isinstance(error, OrderFileMissing)
            if not final and delivery.attempts < ATTEMPTS:
                cause = "file_missing" if isinstance(error, OrderFileMissing) else "failed"
                await self._put_off(subscription, delivery, cause, error)
                return
            candidate = await self._park(delivery, error)
        if candidate is not None:
            await self._publish([outgoing(POLICY_CANDIDATE, candidate)])
        await subscription.ack([delivery])

    async def _answer(self, delivery: Delivery) -> Candidate | None:
        """What to publish for a record, None for nothing."""
        if delivery.problem:
            raise OrderUnusable(delivery.problem)
        try:
            message = decode(delivery.data)
        except MessageError as error:
            raise OrderUnusable(str(error)) from error
        match message:
            case BatchOrder():
                return self._told(await self._train(message), order=message.id)
            case Directive(kind="rollback" | "rebase"):
                outcome = await self._in_thread(lambda: self._updater.go_back(message))
                if outcome is not None:
                    return self._told(outcome, directive=message.id)
                self._metrics.orders.labels("ignored").inc()
            case Directive():
                pass
            case _:
                raise OrderUnusable(f"a {type(message).__name__} on {delivery.subject}")
        return None

    async def _train(self, order: BatchOrder) -> Outcome:
        began = time.perf_counter()
        outcome = await self._in_thread(lambda: self._updater.apply(order))
        seconds = time.perf_counter() - began
        if outcome.result == "trained":
            self._metrics.seconds.observe(seconds)
        if outcome.result != "repeated":
            self._metrics.observe(outcome)
            if self._board is not None:
                await self._in_thread(partial(self._board.write, outcome))
            figures = {name: _rounded(value) for name, value in sorted(outcome.metrics.items())}
            _log.info(
                "update",
                order=order.id,
                result=outcome.result,
                reason=outcome.reason,
                version=outcome.candidate.version,
                seconds=_rounded(seconds),
                dropped=outcome.dropped,
                no_gradient=dict(Counter(outcome.candidate.no_gradient.values())),
                **figures,
            )
        return outcome

    def _told(self, outcome: Outcome, **record: str) -> Candidate:
        self._metrics.orders.labels(outcome.result).inc()
        self._metrics.version.set(outcome.candidate.version)
        if outcome.result in ("repeated", "went_back"):
            _log.info(outcome.result, version=outcome.candidate.version, **outcome.metrics, **record)
        return outcome.candidate

    async def _park(self, delivery: Delivery, error: Exception) -> Candidate | None:
        """Send a record to the dead letters; for an order, also say that it is off the list."""
        _log.error("order_dead", record=delivery.id, subject=delivery.subject, reason=str(error), exc_info=error)
        self._metrics.orders.labels("dead").inc()
        letter = DeadLetter(
            actor=NAME,
            input_id=delivery.id,
            subject=delivery.subject,
            data=delivery.data,
            error=f"{type(error).__name__}: {error}",
        )
        subject = f"{DEAD}.{NAME}"
        await self._publish([Outgoing(subject, f"{subject}:{delivery.id}", msgspec.msgpack.encode(letter))])
        try:
            message = decode(delivery.data)
        except MessageError:
            return None
        if not isinstance(message, BatchOrder):
            return None
        return await self._in_thread(lambda: self._updater.give_up(message))

    async def _put_off(self, subscription: Subscription, delivery: Delivery, cause: str, error: Exception) -> None:
        _log.warning("order_put_off", record=delivery.id, cause=cause, attempt=delivery.attempts, reason=str(error))
        self._metrics.retries.labels(cause).inc()
        await subscription.nak([delivery], RETRY_SECONDS)

    async def _publish(self, items: list[Outgoing]) -> None:
        """Publish, and wait while the broker is away."""
        await self._insist(lambda: self._bus.publish(items))

    async def _keep(self, subscription: Subscription, delivery: Delivery) -> None:
        """Tell the broker and the supervisor that a record is being worked on, until cancelled."""
        while True:
            await anyio.sleep(self._bus.ack_wait / 3)
            self._lifecycle.beat()
            try:
                await subscription.in_progress([delivery])
            except DependencyUnavailable as error:
                # The record may come to us again while it is in work: the second time it is answered from disk.
                _log.warning("in_progress_lost", record=delivery.id, reason=str(error))

    @staticmethod
    async def _in_thread(call: Callable[[], R]) -> R:
        # Not abandoned when cancelled: a commit that has begun is finished, and the record's next delivery finds it.
        return await anyio.to_thread.run_sync(call)


@contextmanager
def _metrics_server(settings: LearnerSettings, registry: CollectorRegistry) -> Iterator[None]:
    """Serves `registry` at the first free port; raises `MetricsUnavailable`."""
    first, where = settings.metrics_port, settings.metrics_host
    for port in range(first, min(first + METRICS_PORTS, 1 << 16)):
        try:
            server, thread = start_http_server(port, where, registry)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise MetricsUnavailable(
                    f"train.metrics = {where!r}, port {port}: {error.strerror or error}; name an address of "
                    "this machine and a port that this user may open, or leave train.metrics empty for none"
                ) from error
        else:
            break
    else:
        raise MetricsUnavailable(
            f"train.metrics = {first}: this and the {METRICS_PORTS - 1} ports after it are taken at {where}; "
            "set another, or 0 for no metrics"
        )
    _log.info("metrics_served", address=f"{where}:{port}", asked_for=first)
    try:
        yield
    finally:
        server.shutdown()
        thread.join(timeout=5.0)


def _rounded(value: float) -> float:
    """To five significant digits, for people."""
    return value if value == 0 or not math.isfinite(value) else float(f"{value:.5g}")
