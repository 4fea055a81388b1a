"""Text of strangers made fit for a prompt: what an agent, a tool or a user wrote must stay data.

Every field from outside passes through `quoted` (or `quote` and a JSON encoder) on its way to a model. Afterwards
it is one JSON string on one line: it cannot begin a line, close its quotes, or hold a token that a chat template gives
a meaning to. Structure is what stands on a line that begins with the call's mark (`fresh_mark`). What remains is what
the words themselves say; against that stand the instructions, a judge's `screening` and verified evidence, not quoting.
"""

import json
import re
import secrets
import unicodedata
from collections.abc import Callable, Sequence

from actors.messages import Trajectory

_COMBINING = 2
"""Combining marks that a letter keeps: more than any script's orthography needs are a way to hide text."""
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
"""Variation selectors: a mark by category, invisible, and able to carry a message (one byte each)."""
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_ANGLES = str.maketrans("<>", "‹›")
_BRACKETED = re.compile(r"\[ {0,3}(/?[A-Z][A-Z_ ]{2,30})\]")
"""[INST], [/INST], [TOOL_CALLS], [SYSTEM_PROMPT]"""
_ROLE = re.compile(
    r"(?im)^([ \t›*#_-]{0,20})"
    r"(system|assistant|user|human|developer|tool|ai|model|function|judge|instructions?)([ \t*_]{0,5}):"
)
_HEADING = re.compile(r"(?m)^[ \t]*(?:#{1,6}(?=\s)|-{3,}|={3,}|\*{3,}|`{3,}|~{3,})")
_ROOM_FOR_NOTE = 40


def quote(text: str, most: int) -> str:
    """`text` fit for a prompt, of at most about `most` characters; for a JSON encoder."""
    seen = cut_middle(text, 4 * most)
    return cut_middle(defused(visible(seen)), most)


def quoted(text: str, most: int) -> str:
    """As `quote`, as one JSON string with its quotes."""
    return json.dumps(quote(text, most), ensure_ascii=False)


def fresh_mark(runs: Sequence[Trajectory], draw: Callable[[], str] = lambda: secrets.token_hex(8)) -> str:
    """A mark of a call that no text of `runs` holds, and nobody who writes one can foresee."""
    steps = [step for run in runs for step in run.steps]
    texts = [*(run.goal for run in runs), *(step.text + step.observation for step in steps)]
    texts += [f"{call.name} {call.arguments}" for step in steps for call in step.tool_calls]
    mark = draw()
    while any(mark in text for text in texts):
        mark = draw()
    return mark


def visible(text: str) -> str:
    """`text` in compatibility form (NFKC) without what nobody sees.

    Taken out: control characters but tab and newline, zero-width, bidirectional and tag characters, variation
    selectors, lone surrogates, private and unassigned code points, and combining marks piled on one letter.
    """
    kept: list[str] = []
    piled = 0
    # NFKC turns lookalike forms (full-width, mathematical letters) into the plain ones that the rules below know.
    normal = unicodedata.normalize("NFKC", text.replace("\r\n", "\n"))
    for letter in normal:
        kind = "Zs" if letter in "\n\t" else unicodedata.category(letter)
        piled = piled + 1 if kind in ("Mn", "Me") else 0
        if kind in ("Zl", "Zp"):
            kept.append("\n")
        elif kind not in _HIDDEN and piled <= _COMBINING and not any(ord(letter) in span for span in _SELECTORS):
            kept.append(letter)
    return "".join(kept)


def defused(text: str) -> str:
    """`text` without what a chat template or a reader of Markdown takes for structure.

    Angle brackets become ‹ ›, so that no special token (`<|im_start|>`, `</s>`, `<think>`) is left; `[INST]` becomes
    (INST), a role at the start of a line stands in quotes, headings and rules lose their marks.
    """
    text = _BRACKETED.sub(r"(\1)", text.translate(_ANGLES))
    return _HEADING.sub("·", _ROLE.sub(r"\1'\2'\3 -", text))


def cut_middle(text: str, most: int) -> str:
    """`text` with its middle left out if it is longer than `most` characters."""
    if len(text) <= most:
        return text
    room = max(0, most - _ROOM_FOR_NOTE)
    head = room * 2 // 3
    tail = room - head
    left_out = len(text) - room
    return f"{text[:head]} (…{left_out} characters left out…) {text[len(text) - tail :]}"
