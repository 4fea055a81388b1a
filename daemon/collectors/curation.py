"""Metrics of the curator: what it ordered, what waits, why the rest never trains, and what reports came to."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from actors.curation.curator import Curator
from actors.store import Store
from daemon.collectors.figures import counter, gauge, split

_GAUGES = {
    "waiting": "Trajectories that may still be trained on.",
    "corrections": "Trained trajectories whose outcome was corrected, and that wait to be trained on again.",
    "guesses": "Unreported trajectories that may be trained on with a provisional outcome.",
    "waiting_groups": "Sandbox groups that could be ordered now.",
    "clusters": "Clusters of goals whose outcomes are remembered.",
    "clusters_sandbox": "Those of them that the sandbox has tasks of.",
    "kinds_agents": "Agents whose neighbourhoods of goals are remembered.",
    "kinds_neighbourhoods": "Those neighbourhoods: goals in free words that mean about the same.",
}


def outcome_figures(store: Store) -> Iterator[Metric]:
    """What became of reports on how runs went."""
    reports = store.reports
    yield counter(
        "evolved_outcome_reports", "Reports of how a run went, by what they did to its outcome.", reports.words, "did"
    )
    yield counter(
        "evolved_outcome_effects",
        "Reported outcomes, corrections too, by channel and by what they came to there: the effect, or why none.",
        reports.effects, "channel", "effect",
    )  # fmt: skip


def curator_figures(curator: Curator) -> Iterator[Metric]:
    figures = curator.figures
    dropped, did = split({name: number for name, number in figures.items() if name not in _GAUGES}, "pool_")
    yield counter("evolved_curator_records", "What the curator did.", did, "what")
    yield counter(
        "evolved_curator_pool", "What became of waiting trajectories and groups, by reason.", dropped, "reason"
    )
    for name, about in _GAUGES.items():
        yield gauge(f"evolved_curator_{name}", about, figures[name])
