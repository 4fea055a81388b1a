"""What an engine's `/metrics` say of its service, in vLLM's names; the embedded engine has the same.

Sums over all label sets, so that the engines of a data-parallel server count as one. What an engine does not export is
0 or empty. Names: vLLM 0.32, `vllm/v1/metrics/loggers.py`.
"""

from collections import defaultdict

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from actors.ports.errors import EngineRejected


class Figures(msgspec.Struct, frozen=True):
    """Counters since the engine's start, and gauges."""

    running: float = 0.0
    """Requests that are being answered."""
    waiting: float = 0.0
    """Requests that wait for a place."""
    tokens: float = 0.0
    """Tokens sampled."""
    finished: float = 0.0
    """Answers that ended, however."""
    errors: float = 0.0
    """Of them by an error of the engine."""
    first_token: dict[float, float] = {}
    """Answers whose first token came within so many seconds: cumulative, by upper bound, +Inf last."""


def read_figures(text: str) -> Figures:
    """The figures in `text`, Prometheus' exposition format.

    Raises:
        EngineRejected: `text` is in no such format.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    buckets: defaultdict[float, float] = defaultdict(float)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "vllm:time_to_first_token_seconds_bucket":
                    buckets[float(sample.labels["le"])] += sample.value
                elif sample.name == "vllm:request_success_total":
                    sums["finished"] += sample.value
                    sums["errors"] += sample.value * (sample.labels.get("finished_reason") == "error")
                else:
                    sums[sample.name] += sample.value
    except (ValueError, KeyError) as error:
        raise EngineRejected(f"metrics that cannot be read: {error}") from error
    return Figures(
        running=sums["vllm:num_requests_running"],
        waiting=sums["vllm:num_requests_waiting"],
        tokens=sums["vllm:generation_tokens_total"],
        finished=sums["finished"],
        errors=sums["errors"],
        first_token=dict(sorted(buckets.items())),
    )
