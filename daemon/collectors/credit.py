"""Metrics of the attributor: what was judged, what was not and why, what it cost, and how far the judge is trusted."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.credit.attributor import Attributor

_ABSTAINED = "abstained_"


class AttributorCollector(Collector):
    """Reads the attributor's figures at each scrape."""

    def __init__(self, attributor: Attributor) -> None:
        self._attributor = attributor

    def register(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        counts = CounterMetricFamily(
            "evolved_attributor_trajectories", "Trajectories (told_steps: steps), by who labelled them.", labels=("by",)
        )
        abstained = CounterMetricFamily(
            "evolved_attributor_abstained", "Trajectories without a label on any step, by reason.", labels=("reason",)
        )
        for name, count in sorted(self._attributor.counts.items()):
            if name.startswith(_ABSTAINED):
                abstained.add_metric((name.removeprefix(_ABSTAINED),), count)
            else:
                counts.add_metric((name,), count)
        yield counts
        yield abstained
        spent = GaugeMetricFamily(
            "evolved_attributor_spent", "What the judge cost in the sliding window.", labels=("what", "window")
        )
        figures = self._attributor.spent
        for what, window, value in (
            ("tokens", "hour", figures.tokens_hour),
            ("tokens", "day", figures.tokens_day),
            ("money", "hour", figures.money_hour),
            ("money", "day", figures.money_day),
        ):
            spent.add_metric((what, window), value)
        yield spent
        yield GaugeMetricFamily(
            "evolved_attributor_budget_used_up", "1: a limit of the judge's budget is reached.",
            float(bool(self._attributor.used_up)),
        )  # fmt: skip
        yield GaugeMetricFamily(
            "evolved_attributor_judge_away", "1: the judge does not answer and is asked now and then.",
            float(self._attributor.away),
        )  # fmt: skip
        lag = HistogramMetricFamily("evolved_attributor_lag_seconds", "From the end of a trajectory to its labels.")
        lag.add_metric((), self._attributor.lag.cumulative(), self._attributor.lag.sum)
        yield lag
        weight = GaugeMetricFamily(
            "evolved_attributor_weight", "How far the judge's labels are trusted, 0 to 1; tenant *: all of them.",
            labels=("judge", "rubric", "tenant"),
        )  # fmt: skip
        for page in self._attributor.pages():
            weight.add_metric((page.judge, page.rubric, page.tenant), page.weight)
        yield weight
