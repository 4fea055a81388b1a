"""Weights that ship, and weights that must not serve: the shipped ones with noise."""

import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.support import checkpoints

WARM_START = Path(__file__).parents[2] / "daemon" / "demo" / "warmstart"


def shipped(target: Path, version: int) -> Path:
    """The warm start as a version."""
    shutil.copytree(WARM_START, target)
    checkpoints.write_manifest(target, version)
    return target


def worse(target: Path, version: int, noise: float = 0.6) -> Path:
    """The warm start with noise on every matrix, `noise` times its standard deviation."""
    shutil.copytree(WARM_START, target)
    rng = np.random.default_rng(0)
    tensors = load_file(WARM_START / "model.safetensors")
    for name, tensor in tensors.items():
        if tensor.ndim == 2:
            tensors[name] = tensor + noise * tensor.std() * rng.standard_normal(tensor.shape).astype(tensor.dtype)
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    checkpoints.write_manifest(target, version)
    return target
