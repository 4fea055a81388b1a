"""The paths of the agents' port, and the names that may stand before them.

    /agents/NAME/v1/...            the calls of the agent NAME
    /runs/ID/v1/...                the calls of the run ID
    /agents/NAME/runs/ID/v1/...    both

The parser cuts the names off, so that everybody behind it sees `/v1/...` alone.
"""

import re
from urllib.parse import unquote_to_bytes

from daemon.tap.errors import Refused

CHAT = b"/v1/chat/completions"
COMPLETIONS = b"/v1/completions"
RESPONSES = b"/v1/responses"
MESSAGES = b"/v1/messages"
FEEDBACK = b"/v1/feedback"
HEALTH = b"/health"
STORED = RESPONSES + b"/"
"""Below it an engine that stores responses shows them again."""
_NAME = rb"([A-Za-z0-9][A-Za-z0-9._-]{0,63})"
_NAMED = re.compile(rb"(?:/agents/%b)?(?:/runs/%b)?(?=/v1/)" % (_NAME, _NAME))
_REFUSED = frozenset({b".", b"..", b"load_lora_adapter", b"unload_lora_adapter"})
"""Segments of a path that do not pass: what leads out of /v1, and vLLM's admin plane where it reaches into it."""
_TRICKS = re.compile(rb"[%\\#?\x00-\x1f\x7f]")
"""What no path of ours holds once it is decoded."""


def cut_names(target: bytes) -> tuple[bytes, str, str]:
    """What is left of a request's target, and the agent and the run that its path names. One that names them in any
    other way comes back whole, and is an unknown path."""
    if not target.startswith((b"/agents/", b"/runs/")):
        return target, "", ""
    found = _NAMED.match(target)
    if found is None:
        return target, "", ""
    agent, run = found.groups(b"")
    return target[found.end() :], agent.decode(), run.decode()


def is_call(path: bytes) -> bool:
    """Whether a post there may be an LLM call; all else passes without leaving a trace."""
    return path.startswith(b"/v1/") and not path.startswith(STORED)


def check_path(path: bytes) -> None:
    """Let `/v1/*` and `/health` pass: an engine's admin plane has no keys of its own."""
    if path == CHAT:
        return
    plain = unquote_to_bytes(path) if b"%" in path else path
    if plain == HEALTH:
        return
    # The engine, or a proxy before it, may resolve dot segments, cut off parameters and blanks, end at a NUL or decode
    # once more: what only looks like /v1/ does not pass.
    bare = {segment.partition(b";")[0].strip() for segment in plain.split(b"/")}
    inside = plain.startswith(b"/v1/") and b"//" not in plain and not _TRICKS.search(plain)
    if not inside or bare & _REFUSED:
        shown = path.decode("latin-1")[:200]
        raise Refused(
            404, "unknown_path", f"unknown path {shown!r}: /v1/* and /health are served here, and /v1/* behind "
            "/agents/NAME, /runs/ID or /agents/NAME/runs/ID (letters, digits, '.', '_', '-'; 64 at most)",
        )  # fmt: skip
