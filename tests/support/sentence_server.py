"""A real embedding model behind `POST /v1/embeddings`, for measurements: a sentence encoder like BERT, on a CPU.

    python -m tests.support.sentence_server DIRECTORY [--port 8021] [--threads 1]

DIRECTORY has what sentence-transformers saves (config.json, tokenizer.json, model.safetensors) of a model that takes
the mean over its last layer and length 1, as all-MiniLM-L6-v2 does (Reimers and Gurevych 2019, "Sentence-BERT", section
3). Nothing is downloaded and no code of the directory runs. It is no server for production: vLLM is.
"""

import argparse
import json
import threading
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer

from tests.support.embedding_server import Answer, EmbeddingServer, Script, listed

_TOKENS = 256
"""Of a text, from its beginning: max_seq_length of all-MiniLM-L6-v2."""
_AT_ONCE = 32
_KEPT = 50_000
"""Texts whose vectors are kept: a benchmark asks for the same ones under each of its settings."""


def encoder(directory: Path) -> Script:
    """Answers with the model of `directory`.

    Raises:
        SystemExit: the directory holds no safetensors model, or the model does not pool by the mean.
    """
    pooling = directory / "1_Pooling" / "config.json"
    if not (directory / "model.safetensors").is_file() or not pooling.is_file():
        raise SystemExit(f"{directory}: no model.safetensors and 1_Pooling/config.json; name a directory that has them")
    if not json.loads(pooling.read_bytes()).get("pooling_mode_mean_tokens"):
        raise SystemExit(f"{directory}: its vectors are no means over tokens; name a model whose are")
    tokenizer: Any = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    model: Any = AutoModel.from_pretrained(directory, local_files_only=True, use_safetensors=True).eval()
    known: dict[str, list[float]] = {}
    lock = threading.Lock()

    @torch.inference_mode()
    def learn(texts: list[str]) -> None:
        # Of like length together: a short text beside a long one costs as much as that.
        texts = sorted(texts, key=len)
        for start in range(0, len(texts), _AT_ONCE):
            part = texts[start : start + _AT_ONCE]
            read = tokenizer(part, padding=True, truncation=True, max_length=_TOKENS, return_tensors="pt")
            mask = read["attention_mask"].unsqueeze(-1).float()
            summed = (model(**read).last_hidden_state * mask).sum(1)
            vectors = torch.nn.functional.normalize(summed / mask.sum(1), dim=-1)
            known.update(zip(part, vectors.tolist(), strict=True))

    def answer(body: dict[str, Any]) -> Answer:
        given = body["input"]
        texts = [given] if isinstance(given, str) else given
        with lock:
            if len(known) > _KEPT:
                known.clear()
            learn([text for text in dict.fromkeys(texts) if text not in known])
            return listed([known[text] for text in texts], body["model"])

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description="A sentence encoder behind POST /v1/embeddings, on loopback.")
    parser.add_argument("directory", type=Path, help="the model, as sentence-transformers saves it")
    parser.add_argument("--port", type=int, default=8021)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with EmbeddingServer(encoder(given.directory), given.port) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
