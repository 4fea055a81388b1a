"""The live loop of `tests.benchmarks.kinds` behind the gate's replay: a version serves once recorded outcomes let it.

    runs of what serves -> a fourth is the exam's, the rest waits -> an update -> `ReplayTrial` -> serves, or goes back

The decision is the real one at its defaults, on log-probs of the candidate's own forward pass. What is left out is what
comes after it, the trial in serving, and the checks of conduct beside it.
"""

import copy
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file

from actors.gate.replay_trial import ReplayTrial, ReplayTrialSettings
from actors.kinds.holdout import held_out
from actors.messages import Attributed, BatchItem
from learner.build import BuildSettings
from tests.benchmarks.ablation.loop import Loop, Point
from tests.benchmarks.ablation.plan import Setup
from tests.benchmarks.ablation.player import Weights


class _Shadow:
    """What the replay asks of the shadow engine."""

    def __init__(self, model: Any, versions: Path) -> None:
        self._model, self._versions = copy.deepcopy(model).eval(), versions

    async def load(self, version: int) -> None:
        own = load_file(self._versions / str(version) / "model.safetensors")
        with torch.no_grad():
            for name, p in self._model.named_parameters():
                p.copy_(own[name])

    async def log_probs(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        with torch.no_grad():
            row = torch.tensor([ids])
            logits = self._model(input_ids=row).logits[0, :-1].float()
            found = torch.log_softmax(logits, -1).gather(1, row[0, 1:, None])[:, 0]
        return np.concatenate([[np.float32("nan")], found.numpy()])


class _Exam:
    """The held-out runs, as the gate's store gives them."""

    def __init__(self) -> None:
        self.runs: deque[Attributed] = deque(maxlen=1024)

    async def exam(self, *, reported: bool, limit: int) -> list[Attributed]:
        return list(self.runs)[::-1][:limit]


class GatedLoop(Loop):
    """Live traffic of which each version must pass the gate before it serves."""

    def __init__(self, setup: Setup, base: Path, seed: int, work: Path) -> None:
        super().__init__(setup, base, seed, work)
        self._versions = work / "versions"
        self._chain, self._serving = [0], (0, self._now)
        self._waiting: list[BatchItem] = []
        self._exam = _Exam()
        self._keep(0)
        self._shadow = _Shadow(self._trainer._model, self._versions)
        self._trial = ReplayTrial(ReplayTrialSettings(), engine=cast(Any, self._shadow), store=cast(Any, self._exam))
        self.decisions: Counter[str] = Counter()
        self.rounds = 0
        self.first = 0
        """Round of the first promotion."""

    def measure(self) -> Point:
        """Success of what serves."""
        newest, self._now = self._now, self._serving[1]
        point = super().measure()
        self._now = newest
        return point

    def _arrived(self, fresh: Sequence[BatchItem]) -> Sequence[BatchItem]:
        """`fresh` as it comes from live traffic."""
        return fresh

    def _learn(self, fresh: Sequence[BatchItem]) -> None:
        self.rounds += 1
        for item in self._arrived(fresh):
            if held_out(item.attributed.id):
                self._exam.runs.append(item.attributed)
            else:
                self._waiting.append(item)
                self.kinds.tell(item.attributed.trajectory)
        lead = len(self._chain) - 1 - self._chain.index(self._serving[0])
        if len(self._waiting) >= len(fresh) and lead < self._settings.max_staleness:
            batch, self._waiting = self._waiting[: len(fresh)], self._waiting[len(fresh) :]
            version = self._version
            super()._learn(batch)
            if self._version > version:
                self._chain.append(self._version)
                self._keep(self._version)
        self._judge()
        self._sampling = self._serving

    def _expecting(self, fresh: Sequence[BatchItem]) -> Sequence[BatchItem]:
        runs = [item.attributed.trajectory for item in fresh]
        return [
            msgspec.structs.replace(item, estimate=self.kinds.estimate(run), kind=self.kinds.names(run))
            for item, run in zip(fresh, runs, strict=True)
        ]

    def _judge(self) -> None:
        head, serving = self._chain[-1], self._serving[0]
        if head == serving:
            return

        async def compared() -> str:
            await self._shadow.load(head)
            return (await self._trial.compare(head, serving, [], self._shadow.load)).decision

        decision = anyio.run(compared)
        self.decisions[decision] += 1
        if decision == "promote":
            self._serving, self.first = (head, self._now), self.first or self.rounds
        elif decision == "reject":
            kept = self._versions / str(serving)
            self._trainer.restore(kept, kept)
            self._chain = self._chain[: self._chain.index(serving) + 1]
            self._now = self._serving[1]
            self._waiting = [item for item in self._waiting if item.attributed.trajectory.min_version in self._chain]

    def _keep(self, version: int) -> None:
        directory = self._versions / str(version)
        directory.mkdir(parents=True)
        self._trainer.save(directory)
        self._trainer.save_state(directory)
        if version:
            self._now = Weights(directory, self._shape)

    def _limits(self) -> BuildSettings:
        return msgspec.structs.replace(super()._limits(), chain=tuple(self._chain), newest=self._version)
