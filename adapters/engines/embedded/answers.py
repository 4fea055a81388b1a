"""What clients get: the bodies of responses and of stream events, in OpenAI's form with vLLM's additions."""

import os
import random
from typing import Any

import msgspec

from adapters.engines.embedded import tools
from adapters.engines.embedded.batching import Run
from adapters.engines.embedded.prompts import Prompts, Writer
from adapters.engines.embedded.requests import ChatRequest, SamplingParams

encode = msgspec.json.encode


class Ids:
    """Random ids in vLLM's style: 128 bits, unique, no secrets. Asking the system for each would cost a call into
    it."""

    def __init__(self) -> None:
        self._rng = random.Random(os.urandom(32))

    def new(self, prefix: str) -> str:
        """Another id."""
        return f"{prefix}{self._rng.getrandbits(128):032x}"

    def tool_call(self) -> str:
        """For a tool call; agents echo it, which is how calls are stitched into trajectories."""
        return self.new("chatcmpl-tool-")


def error(message: str, status: int, *, param: str | None = None) -> dict[str, Any]:
    """An error in OpenAI's form."""
    kind = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}
    return {
        "error": {"message": message, "type": kind.get(status, "InternalServerError"), "param": param, "code": status}
    }


def usage(run: Run) -> dict[str, Any]:
    """Tokens of a request."""
    prompt, answer = run.prompt_tokens, run.produced
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": run.cached_tokens},
    }


def weight_versions(run: Run) -> list[dict[str, Any]]:
    """Which weights sampled which tokens of the answer."""
    return [{"version": label, "start": start, "end": end} for label, start, end in run.versions]


class Chat:
    """Makes the answer to one chat request."""

    def __init__(self, request: ChatRequest, prompts: Prompts, ids: Ids, model: str, created: int) -> None:
        self.request, self.ids, self.id = request, ids, ids.new("chatcmpl-")
        self.parses = bool(request.tools) and request.tool_choice in (None, "auto")
        self._prompts, self._model, self._created = prompts, model, created

    def body(self, run: Run) -> bytes:
        """The whole response."""
        scores = self.request.prompt_logprobs
        return encode(
            {
                "id": self.id,
                "object": "chat.completion",
                "created": self._created,
                "model": self._model,
                "choices": [self._choice(run)],
                "usage": usage(run),
                "prompt_logprobs": None if scores is None else prompt_logprobs(run, self._prompts),
                "prompt_token_ids": run.ids[: run.prompt_tokens] if self.request.return_token_ids else None,
            }
        )

    def _choice(self, run: Run) -> dict[str, Any]:
        answer = run.answer
        content: str | None = visible(self._prompts.decode(answer), run)
        calls: list[dict[str, Any]] = []
        if self.parses and content:
            content, calls = tools.parse(content, self.ids.tool_call)
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": content, "refusal": None, "tool_calls": calls},
            "logprobs": {"content": logprobs(run, 0, len(answer), self._prompts)} if self.request.logprobs else None,
            "finish_reason": "tool_calls" if calls else run.finish,
            "stop_reason": run.stop_text,
            "token_ids": answer if self.request.return_token_ids else None,
        }
        if self.request.return_weight_versions:
            choice["weight_versions"] = weight_versions(run)
        return choice

    def opening(self, run: Run) -> bytes:
        """The first event: the role, and the prompt's ids."""
        event = self.event({"role": "assistant", "content": ""})
        if self.request.return_token_ids:
            event["choices"][0]["token_ids"] = None
            event["prompt_token_ids"] = run.ids[: run.prompt_tokens]
        return sse(event)

    def closing(self, run: Run) -> bytes:
        """Usage if it was asked for, and the end."""
        options = self.request.stream_options
        told = options is not None and options.include_usage
        return (sse({**self.event({}), "choices": [], "usage": usage(run)}) if told else b"") + b"data: [DONE]\n\n"

    def event(self, delta: dict[str, Any]) -> dict[str, Any]:
        """An event, to be completed."""
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}],
        }


class ChoiceStream:
    """The events of a streamed chat, from its run as it grows."""

    def __init__(self, chat: Chat, run: Run, prompts: Prompts) -> None:
        self.over = False
        self._chat, self._run, self._prompts = chat, run, prompts
        self._writer, self._reader = Writer(prompts), tools.Reader(chat.ids.tool_call)
        self._sent = 0
        self._held = ""
        # A stop text may come in pieces: so much text waits until it can no longer be the beginning of one.
        self._hold = max((len(stop) - 1 for stop in run.limits.stop), default=0)

    def event(self) -> bytes:
        """What is new since the last call, if anything is."""
        run, request = self._run, self._chat.request
        finish = run.finish  # read first: after it is set nothing is added
        produced = run.produced
        if self.over or (produced == self._sent and finish is None):
            return b""
        new = run.ids[run.prompt_tokens + self._sent : run.prompt_tokens + produced]
        content, calls = self._text(new, last=finish is not None)
        delta: dict[str, Any] = {}
        if content:
            delta["content"] = content
        if calls:
            delta["tool_calls"] = calls
        start, self._sent = self._sent, produced
        if not delta and finish is None and not (request.logprobs or request.return_token_ids):
            return b""
        event = self._chat.event(delta)
        choice = event["choices"][0]
        if request.logprobs and new:
            choice["logprobs"] = {"content": logprobs(run, start, produced, self._prompts)}
        if request.return_token_ids:
            choice["token_ids"] = new
        if finish is not None:
            self.over = True
            choice["finish_reason"] = "tool_calls" if self._reader.calls else finish
            choice["stop_reason"] = run.stop_text
            if request.return_weight_versions:
                choice["weight_versions"] = weight_versions(run)
        return sse(event)

    def _text(self, new: list[int], *, last: bool) -> tuple[str, list[dict[str, Any]]]:
        self._held += self._writer.add(new, last=last)
        if last:
            text, self._held = visible(self._held, self._run), ""
        else:
            keep = len(self._held) - self._hold
            text, self._held = self._held[: max(0, keep)], self._held[max(0, keep) :]
        return self._reader.add(text, last=last) if self._chat.parses else (text, [])


def visible(text: str, run: Run) -> str:
    """`text` up to the stop text that ended the run."""
    return text if run.stop_text is None else text[: text.index(run.stop_text)]


def logprobs(run: Run, start: int, end: int, prompts: Prompts) -> list[dict[str, Any]]:
    """`logprobs.content` of the answer's tokens `start` to `end`."""
    first = run.prompt_tokens
    said = zip(run.ids[first + start : first + end], run.logprobs[start:end], strict=True)
    return [_entry(prompts.token(token), logprob) for token, logprob in said]


def _entry(text: str, logprob: float) -> dict[str, Any]:
    seen = list(text.encode("utf-8", errors="replace"))
    return {"token": text, "logprob": logprob, "bytes": seen, "top_logprobs": []}


def prompt_logprobs(run: Run, prompts: Prompts) -> list[dict[str, Any] | None]:
    """One entry a token of the prompt, by id; the first has none."""
    scored = zip(run.ids[1:], run.prompt_scores, strict=False)
    return [None, *({str(token): _ranked(own, prompts.token(token))} for token, own in scored)]


def _ranked(logprob: float, text: str) -> dict[str, Any]:
    return {"logprob": logprob, "rank": None, "decoded_token": text}


def generated(request_id: str, run: Run, params: SamplingParams, prompts: Prompts) -> bytes:
    """The response to a token-in request."""
    content: list[dict[str, Any]] = [
        {"token": f"token_id:{token}", "token_id": token, "logprob": logprob, "top_logprobs": []}
        for token, logprob in zip(run.answer, run.logprobs, strict=True)
    ]
    choice = {
        "index": 0,
        "token_ids": run.answer,
        "finish_reason": run.finish,
        "logprobs": None if params.logprobs is None else {"content": content},
        "stop_reason": run.stop_text,
        "weight_versions": weight_versions(run),
    }
    scores = None if params.prompt_logprobs is None else prompt_logprobs(run, prompts)
    return encode({"request_id": request_id, "choices": [choice], "prompt_logprobs": scores})


def sse(event: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + encode(event) + b"\n\n"
