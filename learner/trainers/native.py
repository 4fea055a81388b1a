"""`NativeTrainer`: a Hugging Face causal model, AdamW and the policy loss, on a CPU or one GPU.

An update: old log-probs and weights (`staleness`) -> for each mini-batch: micro-batches of packed rows add their share
of the gradient -> clip -> step -> guards. Nothing here can leave a NaN in the weights: a gradient that is not finite is
thrown away, and a step that moves the policy too far is halved or undone. No forward is done twice: the guard compares
with the log-probs that the first mini-batch's training had to compute.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from learner.batch import TrajectoryBatch
from learner.errors import CheckpointInvalid
from learner.loss import LossSettings, log_ratio_kl, policy_loss, token_shares
from learner.settings import LearnerSettings
from learner.trainers import UpdateReport
from learner.trainers.figures import Sums, figures
from learner.trainers.files import load_tensors, save_tensors, stored_dtypes
from learner.trainers.micro import Ints, Layout
from learner.trainers.model import Model
from learner.trainers.reference import Reference
from learner.trainers.staleness import Columns, check, judge, prepare
from learner.versions import weight_files

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
HALVINGS = 6
"""A step is cut to a 64th at most before it is undone; KL falls with the square of it while the step is small."""


class NativeTrainer:
    """A `Trainer` in this process."""

    def __init__(self, settings: LearnerSettings, weights: Path, *, reference: Path | None = None) -> None:
        """
        Args:
            settings: hyper-parameters, device, threads.
            weights: directory of the model to train; its files also say in which precision weights are written.
            reference: directory of the model that the KL penalty pulls to; needed if `kl_coef` is above 0.

        Raises:
            CheckpointInvalid: a directory that cannot be loaded.
            CheckpointUnsupported: parameter names that differ from the file's, or a model whose log-probs are more than
                its output embeddings of its hidden states.
        """
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self._settings = settings
        self._policy = Model(settings, weights)
        self._model, self._device = self._policy.module, self._policy.device
        self._dtypes = stored_dtypes(weights, self._model)
        self._optimizer = self._new_optimizer()
        self._reference = (
            Reference(settings, reference or weights, self._policy, self._dtypes) if settings.kl_coef > 0 else None
        )
        self._loss = LossSettings(settings.dual_clip, settings.kl_coef)

    @property
    def vocabulary(self) -> int:
        return int(self._model.get_input_embeddings().weight.shape[0])

    @property
    def max_tokens(self) -> int:
        return int(getattr(self._model.config, "max_position_embeddings", 1 << 30))

    def log_probs(self, batch: TrajectoryBatch) -> npt.NDArray[np.float32]:
        layout = Layout(batch)
        check(batch, layout, vocabulary=self.vocabulary, max_tokens=self.max_tokens)
        return self._policy.score(layout, layout.trained).cpu().numpy()

    def update(self, batch: TrajectoryBatch, *, seed: int) -> UpdateReport:
        settings, layout = self._settings, Layout(batch)
        check(batch, layout, vocabulary=self.vocabulary, max_tokens=self.max_tokens)
        columns = Columns(batch, layout, self._device)
        every, metrics = prepare(columns, layout, settings, lambda rows: self._policy.score(layout, rows))
        dealt = layout.deal(settings.mini_batches, seed, every)
        reference = torch.zeros_like(columns.old)
        if self._reference is not None:
            reference[columns.of(every)] = self._reference.score(layout, every)
        task = _Task(layout, columns, reference if self._reference is not None else None, Sums(self._device))

        probe = layout.probe(dealt[0]) if settings.kl_limit > 0 and dealt else every[:0]
        before: Tensor | None = None
        taken = lost = shrunk = undone = 0
        grad_norms: list[float] = []
        for rows in dealt:
            self._optimizer.zero_grad(set_to_none=True)
            found = self._gradient(task, rows)
            if rows is dealt[0]:
                if settings.old_policy == "behaviour":
                    # Nothing has moved yet: a batch that turns out to be noise costs one mini-batch's forward.
                    metrics |= judge(columns, columns.of(rows), found, settings)
                if len(probe):
                    unseen = not np.isin(probe, rows).all()
                    before = self._policy.score(layout, probe) if unseen else found[columns.of(probe)]
            norm = float(torch.nn.utils.clip_grad_norm_(self._model.parameters(), settings.max_grad_norm))
            if not np.isfinite(norm):
                lost += 1
                continue
            grad_norms.append(norm)
            saved = [p.detach().clone() for p in self._model.parameters()] if before is not None else []
            self._optimizer.step()
            taken += 1
            if before is None:
                continue
            fraction, metrics["kl_update"] = self._hold(layout, probe, before, saved)
            if fraction < 1.0:
                shrunk += fraction > 0
                undone += fraction == 0
                taken -= fraction == 0
                break
        self._optimizer.zero_grad(set_to_none=True)
        if taken and self._reference is not None:
            metrics |= self._reference.follow(self._model)
        metrics |= figures(task.sums.sums, float(task.sums.ratio_max), settings.kl_coef)
        metrics |= {
            "grad_norm": float(np.mean(grad_norms)) if grad_norms else 0.0,
            "steps": float(taken),
            "steps_nonfinite": float(lost),
            "steps_shrunk": float(shrunk),
            "steps_undone": float(undone),
        }
        return UpdateReport(steps=taken, metrics=metrics)

    def save(self, directory: Path) -> None:
        tensors = {name: p.detach().to("cpu", self._dtypes[name]) for name, p in self._parameters()}
        save_tensors(tensors, directory / "model.safetensors")

    def save_state(self, directory: Path) -> None:
        tensors: dict[str, Tensor] = self._reference.state() if self._reference is not None else {}
        for name, p in self._parameters():
            if self._dtypes[name] != torch.float32:
                tensors[f"master.{name}"] = p.detach().cpu()
            for key, value in self._optimizer.state.get(p, {}).items():
                tensors[f"{key}.{name}"] = value.detach().cpu()
        save_tensors(tensors, directory / "optimizer.safetensors")

    def restore(self, weights: Path, state: Path | None) -> None:
        stored = load_tensors(*weight_files(weights))
        kept = load_tensors(state / "optimizer.safetensors") if state is not None else {}
        self._optimizer = self._new_optimizer()
        wrong = [name for name, p in self._parameters() if name not in stored or stored[name].shape != p.shape]
        if wrong:
            raise CheckpointInvalid(f"{weights}: {wrong[0]} is missing or of another shape")
        with torch.no_grad():
            for name, p in self._parameters():
                p.copy_(kept.get(f"master.{name}", stored[name]))
                own = {key: kept[f"{key}.{name}"].to(p.device) for key in _MOMENTS if f"{key}.{name}" in kept}
                if own:
                    self._optimizer.state[p] = own
        if self._reference is not None:
            self._reference.restore(kept, self._model)

    def _new_optimizer(self) -> torch.optim.AdamW:
        settings = self._settings
        return torch.optim.AdamW(
            self._model.parameters(),
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,  # 27M parameters on one core: 20 ms a step, 90 without
        )

    def _parameters(self) -> list[tuple[str, Tensor]]:
        return [(name, p) for name, p in self._model.named_parameters() if name in self._dtypes]

    def _gradient(self, task: "_Task", rows: Ints) -> Tensor:
        """Add the gradient of the mini-batch `rows`; log-probs `(R,)`, only those of `rows` are meant."""
        layout, columns = task.layout, task.columns
        share = torch.zeros_like(columns.old)
        share[columns.of(rows)] = self._shares(layout, rows).to(share)
        found = torch.zeros_like(columns.old)
        for micro in layout.micro_batches(rows, self._policy.budget):
            at = torch.from_numpy(micro.columns).to(self._device)
            log_probs = self._policy.log_probs(micro)
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
            result.loss.backward()
            task.sums.add(result)
            found[at] = log_probs.detach().float()
        return found

    def _shares(self, layout: Layout, rows: Ints) -> Tensor:
        """Each trained token's share in the loss of the mini-batch `rows`, `(r,)`."""
        return token_shares(
            layout.first[rows + 1] - layout.first[rows],
            self._settings.aggregation,
            row_weights=layout.batch.row_weights[rows],
            norm=self._settings.aggregation_tokens,
        )

    def _hold(self, layout: Layout, probe: Ints, before: Tensor, saved: Sequence[Tensor]) -> tuple[float, float]:
        """Halve the last step until the update's KL is within the limit.

        Returns:
            What is left of the step, 0 if it had to be undone, and the last KL seen.
        """
        fraction, kl = 1.0, 0.0
        for _ in range(HALVINGS + 1):
            kl = float(log_ratio_kl(self._policy.score(layout, probe) - before).mean())
            if kl <= self._settings.kl_limit:  # False for NaN
                return fraction, kl
            fraction /= 2
            with torch.no_grad():
                for p, old in zip(self._model.parameters(), saved, strict=True):
                    p.lerp_(old, 0.5)
        with torch.no_grad():
            for p, old in zip(self._model.parameters(), saved, strict=True):
                p.copy_(old)
        return 0.0, kl


class _Task(NamedTuple):
    """What every mini-batch of an update needs."""

    layout: Layout
    columns: Columns
    reference: Tensor | None
    """`(R,)` log-probs."""
    sums: Sums
