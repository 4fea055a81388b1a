"""`Questioner`: keeps a pool of self-made tasks topped up while the daemon runs, a world at a time.

    environment -> rounds of the generator -> the pool

It stops while learning is frozen, and pauses while enough tasks wait in the pool to be played. What it knows survives
in the store, so that a restart does not begin at the first world. An environment that cannot be probed is said once,
and asked again later.
"""

from collections.abc import Callable

import msgspec
import structlog

from actors.store import Store
from actors.system.actor import Actor
from actors.system.outbox import Outbox
from actors.tasks.questioner.errors import NotProbeable, TaskFileMalformed
from actors.tasks.questioner.generating import Generator
from actors.tasks.questioner.state import QuestionerState

_log = structlog.get_logger(__name__)
_STATE = "questioner/state"
_NEVER_PLAYED = ("questioner", "offered")
_POOL = 64
"""Self-made tasks that wait to be played; while there are so many, no more are made, for the policy may outgrow
them."""
_PAUSE_SECONDS = 5.0
"""Between two rounds in the daemon, so that serving and learning come first."""
_FULL_SECONDS = 60.0
"""Pause while the pool is full, or the environment cannot be probed."""
_KEPT = 512
"""Tasks that the filters compare new ones with."""


class Questioner(Actor):
    """Actor without inputs: self-made tasks.

    Args:
        make: a generator that goes on from a state, or begins with None.
    """

    name = "questioner"

    def __init__(
        self,
        *,
        store: Store,
        make: Callable[[QuestionerState | None], Generator],
    ) -> None:
        self._store, self._make = store, make
        self._generator = make(None)
        self._failing = False
        self.offered = 0
        """Tasks that were new to the pool, since the start."""

    @property
    def state(self) -> QuestionerState:
        """What is known, and what was counted; for metrics."""
        return self._generator.state

    async def start(self) -> None:
        data = await self._store.state_get(_STATE)
        state = None
        if data is not None:
            try:
                state = msgspec.json.decode(data, type=QuestionerState)
                self._generator = self._make(state)
                return
            except (msgspec.MsgspecError, TaskFileMalformed) as error:
                # Other settings ask for other tasks; what was handed over is in the pool.
                _log.info("questioner_begins_anew", reason=str(error))
        self._generator = self._make(None)

    async def run(self, outbox: Outbox) -> None:
        while not outbox.lifecycle.draining.is_set():
            outbox.lifecycle.beat()
            await outbox.lifecycle.pause(await self._turn(outbox))

    async def _turn(self, outbox: Outbox) -> float:
        """A round, if it is time for one; seconds until the next turn."""
        state = self._generator.state
        if await outbox.insist(self._store.frozen):
            return _PAUSE_SECONDS
        wanted = _POOL - await outbox.insist(lambda: self._store.task_count(*_NEVER_PLAYED))
        if wanted <= 0:
            return _FULL_SECONDS
        self._generator.instances.renew()
        try:
            tasks = await self._generator.round(wanted)
            self._said(None)
        except NotProbeable as error:
            self._said(error)
            return _FULL_SECONDS
        self.offered += await outbox.insist(lambda: self._store.offer(tasks)) if tasks else 0
        # They are the pool's from now on; the filters go on remembering them. A crash before the next line makes the
        # same tasks again, which the pool then knows by their ids.
        state.tasks.clear()
        self._trim()
        await outbox.insist(lambda: self._store.state_put(_STATE, msgspec.json.encode(state)))
        return _PAUSE_SECONDS

    def _trim(self) -> None:
        """A daemon runs for months: the oldest tasks are compared with no more."""
        state = self._generator.state
        for entry in state.entries[:-_KEPT]:
            self._generator.forget(entry.task)
        state.entries = state.entries[-_KEPT:]

    def _said(self, error: NotProbeable | None) -> None:
        """Say once that it breaks, and once that it works again."""
        if error is not None and not self._failing:
            _log.warning("questioner_cannot_probe", reason=str(error))
        if error is None and self._failing:
            _log.info("questioner_probes_again")
        self._failing = error is not None
