"""What clients get: the bodies of responses and of stream events, in OpenAI's form with vLLM's additions."""

import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from adapters.engines.embedded import tools
from adapters.engines.embedded.batching import Alternatives, Run
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


def usage(runs: Sequence[Run]) -> dict[str, Any]:
    """Tokens of a request; the prompt counts once."""
    prompt, answer = runs[0].prompt_tokens, sum(run.produced for run in runs)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": runs[0].cached_tokens},
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

    def body(self, runs: Sequence[Run]) -> bytes:
        """The whole response."""
        scores = self.request.prompt_logprobs
        return encode(
            {
                "id": self.id,
                "object": "chat.completion",
                "created": self._created,
                "model": self._model,
                "choices": [self._choice(i, run) for i, run in enumerate(runs)],
                "usage": usage(runs),
                "prompt_logprobs": None if scores is None else prompt_logprobs(runs[0], self._prompts),
                "prompt_token_ids": runs[0].ids[: runs[0].prompt_tokens] if self.request.return_token_ids else None,
            }
        )

    def _choice(self, index: int, run: Run) -> dict[str, Any]:
        answer = run.answer
        content: str | None = visible(self._prompts.decode(answer), run)
        calls: list[dict[str, Any]] = []
        if self.parses and content:
            content, calls = tools.parse(content, self.ids.tool_call)
        choice: dict[str, Any] = {
            "index": index,
            "message": {"role": "assistant", "content": content, "refusal": None, "tool_calls": calls},
            "logprobs": {"content": logprobs(run, 0, len(answer), self._prompts)} if self.request.logprobs else None,
            "finish_reason": "tool_calls" if calls else run.finish,
            "stop_reason": run.stop_text,
            "token_ids": answer if self.request.return_token_ids else None,
        }
        if self.request.return_weight_versions:
            choice["weight_versions"] = weight_versions(run)
        return choice

    def opening(self, runs: Sequence[Run]) -> Iterator[bytes]:
        """The first event of each choice: its role, and once the prompt's ids."""
        for index, run in enumerate(runs):
            event = self.event(index, {"role": "assistant", "content": ""})
            if self.request.return_token_ids:
                event["choices"][0]["token_ids"] = None
                event["prompt_token_ids"] = run.ids[: run.prompt_tokens] if index == 0 else None
            yield sse(event)

    def closing(self, runs: Sequence[Run]) -> Iterator[bytes]:
        """Usage if it was asked for, and the end."""
        options = self.request.stream_options
        if options is not None and options.include_usage:
            yield sse({**self.event(0, {}), "choices": [], "usage": usage(runs)})
        yield b"data: [DONE]\n\n"

    def event(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        """An event of one choice, to be completed."""
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}],
        }


class ChoiceStream:
    """The events of one choice of a streamed chat, from its run as it grows."""

    def __init__(self, chat: Chat, index: int, run: Run, prompts: Prompts) -> None:
        self.over = False
        self._chat, self._index, self._run, self._prompts = chat, index, run, prompts
        self._writer, self._reader = Writer(prompts), tools.Reader(chat.ids.tool_call)
        self._sent = 0
        self._held = ""
        # A stop text may come in pieces: so much text waits until it can no longer be the beginning of one.
        self._hold = max((len(stop) - 1 for stop in run.limits.stop), default=0)

    def events(self) -> Iterator[bytes]:
        """What is new since the last call: at most one event."""
        run, request = self._run, self._chat.request
        finish = run.finish  # read first: after it is set nothing is added
        produced = run.produced
        if self.over or (produced == self._sent and finish is None):
            return
        new = run.ids[run.prompt_tokens + self._sent : run.prompt_tokens + produced]
        content, calls = self._text(new, last=finish is not None)
        delta: dict[str, Any] = {}
        if content:
            delta["content"] = content
        if calls:
            delta["tool_calls"] = calls
        start, self._sent = self._sent, produced
        if not delta and finish is None and not (request.logprobs or request.return_token_ids):
            return
        event = self._chat.event(self._index, delta)
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
        yield sse(event)

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
    content: list[dict[str, Any]] = []
    for i, token in enumerate(run.ids[first + start : first + end], start):
        more = [_entry(prompts.token(other), value) for other, value in run.tops[i]] if run.tops else []
        content.append({**_entry(prompts.token(token), run.logprobs[i]), "top_logprobs": more})
    return content


def _entry(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", errors="replace"))}


def prompt_logprobs(run: Run, prompts: Prompts) -> list[dict[str, Any] | None]:
    """One entry a token of the prompt, by id; the first has none."""
    return [None, *(_scored(run.ids[i], score, prompts) for i, score in enumerate(run.prompt_scores, 1))]


def _scored(token: int, score: tuple[float, Alternatives], prompts: Prompts) -> dict[str, Any]:
    own, more = score
    entries = {str(other): _ranked(value, rank, prompts.token(other)) for rank, (other, value) in enumerate(more, 1)}
    return {str(token): _ranked(own, None, prompts.token(token))} | entries


def _ranked(logprob: float, rank: int | None, text: str) -> dict[str, Any]:
    return {"logprob": logprob, "rank": rank, "decoded_token": text}


def generated(request_id: str, runs: Sequence[Run], params: SamplingParams, prompts: Prompts) -> bytes:
    """The response to a token-in request."""
    scores = None if params.prompt_logprobs is None else prompt_logprobs(runs[0], prompts)
    choices = [_generated(index, run, scored=params.logprobs is not None) for index, run in enumerate(runs)]
    return encode({"request_id": request_id, "choices": choices, "prompt_logprobs": scores})


def _generated(index: int, run: Run, *, scored: bool) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for i, token in enumerate(run.answer if scored else ()):
        others = [{"token_id": other, "logprob": value} for other, value in run.tops[i]] if run.tops else []
        content.append({
            "token": f"token_id:{token}", "token_id": token, "logprob": run.logprobs[i], "top_logprobs": others,
        })  # fmt: skip
    return {
        "index": index,
        "token_ids": run.answer,
        "finish_reason": run.finish,
        "logprobs": {"content": content} if scored else None,
        "stop_reason": run.stop_text,
        "weight_versions": weight_versions(run),
    }


def sse(event: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + encode(event) + b"\n\n"
