"""The demo model's chat format as plain text: what `template.jinja` renders, in pieces, and without jinja's cost.

Training wants to know which piece the model wrote, and needs tens of thousands of conversations; so the pieces are
built here, and a test holds that together they equal `apply_chat_template`.
"""

from importlib.resources import files
from typing import Any

import msgspec

from actors.messages import ToolCall

SYSTEM = "You are a travel desk."
END = "<|im_end|>"
OPEN, CLOSE = "<tool_call>", "</tool_call>"


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any]


def template() -> str:
    """The chat template, for tokenizer_config.json."""
    return files("learner.warmstart").joinpath("template.jinja").read_text(encoding="utf-8")


def opening(goal: str, tools: list[dict[str, Any]], hint: str = "") -> str:
    """The prompt of the first turn; `hint` is appended to the system text."""
    return (
        f"<|im_start|>system\n{SYSTEM}{hint}\n# Tools\n{''.join(_signature(tool) for tool in tools)}{END}\n"
        f"<|im_start|>user\n{goal}{END}\n<|im_start|>assistant\n"
    )


def _signature(tool: dict[str, Any]) -> str:
    function = tool["function"]
    return f"{function['name']}({','.join(function['parameters']['properties'])})\n"


def action(call: ToolCall) -> str:
    """The model's turn with one tool call, without its end."""
    return f'{OPEN}\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n{CLOSE}'


def continuation(observation: str) -> str:
    """What follows the end of a turn: the tool's answer, and the beginning of the next turn."""
    return f"\n<|im_start|>tool\n{observation}{END}\n<|im_start|>assistant\n"


def parse(text: str) -> ToolCall | None:
    """The tool call that is a turn's whole text; None for anything else."""
    text = text.strip()
    if not text.startswith(OPEN) or not text.endswith(CLOSE):
        return None
    try:
        call = msgspec.json.decode(text[len(OPEN) : -len(CLOSE)], type=_Call)
    except msgspec.DecodeError:
        return None
    return ToolCall(call.name, msgspec.json.encode(call.arguments).decode())
