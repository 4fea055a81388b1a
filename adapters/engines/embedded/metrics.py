"""Metrics with vLLM's names, so that one dashboard reads both engines."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from adapters.engines.embedded.batching import Batch, Run

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Metrics:
    """What an engine counts."""

    def __init__(self, model: str, batch: Batch) -> None:
        self.registry = CollectorRegistry()
        names = ("model_name", "engine")

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"vllm:{name}", text, names, registry=self.registry).labels(model, "0")

        def counter(name: str, text: str) -> Counter:
            return Counter(f"vllm:{name}", text, names, registry=self.registry).labels(model, "0")

        def histogram(name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"vllm:{name}", text, names, registry=self.registry, buckets=buckets).labels(model, "0")

        self._batch = batch
        gauge("num_requests_running", "Answers being made.").set_function(lambda: len(batch.rows))
        gauge("num_requests_waiting", "Answers waiting for a row.").set_function(lambda: len(batch.waiting))
        self._cache = gauge("kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.")
        self._asked = counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self._found = counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        self._recomputed = counter("num_preemptions", "Answers whose KV cache was dropped under them.")
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

    def render(self) -> bytes:
        """Prometheus' text format."""
        batch, prefixes = self._batch, self._batch.prefixes
        used = sum(run.computed for run in list(batch.rows))
        self._cache.set(used / (batch.model.slots * batch.model.length))
        # The batch's thread counts these; a counter must only ever grow by what was added since.
        for counter, total in (
            (self._asked, prefixes.asked), (self._found, prefixes.found), (self._recomputed, batch.recomputed)
        ):  # fmt: skip
            counter.inc(total - counter._value.get())
        return generate_latest(self.registry)
