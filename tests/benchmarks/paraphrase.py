"""Whether a request in other words finds its lesson, and its tool: sentences that nobody here wrote.

    python -m tests.benchmarks.paraphrase --json build/paraphrase.json [--sources DIR] [--base-url URL --model NAME]

A lesson is for one phrasing of a request; another phrasing of it is asked, among the lessons for all others. Recall@1
and @3 are of what the navigator gives with its own defaults, so a lesson that is below its floor is not found. Three
shares tell what the floor keeps out, each of requests that are given any lesson though none is for them: requests of
another world (BFCL's multi-turn tasks), requests whose own lesson was left out, and CLINC150's that are out of scope.
Tools: what `ToolIndex` finds for a request, beside textbook BM25 (k1 1.2, b 0.75) over everything that a tool says.

tests/data/paraphrases/README.md says where the sentences are from. The figures without a name of a source are of the
frozen part of what lies there; `--sources DIR` adds those of sources.json, from clones at DIR/<owner>+<name>/repo or
DIR/<name>. `--base-url` and `--model` measure it once more with an embedding server.
"""

import asyncio
import csv
import hashlib
import io
import json
import math
import random
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from actors.experience.navigator import Navigator
from actors.experience.retrieval.settings import NavigatorSettings
from actors.kinds.clusters import template_of
from actors.messages import Experience
from actors.ports.embedders import Embedder, words_alone
from actors.store import Store
from adapters.embedders.openai import OpenAIEmbedder
from adapters.toolsearch import ToolIndex
from daemon.composition import registry
from daemon.settings.config import Config
from tests.benchmarks import report
from tests.simulation import words

DATA = Path(__file__).parents[1] / "data" / "paraphrases"
CONTENT = "Do it as the last run that went well did it."
"""Of every lesson: what is found is found by what the lesson is for."""
ASKED = 3
"""Of an intent, beside the one that its lesson is for."""
PHRASINGS = 8
"""Goals of a lesson's sources, as the experiencer keeps them."""
Part = Literal["build", "frozen"]


class Requests(msgspec.Struct, frozen=True):
    """Lessons by intent, requests that they are for, and requests that none is for."""

    name: str
    part: Part
    lessons: dict[str, str]
    asks: list[tuple[str, str]]
    unrelated: dict[str, list[str]]
    more: dict[str, list[str]] = {}
    """By intent, goals of other runs that its lesson may have been drawn from."""


class Tools(msgspec.Struct, frozen=True):
    """Function tools, and requests with the name of the one that serves them."""

    name: str
    part: Part
    tools: list[dict[str, Any]]
    asks: list[tuple[str, str]]


class Source(msgspec.Struct, frozen=True):
    """A file of sources.json."""

    name: str
    part: Part
    repository: str
    commit: str
    path: str
    sha256: str
    licence: str

    def read(self, directory: Path) -> bytes:
        """The file as it was at that commit.

        Raises:
            SystemExit: there is no clone, or it has something else.
        """
        owner, _, name = self.repository.partition("/")
        places = (directory / f"{owner}+{name}" / "repo", directory / name)
        for place in places:
            said = subprocess.run(
                ["git", "-C", str(place), "show", f"{self.commit}:{self.path}"], capture_output=True, timeout=60
            )
            if said.returncode == 0 and hashlib.sha256(said.stdout).hexdigest() == self.sha256:
                return said.stdout
        raise SystemExit(f"{self.name}: no clone of {self.repository} at {self.commit[:12]} under {directory}")


def own() -> tuple[list[Requests], list[Tools]]:
    """What lies in tests/data, by part."""
    given = json.loads((DATA / "requests.json").read_bytes())
    lessons = {one["intent"]: one["when"] for one in given["lessons"]}
    described = json.loads((DATA / "tools.json").read_bytes())
    tools = [{"type": "function", "function": one} for one in described["tools"]]
    parts: tuple[Part, Part] = ("build", "frozen")
    return (
        [
            Requests(
                "bfcl", part, lessons, [(a["intent"], a["ask"]) for a in given["asks"] if a["part"] == part],
                {"another world": words.bfcl()},
            )
            for part in parts
        ],
        [
            Tools("bfcl", part, tools, [(a["tool"], a["ask"]) for a in described["asks"] if a["part"] == part])
            for part in parts
        ],
    )  # fmt: skip


def others(directory: Path) -> tuple[list[Requests], list[Tools]]:
    """What sources.json names."""
    sources = {one.name: one for one in msgspec.json.decode((DATA / "sources.json").read_bytes(), type=list[Source])}
    read = {name: one.read(directory) for name, one in sources.items()}
    clinc = json.loads(read["clinc150"])
    banking = list(csv.DictReader(io.StringIO(read["banking77"].decode())))
    outside = drawn((text for text, _ in clinc["oos_test"]), 300)
    requests = [
        drawn_requests("clinc150", "frozen", [(i, t) for t, i in clinc["test"]], {"out of scope": outside}),
        drawn_requests("banking77", "build", [(one["category"], one["text"]) for one in banking], {}),
    ]
    described = json.loads(read["metatool-tools"])
    asked: dict[str, list[str]] = {}
    for one in csv.DictReader(io.StringIO(read["metatool"].decode())):
        asked.setdefault(one["Tool"], []).append(one["Query"])
    tools = [{"type": "function", "function": {"name": n, "description": d}} for n, d in sorted(described.items())]
    asks = [(name, text) for name in sorted(asked) if name in described for text in drawn(asked[name], ASKED)]
    return requests, [Tools("metatool", "frozen", tools, asks)]


def drawn(texts: Any, count: int) -> list[str]:
    """`count` of `texts`, by digest: nobody chose them."""
    return sorted(set(texts), key=lambda text: hashlib.sha256(text.encode()).digest())[:count]


def drawn_requests(name: str, part: Part, said: list[tuple[str, str]], unrelated: dict[str, list[str]]) -> Requests:
    by_intent: dict[str, list[str]] = {}
    for intent, text in said:
        by_intent.setdefault(intent, []).append(text)
    lessons, more, asks = {}, {}, []
    for intent in sorted(by_intent):
        lessons[intent], *rest = drawn(by_intent[intent], 1 + ASKED + PHRASINGS)
        asks += [(intent, text) for text in rest[:ASKED]]
        more[intent] = rest[ASKED:]
    return Requests(name, part, lessons, asks, {"another world": words.bfcl(), **unrelated}, more)


# Lessons


async def asking(
    directory: Path, given: Requests, intents: Sequence[str], embedder: Embedder | None, k: int, many: bool
) -> Callable[[str], Awaitable[list[str]]]:
    """A navigator with the lessons for `intents`, all of them proven; where `many`, with how others asked."""
    store = Store(f"sqlite:///{directory}/{len(list(directory.iterdir()))}.db", clock=lambda: 0.0)
    await store.open()
    await store.save(
        [
            Experience(
                id=intent, when_to_use=given.lessons[intent], content=CONTENT, state="active",
                asked=tuple(map(template_of, given.more[intent])) if many else (),
            )
            for intent in intents
        ]
    )  # fmt: skip
    navigator = Navigator(NavigatorSettings(k=k), store=store, embedder=embedder, rng=random.Random(0))
    await navigator.start()

    async def ask(text: str) -> list[str]:
        return [one.id for one in await navigator.lessons(text)]

    return ask


async def measure_lessons(given: Requests, embedder: Embedder | None, many: bool) -> dict[str, float]:
    """Recall@1 and @3, and the shares of requests that are given a lesson though none is for them."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for k in (1, 3):
            ask = await asking(directory, given, sorted(given.lessons), embedder, k, many)
            found[f"recall{k}"] = mean([intent in await ask(text) for intent, text in given.asks])
        for world, texts in given.unrelated.items():
            found[f"false, {world}"] = mean([bool(await ask(text)) for text in texts])
        intents = sorted(given.lessons)
        for left in (0, 1):
            kept = intents[1 - left :: 2]
            ask = await asking(directory, given, kept, embedder, 3, many)
            theirs = [text for intent, text in given.asks if intent not in kept]
            found["false, left out"] = found.get("false, left out", 0.0) + 0.5 * mean(
                [bool(await ask(text)) for text in theirs]
            )
    return found


# Tools


def textbook(tools: Sequence[dict[str, Any]]) -> Callable[[str], list[str]]:
    """Okapi BM25 over everything that a tool says."""
    names = [tool["function"]["name"] for tool in tools]
    texts = [Counter(re.findall(r"\w+", json.dumps(tool["function"], ensure_ascii=False).lower())) for tool in tools]
    average = mean([text.total() for text in texts])
    having = Counter(word for text in texts for word in text)

    def ask(request: str) -> list[str]:
        scores = [0.0] * len(texts)
        for word in set(re.findall(r"\w+", request.lower())):
            idf = math.log(1 + (len(texts) - having[word] + 0.5) / (having[word] + 0.5))
            for at, text in enumerate(texts):
                if count := text[word]:
                    scores[at] += idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * text.total() / average))
        return [names[at] for at in sorted(range(len(texts)), key=lambda at: (-scores[at], names[at])) if scores[at]]

    return ask


async def measure_tools(given: Tools, embedder: Embedder | None) -> dict[str, float]:
    index = ToolIndex(embedder)
    await index.add(given.tools)
    plain = textbook(given.tools)
    found: dict[str, float] = {}
    answers = [(tool, await index.search(text, k=10), plain(text)[:10]) for tool, text in given.asks]
    for k in (1, 3, 10):
        found[f"recall{k}"] = mean([tool in [one.operation.name for one in own[:k]] for tool, own, _ in answers])
        found[f"bm25 recall{k}"] = mean([tool in theirs[:k] for tool, _, theirs in answers])
    return found


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


async def run(sources: Path | None, embedder: Embedder | None, default: Embedder | None) -> dict[str, float]:
    requests, tools = own()
    if sources is not None:
        more_requests, more_tools = others(sources)
        requests, tools = [*requests, *more_requests], [*tools, *more_tools]
    figures: dict[str, float] = {}
    ways = [("default", default)] + ([("embedder", embedder)] if embedder is not None else [])
    rows: list[tuple[object, ...]] = []
    for way, one in ways:
        for given in requests:
            for many in (False, True) if given.more else (False,):
                found = await measure_lessons(given, one, many)
                rows.append(
                    (way, given.name, given.part, 1 + PHRASINGS * many, len(given.asks), *shown(found.values()))
                    + ("-",) * (5 - len(found))
                )
                figures |= named(found, "eight_" if many else "", way, given.name, given.part)
    columns = ("way", "source", "part", "phrasings", "asked", "@1", "@3", "false: other", "left out", "scope")
    report.table("lessons (%)", columns, [reordered(row) for row in rows])
    rows = []
    for way, one in ways:
        for asked in tools:
            found = await measure_tools(asked, one)
            rows.append((way, asked.name, asked.part, len(asked.tools), len(asked.asks), *shown(found.values())))
            figures |= named(found, "tools_", way, asked.name, asked.part)
    columns = ("way", "source", "part", "tools", "asked", "@1", "BM25", "@3", "BM25", "@10", "BM25")
    report.table("tools (%)", columns, rows)
    return figures


def reordered(row: tuple[object, ...]) -> tuple[object, ...]:
    """With CLINC150's share last: it alone has one."""
    return row if row[-1] == "-" else (*row[:-2], row[-1], row[-2])


def shown(values: Any) -> tuple[str, ...]:
    return tuple(f"{100 * value:.1f}" for value in values)


def named(found: dict[str, float], what: str, way: str, source: str, part: Part) -> dict[str, float]:
    """`recall3_default` of the frozen part that lies here; others with their source, and "build" where it is that."""
    tail = ("" if source == "bfcl" else f"_{source}") + ("_build" if part == "build" else "")
    return {f"{what}{re.sub('[^a-z0-9]+', '_', key)}_{way}{tail}": value for key, value in found.items()}


def main() -> None:
    parser = report.arguments("Whether a request in other words finds its lesson, and its tool.")
    parser.add_argument("--sources", type=Path, metavar="DIR", help="clones of what sources.json names")
    parser.add_argument("--base-url", default="", help="of an embedding server, with /v1")
    parser.add_argument("--model", default="", help="its model")
    given = parser.parse_args()
    embedder = OpenAIEmbedder(given.model, base_url=given.base_url) if given.model else None
    report.write(given.json, "paraphrase", asyncio.run(run(given.sources, embedder, _default())))


def _default() -> Embedder | None:
    """The embedder with which a daemon finds that is told nothing: none."""
    settings = Config().embedder
    built = registry.build("embedder", settings.name, settings.options) if settings.name else None
    return None if built is None or words_alone(built) else built


if __name__ == "__main__":
    main()
