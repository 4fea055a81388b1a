"""`ShardedReference`: the model that the KL penalty pulls to, sharded as the policy is.

The same life and the same names in the state as `learner.trainers.reference`.
"""

from pathlib import Path

import torch
from torch import Tensor

from learner.errors import CheckpointInvalid
from learner.settings import LearnerSettings
from learner.trainers.verl.engine import Engine
from learner.trainers.verl.files import Stored, local

_AGE = "reference_age"
Named = list[tuple[str, Tensor]]


class ShardedReference:
    """Weights without gradient; in bf16 on a GPU."""

    def __init__(self, settings: LearnerSettings, directory: Path, names: dict[str, torch.dtype]) -> None:
        """
        Args:
            settings: `reference`, `reference_updates`.
            directory: weights to begin with.
            names: parameters that are kept in files; tied copies are not.

        Raises:
            CheckpointInvalid: a directory that cannot be loaded.
        """
        self.engine = Engine(settings, directory, frozen=True)
        self._names = names
        self._every = settings.reference_updates if settings.reference == "moving" else 0
        self._age = 0

    def follow(self, policy: Named) -> dict[str, float]:
        """Called after each update; for a moving one tells `reference_age`, the updates it lies back."""
        if not self._every:
            return {}
        self._age += 1
        if self._age >= self._every:
            self._take(dict(policy))
        return {"reference_age": float(self._age)}

    def state(self) -> dict[str, Tensor]:
        """What a restart needs, under the native trainer's names; for a fixed reference its age alone."""
        kept: dict[str, Tensor] = {_AGE: torch.tensor(float(self._age))}
        if self._every:
            kept |= {f"reference.{name}": p.detach() for name, p in self._parameters().items()}
        return kept

    def restore(self, kept: Stored, policy: Named) -> None:
        """Take over what `state` gave; a moving reference that is not in it begins at the policy's present weights.

        Raises:
            CheckpointInvalid: tensors are missing or of another shape.
        """
        own = self._parameters()
        if self._every and not any(f"reference.{name}" in kept for name in own):
            self._take(dict(policy))
        elif self._every:
            for name, p in own.items():
                stored = f"reference.{name}"
                if stored not in kept or kept.shape(stored) != tuple(p.shape):
                    raise CheckpointInvalid(f"the reference's {name} is missing or of another shape")
            self._take({name: kept.like(f"reference.{name}", p) for name, p in own.items()})
        self._age = int(kept.scalar(_AGE)) if _AGE in kept else 0

    def _take(self, weights: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, p in self._parameters().items():
                local(p).copy_(local(weights[name]))
        self._age = 0

    def _parameters(self) -> dict[str, Tensor]:
        return {name: p for name, p in self.engine.module.named_parameters() if name in self._names}
