"""How the gate measures a candidate: the `Trial` Protocol, and the trial on held-out tasks of a sandbox.

Both trials (`SandboxTrial` here, `ReplayTrial` in `replay_trial.py`) answer the same question about weights that are in
the shadow engine: is the candidate at least as good as what serves, and how sure is that?

The sandbox trial plays a fixed set of held-out tasks, sampled at T=1 as agents do, the same tasks with the same seeds
for every version, so the comparison is paired. Records are kept per *fingerprint* of the environment (its tools and
profile): a record of another desk says nothing about this one, so after a drift the incumbent is measured again and
records of earlier champions are void. A version that is asked about again after a `hold` is tried on further tasks, up
to a limit, and so is what it is compared with: an inconclusive result is answered with more evidence, not with a coin.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import anyio
import msgspec
import structlog

from actors.episodes import EpisodeLost, begin, play
from actors.gate_statistics import Decision, Pairs, both, decide, newcombe_paired, wilson
from actors.messages import derived_id
from actors.ports import StateStore
from actors.system.errors import DependencyUnavailable
from adapters.engines import Engine
from adapters.environments import Environment

_log = structlog.get_logger(__name__)
_STATE = "gate/records"

Load = Callable[[int], Awaitable[None]]
"""Puts a version into the shadow engine; raises what the gatekeeper's own load raises."""


class Comparison(msgspec.Struct, frozen=True):
    """What a trial came to."""

    decision: Decision
    reason: str
    measurements: dict[str, float]


class Trial(Protocol):
    """A way to compare weights without letting them near a user."""

    async def compare(self, candidate: int, incumbent: int, served: Sequence[int], load: Load) -> Comparison:
        """Measure `candidate`, which is in the shadow engine and is there again in the end, against `incumbent`.

        Args:
            served: every version that ever served; the candidate must not be inferior to the best of them either.
            load: to put other versions into the shadow engine in between.

        Raises:
            DependencyUnavailable: engine or environment are away; nothing was concluded.
        """
        ...


class SandboxTrialSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gate's exam."""

    trials: int = 128
    """Held-out tasks of a first measurement."""
    max_trials: int = 512
    """Tasks at most, after holds."""
    first_seed: int = 1_000_000
    """Number of the first held-out task; far from 0, where people measure by hand: not on what the gate selects by."""
    families: str = ""
    """Kinds of task, one letter each; empty for the environment's usual mix."""
    margin: float = 0.05
    """How much worse than the incumbent a candidate may be at the lower confidence limit."""
    confidence: float = 0.9
    """Two-sided, so one-sided 0.95 for either decision."""
    max_steps: int = 24
    max_tokens: int = 512
    """Per step."""
    temperature: float = 1.0
    concurrency: int = 32
    """Episodes at once."""
    step_timeout: float = 60.0
    """Seconds for one answer of the engine or the environment."""
    max_lost: float = 0.1
    """Share of episodes that may break down before the measurement is given up."""


class Records(msgspec.Struct):
    """Outcomes by version, then by task number, under one fingerprint."""

    fingerprint: str
    solved: dict[int, dict[int, bool]] = {}


class SandboxTrial:
    """`Trial` on held-out tasks."""

    _VERSIONS = 64
    """Versions whose records are kept; the oldest numbers go first."""

    def __init__(
        self,
        settings: SandboxTrialSettings,
        *,
        environment: Environment,
        engine: Engine,
        store: StateStore,
        seed: int = 0,
    ) -> None:
        """
        Args:
            engine: the shadow engine.
            seed: of the sampling, the same for all versions.
        """
        self._settings, self._environment, self._engine, self._store = settings, environment, engine, store
        self._seed = seed
        self.lost = 0
        """Episodes that broke down and were left out of both sides."""

    def fingerprint(self) -> str:
        """What makes measurements comparable: the environment as it is now, and how it is sampled."""
        profile = msgspec.json.encode(self._environment.profile(), order="sorted").decode()
        tools = json.dumps(self._environment.tools(), sort_keys=True)
        settings = self._settings
        return derived_id(
            "exam", profile, tools, settings.families, settings.first_seed, settings.max_steps, settings.max_tokens,
            settings.temperature, self._seed,
        )  # fmt: skip

    async def compare(self, candidate: int, incumbent: int, served: Sequence[int], load: Load) -> Comparison:
        settings = self._settings
        before = self.fingerprint()
        records = await self._records(before)
        # The candidate's own record grows when it is asked about again: that is what a hold asks for.
        tried = len(records.solved.get(candidate, {}))
        tasks = min(settings.max_trials, (tried // settings.trials + 1) * settings.trials)
        await self._measure(records, candidate, tasks)
        rivals: list[int] = []
        if incumbent != candidate:
            rivals.append(incumbent)
            await self._measure_other(records, incumbent, tasks, candidate, load)
        known = [version for version in served if version in records.solved and version != candidate]
        champion = max(known, key=lambda version: _rate(records.solved[version]), default=incumbent)
        if champion not in (incumbent, candidate):
            rivals.append(champion)
            await self._measure_other(records, champion, tasks, candidate, load)
        if self.fingerprint() != before:
            return Comparison("hold", "the environment changed during the measurement", {})
        await self._keep(records)
        return self._judge(records, candidate, rivals, void=bool(served) and not known)

    def _judge(self, records: Records, candidate: int, rivals: Sequence[int], *, void: bool) -> Comparison:
        settings = self._settings
        mine = records.solved[candidate]
        low, high = wilson(sum(mine.values()), len(mine), settings.confidence)
        figures = {"success": _rate(mine), "low": low, "high": high, "tasks": float(len(mine))}
        decision: Decision = "promote"
        parts = [f"{sum(mine.values())}/{len(mine)} held-out tasks"]
        for name, rival in zip(("incumbent", "best"), rivals, strict=False):
            theirs = records.solved[rival]
            common = sorted(mine.keys() & theirs.keys())
            pairs = Pairs.count([mine[task] for task in common], [theirs[task] for task in common])
            difference = newcombe_paired(pairs, settings.confidence)
            decision = both(decision, decide(difference, settings.margin))
            parts.append(f"{name} v{rival} {pairs.second}/{pairs.total}")
            figures |= {
                f"{name}_version": float(rival),
                f"{name}_success": pairs.second / pairs.total if pairs.total else 0.0,
                f"{name}_difference": difference.estimate,
                f"{name}_low": difference.low,
                f"{name}_high": difference.high,
                f"{name}_tasks": float(pairs.total),
            }
        figures["best_void"] = float(void)
        return Comparison(decision, ", ".join(parts), figures)

    async def _measure_other(self, records: Records, version: int, tasks: int, candidate: int, load: Load) -> None:
        """`_measure` for a version that is not loaded; the candidate is loaded again afterwards."""
        if len(records.solved.get(version, {})) >= tasks:
            return
        await load(version)
        try:
            await self._measure(records, version, tasks)
        finally:
            with anyio.CancelScope(shield=True):  # the rollouts go on with what is left in the engine
                await load(candidate)

    async def _measure(self, records: Records, version: int, tasks: int) -> None:
        """Play those of the first `tasks` held-out tasks that `version`, which is loaded, has no outcome for."""
        solved = records.solved.setdefault(version, {})
        missing = [number for number in range(tasks) if number not in solved]
        lost = 0
        slots = anyio.CapacityLimiter(self._settings.concurrency)

        async def one(number: int) -> None:
            nonlocal lost
            async with slots:
                outcome = await self._attempt(number, version)
            if outcome is None:
                lost += 1
            else:
                solved[number] = outcome

        async with anyio.create_task_group() as group:
            for number in missing:
                group.start_soon(one, number)
        self.lost += lost
        if lost > self._settings.max_lost * len(missing):
            raise DependencyUnavailable(f"{lost} of {len(missing)} held-out episodes broke down")
        _log.info("gate_measured", version=version, tasks=len(solved), solved=sum(solved.values()), lost=lost)

    async def _attempt(self, number: int, version: int) -> bool | None:
        settings = self._settings
        try:
            task = self._environment.sample(settings.first_seed + number, "heldout", settings.families or None)
            episode = await begin(self._environment, task, settings.step_timeout)
            played = await play(
                self._engine,
                episode,
                max_steps=settings.max_steps,
                max_tokens=settings.max_tokens,
                temperature=settings.temperature,
                seed=self._seed * 1_000_003 + number,
                timeout=settings.step_timeout,
            )
        except EpisodeLost as error:
            _log.info("gate_episode_lost", task=number, reason=str(error))
            return None
        if played.min_version >= 0 and not played.min_version == played.max_version == version:
            # The engine was restarted under us: these are not the weights that are asked about.
            _log.warning("gate_other_weights", wanted=version, oldest=played.min_version, newest=played.max_version)
            return None
        return played.outcome >= 0.5

    async def _records(self, fingerprint: str) -> Records:
        data = await self._store.state_get(_STATE)
        if data is not None:
            try:
                records = msgspec.msgpack.decode(data, type=Records)
            except msgspec.DecodeError as error:
                _log.warning("gate_records_unreadable", error=str(error))
            else:
                if records.fingerprint == fingerprint:
                    return records
                _log.info("gate_records_void", fingerprint=fingerprint, versions=len(records.solved))
        return Records(fingerprint)

    async def _keep(self, records: Records) -> None:
        for version in sorted(records.solved)[: -self._VERSIONS]:
            del records.solved[version]
        await self._store.state_put(_STATE, msgspec.msgpack.encode(records))


def _rate(solved: dict[int, bool]) -> float:
    return sum(solved.values()) / len(solved) if solved else 0.0
