"""`/v1/chat/completions` and `/v1/completions`: choices, deltas, and the token fields that vLLM adds to them.

A text completion is a chat whose choices have a text in place of a message.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from actors.dialects.conversation import dicts
from actors.dialects.form import FIELDS, NULL, UNKNOWN, Fields, Tokens, error_text, objects, pack, value

_ABORTED = ("abort", "error")
_MERGED = ("choices", "object", "error")
"""Fields of events that are merged; the first and the last of them say of the others what holds for the answer."""


class _ChoiceDelta(msgspec.Struct):
    index: int = 0
    delta: dict[str, Any] | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: dict[str, msgspec.Raw] | None = None
    stop_reason: msgspec.Raw = NULL
    prompt_token_ids: msgspec.Raw = NULL
    weight_versions: msgspec.Raw = NULL


class _Chunk(msgspec.Struct):
    choices: list[_ChoiceDelta] | None = None
    error: Any = None


_CHUNKS = msgspec.json.Decoder(list[_Chunk])


class _Choice:
    """One choice of a stream, growing. Texts are kept in pieces: joining each would cost the square of the length."""

    def __init__(self, index: int) -> None:
        self.made: dict[str, Any] = {"index": index, "finish_reason": None, "logprobs": None}
        self.message: dict[str, Any] = {"content": None}
        self.texts: dict[str, list[str]] = {}
        self.calls: dict[int, tuple[dict[str, str], dict[str, list[str]]]] = {}
        """By place; -1 is the one call of the old kind."""
        self.logprobs: dict[str, list[bytes]] | None = None

    def add(self, part: _ChoiceDelta) -> None:
        made = self.made
        made["finish_reason"] = part.finish_reason or made["finish_reason"]
        if part.token_ids is not None:
            made.setdefault("token_ids", []).extend(part.token_ids)
        if part.logprobs is not None:
            self.logprobs = self.logprobs or {}
            for name, raw in part.logprobs.items():
                if (entries := bytes(raw)).startswith(b"["):
                    # Joined as text: nobody needs the entries one by one.
                    self.logprobs.setdefault(name, []).append(entries[1:-1].strip())
        if part.stop_reason != NULL:
            made["stop_reason"] = part.stop_reason
        if part.prompt_token_ids != NULL:
            made["prompt_token_ids"] = part.prompt_token_ids
        if part.weight_versions != NULL:
            made["weight_versions"] = part.weight_versions
        if part.text is not None:
            self.texts.setdefault("", []).append(part.text)
        for name, said in part.delta.items() if part.delta else ():
            if isinstance(said, str):
                self.texts.setdefault(name, []).append(said)
            elif name == "tool_calls":
                for call in dicts(said):
                    self._call(call.get("index", 0), call, call.get("function"))
            elif name == "function_call":
                self._call(-1, {}, said)
            elif said is not None:
                self.message[name] = said

    def _call(self, place: Any, told: dict[str, Any], function: Any) -> None:
        head, texts = self.calls.setdefault(
            place if isinstance(place, int) else 0, ({"id": "", "type": "function"}, {"name": [], "arguments": []})
        )
        for name in head:
            head[name] = told.get(name) or head[name]
        for name, pieces in texts.items():
            text = function.get(name) if isinstance(function, dict) else function
            if not isinstance(text, str | None):
                raise msgspec.ValidationError(f"a call whose {name} is no text")
            pieces.append(text or "")

    def whole(self) -> dict[str, Any]:
        made, texts = self.made, {name: "".join(pieces) for name, pieces in self.texts.items()}
        if self.logprobs is not None:
            made["logprobs"] = {
                name: msgspec.Raw(b"[" + b",".join(filter(None, pieces)) + b"]")
                for name, pieces in self.logprobs.items()
            }
        if "" in texts:
            return made | {"text": texts[""]}
        message: dict[str, Any] = self.message | texts | {"role": "assistant"}
        calls = [
            (place, {**head, "function": {name: "".join(pieces) for name, pieces in told.items()}})
            for place, (head, told) in sorted(self.calls.items())
        ]
        if calls:
            # The opening event says "" where the plain response says null.
            message["content"] = message["content"] or None
        for place, call in calls:
            if place < 0:
                message["function_call"] = call["function"]
            else:
                message.setdefault("tool_calls", []).append(call)
        return made | {"message": message}


def merge(events: Sequence[bytes]) -> tuple[Any, str]:
    whole: dict[str, Any] = {}
    choices: dict[int, _Choice] = {}
    error, seen = "", False
    # One decoding of all of them costs half of one for each.
    for chunk in _CHUNKS.decode(b"[" + b",".join(events) + b"]"):
        if chunk.error is not None:
            error = error or error_text(chunk.error)
        seen = seen or chunk.choices is not None
        for part in chunk.choices or ():
            if part.index not in choices:
                choices[part.index] = _Choice(part.index)
            choices[part.index].add(part)
    if not seen:
        return None, error or UNKNOWN
    for data in (*events[:2], *events[-3:]):
        told = FIELDS.decode(data)
        whole |= {name: raw for name, raw in told.items() if name not in _MERGED and raw != NULL}
    made = [choices[index].whole() for index in sorted(choices)]
    whole["object"] = "text_completion" if made and "text" in made[0] else "chat.completion"
    whole["choices"] = made
    return whole, error


def ended(body: Fields) -> bool:
    """The engine came to an end, and did not give up in the middle and answer with what it had."""
    ends = (value(choice, "finish_reason") for choice in objects(body, "choices") if "finish_reason" in choice)
    return all(end not in (None, *_ABORTED) for end in ends)


class _Entry(msgspec.Struct):
    logprob: float
    token: str = ""


class _LogProbs(msgspec.Struct):
    content: list[_Entry] | None = None
    token_logprobs: list[float | None] | None = None


_IDS = msgspec.json.Decoder(list[int] | None)
_LOGPROBS = msgspec.json.Decoder(_LogProbs | None)


def tokens(body: Fields) -> Tokens:
    choices = objects(body, "choices")
    if len(choices) > 1:
        return Tokens(why_no_tokens="several choices")
    choice = choices[0] if choices else {}
    where = "/v1/completions" if "text" in choice else "/v1/chat/completions"
    ids, prompt = _IDS.decode(choice.get("token_ids", NULL)), _IDS.decode(body.get("prompt_token_ids", NULL))
    if prompt is None:
        # A text completion names them in the choice: it may have several prompts.
        prompt = _IDS.decode(choice.get("prompt_token_ids", NULL))
    if ids is None or prompt is None:
        return Tokens(why_no_tokens=f"no token ids from {where}")
    found = _LOGPROBS.decode(choice.get("logprobs", NULL)) or _LogProbs()
    entries = found.content or []
    logprobs = [entry.logprob for entry in entries] if found.content is not None else found.token_logprobs
    if logprobs is None or None in logprobs:
        return Tokens(why_no_tokens=f"no log-probs from {where}")
    packed = pack(prompt, ids, logprobs, value(choice, "weight_versions"))
    # What stands in for each run of masked tokens (`adapters.redaction.tokens`).
    masked = (one.token for at, one in enumerate(entries) if ids[at] == -1 and (at == 0 or ids[at - 1] != -1))
    return msgspec.structs.replace(packed, masked=tuple(masked)) if -1 in ids else packed
