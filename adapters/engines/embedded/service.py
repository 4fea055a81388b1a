"""The engine behind the HTTP routes: takes requests in, hands runs to the worker, and wakes whoever waits for news."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import structlog

from adapters.engines.checkpoint import TensorSpec, check_layout, validate
from adapters.engines.embedded.batching import Batch, Limits, Run
from adapters.engines.embedded.metrics import Metrics
from adapters.engines.embedded.model import Model, Weights, build_weights, read_config
from adapters.engines.embedded.prompts import Prompts
from adapters.engines.embedded.sampling import Sampling
from adapters.engines.embedded.worker import Worker
from adapters.errors import CheckpointRefused

_log = structlog.get_logger(__name__)


class Flight:
    """The runs of one request."""

    def __init__(self, runs: list[Run], arrived: float) -> None:
        self.runs, self.arrived = runs, arrived
        self.open = len(runs)
        self._news = asyncio.Event()

    def wake(self) -> None:
        self._news.set()

    async def wait(self) -> None:
        """Until there is news."""
        await self._news.wait()
        self._news.clear()


class EngineService:
    """One model, its batch, its thread. Every method runs in the event loop's thread."""

    def __init__(
        self,
        directory: Path,
        *,
        name: str,
        label: str,
        slots: int,
        length: int | None = None,
        rng: random.Random,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """
        Args:
            directory: HF checkpoint: weights, configuration, tokenizer, chat template.
            name: under which requests address the model.
            label: of the weights, until another is set.
            slots: answers made at the same time; more wait.
            length: most tokens of prompt and answer; the checkpoint's maximum if None or more than that.

        Raises:
            CheckpointRefused: the directory cannot be served.
        """
        self.directory, self.name = directory, name
        self.prompts = Prompts(directory)
        self._config = read_config(directory)
        self._specs: dict[str, TensorSpec] = {}
        weights = self._read(directory, first=True)
        most = self._config.max_position_embeddings
        model = Model(self._config, weights, slots=slots, length=min(length or most, most))
        self.batch = Batch(model, label, clock=clock, decode=self.prompts.decode)
        self.metrics = Metrics(name, self.batch)
        ends = self._config.eos_token_id
        ids = ends if isinstance(ends, list) else [ends]
        self.ends = frozenset(i for i in [*ids, self.prompts.end_id] if i is not None)
        self._flights: dict[Run, Flight] = {}
        self._rng, self._clock = rng, clock
        self._loading = asyncio.Lock()
        self._worker: Worker | None = None

    @property
    def length(self) -> int:
        """Most tokens of prompt and answer."""
        return self.batch.model.length

    @property
    def worker(self) -> Worker:
        assert self._worker is not None, "start() comes first"
        return self._worker

    def start(self) -> None:
        """Start the thread; the running loop gets the news."""
        self._worker = Worker(self.batch, asyncio.get_running_loop(), self._news)
        self._worker.start()

    def stop(self) -> None:
        """End the thread."""
        self.worker.stop()

    async def run(self, prompt: list[int], sampling: Sampling, limits: Limits, choices: int) -> AsyncIterator[list[Run]]:
        """Make `choices` answers; yields the runs when there is news, the last time when all are over.

        Leaving the iterator early ends what still runs: its client is gone.
        """
        seed = self._rng.getrandbits(63) if sampling.seed is None else sampling.seed
        runs = [Run(prompt, sampling, limits, random.Random(seed + i)) for i in range(choices)]
        flight = Flight(runs, self._clock())
        for run in runs:
            self._flights[run] = flight
            self.worker.submit(run)
        try:
            while flight.open:
                await flight.wait()
                if limits.streamed or not flight.open:
                    yield runs
        finally:
            for run in runs:
                if self._flights.pop(run, None) is not None:
                    self.worker.abort(run)
                    self.metrics.aborted()

    def _news(self, runs: list[Run]) -> None:
        for run in runs:
            flight = self._flights.get(run)
            if flight is None:
                continue
            if run.finish is not None:
                del self._flights[run]
                flight.open -= 1
                self.metrics.finished(run, flight.arrived)
            flight.wake()

    async def load(self, directory: Path) -> None:
        """Serve the weights of `directory` from the next step on; the label stays as it is.

        Everything is looked at and built aside first: what is served is replaced by one assignment or not at all.

        Raises:
            CheckpointRefused: what is wrong with it; the old weights keep serving.
        """
        async with self._loading:
            started = self._clock()
            try:
                weights = await asyncio.get_running_loop().run_in_executor(None, self._read, directory)
            except CheckpointRefused:
                self.metrics.refused.inc()
                raise
            await self.worker.call(lambda: self.batch.replace_weights(weights))
            self.metrics.loaded(self._clock() - started)
            _log.info("engine.loaded", path=str(directory), seconds=round(self._clock() - started, 4))

    def _read(self, directory: Path, *, first: bool = False) -> Weights:
        checkpoint = validate(directory, like=None if first else self.directory)
        if first:
            shapes = tensor_names_of(self._config)
            self._specs = {n: TensorSpec(checkpoint.tensors[n].dtype, s) for n, s in shapes.items() if n in checkpoint.tensors}
            for name in shapes.keys() - self._specs.keys():
                raise CheckpointRefused(f"{directory}: tensor {name} is missing")
        check_layout(checkpoint, self._specs)
        return build_weights(self._config, checkpoint)

    async def set_label(self, label: str) -> None:
        """Tokens from now on are sampled by `label`."""

        def write() -> None:
            self.batch.label = label

        await self.worker.call(write)
