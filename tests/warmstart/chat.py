"""The demo model's chat format as plain text: what `template.jinja` renders, in pieces, and without jinja's cost.

Training wants to know which piece the model wrote, and needs tens of thousands of conversations; so the pieces are
built here, and a test holds that together they equal `apply_chat_template`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from actors.messages import ToolCall

SYSTEM = "You are a travel desk."
END = "<|im_end|>"
OPEN, CLOSE = "<tool_call>", "</tool_call>"


Segment = tuple[str, bool]
"""A piece of a conversation, and whether the model wrote it."""


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """One episode as a demonstrator played it."""

    system: str = SYSTEM
    hint: str
    """Lines to append to the system text, each after a newline; empty without a hint."""
    goal: str
    tools: list[dict[str, Any]]
    turns: list[tuple[tuple[ToolCall, ...], str, tuple[dict[str, Any], ...]]]
    """Each turn's calls, its words, and the messages that followed."""
    solved: bool

    def segments(self) -> list[Segment]:
        """As text to train on."""
        pieces = [(opening(self.goal, self.tools, self.hint, self.system), False)]
        for calls, text, after in self.turns:
            read = continuation(*(one["content"] for one in after), role=after[0]["role"]) if after else ""
            pieces += [(turn(calls, text) + END, True), (read, False)]
        return pieces[:-1]


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any]


def opening(goal: str, tools: list[dict[str, Any]], hint: str = "", system: str = SYSTEM) -> str:
    """The prompt of the first turn; `hint` is appended to the system text."""
    return (
        f"<|im_start|>system\n{system}{hint}\n# Tools\n{''.join(_signature(tool) for tool in tools)}{END}\n"
        f"<|im_start|>user\n{goal}{END}\n<|im_start|>assistant\n"
    )


def _signature(tool: dict[str, Any]) -> str:
    function = tool["function"]
    return f"{function['name']}({','.join(function['parameters']['properties'])})\n"


def action(call: ToolCall) -> str:
    """The model's turn with one tool call, without its end."""
    return f'{OPEN}\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n{CLOSE}'


def turn(calls: Sequence[ToolCall], text: str = "") -> str:
    """The model's turn with its words and any number of calls, without its end."""
    return "\n".join([*filter(None, [text]), *map(action, calls)])


def continuation(*observations: str, role: str = "tool") -> str:
    """What follows the end of a turn: each tool's answer, or what the user says, and the beginning of the next turn."""
    said = "".join(f"<|im_start|>{role}\n{observation}{END}\n" for observation in observations)
    return f"\n{said}<|im_start|>assistant\n"


def parse(text: str) -> ToolCall | None:
    """The tool call that is a turn's whole text; None for anything else."""
    calls = parse_all(text)
    return calls[0] if len(calls) == 1 else None


def parse_all(text: str) -> list[ToolCall]:
    """The tool calls that are a turn's whole text; none for anything else."""
    text = text.strip()
    if not text.startswith(OPEN) or not text.endswith(CLOSE):
        return []
    calls: list[ToolCall] = []
    for part in text[len(OPEN) : -len(CLOSE)].split(f"{CLOSE}\n{OPEN}"):
        try:
            call = msgspec.json.decode(part, type=_Call)
        except msgspec.DecodeError:
            return []
        calls.append(ToolCall(call.name, msgspec.json.encode(call.arguments).decode()))
    return calls
