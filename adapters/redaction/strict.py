"""Strict mode: no free text is kept, only the structure of the traffic.

    Exchange / Feedback -> Strict -> fields of the protocol, numbers, names, digests

A list of what may stay, not of what must go: a field that nobody here knows is dropped. Texts become placeholders with
a keyed digest, so that the calls of a run are still told by their equal beginnings and a repeated tool call is seen to
be one. Arguments lose their keys too: a model invents some, and a map has customers' data for keys. Schemas,
descriptions and arguments keep a digest, so that a changed one is seen to have changed. Ids within bodies become
digests; ids of the caller's that are formed like ids stay, as feedback and operators name runs by them.
"""

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from actors.messages import Exchange, Feedback
from actors.messages.dialects import dialect_at
from actors.messages.traffic import Hints
from adapters.redaction.detector import listed
from adapters.redaction.finder import Placeholders

Record = TypeVar("Record", Hints, Feedback)

_COUNTS = frozenset(
    listed(
        "prompt_tokens, completion_tokens, total_tokens, input_tokens, output_tokens, cached_tokens, reasoning_tokens,"
        "audio_tokens, text_tokens, cache_creation_input_tokens, cache_read_input_tokens, max_tokens,"
        "max_completion_tokens, max_output_tokens, budget_tokens, index, created, created_at, n, seed, temperature,"
        "top_p, top_k, min_p, presence_penalty, frequency_penalty, repetition_penalty, stream, parallel_tool_calls,"
        "is_error, weight_version, version, start, end, code"
    )
)
"""Fields whose numbers stay."""
_WORDED = frozenset(listed("role, type, object, finish_reason, stop_reason, status, tool_choice"))
"""Fields whose values are the protocol's words."""
_IDS = frozenset(listed("id, tool_call_id, tool_use_id, call_id, previous_response_id"))
_NAMES = frozenset(("name", "model"))
_SCHEMAS = frozenset(("parameters", "input_schema"))
_OTHERS = frozenset(
    listed(
        "content, text, input, prompt, system, instructions, thinking, reasoning, reasoning_content, refusal, summary,"
        "output, message, error, description, arguments, messages, tool_calls, function, tools, choices, usage,"
        "prompt_tokens_details, completion_tokens_details, input_tokens_details, output_tokens_details, weight_versions"
    )
)
"""Texts, and what holds others."""
_KNOWN = _COUNTS | _WORDED | _IDS | _NAMES | _SCHEMAS | _OTHERS
_OUTER_IDS = ("trajectory_id", "agent", "custom_id", "conversation", "exchange_id")
"""The caller's own."""
_KEPT_IDS = {"metadata": ("trajectory_id", "evolved_id"), "conversation": ("id",)}
_WORDS = frozenset(
    listed(
        "added, any, api, arguments, assistant, authentication, auto, bad, block, call, calls, cancelled, chat, chunk,"
        "completed, completion, content, created, custom, default, delta, developer, done, end, ephemeral, error,"
        "exceeded, failed, file, filter, found, function, image, in, incomplete, input, internal, invalid, item, json,"
        "length, limit, list, max, message, model, none, not, object, output, overloaded, part, pause, permission,"
        "ping, progress, queued, rate, reasoning, refusal, request, required, response, result, schema, search,"
        "sequence, server, signature, start, stop, string, summary, system, text, thinking, tokens, tool, turn, url,"
        "use, user, web"
    )
)
"""Of which the protocols' own values are made (`chat.completion`, `tool_use`)."""
_WORD = re.compile(r"[a-z]+(?:[._-][a-z]+){0,7}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,63}")
_OUTER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_RANDOM = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{12,}|\d{9,}|[A-Za-z]{33,}")
"""A part of a name that is none: a key, a number of somebody's."""
_LARGEST = 10**11
"""Above any time and count: a number as long as this may be an account's or a card's."""
_DEEPEST = 24


class Strict:
    """Strips records. As `Redactor`, it holds no state between them."""

    def __init__(self, placeholders: Placeholders, clean: Callable[[str], bool]) -> None:
        """
        Args:
            placeholders: with a key; without one a digest would give short texts away.
            clean: whether nothing is found in a name.
        """
        self._placeholders, self._clean = placeholders, clean

    def text(self, text: str) -> str:
        """The placeholder for `text`; an empty one stays."""
        return self._placeholders.of("text", text) if text else text

    def name(self, name: str) -> str:
        """A name of a tool or a model, if it is formed like one."""
        if not name:
            return name
        parts = re.split(r"[^A-Za-z0-9]+", name)
        fits = _NAME.fullmatch(name) and not any(_RANDOM.search(part) for part in parts) and self._clean(name)
        return name if fits else self._placeholders.of("name", name)

    def inner_id(self, value: str) -> str:
        """The digest of an id that stands in a body: equal ones stay equal."""
        return f"id-{self._placeholders.digest('id', value, 24)}" if value else value

    def outer_id(self, value: str) -> str:
        """An id of the caller's, if it is formed like one."""
        if not value or (_OUTER_ID.fullmatch(value) and self._clean(value)):
            return value
        return self.inner_id(value)

    def arguments(self, value: Any) -> Any:
        """Arguments of a call, in the form they came: an object without its keys, or its text; what is no object stays
        none, so that a malformed call is seen to be one."""
        if not value or not isinstance(value, str):
            return {"redacted": self._placeholders.of("arguments", _canonical(value))} if value else value
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            inner = None
        whole = isinstance(inner, dict)
        return json.dumps(self.arguments(inner)) if whole else self._placeholders.of("malformed", value)

    def data(self, data: bytes, *, model: bool = True) -> bytes:
        """A body as structure, with the name of its model or without; nothing of one that is no JSON object."""
        try:
            body = json.loads(data) if data else None
            if not isinstance(body, dict):
                return b""
            if not model:
                body.pop("model", None)
            return msgspec.json.encode(self._kept(body, "", 0))
        except (ValueError, RecursionError):
            return b""

    def exchange(self, record: Exchange) -> Exchange:
        """`record` with nothing of a stranger's but its bodies, which are not looked at. Token ids and log-probs go,
        and what was wrong is told without its words."""
        return msgspec.structs.replace(
            record, endpoint=_path(record.endpoint), response_id=self.inner_id(record.response_id),
            model=self.name(record.model) if record.status < 400 else self.text(record.model),
            hints=self._without_ids(record.hints), error=self.text(record.error), prompt_ids=b"", response_ids=b"",
            logprobs=b"", versions=(), masked=(),
        )  # fmt: skip

    def feedback(self, feedback: Feedback) -> Feedback:
        """`feedback` without its words; its ids as the calls' are."""
        return msgspec.structs.replace(self._without_ids(feedback), text=self.text(feedback.text))

    def _without_ids(self, record: Record) -> Record:
        """`record` with its ids as they may be kept."""
        inner = ("response_id", "previous_response_id")
        made = {name: self.outer_id(getattr(record, name)) for name in _OUTER_IDS if hasattr(record, name)}
        made |= {name: self.inner_id(getattr(record, name)) for name in inner if hasattr(record, name)}
        return msgspec.structs.replace(record, **made)

    def _kept(self, value: Any, key: str, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return value if key in _COUNTS and abs(value) < _LARGEST else None
        if isinstance(value, str):
            return self._string(value, key)
        if depth > _DEEPEST:
            return None
        if isinstance(value, list):
            # Numbers in a list are ids of tokens, or vectors: both decode to text.
            return [self._kept(one, key, depth + 1) for one in value if isinstance(one, dict | list | str)]
        if key in _KEPT_IDS:
            return {name: self.outer_id(value[name]) for name in _KEPT_IDS[key] if isinstance(value.get(name), str)}
        if key == "arguments":
            return self.arguments(value)
        if key in _SCHEMAS:
            told = self._placeholders.of("schema", _canonical(value))
            return {"type": "object", "properties": {}, "description": told}
        return {
            # `input` of a tool_use is an object; a conversation is a list.
            name: self._kept(part, "arguments" if name == "input" and isinstance(part, dict) else name, depth + 1)
            for name, part in value.items()
            if name in _KNOWN or (depth == 0 and name in _KEPT_IDS)
        }

    def _string(self, value: str, key: str) -> str:
        if key in _WORDED:
            words = _WORD.fullmatch(value) and _WORDS.issuperset(re.split(r"[._-]", value))
            return value if words or not value else self._placeholders.of("word", value)
        if key in _IDS:
            return self.inner_id(value)
        if key in _NAMES:
            return self.name(value)
        if key == "conversation":
            return self.outer_id(value)
        return str(self.arguments(value)) if key == "arguments" else self.text(value)


def _path(path: str) -> str:
    """A path that is known, or none of it: before `/v1` a stranger may write what they like."""
    if dialect_at(path) is None:
        return "/other"
    tail = path.rsplit("/", 2)[-2:]
    return "/v1/chat/completions" if tail == ["chat", "completions"] else f"/v1/{tail[-1]}"


def _canonical(value: Any) -> str:
    """The same for the same JSON, however it is spaced and ordered."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        return repr(type(value))
