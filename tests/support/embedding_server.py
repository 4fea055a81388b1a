"""An endpoint for `POST /v1/embeddings` on loopback that answers as it is told: well, wrongly, late or not at all."""

import json
import time
from collections.abc import Callable
from typing import Any

import anyio

from adapters.embedders.hashing import HashingEmbedder
from tests.support.http_api import HttpApi, Said

Answer = tuple[int, bytes]
"""Status and body."""
Script = Callable[[dict[str, Any]], Answer]
"""What a request, its JSON body, is answered with."""


def honest(dimension: int = 256) -> Script:
    """Vectors of a small local model, not of length 1, in an order of the server's own."""
    model = HashingEmbedder(dimension=dimension)

    def answer(body: dict[str, Any]) -> Answer:
        vectors = anyio.run(model.embed, body["input"]) * 3.0
        return listed([vector.tolist() for vector in vectors], body["model"], reverse=True)

    return answer


def listed(vectors: list[Any], model: str = "m", *, reverse: bool = False) -> Answer:
    """A well-formed answer with `vectors`."""
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    body = {"object": "list", "data": data[::-1] if reverse else data, "model": model, "usage": usage}
    return 200, json.dumps(body).encode()


class EmbeddingServer(HttpApi):
    """`script` may be replaced at any time."""

    def __init__(self, script: Script | None = None, port: int = 0) -> None:
        super().__init__(lambda asked: Said(*self.script(asked.json)), port)
        self.script, self.url = script or honest(), f"{self.url}/v1"


def hanging(seconds: float) -> Script:
    """Answers well, but so late that nobody waits for it."""

    def answer(body: dict[str, Any]) -> Answer:
        time.sleep(seconds)
        return honest()(body)

    return answer
