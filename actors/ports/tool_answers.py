"""What a tool's answer says about the call: whether it was refused, as far as one can tell who does not know the tool.

Environments have no common form for a mistake: an agent's wrong call is an observation like any other. There are
customs though: a JSON object with an "error", MCP's `isError`, HTTP's status, a text that begins with the word. What
follows none of them counts as done.
"""

import re
from typing import Any

import msgspec

_ERROR_KEYS = frozenset({"error", "errors", "exception", "traceback"})
_FIRST_WORD = re.compile(r"\s*\W{0,3}(?:error|exception|traceback|failed|failure|invalid)\b", re.IGNORECASE)
_BAD_STATUS = 400
_LOOKED_AT = 65_536
"""Characters: what is longer is not an error message."""


def parsed(text: str) -> Any:
    """`text` as JSON, or itself if it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text


def refused(text: str) -> bool:
    """Whether the answer `text` says, by custom, that the call had no effect."""
    if len(text) > _LOOKED_AT:
        return False
    answer = parsed(text)
    if isinstance(answer, str):
        return _FIRST_WORD.match(answer) is not None
    if not isinstance(answer, dict):
        return False
    if any(answer.get(key) for key in answer if str(key).lower() in _ERROR_KEYS):
        return True
    if answer.get("isError") is True or answer.get("success") is False or answer.get("ok") is False:
        return True
    status = answer.get("status")
    return isinstance(status, int) and not isinstance(status, bool) and status >= _BAD_STATUS
