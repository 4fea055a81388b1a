"""How long finding a lesson takes, beside numpy's brute force, bare faiss, and hnswlib.

    python -m tests.benchmarks.retrieval --json build/retrieval.json [--hnswlib .venv-hnswlib/bin/python]

Everything is asked the same questions in one run, in turn and in an order that changes: the machine's load falls on
all alike. The navigator's figure is that of its own `search`: embedding (looked up here: that is the embedder's time),
filter, exact products, words, ranking. The vectors lie in clusters of uneven size; questions lie
near lessons, not on them. What is right is what comparing with every vector in float64 finds.

Each peer runs in an interpreter of its own, numpy with one thread. hnswlib is a
peer of this benchmark alone, in an environment of its own (`locks/hnswlib.in`).
"""

import argparse
import asyncio
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from actors.experience.navigator import Navigator
from actors.experience.retrieval import ranking
from actors.experience.retrieval.pool import text_of
from actors.messages import Experience
from actors.store import Store
from tests.benchmarks import report
from tests.benchmarks.timing import Worker

K, OURS, BRUTE = 5, "navigator", "numpy, brute force"
DIMENSION, QUESTIONS = 384, 100
LOOP = """
for line in sys.stdin:
    query = queries[int(line)]
    started = time.perf_counter()
    found = ask(query)
    seconds = time.perf_counter() - started
    print(json.dumps({"answer": {"seconds": seconds, "found": found}}), flush=True)
"""
OPEN = """
import json, sys, time
import numpy as np
vectors, queries = np.load(sys.argv[1]), np.load(sys.argv[2])
"""
NUMPY = """
def ask(query):
    products = vectors @ query
    best = np.argpartition(products, len(products) - 5)[-5:]
    return best[np.argsort(-products[best])].tolist()
"""
FAISS = """
import faiss
index = faiss.IndexFlatIP(vectors.shape[1])
index.add(vectors)
def ask(query):
    return index.search(query[None], 5)[1][0].tolist()
"""
HNSWLIB = """
import hnswlib
index = hnswlib.Index(space="ip", dim=vectors.shape[1])
index.init_index(max_elements=len(vectors), M=16, ef_construction=200, random_seed=0)
index.add_items(vectors, num_threads=2)
index.set_ef(64)
def ask(query):
    return index.knn_query(query, k=5, num_threads=1)[0][0].tolist()
"""
Answer = tuple[float, list[int]]
"""Seconds, and the lessons found, by number."""


class Looked:
    """An embedder whose answers are known: what is measured is what comes after."""

    id, dimension = "looked-up", DIMENSION

    def __init__(self, known: dict[str, np.ndarray]) -> None:
        self._known, self._other = known, np.eye(DIMENSION, dtype=np.float32)[0]

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self._known.get(text, self._other) for text in texts])


class Peer(Worker):
    """A way of searching in its own interpreter: asked by the number of a question, it answers with its own time."""

    def __init__(self, python: str, code: str, folder: Path) -> None:
        files = folder / "vectors.npy", folder / "queries.npy"
        super().__init__([python, "-c", OPEN + code + LOOP, *files], OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

    def search(self, number: int) -> Answer:
        answer = self.ask(str(number))
        return float(answer["seconds"]), answer["found"]


def data(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Lessons `(count, d)` around centres of uneven popularity, and questions `(q, d)` near some of them."""
    d = DIMENSION
    centres = rng.standard_normal((max(16, count // 200), d))
    popular = 1.0 / np.arange(1, len(centres) + 1) ** 0.7
    which = rng.choice(len(centres), count, p=popular / popular.sum())
    lessons = unit(centres[which] + 0.8 * rng.standard_normal((count, d)))
    near = lessons[rng.choice(count, QUESTIONS, replace=False)]
    return lessons, unit(near + 0.6 / np.sqrt(d) * rng.standard_normal((QUESTIONS, d)))


def unit(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def nearest(vectors: np.ndarray, query: np.ndarray) -> set[int]:
    """The `K` nearest in float64, among the nearest in float32."""
    likely = np.argpartition(-(vectors @ query), 20 * K)[: 20 * K]
    products = vectors[likely].astype(np.float64) @ query.astype(np.float64)
    return set(likely[np.argsort(-products, kind="stable")[:K]].tolist())


def words(rng: random.Random, count: int, size: int) -> list[str]:
    """Texts of `size` words whose frequencies fall as those of language do (Zipf)."""
    vocabulary = [f"term{number}" for number in range(20_000)]
    weights = list(itertools.accumulate(1.0 / (rank + 3) for rank in range(len(vocabulary))))
    return [" ".join(rng.choices(vocabulary, cum_weights=weights, k=size)) for _ in range(count)]


async def measure(count: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Everything at one size; prints the table."""
    vectors, queries = data(np.random.default_rng(count), count)
    right = [nearest(vectors, query) for query in queries]
    draw = random.Random(count)
    texts, asked = words(draw, count, 24), [f"q{n} {text}" for n, text in enumerate(words(draw, len(queries), 12))]
    lessons = [
        Experience(id=str(number), when_to_use=f"case {number}", content=text, state="active")
        for number, text in enumerate(texts)
    ]
    known = dict(zip([*map(text_of, lessons), *asked], [*vectors, *queries], strict=True))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Store(f"sqlite:///{folder / 'evolved.db'}", clock=time.time)
        await store.open()
        for start in range(0, count, 5000):
            await store.save(lessons[start : start + 5000])
        ours = Navigator(store=store, embedder=Looked(known), rng=random.Random(0))
        await ours.start()
        while ours.figures["waiting"]:
            await ours.tick()
        np.save(folder / "vectors.npy", vectors)
        np.save(folder / "queries.npy", queries)
        plans = {BRUTE: (sys.executable, NUMPY), "faiss flat, bare": (sys.executable, FAISS)}
        if arguments.hnswlib:
            plans["hnswlib (M 16, ef 64)"] = (arguments.hnswlib, HNSWLIB)
        peers = {way: Peer(*plan, folder) for way, plan in plans.items()}

        async def navigated(number: int) -> Answer:
            began = time.perf_counter()
            found = await ours.search(asked[number], "default", K)
            return time.perf_counter() - began, [int(lesson.id) for _, lesson in found]

        seconds: dict[str, list[float]] = {way: [] for way in (OURS, *peers)}
        hits: dict[str, list[float]] = {way: [] for way in seconds}
        for round_number in range(arguments.rounds + 1):
            for number in range(len(queries)):
                for way in draw.sample(list(seconds), len(seconds)):
                    spent, found = await navigated(number) if way == OURS else peers[way].search(number)
                    if round_number:  # the first warms caches up
                        seconds[way].append(spent)
                        hits[way].append(len(right[number] & set(found)) / K)
        for peer in peers.values():
            peer.close()
        await store.aclose()
    recall = {way: statistics.fmean(each) for way, each in hits.items()}
    p50, p99 = ({way: 1e3 * float(np.quantile(each, at)) for way, each in seconds.items()} for at in (0.5, 0.99))
    rows = [
        (way, f"{p50[way]:.2f}", f"{p99[way]:.2f}", f"{p50[way] / p50[BRUTE]:.2f}", f"{recall[way]:.4f}")
        for way in seconds
    ]
    report.table(
        f"{count:,} lessons, {DIMENSION} dimensions", ("", "p50, ms", "p99, ms", "p50 / numpy", f"recall@{K}"), rows
    )
    found = {"p50_vs_numpy": p50[OURS] / p50[BRUTE], "recall": recall[OURS], "p50_ms": p50[OURS], "p99_ms": p99[OURS]}
    return {f"{what}_{count:.0e}".replace("e+0", "e"): value for what, value in found.items()}


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000], help="lessons")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hnswlib", metavar="PYTHON", default="", help="an interpreter that has hnswlib and numpy")
    arguments = parser.parse_args()
    ranking.WORDS = 0.0  # vectors alone, as the peers have it
    figures: dict[str, float] = {}
    for count in arguments.sizes:
        figures |= asyncio.run(measure(count, arguments))
    report.write(arguments.json, "retrieval", figures)


if __name__ == "__main__":
    main()
