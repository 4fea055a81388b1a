"""How an engine samples: what the distribution that a token was drawn from is made of, beside the weights.

request, engine's defaults -> `Sampling` of an `Exchange` -> `Processing` of a `TokenRow` -> the learner's logits
"""

from typing import Any, cast

import msgspec


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What a request or an engine's defaults say by a number, beside the temperature; by default nothing is done."""

    top_p: float = 1.0
    """Smallest set of tokens whose probability reaches this; 1 for all."""
    top_k: int = 0
    """So many likeliest tokens; 0 for all."""
    min_p: float = 0.0
    """Tokens with at least this share of the likeliest one's probability."""
    repetition_penalty: float = 1.0
    """Logits above 0 are divided by it, others multiplied, of tokens that prompt or answer have had."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens that the answer has had."""
    frequency_penalty: float = 0.0
    """The same, times how often."""


NUMBERS = Numbers.__struct_fields__


class Processing(Numbers, frozen=True, kw_only=True):
    """What is done to a model's logits, beside the temperature, before a token is drawn; by default nothing.

    In the order of vLLM (0.32, `v1/sample/sampler.py`): a grammar masks, penalties, temperature, min_p, top_k, top_p.
    """

    grammar: bool = False
    """A grammar masked tokens that did not fit, wherever it said so: a form of the answer, a forced or strict tool."""

    @property
    def only_grammar(self) -> bool:
        """Whether all else leaves the distribution as it is."""
        return msgspec.structs.replace(self, grammar=False) == Processing()


class Sampling(Numbers, frozen=True, kw_only=True):
    """How the response was sampled; decides what its log-probs are of."""

    temperature: float = 1.0
    unsaid: tuple[str, ...] = ()
    """Which of the numbers the request left to the engine's defaults."""
    bent_by: str = ""
    """What else masked or bent the distribution: one of `GRAMMARS`, or the name of the request's field."""

    @property
    def processing(self) -> Processing:
        """What the learner must do to its own logits, beside the temperature."""
        numbers = {name: getattr(self, name) for name in NUMBERS}
        return Processing(**numbers, grammar=self.bent_by in GRAMMARS)


GRAMMARS = ("forced tool choice", "structured output", "strict tools")
"""What has an engine mask the tokens that do not fit a grammar."""


def strict_tools(tools: Any) -> bool:
    """Whether a call of some tool in the JSON of a request's list must fit its schema.

    vLLM then has a grammar within a call's tags, whatever the tool choice is (0.32: `resolve_tool_strictness`).
    """
    if not isinstance(tools, list | tuple):
        return False
    listed = [cast(dict[str, Any], tool) for tool in cast(list[Any], tools) if isinstance(tool, dict)]
    inner = [cast(dict[str, Any], one) for tool in listed if isinstance(one := tool.get("function"), dict)]
    return any(tool.get("strict") is True for tool in [*listed, *inner])
