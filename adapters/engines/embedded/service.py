"""The engine behind the HTTP routes: takes requests in, hands runs to the worker, and wakes whoever waits for news."""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from actors.ports.errors import CheckpointRefused
from adapters.engines.checkpoint import describe, validate
from adapters.engines.embedded.batching import Batch, Limits, Run
from adapters.engines.embedded.metrics import Metrics
from adapters.engines.embedded.model import Model, Weights, build_weights, read_config, tensor_shapes
from adapters.engines.embedded.prompts import Prompts
from adapters.engines.embedded.requests import BadRequest
from adapters.engines.embedded.sampling import Sampling
from adapters.engines.embedded.worker import Worker

_log = structlog.get_logger(__name__)


class Flight:
    """The run of one request, and whoever waits for it."""

    def __init__(self, run: Run, arrived: float) -> None:
        self.run, self.arrived = run, arrived
        self.done = False
        """The loop has heard that it is over."""
        self.left = False
        """Nobody waits any more."""
        self._news = asyncio.Event()

    def wake(self) -> None:
        """There is news."""
        self._news.set()

    def leave(self) -> None:
        """The client is gone."""
        self.left = True
        self._news.set()

    async def news(self) -> None:
        """Until there is news since the last call."""
        await self._news.wait()
        self._news.clear()

    async def over(self) -> None:
        """Until the run is over, or the client is gone."""
        while not self.done and not self.left:
            await self.news()


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
        most_waiting: int = 4096,
        rng: random.Random,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Serve a HF checkpoint as `name`; `slots` answers are made at the same time, `most_waiting` at most are under
        way or waiting, and prompt and answer have `length` tokens at most. Raises CheckpointRefused."""
        self.directory, self.name = directory, name
        self.prompts = Prompts(directory)
        self._config = read_config(directory)
        self._served = describe(directory)
        checkpoint = validate(directory)
        for tensor, shape in tensor_shapes(self._config).items():
            if tensor not in checkpoint.tensors or checkpoint.tensors[tensor].shape != shape:
                raise CheckpointRefused(f"{directory}: tensor {tensor} of shape {shape} is missing")
        weights = build_weights(self._config, checkpoint)
        most = self._config.max_position_embeddings
        model = Model(self._config, weights, slots=slots, length=min(length or most, most))
        self.batch = Batch(model, label, clock=clock, decode=self.prompts.decode)
        self.metrics = Metrics(name, self.batch)
        ends = self._config.eos_token_id
        ids = ends if isinstance(ends, list) else [ends]
        self.ends = frozenset(i for i in [*ids, self.prompts.end_id] if i is not None)
        self._flights: dict[Run, Flight] = {}
        self._rng, self._clock, self._most_waiting = rng, clock, most_waiting
        self._loading = asyncio.Lock()
        self._worker: Worker | None = None

    @property
    def length(self) -> int:
        """Most tokens of prompt and answer."""
        return self.batch.model.length

    @property
    def vocabulary(self) -> int:
        """Ids are smaller than this."""
        return self._config.vocab_size

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

    def begin(self, prompt: list[int], sampling: Sampling, limits: Limits) -> Flight:
        """Start the answer to a prompt. Whoever began must `end`. Raises BadRequest: too many answers are under way
        already."""
        if len(self._flights) >= self._most_waiting:
            self.metrics.turned_away.inc()
            raise BadRequest("too many requests are waiting; try again later", status=503)
        seed = self._rng.getrandbits(63) if sampling.seed is None else sampling.seed
        flight = Flight(Run(prompt, sampling, limits, random.Random(seed)), self._clock())
        self._flights[flight.run] = flight
        self.worker.submit(flight.run)
        return flight

    def end(self, flight: Flight) -> None:
        """Stop the run of a request whose client is gone, if it is not over."""
        if self._flights.pop(flight.run, None) is not None:
            self.worker.abort(flight.run)
            self.metrics.aborted()

    def _news(self, runs: list[Run]) -> None:
        for run in runs:
            flight = self._flights.get(run)
            if flight is None:
                continue
            if run.finish is not None:
                del self._flights[run]
                flight.done = True
                self.metrics.finished(run, flight.arrived)
            flight.wake()

    async def load(self, directory: Path) -> None:
        """Serve the weights of `directory` from the next step on; the label stays as it is.

        Everything is looked at and built aside first: what is served is replaced by one assignment or not at all.
        Raises CheckpointRefused: what is wrong with it; the old weights keep serving.
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

    def _read(self, directory: Path) -> Weights:
        return build_weights(self._config, validate(directory, like=self._served))

    async def set_label(self, label: str) -> None:
        """Tokens from now on are sampled by `label`."""

        def write() -> None:
            self.batch.label = label

        await self.worker.call(write)
