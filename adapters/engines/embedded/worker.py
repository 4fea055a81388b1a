"""The thread that computes: it owns the batch, the event loop talks to it through a queue of commands.

Between two steps it takes what the loop asked for; with nothing to do it sleeps on a condition, so an idle engine costs
nothing. News of a step go to the loop in one call.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import structlog

from adapters.engines.embedded.batching import Batch, Run

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class Worker:
    """Runs a batch in a thread of its own."""

    def __init__(self, batch: Batch, loop: asyncio.AbstractEventLoop, notify: Callable[[list[Run]], None]) -> None:
        """
        Args:
            notify: called in the loop's thread with runs that have news.
        """
        self.paused = False
        self.failed_steps = 0
        self._batch, self._loop, self._notify = batch, loop, notify
        self._commands: deque[Callable[[], object]] = deque()
        self._condition = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the step that runs and end the thread; runs in use get no further news."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
        self._thread.join()

    def submit(self, run: Run) -> None:
        """Start a run; does not wait."""
        self._command(lambda: self._batch.add(run))

    def abort(self, run: Run) -> None:
        """End a run whose client is gone; does not wait."""
        self._command(lambda: self._batch.abort(run))

    async def call(self, function: Callable[[], _T]) -> _T:
        """Run `function` in the thread, between two steps; returns what it returns, raises what it raises."""
        done: asyncio.Future[_T] = self._loop.create_future()

        def settle(result: _T | None, error: BaseException | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def command() -> None:
            try:
                result = function()
            except Exception as error:
                self._loop.call_soon_threadsafe(settle, None, error)
            else:
                self._loop.call_soon_threadsafe(settle, result, None)

        self._command(command)
        return await done

    async def pause(self, *, clear_cache: bool) -> None:
        """Stop between two steps; runs stay."""

        def stop() -> None:
            self.paused = True
            if clear_cache:
                self._batch.drop_cache()

        await self.call(stop)

    async def resume(self) -> None:
        """Go on."""

        def go() -> None:
            self.paused = False

        await self.call(go)

    def _command(self, command: Callable[[], object]) -> None:
        with self._condition:
            self._commands.append(command)
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._commands and not self._stopped and (self.paused or not self._batch.busy):
                    self._condition.wait()
                if self._stopped:
                    return
                commands, self._commands = self._commands, deque()
            for command in commands:
                command()
            if self.paused or not self._batch.busy:
                continue
            news = self._step()
            if news:
                self._loop.call_soon_threadsafe(self._notify, news)

    def _step(self) -> list[Run]:
        try:
            return self._batch.step()
        except Exception:
            # Whatever it was, it was about these runs: they fail, the engine goes on with the next ones.
            self.failed_steps += 1
            _log.exception("engine.step_failed", runs=len(self._batch.rows), failed_steps=self.failed_steps)
            failed = list(self._batch.rows)
            for run in failed:
                self._batch.abort(run, "error")
            self._batch.drop_cache()
            return failed
