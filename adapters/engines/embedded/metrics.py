"""Metrics with vLLM's names, so that one dashboard reads both engines."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from adapters.engines.embedded.batching import Batch, Run

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Metrics:
    """What an engine counts."""

    def __init__(self, model: str, batch: Batch) -> None:
        self.registry = CollectorRegistry()
        names = ("model_name", "engine")

        def counter(name: str, text: str) -> Counter:
            return Counter(f"vllm:{name}", text, names, registry=self.registry).labels(model, "0")

        def histogram(name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"vllm:{name}", text, names, registry=self.registry, buckets=buckets).labels(model, "0")

        self.registry.register(_BatchCollector(batch, (model, "0")))
        self._prompt = counter("prompt_tokens", "Prompt tokens.")
        self._generated = counter("generation_tokens", "Sampled tokens.")
        self._success = Counter(
            "vllm:request_success", "Answers by how they ended.", (*names, "finished_reason"), registry=self.registry
        )
        self._reasons = {r: self._success.labels(model, "0", r) for r in ("stop", "length", "abort", "error")}
        self._first = histogram("time_to_first_token_seconds", "From arrival to the first token.")
        self._between = histogram("inter_token_latency_seconds", "Mean time between two tokens of an answer.")
        self._whole = histogram("e2e_request_latency_seconds", "From arrival to the last token.")
        self._queued = histogram("request_queue_time_seconds", "From arrival to a row.")
        self._prompt_sizes = histogram("request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        self._answer_sizes = histogram("request_generation_tokens", "Sampled tokens of a request.", _TOKENS)
        self._updates = Histogram(
            "vllm:rl_weight_update_operation_duration_seconds", "How long weights took to load.",
            ("operation",), registry=self.registry, buckets=_SECONDS,
        )  # fmt: skip
        self.turned_away = counter("admission_rejections", "Requests turned away because too many were waiting.")
        self.refused = counter("weight_update_refused", "Checkpoints that were not loaded.")

    def loaded(self, seconds: float) -> None:
        """Weights were loaded."""
        self._updates.labels("update").observe(seconds)

    def finished(self, run: Run, arrived: float) -> None:
        """An answer ended; `arrived` in the batch's clock."""
        self._reasons[run.finish or "error"].inc()
        self._prompt.inc(run.prompt_tokens)
        self._generated.inc(run.produced)
        self._prompt_sizes.observe(run.prompt_tokens)
        self._answer_sizes.observe(run.produced)
        self._whole.observe(run.finished_at - arrived)
        if run.started_at:
            self._queued.observe(run.started_at - arrived)
        if run.first_token_at:
            self._first.observe(run.first_token_at - arrived)
            if run.produced > 1:
                self._between.observe((run.finished_at - run.first_token_at) / (run.produced - 1))

    def aborted(self) -> None:
        """An answer was given up because its client left."""
        self._reasons["abort"].inc()

    def render(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)


class _BatchCollector:
    """Reads the batch when it is asked: these numbers belong to the batch's thread and are only looked at."""

    def __init__(self, batch: Batch, labels: tuple[str, str]) -> None:
        self._batch, self._labels = batch, labels

    def collect(self) -> Iterator[Metric]:
        batch = self._batch
        used = sum(run.computed for run in list(batch.rows)) / (batch.model.slots * batch.model.length)
        for name, text, value in (
            ("num_requests_running", "Answers being made.", len(batch.rows)),
            ("num_requests_waiting", "Answers waiting for a row.", len(batch.waiting)),
            ("kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", used),
        ):
            gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=("model_name", "engine"))
            gauge.add_metric(self._labels, value)
            yield gauge
        for name, text, value in (
            ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", batch.prefixes.asked),
            ("prefix_cache_hits", "Prompt tokens found in the prefix cache.", batch.prefixes.found),
            ("num_preemptions", "Answers whose KV cache was dropped under them.", batch.recomputed),
        ):
            counter = CounterMetricFamily(f"vllm:{name}", text, labels=("model_name", "engine"))
            counter.add_metric(self._labels, value)
            yield counter
