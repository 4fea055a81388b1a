"""The checkpoints that cells start from: six warm starts, and three of them trained until they master the short desk.

Made once and kept under build/ablation. The warm starts beside the shipped one come from `tests.warmstart`'s own
recipe with other seeds; they were not chosen by any figure.
"""

import os
import shutil
from pathlib import Path

from daemon.demo.world import WARM_START
from tests.benchmarks.ablation.loop import run
from tests.benchmarks.ablation.plan import Setup
from tests.warmstart import courses

ROOT = Path(__file__).parents[3] / "build" / "ablation"
WARM_STARTS = (0, 1, 2, 3, 4, 5)
"""Seeds; 0 is the shipped checkpoint."""
TRAINED = (0, 1, 2)
"""Those of them that are trained on."""
TRAINING = Setup(updates=30, eval_every=5, learner={"lr": 5e-4, "credit": {"alpha": 0.0}})
"""How a warm start becomes the policy that drifts and forgetting begin from: GRPO on the short desk."""


def warm_start(seed: int) -> Path:
    return WARM_START if seed == 0 else ROOT / f"warmstart-{seed}"


def trained(seed: int) -> Path:
    """Directory of the policy that a warm start became."""
    return ROOT / f"trained-{seed}"


def require(directory: Path) -> Path:
    """`directory` itself; FileNotFoundError if it holds no model."""
    if not (directory / "model.safetensors").exists():
        raise FileNotFoundError(f"{directory} is missing: run with --prepare first")
    return directory


def make_warm_start(seed: int) -> None:
    directory = warm_start(seed)
    if not (directory / "model.safetensors").exists():
        aside = directory.with_name(f".{directory.name}.part")
        shutil.rmtree(aside, ignore_errors=True)
        courses.run(aside, seed, lambda line: print(f"warm start {seed}: {line}", flush=True))
        os.replace(aside, directory)


def make_trained(seed: int) -> None:
    """Train the warm start of `seed` on, unless that is done."""
    directory, start = trained(seed), require(warm_start(seed))
    if not (directory / "model.safetensors").exists():
        aside = directory.with_name(f".{directory.name}.part")
        aside.mkdir(parents=True, exist_ok=True)
        run(TRAINING, start, seed, name=f"trained {seed}", keep=aside)
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(start / name, aside / name)
        os.replace(aside, directory)
