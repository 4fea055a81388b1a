"""Self-managing context: the policy itself drops turns, compresses them into notes, or keeps them from being dropped.

It does so by calls of a tool that this template adds: turns like all others, trained on and judged, which never reach
the environment. Every observation says its turn and how full the context is: `[turn 7, 812 of 2000 tokens]`. Over the
budget, the oldest turn goes that is neither compressed nor kept; then the oldest kept; then the oldest note.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from actors.messages import ToolCall
from actors.rollout.context import ContextTemplate, History, Message, Past, append_user, assemble

TOOL = "manage_context"
INSTRUCTIONS = (
    "Your context is limited. Each observation begins with the number of its turn. Call manage_context to drop turns, "
    "to compress turns into a note, or to keep turns from being dropped."
)
_NOTES = "Your notes on earlier turns:"
Numbers = Annotated[list[int], msgspec.Meta(max_length=1000)]


class _Compression(msgspec.Struct, forbid_unknown_fields=True):
    turns: Numbers
    note: str


class _Operations(msgspec.Struct, forbid_unknown_fields=True):
    drop: Numbers = []
    keep: Numbers = []
    compress: Annotated[list[_Compression], msgspec.Meta(max_length=100)] = []


class _Marks(msgspec.Struct):
    """What became of the turns of an episode, by number."""

    dropped: set[int] = set()
    kept: set[int] = set()
    notes: list[tuple[list[int], str]] = []
    """Compressed turns and what stands for them, in order."""

    @property
    def hidden(self) -> set[int]:
        return self.dropped.union(*(turns for turns, _ in self.notes))


class SelfManaging(ContextTemplate):
    """The policy manages its context with calls of `manage_context`.

    Args:
        budget: as for every template.
        longest_note: characters of a note at most.

    Raises:
        ValueError: notes without room.
    """

    def __init__(self, *, budget: int = 0, longest_note: int = 2000) -> None:
        super().__init__(budget=budget)
        if longest_note < 1:
            raise ValueError(f"longest_note is {longest_note}; give characters, 1 or more")
        self._longest_note = longest_note

    @property
    def instructions(self) -> str:
        return INSTRUCTIONS

    def tools(self, tools: Sequence[Message]) -> list[Message]:
        return [*tools, _TOOL]

    def messages(self, history: History) -> list[Message]:
        marks = _marks(history)
        if not marks.notes:
            return assemble(history, marks.hidden)
        lines = [f"turns {', '.join(map(str, turns))}: {note}" for turns, note in marks.notes]
        opening = list(history.opening)
        append_user(opening, "\n".join([_NOTES, *lines]))
        return assemble(History(opening=opening, past=history.past), marks.hidden)

    def shrink(self, history: History) -> bool:
        marks = _marks(history)
        shown = [past.number for past in history.past[:-1] if past.number not in marks.hidden]
        oldest = min(shown, key=lambda number: (number in marks.kept, number), default=None)
        if oldest is not None:
            marks.dropped.add(oldest)
        elif marks.notes:
            marks.dropped.update(marks.notes.pop(0)[0])
        else:
            return False
        return True

    def take(self, history: History, calls: Sequence[ToolCall]) -> dict[int, str]:
        return {at: self._manage(history, call) for at, call in enumerate(calls) if call.name == TOOL}

    def record(self, history: History, past: Past) -> Past:
        room = f", {history.used} of {self.budget} tokens" if self.budget else f", {history.used} tokens"
        for at, message in enumerate(past.seen):
            if isinstance(message.get("content"), str):
                marked = {**message, "content": f"[turn {past.number}{room}]\n{message['content']}"}
                return Past(past.number, past.said, (*past.seen[:at], marked, *past.seen[at + 1 :]))
        return past

    def _manage(self, history: History, call: ToolCall) -> str:
        """Do all that a call asks for, or nothing of it; what the policy is told."""
        try:
            wanted = msgspec.json.decode(call.arguments or "{}", type=_Operations)
        except (msgspec.DecodeError, UnicodeError) as error:
            return _mistake(f"arguments cannot be used: {error}")
        marks = _marks(history)
        named = [*wanted.drop, *wanted.keep, *(number for part in wanted.compress for number in part.turns)]
        if not named:
            return _mistake("name the turns to drop, keep or compress")
        if len(set(named)) < len(named):
            return _mistake("a turn is named twice")
        for number in named:
            if not 1 <= number <= len(history.past):
                return _mistake(f"there is no turn {number} yet, or it is this one; the last is {len(history.past)}")
            if number in marks.hidden:
                return _mistake(f"turn {number} was dropped or compressed before")
        for part in wanted.compress:
            if not part.turns or not part.note.strip():
                return _mistake("a note needs words, and turns that it stands for")
            if len(part.note) > self._longest_note:
                return _mistake(f"a note has {len(part.note)} characters, at most {self._longest_note}")
        marks.dropped.update(wanted.drop)
        marks.kept.update(wanted.keep)
        marks.notes += [(sorted(part.turns), part.note.strip()) for part in wanted.compress]
        marks.notes.sort()
        compressed = sum(len(part.turns) for part in wanted.compress)
        done = {"dropped": len(wanted.drop), "kept": len(wanted.keep), "compressed": compressed}
        return msgspec.json.encode({"ok": done}).decode()


def _marks(history: History) -> _Marks:
    return history.memory.setdefault("marks", _Marks())


def _mistake(text: str) -> str:
    return msgspec.json.encode({"error": text}).decode()


_LIST: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}
_TOOL: Message = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "Manage your context. Turns are named by the numbers that their observations begin with.",
        "parameters": {
            "type": "object",
            "properties": {
                "drop": {**_LIST, "description": "Turns to forget."},
                "keep": {**_LIST, "description": "Turns to protect from being dropped when the context is full."},
                "compress": {
                    "type": "array",
                    "description": "Turns to replace by a note.",
                    "items": {
                        "type": "object",
                        "properties": {"turns": _LIST, "note": {"type": "string"}},
                        "required": ["turns", "note"],
                    },
                },
            },
        },
    },
}
