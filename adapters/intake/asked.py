"""What the bodies of a call say beside the conversation: names, and how the response was sampled."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from actors.dialects.conversation import string
from actors.dialects.form import Fields, value
from actors.messages import Hints, Sampling
from actors.messages.sampling import NUMBERS, strict_tools

_GRAMMARS = ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs")
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "logit_bias": ({}, []), "allowed_token_ids": ([],), "bad_words": ([], ""), "logits_processors": ([],),
    "use_beam_search": (False,), "min_tokens": (0,), "echo": (False,), "vllm_xargs": ({},), "watermarking": (False,),
    "thinking_token_budget": (),
}  # fmt: skip
"""Fields under which nobody can say what was sampled from, but for these values."""


def told(request: Fields, response: Fields) -> dict[str, Any]:
    """The fields of an `Exchange` that its bodies tell."""
    get = partial(value, request)
    return {
        "model": string(get("model")) or string(value(response, "model")),
        "response_id": string(value(response, "id")),
        "sampling": _sampling(get),
    }


def hinted(hints: Hints, request: Fields) -> Hints:
    """The hints of headers, and those of the body where there are none. The body is redacted: hints are kept as they
    are."""
    metadata, conversation = value(request, "metadata"), value(request, "conversation")
    named: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    return msgspec.structs.replace(
        hints,
        trajectory_id=hints.trajectory_id or string(named.get("trajectory_id")),
        custom_id=hints.custom_id or string(named.get("evolved_id")),
        previous_response_id=hints.previous_response_id or string(value(request, "previous_response_id")),
        conversation=string(conversation),
    )


def _sampling(get: Callable[[str], Any]) -> Sampling:
    """The sampling of a request in any dialect; what it does not say changes nothing, and is named."""
    said = {name: number for name in ("temperature", *NUMBERS) if (number := _number(get(name))) is not None}
    unsaid = tuple(name for name in ("temperature", *NUMBERS) if name not in said)
    # vLLM says "all" by 0 and by -1. A number that no engine takes must still fit into a record.
    top_k = min(max(0, int(said.pop("top_k", 0))), 2**31 - 1)
    return Sampling(**said, top_k=top_k, unsaid=unsaid, bent_by=_bent(get))


def _bent(get: Callable[[str], Any]) -> str:
    # What cannot be accounted for first: a grammar can be.
    other = next((name for name, neutral in _NEUTRAL.items() if get(name) not in (None, *neutral)), "")
    if other:
        return other
    choice = get("tool_choice")
    if _forces(choice):
        return "forced tool choice"
    form = get("text")
    shapes = (get("response_format"), form.get("format") if isinstance(form, dict) else None, get("output_format"))
    if any(isinstance(shape, dict) and shape.get("type") not in (None, "text") for shape in shapes):
        return "structured output"
    if any(get(name) for name in _GRAMMARS):
        return "structured output"
    return "strict tools" if choice != "none" and strict_tools(get("tools")) else ""


def _forces(choice: Any) -> bool:
    """Whether the model had to call a tool, or one of fewer tools than it was shown."""
    if isinstance(choice, dict):
        # Anthropic's automatic choice is an object too.
        return choice.get("type") not in ("auto", "none")
    return choice in ("required", "any")


def _number(found: Any) -> float | None:
    # vLLM takes a number in quotes, too.
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    try:
        number = float(found)
    except (OverflowError, ValueError):  # an integer of hundreds of digits, a word
        return None
    return number if math.isfinite(number) else None
