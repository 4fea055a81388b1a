"""The checkpoints that cells start from: six warm starts, and three of them trained until they master the short desk.

Made once and kept under build/ablation. The warm starts beside the shipped one come from `tests.warmstart`'s own
recipe with other seeds; they were not chosen by any figure.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from daemon.demo.world import WARM_START
from tests.warmstart.courses import run

ROOT = Path(__file__).parents[3] / "build" / "ablation"
WARM_STARTS = (0, 1, 2, 3, 4, 5)
"""Seeds; 0 is the shipped checkpoint."""
TRAINED = (0, 1, 2)
"""Those of them that are trained on."""
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


class BaseMissing(Exception):
    """A checkpoint that cells start from has not been made; `--prepare` makes it."""


def warm_start(seed: int, root: Path = ROOT) -> Path:
    """Directory of a warm start."""
    return WARM_START if seed == 0 else root / f"warmstart-{seed}"


def trained(seed: int, root: Path = ROOT) -> Path:
    """Directory of the policy that a warm start became, from which drifts and forgetting begin."""
    return root / f"trained-{seed}"


def require(directory: Path) -> Path:
    """`directory` itself.

    Raises:
        BaseMissing: it holds no model.
    """
    if not (directory / "model.safetensors").exists():
        raise BaseMissing(f"{directory} is missing: run with --prepare first")
    return directory


def make_warm_start(seed: int, progress: Callable[[str], None], root: Path = ROOT) -> Path:
    """Train the warm start of `seed` unless it is there; minutes."""
    directory = warm_start(seed, root)
    if not (directory / "model.safetensors").exists():
        aside = directory.with_name(f".{directory.name}.part")
        shutil.rmtree(aside, ignore_errors=True)
        run(aside, seed, progress)
        os.replace(aside, directory)
    return directory


def make_trained(seed: int, train: Callable[[Path, int], Path], root: Path = ROOT) -> Path:
    """Train the warm start of `seed` on, unless that is done.

    Args:
        train: from a directory and a seed to a directory that holds the trained `model.safetensors`, which is moved.
    """
    directory, start = trained(seed, root), require(warm_start(seed, root))
    if not (directory / "model.safetensors").exists():
        aside = train(start, seed)
        for name in FILES:
            shutil.copy(start / name, aside / name)
        os.replace(aside, directory)
    return directory
