"""`NativeTrainer`: a Hugging Face causal model, AdamW and the policy loss, on a CPU or one GPU.

An update's steps are in `steps`; here they are computed: micro-batches of packed rows add their share of the gradient,
however they are cut. And here is what the model and the optimizer leave in files.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from actors.messages import FileDigest
from learner.batch import TrajectoryBatch
from learner.errors import CheckpointInvalid
from learner.settings import BETA1, MAX_GRAD_NORM, LearnerSettings
from learner.trainers import UpdateReport
from learner.trainers.files import load_tensors, save_tensors, stored_dtypes
from learner.trainers.micro import Ints, Layout
from learner.trainers.model import Model
from learner.trainers.rewarm import LEFT, STEPS, Rewarming
from learner.trainers.staleness import check
from learner.trainers.steps import Loss, Sums, Update
from learner.versions import weight_files

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class NativeTrainer:
    """A `Trainer` in this process."""

    def __init__(self, settings: LearnerSettings, weights: Path, *, reference: Path | None = None) -> None:
        """`weights` also says in which precision weights are written; `reference`, which the KL penalty pulls to, is
        needed if `kl_coef` is above 0. CheckpointInvalid, or CheckpointUnsupported: other parameter names than the
        file's."""
        self._settings = settings
        self._policy = Model(settings, weights)
        self._model = self._policy.module
        self._dtypes = stored_dtypes(weights, self._model)
        self._optimizer, self._rewarming = self._new_optimizer(), Rewarming()
        self._reference = Model(settings, reference or weights, like=self._policy) if settings.kl_coef > 0 else None

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
        layout = Layout(batch)
        check(batch, layout, vocabulary=self.vocabulary, max_tokens=self.max_tokens)
        return Update(self._settings, self, batch, layout).run(seed)

    def save(self, directory: Path) -> Sequence[FileDigest]:
        return [save_tensors(dict(self._parameters()), directory / "model.safetensors", dtypes=self._dtypes)]

    def save_state(self, directory: Path) -> Sequence[FileDigest]:
        tensors: dict[str, Tensor] = {}
        for name, p in self._parameters():
            tensors[f"master.{name}"] = p.detach()
            for key, value in self._optimizer.state.get(p, {}).items():
                tensors[f"{key}.{name}"] = value.detach()
        return [save_tensors(tensors | self._rewarming.state(), directory / "optimizer.safetensors")]

    def restore(self, weights: Path, state: Path | None, *, rewarm: bool = False) -> None:
        stored = self._stored(weights)
        kept = load_tensors(state / "optimizer.safetensors") if state is not None else {}
        self._optimizer = self._new_optimizer()
        with torch.no_grad():
            for name, p in self._parameters():
                p.copy_(kept.get(f"master.{name}", stored[name]))
                own = {key: kept[f"{key}.{name}"].to(p.device) for key in _MOMENTS if f"{key}.{name}" in kept}
                if own:
                    self._optimizer.state[p] = own
        self._rewarming.start(int(kept[LEFT]) if LEFT in kept else STEPS if rewarm else 0)

    def settle(self, weights: Path) -> int:
        stored, differing = self._stored(weights), 0
        with torch.no_grad():
            for name, p in self._parameters():
                there = stored[name].to(p.device)
                other = p.to(there.dtype) != there
                differing += int(other.sum())
                p.copy_(torch.where(other, there.to(p.dtype), p))
        return differing

    def _stored(self, weights: Path) -> dict[str, Tensor]:
        """
        Raises:
            CheckpointInvalid: files that do not fit the model.
        """
        stored = load_tensors(*weight_files(weights))
        wrong = [name for name, p in self._parameters() if name not in stored or stored[name].shape != p.shape]
        if wrong:
            raise CheckpointInvalid(f"{weights}: {wrong[0]} is missing or of another shape")
        return stored

    def _new_optimizer(self) -> torch.optim.AdamW:
        settings = self._settings
        return torch.optim.AdamW(
            self._model.parameters(),
            lr=settings.lr,
            betas=(BETA1, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,  # 27M parameters on one core: 20 ms a step, 90 without
        )

    def _parameters(self) -> list[tuple[str, Tensor]]:
        return [(name, p) for name, p in self._model.named_parameters() if name in self._dtypes]

    # What follows is the `steps.Arithmetic` of an update.

    @property
    def device(self) -> torch.device:
        return self._policy.device

    def score(self, layout: Layout, rows: Ints) -> Tensor:
        return self._policy.score(layout, rows)

    def anchor(self, layout: Layout, rows: Ints) -> Tensor | None:
        return self._reference.score(layout, rows) if self._reference is not None else None

    def gradient(self, layout: Layout, rows: Ints, loss: Loss) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        found = torch.zeros(len(layout.row), device=self.device)
        for micro in layout.micro_batches(rows, self._policy.budget):
            at = torch.from_numpy(micro.columns).to(self.device)
            log_probs = self._policy.log_probs(micro)
            loss(log_probs, at).backward()
            found[at] = log_probs.detach().float()
        return found

    def step(self) -> float:
        norm = float(torch.nn.utils.clip_grad_norm_(self._model.parameters(), MAX_GRAD_NORM))
        if np.isfinite(norm):
            self._rewarming.prepare(self._optimizer, self._settings.lr)
            self._optimizer.step()
            self._rewarming.stepped()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def tensors(self) -> list[Tensor]:
        return list(self._model.parameters())

    def together(self, sums: Sums) -> Sums:
        return sums
