"""Metrics of the assembler: how calls were linked into trajectories, and what became of them."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from actors.trajectories.assembler import Assembler
from daemon.collectors.figures import counter, gauge


def assembler_figures(assembler: Assembler) -> Iterator[Metric]:
    yield counter(
        "evolved_links", "Calls in closed trajectories, by what linked them to what came before and how sure that is.",
        {(signal, f"{confidence:g}"): number for (signal, confidence), number in assembler.links.items()},
        "signal", "confidence",
    )  # fmt: skip
    yield counter("evolved_assembler_records", "What the assembler met.", assembler.counts, "what")
    yield gauge("evolved_assembler_open_calls", "Calls in trajectories that are not over.", assembler.open_calls)
