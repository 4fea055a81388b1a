"""Small attributed trajectories and a tiny random model, for the learner's tests."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import (
    Attributed,
    Attribution,
    BatchItem,
    BatchOrder,
    Step,
    StepLabel,
    TokenRow,
    Trajectory,
    encode_batch,
    pack_array,
)
from learner.batch import TrajectoryBatch

VOCABULARY = 24


def row(
    ids: Sequence[int],
    steps: Sequence[int],
    *,
    logprobs: Sequence[float] | None = None,
    version: int = 0,
    versions: Sequence[int] | None = None,
    **fields: Any,
) -> TokenRow:
    """A token row; by default every sampled token has log-prob -1 and came from `version`."""
    on = np.asarray(steps) >= 0
    return TokenRow(
        ids=pack_array(ids, "<i4"),
        step=pack_array(steps, "<i2"),
        logprobs=pack_array(np.where(on, -1.0, 0.0) if logprobs is None else logprobs, "<f4"),
        versions=pack_array(np.where(on, version, -1) if versions is None else versions, "<i4"),
        **fields,
    )


def item(
    outcome: float | None,
    labels: str = "+",
    *,
    id: str = "t",
    cluster: str = "c",
    rows: Sequence[TokenRow] = (),
    **fields: Any,
) -> BatchItem:
    """A batch item with one step a character of `labels`: + good, - bad, ? abstained; `fields` are of its run."""
    names = {"+": "GOOD", "-": "BAD", "?": "ABSTAIN"}
    source = "sandbox" if fields.get("group") else "production"
    steps = tuple(Step(exchange_id=f"{id}.{i}", row=0 if rows else -1) for i in range(len(labels)))
    told = {"rows": tuple(rows), "started": 0.0, "ended": 1.0, "source": source, **fields}
    run = Trajectory(id=id, steps=steps, outcome=outcome, **told)
    judged = Attribution(labels=tuple(StepLabel(names[c]) for c in labels), judge="test", rubric="1")
    return BatchItem(attributed=Attributed(id=id, trajectory=run, attribution=judged, cluster=cluster))


def token_batch(lengths: npt.ArrayLike, mask: npt.ArrayLike, **columns: Any) -> TrajectoryBatch:
    """A packed batch of one unguided trajectory a row, whose sampled tokens had log-prob -1; `columns` are others."""
    lengths, on = np.asarray(lengths, np.int64), np.asarray(mask, np.uint8)
    rows, n = len(lengths), len(on)
    plain = TrajectoryBatch(
        ids=np.full(n, 2, np.int32),
        mask=on,
        advantages=on.astype(np.float32),
        behaviour=-on.astype(np.float32),
        clip_low=np.full(n, 0.2, np.float32),
        clip_high=np.full(n, 0.28, np.float32),
        versions=np.where(on, 0, -1).astype(np.int32),
        steps=np.where(on, 0, -1).astype(np.int16),
        lengths=lengths,
        guided=np.zeros(rows, np.uint8),
        temperature=np.ones(rows, np.float32),
        trajectory=np.arange(rows, dtype=np.int32),
        trajectories=tuple(str(row) for row in range(rows)),
        base_version=0,
    )
    return msgspec.structs.replace(plain, **columns)


def with_run(made: BatchItem, **fields: Any) -> BatchItem:
    """`made` with other fields of its trajectory."""
    run = msgspec.structs.replace(made.attributed.trajectory, **fields)
    return msgspec.structs.replace(made, attributed=msgspec.structs.replace(made.attributed, trajectory=run))


def with_judgement(made: BatchItem, **fields: Any) -> BatchItem:
    """`made` with other fields of its attribution."""
    judged = msgspec.structs.replace(made.attributed.attribution, **fields)
    return msgspec.structs.replace(made, attributed=msgspec.structs.replace(made.attributed, attribution=judged))


def acted(made: BatchItem, *roles: str) -> BatchItem:
    """`made` with the role of each step."""
    steps = zip(made.attributed.trajectory.steps, roles, strict=True)
    return with_run(made, steps=tuple(msgspec.structs.replace(step, role=role) for step, role in steps))


def group(version: int = 0, name: str = "g") -> list[BatchItem]:
    """A success and a failure on the same prompt."""
    good, bad = row([5, 6, 7, 8], [-1, -1, 0, 1], version=version), row([5, 6, 9, 3], [-1, -1, 0, 1], version=version)
    return [
        item(1.0, "++", id=f"{name}1", group=name, rows=[good]),
        item(0.0, "-?", id=f"{name}2", group=name, rows=[bad]),
    ]


def order(directory: Path, id: str, items: Sequence[BatchItem], **changes: Any) -> BatchOrder:
    """An order and its file; `changes` are what it says otherwise."""
    path, data = directory / f"{id}.batch", encode_batch(items)
    path.write_bytes(data)
    names = tuple(one.attributed.id for one in items)
    said = {"path": str(path), "sha256": sha256(data).hexdigest(), "size": len(data), "trajectories": names}
    return BatchOrder(id=id, **(said | changes))


def tiny_model(directory: Path, seed: int = 0) -> Path:
    """A random Qwen2 (hidden 32, 2 layers) as a Hugging Face directory."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_text(json.dumps({"a": "tokenizer"}))
    return directory


def expecting(items: Sequence[BatchItem], means: Mapping[str, float]) -> list[BatchItem]:
    """`items`, with what was to be expected of those of some clusters."""
    return [
        msgspec.structs.replace(one, estimate=means[name]) if (name := one.attributed.cluster) in means else one
        for one in items
    ]
