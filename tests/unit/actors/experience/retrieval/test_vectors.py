"""The vector index: whatever was put, changed and taken away, a search is the brute force's answer."""

import numpy as np

from actors.experience.retrieval.vectors import VectorIndex

D, SIZE = 64, 500


def rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """Unit vectors, `(n, D)`."""
    found = rng.standard_normal((n, D))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def test_it_stays_exact_while_rows_come_change_and_go():
    rng, index = np.random.default_rng(0), VectorIndex(D)
    truth, there = np.zeros((SIZE, D), np.float32), np.zeros(SIZE, np.bool_)
    for _ in range(6):
        slots, gone = rng.permutation(SIZE)[: SIZE // 2], rng.permutation(SIZE)[: SIZE // 10]
        truth[slots] = rows(rng, len(slots))
        index.put(slots, truth[slots])
        index.remove(gone)
        there[slots], there[gone] = True, False
        (query,) = rows(rng, 1)
        for allowed in (None, rng.random(SIZE) < 0.5):
            of = np.flatnonzero(there if allowed is None else there & allowed)
            best = of[np.argsort(-(truth[of] @ query))[:5]]
            scores, found = index.search(query, 5, allowed)
            assert found.tolist() == best.tolist()
            assert np.allclose(scores, truth[best] @ query, atol=2e-6)
