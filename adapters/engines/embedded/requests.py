"""What clients ask: the bodies of requests, checked.

Fields as in vLLM. A parameter that would change the answer and is not supported is refused, never ignored; a field that
nobody knows is ignored, as vLLM does.
"""

from typing import Annotated, Any

import msgspec

from adapters.engines.embedded.batching import Limits
from adapters.engines.embedded.sampling import Sampling

Count = Annotated[int, msgspec.Meta(ge=1)]
Temperature = Annotated[float, msgspec.Meta(ge=0.0, le=100.0)]
TopP = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]
Stop = str | Annotated[list[str], msgspec.Meta(max_length=16)] | None

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_k": (-1, 0), "min_p": (0,), "presence_penalty": (0,), "frequency_penalty": (0,), "repetition_penalty": (1,),
    "min_tokens": (0,), "n": (1,), "top_logprobs": (0,), "prompt_logprobs": (0,),
    "logit_bias": ({},), "bad_words": ([],), "stop_token_ids": ([],), "best_of": (1,),
    "response_format": ({"type": "text"},), "structured_outputs": (), "use_beam_search": (False,), "echo": (False,),
    "allowed_token_ids": ([],), "logprob_token_ids": ([],), "continue_final_message": (False,),
    "return_tokens_as_token_ids": (False,),
}  # fmt: skip
"""Parameters that are known and not supported, with the values that change nothing."""


class BadRequest(Exception):
    """A request that cannot be answered; its text goes to the client.

    Attributes:
        status: HTTP status.
        param: the field at fault.
    """

    def __init__(self, message: str, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.status, self.param = status, param


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class ChatRequest(msgspec.Struct):
    """POST /v1/chat/completions, and its /render."""

    messages: list[dict[str, Any]]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: int | None = None
    stop: Stop = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    prompt_logprobs: int | None = None
    ignore_eos: bool = False
    add_generation_prompt: bool = True
    return_token_ids: bool | None = None
    return_weight_versions: bool | None = None


class SamplingParams(msgspec.Struct):
    """`sampling_params` of a token-in request."""

    max_tokens: Count = 16
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    seed: int | None = None
    stop: Stop = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    ignore_eos: bool = False


class GenerateRequest(msgspec.Struct):
    """POST /inference/v1/generate."""

    token_ids: Annotated[list[int], msgspec.Meta(min_length=1)]
    sampling_params: SamplingParams = msgspec.field(default_factory=SamplingParams)
    model: str | None = None


class TokenizeRequest(msgspec.Struct):
    """POST /tokenize."""

    prompt: str
    model: str | None = None


def decode(body: bytes, kind: type[Any]) -> Any:
    """A request of `kind`. Raises BadRequest: no JSON, a wrong type, or a parameter that is not supported."""
    try:
        raw = msgspec.json.decode(body)
        request = msgspec.convert(raw, kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"the body cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise BadRequest("the body is not UTF-8") from error
    for place in (raw, raw.get("sampling_params")):
        if isinstance(place, dict):
            for name in _NEUTRAL.keys() & place.keys():
                value = place[name]
                if value is not None and value not in _NEUTRAL[name]:
                    raise BadRequest(f"{name}={value!r} is not supported by the embedded engine", param=name)
    return request


def chat_sampling(request: ChatRequest) -> Sampling:
    """How to draw for a chat."""
    temperature = 1.0 if request.temperature is None else request.temperature
    return Sampling(
        temperature=temperature, top_p=1.0 if request.top_p is None else request.top_p, seed=request.seed
    )  # fmt: skip


def chat_limits(request: ChatRequest, ends: frozenset[int], prompt_tokens: int, length: int) -> Limits:
    """When a chat's answer ends. Raises BadRequest: prompt and answer do not fit into the context, or options
    contradict each other."""
    wanted = request.max_completion_tokens or request.max_tokens
    if request.stream and request.prompt_logprobs is not None:
        raise BadRequest("prompt_logprobs are not available with stream", param="prompt_logprobs")
    if request.stream_options is not None and not request.stream:
        raise BadRequest("stream_options needs stream to be true", param="stream_options")
    return Limits(
        max_tokens=fitting(wanted, prompt_tokens, length),
        ends=frozenset() if request.ignore_eos else ends,
        stop=_stops(request.stop),
        scores_prompt=request.prompt_logprobs is not None,
        streamed=bool(request.stream),
    )


def generate_limits(request: GenerateRequest, ends: frozenset[int], length: int) -> Limits:
    """When a token-in request's answer ends. Raises BadRequest: prompt and answer do not fit into the context."""
    params = request.sampling_params
    return Limits(
        max_tokens=fitting(params.max_tokens, len(request.token_ids), length),
        ends=frozenset() if params.ignore_eos else ends,
        stop=_stops(params.stop),
        scores_prompt=params.prompt_logprobs is not None,
        streamed=False,
    )


def fitting(wanted: int | None, prompt_tokens: int, length: int) -> int:
    """Tokens an answer may have. Raises BadRequest: the prompt alone, or with what is wanted, is longer than the
    context."""
    if prompt_tokens >= length or prompt_tokens + (wanted or 0) > length:
        more = f" and {wanted} tokens were asked for" if wanted else ""
        raise BadRequest(
            f"this model's maximum context length is {length} tokens; the prompt has {prompt_tokens}{more}",
            param="max_tokens" if wanted else "messages",
        )
    return wanted or length - prompt_tokens


def _stops(stop: Stop) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if "" in stops:
        raise BadRequest("an empty stop text would end every answer", param="stop")
    return stops
