"""`VerlTrainer`: the update of the native trainer on verl's FSDP2 engine; every rank runs it in step.

Everything but the arithmetic is the native trainer's code (`learner.trainers.steps`), so the same batch and seed give
the same weights up to rounding, whatever the number of ranks. Nothing but log-probs, gradients and sums travels between
ranks; each decides alike because it sees the same numbers.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from actors.messages import FileDigest
from learner.batch import TrajectoryBatch
from learner.settings import LearnerSettings
from learner.sizing import CPU_BUDGET, GPU_BUDGET
from learner.trainers import UpdateReport
from learner.trainers.files import stored_dtypes
from learner.trainers.micro import Ints, Layout
from learner.trainers.rewarm import LEFT, STEPS, Rewarming
from learner.trainers.staleness import check
from learner.trainers.steps import Loss, Sums, Update
from learner.trainers.verl.engine import Engine
from learner.trainers.verl.files import local, restore, save_state, save_weights, settle, state_of, stored_state
from learner.trainers.verl.shards import Shard, shard


class VerlTrainer:
    """A `Trainer` spread over the ranks of the process group; each method is a collective with the same arguments."""

    def __init__(self, settings: LearnerSettings, weights: Path, *, reference: Path | None = None) -> None:
        """As `NativeTrainer`; the device follows verl's platform."""
        self._settings = settings
        self._engine, self._rewarming = Engine(settings, weights), Rewarming()
        self._dtypes = stored_dtypes(weights, self._engine.module)
        self._reference = Engine(settings, reference or weights, frozen=True) if settings.kl_coef > 0 else None
        self._budget = settings.micro_tokens or (CPU_BUDGET if self.device.type == "cpu" else GPU_BUDGET)

    @property
    def vocabulary(self) -> int:
        return int(self._engine.module.get_input_embeddings().weight.shape[0])

    @property
    def max_tokens(self) -> int:
        return int(getattr(self._engine.module.config, "max_position_embeddings", 1 << 30))

    def log_probs(self, batch: TrajectoryBatch) -> npt.NDArray[np.float32]:
        layout = Layout(batch)
        check(batch, layout, vocabulary=self.vocabulary, max_tokens=self.max_tokens)
        return self._score(self._engine, layout, layout.trained).cpu().numpy()

    def update(self, batch: TrajectoryBatch, *, seed: int) -> UpdateReport:
        layout = Layout(batch)
        check(batch, layout, vocabulary=self.vocabulary, max_tokens=self.max_tokens)
        report = Update(self._settings, self, batch, layout).run(seed)
        return msgspec.structs.replace(report, metrics=report.metrics | {"ranks": float(dist.get_world_size())})

    def save(self, directory: Path) -> Sequence[FileDigest]:
        return save_weights(self._parameters(), self._dtypes, directory / "model.safetensors")

    def save_state(self, directory: Path) -> Sequence[FileDigest]:
        return save_state(state_of(self._parameters(), self._engine.optimizer) | self._rewarming.state(), directory)

    def restore(self, weights: Path, state: Path | None, *, rewarm: bool = False) -> None:
        with stored_state(state) as kept:
            restore(self._parameters(), self._engine.optimizer, weights, kept)
            self._rewarming.start(int(kept.scalar(LEFT)) if LEFT in kept else STEPS if rewarm else 0)

    def settle(self, weights: Path) -> int:
        return settle(self._parameters(), self._dtypes, weights)

    def _parameters(self) -> list[tuple[str, Tensor]]:
        return [(name, p) for name, p in self._engine.module.named_parameters() if name in self._dtypes]

    # What follows is the `steps.Arithmetic` of an update.

    @property
    def device(self) -> torch.device:
        return self._engine.device

    def score(self, layout: Layout, rows: Ints) -> Tensor:
        return self._score(self._engine, layout, rows)

    def anchor(self, layout: Layout, rows: Ints) -> Tensor | None:
        return self._score(self._reference, layout, rows) if self._reference is not None else None

    def gradient(self, layout: Layout, rows: Ints, loss: Loss) -> Tensor:
        found = torch.zeros(len(layout.row), device=self.device)

        def keep(log_probs: Tensor, at: Tensor) -> Tensor:
            found[at] = log_probs.detach()
            return loss(log_probs, at)

        self._engine.gradient(self._shard(self._engine, layout, rows), keep)
        return self._engine.reduce(found)

    def step(self) -> float:
        self._rewarming.prepare(self._engine.optimizer, self._settings.lr)
        norm = self._engine.step()
        if np.isfinite(norm):
            self._rewarming.stepped()
        return norm

    def tensors(self) -> list[Tensor]:
        return [local(p) for _, p in self._parameters()]

    def together(self, sums: Sums) -> Sums:
        if not sums.sums:
            return sums
        whole, values = Sums(self.device), torch.stack([value.double() for value in sums.sums.values()])
        whole.sums = dict(zip(sums.sums, self._engine.reduce(values), strict=True))
        whole.ratio_max = self._engine.reduce(sums.ratio_max, dist.ReduceOp.MAX)
        return whole

    def _score(self, engine: Engine, layout: Layout, rows: Ints) -> Tensor:
        found = torch.zeros(len(layout.row), device=self.device)

        def take(log_probs: Tensor, at: Tensor) -> None:
            found[at] = log_probs

        engine.score(self._shard(engine, layout, rows), take)
        return engine.reduce(found)[torch.from_numpy(layout.columns(rows)).to(self.device)]

    def _shard(self, engine: Engine, layout: Layout, rows: Ints) -> Shard:
        return shard(layout, rows, engine.part, engine.parts, self._budget)
