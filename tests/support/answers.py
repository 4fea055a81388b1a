"""What a vLLM with our plug-in answers, in each of its four dialects: events of a stream, and the whole response."""

import json
from typing import Any, NamedTuple

Json = dict[str, Any]
Made = tuple[list[Json], Json]
"""Events of the stream, and the whole response."""
_ITEM = {"reasoning": "rs", "text": "msg", "call": "fc"}
_DELTA = {"reasoning": "reasoning_text", "text": "output_text", "call": "function_call_arguments"}
_REPEATED = (
    "model", "instructions", "previous_response_id", "metadata", "max_output_tokens", "reasoning", "text", "user",
)  # fmt: skip
"""What a response repeats of its request, `null` if it is not there."""


class Part(NamedTuple):
    """A stretch of an answer, in the pieces in which a stream brings it: text, and the token ids behind it."""

    kind: str
    """reasoning, text, or call: of a tool, whose arguments the pieces are."""
    pieces: list[tuple[str, list[int]]]
    name: str = ""
    call_id: str = ""

    @property
    def whole(self) -> str:
        return "".join(text for text, _ in self.pieces)


class Answer(NamedTuple):
    id: str
    request: Json
    """Its model, and what else a response repeats."""
    prompt: list[int]
    parts: list[Part]
    tokens: bool
    """Ids and log-probs are told."""
    end: tuple[int, ...] = ()
    """Ids behind the last word."""

    @property
    def calls(self) -> list[Part]:
        return [part for part in self.parts if part.kind == "call"]

    @property
    def sampled(self) -> list[int]:
        return [token for part in self.parts for _, ids in part.pieces for token in ids] + list(self.end)

    def of(self, kind: str) -> str:
        return "".join(part.whole for part in self.parts if part.kind == kind)


def logprob(token: int) -> float:
    """Made up, and the same in float32."""
    return -(1 + token % 7) / 8


def _entries(ids: list[int]) -> list[Json]:
    return [
        {"token": chr(one), "logprob": logprob(one), "bytes": [one] if one < 256 else None, "top_logprobs": []}
        for one in ids
    ]


def chat(said: Answer) -> Made:
    base = {"id": said.id, "created": 1_700_000_000, "model": said.request["model"]}
    reason = "tool_calls" if said.calls else "stop"
    prompt = {"prompt_token_ids": said.prompt if said.tokens else None}

    def carrying(ids: list[int]) -> Json:
        if not said.tokens:
            return {"logprobs": None, "token_ids": None}
        return {"logprobs": {"content": _entries(ids)}, "token_ids": ids}

    def event(delta: Json, **more: Any) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **more}
        return {**base, "object": "chat.completion.chunk", "choices": [choice]}

    def tool(part: Part, arguments: str) -> Json:
        function = {"name": part.name, "arguments": arguments}
        return {"id": part.call_id, "type": "function", "function": function}

    events = [event({"role": "assistant", "content": ""}) | prompt]
    for part in said.parts:
        for number, (text, ids) in enumerate(part.pieces):
            delta: Json = {"content" if part.kind == "text" else part.kind: text}
            if part.kind == "call":
                call = {"function": {"arguments": text}} if number else tool(part, text)
                delta = {"tool_calls": [{"index": said.calls.index(part), **call}]}
            events.append(event(delta, **carrying(ids)))
    last = {"content": ""} if said.of("text") else {}
    events.append(event(last, finish_reason=reason, stop_reason=None, **carrying(list(said.end))))
    used = usage(len(said.prompt), len(said.sampled))
    if (said.request.get("stream_options") or {}).get("include_usage"):
        events.append({**base, "object": "chat.completion.chunk", "choices": [], "usage": used})
    message = {
        "role": "assistant", "content": said.of("text") or None, "reasoning": said.of("reasoning") or None,
        "tool_calls": [tool(part, part.whole) for part in said.calls],
        **dict.fromkeys(("refusal", "annotations", "audio", "function_call")),
    }  # fmt: skip
    choice = {"index": 0, "message": message, "finish_reason": reason, "stop_reason": None, **carrying(said.sampled)}
    unused = dict.fromkeys(("service_tier", "system_fingerprint", "prompt_logprobs", "kv_transfer_params"))
    return events, {**base, "object": "chat.completion", "choices": [choice], "usage": used, **prompt, **unused}


def completions(said: Answer) -> Made:
    base = {"id": said.id, "object": "text_completion", "created": 1_700_000_000, "model": said.request["model"]}

    def choice(text: str, ids: list[int], finish: str | None = None) -> Json:
        shown = {"tokens": list(map(chr, ids)), "token_logprobs": list(map(logprob, ids))}
        told = {"token_ids": ids, "logprobs": shown} if said.tokens else {}
        return {"index": 0, "text": text, "finish_reason": finish, **told}

    choices = [choice(*piece) for part in said.parts for piece in part.pieces]
    choices.append(choice("", list(said.end), "stop"))
    whole = choice(said.of("text"), said.sampled, "stop")
    if said.tokens:
        choices[0]["prompt_token_ids"] = whole["prompt_token_ids"] = said.prompt
    return [base | {"choices": [one]} for one in choices], base | {"choices": [whole]}


def responses(said: Answer) -> Made:
    asked, uid = said.request, said.id.removeprefix("resp_")
    given, made = len(said.prompt), len(said.sampled)
    usage = {
        "input_tokens": given, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": given + made,
    }  # fmt: skip
    shows = "message.output_text.logprobs" in (asked.get("include") or ())

    def raw(ids: list[int], **more: Any) -> list[Json] | None:
        text = bytes(one for one in ids if one < 256).decode()
        return [{"type": "raw_message_tokens", "message": text, "tokens": ids, **more}] if said.tokens else None

    def response(status: str, **more: Any) -> Json:
        return {
            "id": said.id, "object": "response", "created_at": 1_700_000_000, "status": status, "output": [],
            **{name: asked.get(name) for name in _REPEATED},
            "parallel_tool_calls": asked.get("parallel_tool_calls", True),
            "temperature": asked.get("temperature", 1.0), "top_p": asked.get("top_p", 1.0),
            "tool_choice": asked.get("tool_choice", "auto"), "tools": asked.get("tools", []),
            "background": False, "service_tier": "auto", "truncation": "disabled",
            **dict.fromkeys(("error", "incomplete_details", "usage", "input_messages", "output_messages")), **more,
        }  # fmt: skip

    begun, output = response("in_progress"), list[Json]()
    events: list[Json] = [{"type": f"response.{kind}", "response": begun} for kind in ("created", "in_progress")]
    for index, part in enumerate(said.parts):
        kind = f"response.{_DELTA[part.kind]}"
        at = {"output_index": index, "item_id": f"{_ITEM[part.kind]}_{uid}{index}"}
        content: Json = {"type": _DELTA[part.kind], "text": part.whole}
        if part.kind == "call":
            item: Json = {"type": "function_call", "call_id": part.call_id, "name": part.name, "arguments": part.whole}
            empty, done = {"arguments": ""}, {"arguments": part.whole, "name": part.name}
        else:
            at["content_index"] = 0
            empty, done = {"content": []}, {"text": part.whole, "logprobs": []}
            if part.kind == "text":
                ids = [token for _, ids in part.pieces for token in ids]
                content |= {"annotations": [], "logprobs": _entries(ids) if shows else None}
                item = {"type": "message", "role": "assistant", "content": [content]}
            else:
                item = {"type": "reasoning", "summary": [], "content": [content]}
        item |= {"id": at["item_id"], "status": "completed"}
        added = {**item, "status": "in_progress", **empty}
        events.append({"type": "response.output_item.added", "output_index": index, "item": added})
        if part.kind != "call":
            events.append({"type": "response.content_part.added", **at, "part": {**content, "text": ""}})
        for text, ids in part.pieces:
            if text:
                shown = {} if part.kind == "call" else {"logprobs": _entries(ids) if shows else []}
                events.append({"type": f"{kind}.delta", **at, "delta": text, **shown})
        events.append({"type": f"{kind}.done", **at, **done})
        if part.kind != "call":
            events.append({"type": "response.content_part.done", **at, "part": content})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        output.append(item)
    told = {
        "input_messages": raw(said.prompt),
        "output_messages": raw(said.sampled, logprobs=list(map(logprob, said.sampled))),
    }
    whole = response("completed", output=output, usage=usage, **told)
    events.append({"type": "response.completed", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)], whole


def messages(said: Answer) -> Made:
    reason = "tool_use" if said.calls else "end_turn"
    told = {"prompt_token_ids": said.prompt, "token_ids": said.sampled, "logprobs": list(map(logprob, said.sampled))}
    usage = {"input_tokens": len(said.prompt), "output_tokens": len(said.sampled)}

    def message(content: list[Json], stop: str | None) -> Json:
        base = {"id": said.id, "type": "message", "role": "assistant", "model": said.request["model"]}
        return {**base, "content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}

    events: list[Json] = [{"type": "message_start", "message": message([], None)}]
    blocks = list[Json]()
    for index, part in enumerate(said.parts):
        if part.kind == "call":
            block = {"type": "tool_use", "id": part.call_id, "name": part.name}
            delta, field, empty = "input_json_delta", "partial_json", {"input": {}}
            full = {"input": json.loads(part.whole)}
        else:
            field = {"text": "text", "reasoning": "thinking"}[part.kind]
            block = {"type": field} | ({"signature": ""} if part.kind == "reasoning" else {})
            delta, empty, full = f"{field}_delta", {field: ""}, {field: part.whole}
        events.append({"type": "content_block_start", "index": index, "content_block": block | empty})
        for text, _ in part.pieces:
            if text:
                events.append({"type": "content_block_delta", "index": index, "delta": {"type": delta, field: text}})
        events.append({"type": "content_block_stop", "index": index})
        blocks.append(block | full)
    stop = {"stop_reason": reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": stop, "usage": usage})
    if said.tokens:
        events.append({"type": "evolved_tokens", **told})
    events.append({"type": "message_stop"})
    return events, message(blocks, reason) | ({"evolved_tokens": told} if said.tokens else {})


DIALECTS = {"chat": chat, "completions": completions, "responses": responses, "messages": messages}


def streamed(events: list[Json]) -> list[bytes]:
    """Events as lines: by name where they have one, and with the mark of the end where they have none."""
    if "type" in events[0]:
        return [b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in events]
    return [b"data: %b\n\n" % json.dumps(one).encode() for one in events] + [b"data: [DONE]\n\n"]


def usage(prompt: int, completion: int) -> Json:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


USED = usage(1000, 100)


def completion(
    content: str | None, *, finish: str = "stop", model: str = "strict", usage: object = USED, **message: Any
) -> Json:
    """A chat completion without ids; `message` is what else stands beside the text."""
    told = {"role": "assistant", "content": content, "refusal": None, **message}
    choice = {"index": 0, "message": told, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], "usage": usage}
