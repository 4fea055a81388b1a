"""Whether the right operations are among the ten that are found.

    python -m tests.benchmarks.toolsearch --appworld .venv-appworld/bin/python --json build/toolsearch.json

AppWorld's 457 operations, read from the installed package at run time, asked with `toolsearch_queries` by words alone,
and with the ranking of APIs (the default). `--model DIR` adds a sentence embedder: a folder with config.json,
model.safetensors and tokenizer.json of a BERT such as all-MiniLM-L6-v2; it stands for what `embedder.openai` would ask.
"""

import asyncio
import json
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from actors.ports.models import Embedder
from adapters.live import Operation
from adapters.toolsearch import SearchSettings, ToolIndex
from tests.benchmarks import report
from tests.benchmarks.toolsearch_queries import QUERIES

K = 10
Operations = dict[str, list[Operation]]
Asked = tuple[str, tuple[tuple[str, str], ...]]
"""A request, and the operations that serve it by API and name."""


def appworld(python: str) -> Operations:
    """AppWorld's operations by API, as the interpreter `python` has them."""
    script = Path(__file__).with_name("appworld_operations.py")
    said = subprocess.run([python, str(script)], capture_output=True, check=True, timeout=300)
    operations: Operations = {}
    for each in json.loads(said.stdout):
        properties = {name: {"type": kind, "description": text} for name, kind, text, _ in each["parameters"]}
        operations.setdefault(each["app"], []).append(
            Operation(name=each["name"], description=each["description"], parameters={"properties": properties})
        )
    return operations


async def filled(world: Operations, embedder: Embedder | None, settings: SearchSettings) -> ToolIndex:
    index = ToolIndex(embedder, settings)
    for api, operations in world.items():
        await index.add(operations, api)
    return index


async def recall(index: ToolIndex, asked: Sequence[Asked]) -> float:
    """Mean share of what is wanted among what is found, in percent."""
    shares: list[float] = []
    for text, wanted in asked:
        got = [(one.api, one.operation.name) for one in await index.search(text, k=K)]
        shares.append(sum(one in got for one in wanted) / len(wanted))
    return 100 * statistics.fmean(shares)


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
    world = appworld(python)
    asked = [(text, tuple((one.partition(".")[0], one.partition(".")[2]) for one in found)) for text, found in QUERIES]
    plans: list[tuple[str, Embedder | None, SearchSettings]] = [
        ("words", None, SearchSettings(apis=0.0)),
        ("words, APIs", None, SearchSettings()),
    ]
    if model is not None:
        sentence = SentenceEmbedder(model)
        plans.append(("fused (model)", sentence, SearchSettings()))
    found = {name: await recall(await filled(world, embedder, settings), asked) for name, embedder, settings in plans}
    report.table("tool search, AppWorld", ("way", "recall@10 %"), list(found.items()))
    return {f"recall10_{name.replace(', ', '_').replace(' ', '_')}": share / 100 for name, share in found.items()}


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--appworld", default=".venv-appworld/bin/python", help="interpreter that has appworld")
    parser.add_argument("--model", type=Path, metavar="DIR", help="a sentence embedder to compare with")
    given = parser.parse_args()
    report.write(given.json, "toolsearch", asyncio.run(run(given.appworld, given.model)))


if __name__ == "__main__":
    main()
