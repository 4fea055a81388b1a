"""JSON bodies: which strings there are, in which order they are read, and what goes with a redacted part.

Order matters, as what was found is taken out of what comes after it. A conversation is read message by message; within
one message everything is known to everything, as a client may write its fields in another order than the engine did.
"""

from typing import Any

from adapters.redaction import credentials
from adapters.redaction.finder import Finder
from adapters.redaction.scrub import Scrub, container, is_file
from adapters.redaction.tokens import mask

TOKEN_FIELDS = frozenset(
    {"token_ids", "logprobs", "top_logprobs", "prompt_token_ids", "prompt_logprobs", "prompt_text", "output_token_ids"}
)
_PROMPT_FIELDS = frozenset({"prompt_token_ids", "prompt_logprobs", "prompt_text"})
_RESPONSE_FIELDS = TOKEN_FIELDS - _PROMPT_FIELDS
_RAW_MESSAGES = ("input_messages", "output_messages")
"""With `enable_response_messages` vLLM's /v1/responses (0.32) has the ids in here, as the `tokens` of each message."""
UNREAD = TOKEN_FIELDS - {"prompt_text"}
IDS = frozenset(
    {
        "id", "object", "type", "role", "tool_call_id", "tool_use_id", "call_id", "item_id", "previous_response_id",
        "finish_reason", "stop_reason",
    }
)  # fmt: skip
"""Made by the engine, or the caller's names for a call; they join records, and two that became one would merge them."""
_JOINING = frozenset({"trajectory_id", "evolved_id"})
FREE = frozenset({"input", "arguments", "metadata", "parameters", "input_schema"})
"""Objects whose fields are the user's own, whatever they are called."""
_SHORTEST = 3
_CONVERSATION = ("messages", "input", "prompt")
_SMALLEST_CARD = 10**12
_LONG_NAME = 12


def collect(value: Any, into: list[str], finder: Finder, key: str = "", free: bool = False) -> bool:
    """Gather the strings of `value` that `redact` would search; returns whether a field is to go by its name or its
    number alone. `free`: no field of it is the protocol's."""
    kind = type(value)
    if kind is str:
        if len(value) < _SHORTEST or is_file(value):
            return False
        if key and finder.fields and (name := finder.named(key)) and credentials.named_secret(name, value):
            return True
        inner = container(value) if value[0] in "{[ \n\t\r" else None
        if inner is not None:
            return collect(inner, into, finder, "", True)
        into.append(value)
        return False
    if kind is dict:
        named = False
        titled = _title(value, finder) if free else ""
        for name, part in value.items():
            if titled and name == "value" and type(part) is str and credentials.named_secret(titled, part):
                return True
            if _is_protocol(name, part, free):
                continue
            if _tells(name, free):
                into.append(name)
            if part is not None and part is not True and part is not False:
                named |= collect(part, into, finder, name, free or (name in FREE and type(part) is dict))
        return named
    if kind is list:
        named = False
        for part in value:
            named |= collect(part, into, finder, key if free else "", free)
        return named
    if kind is int and (value >= _SMALLEST_CARD or (key and value > 99)):
        return finder.number(value, key) != ""
    return False


def pieces(events: list[Any]) -> list[list[str]]:
    """The strings of a list of events by their place: a stream cuts a text wherever it likes. What is the same in each
    event was not cut.
    """
    places: dict[tuple[Any, ...], list[str]] = {}

    def walk(value: Any, place: tuple[Any, ...]) -> None:
        if isinstance(value, str):
            places.setdefault(place, []).append(value)
        elif isinstance(value, dict):
            for name, part in value.items():
                if not _is_protocol(name, part, False):
                    walk(part, (*place, name))
        elif isinstance(value, list):
            for position, part in enumerate(value):
                walk(part, (*place, position))

    for event in events:
        walk(event, ())
    return [parts for parts in places.values() if len(set(parts)) > 1]


def redact(value: Any, scrub: Scrub, key: str = "", free: bool = False) -> Any:
    """`value` with its strings redacted; dicts and lists are changed in place."""
    if isinstance(value, str):
        return scrub.string(value, key)
    if isinstance(value, dict):
        titled = _title(value, scrub.finder) if free else ""
        for name in list(value):
            part = value[name]
            if titled and name == "value" and isinstance(part, str):
                value[name] = scrub.string(part, str(value[_title_field(value)]))
                continue
            if _is_protocol(name, part, free):
                continue
            value[name] = redact(part, scrub, name, free or (name in FREE and type(part) is dict))
            if _tells(name, free) and (shown := scrub.string(name)) != name:
                value[shown] = value.pop(name)
        return value
    if isinstance(value, list):
        for number, part in enumerate(value):
            value[number] = redact(part, scrub, key if free else "", free)
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return scrub.number(value, key)
    return value


_TITLES = ("name", "key", "field", "label")


def _title_field(value: dict[str, Any]) -> str:
    """The field of `{"name": "password", "value": "..."}` that says what the value is; empty if it has none."""
    if "value" not in value:
        return ""
    return next((title for title in _TITLES if isinstance(value.get(title), str)), "")


def _title(value: dict[str, Any], finder: Finder) -> str:
    title = _title_field(value)
    return finder.named(value[title]) if title and finder.fields else ""


def _tells(name: str, free: bool) -> bool:
    """Whether the name of a field may be more than a name: a customer's address, a key."""
    return free or not name.isidentifier() or (len(name) > _LONG_NAME and any(map(str.isdigit, name)))


def _is_protocol(name: str, part: Any, free: bool) -> bool:
    """Whether a field is none that anybody wrote text into."""
    if free:
        return name in _JOINING
    return name in UNREAD or (name in IDS and type(part) is str)


def redact_unit(value: Any, scrub: Scrub, key: str = "", free: bool = False) -> Any:
    """As `redact`; what is found late in `value` is taken out of its beginning too."""
    known = -1
    while len(scrub.known) > known:
        known = len(scrub.known)
        value = redact(value, scrub, key, free)
    return value


def redact_request(body: Any, scrub: Scrub) -> Any:
    """A request: what frames the conversation first, then the conversation, in order."""
    if not isinstance(body, dict):
        return redact_unit(body, scrub)
    names = [name for name in body if name not in _CONVERSATION] + [name for name in _CONVERSATION if name in body]
    for name in names:
        part = body[name]
        if _is_protocol(name, part, False):
            continue
        if name in _CONVERSATION and isinstance(part, list):
            body[name] = [redact_unit(one, scrub) for one in part]
        else:
            body[name] = redact_unit(part, scrub, name, name in FREE and type(part) is dict)
    return body


def redact_response(body: Any, scrub: Scrub) -> Any:
    """A whole response. Its choices do not see each other; its items come one after the other."""
    if not isinstance(body, dict):
        return redact_unit(body, scrub)
    for name in list(body):
        part = body[name]
        if _is_protocol(name, part, False):
            continue
        if name == "choices" and isinstance(part, list):
            body[name] = [redact_unit(choice, scrub.fork()) for choice in part]
        elif name == "output" and isinstance(part, list):
            body[name] = [redact_unit(item, scrub) for item in part]
        else:
            body[name] = redact_unit(part, scrub, name)
    return body


def drop_tokens(value: Any, *, prompt: bool, response: bool) -> bool:
    """Take token ids and log-probs out of a response, in place: they decode to what was redacted. Returns whether there
    was anything."""
    gone = False
    if isinstance(value, dict):
        fields = (_PROMPT_FIELDS if prompt else frozenset()) | (_RESPONSE_FIELDS if response else frozenset())
        for name in fields & value.keys():
            gone |= value.pop(name) not in (None, [])
        for name, wanted in zip(_RAW_MESSAGES, (prompt, response), strict=True):
            messages = value.get(name) if wanted else None
            for message in messages if isinstance(messages, list) else ():
                gone |= isinstance(message, dict) and message.pop("tokens", None) not in (None, [])
        for part in value.values():
            gone |= drop_tokens(part, prompt=prompt, response=response)
    elif isinstance(value, list):
        for part in value:
            gone |= isinstance(part, dict | list) and drop_tokens(part, prompt=prompt, response=response)
    return gone


def masked_tokens(body: Any, choices: list[dict[str, Any]], scrub: Scrub, *, prompt: bool, response: bool) -> bool:
    """Take out of a response (or a list of its events), in place, what decodes to a find in the prompt or the response,
    and keep the other tokens of its only answer, whose `choices` are empty if there is none, or several. Returns
    whether anything changed."""
    kept: list[dict[str, Any]] = []
    if choices and mask(choices, scrub.taken, scrub):
        kept = [{name: choice.pop(name) for name in ("token_ids", "logprobs") if name in choice} for choice in choices]
    gone = drop_tokens(body, prompt=prompt, response=response or bool(choices))
    for choice, tokens in zip(choices, kept, strict=False):
        choice.update(tokens)
    return gone or bool(kept)


def may_carry_tokens(data: bytes) -> bool:
    """Whether bytes that are no JSON as a whole may hold token ids or log-probs."""
    return b"token_ids" in data or b"logprobs" in data or b'"tokens"' in data
