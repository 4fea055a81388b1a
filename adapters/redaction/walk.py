"""One walk over one body: every place with something to search, in the order of the conversation.

    body -> slots: (holder, place in it, text or number, name of its field) -> is anything in one? -> replaced in place

Order matters, as what was found is taken out of what comes after it: a secret that was recognised by its surroundings
(`password=...`) goes from later texts that repeat it without them. Only from later ones: what stands before must look
as it did in the call before. A conversation is read message by message; within one message everything is known to
everything, as a client may write its fields in another order than the engine did.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from adapters.redaction.finder import SMALLEST_CARD, Edit, Finder, applied, is_worth_knowing

Slot = tuple[Any, Any, Any, str | None]
"""`holder[place]` is a text or a number, in a field of this name; without a name the place itself is the text."""

TOKENS = {
    "prompt": frozenset({"prompt_token_ids", "prompt_logprobs", "prompt_text"}),
    "response": frozenset({"token_ids", "logprobs", "top_logprobs", "output_token_ids"}),
}
"""Fields that hold token ids, or what decodes as they do, of a part of the call."""
_UNREAD = TOKENS["prompt"] - {"prompt_text"} | TOKENS["response"]
_IDS = frozenset(
    {
        "id", "object", "type", "role", "tool_call_id", "tool_use_id", "call_id", "item_id", "previous_response_id",
        "finish_reason", "stop_reason",
    }
)  # fmt: skip
"""Made by the engine, or the caller's names for a call; they join records, and two that became one would merge them."""
_JOINING = frozenset({"trajectory_id", "evolved_id"})
_FREE = frozenset({"input", "arguments", "metadata", "parameters", "input_schema"})
"""Objects whose fields are the user's own, whatever they are called."""
_CONVERSATION = ("messages", "input", "prompt")
_TURNS = (*_CONVERSATION, "output", "choices")
"""Lists whose entries come one after the other; but choices do not see each other."""
_TITLES = ("name", "key", "field", "label", "k", "type")
_VALUES = frozenset(("value", "v", "val", "text", "content"))
_MOST_COLUMNS = 64
_SHORTEST = 3
_LONG_NAME = 12
_MOST_KNOWN = 64
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-\r\n"
_FILE = 1024


class Walk:
    """One call's redaction."""

    def __init__(self, finder: Finder) -> None:
        self.finder = finder
        self.finds: dict[str, int] = {}
        """What was taken out, by kind."""
        self.known: dict[str, str] = {}
        """Kinds by value, of what goes from all that follows."""
        self.taken: dict[str, str] = {}
        """Placeholders by value, of all that was taken out."""

    def body(self, body: Any) -> tuple[Any, bool]:
        """`body`, redacted in place, and whether anything was found in it."""
        if self._is_clean(body):
            return body, False
        before, box = dict(self.finds), [body]
        for holder, place, name, free, apart in _units(box):
            mine = self.known
            self.known = dict(mine) if apart else mine
            self._unit(holder, place, name, free)
            self.known = mine
        for name in [name for name in body if _tells(name, False)] if isinstance(body, dict) else ():
            self._fill((body, name, name, None))
        return box[0], self.finds != before

    def value(self, value: Any, name: str = "") -> Any:
        """Anything of a stranger's, in a field of this name if it is one's."""
        box = [value]
        self._unit(box, 0, name, True)
        return box[0]

    def is_cut(self, events: list[Any]) -> bool:
        """Whether a find lies across the events of a stream that could not be merged: a stream cuts a text wherever it
        likes. What is the same in each event was not cut."""
        texts: dict[tuple[Any, ...], list[str]] = {}

        def collect(value: Any, place: tuple[Any, ...]) -> None:
            if isinstance(value, str):
                texts.setdefault(place, []).append(value)
            elif isinstance(value, dict | list):
                for name, part in value.items() if isinstance(value, dict) else enumerate(value):
                    if not _is_protocol(name, part, False):
                        collect(part, (*place, name))

        for event in events:
            collect(event, ())
        return any(
            not any(edit.value in part for part in parts)
            for parts in texts.values()
            if len(set(parts)) > 1
            for edit in self.finder.edits("".join(parts), self.known)
        )

    def edits(self, value: str | int, name: str = "") -> list[Edit]:
        """What to take out of a text, or of a number in a field; what was found is known from now on."""
        field = self.finder.field(name, value)
        edits = [field] if field else self.finder.edits(value, self.known) if isinstance(value, str) else []
        for edit in edits:
            self.finds[edit.kind] = self.finds.get(edit.kind, 0) + 1
            self.taken[edit.value] = edit.placeholder
            for found, kind in ((edit.value, edit.kind), *edit.inside):
                if len(self.known) < _MOST_KNOWN and is_worth_knowing(found):
                    self.known.setdefault(found, kind)
        return edits

    def _unit(self, holder: Any, place: Any, name: str, free: bool) -> None:
        """What is found late in one message is taken out of its beginning too."""
        known = -1
        while len(self.known) > known:
            known = len(self.known)
            for slot in self._slots(holder, place, name, free):
                self._fill(slot)

    def _is_clean(self, body: Any) -> bool:
        texts: list[str] = []
        for _, _, value, name in self._slots([body], 0, "", False):
            if self.finder.field(name or "", value):
                return False
            if type(value) is str:
                texts.append(value)
        return self.finder.clean(texts, self.known)

    def _slots(self, holder: Any, place: Any, name: str, free: bool, header: Sequence[str] = ()) -> Iterator[Slot]:
        """The slots of `holder[place]`. JSON in a string is read as JSON, and written anew if something was taken out
        of it. `free`: no field of it is the protocol's. `header`: the columns of the lists in it."""
        value = holder[place]
        kind = type(value)
        if kind is str:
            if len(value) < _SHORTEST or is_file(value):
                return
            inner = container(value)
            if inner is None or (name and self.finder.field(name, value)):
                yield holder, place, value, name
                return
            box, before = [inner], dict(self.finds)
            yield from self._slots(box, 0, "", True)
            if self.finds != before:
                holder[place] = json.dumps(box[0], ensure_ascii=False)
        elif kind is dict:
            title = self._title(value) if free else ""
            header = next(filter(self._is_header, value.values()), []) if free else []
            for key in list(value):
                part = value[key]
                if part is None or part is True or part is False or _is_protocol(key, part, free):
                    continue
                told = title if title and key in _VALUES else key
                inner = free or (key in _FREE and type(part) is dict)
                yield from self._slots(value, key, told, inner, header)
                if _tells(key, free):
                    yield value, key, key, None
        elif kind is list:
            header = header or (value[0] if free and value and self._is_header(value[0]) else ())
            for at, part in enumerate(value):
                if header and type(part) is list and len(part) == len(header) and part is not header:
                    for column, cell in enumerate(header):
                        yield from self._slots(part, column, cell, True)
                elif type(part) is not int or name or part >= SMALLEST_CARD:
                    before = value[at - 1] if free and at and type(value[at - 1]) is str else ""
                    tells = before.startswith("--") or (len(value) == 2 and self.finder.named(before))
                    yield from self._slots(value, at, before.lstrip("-") if tells else name if free else "", free)
        elif kind is int and (value >= SMALLEST_CARD or (name and value > 99)):
            yield holder, place, value, name

    def _is_header(self, value: Any) -> bool:
        """Whether it names the columns of a table, and one of the names tells."""
        texts = type(value) is list and 1 < len(value) < _MOST_COLUMNS and all(type(one) is str for one in value)
        return texts and any(map(self.finder.named, value))

    def _title(self, value: dict[str, Any]) -> str:
        """What says of `{"name": "password", "value": "..."}` what the value is, if it tells."""
        if _VALUES.isdisjoint(value):
            return ""
        titles = (value.get(title) for title in _TITLES)
        return next((title for title in titles if isinstance(title, str) and self.finder.named(title)), "")

    def _fill(self, slot: Slot) -> None:
        holder, place, value, name = slot
        edits = self.edits(value, name or "")
        if edits and name is None:
            holder[applied(place, edits)] = holder.pop(place)
        elif edits:
            holder[place] = applied(str(value), edits)


def _units(box: list[Any]) -> Iterator[tuple[Any, Any, str, bool, bool]]:
    """(holder, place, name, free, apart) of what is read as one: what frames a conversation first, then its turns."""
    body = box[0]
    if not isinstance(body, dict):
        yield box, 0, "", False, False
        return
    for name in sorted(body, key=_CONVERSATION.__contains__):
        part = body[name]
        if _is_protocol(name, part, False):
            continue
        if name in _TURNS and isinstance(part, list):
            yield from ((part, at, "", False, name == "choices") for at in range(len(part)))
        else:
            yield body, name, name, name in _FREE and isinstance(part, dict), False


def container(text: str) -> Any:
    """The object or list that `text` is in JSON; None also if a field stands in it twice, as one of them would not be
    read, and yet be kept."""
    if text[0] not in "{[ \t\r\n" or (bare := text.strip())[:1] + bare[-1:] not in ("{}", "[]"):
        return None
    try:
        return json.loads(bare, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return None


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """
    Raises:
        ValueError: a field stands there twice.
    """
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field stands there twice")
    return fields


def is_file(text: str) -> bool:
    """Whether `text` is an embedded file in base64, which holds no text and is long."""
    if len(text) < _FILE or not text.isascii():
        return False
    return (text.startswith("data:") and ";base64," in text[:100]) or not text.encode().translate(None, _BASE64)


def _tells(name: str, free: bool) -> bool:
    """Whether the name of a field may be more than a name: a customer's address, a key."""
    return free or not name.isidentifier() or (len(name) > _LONG_NAME and any(map(str.isdigit, name)))


def _is_protocol(name: Any, part: Any, free: bool) -> bool:
    """Whether a field is none that anybody wrote text into."""
    if free:
        return name in _JOINING
    return name in _UNREAD or (name in _IDS and type(part) is str)
