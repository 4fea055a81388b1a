"""What the tests and the parity table share: models, batches, and two ranks under torchrun doing a job."""

import json
import os
import sys
from pathlib import Path

import msgspec
import numpy as np

from learner.batch import TrajectoryBatch
from learner.settings import LearnerSettings
from tests.support.ports import free_port
from tests.support.process import Process
from tests.unit.learner.maker import token_batch
from tests.verl import CPU_ENVIRONMENT

VOCABULARY = 512
SETTINGS = LearnerSettings(
    trainer="verl", device="cpu", lr=3e-4, kl_coef=0.0, mini_batches=1, weight_decay=0.01, kl_limit=0.0,
    micro_tokens=96,
)  # fmt: skip
UPDATES = 6
SECONDS = 270.0


def qwen(directory: Path, *, hidden=64, tied=False, dtype="float32") -> Path:
    """A random Qwen3 as a Hugging Face directory; 0.14 million parameters by default."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=hidden // 4, max_position_embeddings=512,
        tie_word_embeddings=tied, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    Qwen3ForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(directory)
    return directory


def batch(rows=9, *, seed=0, masked=(), temperature=None) -> TrajectoryBatch:
    """Rows of 8 to 59 tokens in stretches of sampled and other tokens; every other row is guided.

    Behaviour log-probs are near those of a random model, as after an update or two; rows in `masked` train nothing.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(8, 60, rows).astype(np.int64)
    n = int(lengths.sum())
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    row = np.repeat(np.arange(rows), lengths)
    within = np.arange(n) - first[row]
    mask = ((within // 5) % 3 != 0) & ~np.isin(row, masked)
    step = within // 5
    guided = (np.arange(rows) % 2).astype(np.uint8)
    advantages = rng.normal(size=(rows, 60))[row, step] * mask
    return token_batch(
        lengths,
        mask,
        ids=rng.integers(2, VOCABULARY, n).astype(np.int32),
        advantages=advantages.astype(np.float32),
        behaviour=((-np.log(VOCABULARY) + 0.2 * rng.normal(size=n)) * mask).astype(np.float32),
        clip_high=np.where((guided[row] > 0) & (advantages > 0), 0.6, 0.28).astype(np.float32),
        steps=np.where(mask, step, -1).astype(np.int16),
        guided=guided,
        temperature=np.ones(rows, np.float32) if temperature is None else np.asarray(temperature, np.float32),
    )


def two_ranks(job: str, directory: Path, settings: LearnerSettings, **arguments: str) -> dict:
    """Run `tests.verl.job`'s function `job` on rank 0 of two, under torchrun over gloo; what it returned.

    Raises:
        AssertionError: with the processes' output, if it failed or, as `Late`, took too long.
    """
    directory.mkdir(parents=True, exist_ok=True)
    order = {"job": job, "directory": str(directory), "arguments": arguments}
    (directory / "settings.json").write_bytes(msgspec.json.encode(settings))
    (directory / "job.json").write_text(json.dumps(order))
    command = [
        sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr",
        "127.0.0.1", "--master-port", str(free_port()), "-m", "tests.verl.job", str(directory / "job.json"),
    ]  # fmt: skip
    environment = {**os.environ, **CPU_ENVIRONMENT, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with Process(command, directory / "ranks.log", env=environment) as ranks:  # torchrun and its ranks
        code = ranks.wait(SECONDS)
    assert code == 0, ranks.tail(6000)
    return json.loads((directory / "result.json").read_text())
