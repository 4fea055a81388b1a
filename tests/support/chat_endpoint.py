"""A chat endpoint that answers as it is told, over real HTTP: for adapters that speak to language models."""

import json
import re
from collections.abc import Callable
from typing import Any

from tests.support.answers import completion, usage
from tests.support.http_api import HttpApi, Said

Reply = Callable[[dict[str, Any]], tuple[int, bytes]]


class ChatEndpoint(HttpApi):
    """Serves scripted replies, one a request, the last one again and again; a context manager.

    Args:
        replies: what to do with a request's JSON: status and body.
    """

    def __init__(self, *replies: Reply) -> None:
        super().__init__(lambda asked: Said(*replies[min(len(self.asked), len(replies)) - 1](asked.json)))
        self.url += "/v1"

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [one.json for one in self.asked]

    @property
    def keys(self) -> list[str]:
        """What each request was authorised by."""
        return [one.headers.get("authorization", "") for one in self.asked]


def says(text: str | Callable[[str], str] | None, reason: str = "stop", tokens: int = 100, **message: Any) -> Reply:
    """A completion; `text` may be made from the call's nonce."""

    def reply(body: dict[str, Any]) -> tuple[int, bytes]:
        content = text(nonce_of(body)) if callable(text) else text
        made = completion(content, finish=reason, model="m", usage=usage(tokens - 1, 1), **message)
        return 200, json.dumps(made).encode()

    return reply


def fails(status: int, body: bytes = b'{"error": {"message": "no"}}') -> Reply:
    """An HTTP error, or whatever `body` is."""
    return lambda _: (status, body)


def nonce_of(body: dict[str, Any]) -> str:
    """The nonce of the call, as a model would read it."""
    found = re.search(r"lines that begin with (\w+)", body["messages"][0]["content"])
    return found[1] if found else ""
