"""How a long-lived process looks for cyclic garbage: seldom, and not among what it started with."""

import gc

_MADE = 20_000
"""Objects made between two looks; calls and batches leave next to no cycles."""


def seldom() -> None:
    """Once the modules are loaded: looking through them over and over is what makes the slowest calls slow."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_MADE)
