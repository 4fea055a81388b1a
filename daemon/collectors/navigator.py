"""Metrics of the navigator: what lessons there are to find, and what happened to them."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from actors.experience.navigator import Navigator
from daemon.collectors.figures import counter, gauge

_GAUGES = {
    "lessons": "Lessons that can be found.",
    "waiting": "Texts of lessons that have no vector yet: found by words alone.",
}


def navigator_figures(navigator: Navigator) -> Iterator[Metric]:
    figures = navigator.figures
    events = {name: number for name, number in figures.items() if name not in _GAUGES}
    yield counter("evolved_navigator_events", "What happened to lessons and vectors.", events, "what")
    for name, about in _GAUGES.items():
        yield gauge(f"evolved_navigator_{name}", about, figures[name])
