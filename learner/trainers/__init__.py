"""Trainers behind one Protocol: batches in, other weights out.

The learner's update and its checkpoints know nothing else of a trainer. `native` is torch in this process.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import FileDigest
from learner.batch import TrajectoryBatch


class UpdateReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an update did."""

    steps: int
    """Optimizer steps that were taken and kept; 0 means the weights are as they were."""
    metrics: dict[str, float]
    untrained: dict[int, str] = {}
    """Rows with something to train of which no step that was kept was made, with the reason of each:
    `nonfinite_gradient`, `update_limit`."""


class Trainer(Protocol):
    """Holds weights and optimizer. Blocking; one call at a time."""

    @property
    def vocabulary(self) -> int:
        """Token ids are below it."""
        ...

    @property
    def max_tokens(self) -> int:
        """Longest row that the model takes."""
        ...

    def log_probs(self, batch: TrajectoryBatch) -> npt.NDArray[np.float32]:
        """Log-probs of the batch's trained tokens under the present weights, `(R,)` in the batch's order, nats."""
        ...

    def update(self, batch: TrajectoryBatch, *, seed: int) -> UpdateReport:
        """Train on `batch`. The same weights, optimizer, batch and seed give the same result."""
        ...

    def save(self, directory: Path) -> Sequence[FileDigest]:
        """Write the weights as model.safetensors, names, shapes and types as they were loaded, into `directory`.

        Returns:
            What was written, hashed on its way to the disk.

        Raises:
            NonFiniteWeights: no file is left.
            OSError: disk full; no file is left.
        """
        ...

    def save_state(self, directory: Path) -> Sequence[FileDigest]:
        """Write all that is needed to go on exactly (masters, optimizer) into an existing directory; see `save`."""
        ...

    def restore(self, weights: Path, state: Path | None, *, rewarm: bool = False) -> None:
        """Take over what `save` and `save_state` wrote; without `state` the optimizer starts afresh.

        Args:
            weights: what `state` lacks comes from there.
            rewarm: it had moments that are lost: its first steps are short (`rewarm.STEPS`). Only without `state`.

        Raises:
            CheckpointInvalid: files that do not fit the model.
        """
        ...

    def settle(self, weights: Path) -> int:
        """Take from `weights` each number that the present one would not be written as; how many there were.

        0 means that `save` would write these weights. Masters keep what lies below the written precision, and the
        optimizer stays as it is. Raises CheckpointInvalid: files that do not fit the model.
        """
        ...
