"""Whether the right operations are among the ten that are found, and how long finding takes.

    python -m tests.benchmarks.toolsearch --appworld .venv-appworld/bin/python --json build/toolsearch.json

Two worlds, asked in one run by a plain substring count, by words alone, with the ranking of APIs (the default), and so
after it has learned from other requests of the same kind:

* AppWorld's 457 operations, read from the installed package at run time, asked with `toolsearch_queries`. Settings were
  chosen on every second request; the others are told apart in the table. What was learned comes from the other half.
* 5,000 operations made of verb x object x domain. Descriptions have one word for each, requests another that shares
  nothing with it ("disjoint"), or one of the two by chance ("half"). What was learned comes from requests for
  operations that are not asked for afterwards.

Words know no meaning: where all differ, only chance or learning finds anything. `--model DIR`
adds a sentence embedder: a folder with config.json, model.safetensors and tokenizer.json of a BERT such as
all-MiniLM-L6-v2. It stands for what `embedder.openai` would ask for.
"""

import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from actors.ports.embedders import Embedder
from adapters.live import Operation
from adapters.toolsearch import SearchSettings, ToolIndex
from tests.benchmarks import report
from tests.benchmarks.toolsearch_queries import QUERIES

K = 10
SEED = 7
SYNTHETIC = 5_000
ASKED, LEARNED = 400, 1_000
# (in names and descriptions, in requests)
VERBS = (
    ("create", "set up"), ("delete", "get rid of"), ("update", "alter"), ("list", "enumerate"), ("approve", "sign off"),
    ("archive", "stash"), ("export", "dump"), ("assign", "hand"), ("cancel", "call off"), ("duplicate", "clone"),
)  # fmt: skip
OBJECTS = (
    ("invoice", "bill"), ("employee", "colleague"), ("shipment", "parcel"), ("meeting", "appointment"),
    ("document", "paper"), ("vehicle", "car"), ("ticket", "complaint"), ("contract", "agreement"),
    ("product", "article"), ("customer", "client"), ("reservation", "booking"), ("photo", "picture"),
    ("message", "memo"), ("report", "summary"), ("budget", "spending"), ("building", "house"), ("device", "gadget"),
    ("recipe", "dish"), ("lesson", "class"), ("payment", "transfer"), ("supplier", "vendor"), ("warehouse", "depot"),
    ("permission", "right"), ("experiment", "trial"), ("subscription", "membership"),
)  # fmt: skip
DOMAINS = (
    ("finance", "money"), ("logistics", "freight"), ("healthcare", "hospital"), ("education", "school"),
    ("agriculture", "farm"), ("aviation", "airline"), ("insurance", "coverage"), ("telecom", "phone"),
    ("publishing", "magazine"), ("automotive", "garage"), ("hospitality", "hotel"), ("energy", "electricity"),
    ("security", "guard"), ("marketing", "advert"), ("legal", "lawyer"), ("gaming", "play"), ("banking", "cash"),
    ("tourism", "holiday"), ("retail", "shop"), ("construction", "builder"),
)  # fmt: skip
FRAMES = (
    "please {verb} the {object} at the {domain}",
    "{domain} team: {verb} that {object}",
    "{verb} a {object} for {domain}",
)
Asked = tuple[str, tuple[tuple[str, str], ...]]
"""A request, and the operations that serve it by API and name."""
Ask = Callable[[str], Awaitable[list[tuple[str, str]]]]


class World(msgspec.Struct, frozen=True):
    """Operations and requests."""

    name: str
    operations: dict[str, list[Operation]]
    """By API."""
    asked: list[Asked]
    taught: list[Asked] | None
    """What is learned from; None: the other half of `asked`."""


def appworld(python: str) -> World:
    """AppWorld, as the interpreter `python` has it."""
    script = Path(__file__).with_name("appworld_operations.py")
    said = subprocess.run([python, str(script)], capture_output=True, check=True, timeout=300)
    operations: dict[str, list[Operation]] = {}
    for each in json.loads(said.stdout):
        properties = {name: {"type": kind, "description": text} for name, kind, text, _ in each["parameters"]}
        operations.setdefault(each["app"], []).append(
            Operation(name=each["name"], description=each["description"], parameters={"properties": properties})
        )
    asked = [(text, tuple((one.partition(".")[0], one.partition(".")[2]) for one in found)) for text, found in QUERIES]
    return World("AppWorld", operations, asked, None)


def synthetic(seed: int, share: float) -> World:
    """Made-up operations; each word of a request is with chance `share` none that its operation has."""
    rng = random.Random(seed)
    every = [(verb, thing, domain) for domain in DOMAINS for thing in OBJECTS for verb in VERBS]
    operations: dict[str, list[Operation]] = {}
    for verb, thing, domain in every[:SYNTHETIC]:
        fields = {f"{thing[0]}_id": {"type": "string"}, "reason": {"type": "string", "description": "Kept in the log."}}
        text = f"{verb[0].capitalize()} one {thing[0]} of the {domain[0]} system."
        extra = rng.choice(["", " Needs the scope admin.", " Answers with the record.", " Is limited to 100 an hour."])
        operation = Operation(name=f"{verb[0]}_{thing[0]}", description=text + extra, parameters={"properties": fields})
        operations.setdefault(domain[0], []).append(operation)
    chosen = rng.sample(every[:SYNTHETIC], ASKED + LEARNED)

    def request(parts: Sequence[tuple[str, str]]) -> Asked:
        said = [words[1] if rng.random() < share else words[0] for words in parts]
        text = rng.choice(FRAMES).format(verb=said[0], object=said[1], domain=said[2])
        return text, ((parts[2][0], f"{parts[0][0]}_{parts[1][0]}"),)

    made = [request(parts) for parts in chosen]
    name = "5,000 synthetic, disjoint" if share == 1.0 else "5,000 synthetic, half"
    return World(name, operations, made[:ASKED], made[ASKED:])


async def filled(world: World, embedder: Embedder | None, settings: SearchSettings) -> ToolIndex:
    index = ToolIndex(embedder, settings)
    for api, operations in world.operations.items():
        await index.add(operations, api)
    return index


def searching(index: ToolIndex) -> Ask:
    async def ask(text: str) -> list[tuple[str, str]]:
        return [(one.api, one.operation.name) for one in await index.search(text, k=K)]

    return ask


def substring(world: World) -> Ask:
    """The baseline: how many of the request's words stand somewhere in name and description."""
    texts = [
        (api, one.name, f"{api} {one.name} {one.description}".lower())
        for api, operations in world.operations.items()
        for one in operations
    ]

    async def ask(text: str) -> list[tuple[str, str]]:
        words = text.lower().split()
        scored = sorted((-sum(word in each for word in words), api, name) for api, name, each in texts)
        return [(api, name) for score, api, name in scored[:K] if score]

    return ask


class Measured(msgspec.Struct):
    """One way to search, in one world."""

    recalls: list[float]
    milliseconds: list[float]

    def share(self, start: int = 0) -> float:
        """Recall@10; of every second request from `start` on, if that is 1 or 2."""
        own = self.recalls if not start else self.recalls[start - 1 :: 2]
        return 100 * statistics.fmean(own)

    @property
    def p99(self) -> float:
        return float(np.percentile(self.milliseconds, 99))


async def measure(ask: Ask, asked: Sequence[Asked]) -> Measured:
    found = Measured([], [])
    for text, wanted in asked:
        started = time.perf_counter()
        got = await ask(text)
        found.milliseconds.append(1000 * (time.perf_counter() - started))
        found.recalls.append(sum(one in got for one in wanted) / len(wanted))
    return found


class SentenceEmbedder:
    """A BERT whose last states are averaged, on one thread."""

    id, dimension = "sentence", 0

    def __init__(self, directory: Path) -> None:
        import torch
        from safetensors.torch import load_file
        from tokenizers import Tokenizer
        from transformers import BertConfig, BertModel

        torch.set_num_threads(1)
        self._torch = torch
        self._model = BertModel(BertConfig.from_json_file(directory / "config.json"), add_pooling_layer=False).eval()
        weights = load_file(directory / "model.safetensors")
        known = self._model.state_dict()
        self._model.load_state_dict({name: tensor for name, tensor in weights.items() if name in known})
        self._tokens = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokens.enable_truncation(128)
        self._tokens.enable_padding()
        self._known: dict[str, Any] = {}

    async def embed(self, texts: Sequence[str]) -> Any:
        new = sorted(set(texts) - self._known.keys(), key=len)
        for start in range(0, len(new), 64):
            part = new[start : start + 64]
            encoded = self._tokens.encode_batch(part)
            ids, mask = (
                self._torch.tensor([getattr(one, name) for one in encoded]) for name in ("ids", "attention_mask")
            )
            with self._torch.inference_mode():
                states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
            means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            unit = self._torch.nn.functional.normalize(means, dim=-1).numpy()
            self._known |= dict(zip(part, unit, strict=True))
        return np.stack([self._known[text] for text in texts])


async def run(python: str, model: Path | None) -> dict[str, float]:
    worlds = [appworld(python), synthetic(SEED, 1.0), synthetic(SEED, 0.5)]
    sentence = SentenceEmbedder(model) if model is not None else None
    rows: list[tuple[object, ...]] = []
    figures: dict[str, float] = {}
    for world, key in zip(worlds, ("appworld", "synthetic", "synthetic_half"), strict=True):
        words, vectors = SearchSettings(apis=0.0), SearchSettings(words=0.0, vectors=1.0, apis=0.0)
        ways: dict[str, Measured] = {}
        ways["substring"] = await measure(substring(world), world.asked)
        plans: list[tuple[str, Embedder | None, SearchSettings]] = [
            ("words", None, words),
            ("words, APIs", None, SearchSettings()),
        ]
        if sentence is not None:
            plans += [("vectors (model)", sentence, vectors), ("fused (model)", sentence, SearchSettings())]
        for name, embedder, settings in plans:
            index = await filled(world, embedder, settings)
            ways[name] = await measure(searching(index), world.asked)
            print(f"{world.name}: {name}: {ways[name].share():.1f} %", file=sys.stderr)
        for name, found in ways.items():
            rows.append((world.name, name, found.share(), found.share(1), found.share(2), f"{found.p99:.2f}"))
        figures |= {
            f"recall10_{key}": ways["words, APIs"].share() / 100,
            f"recall10_{key}_substring": ways["substring"].share() / 100,
            f"recall10_{key}_words": ways["words"].share() / 100,
            f"p99_ms_{key}": ways["words, APIs"].p99,
        }
        if sentence is not None:
            figures[f"recall10_{key}_model"] = ways["fused (model)"].share() / 100
    report.table(
        f"tool search, seed {SEED}",
        ("operations", "way", "recall@10 %", "first half", "second half", "p99 ms"),
        rows,
    )
    return figures


def main() -> None:
    parser = report.arguments("Recall and latency of tool search.")
    parser.add_argument("--appworld", default=".venv-appworld/bin/python", help="interpreter that has appworld")
    parser.add_argument("--model", type=Path, metavar="DIR", help="a sentence embedder to compare with")
    given = parser.parse_args()
    report.write(given.json, "toolsearch", asyncio.run(run(given.appworld, given.model)), [SEED])


if __name__ == "__main__":
    main()
