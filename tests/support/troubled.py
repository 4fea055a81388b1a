"""An engine with one thing wrong: what the doctor is to find."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def engine(trouble: str) -> Starlette:
    """vLLM's surface as the doctor sees it.

    Args:
        trouble: "key" (it wants one), "tokens" (answers have no ids), "tools" (it has no tool parser), "paused".
    """

    async def health(request: Request) -> Response:
        return JSONResponse({})

    async def any_other(request: Request) -> Response:
        path = request.url.path
        if trouble == "key" and "authorization" not in request.headers:
            return JSONResponse({"error": "Unauthorized"}, 401)
        if path == "/v1/chat/completions":
            return chat(await request.json())
        answers = {
            "/weight_info": {"weight_version": "3"}, "/is_paused": {"is_paused": trouble == "paused"},
            "/v1/models": {"data": [{"id": "desk"}]}, "/v1/chat/completions/render": {"token_ids": [1, 2]},
        }  # fmt: skip
        return JSONResponse(answers[path])

    def chat(asked: dict) -> Response:
        if trouble == "tools" and "tools" in asked:
            text = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            return JSONResponse({"error": {"message": text}}, 400)
        choice: dict = {"message": {"role": "assistant", "content": "w"}, "finish_reason": "length"}
        if trouble != "tokens":
            choice |= {"token_ids": [5], "logprobs": {"content": [{"logprob": -0.5}]}}
        return JSONResponse({"choices": [choice]})

    return Starlette(
        routes=[Route("/health", health), Route("/{path:path}", any_other, methods=["GET", "POST"])],
    )
