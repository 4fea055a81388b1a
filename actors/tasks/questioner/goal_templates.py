"""Goals in words: in the environment's own, where a program is known to solve its goals, else from the tools' names.

A `Template` is a goal of the environment's own with a program that its verifier accepted for it, and is believed once
it has held in other worlds too: filled with other values it says what the program does with them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.ports.models import Draft
from actors.tasks.questioner.model import EnvironmentModel, ToolModel
from actors.tasks.questioner.programs import Argument, Operation, Program, slot
from actors.tasks.questioner.values import as_text, mentions

CONFIRMED = 2
"""Worlds in which a template must have held."""
_LEAD, _GOAL = 200, 2000
"""Characters of a sentence out of a description, and of a goal."""
_LABEL = re.compile(r"^[A-Z][\w ]{0,30}: ")
"""`Description: ` before what it describes."""


class Template(msgspec.Struct, kw_only=True):
    """How the environment words what a program does."""

    parts: list[str]
    """The text around the slots; one more than those."""
    slots: list[str]
    """Slots of the program, in the order of the text."""
    program: Program
    confirmed: int = 1
    """Worlds in which the environment's verifier accepted the program for such a goal."""
    refuted: int = 0
    """Worlds in which it did not."""

    @property
    def believed(self) -> bool:
        """Whether it may be used."""
        return self.confirmed >= CONFIRMED and self.confirmed > 2 * self.refuted

    def fill(self, values: Mapping[str, Any]) -> str:
        """The goal for `values`, by slot."""
        text = self.parts[0]
        for name, part in zip(self.slots, self.parts[1:], strict=True):
            text += as_text(values[name]) + part
        return text

    def read(self, goal: str) -> dict[str, Any] | None:
        """The values that `goal` has in its slots; None if it is another kind of goal."""
        pattern = re.escape(self.parts[0])
        for name, part in zip(self.slots, self.parts[1:], strict=True):
            # A value of one word stands for one word, or "Ana and Bob" would be taken for a name.
            pattern += (r"(.+?)" if " " in as_text(self.program.given[name][1]) else r"(\S+?)") + re.escape(part)
        found = re.fullmatch(pattern, goal, re.DOTALL)
        if found is None:
            return None
        values: dict[str, Any] = {}
        for name, text in zip(self.slots, found.groups(), strict=True):
            value = _typed(self.program.given[name][1], text)
            if value is None or values.setdefault(name, value) != value:
                return None
        return values


def template_of(goal: str, program: Program) -> Template | None:
    """The template of a goal that `program` solved; None if the goal names nothing that the program uses."""
    spans: list[tuple[int, int, str]] = []
    for name, (_, value) in sorted(program.given.items(), key=lambda item: -len(as_text(item[1][1]))):
        text = as_text(value)
        for found in re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", goal) if text else ():
            if all(found.end() <= start or found.start() >= end for start, end, _ in spans):
                spans.append((found.start(), found.end(), name))
    if not spans:
        return None
    parts, slots, last = [], [], 0
    for start, end, name in sorted(spans):
        parts.append(goal[last:start])
        slots.append(name)
        last = end
    # Two slots side by side could not be told apart again.
    if any(not part for part in parts[1:]):
        return None
    return Template(parts=[*parts, goal[last:]], slots=slots, program=program)


def generic(model: EnvironmentModel, program: Program, last_path: str = "") -> str:
    """A goal from the tools' names and descriptions: what to do, and every value that must be told, no tool's order.

    Args:
        last_path: the value of the last result that the agent must say; empty if it needs to say none.
    """
    closing = set(model.closing())
    operations = [operation for operation in program.operations if operation.tool not in closing]
    used = {one.origin for operation in program.operations for one in operation.arguments}
    aims = [
        number
        for number, operation in enumerate(program.operations)
        if operation.tool not in closing and model.tool(operation.tool).operation == "write"
    ]
    if not aims:
        aims = [number for number in range(len(operations)) if number not in used] or [len(operations) - 1]
    sentences: list[str] = []
    said: set[str] = set()
    for number in aims:
        own = {slot(one) for one in program.operations[number].arguments if one.origin < 0}
        roots = [one for one in _roots(program, number) if slot(one) in own or slot(one) not in said]
        said |= {slot(one) for one in roots}
        sentences.append(_sentence(model, program, number, roots))
    rest = [one for number in range(len(operations)) for one in _roots(program, number) if slot(one) not in said]
    if rest:
        sentences.append(f"Given: {_listed(rest)}.")
    if last_path:
        sentences.append(f"Answer with the {_words(_last_name(last_path))} of {_words(operations[-1].tool)} alone.")
    for operation in program.operations:
        if operation.tool in closing:
            sentences.append(_closing(program, operation))
    return " ".join(sentences)


def unfit(goal: str, draft: Draft) -> str:
    """Why a model's words will not do for `draft`; empty if they will."""
    if not goal or len(goal) > _GOAL:
        return "empty" if not goal else "too_long"
    if any(not mentions(goal, value) for value in draft.told):
        return "leaves_out"
    if any(len(value) > 1 and mentions(goal, value) for value in draft.hidden if value not in draft.told):
        return "gives_away"
    if any("_" in name and mentions(goal, name) for name in draft.descriptions):
        return "names_tools"
    return ""


def _roots(program: Program, number: int) -> list[Argument]:
    """Given arguments of an operation and of those that its values come from, each slot once."""
    found: dict[str, Argument] = {}
    open_, seen = [number], {number}
    while open_:
        for one in program.operations[open_.pop()].arguments:
            if one.origin < 0:
                found.setdefault(slot(one), one)
            elif one.origin not in seen:
                seen.add(one.origin)
                open_.append(one.origin)
    return list(found.values())


def _sentence(model: EnvironmentModel, program: Program, number: int, roots: Sequence[Argument]) -> str:
    operation = program.operations[number]
    lead = _lead(model, operation.tool)
    phrase = lead or _words(operation.tool)
    phrase = phrase[:1].upper() + phrase[1:]
    # A value under its own name is found by who looks for it; under another, the goal must say what it is.
    found = [
        f"{_words(one.name)} as the {_words(_last_name(one.path))} of {_words(program.operations[one.origin].tool)}"
        for one in operation.arguments
        if one.origin >= 0 and _last_name(one.path).lower() != one.name.lower()
    ]
    told = [text for text in (_listed(roots), *found) if text]
    return f"{phrase} with {', '.join(told)}." if told else f"{phrase}."


def _lead(model: EnvironmentModel, tool: str) -> str:
    """The first sentence of a tool's description that no other tool's has; what they share says nothing of this one."""
    others = {sentence for name, entry in model.tools.items() if name != tool for sentence in _sentences(entry)}
    entry = model.tools.get(tool)
    own = [sentence for sentence in (_sentences(entry) if entry is not None else ()) if sentence not in others]
    return next((sentence.rstrip(".!?:") for sentence in own if len(sentence) <= _LEAD), "")


def _sentences(entry: ToolModel) -> list[str]:
    texts = re.split(r"(?<=[.!?])\s+|\n+", entry.description.strip())[:8]
    return [_LABEL.sub("", text).strip() for text in texts if text.strip()]


def _closing(program: Program, operation: Operation) -> str:
    pieces: list[str] = []
    for one in operation.arguments:
        if one.origin >= 0:
            origin = program.operations[one.origin].tool
            pieces.append(f"{_words(one.name)}: the {_words(_last_name(one.path))} of {_words(origin)}")
        else:
            pieces.append(f"{_words(one.name)}: {_shown(one.value)}")
    return f"Then {_words(operation.tool)}{' with ' if pieces else ''}{', '.join(pieces)}."


def _listed(roots: Sequence[Argument]) -> str:
    return ", ".join(f"{_words(one.name)} {_shown(one.value)}" for one in roots)


def _shown(value: Any) -> str:
    text = as_text(value)
    return text if text and isinstance(value, str | int | float) and " " not in text else _quoted(value)


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else msgspec.json.encode(value).decode()


def _last_name(path: str) -> str:
    return next((part for part in reversed(path.split(".")) if part and not part.isdecimal()), "result")


def _words(name: str) -> str:
    """`search_flight`, `searchFlight` as words."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ").replace(".", " ").strip()
    return text.lower()


def _typed(like: Any, text: str) -> Any:
    """`text` as a value of the type of `like`; None if it is none."""
    if isinstance(like, str):
        return text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if type(value) is type(like) else None
