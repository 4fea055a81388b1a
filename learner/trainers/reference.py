"""`Reference`: the model that the KL penalty pulls to, fixed or following the policy.

A fixed reference bounds how far the policy ever goes; a moving one bounds how fast, and lets a daemon that learns for
months go where its traffic leads. The moving one's weights are state: they go into the optimizer's file, so that a
resumed run repeats to the bit.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from learner.errors import CheckpointInvalid
from learner.settings import LearnerSettings
from learner.trainers.micro import Ints, Layout
from learner.trainers.model import Model

_AGE = "reference_age"


class Reference:
    """Weights without gradient; in bf16 on a GPU."""

    def __init__(
        self, settings: LearnerSettings, directory: Path, policy: Model, names: dict[str, torch.dtype]
    ) -> None:
        """
        Args:
            settings: `reference`, `reference_updates`.
            directory: weights to begin with.
            policy: the model under training.
            names: parameters that are kept in files; tied copies are not.

        Raises:
            CheckpointInvalid: a directory that cannot be loaded.
        """
        self._model = Model(settings, directory, like=policy)
        self._names = names
        self._every = settings.reference_updates if settings.reference == "moving" else 0
        self._age = 0

    def score(self, layout: Layout, rows: Ints) -> Tensor:
        """Log-probs of the trained tokens of `rows`, row by row."""
        return self._model.score(layout, rows)

    def follow(self, policy: Any) -> dict[str, float]:
        """Called after each update; for a moving one tells `reference_age`, the updates it lies back."""
        if not self._every:
            return {}
        self._age += 1
        if self._age >= self._every:
            self._take(dict(policy.named_parameters()))
        return {"reference_age": float(self._age)}

    def state(self) -> dict[str, Tensor]:
        """What a restart needs, by name; nothing for a fixed reference."""
        if not self._every:
            return {}
        kept = {f"reference.{name}": p.detach() for name, p in self._parameters().items()}
        return {_AGE: torch.tensor(float(self._age)), **kept}

    def restore(self, kept: dict[str, Tensor], policy: Any) -> None:
        """Take over what `state` gave; a moving reference that is not in it begins at the policy's present weights.

        Raises:
            CheckpointInvalid: tensors are missing or of another shape.
        """
        if not self._every:
            return
        if _AGE not in kept:
            self._take(dict(policy.named_parameters()))
            return
        own = {name: kept[key] for name in self._names if (key := f"reference.{name}") in kept}
        wrong = [name for name, p in self._parameters().items() if name not in own or own[name].shape != p.shape]
        if wrong:
            raise CheckpointInvalid(f"the reference's {wrong[0]} is missing or of another shape")
        self._take(own)
        self._age = int(kept[_AGE])

    def _take(self, weights: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, p in self._parameters().items():
                p.copy_(weights[name])
        self._age = 0

    def _parameters(self) -> dict[str, Tensor]:
        return {name: p for name, p in self._model.module.named_parameters() if name in self._names}
