"""The assembler: calls that were seen become trajectories.

    traffic.exchange, traffic.feedback -> [stitching] -> trajectory.closed

Every exchange is kept; a call of a conversation that succeeded becomes a step of one trajectory, which closes on final
feedback, after a time without calls, or at a limit. Calls beside its main line (titles, summaries, retries) are kept
with it and are no steps.

A closed trajectory has been judged, maybe trained on: it is never published again. A call that comes for it afterwards
opens one that `continues` it; feedback makes a revision of its outcome (`actors.store.outcomes`). What is open lives in
memory, bounded, and is rebuilt from the store at every start.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import structlog

from actors.messages import Exchange, Feedback, Message
from actors.ports.engines import Engine
from actors.store import Beside, Store, stitchable
from actors.system.actor import Actor, Output, Received, Result
from actors.system.streams import TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK, TRAJECTORY_CLOSED
from actors.trajectories.builder import build
from actors.trajectories.engine_defaults import Ask, EngineDefaults
from actors.trajectories.link_keys import Signal, of_run
from actors.trajectories.parsed_exchange import ParsedExchange, read_turn
from actors.trajectories.rerendering import Rerenderer
from actors.trajectories.side_calls import beginnings
from actors.trajectories.stitching import Limits, Stitcher

_log = structlog.get_logger(__name__)
_REMEMBERED_TRAJECTORIES = 2000
_MIXED = 8
"""Conversations of one run that is named, above which it is told that it may be many users' runs."""
_REMEDY = "a run's id is of one run: name agents by /agents/NAME, or give each run an id of its own"


class Assembler(Actor):
    """Actor: traffic in, closed trajectories out."""

    name = "assembler"
    inputs = (TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK)
    batch = 256
    """Records taken at a time: one transaction each, and some 50 ms of work."""
    head = renews = True
    tick_seconds = 0.5
    """How often it looks what is due: half of the shortest time that anything waits."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Callable[[], float],
        serving: Callable[[str, float, float], int] = lambda engine, started, ended: -1,
        engine: Engine | None = None,
        engines: Mapping[str, Ask] | None = None,
        processed_logprobs: Collection[str] = (),
        limits: Limits | None = None,
    ) -> None:
        """
        Args:
            clock: seconds that no setting of the wall clock moves, for how long a trajectory has been idle: an hour
                that is skipped must not close all of them, nor one that comes twice keep them open.
            serving: which weights an engine served from then to then, -1 if unknown (`ServingTimes.version`); asked
                where the engine's own answer does not say.
            engine: renders what redaction left of a prompt; without one, redacted runs are not trained on.
            engines: ask each how it samples what a request does not speak of; of others it is taken that they do
                nothing.
            processed_logprobs: engines, by the names of the tap's upstreams, that give log-probs of what they sampled
                from (vLLM: `--logprobs-mode processed_logprobs`): there, temperature, top_p, top_k, min_p and penalties
                do not hinder training.
        """
        self._defaults = EngineDefaults(engines or {}, clock)
        self._rerender = Rerenderer(engine)
        self._store, self._clock, self._serving = store, clock, serving
        self._processed_logprobs = processed_logprobs
        self._limits = limits or Limits()
        self._stitcher = Stitcher(self._limits)
        self.counts: Counter[str] = Counter()
        """Since this object was made: closed_<why>, untrainable_<why> (calls), side_calls, failed, other_endpoint,
        duplicate, continued, late_feedback, unrendered (redacted calls that no engine rendered), mixed (named runs of
        many conversations)."""
        self.links: Counter[tuple[Signal, float]] = Counter()
        """Links of closed trajectories by what told of them and how sure it is; ("none", 0.5): a missing beginning."""

    @property
    def open_calls(self) -> int:
        """Calls in trajectories that are not over."""
        return len(self._stitcher)

    async def start(self) -> None:
        """Take up what is open in the store."""
        self._stitcher = Stitcher(self._limits)
        for run in reversed(await self._store.recent_closed(_REMEMBERED_TRAJECTORIES)):
            self._stitcher.remember_keys(of_run(run), run.id, run.ended)
        for call_id, tenant, run_id in await self._store.calls_beside(_REMEMBERED_TRAJECTORIES):
            self._stitcher.remember_keys([("x", tenant, call_id)], run_id, 0.0)
        await self._add(await self._store.open_exchanges(self._limits.max_turns))
        _log.info("assembler_started", open_calls=len(self._stitcher))

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Exchanges first, then what was said of them: within a batch their order means nothing."""
        messages = [received.message for received in batch]
        exchanges = [message for message in messages if isinstance(message, Exchange)]
        await self._add([one for one in exchanges if stitchable(one)])
        for exchange in exchanges:
            if not stitchable(exchange):
                self.counts["other_endpoint" if 0 < exchange.status < 400 else "failed"] += 1
        records: list[Message] = [*exchanges]
        for message in messages:
            if isinstance(message, Feedback):
                records.append(message)
                await self._hear(message, records)
        return self._result(records)

    async def tick(self) -> Result:
        """Close what is due."""
        return self._result([])

    async def _add(self, exchanges: Sequence[Exchange]) -> None:
        """Take in calls, and what was said of them before they came."""
        for turn in await self._read(exchanges):
            self.counts["duplicate"] += not self._stitcher.add(turn, self._clock())
        for feedback in await self._store.waiting_feedback(exchanges, self._limits.max_feedback):
            self._stitcher.hear(feedback, self._clock())

    async def _read(self, exchanges: Sequence[Exchange]) -> list[ParsedExchange]:
        """What was said, with the tokens and the sampling that their engines tell of."""
        rerendered = await self._rerender(exchanges, self._version)
        self.counts["unrendered"] = self._rerender.failed
        await self._defaults.look(exchanges)
        return [
            read_turn(
                self._defaults.applied(exchange), self._processed_logprobs, self._version(exchange),
                rerendered=rerendered.get(exchange.id),
            )
            for exchange in exchanges
        ]  # fmt: skip

    def _version(self, exchange: Exchange) -> int:
        if exchange.versions or not (exchange.response_ids or exchange.redacted):
            return -1
        return self._serving(exchange.engine, exchange.started, exchange.started + exchange.duration)

    async def _hear(self, feedback: Feedback, records: list[Message]) -> None:
        if self._stitcher.hear(feedback, self._clock()):
            return
        joined = await self._store.place(feedback)
        if joined is not None:
            records.append(joined)
            self.counts["late_feedback"] += 1

    def _result(self, records: list[Message]) -> Result:
        """Close what is due, beside `records`."""
        outputs: list[Output] = []
        for closing in self._stitcher.close_due(self._clock()):
            self.links.update((link.signal, link.confidence) for link in closing.links.values())
            built = build(closing)
            run = built.run
            # The main line last: a call is late that began before its end.
            self._stitcher.remember(built.beside, run.id)
            self._stitcher.remember(built.turns, run.id)
            records += [run, *(Beside(id=turn.id, trajectory_id=run.id) for turn in built.beside), *built.joined]
            outputs.append(Output(TRAJECTORY_CLOSED, run))
            if closing.turns[0].explicit and (conversations := beginnings(closing.turns)) > _MIXED:
                self.counts["mixed"] += 1
                _log.warning(
                    "run_of_many_conversations", trajectory=run.id, conversations=conversations, remedy=_REMEDY
                )
            self.counts["side_calls"] += len(built.beside)
            self.counts["continued"] += bool(run.continues)
            self.counts[f"closed_{run.closed_by}"] += 1
            for step in run.steps:
                if step.why_not:
                    self.counts[f"untrainable_{step.why_not.replace(' ', '_')}"] += 1
            _log.debug("trajectory_closed", trajectory=run.id, steps=len(run.steps), by=run.closed_by)
        return Result(records, outputs)
