"""The checkpoints that cells start from: six warm starts, and three of them trained until they master the short desk.

Made once and kept under build/ablation. The warm starts beside the shipped one come from `tests.warmstart`'s own
recipe with other seeds; they were not chosen by any figure.
"""

from pathlib import Path

from daemon.demo.world import WARM_START

ROOT = Path(__file__).parents[3] / "build" / "ablation"
WARM_STARTS = (0, 1, 2, 3, 4, 5)
"""Seeds; 0 is the shipped checkpoint."""
TRAINED = (0, 1, 2)
"""Those of them that are trained on."""
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


class BaseMissing(Exception):
    """A checkpoint that cells start from has not been made; `--prepare` makes it."""


def warm_start(seed: int) -> Path:
    """Directory of a warm start."""
    return WARM_START if seed == 0 else ROOT / f"warmstart-{seed}"


def trained(seed: int) -> Path:
    """Directory of the policy that a warm start became, from which drifts and forgetting begin."""
    return ROOT / f"trained-{seed}"


def require(directory: Path) -> Path:
    """`directory` itself.

    Raises:
        BaseMissing: it holds no model.
    """
    if not (directory / "model.safetensors").exists():
        raise BaseMissing(f"{directory} is missing: run with --prepare first")
    return directory
