"""Whether requests of one label are one neighbourhood: by words, and by an embedding server's vectors before words.

    python -m tests.benchmarks.neighbourhoods --sources DIR --base-url URL --model NAME [--seeds 5] [--json FILE]

Requests that nobody here wrote (tests/data/paraphrases/README.md): BFCL's by function, and of `--sources` banking77 and
CLINC150 by intent and MetaTool by tool. Each order of arrival is one agent's; precision and recall are of pairs of
requests: of those in one neighbourhood the share of one label, of those of one label the share in one neighbourhood.
"""

import asyncio
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from actors.kinds.meanings import Meaning
from actors.kinds.neighbourhoods import FAR, Neighbourhoods
from adapters.embedders.openai import OpenAIEmbedder
from tests.benchmarks import paraphrase, report

DRAWN = {"bfcl": 12, "banking77": 12, "clinc150": 12, "metatool": 3}
"""Requests of a label at most, by digest."""
Labelled = list[tuple[str, str]]
"""Label and request."""


def sets(sources: Path | None) -> dict[str, Labelled]:
    """By name."""
    requests, tools = paraphrase.own()
    if sources is not None:
        more, more_tools = paraphrase.others(sources)
        requests, tools = [*requests, *more], [*tools, *more_tools]
    found: dict[str, dict[str, list[str]]] = {}
    for given in requests:
        of = found.setdefault(given.name, {})
        said = [*given.lessons.items(), *given.asks, *((i, text) for i, texts in given.more.items() for text in texts)]
        for intent, text in said:
            of.setdefault(intent, []).append(text)
    for asked in tools:
        for name, text in asked.asks:
            found.setdefault(asked.name, {}).setdefault(name, []).append(text)
    return {
        name: [(label, text) for label in sorted(of) for text in paraphrase.drawn(of[label], DRAWN[name])]
        for name, of in found.items()
    }


def pairs(labels: Sequence[str], places: Sequence[str]) -> tuple[float, float]:
    """Precision and recall, in percent."""

    def of(counted: Counter[object]) -> float:
        return sum(number * (number - 1) / 2 for number in counted.values())

    both = of(Counter(zip(labels, places, strict=True)))
    return 100.0 * both / max(1.0, of(Counter(places))), 100.0 * both / max(1.0, of(Counter(labels)))


def measure(
    given: Labelled, vectors: npt.NDArray[np.float32] | None, seed: int, limit: int, far: float = FAR
) -> tuple[float, float]:
    """Precision and recall of one order of arrival."""
    order = random.Random(seed).sample(range(len(given)), len(given))
    places = Neighbourhoods(limit, far)
    found = [
        places.place(given[at][1], "p", None if vectors is None else Meaning("benchmark", vectors[at])) for at in order
    ]
    return pairs([given[at][0] for at in order], found)


def main() -> None:
    parser = report.arguments("Whether requests of one label are one neighbourhood.")
    parser.add_argument("--sources", type=Path, metavar="DIR", help="clones of what sources.json names")
    parser.add_argument("--base-url", default="", help="of an embedding server, with /v1")
    parser.add_argument("--model", default="", help="its model")
    parser.add_argument("--seeds", type=int, default=5, help="orders of arrival (5)")
    parser.add_argument("--limits", type=int, nargs="+", default=[64, 256], help="neighbourhoods at most (64 256)")
    parser.add_argument("--far", type=float, nargs="+", default=[FAR], help=f"spreads to stand out by ({FAR:g})")
    given = parser.parse_args()
    embedder = OpenAIEmbedder(given.model, base_url=given.base_url, timeout=60.0) if given.model else None
    embedded = {
        name: (said, asyncio.run(embedder.embed([text for _, text in said])) if embedder is not None else None)
        for name, said in sets(given.sources).items()
    }
    figures = compare(embedded, range(given.seeds), given.limits, given.far)
    report.write(given.json, "neighbourhoods", figures, list(range(given.seeds)))


def compare(
    embedded: dict[str, tuple[Labelled, npt.NDArray[np.float32] | None]],
    seeds: Sequence[int],
    limits: Sequence[int],
    fars: Sequence[float],
) -> dict[str, float]:
    """Print the table; means over `seeds` by name."""
    rows: list[tuple[object, ...]] = []
    figures: dict[str, float] = {}
    for name, (said, vectors) in embedded.items():
        for limit in limits:
            for far in (None, *fars) if vectors is not None else (None,):
                found = [measure(said, None if far is None else vectors, seed, limit, far or FAR) for seed in seeds]
                way = "words" if far is None else f"vectors_{far:g}"
                shown: list[str] = []
                for what, values in zip(("precision", "recall"), zip(*found, strict=True), strict=True):
                    figures[f"{what}_{name}_{limit}_{way}"] = mean = statistics.fmean(values)
                    shown.append(f"{mean:.1f} ({min(values):.1f}-{max(values):.1f})")
                rows.append((name, len(said), limit, way, *shown))
                print(*rows[-1], flush=True)
    report.table("pairs of one label (%)", ("requests", "number", "bound", "way", "precision", "recall"), rows)
    return figures


if __name__ == "__main__":
    main()
