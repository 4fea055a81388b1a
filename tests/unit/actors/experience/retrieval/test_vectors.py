"""The vector index: whatever was put, changed and taken away, a search is the brute force's answer."""

import numpy as np
import pytest

from actors.experience.retrieval.vectors import SCAN_FROM, Int8Scanner, VectorIndex

D = 64  # a multiple of 32: faiss has kernels of their own for those


def rows(rng: np.random.Generator, n: int, d: int = D) -> np.ndarray:
    """Unit vectors around a few centres, `(n, d)`."""
    centres = rng.standard_normal((32, d))
    found = centres[rng.integers(0, 32, n)] + 0.6 * rng.standard_normal((n, d))
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


@pytest.mark.parametrize("dimension", [64, 100, 384])
@pytest.mark.parametrize("count", [1, 100, SCAN_FROM + 1000])
def test_a_search_is_exact_below_and_above_the_size_where_codes_begin(count: int, dimension: int):
    rng = np.random.default_rng(count)
    index, data = VectorIndex(dimension), rows(rng, count, dimension)
    index.put(np.arange(count), data)
    for query in rows(rng, 10, dimension):
        agrees(index, dict(enumerate(data)), query, 5)


@pytest.mark.parametrize("size", [200, 5000])
def test_it_stays_exact_while_rows_come_change_and_go(size: int):
    rng = np.random.default_rng(size)
    index = VectorIndex(D)
    truth: dict[int, np.ndarray] = {}
    for step in range(6):
        slots = rng.permutation(size)[: size // 2]
        # Vectors of another kind come in between: the scale of the codes must not go stale unseen.
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


def test_rows_that_are_all_alike_are_compared_exactly_though_the_codes_cannot_tell_them_apart():
    rng = np.random.default_rng(0)
    one = rows(rng, 1)[0]
    data = one + 1e-4 * rng.standard_normal((SCAN_FROM + 4000, D))
    data = (data / np.linalg.norm(data, axis=1, keepdims=True)).astype(np.float32)
    index = VectorIndex(D)
    index.put(np.arange(len(data)), data)
    agrees(index, dict(enumerate(data)), one, 5)


@pytest.mark.parametrize("dimension", [32, 100, 384, 1536])
def test_the_error_that_a_scan_claims_holds_for_every_row_that_is_not_kept_apart(dimension: int):
    rng = np.random.default_rng(1)
    data = rows(rng, 5000, dimension)
    data[:4] = np.eye(dimension, dtype=np.float32)[:4]
    scanner = Int8Scanner(dimension)
    scanner.put(np.arange(5000), data, data)
    assert set(range(4)) <= scanner.apart
    for query in rows(rng, 5, dimension):
        scores, slots, error = scanner.scan(query[None], 5000, np.ones(5000, dtype=np.bool_))
        kept = ~np.isin(slots, list(scanner.apart))
        assert kept.sum() > 4900
        assert np.abs(data[slots[kept]] @ query - scores[kept]).max() <= error + 1e-5 < 0.06


def test_codes_save_the_comparison_of_all_rows_in_the_usual_case():
    rng = np.random.default_rng(4)
    data = rows(rng, 20_000, 384)
    index = VectorIndex(384)
    index.put(np.arange(20_000), data)
    assert index._scanner is not None
    found = [index._pruned(index._scanner, query, 5, index._present) for query in rows(rng, 20, 384)]
    assert sum(one is not None for one in found) >= 18


def test_an_empty_index_and_a_filter_that_lets_nothing_through_find_nothing():
    index = VectorIndex(D)
    query = rows(np.random.default_rng(2), 1)[0]
    assert len(index.search(query, 5)[0]) == 0
    index.put(np.arange(3), rows(np.random.default_rng(3), 3))
    assert len(index.search(query, 5, np.zeros(3, dtype=np.bool_))[0]) == 0
    index.remove(np.arange(3))
    assert len(index.search(query, 5)[0]) == 0
