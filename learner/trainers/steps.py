"""`Update`: the steps of one update, the same in every trainer.

    old log-probs (`staleness`) -> for each mini-batch: gradient -> clip -> step -> guard

A trainer brings what differs, its `Arithmetic`: how log-probs and gradients come about and where weights live. On
several ranks each runs all of this and decides alike, because it sees the same numbers. Nothing here can leave a NaN in
the weights: a gradient that is not finite is thrown away, and a step that moves the policy too far is halved or undone.
No forward is done twice: the guard compares with the log-probs that the first mini-batch's training had to compute.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from learner.batch import TrajectoryBatch
from learner.loss import LossResult, log_ratio_kl, policy_loss
from learner.settings import LearnerSettings
from learner.trainers import UpdateReport
from learner.trainers.micro import Ints, Layout
from learner.trainers.staleness import Columns, judge, prepare

HALVINGS = 6
"""A step is cut to a 64th at most before it is undone; KL falls with the square of it while the step is small."""
Loss = Callable[[Tensor, Tensor], Tensor]
"""From the log-probs `(r,)` of a micro-batch's trained tokens and their columns `(r,)` to its part of the loss."""


class Sums:
    """The loss' statistics, added up over micro-batches on the device; nothing waits for it before the end."""

    def __init__(self, device: torch.device) -> None:
        self.sums: dict[str, Tensor] = {}
        self.ratio_max = torch.zeros((), device=device)

    def add(self, result: LossResult) -> None:
        """Take over one micro-batch's."""
        for name, value in result.sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.ratio_max = torch.maximum(self.ratio_max, result.ratio_max)


class Arithmetic(Protocol):
    """What an update asks of a trainer; on several ranks each method is a collective."""

    @property
    def device(self) -> torch.device: ...

    def score(self, layout: Layout, rows: Ints) -> Tensor:
        """Log-probs, without gradient, of the trained tokens of `rows`, row by row; all rows: `(R,)`."""
        ...

    def anchor(self, layout: Layout, rows: Ints) -> Tensor | None:
        """The same under the reference; None if there is none."""
        ...

    def gradient(self, layout: Layout, rows: Ints, loss: Loss) -> Tensor:
        """Compute the gradient of the sum of `loss` over the micro-batches of `rows`, in place of the one before.

        Returns:
            `(R,)` log-probs; only those of `rows` are meant.
        """
        ...

    def step(self) -> float:
        """Clip that gradient and step; its norm before. If that is not finite, nothing was done."""
        ...

    def tensors(self) -> Sequence[Tensor]:
        """The weights under training, in place; of several ranks each its own part."""
        ...

    def together(self, sums: Sums) -> Sums:
        """`sums` put together over the ranks."""
        ...


class Update:
    """One update."""

    def __init__(self, settings: LearnerSettings, by: Arithmetic, batch: TrajectoryBatch, layout: Layout) -> None:
        """
        Args:
            by: the trainer's.
            batch: checked (`staleness.check`).
            layout: of the same batch.
        """
        self._settings, self._by, self._batch, self._layout = settings, by, batch, layout
        self._columns = Columns(batch, layout, by.device)
        self._reference: Tensor | None = None
        """`(R,)` log-probs."""
        self._sums = Sums(by.device)

    def run(self, seed: int) -> UpdateReport:
        """See `Trainer.update`."""
        settings, by, layout, columns = self._settings, self._by, self._layout, self._columns
        every, metrics = layout.trained, prepare(columns, layout, lambda rows: by.score(layout, rows))
        dealt = layout.deal(settings.mini_batches, seed, every)
        untrained = dict.fromkeys(every.tolist(), "update_limit")
        anchor = by.anchor(layout, every)
        if anchor is not None:
            self._reference = torch.zeros_like(columns.old)
            self._reference[columns.of(every)] = anchor

        probe = layout.probe(dealt[0]) if settings.kl_limit > 0 and dealt else every[:0]
        before: Tensor | None = None
        taken = lost = shrunk = undone = 0
        grad_norms: list[float] = []
        saved: list[Tensor] = []
        for rows in dealt:
            saved.clear()  # the last step's stand no more beside this one's gradient, nor beside the next copy
            found = self._gradient(rows)
            if rows is dealt[0]:
                # Nothing has moved yet: a batch that turns out to be noise costs one mini-batch's forward.
                metrics |= judge(columns, columns.of(rows), found)
                if len(probe):
                    unseen = not np.isin(probe, rows).all()
                    before = by.score(layout, probe) if unseen else found[columns.of(probe)]
            if before is not None:
                saved += [p.detach().clone() for p in by.tensors()]
            norm = by.step()
            if not np.isfinite(norm):
                lost += 1
                untrained |= dict.fromkeys(rows.tolist(), "nonfinite_gradient")
                continue
            grad_norms.append(norm)
            taken += 1
            fraction = 1.0
            if before is not None:
                fraction, metrics["kl_update"] = self._hold(probe, before, saved)
            if fraction > 0:
                for row in rows.tolist():
                    del untrained[row]
            if fraction < 1.0:
                shrunk += fraction > 0
                undone += fraction == 0
                taken -= fraction == 0
                break
        metrics |= figures(by.together(self._sums), settings.kl_coef)
        metrics |= {
            "grad_norm": float(np.mean(grad_norms)) if grad_norms else 0.0,
            "steps": float(taken),
            "steps_nonfinite": float(lost),
            "steps_shrunk": float(shrunk),
            "steps_undone": float(undone),
        }
        return UpdateReport(steps=taken, metrics=metrics, untrained=untrained)

    def _gradient(self, rows: Ints) -> Tensor:
        """Compute the gradient of the mini-batch `rows`; log-probs `(R,)`, only those of `rows` are meant."""
        layout, columns = self._layout, self._columns
        share = torch.zeros_like(columns.old)
        share[columns.of(rows)] = 1.0 / max(1, layout.tokens(rows))
        if columns.bound is not None:
            share[columns.bound] = 0.0

        def loss(log_probs: Tensor, at: Tensor) -> Tensor:
            result = policy_loss(
                log_probs,
                columns.old[at],
                columns.advantages[at],
                columns.clip_low[at],
                columns.clip_high[at],
                share=share[at],
                kl_coef=self._settings.kl_coef,
                guided=columns.guided[at],
                reference=self._reference[at] if self._reference is not None else None,
            )
            self._sums.add(result)
            return result.loss

        return self._by.gradient(layout, rows, loss)

    def _hold(self, probe: Ints, before: Tensor, saved: Sequence[Tensor]) -> tuple[float, float]:
        """Halve the last step until the update's KL on the rows `probe` is within the limit; what is left of the step,
        0 if it had to be undone, and the last KL seen."""
        fraction, kl, weights = 1.0, 0.0, self._by.tensors()
        for _ in range(HALVINGS + 1):
            kl = float(log_ratio_kl(self._by.score(self._layout, probe) - before).mean())
            if kl <= self._settings.kl_limit:  # False for NaN
                return fraction, kl
            fraction /= 2
            with torch.no_grad():
                for p, old in zip(weights, saved, strict=True):
                    p.lerp_(old, 0.5)
        with torch.no_grad():
            for p, old in zip(weights, saved, strict=True):
                p.copy_(old)
        return 0.0, kl


def figures(totals: Sums, kl_coef: float) -> dict[str, float]:
    """What is told of an update, in means per token; empty without any."""
    if not totals.sums:
        return {}
    sums = {name: float(value) for name, value in totals.sums.items()}
    plain, guided = sums["tokens_plain"], sums["tokens_guided"]
    n = max(1.0, plain + guided)
    return {
        "loss": (sums["policy"] + kl_coef * sums["kl_reference"]) / n,
        "kl_reference": sums["kl_reference"] / n,
        "kl_old": sums["kl_old"] / n,
        "ratio_mean": sums["ratio"] / n,
        "ratio_max": float(totals.ratio_max),
        "surprise": sums["surprise"] / n,
        "clipped": sums["clipped_plain"] / max(1.0, plain),
        "clipped_guided": sums["clipped_guided"] / max(1.0, guided),
        "tokens": plain + guided,
        "tokens_guided": guided,
    }
