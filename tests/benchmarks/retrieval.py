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
from actors.experience.retrieval.settings import NavigatorSettings
from actors.messages import Experience
from actors.store import Store
from tests.benchmarks import report
from tests.benchmarks.timing import Worker

K, OURS, BRUTE = 5, "navigator", "numpy, brute force"
SIZES = (1_000, 10_000)
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

    id = "looked-up"

    def __init__(self, known: dict[str, np.ndarray], dimension: int) -> None:
        self._known, self.dimension = known, dimension
        self._other = np.eye(dimension, dtype=np.float32)[0]

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self._known.get(text, self._other) for text in texts])


class Peer(Worker):
    """A way of searching in its own interpreter: asked by the number of a question, it answers with its own time."""

    def __init__(self, python: str, code: str, threads: int, folder: Path) -> None:
        files = folder / "vectors.npy", folder / "queries.npy"
        count = str(threads)
        super().__init__([python, "-c", OPEN + code + LOOP, *files], OMP_NUM_THREADS=count, OPENBLAS_NUM_THREADS=count)

    def search(self, number: int) -> Answer:
        answer = self.ask(str(number))
        return float(answer["seconds"]), answer["found"]


def data(rng: np.random.Generator, count: int, questions: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Lessons `(count, d)` around centres of uneven popularity, and questions `(questions, d)` near some of them."""
    centres = rng.standard_normal((max(16, count // 200), d))
    popular = 1.0 / np.arange(1, len(centres) + 1) ** 0.7
    which = rng.choice(len(centres), count, p=popular / popular.sum())
    lessons = unit(centres[which] + 0.8 * rng.standard_normal((count, d)))
    near = lessons[rng.choice(count, questions, replace=False)]
    return lessons, unit(near + 0.6 / np.sqrt(d) * rng.standard_normal((questions, d)))


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


async def navigator(store: Store, embedder: Looked) -> Navigator:
    made = Navigator(NavigatorSettings(), store=store, embedder=embedder, rng=random.Random(0))
    await made.start()
    while made.figures["waiting"]:
        await made.tick()
    return made


async def measure(count: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Everything at one size; prints the table."""
    rng, d = np.random.default_rng(arguments.seed + count), arguments.dimension
    vectors, queries = data(rng, count, arguments.questions, d)
    right = [nearest(vectors, query) for query in queries]
    draw = random.Random(arguments.seed + count)
    texts, asked = words(draw, count, 24), [f"q{n} {text}" for n, text in enumerate(words(draw, len(queries), 12))]
    lessons = [
        Experience(id=str(number), when_to_use=f"case {number}", content=text, state="active")
        for number, text in enumerate(texts)
    ]
    known = {text_of(lesson): vector for lesson, vector in zip(lessons, vectors, strict=True)}
    known.update(zip(asked, queries, strict=True))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Store(f"sqlite:///{folder / 'evolved.db'}", clock=time.time)
        await store.open()
        for start in range(0, count, 5000):
            await store.save(lessons[start : start + 5000])
        embedder = Looked(known, d)
        ours = await navigator(store, embedder)
        np.save(folder / "vectors.npy", vectors)
        np.save(folder / "queries.npy", queries)
        peers = {
            BRUTE: Peer(sys.executable, NUMPY, 1, folder), "faiss flat, bare": Peer(sys.executable, FAISS, 1, folder),
        }  # fmt: skip
        if arguments.hnswlib:
            peers["hnswlib (M 16, ef 64)"] = Peer(arguments.hnswlib, HNSWLIB, 2, folder)

        async def by(made: Navigator, number: int) -> Answer:
            began = time.perf_counter()
            found = await made.search(asked[number], "default", K)
            return time.perf_counter() - began, [int(lesson.id) for _, lesson in found]

        seconds: dict[str, list[float]] = {way: [] for way in (OURS, *peers)}
        hits: dict[str, list[float]] = {way: [] for way in seconds}
        ratios: list[float] = []
        for round_number in range(arguments.rounds + 1):
            taken: dict[str, list[float]] = {way: [] for way in seconds}
            for number in range(len(queries)):
                for way in draw.sample(list(seconds), len(seconds)):
                    spent, found = await by(ours, number) if way == OURS else peers[way].search(number)
                    taken[way].append(spent)
                    hits[way].append(len(right[number] & set(found)) / K)
            if round_number:  # the first warms caches up
                for way, spent in taken.items():
                    seconds[way] += spent
                ratios.append(statistics.median(taken[OURS]) / statistics.median(taken[BRUTE]))
        for peer in peers.values():
            peer.close()
        await store.aclose()
    recall = {way: statistics.fmean(each) for way, each in hits.items()}
    numpy = np.median(seconds[BRUTE])
    rows = [
        (way, *(f"{1e3 * np.quantile(taken, share):.2f}" for share in (0.5, 0.99)), f"{np.median(taken) / numpy:.2f}",
         f"{recall[way]:.4f}")
        for way, taken in seconds.items()
    ]  # fmt: skip
    report.table(f"{count:,} lessons, {d} dimensions", ("", "p50, ms", "p99, ms", "p50 / numpy", f"recall@{K}"), rows)
    size = f"{count:.0e}".replace("e+0", "e")
    return {
        f"p50_vs_numpy_{size}": statistics.median(ratios),
        f"recall_{size}": recall[OURS],
        f"p50_ms_{size}": 1e3 * float(np.quantile(seconds[OURS], 0.5)),
        f"p99_ms_{size}": 1e3 * float(np.quantile(seconds[OURS], 0.99)),
    }


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="lessons")
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--questions", type=int, default=100, help="a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hnswlib", metavar="PYTHON", default="", help="an interpreter that has hnswlib and numpy")
    arguments = parser.parse_args()
    ranking.WORDS = 0.0  # vectors alone, as the peers have it
    figures: dict[str, float] = {}
    for count in arguments.sizes:
        figures |= asyncio.run(measure(count, arguments))
    report.write(arguments.json, "retrieval", figures, [arguments.seed])


if __name__ == "__main__":
    main()
