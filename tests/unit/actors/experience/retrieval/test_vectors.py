"""The vector index: whatever was put, changed and taken away, a search is the brute force's answer."""

import numpy as np
import pytest

from actors.experience.retrieval.vectors import VectorIndex

D = 64


def rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """Unit vectors around a few centres, `(n, D)`."""
    centres = rng.standard_normal((32, D))
    found = centres[rng.integers(0, 32, n)] + 0.6 * rng.standard_normal((n, D))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def agrees(index: VectorIndex, truth: dict[int, np.ndarray], query: np.ndarray, k: int, allowed=None) -> None:
    """The search finds what comparing with every row finds."""
    slots = [slot for slot in truth if allowed is None or allowed[slot]]
    products = np.sort(np.stack([truth[slot] for slot in slots]) @ query)[::-1][:k]
    scores, found = index.search(query, k, allowed)
    assert np.allclose(scores, products, atol=2e-6)
    assert len(set(found.tolist())) == len(products)
    assert all(
        abs(float(truth[slot] @ query) - score) < 2e-6 for slot, score in zip(found.tolist(), scores, strict=True)
    )


@pytest.mark.parametrize("size", [200, 5000])
def test_it_stays_exact_while_rows_come_change_and_go(size: int):
    rng = np.random.default_rng(size)
    index = VectorIndex(D)
    truth: dict[int, np.ndarray] = {}
    for step in range(6):
        slots = rng.permutation(size)[: size // 2]
        data = rows(rng, len(slots)) if step % 3 else np.eye(D, dtype=np.float32)[rng.integers(0, D, len(slots))]
        index.put(slots, data)
        truth.update(zip(slots.tolist(), data, strict=True))
        gone = rng.permutation(size)[: size // 10]
        index.remove(gone)
        for slot in gone.tolist():
            truth.pop(slot, None)
        allowed = rng.random(size) < 0.5
        for query in rows(rng, 2):
            agrees(index, truth, query, 5)
            agrees(index, truth, query, 5, allowed)
