"""Update tokens a second of the native trainer, beside TRL's GRPOTrainer and beside the bare work.

    make bench-learner            # builds the peer's environment, then:
    python -m tests.benchmarks.learner --json build/learner.json

One batch of agent-like rows (a prompt, then turns of the model and of tools, ragged, about 30 % of the tokens
trained), one random Qwen3, one process a contender, all with one thread, taking turns within each round. Every update
is the reference's forward, forward and backward, and one optimizer step; where two contenders disagree on loss or
gradient norm the run is void. A contender's time is its CPU seconds, which a busy machine disturbs least. Tokens are
the rows' real ones: padding counts for nothing.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from learner.batch import TrajectoryBatch
from learner.settings import LearnerSettings
from learner.trainers.native import NativeTrainer
from tests.benchmarks import report
from tests.benchmarks.timing import Worker

REPOSITORY = Path(__file__).parents[2]
PEER = REPOSITORY / ".venv-trl" / "bin" / "python"
VOCABULARY = 16384
TRL_ROWS = (2, 8)
"""TRL's micro-batches; the best counts."""
TOLERANCE = 1e-4
"""Relative; between the native trainer and the bare work, on every round."""
PEER_TOLERANCE = 1e-3
"""Of the peer's first round: it cuts the same sums elsewhere, and later rounds start from other weights."""


def model(directory: Path, seed: int) -> int:
    """A random Qwen3 of 27 million parameters; returns how many exactly."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=8,
        num_key_value_heads=4, head_dim=64, max_position_embeddings=4096, tie_word_embeddings=True,
    )  # fmt: skip
    made: Any = Qwen3ForCausalLM(config)
    made.save_pretrained(directory)
    return sum(p.numel() for p in made.parameters())


def batch(
    rows: int, seed: int, shortest: int = 48, longest: int = 1024, vocabulary: int = VOCABULARY
) -> TrajectoryBatch:
    """Rows of a prompt and 2 to 6 turns; lengths are log-normal, median 200. No log-probs yet, see `recorded`."""
    rng = np.random.default_rng(seed)
    masks: list[Any] = []
    for length in np.clip(rng.lognormal(5.3, 0.6, rows), shortest, longest).astype(int):
        mask = np.zeros(length, np.uint8)
        turns = int(rng.integers(2, 7))
        starts = np.linspace(0.25 * length, length, turns + 1).astype(int)
        for begin, end in pairwise(starts):
            mask[begin : begin + max(1, int(0.4 * (end - begin)))] = 1
        masks.append(mask)
    mask = np.concatenate(masks)
    n, lengths = len(mask), np.array([len(each) for each in masks], np.int64)
    return TrajectoryBatch(
        ids=rng.integers(2, vocabulary, n).astype(np.int32),
        mask=mask,
        advantages=(np.repeat(rng.normal(size=rows), lengths) * mask).astype(np.float32),
        behaviour=np.zeros(n, np.float32),
        clip_low=np.full(n, 0.2, np.float32),
        clip_high=np.full(n, 0.28, np.float32),
        versions=np.where(mask, 0, -1).astype(np.int32),
        steps=np.where(mask, 0, -1).astype(np.int16),
        lengths=lengths,
        guided=np.zeros(rows, np.uint8),
        temperature=np.ones(rows, np.float32),
        trajectory=np.arange(rows, dtype=np.int32),
        trajectories=tuple(str(row) for row in range(rows)),
        base_version=0,
    )


def recorded(plain: TrajectoryBatch, log_probs: Any, seed: int) -> TrajectoryBatch:
    """`plain` as an engine would have recorded it: with the model's log-probs `(R,)` and a little noise."""
    noise = np.random.default_rng(seed).normal(scale=0.02, size=plain.tokens)
    behaviour = np.zeros(len(plain.ids), np.float32)
    behaviour[plain.mask > 0] = np.minimum(log_probs + noise, 0.0)
    return msgspec.structs.replace(plain, behaviour=behaviour)


class Contender(Worker):
    """A worker process that makes one update for each line."""

    def __init__(self, name: str, command: Sequence[object]) -> None:
        super().__init__(command, OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
        self.name = name
        self.rounds: list[dict[str, float]] = []


def disagreement(one: dict[str, float], other: dict[str, float]) -> float:
    """Largest relative difference of loss and gradient norm."""
    return max(abs(one[name] - other[name]) / max(abs(other[name]), 1e-12) for name in ("loss", "grad_norm"))


def measure(arguments: Any, directory: Path) -> None:
    parameters = model(directory, arguments.seed)
    task = {"lr": 1e-5, "kl_coef": 0.001, "vocabulary": VOCABULARY}
    (directory / "task.json").write_text(json.dumps(task), encoding="utf-8")
    data = batch(arguments.rows, arguments.seed)
    scorer = NativeTrainer(LearnerSettings(device="cpu", kl_coef=0.0), directory)
    data = recorded(data, scorer.log_probs(data), arguments.seed)
    del scorer
    data.save(directory / "batch.safetensors")
    tokens = int(data.lengths.sum())
    print(
        f"{parameters / 1e6:.1f}M parameters, {data.rows} rows of {data.lengths.min()} to {data.lengths.max()} tokens, "
        f"{tokens} tokens, {data.tokens} trained"
    )
    work = [sys.executable, "-m", "tests.benchmarks.learner_work"]
    peer = [PEER, "-m", "tests.benchmarks.peers.trl_update", directory]
    contenders = [
        Contender("limit", [*work, "limit", directory]),
        Contender("native", [*work, "native", directory]),
        *(Contender(f"trl x{rows}", [*peer, rows]) for rows in TRL_ROWS),
    ]
    limit, native, peers = contenders[0], contenders[1], contenders[2:]
    try:
        for number in range(arguments.rounds + 1):  # the first warms up and counts for agreement alone
            for contender in contenders[number % len(contenders) :] + contenders[: number % len(contenders)]:
                found = contender.ask("go")
                contender.rounds.append(found)
                print(f"round {number} {contender.name}: {found['cpu']:.2f} s", flush=True)
    finally:
        for contender in contenders:
            contender.close()
    apart = max(disagreement(a, b) for a, b in zip(native.rounds, limit.rounds, strict=True))
    apart_peer = max(disagreement(peer.rounds[0], limit.rounds[0]) for peer in peers)
    if apart > TOLERANCE or apart_peer > PEER_TOLERANCE:
        raise SystemExit(f"void: native differs by {apart:.1e}, TRL by {apart_peer:.1e}: not the same work")
    seconds = {c.name: [r["cpu"] for r in c.rounds[1:]] for c in contenders}
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    best = min(peers, key=lambda peer: medians[peer.name])
    report.table(
        f"one update of {tokens} tokens; median of {arguments.rounds} rounds",
        ["", "tokens/s", "seconds", "fastest", "slowest", "peak MiB"],
        [
            (c.name, round(tokens / medians[c.name]), f"{medians[c.name]:.2f}", f"{min(seconds[c.name]):.2f}",
             f"{max(seconds[c.name]):.2f}", round(max(r["mib"] for r in c.rounds)))
            for c in contenders
        ],
    )  # fmt: skip
    figures = {
        "disagreement": apart,
        "disagreement_trl": apart_peer,
        "parameters": parameters,
        "tokens": tokens,
        "trained": data.tokens,
        "rounds": arguments.rounds,
    }
    for name, contender in {"limit": limit, "native": native, "trl": best}.items():
        figures[f"{name}_tokens_per_second"] = tokens / medians[contender.name]
        figures[f"{name}_peak_mib"] = max(r["mib"] for r in contender.rounds)
        if contender is not native:
            pairs = zip(seconds[contender.name], seconds["native"], strict=True)
            figures[f"vs_{name}"] = statistics.median(a / b for a, b in pairs)
    print({name: float(f"{value:.4g}") for name, value in figures.items()})
    report.write(arguments.json, "learner", figures, seeds=[arguments.seed])


def main() -> None:
    parser = report.arguments("the native trainer beside TRL and beside the bare work")
    parser.add_argument("--rows", type=int, default=24, help="of the batch, a multiple of 8 (24)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not PEER.exists():
        raise SystemExit("the peer's environment is missing: make .venv-trl/ready")
    with tempfile.TemporaryDirectory() as directory:
        measure(arguments, Path(directory))


if __name__ == "__main__":
    main()
