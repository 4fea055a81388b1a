"""`Model`: a Hugging Face causal model that answers with log-probs of trained tokens, micro-batch by micro-batch.

Rows are packed without padding where the model can be (see `packing`), and go one by one where not. fp32 on a CPU; on a
GPU fp32 weights under bf16 arithmetic: at a learning rate of 1e-6 a bf16 weight would never move.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from learner.settings import LearnerSettings
from learner.sizing import CPU_BUDGET, GPU_BUDGET
from learner.trainers import packing
from learner.trainers.files import load_model
from learner.trainers.head import token_log_probs
from learner.trainers.micro import Ints, Layout, Micro
from learner.trainers.processing import processed_log_probs


class Model:
    """Policy or reference, on its device."""

    def __init__(self, settings: LearnerSettings, directory: Path, *, like: "Model | None" = None) -> None:
        """`like` is the policy, if this is its reference: without gradient, and in bf16 on a GPU. CheckpointInvalid:
        cannot be loaded; CheckpointUnsupported: log-probs taken from hidden states and output embeddings would be
        wrong."""
        device = settings.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)
        on_gpu = self.device.type == "cuda"
        dtype = torch.bfloat16 if on_gpu and like is not None else torch.float32
        self.module: Any = load_model(directory, dtype, self.device)
        if like is None:
            self.packs = packing.prepare(self.module)
            if settings.gradient_checkpointing:
                _recompute_activations(self.module)
        else:
            self.module.requires_grad_(False)
            self.packs = like.packs
            if self.packs:
                packing.use(self.module)
        budget = settings.micro_tokens or (GPU_BUDGET if on_gpu else CPU_BUDGET)
        self.budget = budget if self.packs else 0
        """Tokens of a micro-batch; 0 for rows that go one by one."""

    def log_probs(self, micro: Micro) -> Tensor:
        """`(r,)`; the vocabulary is projected to at trained positions only."""
        rows = {"lengths": micro.lengths} if self.packs else {}
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            # No attention mask: attention keeps within rows by their lengths, or there is one row.
            hidden = self.module.base_model(
                input_ids=self._put(micro.ids)[None],
                position_ids=self._put(micro.positions)[None],
                use_cache=False,
                **rows,
            )[0][0]
        chosen = hidden[self._put(micro.context)]
        if self.device.type == "cuda":
            chosen = chosen.to(torch.bfloat16)  # a norm in fp32 comes last in most models
        heat = self._put(micro.temperature) if np.any(micro.temperature != 1.0) else None
        head = self.module.get_output_embeddings()
        target = self._put(micro.target)
        if not micro.processed:
            return token_log_probs(chosen, head, target, heat)
        plain = np.ones(len(micro.target), np.bool_)
        for one in micro.processed:
            plain[one.at] = False
        parts, where = [], []
        if plain.any():
            at = self._put(np.flatnonzero(plain))
            where.append(at)
            parts.append(token_log_probs(chosen[at], head, target[at], None if heat is None else heat[at]))
        for one in micro.processed:
            at = self._put(one.at)
            where.append(at)
            parts.append(processed_log_probs(chosen[at], head, target[at], float(micro.temperature[one.at[0]]), one))
        return torch.cat(parts)[torch.argsort(torch.cat(where))]

    @torch.no_grad()
    def score(self, layout: Layout, rows: Ints) -> Tensor:
        """Log-probs, without gradient, of the trained tokens of `rows`, row by row; all rows: `(R,)`."""
        found = torch.empty(len(layout.row), dtype=torch.float32, device=self.device)
        for micro in layout.micro_batches(rows, self.budget):
            found[self._put(micro.columns)] = self.log_probs(micro).float()
        return found[self._put(layout.columns(rows))]

    def _put(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


def _recompute_activations(module: Any) -> None:
    """Gradient checkpointing, which transformers does in training mode only: without dropout that is the same."""
    module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    module.train()
    for part in module.modules():
        for name in ("p", "attention_dropout", "dropout"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
