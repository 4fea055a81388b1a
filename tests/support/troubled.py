"""An engine with one thing wrong: what the doctor is to find."""

from tests.support.answers import completion
from tests.support.http_api import Asked, HttpApi, Said

NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'


def engine(trouble: str) -> HttpApi:
    """vLLM's surface as the doctor sees it.

    Args:
        trouble: "key" (it wants one), "tokens" (answers have no ids), "tools" (it has no tool parser), "paused".
    """
    chat, told = "/v1/chat/completions", completion("w", finish="length")
    if trouble != "tokens":
        told["choices"][0] |= {"token_ids": [5], "logprobs": {"content": [{"logprob": -0.5}]}}
    answers = {
        "/health": {}, "/weight_info": {"weight_version": "3"}, "/is_paused": {"is_paused": trouble == "paused"},
        "/v1/models": {"data": [{"id": "desk"}]}, f"{chat}/render": {"token_ids": [1, 2]}, chat: told,
    }  # fmt: skip

    def answer(asked: Asked) -> Said:
        if trouble == "key" and asked.path != "/health" and "authorization" not in asked.headers:
            return Said(401, {"error": "Unauthorized"})
        if trouble == "tools" and asked.path == chat and "tools" in asked.json:
            return Said(400, {"error": {"message": NO_PARSER}})
        return Said(body=answers[asked.path])

    return HttpApi(answer)
