"""The scripted engine as a process: real HTTP, streams and all, and a log of which key got which answer.

python -m tests.clients.engine.server --port 8000
"""

import argparse
import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.clients.engine import chat, messages, responses, script

PACE = 0.001
"""Seconds between the events of a stream."""


class Engine:
    """Answers as the script says. Who asked stands in the key alone, and the key in the log alone."""

    def __init__(self) -> None:
        self._memory = responses.Memory()
        self._given: list[dict[str, Any]] = []

    def app(self) -> Starlette:
        post = ["POST"]
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._answering(chat, chat.Completion), methods=post),
                Route("/v1/responses", self._answering(responses, responses.Response), methods=post),
                Route("/v1/messages", self._answering(messages, messages.Message), methods=post),
                Route("/v1/models", self.models),
                Route("/health", self.health),
                Route("/given", self.given),
            ]
        )

    def _answering(self, dialect: ModuleType, made: type) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            asked, uid = await request.json(), uuid.uuid4().hex
            try:
                items = self._memory.items(asked) if dialect is responses else []
            except KeyError as error:
                message = f"no item or response with id {error}"
                return JSONResponse({"error": {"message": message, "type": "invalid_request_error"}}, 404)
            told = dialect.told(asked, items) if dialect is responses else dialect.told(asked)
            said = script.reply(asked["model"], told, dialect.tools(asked), uid)
            prompt, pieces = script.prompt(told), script.sampled(said)
            answer = made(asked, said, prompt, pieces, uid)
            if dialect is responses:
                self._memory.keep(answer.id, items, answer.output)
            self._log(request, answer.id, prompt, pieces)
            if not asked.get("stream"):
                return JSONResponse(answer.whole())
            return StreamingResponse(_paced(answer.events()), media_type="text/event-stream")

        return answer

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in script.SCRIPTS]})

    async def health(self, request: Request) -> Response:
        return Response()

    async def given(self, request: Request) -> Response:
        """The truth: every answer, the key that it went to, its token ids."""
        return JSONResponse(self._given)

    def _log(self, request: Request, response_id: str, prompt: list[int], pieces: list[list[int]]) -> None:
        ids = [token for piece in pieces for token in piece]
        # Anthropic's package shows its key in a header of its own.
        key = request.headers.get("x-api-key") or request.headers["authorization"].removeprefix("Bearer ")
        self._given.append({"key": key, "response_id": response_id, "prompt_ids": prompt, "response_ids": ids})


async def _paced(events: list[bytes]) -> AsyncIterator[bytes]:
    for event in events:
        yield event
        await asyncio.sleep(PACE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    # Longer than a client on a busy machine pauses: one that is met by a closed connection may give up.
    uvicorn.run(
        Engine().app(), host="127.0.0.1", port=port, log_level="warning", access_log=False, timeout_keep_alive=75
    )


if __name__ == "__main__":
    main()
