"""`/v1/chat/completions`: choices, deltas, and the token fields that vLLM adds to them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.dialects.conversation import Conversation, Item, Role, as_json, dicts, merged, text_of, tool_call
from actors.dialects.form import NULL, Fields, Merged, Tokens, error_text, objects, pack, value
from actors.messages import ToolCall

_ABORTED = ("abort", "error")
_ABORT_MARKS = (b'"abort"', b'"error"')


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct):
    index: int = 0
    id: str | None = None
    type: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None
    function_call: _Function | None = None


class _ChoiceDelta(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: msgspec.Raw = NULL
    token_ids: list[int] | None = None
    prompt_token_ids: msgspec.Raw = NULL
    logprobs: dict[str, msgspec.Raw] | None = None
    weight_versions: msgspec.Raw = NULL


class _Chunk(msgspec.Struct):
    choices: list[_ChoiceDelta] | None = None
    error: Any = None
    id: msgspec.Raw = NULL
    created: msgspec.Raw = NULL
    model: msgspec.Raw = NULL
    system_fingerprint: msgspec.Raw = NULL
    service_tier: msgspec.Raw = NULL
    prompt_token_ids: msgspec.Raw = NULL
    prompt_logprobs: msgspec.Raw = NULL
    usage: msgspec.Raw = NULL
    kv_transfer_params: msgspec.Raw = NULL
    metrics: msgspec.Raw = NULL


_FIRST_OF_ALL = ("id", "created", "model", "system_fingerprint", "service_tier", "prompt_token_ids", "prompt_logprobs")
_LAST_OF_ALL = ("usage", "kv_transfer_params", "metrics")
_RARE = ("reasoning_content", "reasoning", "refusal")
_OPENING, _CLOSING = 2, 3
"""Events at either end of a stream that say what holds for all of it."""
_CHUNKS = msgspec.json.Decoder(list[_Chunk])


class _Choice:
    """One choice of a stream, growing. Texts are kept in pieces: joining each would cost the square of the length."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.role = "assistant"
        self.texts: dict[str, list[str]] = {}
        self.calls: dict[int, tuple[dict[str, str], list[str], list[str]]] = {}
        self.function: tuple[list[str], list[str]] | None = None
        self.finish: str | None = None
        self.token_ids: list[int] | None = None
        self.logprobs: dict[str, list[msgspec.Raw]] | None = None
        self.other: dict[str, Any] = {}

    def add(self, part: _ChoiceDelta) -> None:
        self.finish = part.finish_reason or self.finish
        if part.token_ids is not None:
            if self.token_ids is None:
                self.token_ids = part.token_ids
            else:
                self.token_ids += part.token_ids
        if part.logprobs is not None:
            self.logprobs = self.logprobs if self.logprobs is not None else {}
            for key, raw in part.logprobs.items():
                if raw != NULL:
                    self.logprobs.setdefault(key, []).append(raw)
        if part.stop_reason != NULL:
            self.other["stop_reason"] = part.stop_reason
        if part.weight_versions != NULL:
            self.other["weight_versions"] = part.weight_versions
        if part.prompt_token_ids != NULL:
            self.other.setdefault("prompt_token_ids", part.prompt_token_ids)
        if part.text is not None:
            self.texts.setdefault("text", []).append(part.text)
        if part.delta is not None:
            self._add_delta(part.delta)

    def _add_delta(self, delta: _Delta) -> None:
        self.role = delta.role or self.role
        if delta.content is not None:
            self.texts.setdefault("content", []).append(delta.content)
        if delta.reasoning is not None or delta.reasoning_content is not None or delta.refusal is not None:
            for name in _RARE:
                text = getattr(delta, name)
                if text is not None:
                    self.texts.setdefault(name, []).append(text)
        for part in delta.tool_calls or ():
            head, names, arguments = self.calls.setdefault(part.index, ({"id": "", "type": "function"}, [], []))
            head["id"] = part.id or head["id"]
            head["type"] = part.type or head["type"]
            if part.function is not None:
                names.append(part.function.name or "")
                arguments.append(part.function.arguments or "")
        if delta.function_call is not None:
            self.function = self.function or ([], [])
            self.function[0].append(delta.function_call.name or "")
            self.function[1].append(delta.function_call.arguments or "")

    def whole(self, text: bool) -> dict[str, Any]:
        made: dict[str, Any] = {"index": self.index, "finish_reason": self.finish, "logprobs": self._logprobs()}
        if text:
            made["text"] = "".join(self.texts.get("text", ()))
        else:
            made["message"] = self._message()
        if self.token_ids is not None:
            made["token_ids"] = self.token_ids
        return made | self.other

    def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": self.role, "content": None}
        message |= {name: "".join(parts) for name, parts in self.texts.items() if name != "text"}
        if self.calls:
            message["tool_calls"] = [
                {**head, "function": {"name": "".join(names), "arguments": "".join(arguments)}}
                for _, (head, names, arguments) in sorted(self.calls.items())
            ]
            # The opening event says "" where the plain response says null.
            message["content"] = message["content"] or None
        if self.function is not None:
            names, arguments = self.function
            message["function_call"] = {"name": "".join(names), "arguments": "".join(arguments)}
        return message

    def _logprobs(self) -> dict[str, msgspec.Raw] | None:
        if self.logprobs is None:
            return None
        joined: dict[str, msgspec.Raw] = {}
        for key, parts in self.logprobs.items():
            inner = [bytes(part).strip() for part in parts]
            if all(part.startswith(b"[") for part in inner):
                # Lists of one event each, joined as text: nobody needs the entries one by one.
                filled = [part[1:-1] for part in inner if part[1:-1].strip()]
                joined[key] = msgspec.Raw(b"[" + b",".join(filled) + b"]")
            else:
                joined[key] = parts[-1]
        return joined


def merge(events: Sequence[bytes], *, text: bool = False) -> Merged:
    """As in `Dialect`; `text`: of text completions."""
    whole: dict[str, Any] = {}
    choices: dict[int, _Choice] = {}
    error = ""
    seen = False
    # One decoding of all of them costs half of one for each.
    chunks = _CHUNKS.decode(b"[" + b",".join(events) + b"]")
    for number, chunk in enumerate(chunks):
        if chunk.error is not None:
            error = error or error_text(chunk.error)
        if chunk.choices is None:
            continue
        seen = True
        if number < _OPENING or "id" not in whole:
            _keep(whole, chunk, _FIRST_OF_ALL)
        for part in chunk.choices:
            choice = choices.get(part.index)
            if choice is None:
                choice = choices[part.index] = _Choice(part.index)
            choice.add(part)
    for chunk in reversed(chunks[-_CLOSING:]):
        _keep(whole, chunk, _LAST_OF_ALL)
    if not seen:
        return Merged([msgspec.Raw(data) for data in events], False, error or "a stream of an unknown form")
    whole["object"] = "text_completion" if text else "chat.completion"
    whole["choices"] = [choices[index].whole(text) for index in sorted(choices)]
    finished = all(choice.finish is not None and choice.finish not in _ABORTED for choice in choices.values())
    return Merged(whole, finished and not error, error)


def _keep(whole: dict[str, Any], chunk: _Chunk, names: Sequence[str]) -> None:
    for name in names:
        raw = getattr(chunk, name)
        if raw != NULL:
            whole.setdefault(name, raw)


def ended(body: Fields) -> bool:
    """The engine did not give up in the middle and answer with what it had."""
    raw = bytes(body.get("choices", NULL))
    if not any(mark in raw for mark in _ABORT_MARKS):
        return True
    return not any(value(choice, "finish_reason") in _ABORTED for choice in objects(body, "choices"))


class _Entry(msgspec.Struct):
    logprob: float
    token: str = ""


class _ChatLogProbs(msgspec.Struct):
    content: list[_Entry] | None = None
    token_logprobs: list[float | None] | None = None


_IDS = msgspec.json.Decoder(list[int] | None)
_LOGPROBS = msgspec.json.Decoder(_ChatLogProbs | None)


def tokens(body: Fields, *, where: str = "/v1/chat/completions") -> Tokens:
    choices = objects(body, "choices")
    if len(choices) != 1:
        return Tokens(why="several choices" if choices else f"no token ids from {where}")
    choice = choices[0]
    prompt = _IDS.decode(body.get("prompt_token_ids", NULL))
    if prompt is None:
        # A text completion names them in the choice: it may have several prompts.
        prompt = _IDS.decode(choice.get("prompt_token_ids", NULL))
    ids = _IDS.decode(choice.get("token_ids", NULL))
    if ids is None or prompt is None:
        return Tokens(why=f"no token ids from {where}")
    found = _LOGPROBS.decode(choice.get("logprobs", NULL))
    if found is None:
        return Tokens(why=f"no log-probs from {where}")
    if found.content is not None:
        logprobs = [entry.logprob for entry in found.content]
    elif found.token_logprobs is not None and None not in found.token_logprobs:
        logprobs = [logprob for logprob in found.token_logprobs if logprob is not None]
    else:
        return Tokens(why=f"no log-probs from {where}")
    packed = pack(prompt, ids, logprobs, value(choice, "weight_versions"))
    return msgspec.structs.replace(packed, masked=_masked(ids, found.content)) if -1 in ids else packed


def _masked(ids: Sequence[int], entries: Sequence[_Entry] | None) -> tuple[str, ...]:
    """What stands in for each run of masked tokens (`adapters.redaction.tokens`)."""
    told = entries or ()
    return tuple(entry.token for at, entry in enumerate(told) if ids[at] == -1 and (at == 0 or ids[at - 1] != -1))


_ROLES: dict[Any, Role] = {
    "system": "system", "developer": "system", "assistant": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip


def read(request: Mapping[str, Any], response: Mapping[str, Any]) -> Conversation:
    answers = [(choice.get("message"), cut_at_limit(choice)) for choice in dicts(response.get("choices"))]
    return Conversation(
        items=merged(_item(message) for message in dicts(request.get("messages"))),
        answers=[_answer(answer, cut) for answer, cut in answers if isinstance(answer, dict) and answer],
        tools=as_json(request.get("tools") or request.get("functions")),
    )


def cut_at_limit(choice: dict[str, Any]) -> bool:
    """Whether the engine stopped at a limit of tokens."""
    return choice.get("finish_reason") == "length"


def _item(message: dict[str, Any]) -> Item:
    said = message.get("role")
    role = _ROLES.get(said, "user") if isinstance(said, str) else "user"
    if role == "assistant":
        return _answer(message)
    call_id = message.get("tool_call_id") if role == "tool" else ""
    return Item(role, text_of(message.get("content")), (), call_id if isinstance(call_id, str) else "")


def _answer(message: dict[str, Any], cut: bool = False) -> Item:
    calls: list[ToolCall] = []
    for call in dicts(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, dict):
            calls.append(tool_call(function.get("name"), function.get("arguments"), call.get("id")))
        elif isinstance(custom := call.get("custom"), dict):
            calls.append(tool_call(custom.get("name"), custom.get("input"), call.get("id")))
    if isinstance(old := message.get("function_call"), dict):
        calls.append(tool_call(old.get("name"), old.get("arguments"), ""))
    text = text_of(message.get("content"))
    if not text and isinstance(refusal := message.get("refusal"), str):
        text = refusal
    return Item("assistant", text, tuple(calls), cut=cut)
