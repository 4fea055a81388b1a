"""The scripted engine as a process: real HTTP, streams and all, and a log of which key got which answer.

python -m tests.clients.engine.server 8000
"""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.clients.engine import dialects, script
from tests.support import answers

PACE = 0.001
"""Seconds between the events of a stream."""
ASK_FOR_TOKENS = ("return_token_ids", "enable_response_messages", "evolved_tokens")
DIALECTS = {
    "/v1/chat/completions": (dialects.chat, answers.chat, "chatcmpl-"),
    "/v1/messages": (dialects.messages, answers.messages, "chatcmpl-"),
    "/v1/responses": (dialects.responses, answers.responses, "resp_"),
}
"""By path: what reads a request, what writes the answer, and how its id begins."""


class Engine:
    """Answers as the script says. Who asked stands in the key alone, and the key in the log alone."""

    def __init__(self) -> None:
        self._memory = dialects.Memory()
        self._given: list[dict[str, Any]] = []

    def app(self) -> Starlette:
        gets = {"/v1/models": self.models, "/health": self.health, "/given": self.given}
        return Starlette(
            routes=[Route(path, self.answer, methods=["POST"]) for path in DIALECTS]
            + [Route(path, tells) for path, tells in gets.items()]
        )

    async def answer(self, request: Request) -> Response:
        read, written, prefix = DIALECTS[request.url.path]
        uid = uuid.uuid4().hex
        try:
            asked = self._memory.resolved(await request.json())
        except KeyError as error:
            message = f"no item or response with id {error}"
            return JSONResponse({"error": {"message": message, "type": "invalid_request_error"}}, 404)
        told = read(asked)
        parts = script.parts(script.reply(asked["model"], told, dialects.tools(asked), uid))
        tokens = any(asked.get(field) for field in ASK_FOR_TOKENS)
        said = answers.Answer(prefix + uid, asked, script.prompt(told), parts, tokens, (script.END,))
        # Anthropic's package shows its key in a header of its own.
        key = request.headers.get("x-api-key") or request.headers["authorization"].removeprefix("Bearer ")
        self._given.append(
            {"key": key, "response_id": said.id, "prompt_ids": said.prompt, "response_ids": said.sampled}
        )
        events, whole = written(said)
        self._memory.keep(asked, whole)
        if not asked.get("stream"):
            return JSONResponse(whole)
        return StreamingResponse(_paced(answers.streamed(events)), media_type="text/event-stream")

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in script.SCRIPTS]})

    async def health(self, request: Request) -> Response:
        return Response()

    async def given(self, request: Request) -> Response:
        """The truth: every answer, the key that it went to, its token ids."""
        return JSONResponse(self._given)


async def _paced(events: list[bytes]) -> AsyncIterator[bytes]:
    for event in events:
        yield event
        await asyncio.sleep(PACE)


if __name__ == "__main__":
    app, port = Engine().app(), int(sys.argv[1])
    # Longer than a client on a busy machine pauses: one that is met by a closed connection may give up.
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False, timeout_keep_alive=75)
