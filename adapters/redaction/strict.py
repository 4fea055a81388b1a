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
from typing import Any, TypeVar

import msgspec

from actors.messages import Exchange, Feedback
from actors.messages.dialects import ENDINGS
from actors.messages.traffic import Hints
from adapters.redaction.detector import listed
from adapters.redaction.finder import Finder

Record = TypeVar("Record", Hints, Feedback)

_FIELDS = {
    name: how
    for how, names in {
        "number": (
            "prompt_tokens, completion_tokens, total_tokens, input_tokens, output_tokens, cached_tokens, max_tokens,"
            "reasoning_tokens, audio_tokens, text_tokens, cache_creation_input_tokens, cache_read_input_tokens,"
            "max_completion_tokens, max_output_tokens, budget_tokens, index, created, created_at, n, seed, temperature,"
            "top_p, top_k, min_p, presence_penalty, frequency_penalty, repetition_penalty, stream, is_error,"
            "parallel_tool_calls, weight_version, version, start, end, code"
        ),
        "word": "role, type, object, finish_reason, stop_reason, status, tool_choice",
        "id": "id, tool_call_id, tool_use_id, call_id, previous_response_id",
        "name": "name, model",
        "schema": "parameters, input_schema",
        "arguments": "arguments",
        "text": (
            "content, text, input, prompt, system, instructions, thinking, reasoning, reasoning_content, refusal,"
            "summary, output, message, error, description, messages, tool_calls, function, tools, choices, usage,"
            "prompt_tokens_details, completion_tokens_details, input_tokens_details, output_tokens_details,"
            "weight_versions"
        ),
    }.items()
    for name in listed(names)
}
"""What stays of a field: a number, the protocol's own word, the digest of an id, the name of a tool or a model, the
digest of a schema, of arguments or of a text. Of other objects stays what may stay of their fields."""
_ENGINES_IDS = ("response_id", "previous_response_id")
_CALLERS_IDS = ("trajectory_id", "agent", "custom_id", "conversation", "exchange_id")
_OWN_IDS = {"metadata": ("trajectory_id", "evolved_id"), "conversation": ("id",)}
"""Fields of a request, and what in them names a run."""
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


class Strict:
    """Strips records. As `Redactor`, it holds no state between them."""

    def __init__(self, finder: Finder) -> None:
        """
        Args:
            finder: with a key for its placeholders; without one a digest would give short texts away.
        """
        self._finder = finder

    def exchange(self, record: Exchange) -> Exchange:
        """`record` with nothing of a stranger's. Token ids and log-probs go, and an error is told without its words.
        The name of a model that the engine did not know is a stranger's text."""
        known = record.status < 400
        return msgspec.structs.replace(
            record,
            # Of another path nothing: before `/v1` a stranger may write what they like.
            endpoint=next((f"/v1{ending}" for ending in ENDINGS if record.endpoint.endswith(ending)), "/other"),
            response_id=self.inner_id(record.response_id), request=self._body(record.request, model=known),
            response=self._body(record.response), model=self._name(record.model) if known else self.text(record.model),
            hints=self._stripped(record.hints), error=self.text(record.error), prompt_ids=b"", response_ids=b"",
            logprobs=b"", versions=(), masked=(),
        )  # fmt: skip

    def feedback(self, feedback: Feedback) -> Feedback:
        """`feedback` without its words; its ids as the calls' are."""
        return msgspec.structs.replace(self._stripped(feedback), text=self.text(feedback.text))

    def text(self, text: str) -> str:
        """The placeholder for `text`; an empty one stays."""
        return self._finder.placeholder("text", text) if text else text

    def inner_id(self, value: str) -> str:
        """The digest of an id that stands in a body: equal ones stay equal."""
        return f"id-{self._finder.digest('id', value, 24)}" if value else value

    def outer_id(self, value: str) -> str:
        """An id of the caller's, if it is formed like one."""
        if not value or (_OUTER_ID.fullmatch(value) and self._finder.clean([value])):
            return value
        return self.inner_id(value)

    def _stripped(self, record: Record) -> Record:
        """`record` with its ids as they may be kept."""
        inner = {name: self.inner_id(getattr(record, name)) for name in _ENGINES_IDS if hasattr(record, name)}
        outer = {name: self.outer_id(getattr(record, name)) for name in _CALLERS_IDS if hasattr(record, name)}
        return msgspec.structs.replace(record, **inner, **outer)

    def _body(self, data: bytes, *, model: bool = True) -> bytes:
        """A body as structure, with the name of its model or without; nothing of one that is no JSON object."""
        try:
            body = json.loads(data) if data else None
            if not isinstance(body, dict):
                return b""
            if not model:
                body.pop("model", None)
            own = {name: self._own(name, body[name]) for name in _OWN_IDS if name in body}
            return msgspec.json.encode(self._kept(body, "") | own)
        except (ValueError, RecursionError):
            return b""

    def _own(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {id_: self.outer_id(value[id_]) for id_ in _OWN_IDS[name] if isinstance(value.get(id_), str)}
        return self.outer_id(value) if isinstance(value, str) and name == "conversation" else None

    def _kept(self, value: Any, name: str) -> Any:
        how = _FIELDS.get(name, "")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return value if how == "number" and abs(value) < _LARGEST else None
        if isinstance(value, list):
            # Numbers in a list are ids of tokens, or vectors: both decode to text.
            return [self._kept(one, name) for one in value if isinstance(one, dict | list | str)]
        if how == "arguments":
            return self._arguments(value)
        if isinstance(value, dict):
            return self._object(value, how)
        keep = {"word": self._word, "id": self.inner_id, "name": self._name}.get(how, self.text)
        return keep(value)

    def _object(self, value: dict[str, Any], how: str) -> dict[str, Any]:
        if how == "schema":
            told = self._finder.placeholder("schema", _canonical(value))
            return {"type": "object", "properties": {}, "description": told}
        # `input` of a tool_use is an object; a conversation is a list.
        return {
            name: self._kept(part, "arguments" if name == "input" and isinstance(part, dict) else name)
            for name, part in value.items()
            if name in _FIELDS
        }

    def _arguments(self, value: Any) -> Any:
        """Arguments of a call, in the form they came: an object or its text, without keys, for models invent some and
        maps have customers' data for keys. A malformed call stays malformed."""
        if not value or not isinstance(value, str):
            return {"redacted": self._finder.placeholder("arguments", _canonical(value))} if value else value
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            inner = None
        whole = isinstance(inner, dict)
        return json.dumps(self._arguments(inner)) if whole else self._finder.placeholder("malformed", value)

    def _word(self, value: str) -> str:
        words = _WORD.fullmatch(value) and _WORDS.issuperset(re.split(r"[._-]", value))
        return value if words or not value else self._finder.placeholder("word", value)

    def _name(self, name: str) -> str:
        """A name of a tool or a model, if it is formed like one."""
        parts = re.split(r"[^A-Za-z0-9]+", name)
        fits = _NAME.fullmatch(name) and not any(map(_RANDOM.search, parts)) and self._finder.clean([name])
        return name if fits or not name else self._finder.placeholder("name", name)


def _canonical(value: Any) -> str:
    """The same for the same JSON, however it is spaced and ordered."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
