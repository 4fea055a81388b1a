"""An engine whose tokens are bytes: whoever holds its ids can read what was said. It says what each case wants said.

A case is one call: a text, where it stands (`place`), the dialect, streamed or not. Streams come in pieces of three
characters, so that whatever stands in an answer is cut.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from anyio.abc import ByteStream

from tests.support.answers import DIALECTS, Answer, Made, Part, streamed
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


def said_to(case: Case) -> tuple[str, str, str]:
    """Reasoning, text and arguments of the answer: in turn it repeats what it was told, or does not."""
    echo = case.place in IN_PROMPT and case.place != "bare" and case.number % 2 == 0
    spoken = case.text if echo or case.place in ("answer", "broken") else "done"
    if case.place == "bare":
        spoken = f"it is {case.value} then"
    arguments = ""
    if case.place in ("call", "history") and case.dialect != "completions":
        arguments = json.dumps({"note": case.text})
    reasoning = f"{case.text}\n" if case.place == "reasoning" else ""
    return reasoning, f"{case.name} {spoken} and that is all there is to say.", arguments


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
        lines = streamed(events)
        if case.place == "broken":
            # What the case is about is out, the end of the text is not.
            *lines, last = lines[:-7]
            await stream.send(STREAM_HEAD + b"".join(map(chunk, lines)) + chunk(last[:-CUT]))
            return False
        await stream.send(STREAM_HEAD + b"".join(map(chunk, lines)) + b"0\r\n\r\n")
        return True

    return script


def answers_of(case: Case, prompt: list[int], *, tokens: bool) -> Made:
    """What the engine says to a case: the events of a stream, and whole."""

    def part(kind: str, text: str) -> Part:
        pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
        return Part(kind, [(piece, list(piece.encode())) for piece in pieces], "note", f"made-{case.name}")

    said = zip(("reasoning", "text", "call"), said_to(case), strict=True)
    parts = [part(kind, text) for kind, text in said if text]
    asked = {"model": "bytes", "include": ["message.output_text.logprobs"]}
    return DIALECTS[case.dialect](Answer(case.response_id, asked, prompt, parts, tokens))
