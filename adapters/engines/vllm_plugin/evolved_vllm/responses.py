"""Log-probs and weight versions beside the token ids of `/v1/responses`.

vLLM (0.32) shows the ids of a call's prompt and answer in the last fields of its response if the request says
`enable_response_messages`; log-probs it gives of text alone, under `include`, and none of tool calls. Here such a
request is sampled with log-probs (of the sampled token, no alternatives), and the one piece of `output_messages` has

    "logprobs": [-0.1, ...], "weight_versions": [{"version": "7", "start": 0, "end": 12}]

beside its `tokens`. A request that does not say so is answered as ever. All other fields of an answer stay what they
would be: `top_logprobs` too, which vLLM reads off the sampling.
"""

import math
from collections.abc import Callable
from typing import Any


def give_logprobs(request: type[Any], response: type[Any], context: type[Any]) -> None:
    """Change ResponsesRequest, ResponsesResponse and SimpleContext; doing it twice does no harm. AttributeError: a vLLM
    whose classes are made otherwise, and nothing has been changed."""
    sampling: Callable[..., Any] = request.to_sampling_params
    made: Callable[..., Any] = response.from_request.__func__
    pieces: Callable[[Any], list[Any]] = context.output_messages.fget
    if hasattr(pieces, _OURS):
        return

    def to_sampling_params(self: Any, *args: Any, **options: Any) -> Any:
        params = sampling(self, *args, **options)
        if self.enable_response_messages and params.logprobs is None:
            params.logprobs = 0
        return params

    def from_request(cls: Any, asked: Any, *args: Any, **options: Any) -> Any:
        answer = made(cls, asked, *args, **options)
        if asked.enable_response_messages and not asked.is_include_output_logprobs():
            answer.top_logprobs = None
        return answer

    def output_messages(self: Any) -> list[Any]:
        found = pieces(self)
        if len(found) == 1:
            _beside(found[0], self)
        return found

    setattr(output_messages, _OURS, True)
    request.to_sampling_params = to_sampling_params
    response.from_request = classmethod(from_request)
    context.output_messages = property(output_messages)


def _beside(piece: Any, context: Any) -> None:
    """Lay what was sampled beside `piece.tokens`. An answer never fails for it: what is odd is left out."""
    try:
        entries = context._accumulated_logprobs
        logprobs = [float(entry[token].logprob) for token, entry in zip(piece.tokens, entries, strict=True)]
        # JSON has no word for an infinity: the server would answer 500.
        if not all(map(math.isfinite, logprobs)):
            return
        piece.logprobs = logprobs
        spans = context.last_output.outputs[0].weight_versions
        if spans:
            piece.weight_versions = [
                {"version": str(span.version), "start": span.start, "end": span.end} for span in spans
            ]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return


_OURS = "_evolved_gives_logprobs"
