"""`VerlTrainer`: the update of the native trainer on verl's FSDP2 engine; every rank runs it in step.

Old log-probs and weights, dealing to mini-batches, shares, loss and figures are the native trainer's code, the steps of
an update are the same, so the same batch and seed give the same weights up to rounding, whatever the number of ranks.
Nothing but log-probs, gradients and sums travels between ranks; each decides alike because it sees the same numbers.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from learner.batch import TrajectoryBatch
from learner.loss import LossSettings, log_ratio_kl, policy_loss, token_shares
from learner.settings import LearnerSettings
from learner.trainers import UpdateReport
from learner.trainers.figures import Sums, figures
from learner.trainers.files import stored_dtypes
from learner.trainers.micro import Ints, Layout
from learner.trainers.native import HALVINGS
from learner.trainers.staleness import Columns, check, judge, prepare
from learner.trainers.verl.engine import Engine
from learner.trainers.verl.files import local, restore, save_state, save_weights, state_of, stored_state
from learner.trainers.verl.reference import ShardedReference
from learner.trainers.verl.shards import shard

CPU_BUDGET, GPU_BUDGET = 2048, 32768
"""Tokens of a micro-batch on one rank."""


class VerlTrainer:
    """A `Trainer` spread over the ranks of the process group; each method is a collective with the same arguments."""

    def __init__(self, settings: LearnerSettings, weights: Path, *, reference: Path | None = None) -> None:
        """
        Args:
            settings: hyper-parameters; `device` follows verl's platform here.
            weights: directory of the model to train; its files also say in which precision weights are written.
            reference: directory of the model that the KL penalty pulls to; needed if `kl_coef` is above 0.

        Raises:
            CheckpointInvalid: a directory that cannot be loaded.
            CheckpointUnsupported: parameter names that differ from the file's.
        """
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self._settings = settings
        self._engine = Engine(settings, weights)
        self._device = self._engine.device
        self._dtypes = stored_dtypes(weights, self._engine.module)
        self._reference = (
            ShardedReference(settings, reference or weights, self._dtypes) if settings.kl_coef > 0 else None
        )
        self._loss = LossSettings(settings.dual_clip, settings.kl_coef)
        self._budget = settings.micro_tokens or (CPU_BUDGET if self._device.type == "cpu" else GPU_BUDGET)

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
        settings, layout = self._settings, Layout(batch)
        check(batch, layout, vocabulary=self.vocabulary, max_tokens=self.max_tokens)
        columns = Columns(batch, layout, self._device)
        every, metrics = prepare(columns, layout, settings, lambda rows: self._score(self._engine, layout, rows))
        dealt = layout.deal(settings.mini_batches, seed, every)
        reference = torch.zeros_like(columns.old)
        if self._reference is not None:
            reference[columns.of(every)] = self._score(self._reference.engine, layout, every)
        task = _Task(layout, columns, reference if self._reference is not None else None, Sums(self._device))

        probe = layout.probe(dealt[0]) if settings.kl_limit > 0 and dealt else every[:0]
        before: Tensor | None = None
        taken = lost = shrunk = undone = 0
        grad_norms: list[float] = []
        for rows in dealt:
            found = self._gradient(task, rows)
            if rows is dealt[0]:
                if settings.old_policy == "behaviour":
                    metrics |= judge(columns, columns.of(rows), found, settings)
                if len(probe):
                    unseen = not np.isin(probe, rows).all()
                    before = self._score(self._engine, layout, probe) if unseen else found[columns.of(probe)]
            saved = [local(p).detach().clone() for _, p in self._parameters()] if before is not None else []
            norm = self._engine.step()
            if not np.isfinite(norm):
                lost += 1
                continue
            grad_norms.append(norm)
            taken += 1
            if before is None:
                continue
            fraction, metrics["kl_update"] = self._hold(layout, probe, before, saved)
            if fraction < 1.0:
                shrunk += fraction > 0
                undone += fraction == 0
                taken -= fraction == 0
                break
        if taken and self._reference is not None:
            metrics["reference_age"] = float(self._reference.follow(self._parameters()))
        metrics |= self._figures(task.sums)
        metrics |= {
            "grad_norm": float(np.mean(grad_norms)) if grad_norms else 0.0,
            "steps": float(taken),
            "steps_nonfinite": float(lost),
            "steps_shrunk": float(shrunk),
            "steps_undone": float(undone),
            "ranks": float(dist.get_world_size()),
        }
        return UpdateReport(steps=taken, metrics=metrics)

    def save(self, directory: Path) -> None:
        save_weights(self._parameters(), self._dtypes, directory / "model.safetensors")

    def save_state(self, directory: Path) -> None:
        state = self._reference.state() if self._reference is not None else {}
        save_state(state | state_of(self._parameters(), self._engine.optimizer, self._dtypes), directory)

    def restore(self, weights: Path, state: Path | None) -> None:
        with stored_state(state) as kept:
            restore(self._parameters(), self._engine.optimizer, weights, kept)
            if self._reference is not None:
                self._reference.restore(kept, self._parameters())

    def _parameters(self) -> list[tuple[str, Tensor]]:
        return [(name, p) for name, p in self._engine.module.named_parameters() if name in self._dtypes]

    def _gradient(self, task: "_Task", rows: Ints) -> Tensor:
        """Compute the gradient of the mini-batch `rows`; log-probs `(R,)`, only those of `rows` are meant."""
        layout, columns = task.layout, task.columns
        share = torch.zeros_like(columns.old)
        share[columns.of(rows)] = self._shares(layout, rows).to(share)
        found = torch.zeros_like(columns.old)

        def loss(log_probs: Tensor, at: Tensor) -> Tensor:
            result = policy_loss(
                log_probs,
                columns.old[at],
                columns.advantages[at],
                columns.clip_low[at],
                columns.clip_high[at],
                share=share[at],
                settings=self._loss,
                guided=columns.guided[at],
                weights=columns.weights[at] if columns.weights is not None else None,
                reference=task.reference[at] if task.reference is not None else None,
            )
            task.sums.add(result)
            found[at] = log_probs.detach()
            return result.loss

        self._engine.gradient(shard(layout, rows, self._engine.part, self._engine.parts, self._budget), loss)
        return self._engine.reduce(found)

    def _shares(self, layout: Layout, rows: Ints) -> Tensor:
        """Each trained token's share in the loss of the mini-batch `rows`, whichever rank it is on, `(r,)`."""
        return token_shares(
            layout.first[rows + 1] - layout.first[rows],
            self._settings.aggregation,
            row_weights=layout.batch.row_weights[rows],
            norm=self._settings.aggregation_tokens,
        )

    def _figures(self, sums: Sums) -> dict[str, float]:
        """Means per token over all ranks; a collective."""
        if not sums.sums:
            return {}
        together = self._engine.reduce(torch.stack([value.double() for value in sums.sums.values()]))
        largest = self._engine.reduce(sums.ratio_max, dist.ReduceOp.MAX)
        return figures(dict(zip(sums.sums, together, strict=True)), float(largest), self._settings.kl_coef)

    def _hold(self, layout: Layout, probe: Ints, before: Tensor, saved: list[Tensor]) -> tuple[float, float]:
        """Halve the last step until the update's KL is within the limit.

        Returns:
            What is left of the step, 0 if it had to be undone, and the last KL seen.
        """
        fraction, kl = 1.0, 0.0
        own = [local(p) for _, p in self._parameters()]
        for _ in range(HALVINGS + 1):
            kl = float(log_ratio_kl(self._score(self._engine, layout, probe) - before).mean())
            if kl <= self._settings.kl_limit:  # False for NaN
                return fraction, kl
            fraction /= 2
            with torch.no_grad():
                for p, old in zip(own, saved, strict=True):
                    p.lerp_(old, 0.5)
        with torch.no_grad():
            for p, old in zip(own, saved, strict=True):
                p.copy_(old)
        return 0.0, kl

    def _score(self, engine: Engine, layout: Layout, rows: Ints) -> Tensor:
        """Log-probs of the trained tokens of `rows`, row by row, on every rank; all rows: `(R,)`."""
        found = torch.zeros(len(layout.row), device=self._device)

        def take(log_probs: Tensor, at: Tensor) -> None:
            found[at] = log_probs

        engine.score(shard(layout, rows, engine.part, engine.parts, self._budget), take)
        return engine.reduce(found)[torch.from_numpy(layout.columns(rows)).to(self._device)]


class _Task(NamedTuple):
    """What every mini-batch of an update needs."""

    layout: Layout
    columns: Columns
    reference: Tensor | None
    """`(R,)` log-probs."""
    sums: Sums
