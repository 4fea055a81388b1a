"""`NativeTrainer`: a Hugging Face causal model, AdamW and the policy loss, on a CPU or one GPU.

An update: old log-probs (recorded, or recomputed for guided rows) -> for each mini-batch: micro-batches add their share
of the gradient -> clip -> step -> guards. Nothing here can leave a NaN in the weights: a gradient that is not finite is
thrown away, and a step that moves the policy too far is halved or undone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from learner.batch import TrajectoryBatch
from learner.errors import CheckpointInvalid
from learner.loss import LossSettings, log_ratio_kl, policy_loss, truncated_weights
from learner.settings import LearnerSettings
from learner.trainers import UpdateReport
from learner.trainers.files import load_model, load_tensors, save_tensors, stored_dtypes
from learner.trainers.micro import Ints, Layout, Micro
from learner.versions import weight_files

PROBE_TOKENS = 512
"""Trained tokens that the KL guard looks at: enough to tell 0.1 from 0.01, a few per cent of an update's cost."""
CPU_BUDGET, GPU_BUDGET = 2048, 32768
"""Tokens of a micro-batch: what stays in a core's cache, and what keeps a GPU busy."""
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
            CheckpointUnsupported: parameter names that differ from the file's.
        """
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self._settings = settings
        device = settings.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self._device = torch.device(device)
        # Weights stay fp32 under bf16 arithmetic: at a learning rate of 1e-6 a bf16 weight would never move.
        self._model = load_model(weights, torch.float32, self._device)
        self._dtypes = stored_dtypes(weights, self._model)
        self._optimizer = self._new_optimizer()
        self._reference: Any = None
        if settings.kl_coef > 0:
            dtype = torch.bfloat16 if self._device.type == "cuda" else torch.float32
            self._reference = load_model(reference or weights, dtype, self._device).requires_grad_(False)
        self._loss = LossSettings(settings.dual_clip, settings.kl_coef)
        self._budget = settings.micro_tokens or (CPU_BUDGET if self._device.type == "cpu" else GPU_BUDGET)

    @property
    def vocabulary(self) -> int:
        return int(self._model.get_input_embeddings().weight.shape[0])

    @property
    def max_tokens(self) -> int:
        return int(getattr(self._model.config, "max_position_embeddings", 1 << 30))

    def log_probs(self, batch: TrajectoryBatch) -> npt.NDArray[np.float32]:
        layout = Layout(batch)
        rows = np.flatnonzero(layout.inputs > 0).astype(np.int64)
        return self._score(self._model, layout, rows).cpu().numpy()

    def update(self, batch: TrajectoryBatch, *, seed: int) -> UpdateReport:
        settings, layout = self._settings, Layout(batch)
        columns = _Columns(batch, layout, self._device)
        every = np.flatnonzero(layout.inputs > 0).astype(np.int64)
        metrics = self._prepare(columns, layout, every)
        # Guided rows are there to be moved a long way: a policy that never said a new tool's name has to begin. What
        # must not move far is what it does by itself.
        plain = np.flatnonzero(batch.guided == 0).astype(np.int64)
        probe = layout.probe(PROBE_TOKENS, plain if len(plain) else every) if settings.kl_limit > 0 else every[:0]
        before = self._score(self._model, layout, probe) if len(probe) else None
        reference = self._score(self._reference, layout, every) if self._reference is not None else None

        totals: dict[str, Tensor] = {}
        ratio_max = torch.zeros((), device=self._device)
        taken = lost = shrunk = undone = 0
        grad_norms: list[float] = []
        for rows in layout.deal(settings.mini_batches, seed):
            self._optimizer.zero_grad(set_to_none=True)
            for micro in layout.micro_batches(rows, self._budget):
                at = torch.from_numpy(micro.columns).to(self._device)
                result = policy_loss(
                    self._forward(self._model, micro),
                    columns.old[at],
                    columns.advantages[at],
                    columns.clip_low[at],
                    columns.clip_high[at],
                    total_tokens=float(layout.tokens(rows)),
                    settings=self._loss,
                    guided=columns.guided[at],
                    weights=columns.weights[at] if columns.weights is not None else None,
                    reference=reference[at] if reference is not None else None,
                )
                result.loss.backward()
                for name, value in result.sums.items():
                    totals[name] = totals[name] + value if name in totals else value
                ratio_max = torch.maximum(ratio_max, result.ratio_max)
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
        metrics |= _figures(totals, float(ratio_max), self._settings.kl_coef)
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
        tensors: dict[str, Tensor] = {}
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
                own = {
                    key: kept[f"{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}.{name}" in kept
                }
                if own:
                    self._optimizer.state[p] = {
                        key: value if key == "step" and not self._fused else value.to(p.device)
                        for key, value in own.items()
                    }

    @property
    def _fused(self) -> bool:
        return self._device.type == "cuda"

    def _new_optimizer(self) -> torch.optim.AdamW:
        settings = self._settings
        return torch.optim.AdamW(
            self._model.parameters(),
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=self._fused,
        )

    def _parameters(self) -> list[tuple[str, Tensor]]:
        return [(name, p) for name, p in self._model.named_parameters() if name in self._dtypes]

    def _prepare(self, columns: "_Columns", layout: Layout, every: Ints) -> dict[str, float]:
        """Put old log-probs and weights in place; returns what is to be told of them."""
        settings = self._settings
        guided = np.flatnonzero((columns.batch.guided > 0) & (layout.inputs > 0)).astype(np.int64)
        recompute = guided if settings.guided == "recomputed" else guided[:0]
        if settings.old_policy == "proximal":
            recompute = every
        if not len(recompute):
            return {}
        now = self._score(self._model, layout, recompute)
        at = columns.of(recompute)
        recorded = columns.old[at]
        columns.old[at] = now
        drift = now - recorded
        led = columns.guided[at]
        metrics: dict[str, float] = {}
        if bool(led.any()):
            # How far the stripped context is from the one that was sampled in: what a plain ratio would have to bridge.
            metrics["guided_log_ratio"] = float(drift[led].mean())
        if settings.old_policy == "proximal" and settings.truncate > 0:
            weights = truncated_weights(now, recorded, settings.truncate)
            if settings.guided == "recomputed":
                weights = torch.where(led, torch.ones_like(weights), weights)
            columns.weights = torch.ones_like(columns.old)
            columns.weights[at] = weights
            metrics["effective_share"] = float(weights.sum() ** 2 / (len(weights) * (weights**2).sum()))
        return metrics

    def _hold(self, layout: Layout, probe: Ints, before: Tensor, saved: Sequence[Tensor]) -> tuple[float, float]:
        """Halve the last step until the update's KL is within the limit.

        Returns:
            What is left of the step, 0 if it had to be undone, and the last KL seen.
        """
        fraction, kl = 1.0, 0.0
        for _ in range(HALVINGS + 1):
            kl = float(log_ratio_kl(self._score(self._model, layout, probe) - before).mean())
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

    @torch.no_grad()
    def _score(self, model: Any, layout: Layout, rows: Ints) -> Tensor:
        """Log-probs of the trained tokens of `rows`, in the order of `_Columns.of(rows)`; all rows: `(R,)`."""
        found = torch.empty(len(layout.row), device=self._device)
        for micro in layout.micro_batches(rows, self._budget):
            found[torch.from_numpy(micro.columns).to(self._device)] = self._forward(model, micro)
        return found[torch.from_numpy(layout.columns(rows)).to(self._device)]

    def _forward(self, model: Any, micro: Micro) -> Tensor:
        """Log-probs `(r,)`; the vocabulary is projected to at trained positions only."""
        device = self._device
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            # No attention mask: rows are padded on the right, and without one the causal kernel needs none built.
            hidden = model.base_model(input_ids=torch.from_numpy(micro.ids).to(device), use_cache=False)[0]
            chosen = hidden.flatten(0, 1)[torch.from_numpy(micro.context).to(device)]
            logits = model.get_output_embeddings()(chosen).float()
        if np.any(micro.temperature != 1.0):
            logits = logits / torch.from_numpy(micro.temperature).to(device)[:, None]
        return -F.cross_entropy(logits, torch.from_numpy(micro.target).to(device), reduction="none")


class _Columns:
    """A batch's trained tokens as tensors on the device, `(R,)` each."""

    def __init__(self, batch: TrajectoryBatch, layout: Layout, device: torch.device) -> None:
        on = batch.mask.astype(bool)

        def column(values: npt.NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        self.batch, self._layout, self._device = batch, layout, device
        self.old = column(batch.behaviour[on])
        self.advantages = column(batch.advantages[on])
        self.clip_low = column(batch.clip_low[on])
        self.clip_high = column(batch.clip_high[on])
        self.guided = column(batch.guided[layout.row] > 0)
        self.weights: Tensor | None = None

    def of(self, rows: Ints) -> Tensor:
        """Indices of the trained tokens of `rows`."""
        return torch.from_numpy(self._layout.columns(rows)).to(self._device)


def _figures(totals: dict[str, Tensor], ratio_max: float, kl_coef: float) -> dict[str, float]:
    """Means per token out of the loss' sums."""
    if not totals:
        return {}
    sums = {name: float(value) for name, value in totals.items()}
    plain, guided = sums["tokens_plain"], sums["tokens_guided"]
    n = max(1.0, plain + guided)
    return {
        "loss": (sums["policy"] + kl_coef * sums["kl_reference"]) / n,
        "kl_reference": sums["kl_reference"] / n,
        "kl_old": sums["kl_old"] / n,
        "ratio_mean": sums["ratio"] / n,
        "ratio_max": ratio_max,
        "surprise": sums["surprise"] / n,
        "clipped": sums["clipped_plain"] / max(1.0, plain),
        "clipped_guided": sums["clipped_guided"] / max(1.0, guided),
        "tokens": plain + guided,
        "tokens_guided": guided,
    }
