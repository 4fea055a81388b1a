"""Tool calls in hermes form, read as vLLM's hermes parser reads them.

    <tool_call>
    {"name": "search", "arguments": {"to": "Oslo"}}
    </tool_call>

Arguments leave as `json.dumps(..., ensure_ascii=False)` of what was parsed: rendered again they give the tokens that
were sampled, if the model wrote JSON in its usual form. What is malformed stays text for the agent to see.
"""

import json
import re
from collections.abc import Callable
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_CALLS = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)


def parse(text: str, new_id: Callable[[], str]) -> tuple[str | None, list[dict[str, Any]]]:
    """Content and tool calls, in OpenAI's form, of a whole answer: one malformed call makes all of it content."""
    if OPEN not in text:
        return text, []
    bodies = [closed or cut for closed, cut in _CALLS.findall(text)]
    calls = [_call(body, new_id) for body in bodies]
    good = [call for call in calls if call is not None]
    if len(good) < len(calls):
        return text, []
    return text[: text.index(OPEN)] or None, good


def _call(body: str, new_id: Callable[[], str]) -> dict[str, Any] | None:
    try:
        content = json.loads(body)
        name, arguments = content["name"], content["arguments"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(name, str):
        return None
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": new_id(), "type": "function", "function": function}


class Reader:
    """Reads an answer while it comes: content at once, a call when it is complete.

    The same as `parse` on the whole, but for one case: what was given away before a malformed call stays given.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._held = ""
        self._inside = False
        self.calls = 0
        """Calls that were read so far."""

    def add(self, text: str, *, last: bool = False) -> tuple[str, list[dict[str, Any]]]:
        """Content and calls, with their `index`, that `text` completes."""
        self._held += text
        content, calls = "", []
        while True:
            if not self._inside:
                before, tag, rest = self._held.partition(OPEN)
                if tag:
                    content += self._outside(before)
                    self._inside, self._held = True, rest
                    continue
                keep = 0 if last else _begun(self._held)
                content += self._outside(self._held[: len(self._held) - keep])
                self._held = self._held[len(self._held) - keep :]
                return content, calls
            body, tag, rest = self._held.partition(CLOSE)
            if not tag and not last:
                return content, calls
            call = _call(body, self._new_id)
            if call is None:
                content += OPEN + body + tag
            else:
                calls.append({"index": self.calls, **call})
                self.calls += 1
            self._inside, self._held = False, rest
            if not tag:
                return content, calls

    def _outside(self, text: str) -> str:
        return "" if self.calls else text


def _begun(text: str) -> int:
    """How many characters at the end of `text` may be the beginning of a tag."""
    return next((n for n in range(min(len(text), len(OPEN) - 1), 0, -1) if OPEN.startswith(text[-n:])), 0)
