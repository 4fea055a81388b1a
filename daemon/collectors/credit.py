"""Metrics of the attributor: what was judged, what was not and why, what it cost, and how far the judge is trusted."""

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric

from actors.credit.attributor import Attributor
from daemon.collectors.figures import counter, gauge, split


def attributor_figures(attributor: Attributor) -> Iterator[Metric]:
    abstained, labelled = split(attributor.counts, "abstained_")
    yield counter(
        "evolved_attributor_trajectories", "Trajectories (told_steps: steps), by who labelled them.", labelled, "by"
    )
    yield counter(
        "evolved_attributor_abstained", "Trajectories without a label on any step, by reason.", abstained, "reason"
    )
    spent = attributor.spent
    yield gauge(
        "evolved_attributor_spent", "What the judge cost in the last day.",
        {"tokens": spent.tokens_day, "money": spent.money_day}, "what",
    )  # fmt: skip
    yield gauge(
        "evolved_attributor_budget_used_up", "1: a limit of the judge's budget is reached.", bool(attributor.used_up)
    )
    yield gauge(
        "evolved_attributor_judge_away", "1: the judge does not answer and is asked now and then.", attributor.away
    )
    lag = HistogramMetricFamily("evolved_attributor_lag_seconds", "From the end of a trajectory to its labels.")
    lag.add_metric((), attributor.lag.cumulative(), attributor.lag.sum)
    yield lag
    yield gauge(
        "evolved_attributor_weight", "How far the judge's labels are trusted, 0 to 1; tenant *: all of them.",
        {(page.judge, page.rubric, page.tenant): page.weight for page in attributor.pages()},
        "judge", "rubric", "tenant",
    )  # fmt: skip
