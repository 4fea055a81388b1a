"""An answer of a chat completion, in OpenAI's form: what was said and called, and how likely.

The gate reads it as it is; `completion` adds token ids and versions.
"""

import msgspec

from actors.messages import ToolCall


class _Function(msgspec.Struct):
    name: str
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function
    id: str = ""


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _LogProb(msgspec.Struct):
    logprob: float


class _LogProbs(msgspec.Struct):
    content: list[_LogProb] | None = None


class Choice(msgspec.Struct):
    """One answer."""

    message: _Message
    finish_reason: str | None = None
    logprobs: _LogProbs | None = None

    @property
    def text(self) -> str:
        """What was said, empty if nothing was."""
        return self.message.content or ""

    @property
    def sampled(self) -> list[float]:
        """Log-probs of the sampled tokens, nats; empty where the engine says none."""
        content = self.logprobs.content if self.logprobs is not None else None
        return [item.logprob for item in content or ()]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls; one that came without arguments has none."""
        functions = [(call.function, call.id) for call in self.message.tool_calls or ()]
        return tuple(
            ToolCall(called.name, "{}" if called.arguments is None else called.arguments, key)
            for called, key in functions
        )
