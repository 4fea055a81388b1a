"""An engine whose tokens are bytes: whoever holds its ids can read what was said. It says what each case wants said.

A case is one call: a text, where it stands (`place`), the dialect, streamed or not. Streams come in pieces of three
characters, so that whatever stands in an answer is cut.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from anyio.abc import ByteStream

from tests.support.engine import STREAM_HEAD, Asked, Engine, Script, answer, chunk

PIECE = 3
CUT = 9
"""Bytes that a broken answer lacks at least."""
PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
IN_PROMPT = ("user", "bare", "system", "history", "result", "tools", "metadata")
"""`bare`: the answer repeats the value without what told that it is one. `history`: arguments of an earlier call."""
IN_ANSWER = ("answer", "reasoning", "call", "error", "broken")
"""`call`: arguments of a tool call. `broken`: the answer breaks off after the text, a stream in an event."""
BESIDE = ("header", "feedback")
"""In neither body: the agent's name in its request's header, and the words of what it says of the call later."""
_PLAIN_TEXT = ("user", "bare", "answer", "error", "broken", *BESIDE)
_MARK = re.compile(rb"case-(\d{4})")


class Case(NamedTuple):
    number: int
    dialect: str
    stream: bool
    place: str
    text: str
    value: str
    """What `text` is about."""

    @property
    def name(self) -> str:
        return f"case-{self.number:04d}"

    @property
    def response_id(self) -> str:
        return f"answer-{self.name}"


class Said(NamedTuple):
    """An answer."""

    reasoning: str
    text: str
    arguments: str

    @property
    def tokens(self) -> list[int]:
        return list("".join(self).encode())


def combinations() -> list[tuple[str, bool, str]]:
    """(dialect, streamed, place), every one that there is."""
    return [
        (dialect, stream, place)
        for dialect in PATHS
        for place in (*IN_PROMPT, *IN_ANSWER, *BESIDE)
        for stream in (False, True)
        if (dialect != "completions" or place in _PLAIN_TEXT) and not (place in ("error", *BESIDE) and stream)
    ]


def request_of(case: Case) -> dict[str, Any]:
    """The body that an agent sends."""

    def at(place: str, otherwise: str) -> str:
        return case.text if case.place == place else otherwise

    asks = f"{case.name}: {at('user', at('bare', 'what now?'))}"
    system, result = at("system", "You help."), at("result", "all is well")
    arguments, about = {"note": at("history", "look")}, at("tools", "Writes a note.")
    call, schema = f"call-{case.name}", {"type": "object", "properties": {"note": {"type": "string"}}}
    told: dict[str, Any] = {"model": "bytes", "stream": case.stream, "metadata": {"remark": at("metadata", "none")}}
    if case.dialect == "completions":
        return told | {"prompt": asks}
    if case.dialect == "chat":
        function = {"name": "note", "arguments": json.dumps(arguments)}
        return told | {
            "tools": [{"type": "function", "function": {"name": "note", "description": about, "parameters": schema}}],
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": asks},
                {"role": "assistant", "tool_calls": [{"id": call, "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": call, "content": result},
            ],
        }
    if case.dialect == "responses":
        return told | {
            "instructions": system,
            "tools": [{"type": "function", "name": "note", "description": about, "parameters": schema}],
            "enable_response_messages": True,
            "include": ["message.output_text.logprobs"],
            "input": [
                {"role": "user", "content": asks},
                {"type": "function_call", "call_id": call, "name": "note", "arguments": json.dumps(arguments)},
                {"type": "function_call_output", "call_id": call, "output": result},
            ],
        }
    return told | {
        "max_tokens": 99,
        "system": system,
        "tools": [{"name": "note", "description": about, "input_schema": schema}],
        "messages": [
            {"role": "user", "content": asks},
            {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": "note", "input": arguments}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": result}]},
        ],
    }


def rendered(body: dict[str, Any]) -> str:
    """The prompt: every text of the conversation and what frames it, one below the other."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for part in value.values() if isinstance(value, dict) else value:
                yield from texts(part)

    framed = ("instructions", "system", "tools", "messages", "input", "prompt", "metadata")
    return "\n".join(texts([body[name] for name in framed if name in body]))


def said_to(case: Case) -> Said:
    """What the engine answers: in turn it repeats what it was told, or does not."""
    echo = case.place in IN_PROMPT and case.place != "bare" and case.number % 2 == 0
    spoken = case.text if echo or case.place in ("answer", "broken") else "done"
    if case.place == "bare":
        spoken = f"it is {case.value} then"
    arguments = ""
    if case.place in ("call", "history") and case.dialect != "completions":
        arguments = json.dumps({"note": case.text})
    reasoning = f"{case.text}\n" if case.place == "reasoning" else ""
    return Said(reasoning, f"{case.name} {spoken} and that is all there is to say.", arguments)


def byte_engine(cases: Sequence[Case]) -> Script:
    """The engine's script for `cases`, which it knows by their names in the requests."""
    known = {case.name: case for case in cases}

    async def script(engine: Engine, asked: Asked, stream: ByteStream) -> bool:
        mark = _MARK.search(asked.body)
        assert mark is not None, "a request of no case"
        case, wanted = known[mark[0].decode()], asked.json
        if case.place == "error":
            error = {"message": f"cannot read {case.text}", "type": "BadRequestError", "code": 400}
            await stream.send(answer(400, {"error": error}))
            return True
        tokens = case.dialect == "responses" or True in (wanted.get("return_token_ids"), wanted.get("evolved_tokens"))
        events, whole = answers_of(case, list(rendered(wanted).encode()), tokens=tokens)
        if not case.stream:
            data = answer(200, whole)
            await stream.send(data[:-CUT] if case.place == "broken" else data)
            return case.place != "broken"
        named = case.dialect in ("responses", "messages")
        lines = [
            (b"event: %b\n" % event["type"].encode() if named else b"") + b"data: " + json.dumps(event).encode()
            for event in events
        ]
        if case.place == "broken":
            # The end of the text is out, the end of the answer is not.
            *lines, last = lines[: -5 if named else -2]
            await stream.send(STREAM_HEAD + b"".join(chunk(event + b"\n\n") for event in lines) + chunk(last[:-CUT]))
            return False
        if case.dialect in ("chat", "completions"):
            lines.append(b"data: [DONE]")
        await stream.send(STREAM_HEAD + b"".join(chunk(event + b"\n\n") for event in lines) + b"0\r\n\r\n")
        return True

    return script


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def _logprobs(text: str) -> list[dict[str, Any]]:
    return [{"token": chr(byte), "logprob": -0.25, "bytes": [byte], "top_logprobs": []} for byte in text.encode()]


Made = tuple[list[dict[str, Any]], dict[str, Any]]
"""Events of the stream, and the whole response."""


def _chat(case: Case, said: Said, prompt: list[int], tokens: bool) -> Made:
    def carrying(text: str) -> dict[str, Any]:
        ids = {"token_ids": list(text.encode()), "logprobs": {"content": _logprobs(text)}}
        return ids if tokens else {}

    def tool(arguments: str) -> list[dict[str, Any]]:
        return [{"id": f"made-{case.name}", "type": "function", "function": {"name": "note", "arguments": arguments}}]

    base = {"id": case.response_id, "object": "chat.completion.chunk", "created": 1, "model": "bytes"}
    whole = base | ({"prompt_token_ids": prompt} if tokens else {})
    deltas: list[tuple[str, dict[str, Any]]] = [(piece, {"reasoning": piece}) for piece in _pieces(said.reasoning)]
    deltas += [(piece, {"content": piece}) for piece in _pieces(said.text)]
    for number, piece in enumerate(_pieces(said.arguments)):
        call = tool(piece)[0] if number == 0 else {"function": {"arguments": piece}}
        deltas.append((piece, {"tool_calls": [{"index": 0, **call}]}))
    opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    events = [whole | {"choices": [opening]}]
    for text, delta in deltas:
        events.append(base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None, **carrying(text)}]})
    reason = "tool_calls" if said.arguments else "stop"
    events.append(base | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    message |= {"reasoning": said.reasoning} if said.reasoning else {}
    message |= {"tool_calls": tool(said.arguments)} if said.arguments else {}
    choice = {"index": 0, "message": message, "finish_reason": reason, **carrying("".join(said))}
    return events, whole | {"object": "chat.completion", "choices": [choice]}


def _completions(case: Case, said: Said, prompt: list[int], tokens: bool) -> Made:
    def carrying(text: str) -> dict[str, Any]:
        data = text.encode()
        shown = {"tokens": [chr(byte) for byte in data], "token_logprobs": [-0.25] * len(data)}
        return {"token_ids": list(data), "logprobs": shown} if tokens else {}

    base = {"id": case.response_id, "object": "text_completion", "created": 1, "model": "bytes"}
    first = {"prompt_token_ids": prompt} if tokens else {}
    choices = [{"index": 0, "text": piece, "finish_reason": None, **carrying(piece)} for piece in _pieces(said.text)]
    choices[0] |= first
    events = [base | {"choices": [choice]} for choice in choices]
    events.append(base | {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    choice = {"index": 0, "text": said.text, "finish_reason": "stop", **carrying(said.text), **first}
    return events, base | {"choices": [choice]}


def _responses(case: Case, said: Said, prompt: list[int], tokens: bool) -> Made:
    items: list[tuple[str, str, dict[str, Any]]] = []
    if said.reasoning:
        content = [{"type": "reasoning_text", "text": said.reasoning}]
        items.append(("reasoning_text", said.reasoning, {"type": "reasoning", "summary": [], "content": content}))
    text = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": _logprobs(said.text)}
    items.append(("output_text", said.text, {"type": "message", "role": "assistant", "content": [text]}))
    if said.arguments:
        call = {"type": "function_call", "call_id": f"made-{case.name}", "name": "note", "arguments": said.arguments}
        items.append(("function_call_arguments", said.arguments, call))
    output = [item | {"id": f"item-{case.name}-{at}"} for at, (_, _, item) in enumerate(items)]
    base = {"id": case.response_id, "object": "response", "model": "bytes", "status": "in_progress", "output": []}
    raw = {
        "input_messages": [{"type": "raw_message_tokens", "message": bytes(prompt).decode(), "tokens": prompt}],
        "output_messages": [{"type": "raw_message_tokens", "message": "".join(said), "tokens": said.tokens}],
    }
    whole = base | {"status": "completed", "output": output} | raw
    events: list[dict[str, Any]] = [{"type": "response.created", "response": base}]
    for at, (kind, spoken, item) in enumerate(items):
        place = {"output_index": at, "item_id": output[at]["id"], "content_index": 0}
        empty = item | ({"arguments": ""} if "arguments" in item else {"content": []})
        events.append({"type": "response.output_item.added", "output_index": at, "item": output[at] | empty})
        for piece in _pieces(spoken):
            extra = {"logprobs": _logprobs(piece)} if kind == "output_text" else {}
            events.append({"type": f"response.{kind}.delta", **place, "delta": piece, **extra})
        field = "arguments" if kind == "function_call_arguments" else "text"
        events.append({"type": f"response.{kind}.done", **place, field: spoken})
        events.append({"type": "response.output_item.done", "output_index": at, "item": output[at]})
    # One more, so that a broken stream ends at the same place in all dialects whose events have names.
    events.append({"type": "response.in_progress", "response": base})
    events.append({"type": "response.completed", "response": whole})
    return events, whole


def _messages(case: Case, said: Said, prompt: list[int], tokens: bool) -> Made:
    blocks: list[tuple[dict[str, Any], dict[str, Any], str, str, str]] = []
    if said.reasoning:
        thought = {"type": "thinking", "thinking": said.reasoning, "signature": ""}
        blocks.append((thought, thought | {"thinking": ""}, "thinking_delta", "thinking", said.reasoning))
    text = {"type": "text", "text": said.text}
    blocks.append((text, text | {"text": ""}, "text_delta", "text", said.text))
    if said.arguments:
        call = {"type": "tool_use", "id": f"made-{case.name}", "name": "note"}
        made = call | {"input": json.loads(said.arguments)}
        blocks.append((made, call | {"input": {}}, "input_json_delta", "partial_json", said.arguments))
    reason = "tool_use" if said.arguments else "end_turn"
    base = {"id": case.response_id, "type": "message", "role": "assistant", "model": "bytes"}
    whole = base | {"content": [block for block, *_ in blocks], "stop_reason": reason}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": base | {"content": [], "stop_reason": None}},
    ]
    for at, (_, opening, kind, field, spoken) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": at, "content_block": opening})
        for piece in _pieces(spoken):
            events.append({"type": "content_block_delta", "index": at, "delta": {"type": kind, field: piece}})
        events.append({"type": "content_block_stop", "index": at})
    if not tokens:
        # One of the two, so that a broken stream ends at the same place in all dialects whose events have names.
        events.append({"type": "ping"})
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}})
    told = {"prompt_token_ids": prompt, "token_ids": said.tokens, "logprobs": [-0.25] * len(said.tokens)}
    if tokens:
        events.append({"type": "evolved_tokens", **told})
    events.append({"type": "message_stop"})
    return events, whole | ({"evolved_tokens": told} if tokens else {})


_DIALECTS = {"chat": _chat, "completions": _completions, "responses": _responses, "messages": _messages}


def answers_of(case: Case, prompt: list[int], *, tokens: bool) -> Made:
    """What the engine says to a case, streamed and whole."""
    return _DIALECTS[case.dialect](case, said_to(case), prompt, tokens)
