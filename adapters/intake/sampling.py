"""How a response was sampled, from its request: whether its log-probs can be those of the policy."""

from collections.abc import Callable
from typing import Any

from actors.messages import Sampling

Get = Callable[[str], Any]
"""The value of a request's field, None if there is none."""

_GRAMMARS = ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs")
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "top_k": (0, -1), "min_p": (0,), "presence_penalty": (0,), "frequency_penalty": (0,), "repetition_penalty": (1,),
    "logit_bias": ({}, []), "allowed_token_ids": ([],), "bad_words": ([], ""), "logits_processors": ([],),
    "use_beam_search": (False,), "min_tokens": (0,), "echo": (False,),
}  # fmt: skip
"""Fields under which the log-probs are not those of the distribution that was sampled, but for these values."""


def read_sampling(get: Get) -> Sampling:
    """The sampling of a request in any dialect."""
    bent = _bent(get)
    return Sampling(
        temperature=_number(get("temperature")), top_p=_number(get("top_p")), forced=bool(bent), bent_by=bent
    )


def _bent(get: Get) -> str:
    choice = get("tool_choice")
    if _forces(choice):
        return "forced tool choice"
    text = get("text")
    shapes = (get("response_format"), text.get("format") if isinstance(text, dict) else None, get("output_format"))
    if any(isinstance(shape, dict) and shape.get("type") not in (None, "text") for shape in shapes):
        return "structured output"
    if any(get(name) for name in _GRAMMARS):
        return "structured output"
    return next((name for name, neutral in _NEUTRAL.items() if get(name) not in (None, *neutral)), "")


def _forces(choice: Any) -> bool:
    """Whether the model had to call a tool, or one of fewer tools than it was shown."""
    if isinstance(choice, dict):
        # Anthropic's automatic choice is an object too.
        return choice.get("type") not in ("auto", "none")
    return choice in ("required", "any")


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 1.0
